"""What things cost, each price with its source and its day: ``data/prices.csv``, and a file of your own.

Prices are the learner's to change. :func:`make_own` copies the course's table to ``workspace/prices.csv``;
a row there takes the place of the course's row with the same ``id``, a row with a new ``id`` is added, and a
row that you delete there falls back to the course's. Nobody but you changes that file.

A price is as old as the day on which it was read. :func:`table` says how old, counted from the first day that
its date can mean (``2026`` from the first of January), and calls it stale after :data:`LIMIT_DAYS` days.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import pandas as pd

from helpers import settings, tables
from helpers.settings import DATA, CourseError

SHIPPED = DATA / "prices.csv"
OWN = "prices.csv"  # in the workspace
LIMIT_DAYS = 90
TEXT = ("kind", "item", "billing", "provider", "conditions")
UNITS = {
    "gpu": "USD per GPU-hour",
    "cpu": "USD per machine-hour",
    "purchase": "USD",
    "region": "times",
    "stt": "USD per minute",
    "tts": "USD per million characters",
    "telephony": "USD per minute",
    "platform": "USD per minute",
    "llm-input": "USD per million tokens",
    "llm-cached-input": "USD per million tokens",
    "llm-cache-write": "USD per million tokens",
    "llm-output": "USD per million tokens",
}
BILLING = ("on demand", "reserved", "spot", "serverless", "bought", "per use", "")
_LAST = ("conditions", "source", "date", "origin")
_OWN_TOO: ContextVar[bool] = ContextVar("own prices too", default=True)


@contextmanager
def shipped_only() -> Iterator[None]:
    """A ``with`` block in which the learner's own prices do not count: for what has to come out the same on
    every machine, such as the gallery."""
    token = _OWN_TOO.set(False)
    try:
        yield
    finally:
        _OWN_TOO.reset(token)


def table(kind: str = "", *, today: datetime.date | None = None) -> pd.DataFrame:
    """All prices, or those of one kind: the learner's where there are any, else the course's.

    Args:
        kind: one of :data:`UNITS`; without it all.
        today: the day from which ages are counted; today by default.

    Returns:
        One row a price, index ``id``: ``kind``, ``item`` (such as ``B200``), ``billing`` (one of
        :data:`BILLING`), ``provider``, ``value``, ``unit`` (the kind's, see :data:`UNITS`), ``conditions``,
        ``source``, ``date``, ``origin``, ``yours`` (the row is the learner's own: new, or changed),
        ``age_days`` (since the first day that ``date`` can mean) and ``stale``.

    Raises:
        CourseError: there is no such kind, or a row of either file is bad; the row is named.
    """
    if kind and kind not in UNITS:
        raise CourseError(f"There is no kind of price {kind!r}. There are: {', '.join(UNITS)}.")
    shipped = _read(SHIPPED)
    own_path = settings.WORKSPACE / OWN
    if _OWN_TOO.get() and own_path.exists():
        try:
            own = _read(own_path)
        except CourseError as error:
            raise CourseError(
                f"{error}\nThis is your own file, {own_path}. Correct it there, or give it another name: "
                f"then the course's prices count."
            ) from error
        changed = [
            name not in shipped.index or not entry.equals(shipped.loc[name]) for name, entry in own.iterrows()
        ]
        kept = shipped.drop(index=[name for name in own.index if name in shipped.index])
        frame = pd.concat([kept.assign(yours=False), own.assign(yours=changed)])
        order = [*shipped.index, *(name for name in own.index if name not in shipped.index)]
        frame = frame.loc[order]
    else:
        frame = shipped.assign(yours=False)
    day = today or datetime.date.today()
    frame["age_days"] = [age_days(date, day) for date in frame["date"]]
    frame["stale"] = frame["age_days"] > LIMIT_DAYS
    return frame[frame["kind"] == kind].copy() if kind else frame.copy()


def row(name: str, *, today: datetime.date | None = None) -> pd.Series:
    """One price with all that is known of it, see :func:`table`.

    Raises:
        CourseError: there is no such price.
    """
    frame = table(today=today)
    if not isinstance(name, str) or name not in frame.index:
        near = [known for known in frame.index if known.split(".")[:2] == str(name).split(".")[:2]]
        raise CourseError(
            f"There is no price {name!r} in data/prices.csv or workspace/{OWN}. "
            f"Near it: {', '.join(near) or ', '.join(frame.index[:5])}; all: prices.table().index."
        )
    return frame.loc[name]


def value(name: str, unit: str) -> float:
    """One price as a number, in the unit that the caller expects: a token's price never passes for an hour's.

    Raises:
        CourseError: there is no such price, or it has another unit.
    """
    found = row(name)
    if found["unit"] != unit:
        raise CourseError(f"The price {name} is in {found['unit']!r}, not in {unit!r}.")
    return float(found["value"])


def age_days(date: str, today: datetime.date) -> int:
    """Days since the first day that a date can mean: ``2026-08`` counts from the first of August.

    A date in the future is 0 days old.

    Raises:
        CourseError: this is no date.
    """
    if not re.fullmatch(tables.DATE, date):
        raise CourseError(f"{date!r} is not a date. Write 2026, 2026-08 or 2026-08-31.")
    parts = [int(part) for part in date.split("-")]
    try:
        first = datetime.date(*(*parts, 1, 1)[:3])
    except ValueError as error:
        raise CourseError(f"{date!r} is not a day of the calendar ({error}).") from error
    return max((today - first).days, 0)


def warning(frame: pd.DataFrame) -> str:
    """What to know about the age of some prices, in a sentence; empty if all are fresh.

    Args:
        frame: rows of :func:`table`.
    """
    old = frame[frame["stale"]]
    if old.empty:
        return ""
    coarse = int((old["date"].str.len() == 4).sum())
    said = (
        f"{len(old)} of {len(frame)} prices are older than {LIMIT_DAYS} days, or may be; the oldest is of "
        f"{old.sort_values('age_days')['date'].iloc[-1]}."
    )
    if coarse:
        said += f" Of {coarse} only the year is known, so they count from its start."
    return (
        f"{said} Look at the providers' pages and put what you find into workspace/{OWN} (prices.make_own())."
    )


def show(frame: pd.DataFrame) -> pd.DataFrame:
    """Prices as a reader wants them: what, from whom, how much, under which conditions, who says so and when
    it was read, and whether that is long ago.

    Args:
        frame: rows of :func:`table`.
    """
    shown = pd.DataFrame(
        {
            "what": frame["item"],
            "billing": frame["billing"],
            "provider": frame["provider"],
            "price": [f"{value:g}" for value in frame["value"]],
            "unit": frame["unit"],
            "conditions": frame["conditions"],
            "source": frame["source"],
            "read": "read on " + frame["date"],
            "origin": frame["origin"],
        }
    )
    old = [f"{days} days" for days in frame["age_days"]]
    shown["read"] += [
        f" (stale: {age})" if stale else "" for age, stale in zip(old, frame["stale"], strict=True)
    ]
    if frame["yours"].any():
        shown["yours"] = ["yours" if own else "" for own in frame["yours"]]
    return shown


def make_own() -> Path:
    """Make a file for prices of your own in the workspace, with nothing in it but the names of its columns; a
    file that is there stays as it is. What is not in it is taken from the course's table, so that a newer
    course brings its newer prices.

    Returns:
        Its path.

    Raises:
        CourseError: the workspace cannot be written.
    """
    path = settings.workspace(OWN)
    try:
        file = path.open("xb")  # x: never over a file that is there
    except FileExistsError:
        print(f"{path} is there already and stays as it is. Change it, save it, run the cells again.")
        return path
    except OSError as error:
        raise settings.cannot_write(error) from error
    try:
        with file:
            file.write(SHIPPED.read_bytes().splitlines(keepends=True)[0])
    except OSError as error:
        path.unlink(missing_ok=True)  # half a table would stop every lesson that looks up a price
        raise settings.cannot_write(error) from error
    print(
        f"Your own prices go into {path}. Copy a line of {SHIPPED} into it and change its value, "
        f"source and date; or add one with a new id. What is not in it follows the course's table."
    )
    return path


def _read(path: Path) -> pd.DataFrame:
    """One file, checked row by row; read again only when it has changed."""
    stamp = path.stat()
    return _checked(path, stamp.st_mtime_ns, stamp.st_size).copy()


@lru_cache(maxsize=4)
def _checked(path: Path, changed_ns: int, size: int) -> pd.DataFrame:
    frame = tables.read(path, text=TEXT)
    for name, entry in frame.iterrows():
        where = f"{path.name}, row {name!r}"
        if entry["kind"] not in UNITS:
            raise CourseError(f"{where}: kind {entry['kind']!r} is none of {', '.join(UNITS)}.")
        if entry["unit"] != UNITS[entry["kind"]]:
            raise CourseError(
                f"{where}: a price of kind {entry['kind']!r} is in {UNITS[entry['kind']]!r}, and this row "
                f"says {entry['unit']!r}. Convert the value, or correct the unit."
            )
        if not entry["value"] >= 0:
            raise CourseError(f"{where}: the value is {entry['value']}. A price is a number, 0 or more.")
        if entry["billing"] not in BILLING:
            raise CourseError(
                f"{where}: billing {entry['billing']!r} is none of {', '.join(filter(None, BILLING))}."
            )
        if not entry["item"].strip():
            raise CourseError(f"{where}: column 'item' is empty. Say what is sold.")
        try:
            age_days(entry["date"], datetime.date.max)
        except CourseError as error:
            raise CourseError(f"{where}: {error}") from error
    return frame[["kind", "item", "billing", "provider", "value", "unit", *_LAST]]
