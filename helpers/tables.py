"""The one reader of the course's tables of figures: the CSV files under ``data/`` that people typed in.

A figure is worth nothing without knowing who says so. So each row of each such table has four columns:
``unit`` (of its value; empty only for a plain name or class), ``source`` (who says so), ``date`` (when they
said it or when it was read, as exact as is known: ``2026``, ``2026-08`` or ``2026-08-31``) and ``origin``
(:mod:`helpers.origins`). :func:`read` refuses a table in which one row lacks one of them, and says which row.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from helpers.origins import ORIGINS, validate
from helpers.settings import DATA, CourseError

EVERY_ROW = ("unit", "source", "date", "origin")
_SAVE = "Save it as CSV in UTF-8, with commas between the cells and a point in numbers."
DATE = re.compile(r"20\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


def read(
    path: str | Path,
    *,
    key: str | tuple[str, ...] = "id",
    numeric: Iterable[str] = ("value",),
    text: Iterable[str] = (),
    unitless: bool = False,
) -> pd.DataFrame:
    """A table of figures, checked row by row.

    Args:
        path: the CSV file; a relative one is taken from ``data/``.
        key: the column, or columns, that name a row. No two rows may have the same.
        numeric: columns that must hold numbers; an empty cell is NaN.
        text: columns that must be there; an empty cell is an empty text.
        unitless: the units stand in the names of the columns (``price_usd_per_hour``), so there is no column
            ``unit``.

    Spaces around a cell and lines without anything in them do not count.

    Returns:
        The table in the file's order, with ``key`` as its index if that is one column.

    Raises:
        CourseError: the file cannot be read, or a row is bad: the message has the file, the line, the row's
            key and the column.
    """
    path = DATA / path  # an absolute path wins over the folder
    keys = (key,) if isinstance(key, str) else tuple(key)
    numeric, needed = tuple(numeric), tuple(name for name in EVERY_ROW if not (unitless and name == "unit"))
    raw, lines = _cells(path)
    for column in dict.fromkeys((*keys, *needed, *numeric, *text)):
        if column not in raw.columns:
            listed = ", ".join(raw.columns)
            hint = f" {_SAVE}" if len(raw.columns) < 2 else ""
            raise CourseError(f"{path.name} has no column {column!r}; it has {listed}.{hint}")
    frame = raw.copy()
    for line, row in zip(lines, raw.to_dict("records"), strict=True):
        name = " / ".join(row[column] for column in keys)
        _checked_row(row, f"{path.name}, line {line} ({name or 'no name'})", (*keys, *needed))
    for column in numeric:
        frame[column] = [
            _number(value, f"{path.name}, line {line}, column {column!r}")
            for line, value in zip(lines, raw[column], strict=True)
        ]
    twice = frame[frame.duplicated(list(keys), keep="first")]
    if len(twice):
        name = " / ".join(str(twice.iloc[0][column]) for column in keys)
        raise CourseError(f"{path.name}, line {lines[twice.index[0]]}: there is a row {name!r} already.")
    validate(frame, required=(*keys, *needed), numeric=numeric, used_by=f"data/{path.name}")
    return frame.set_index(keys[0]) if len(keys) == 1 else frame


def _cells(path: Path) -> tuple[pd.DataFrame, list[int]]:
    """The cells as texts, and the line on which each row begins. Not pandas' reader: a row with one cell too
    many (a number with a decimal comma, say) shifts all the others there, and nothing says so."""
    rows, began = [], 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            for row in reader:
                cells = [cell.strip() for cell in row]
                if any(cells):
                    rows.append((began, cells))
                began = reader.line_num + 1
    except OSError as error:
        raise CourseError(f"The table {path} cannot be read: {error}") from error
    except (ValueError, csv.Error) as error:
        raise CourseError(f"The table {path} cannot be read: {error}. {_SAVE}") from error
    if not rows:
        raise CourseError(f"The table {path} cannot be read: there is nothing in it. {_SAVE}")
    (_, head), *rows = rows
    while not head[-1]:
        head = head[:-1]
    if len(set(head)) < len(head):
        raise CourseError(f"{path.name}: two columns have the same name; it has {', '.join(head)}.")
    for line, cells in rows:
        if len(head) > 1 and any(cells[len(head) :]):  # with one, line 1 is no names of columns
            raise CourseError(
                f"{path.name}, line {line} ({cells[0] or 'no name'}): there are {len(cells)} cells in it and "
                f"{len(head)} columns. Write numbers with a point, and put a text with a comma in quotes."
            )
    filled = [(cells + [""] * len(head))[: len(head)] for _, cells in rows]
    return pd.DataFrame(filled, columns=head, dtype=str), [line for line, _ in rows]


def _checked_row(row: dict[str, str], where: str, needed: Iterable[str]) -> None:
    for column in needed:
        # A unit may be empty: a class or a version has none. Everything else has to be said.
        if column != "unit" and not row[column].strip():
            raise CourseError(
                f"{where}: column {column!r} is empty. Every row says where its figure is from."
            )
    if not DATE.fullmatch(row["date"]):
        raise CourseError(
            f"{where}: {row['date']!r} is not a date. "
            f"Write 2026, 2026-08 or 2026-08-31, as exact as is known."
        )
    if row["origin"] not in ORIGINS:
        raise CourseError(f"{where}: origin {row['origin']!r} is not one of {', '.join(ORIGINS)}.")


def _number(value: str, where: str) -> float:
    if not value.strip():
        return float("nan")
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(value)):
            return number
    raise CourseError(
        f"{where}: {value!r} is not a number. Write it with a point and no thousands sign; "
        f"leave the cell empty if it is not known."
    )
