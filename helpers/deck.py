"""Slides: from a deck's Markdown to one HTML file and a PDF. ``python -m helpers.deck``, or ``make slides``.

``slides/NAME.md`` (:mod:`helpers.deck_source`) becomes ``workspace/slides/NAME.html`` and ``NAME.pdf``. The
HTML file holds everything, pictures and presenter view too; it asks nobody for anything. ``NAME-notes.txt``
is the speaker's script with the clock. Numbers come from :mod:`helpers.deck_facts`, figures from the exhibits
of the lessons (:mod:`helpers.deck_figures`), :mod:`helpers.deck_fill` puts them in, and Marp makes the pages
(:mod:`helpers.deck_tools`).
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import deck_figures, deck_fill, deck_source, deck_tools
from helpers.deck_tools import SLIDES, Say
from helpers.exhibit import Exhibit
from helpers.run_file import write_whole
from helpers.settings import WORKSPACE, CourseError, cannot_write

DEFAULT = "60-minutes"
THEMES = {"light": "milliseconds", "dark": "milliseconds-dark"}  # of the figures -> of the slides


@dataclass(frozen=True)
class Built:
    """What was made of a deck.

    Attributes:
        html: the slides, whole in one file.
        notes: the speaker's script.
        markdown: the deck as Marp got it, beside its figures.
        pdf: the slides as a PDF; None if it was not asked for.
    """

    html: Path
    notes: Path
    markdown: Path
    pdf: Path | None = None


def build(
    name: str = DEFAULT,
    *,
    exhibits: Mapping[str, Exhibit] | None = None,
    theme: str = "light",
    pdf: bool = True,
    folder: Path | None = None,
    say: Say = print,
) -> Built:
    """Make a deck's HTML, its PDF and its script.

    Args:
        name: ``slides/NAME.md``, without the ending; or the path of a deck.
        exhibits: figures by name; all of the course without it.
        theme: ``light`` or ``dark``.
        pdf: make the PDF too; it needs Chromium.
        folder: where they go, instead of ``workspace/slides/``. What was built there before is replaced.
        say: told what takes long.

    Raises:
        CourseError: a program is missing, or something in the deck is wrong; the message says what, and on
            which slide.
    """
    if theme not in THEMES:
        raise CourseError(f"There is no theme {theme!r} for slides. Type THEME=light or THEME=dark.")
    source = _source(name)
    deck = deck_source.parse(source.read_text(encoding="utf-8"))
    words = deck_tools.marp(say=say)
    target = (folder or WORKSPACE / "slides").resolve()
    made = target / "made" / theme
    known = deck_figures.exhibits() if exhibits is None else exhibits
    wanted = list(dict.fromkeys(name for slide in deck.slides for name in slide.figures))
    stem = source.stem if theme == "light" else f"{source.stem}-{theme}"
    built = Built(target / f"{stem}.html", target / f"{stem}-notes.txt", made / f"{source.stem}.md")
    try:
        made.mkdir(parents=True, exist_ok=True)
        say(f"Drawing {len(wanted)} figures.")
        drawn = {one: deck_figures.draw(one, known, made / "figures", theme) for one in wanted}
        filled = deck_fill.fill(deck, drawn)
        _write(built.markdown, deck_fill.markdown(deck, filled, THEMES[theme]))
        _write(built.notes, deck_fill.script(filled))
        page = built.markdown.with_suffix(".html")  # its figures beside it, until they are put in
        deck_tools.convert(words, built.markdown, page, log=made / "marp.log")
        _write(built.html, inline(page.read_text(encoding="utf-8"), made))
    except OSError as error:
        raise cannot_write(error) from error
    if not pdf:
        return built
    say(f"{built.html} is there. Printing the PDF.")
    built = replace(built, pdf=built.html.with_suffix(".pdf"))
    deck_tools.convert(words, built.markdown, built.pdf, log=made / "marp.log", pdf=True)
    return built


def inline(page: str, folder: Path) -> str:
    """The page with its figures inside, so that it needs no other file.

    Raises:
        CourseError: a figure is missing.
    """

    def put(found: re.Match[str]) -> str:
        path = folder / "figures" / found.group(1)
        if not path.is_file():
            raise CourseError(f"The figure {path.name} was not made. Type: make slides")
        return f'src="data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"'

    return re.sub(r'src="figures/([\w.-]+)"', put, page)


def _write(path: Path, text: str) -> None:
    write_whole(path, text.encode())


def _source(name: str) -> Path:
    path = Path(name) if name.endswith(".md") else SLIDES / f"{name}.md"
    if not path.is_file():
        decks = ", ".join(sorted(one.stem for one in SLIDES.glob("*.md") if one.stem != "README"))
        raise CourseError(f"There is no deck {path}. There are: {decks}. Type: make slides DECK={DEFAULT}")
    return path


def main(words: list[str] | None = None) -> int:
    """``python -m helpers.deck [DECK] [--theme dark] [--no-pdf] [--out FOLDER]``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.deck", description="Build the slides.")
    parser.add_argument("deck", nargs="?", default="", help="name of a file in slides/, or a path")
    parser.add_argument("--theme", default="", help="light (the default) or dark")
    parser.add_argument("--no-pdf", action="store_true", help="HTML and notes only")
    parser.add_argument("--out", type=Path, help="folder for the results; by default workspace/slides")
    given = parser.parse_args(words)
    theme, pdf = given.theme or "light", not given.no_pdf
    try:
        built = build(given.deck or DEFAULT, theme=theme, pdf=pdf, folder=given.out)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in (built.html, built.pdf, built.notes) if path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
