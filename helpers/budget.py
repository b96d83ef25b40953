"""The budget of a turn: the time between the caller's last sound and the agent's first, line by line.

The lines are a published table, ``data/budget.csv``, in two versions:

``primer``
    the table of the Illustrated Primer, sixteen lines. One caller on a Mac, WebRTC, the agent in the cloud.
    It gives no percentiles, so nobody knows whether its lines are medians.
``card``
    the same table with the line of the language model raised, as we read the model card of PhoneLLM. The
    card shows its budget as a picture; in text it gives only the total and that one line. All the other
    lines are the Primer's, because with them the total comes out: that reading is ours, and these rows are
    ``modelled``.

What a stage takes is not one number but a distribution: for that see :mod:`helpers.budget_sum`.
"""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from helpers import published, tables
from helpers.origins import validate
from helpers.settings import CourseError

LIMIT_MS = published.value("card.limit")
LLM = "language model"
GROUPS = (
    "uplink media",
    "transcription + endpointing",
    LLM,
    "sentence aggregation",
    "speech synthesis",
    "downlink media",
)
VERSIONS = ("primer", "card")
COLUMNS = ("number", "stage", "group", "ms", "unit", "source", "date", "origin")
_ARTICLE = "an article on PhoneLLM and its 650 ms, in Chinese, 2026"


@cache
def _read() -> pd.DataFrame:
    return tables.read(
        "budget.csv", key=("version", "number"), numeric=("ms",), text=("stage", "group", "version")
    )


def table(version: str = "primer") -> pd.DataFrame:
    """The budget, one row a line, in order.

    Columns: ``number`` (from 1), ``stage``, ``group`` (one of :data:`GROUPS`), ``ms``, ``unit``, ``source``,
    ``date``, ``origin``.

    Args:
        version: ``primer`` or ``card``, see the module.

    Raises:
        CourseError: there is no such version.
    """
    if version not in VERSIONS:
        raise CourseError(
            f"There is no version {version!r} of the budget. Type one of {', '.join(VERSIONS)}."
        )
    rows = _read().query("version == @version").assign(number=lambda rows: rows["number"].astype(int))
    return rows.sort_values("number")[list(COLUMNS)].reset_index(drop=True)


def checked(frame: pd.DataFrame) -> pd.DataFrame:
    """A budget that can be added up: lines with ``stage``, ``group``, ``ms`` and ``origin``, no ``ms``
    missing, negative or infinite, no group unknown.

    Raises:
        CourseError: a column is missing, or a line makes no sense; the message names it.
    """
    validate(frame, required=("stage", "group"), numeric=("ms",), used_by="budget.checked")
    for index, row in frame.iterrows():
        if row["group"] not in GROUPS:
            raise CourseError(
                f"Row {index!r}: {row['group']!r} is no group of the budget. It may be {', '.join(GROUPS)}."
            )
        checked_ms(row["ms"], f"line {row['stage']!r}")
    if frame.empty:
        raise CourseError("This budget has no line. Begin with budget.table().")
    return frame


def checked_ms(value: float, what: str) -> float:
    """The value as a float, if it can be a time: a finite number of ms, not below 0.

    Raises:
        CourseError: it cannot; ``what`` says in the message which one it is.
    """
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise CourseError(f"{what}: {value!r} is not a time in ms. Give a finite number, 0 or more.")
    return number


def total_ms(frame: pd.DataFrame) -> float:
    """The sum of all lines."""
    return float(checked(frame)["ms"].sum())


def rest_ms(frame: pd.DataFrame, group: str = LLM) -> float:
    """The sum of all lines outside one group.

    Raises:
        CourseError: the budget has no line of this group.
    """
    lines = checked(frame)
    _known(lines, group)
    return float(lines.loc[lines["group"] != group, "ms"].sum())


def left_for_ms(frame: pd.DataFrame, group: str = LLM, *, limit_ms: float = LIMIT_MS) -> float:
    """What subtraction leaves for a group: the limit less all the other lines. Below 0 if they alone break
    it."""
    return checked_ms(limit_ms, "limit_ms") - rest_ms(frame, group)


def slack_ms(frame: pd.DataFrame, *, limit_ms: float = LIMIT_MS) -> float:
    """What the whole budget leaves below the limit; below 0 if it is over."""
    return checked_ms(limit_ms, "limit_ms") - total_ms(frame)


def with_group(
    frame: pd.DataFrame,
    group: str,
    ms: float,
    *,
    stage: str = "",
    origin: str,
    source: str = "",
    date: str = "",
    server: str = "",
    n: int | None = None,
) -> pd.DataFrame:
    """The budget with one group replaced by a single line, such as your own TTFT or another path.

    Args:
        frame: a budget, as :func:`table` gives it.
        group: which.
        ms: the new line.
        stage: its name; without it the group's.
        origin: where ``ms`` comes from, with ``source`` and ``date`` if it is published, ``server`` if it was
            timed.
        n: how many samples ``ms`` sums up, if it was timed.

    Raises:
        CourseError: the group is not there, or ``ms`` or the origin makes no sense.
    """
    lines = checked(frame)
    first = _known(lines, group)
    line = {"number": lines.loc[first].get("number"), "stage": stage or group, "group": group, "unit": "ms"}
    line |= {"ms": checked_ms(ms, f"group {group!r}"), "source": source, "date": date, "origin": origin}
    if server or "server" in lines.columns:
        line["server"] = server
    if n is not None:
        line["n"] = n
    rows = []
    for index, row in lines.iterrows():
        if index == first:
            rows.append(line)
        elif row["group"] != group:
            rows.append(row.to_dict())
    found = pd.DataFrame(rows)
    for column in ("source", "date", "server"):
        if column in found.columns:
            found[column] = found[column].fillna("")
    return validate(checked(found), used_by="budget.with_group")


def _known(lines: pd.DataFrame, group: str) -> object:
    """Index of the first line of a group."""
    if group not in GROUPS:
        raise CourseError(f"There is no group {group!r}. It may be {', '.join(GROUPS)}.")
    found = lines.index[lines["group"] == group]
    if not len(found):
        raise CourseError(f"This budget has no line of the group {group!r}.")
    return found[0]


def by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """A budget by group, for a figure: one row a group, in the order of the turn.

    Columns: ``group``, ``lines`` (their numbers, such as ``1-6``), ``parts`` (names and ms of the lines),
    ``ms``, ``end_ms`` (running total), ``source``, ``date``, ``server``, ``origin``. A group whose lines have
    more than one origin is ``modelled``: a sum is worth no more than its weakest part.
    """
    rows, end = [], 0.0
    lines = checked(frame)
    for group in GROUPS:
        part = lines[lines["group"] == group]
        if part.empty:
            continue
        end += float(part["ms"].sum())
        said = {
            column: "; ".join(dict.fromkeys(filter(None, part[column].astype(str))))
            for column in ("source", "date", "server")
            if column in part.columns
        }
        if "n" in part.columns:
            said["n"] = part["n"].max()
        origin = part["origin"].iloc[0] if part["origin"].nunique() == 1 else "modelled"
        rows.append(
            {
                "group": group,
                "lines": _span(part),
                "parts": ", ".join(f"{row.stage} {row.ms:,.0f}" for row in part.itertuples()),
                "ms": float(part["ms"].sum()),
                "end_ms": end,
                **said,
                "origin": origin,
            }
        )
    return validate(pd.DataFrame(rows), used_by="budget.by_group")


def _span(part: pd.DataFrame) -> str:
    if "number" not in part.columns or part["number"].isna().any():
        return ""
    numbers = [int(number) for number in part["number"]]
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def claims() -> pd.DataFrame:
    """What an article says about this budget, in our words, beside what the table says.

    Columns: ``claim``, ``by the table`` (computed), ``holds`` (``yes``, ``no`` or ``in part``), ``source``,
    ``date``, ``origin`` (of the claim: published).
    """
    card, ms = table("card"), by_group(table("card")).set_index("group")["ms"]
    media = ms["uplink media"] + ms["downlink media"]
    big = [group for group in GROUPS if group != LLM and ms[group] >= 200]
    rows = [
        (
            "650 ms is what is left for the model when everything else is taken off 1500",
            f"{LIMIT_MS:,.0f} - {rest_ms(card):,.0f} = {left_for_ms(card):,.0f}; a line of {ms[LLM]:,.0f} "
            f"leaves {slack_ms(card):,.0f} unused",
            "no",
        ),
        (
            "network, STT, TTS and application logic each take several hundred ms",
            f"200 ms or more: {', '.join(big)} ({ms[big[0]]:,.0f}). All media handling together "
            f"{media:,.0f}, TTS {ms['speech synthesis']:,.0f}. There is no line for application logic",
            "in part",
        ),
        (
            "the optimised chain takes about 1293 ms, 650 of them the model's first token",
            f"the lines add up to {total_ms(card):,.0f}, with {ms[LLM]:,.0f} for the model",
            "yes",
        ),
        (
            "650 ms is the limit for the first token of the answer (TTFAT)",
            "the line is a time to first token; on TTFAT the card puts a ceiling of "
            f"{published.value('card.ttfat_ceiling'):,.0f} ms, in a sweep",
            "no",
        ),
        (
            "650 ms is the optimum of cost against latency",
            "nothing in the table says so: it holds no cost, and the card calls it a target",
            "no",
        ),
    ]
    frame = pd.DataFrame(rows, columns=["claim", "by the table", "holds"])
    return validate(frame.assign(source=_ARTICLE, date="2026", origin="published"), used_by="budget.claims")
