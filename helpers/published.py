"""Figures that the lessons quote, each with its source, date and conditions: ``data/published.csv``.

Most are other people's (origin ``published``); a few are our own counts and assumptions (``modelled``).
"""

from __future__ import annotations

from functools import cache

import pandas as pd

from helpers import tables
from helpers.settings import CourseError


@cache
def _read() -> pd.DataFrame:
    return tables.read("published.csv", text=("what", "conditions"))


def table(*ids: str) -> pd.DataFrame:
    """Rows of the table, all of them without arguments.

    Columns: ``value`` and ``unit``, ``what`` was measured, under which ``conditions``, ``source``, ``date``
    (as exact as is known) and ``origin``; the index is ``id``.

    Raises:
        CourseError: an id is not in the table.
    """
    frame = _read()
    for name in ids:
        if name not in frame.index:
            raise CourseError(f"data/published.csv has no row {name!r}. It has: {', '.join(frame.index)}.")
    return frame.loc[list(ids)].copy() if ids else frame.copy()


def value(name: str) -> float:
    """One figure, in the unit that its row names."""
    return float(table(name)["value"].iloc[0])


def show(*ids: str) -> pd.DataFrame:
    """The rows as a reader wants them: what, how much, under which conditions, who says so, and the origin
    (a count or an assumption of ours is ``modelled`` and must not pass for somebody's figure)."""
    frame = table(*ids)
    figure = [f"{number:g} {unit}" for number, unit in zip(frame["value"], frame["unit"], strict=True)]
    shown = pd.DataFrame({"what": frame["what"], "value": figure, "conditions": frame["conditions"]})
    shown["source"] = frame["source"] + ", " + frame["date"]
    shown["origin"] = frame["origin"]
    return shown.reset_index(drop=True)
