"""One hand-written source a lesson, and everything that is made from it.

``notebooks/src/NN_name.py`` is the solved lesson in jupytext's percent format. From it come, always whole and
always the same bytes for the same source:

- ``notebooks/NN_name.ipynb``: the learner's version, with a stub wherever an exercise has its solution;
- ``notebooks/solutions/NN_name.ipynb``: the solved version.

Both are canonical: nbformat 4.5, the cell's name as its id, fixed metadata, no outputs, no run counts.
Learners work on copies under ``workspace/lessons/``, so that a newer course never overwrites an answer::

    python -m helpers.lessons build    # sources -> notebooks
    python -m helpers.lessons check    # are the notebooks what the sources say?
    python -m helpers.lessons copy     # notebooks -> workspace/lessons, nothing lost

CONTRIBUTING.md shows how a lesson's source is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from datetime import datetime
from pathlib import Path

from helpers import settings, sources
from helpers.settings import CourseError
from helpers.sources import NOTEBOOKS, Cell

HIDDEN_TAGS = {"hint", "check", "quiz"}  # the learner sees what these show; their code is folded, not gone


def notebook(path: Path, cells: list[Cell], *, solutions: bool) -> bytes:
    """One version of a lesson as the bytes of its .ipynb file."""
    made = []
    for cell in cells:
        if "solution" in cell.tags and not solutions:
            continue
        text = cell.source
        if "exercise" in cell.tags:
            text = sources.solved(text) if solutions else sources.stub(path, cell)
        metadata: dict[str, object] = {"tags": list(cell.tags)} if cell.tags else {}
        if HIDDEN_TAGS & set(cell.tags) and cell.kind == "code":
            metadata["jupyter"] = {"source_hidden": True}
        entry = {
            "cell_type": cell.kind,
            "id": cell.name,
            "metadata": metadata,
            "source": text.splitlines(True),
        }
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        made.append(entry)
    whole = {
        "cells": made,
        "metadata": {
            # The hash tells, later, a notebook that somebody worked in from one that can be made again.
            "course": {"sources": sources_hash(made)},
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def sources_hash(cells: list[dict]) -> str:
    """A hash of what people write in a notebook's cells. Empty cells do not count: JupyterLab adds one when
    the last cell is run."""
    content = []
    for cell in cells:
        text = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if text.strip() or cell.get("attachments"):
            content.append([cell["cell_type"], text, cell.get("attachments") or None])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def expected(notebooks: Path | None = None) -> dict[Path, bytes]:
    """Every notebook that the sources make: path -> bytes."""
    notebooks = notebooks or NOTEBOOKS
    made = {}
    for path in sources.paths(notebooks):
        cells = sources.read(path)
        made[notebooks / f"{path.stem}.ipynb"] = notebook(path, cells, solutions=False)
        made[notebooks / "solutions" / f"{path.stem}.ipynb"] = notebook(path, cells, solutions=True)
    return made


def _present(notebooks: Path) -> list[Path]:
    return sorted([*notebooks.glob("*.ipynb"), *(notebooks / "solutions").glob("*.ipynb")])


def build(notebooks: Path | None = None) -> list[str]:
    """Write both versions of every lesson; returns what was done, a line each.

    A notebook that somebody worked in (it has outputs, or cells that no build wrote) is first saved to
    ``workspace/saved/<date-time>/``. Raises LessonError before anything is written.
    """
    notebooks = notebooks or NOTEBOOKS
    made = expected(notebooks)
    said = []
    for path, content in made.items():
        if path.exists():
            if path.read_bytes() == content:
                continue
            if _worked_in(path):
                kept = _free(settings.workspace("saved", _now(), str(path.relative_to(notebooks))))
                _write(kept, path.read_bytes())
                said.append(f"{path.name}: somebody worked in it; that version is now {kept}")
        _write(path, content)
        said.append(f"wrote {path.relative_to(notebooks.parent)}")
    said += [
        f"{path.relative_to(notebooks.parent)} has no source; it is left as it is"
        for path in _present(notebooks)
        if path not in made
    ]
    return said


def _worked_in(path: Path) -> bool:
    """Whether a notebook holds anything that its source could not bring back."""
    book = _load(path)
    if book is None:
        return path.stat().st_size > 0
    if any(cell.get("outputs") for cell in book["cells"]):
        return True
    return book["metadata"].get("course", {}).get("sources") != sources_hash(book["cells"])


def _load(path: Path) -> dict | None:
    """A notebook's JSON, or None if it cannot be read as one."""
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
        sources_hash(book["cells"])
        book["metadata"].get("course", {}).get("sources")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return book


def check(notebooks: Path | None = None) -> list[str]:
    """What is not as the sources say: a line for each notebook that is missing, differs or has no source.
    An empty list means that all is well. Raises LessonError for a mistake in a source."""
    notebooks = notebooks or NOTEBOOKS
    made = expected(notebooks)
    problems = []
    for path, content in made.items():
        name = path.relative_to(notebooks.parent)
        if not path.exists():
            problems.append(f"{name} is missing")
        elif path.read_bytes() != content:
            problems.append(f"{name} differs from its source: {_difference(path, content)}")
    problems += [
        f"{path.relative_to(notebooks.parent)} has no source: write src/{path.stem}.py or remove it"
        for path in _present(notebooks)
        if path not in made
    ]
    return problems


def _difference(path: Path, content: bytes) -> str:
    book = _load(path)
    if book is None:
        return "it is not a readable notebook"
    want = json.loads(content)
    have = {cell.get("id"): cell for cell in book["cells"]}
    made = {cell["id"]: cell for cell in want["cells"]}
    found = []
    if any(cell.get("outputs") for cell in book["cells"]):
        found.append("outputs")
    if any(cell.get("execution_count") for cell in book["cells"]):
        found.append("run counts")

    def same(name: str) -> bool:
        keys = ("cell_type", "source", "metadata")
        return name in have and name in made and all(have[name].get(k) == made[name].get(k) for k in keys)

    changed = [str(name) for name in dict.fromkeys([*made, *have]) if not same(name)]
    if changed:
        found.append(f"cells {', '.join(changed)}")
    elif list(have) != list(made):
        found.append("the order of cells")
    if book["metadata"] != want["metadata"] and not changed:
        found.append("notebook metadata")
    return "; ".join(found) or "the same content, not in canonical form"


# ---------------------------------------------------------------------------------------------------------
# The learner's copies


def copy(notebooks: Path | None = None) -> list[str]:
    """Copy the lessons to ``workspace/lessons/``; returns what was done, a line each.

    A copy is left alone while its lesson is unchanged. When the lesson has changed, a copy that only has
    outputs moves to ``earlier/`` and the new lesson takes its place; a copy that the learner edited stays,
    and the new lesson is put beside it as ``NN_name.new.ipynb``. A copy that cannot be read as a notebook
    (cut short by a full disk, say) moves to ``earlier/`` too. Nothing is ever overwritten.
    """
    notebooks = notebooks or NOTEBOOKS
    remembered = settings.workspace("lessons", ".copied.json")
    folder = remembered.parent
    state = _read_state(remembered)
    said = []
    for shipped in sorted(notebooks.glob("*.ipynb")):
        content = shipped.read_bytes()
        latest = sources_hash(json.loads(content)["cells"])
        target = folder / shipped.name
        entry = state.setdefault(shipped.name, {})
        if not target.exists():
            _create(target, content)
            state[shipped.name] = {"copied": latest}
            continue
        book = _load(target)
        if book is None:
            kept = _set_aside(target)
            _create(target, content)
            state[shipped.name] = {"copied": latest}
            said.append(
                f"{target.name} could not be read as a notebook. It is now {kept}; here is a new copy"
            )
            continue
        present = sources_hash(book["cells"])
        if present == latest:
            state[shipped.name] = {"copied": latest}
        elif latest in (entry.get("copied"), entry.get("offered")):
            pass
        elif present == entry.get("copied"):
            kept = _set_aside(target)
            _create(target, content)
            state[shipped.name] = {"copied": latest}
            said.append(f"{target.name} has a newer version. Your earlier run of it is now {kept}")
        else:
            beside = _free(target.with_suffix(".new.ipynb"))
            _create(beside, content)
            entry["offered"] = latest
            said.append(
                f"{target.name} has a newer version. You wrote in yours, so it stays; the new one is {beside}"
            )
    _write(remembered, json.dumps(state, indent=1, sort_keys=True).encode())
    return said


def _set_aside(path: Path) -> Path:
    """Move a learner's copy to ``earlier/`` beside it; returns where it is now."""
    kept = _free(path.parent / "earlier" / f"{path.stem}.{_now()}.ipynb")
    kept.parent.mkdir(exist_ok=True)
    path.rename(kept)
    return kept


def _read_state(path: Path) -> dict[str, dict[str, str]]:
    """What was copied when. A lost or broken file only means that every changed copy counts as edited."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        return {name: dict(entry) for name, entry in state.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _now() -> str:
    return datetime.now().strftime("%Y-%m-%d-%H%M%S")


def _free(path: Path) -> Path:
    """The path itself, or with -2, -3 … before its extension: the first that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name.removesuffix('.ipynb')}-{number}.ipynb")
    return free


def _create(path: Path, content: bytes) -> None:
    """Make a new file, whole or not at all; raises FileExistsError rather than overwrite one."""
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    try:
        half.write_bytes(content)
        try:
            os.link(half, path)  # unlike a rename it fails where a file is, should somebody be faster
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if path.exists():
                raise FileExistsError(f"{path} is there already") from None
            half.rename(path)
    finally:
        half.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Write whole or not at all: a reader never finds half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    half.write_bytes(content)
    half.replace(path)


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when all is well, 1 when something needs a person."""
    parser = argparse.ArgumentParser(
        prog="python -m helpers.lessons", description="Build and copy the lessons."
    )
    parser.add_argument("command", choices=("build", "check", "copy"))
    command = parser.parse_args(arguments).command
    try:
        said = {"build": build, "check": check, "copy": copy}[command]()
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    for line in said:
        print(line)
    if command == "check" and said:
        print("Make them again with: python -m helpers.lessons build")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
