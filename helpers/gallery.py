"""Makes every figure of the course at once, with where each came from: ``make figures``.

The exhibits stand in ``helpers/exhibits_NN.py``, one module a lesson; this one finds them, draws each in the
light and the dark theme, and writes a folder that can be put on a web page or sent to somebody as it is:

- ``05-two-replies.svg`` and ``.png``, and ``05-two-replies-dark.svg`` and ``.png``;
- ``05-two-replies.alt.txt``: the figure in words, and where its numbers are from in one line;
- ``05-two-replies.origins.txt``: the files it was made from, the runs, the published sources, how to cite it;
- ``index.html``: all of them on a page; ``gallery.json``: the same for a program.

The same data give the same bytes. Only files that the gallery itself wrote are ever replaced.

``python -m helpers.gallery`` does it, with ``--out FOLDER``, ``--only 06`` (lessons or names), ``--theme
dark``, ``--size slide``. ``python -m helpers.gallery --readme`` makes the README's figure anew, in ``docs/``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from helpers import figures, gallery_note, gallery_page, provenance
from helpers.exhibit import Exhibit
from helpers.run_file import write_whole
from helpers.settings import REPO, WORKSPACE, CourseError, cannot_write
from helpers.style import THEMES, sized

FOLDER = REPO / "docs"
README_FIGURE = "05-two-replies"
DEFAULT = WORKSPACE / "figures" / "gallery"
MANIFEST, PAGE = "gallery.json", "index.html"
NAME = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Made:
    """An exhibit, drawn.

    Attributes:
        record: what the page and ``gallery.json`` say of it, see :func:`make`.
        files: name and bytes of each of its files.
    """

    record: dict[str, Any]
    files: dict[str, bytes] = field(repr=False)


# --- finding the exhibits ---------------------------------------------------------------------------------


def lessons() -> list[str]:
    """The lessons that have a module of exhibits, such as ``05``."""
    return sorted(path.stem[-2:] for path in (REPO / "helpers").glob("exhibits_[0-9][0-9].py"))


def exhibits(only: Iterable[str] = ()) -> list[Exhibit]:
    """The course's exhibits, lesson by lesson.

    Args:
        only: lessons (``06``) and names (``06-waterfall``); without any, all.

    Raises:
        CourseError: there is no such lesson or name, two exhibits have one name, or a name is not one.
    """
    wanted, there = list(only), lessons()
    for name in wanted:
        if name[:2] not in there:
            raise CourseError(f"No lesson {name[:2]!r} has figures. These have: {', '.join(there)}.")
    found: dict[str, Exhibit] = {}
    for lesson in there:
        if wanted and lesson not in {name[:2] for name in wanted}:
            continue
        for exhibit in importlib.import_module(f"helpers.exhibits_{lesson}").EXHIBITS:
            if not NAME.fullmatch(exhibit.name) or exhibit.lesson != lesson:
                raise CourseError(
                    f"helpers/exhibits_{lesson}.py: {exhibit.name!r} is no name for an exhibit. Write it in "
                    f"small letters, beginning with its lesson: {lesson}-some-name."
                )
            if exhibit.name in found:
                raise CourseError(f"helpers/exhibits_{lesson}.py: there are two exhibits {exhibit.name!r}.")
            found[exhibit.name] = exhibit
    for name in wanted:
        if name not in there and name not in found:
            listed = ", ".join(known for known in found if known.startswith(name[:2]))
            raise CourseError(f"There is no figure {name!r}. Lesson {name[:2]} has: {listed}.")
    return [e for e in found.values() if not wanted or e.lesson in wanted or e.name in wanted]


def find(name: str) -> Exhibit:
    """One exhibit by its name, such as ``05-two-replies``.

    Raises:
        CourseError: there is none of this name.
    """
    (exhibit,) = exhibits([name]) if NAME.fullmatch(name) else [None]
    if exhibit is None:
        raise CourseError(f"{name!r} is no name of an exhibit, such as {README_FIGURE!r}.")
    return exhibit


def draw(exhibit: Exhibit, *, theme: str = "light", size: str = "column") -> Figure:
    """The figure of an exhibit.

    Args:
        exhibit: from :func:`exhibits` or :func:`find`.
        theme: ``light`` or ``dark``.
        size: ``column`` or ``slide``, see :func:`helpers.style.sized`.
    """
    given = () if exhibit.frame is None else (exhibit.frame(),)
    with sized(size):
        return exhibit.draw(*given, theme=theme, **exhibit.options)


# --- making them ------------------------------------------------------------------------------------------


def make(exhibit: Exhibit, *, themes: Sequence[str] = tuple(THEMES), size: str = "column") -> Made:
    """Draw an exhibit in each theme, as SVG and PNG, and say where it came from.

    Returns:
        Its files, and a record: ``name``, ``lesson``, ``title``, ``says``, ``alt``, ``note``, ``pictures``
        (a name for each theme, without an ending), ``width`` and ``height`` in px on the page, ``sources``
        (one a data file: ``file``, ``sha256``, ``says``) and ``published`` (who said what, and when).
    """
    with provenance.watching() as read:
        frame = None if exhibit.frame is None else exhibit.frame()
        given = () if frame is None else (frame,)
        with sized(size):
            drawn = {theme: exhibit.draw(*given, theme=theme, **exhibit.options) for theme in themes}
    files, pictures = {}, {}
    for theme, figure in drawn.items():
        pictures[theme] = exhibit.name + ("" if theme == "light" else f"-{theme}")
        for ending in ("svg", "png"):
            files[f"{pictures[theme]}.{ending}"] = figures.render(figure, theme, ending)
    figure = next(iter(drawn.values()))
    record = {
        "name": exhibit.name,
        "lesson": exhibit.lesson,
        "title": str(exhibit.options.get("title") or exhibit.name[3:].replace("-", " ").capitalize()),
        "says": exhibit.says,
        "drawn_by": f"{exhibit.draw.__module__}.{exhibit.draw.__name__}",
        "alt": figures.alt_text(figure),
        "note": getattr(figure, "note", ""),
        "pictures": pictures,
        "width": round(figure.get_figwidth() * 100),
        "height": round(figure.get_figheight() * 100),
        "sources": [vars(source) for source in provenance.sources(read)],
        "published": provenance.published_sources(frame),
    }
    words = "\n\n".join(filter(None, (record["alt"], record["note"]))) + "\n"
    files[f"{exhibit.name}.alt.txt"] = words.encode()
    files[f"{exhibit.name}.origins.txt"] = gallery_note.text(record).encode()
    return Made(record, files)


def write(made: Sequence[Made], folder: Path) -> list[str]:
    """Write drawn exhibits, the page and ``gallery.json`` into a folder.

    The page shows what was made before, too, if it is still there. Nothing is written if a file stands in
    the way that the gallery did not write, or that was changed since.

    Returns:
        The names of the files.

    Raises:
        CourseError: a file stands in the way, or the folder cannot be written in.
    """
    before = _manifest(folder)
    records = before["exhibits"] | {
        one.record["name"]: _joined(before["exhibits"].get(one.record["name"]), one.record) for one in made
    }
    files = {name: content for one in made for name, content in one.files.items()}
    names = _in_order(records)
    files[PAGE] = gallery_page.page([records[name] for name in names]).encode()
    in_the_way = [name for name, content in files.items() if not _ours(folder / name, content, before)]
    if in_the_way:
        listed = ", ".join(in_the_way[:5]) + (" and more" if len(in_the_way) > 5 else "")
        raise CourseError(
            f"In {folder} there are files that the gallery did not write, or that were changed since: "
            f"{listed}.\nNothing was written. Move them away, or choose another folder: make figures OUT=..."
        )
    digests = before["files"] | {name: _digest(content) for name, content in files.items()}
    manifest = {
        "exhibits": {name: records[name] for name in names},
        "files": dict(sorted(digests.items())),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
        write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise cannot_write(error) from error
    return [*files, MANIFEST]


def _manifest(folder: Path) -> dict[str, Any]:
    """What the gallery wrote into this folder before; of the exhibits those whose pictures are there."""
    path = folder / MANIFEST
    if not path.exists():
        return {"exhibits": {}, "files": {}}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        there = {
            name: record
            for name, record in kept["exhibits"].items()
            if all((folder / f"{stem}.svg").exists() for stem in record["pictures"].values())
        }
        return {"exhibits": there, "files": dict(kept["files"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CourseError(
            f"{path} is not the gallery's, or is damaged ({type(error).__name__}). Move it away, or choose "
            "another folder: make figures OUT=..."
        ) from error


def _in_order(names: Iterable[str]) -> list[str]:
    """Lesson by lesson, in a lesson as its exhibits stand; what is no exhibit any more comes last."""
    there = {name[:2] for name in names} & set(lessons())
    known = {exhibit.name: number for number, exhibit in enumerate(exhibits(there))}
    return sorted(names, key=lambda name: (name[:2], known.get(name, len(known)), name))


def _joined(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The new record; with the pictures of a theme made before, if they still show the same."""
    if old and old | {"pictures": {}} == new | {"pictures": {}}:
        pictures = old["pictures"] | new["pictures"]
        return new | {"pictures": {theme: pictures[theme] for theme in THEMES if theme in pictures}}
    return new


def _ours(path: Path, content: bytes, before: dict[str, Any]) -> bool:
    """Whether a file may be written: there is none, or it is the same, or it is as the gallery left it."""
    if not path.exists():
        return True
    there = path.read_bytes() if path.is_file() else b""
    return path.is_file() and (there == content or before["files"].get(path.name) == _digest(there))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def run(
    folder: Path,
    *,
    only: Iterable[str] = (),
    themes: Sequence[str] = tuple(THEMES),
    size: str = "column",
    say: Say = print,
) -> list[str]:
    """Make the exhibits and write them. Returns the names of those that could not be made, with the reason.

    Raises:
        CourseError: see :func:`exhibits` and :func:`write`.
    """
    chosen, made, failed = exhibits(only), [], []
    begun = time.monotonic()
    for number, exhibit in enumerate(chosen, 1):
        try:
            made.append(make(exhibit, themes=themes, size=size))
            say(f"{number}/{len(chosen)} {exhibit.name}")
        except CourseError as error:
            failed.append(f"{exhibit.name}: {error}")
            say(f"{number}/{len(chosen)} {exhibit.name}: not made, see below")
    if made:
        written = write(made, folder)
        took = time.monotonic() - begun
        say(f"{len(made)} figures, {len(written)} files in {took:.0f} s. Open: {folder / PAGE}")
    return failed


def two_replies(folder: Path = FOLDER) -> list[Path]:
    """The README's figure: the plain question and the tool call of lesson 05, as recorded.

    Raises:
        CourseError: there is no recorded run of lesson 05, or it lacks one of the two.
    """
    exhibit = find(README_FIGURE)
    frame = exhibit.frame() if exhibit.frame else None
    return list(figures.save(exhibit.draw, frame, folder / "two_replies", **exhibit.options))


def main(words: list[str]) -> int:
    """``python -m helpers.gallery``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.gallery", description="Every figure at once.")
    parser.add_argument("--out", default="", help="folder; by default workspace/figures/gallery")
    parser.add_argument("--only", default="", help="lessons or names, such as: 06 05-two-replies")
    parser.add_argument("--theme", default="", choices=["", *THEMES], help="one theme; by default both")
    parser.add_argument("--size", default="", choices=["", "column", "slide"], help="by default column")
    parser.add_argument("--readme", action="store_true", help="make the README's figure anew, in docs/")
    options = parser.parse_args(words)
    size = options.size or "column"
    folder = Path(options.out).expanduser().resolve() if options.out else DEFAULT
    if size != "column" and not options.out:
        folder = DEFAULT.with_name(f"gallery-{size}")
    try:
        if options.readme:
            print("\n".join(str(path.relative_to(REPO)) for path in two_replies()))
            return 0
        themes = (options.theme,) if options.theme else tuple(THEMES)
        only = options.only.replace(",", " ").split()
        failed = run(folder, only=only, themes=themes, size=size)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
