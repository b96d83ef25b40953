"""The stages of a turn as somebody measured them: ``data/stages.csv``, and the models of PhoneBench.

Each service becomes a :class:`helpers.budget_sum.Stage`: a curve through what is published of it. A curve is
``modelled``, even where each of its points is published. :func:`fit_check` says how far such a curve misses a
percentile that it was not given.
"""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from helpers import budget, budget_sum, phonebench, tables
from helpers.budget_sum import Stage
from helpers.settings import CourseError

NUMBERS = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "iqr_ms")
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99}
WEBRTC = "WebRTC"  # its two ways are lines of the budget itself
FIT_WITHIN = 10.0  # percent; what the lesson calls close


@cache
def _read() -> pd.DataFrame:
    return tables.read("stages.csv", numeric=NUMBERS, text=("kind", "name", "conditions"))


def table(kind: str) -> pd.DataFrame:
    """The rows of one kind: ``stt``, ``tts``, ``path`` (to and from the caller), ``turn`` (end of turn),
    ``stack`` (a whole turn that somebody measured), ``trial`` and ``voice`` (our own trial of the parts).

    Columns: ``name``, ``p50_ms`` (a fixed or typical time where there are no percentiles), ``p90_ms``,
    ``p95_ms``, ``p99_ms``, ``iqr_ms`` (P75 less P25), ``unit``, ``conditions``, ``source``, ``date``,
    ``origin``; the index is ``id``. NaN: not published.

    Raises:
        CourseError: there is no such kind.
    """
    frame = _read()
    if kind not in set(frame["kind"]):
        raise CourseError(
            f"There is no kind {kind!r} of stages. It may be {', '.join(frame['kind'].unique())}."
        )
    return frame[frame["kind"] == kind].drop(columns="kind").copy()


def ms(name: str) -> float:
    """The typical time of one row, by its id, such as ``turn.smart``.

    Raises:
        CourseError: there is no such row.
    """
    frame = _read()
    if name not in frame.index:
        raise CourseError(f"data/stages.csv has no row {name!r}. It has: {', '.join(frame.index)}.")
    return float(frame.loc[name, "p50_ms"])


def models() -> pd.DataFrame:
    """The language models whose P50 and P95 of TTFAT PhoneBench gives, best score first; columns as in
    :func:`helpers.phonebench.table`."""
    frame = phonebench.table()
    return frame.dropna(subset=["ttfat_p50_ms", "ttfat_p95_ms"]).reset_index(drop=True)


def names(kind: str) -> list[str]:
    """What there is to choose from: kind ``stt``, ``llm``, ``tts`` or ``path``."""
    if kind == "llm":
        return list(models()["model"])
    found = list(dict.fromkeys(table(kind)["name"]))
    return [WEBRTC, *found] if kind == "path" else found


def stage(kind: str, name: str, *, called: str = "") -> Stage:
    """A service as a stage.

    Args:
        kind: ``stt``, ``llm`` or ``tts``.
        name: one of :func:`names`.
        called: name of the stage; without it the service's.

    Raises:
        CourseError: there is no such service.
    """
    if name not in names(kind):
        raise CourseError(f"There is no {kind} named {name!r}. It may be {', '.join(names(kind))}.")
    if kind == "llm":
        row = models().set_index("model").loc[name]
        known = {0.5: row["ttfat_p50_ms"], 0.95: row["ttfat_p95_ms"]}
        return budget_sum.through(called or name, known, source=row["source"], date=row["date"])
    row = table(kind).set_index("name").loc[name]
    return _curve(called or name, row)


def _curve(called: str, row: pd.Series) -> Stage:
    said = {"source": row["source"], "date": row["date"]}
    known = {share: row[column] for column, share in SHARES.items() if not math.isnan(row[column])}
    if len(known) > 1:
        return budget_sum.through(called, known, **said)
    if not math.isnan(row["iqr_ms"]):
        return budget_sum.from_iqr(called, row["p50_ms"], row["iqr_ms"], **said)
    return budget_sum.fixed(called, row["p50_ms"], origin=row["origin"], **said)


def ways(path: str) -> tuple[Stage, Stage]:
    """The way to the agent and the way back, for one of ``names("path")``.

    Raises:
        CourseError: there is no such path.
    """
    up, down = budget.GROUPS[0], budget.GROUPS[-1]
    if path == WEBRTC:
        lines = budget.by_group(budget.table("primer")).set_index("group")
        return tuple(
            budget_sum.fixed(
                group,
                lines.loc[group, "ms"],
                **{column: lines.loc[group, column] for column in ("source", "date", "origin")},
            )
            for group in (up, down)
        )
    rows = table("path")
    rows = rows[rows["name"] == path]
    if rows.empty:
        raise CourseError(f"There is no path {path!r}. It may be {', '.join(names('path'))}.")
    by_end = {str(index).rsplit(".", 1)[-1]: row for index, row in rows.iterrows()}
    return _curve(up, by_end["up"]), _curve(down, by_end["down"])


def fit_check() -> pd.DataFrame:
    """How well a lognormal through P50 and P95 hits the published P99, for each STT service.

    Columns: ``name``, ``p50_ms``, ``p95_ms``, ``p99_ms`` (published), ``fitted_p99_ms``, ``off_percent`` (of
    the published), ``close`` (within :data:`FIT_WITHIN`), ``source``, ``date``, ``origin`` (modelled).
    """
    frame = table("stt").dropna(subset=["p50_ms", "p95_ms", "p99_ms"]).reset_index(drop=True)
    fitted = [
        budget_sum.through(row["name"], {0.5: row["p50_ms"], 0.95: row["p95_ms"]}).at(0.99)
        for row in frame.to_dict("records")
    ]
    found = frame[["name", "p50_ms", "p95_ms", "p99_ms"]].assign(fitted_p99_ms=fitted)
    found["off_percent"] = 100 * (found["fitted_p99_ms"] / found["p99_ms"] - 1)
    found["close"] = found["off_percent"].abs() <= FIT_WITHIN
    return found.assign(source=frame["source"], date=frame["date"], origin="modelled")


def stack_check() -> pd.DataFrame:
    """A whole turn that somebody measured, against the sum of its own parts.

    Columns: ``percentile`` (``P50``, ``P90``), ``added_ms`` (sum of the parts' percentiles), ``measured_ms``
    (the whole turn), ``difference_ms`` (measured less added), ``parts``, ``source``, ``date``, ``origin``:
    published, since both sides are (the sum is arithmetic on published figures).
    """
    frame = table("stack")
    parts, whole = frame.drop(index="stack.whole"), frame.loc["stack.whole"]
    rows = []
    for column, name in (("p50_ms", "P50"), ("p90_ms", "P90")):
        added, measured = float(parts[column].sum()), float(whole[column])
        said = ", ".join(
            f"{part} {value:,.0f}" for part, value in zip(parts["name"], parts[column], strict=True)
        )
        rows.append({"percentile": name, "added_ms": added, "measured_ms": measured, "parts": said})
    found = pd.DataFrame(rows)
    found["difference_ms"] = found["measured_ms"] - found["added_ms"]
    return found.assign(source=whole["source"], date=whole["date"], origin="published")
