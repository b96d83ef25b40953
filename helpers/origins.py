"""Where a number comes from, carried from its row in a table to the legend of a figure.

Every table of the course has a column ``origin``:

========= ===================================================================================================
measured  timed in this run, on this machine or at the given address
recorded  measured earlier by us and kept under ``data/runs/`` with its conditions
published somebody else's figure; its row also has ``source`` and ``date``
modelled  computed by a model of a machine nobody here has
========= ===================================================================================================

:func:`validate` refuses a table that cannot say this of each row, so that a modelled number never passes for
a measured one. :func:`groups` and :func:`note` put it into words for a legend and a caption.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from helpers.settings import CourseError

ORIGINS = ("measured", "recorded", "published", "modelled")


@dataclass(frozen=True)
class Group:
    """The rows of a table that share one origin and one place (server, or source and date).

    Attributes:
        origin: one of :data:`ORIGINS`.
        phrase: the same in words, such as ``measured on vLLM on CPU, n = 40``.
        rows: the rows, with the columns and index of the whole table.
    """

    origin: str
    phrase: str
    rows: pd.DataFrame


def validate(
    frame: pd.DataFrame,
    *,
    required: Iterable[str] = (),
    numeric: Iterable[str] = (),
    used_by: str = "",
) -> pd.DataFrame:
    """Check that a table says where each of its numbers comes from; return it unchanged.

    Args:
        frame: the table. ``origin`` must hold one of :data:`ORIGINS` in every row; a published row also
            needs ``source`` (who said so) and ``date`` (when).
        required: further columns that must be there.
        numeric: those of them that must hold numbers (a missing value and infinity are numbers here).
        used_by: the function that asks, such as ``figures.itl``, named in the error so that the learner can
            look up the columns it takes.

    Raises:
        CourseError: a column is missing, or a row holds something else. The message names the row (by its
            index) and the column.
    """
    if not isinstance(frame, pd.DataFrame):
        raise CourseError(
            f"A pandas DataFrame was expected here, and this is a {type(frame).__name__}. "
            f"A list of timelines becomes one with helpers.latency.table(timelines)."
        )
    where_to_look = f" help({used_by}) lists the columns it takes." if used_by else ""
    numeric = tuple(numeric)
    for column in dict.fromkeys((*required, *numeric)):
        if column not in frame.columns:
            raise CourseError(
                f"The table has no column {column!r}; it has {_listed(frame.columns)}.{where_to_look}"
            )
    if "origin" not in frame.columns:
        raise CourseError(
            f"The table has no column 'origin', so nobody can tell where its numbers come from. "
            f'Add it, for instance: frame["origin"] = "measured". It may be {_listed(ORIGINS)}.'
        )
    for index, origin in frame["origin"].items():
        if origin not in ORIGINS:
            raise CourseError(
                f"Row {index!r}, column 'origin': {origin!r} is not an origin. "
                f'It may be {_listed(ORIGINS)}; correct it with frame.loc[{index!r}, "origin"] = "measured".'
            )
    published = frame[frame["origin"] == "published"]
    for column in ("source", "date"):
        values = published[column] if column in published.columns else [None] * len(published)
        for index, value in zip(published.index, values, strict=True):
            if not _text(value):
                raise CourseError(
                    f"Row {index!r}, column {column!r}: a published number needs its source and date, "
                    f'and this one is empty. Fill it with frame.loc[{index!r}, "{column}"] = "...".'
                )
    for column in numeric:
        for index, value in frame[column].items():
            if not _is_number(value):
                raise CourseError(
                    f"Row {index!r}, column {column!r}: {value!r} is not a number.{where_to_look}"
                )
    return frame


def groups(frame: pd.DataFrame, *, counted: str | None = None) -> list[Group]:
    """Split a valid table by origin and place, in the order of :data:`ORIGINS`.

    Args:
        frame: a table that passes :func:`validate`; ``server``, ``source``, ``date`` and ``n`` are used where
            they are there.
        counted: the column whose different values are the samples, such as ``reply`` where each row is one
            chunk of a reply. Without it the samples are the column ``n`` if there is one, else the rows.
    """
    places: dict[tuple[int, str], list[int]] = {}
    for position, row in enumerate(frame.to_dict("records")):
        key = (ORIGINS.index(row["origin"]), _phrase(row))
        places.setdefault(key, []).append(position)
    found = []
    # sorted is stable and looks at the origin only: within one origin the table's own order stays.
    for (order, phrase), positions in sorted(places.items(), key=lambda item: item[0][0]):
        rows = frame.iloc[positions]
        found.append(Group(ORIGINS[order], phrase + _count(ORIGINS[order], rows, counted), rows))
    return found


def note(frame: pd.DataFrame, *, counted: str | None = None) -> str:
    """One line for a caption: ``measured on vLLM on CPU, n = 40; published: model card, 2026-11-20``.

    Args and columns as in :func:`groups`.
    """
    return "; ".join(group.phrase for group in groups(frame, counted=counted))


def _phrase(row: dict) -> str:
    server, source, date = (_text(row.get(column)) for column in ("server", "source", "date"))
    if row["origin"] in ("measured", "recorded"):
        return f"{row['origin']} on {server}" if server else row["origin"]
    said_by = ", ".join(part for part in (source or server, date) if part)
    return f"{row['origin']}: {said_by}" if said_by else row["origin"]


def _count(origin: str, rows: pd.DataFrame, counted: str | None) -> str:
    if "n" in rows.columns:
        known = rows["n"].dropna()
        if known.empty:
            return ""
        low, high = int(known.min()), int(known.max())
        return f", n = {low}" if low == high else f", n = {low} to {high}"
    if origin in ("published", "modelled"):  # one row is one figure there, not one sample
        return ""
    return f", n = {rows[counted].nunique() if counted in rows.columns else len(rows)}"


def _text(value: object) -> str:
    return "" if value is None or value is pd.NaT or value is pd.NA or value != value else str(value).strip()


def _is_number(value: object) -> bool:
    return (
        value is None or value is pd.NA or (pd.api.types.is_number(value) and not pd.api.types.is_bool(value))
    )


def _listed(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names) or "none"
