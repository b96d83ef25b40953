"""What stands beside a figure of the gallery: where it came from, under which licence, how to cite it."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from helpers.settings import DATA, REPO

COURSE = "1500 Milliseconds"
WIDTH = 100


@cache
def lesson_titles() -> dict[str, str]:
    """The title of each lesson, by its number."""
    frame = pd.read_csv(DATA / "lessons.csv", dtype=str)
    return dict(zip(frame["lesson"], frame["title"], strict=True))


@cache
def _project() -> dict[str, Any]:
    return tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def licence() -> str:
    """The course's licence in a sentence, and what it does not cover."""
    return (
        f"{COURSE} and its figures are under the licence {_project()['license']}. "
        "Published numbers are their publishers', named above."
    )


def citation(record: dict[str, Any]) -> str:
    """How to cite a figure: the course, its version, the figure, and the dates of the runs it shows."""
    runs = [source["says"] for source in record["sources"] if source["file"].startswith("data/runs/")]
    dates = sorted({date for says in runs for date in re.findall(r"^run of (\d{4}-\d\d-\d\d)", says)})
    of = f", runs of {' and '.join(dates)}" if dates else ""
    title = record["title"].rstrip(".")
    return f"{COURSE}, version {_project()['version']}, figure {record['name']}: \u201c{title}\u201d{of}."


def text(record: dict[str, Any]) -> str:
    """The whole note of a figure, for its ``.origins.txt``.

    Args:
        record: as :func:`helpers.gallery.make` makes it.
    """
    lesson = record["lesson"]
    parts = [
        f"{record['name']}: {record['title']}",
        "=" * min(WIDTH, len(f"{record['name']}: {record['title']}")),
        "",
        *_filled("", record["says"]),
        "",
        f"Lesson: {lesson} {lesson_titles().get(lesson, '')}".rstrip(),
        f"Drawn by: {record['drawn_by']}",
        *_filled("Where the numbers are from: ", record["note"] or "the figure shows no measured number"),
    ]
    parts += _list("Published sources, and what modelled rows were computed from", record["published"])
    files = [f"{one['file']}: {one['says']} (sha256 {one['sha256']})" for one in record["sources"]]
    parts += _list("Files it was made from", files)
    parts += ["", *_filled("Licence: ", licence()), *_filled("To cite it: ", citation(record))]
    return "\n".join(parts) + "\n"


def _list(heading: str, entries: Iterable[str]) -> list[str]:
    lines = [line for entry in entries for line in _filled("- ", entry, indent="  ")]
    return ["", f"{heading}:", *lines] if lines else []


def _filled(begin: str, words: str, *, indent: str = "") -> list[str]:
    how = {"initial_indent": begin, "subsequent_indent": indent}
    return textwrap.wrap(words, WIDTH, break_long_words=False, break_on_hyphens=False, **how)
