"""What follows from a table of requests: how many were in flight, Little's law, and calls against requests.

Two units of concurrency are easily mixed up. A *live call* is a person on the phone. A *request in flight* is
work for the server. A live call has a request in flight for a small part of the time only, its duty cycle;
the rest is speaking, listening and thinking. So::

    requests in flight = live calls x duty cycle            live calls = requests in flight / duty cycle

All functions take a table of requests with ``sent_s`` and ``ended_s`` (seconds on one clock), such as
``LoadRun.requests`` of :mod:`helpers.load`; with a column ``run`` the runs are kept apart, since each has a
clock of its own. Failed and cut requests are in it: the server worked on them too.

Source: J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9 (1961).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real

import numpy as np
import pandas as pd

from helpers import arguments
from helpers.origins import validate
from helpers.settings import CourseError

KEPT = ("live_calls", "calls_per_minute", "server", "origin")  # the same in every row of a run


def in_flight(requests: pd.DataFrame) -> pd.DataFrame:
    """How many requests were in flight over time: a row at each change, which holds until the next.

    Columns: ``run``, ``at_s``, ``in_flight``, and those of ``live_calls``, ``calls_per_minute``, ``server``,
    ``origin`` that the table has.

    Raises:
        CourseError: the table has no origins, or lacks ``sent_s`` or ``ended_s``.
    """
    parts = []
    for run, rows in _runs(requests):
        times = np.concatenate([rows["sent_s"], rows["ended_s"]])
        steps = np.repeat([1, -1], len(rows))
        change = pd.Series(steps).groupby(times).sum().sort_index()
        part = pd.DataFrame(
            {"run": run, "at_s": change.index.to_numpy(), "in_flight": change.cumsum().to_numpy()}
        )
        parts.append(part.assign(**_kept(rows)))
    columns = ["run", "at_s", "in_flight", *(name for name in KEPT if name in requests.columns)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def mean_in_flight(requests: pd.DataFrame, *, window: tuple[float, float] | None = None) -> float:
    """Requests in flight on average over a window of time.

    Counted on the time axis (the area under :func:`in_flight`), not from the durations.

    Args:
        requests: of one run.
        window: from and to, in seconds; by default from the first sending to the last ending.

    Raises:
        CourseError: see :func:`in_flight`; or the table holds several runs.
    """
    runs = list(_runs(requests))
    if len(runs) > 1:
        raise CourseError(f"The table holds {len(runs)} runs; give one: requests[requests['run'] == ...].")
    if not runs:
        return math.nan
    steps = in_flight(requests)
    begin_s, end_s = window or _window(requests)
    if not end_s > begin_s:
        return math.nan
    edges = np.clip(np.append(steps["at_s"], math.inf), begin_s, end_s)
    return float((steps["in_flight"].to_numpy() * np.diff(edges)).sum() / (end_s - begin_s))


def little(
    requests: pd.DataFrame,
    pages: pd.DataFrame | None = None,
    *,
    window: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """Little's law on a run: requests per second, times the mean time of one, is the mean number in flight.

    Over a window that no request crosses the edge of, this is an identity; by default it is such a window,
    from the first sending to the last ending. A difference then means that a table lost requests, or that its
    times are of another clock. Over another window the requests that cross its edges make a small difference.
    The independent witness is the server's own count.

    Args:
        requests: the requests; one row of the answer for each ``run``.
        pages: of the same run, from ``LoadRun.pages``, for the server's own count.
        window: from and to, in seconds: counts the requests *sent* within it.

    Returns:
        Columns ``run``, ``seconds`` (length of the window), ``requests``, ``rate_per_s``, ``mean_time_s``,
        ``rate_x_time``, ``mean_in_flight`` (counted on the time axis), ``difference`` (of these two),
        ``server_in_flight`` (running and waiting, mean over the pages in the window; NaN without), and what
        the run was (``live_calls`` ...).

    Raises:
        CourseError: see :func:`in_flight`; or pages are given with several runs.
    """
    runs = list(_runs(requests))
    if pages is not None and len(runs) > 1:
        raise CourseError("These are pages of one run and requests of several. Give one run's requests.")
    lines = []
    for run, rows in runs:
        begin_s, end_s = window or _window(rows)
        sent = rows[rows["sent_s"].between(begin_s, end_s)]
        length_s = end_s - begin_s
        rate = len(sent) / length_s if length_s > 0 else math.nan
        mean_s = float((sent["ended_s"] - sent["sent_s"]).mean())
        counted = mean_in_flight(rows, window=(begin_s, end_s))
        lines.append(
            {
                "run": run,
                "seconds": length_s,
                "requests": len(sent),
                "rate_per_s": rate,
                "mean_time_s": mean_s,
                "rate_x_time": rate * mean_s,
                "mean_in_flight": counted,
                "difference": rate * mean_s - counted,
                "server_in_flight": _server_in_flight(pages, begin_s, end_s),
                **_kept(rows),
            }
        )
    return pd.DataFrame(lines)


def duty_cycle(requests: pd.DataFrame) -> float:
    """The share of a live call in which its request is in flight; NaN if the table cannot say.

    With ``call_began_s`` and ``heard_s`` (a :class:`~helpers.load_run.LoadRun` has them): over the calls that
    are there from their first turn on, the time in flight by the time from the beginning to the end of the
    last answer. Without them (another tool's table): from each sending to the next of the same call.

    Raises:
        CourseError: the table lacks ``call``, ``turn``, ``sent_s`` or ``ended_s``, or origins.
    """
    rows = validate(
        requests, required=("call", "turn"), numeric=("sent_s", "ended_s"), used_by="calls.duty_cycle"
    )
    rows = rows.assign(flight_s=rows["ended_s"] - rows["sent_s"]).sort_values(["call", "sent_s"])
    if {"call_began_s", "heard_s"} <= set(rows.columns):
        whole = rows[rows["call"].isin(rows.loc[rows["turn"] == 0, "call"])]
        each = whole.groupby("call")
        ends_s = whole["heard_s"].fillna(whole["ended_s"]).groupby(whole["call"]).max()
        flight_s, live_s = each["flight_s"].sum().sum(), (ends_s - each["call_began_s"].min()).sum()
    else:
        to_next_s = rows.groupby("call")["sent_s"].shift(-1) - rows["sent_s"]
        flight_s, live_s = rows["flight_s"][to_next_s.notna()].sum(), to_next_s.sum()
    return float(flight_s / live_s) if live_s > 0 else math.nan


def agents(in_flight: float, duty: float) -> float:
    """Live calls (an agent is on each) that keep so many requests in flight on average.

    Args:
        in_flight: requests in flight.
        duty: share of a live call in which its request is in flight, see :func:`duty_cycle`.

    Raises:
        CourseError: ``duty`` is not a share above 0, or ``in_flight`` no number of requests.
    """
    if not isinstance(duty, Real) or not 0 < duty <= 1:
        raise CourseError(f"duty={duty!r} is no share of a call. It lies above 0 and is at most 1.")
    return arguments.number("in_flight", in_flight, least=0, example="10 (requests)") / duty


def _runs(requests: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    rows = validate(requests, numeric=("sent_s", "ended_s"), used_by="calls.in_flight")
    if rows.empty:
        return
    if "run" not in rows.columns:
        yield "", rows
        return
    for run, part in rows.groupby("run", sort=False):
        yield str(run), part


def _kept(rows: pd.DataFrame) -> dict[str, object]:
    return {name: rows[name].iloc[0] for name in KEPT if name in rows.columns}


def _window(rows: pd.DataFrame) -> tuple[float, float]:
    return float(rows["sent_s"].min()), float(rows["ended_s"].max())


def _server_in_flight(pages: pd.DataFrame | None, begin_s: float, end_s: float) -> float:
    if pages is None or pages.empty:
        return math.nan
    seen = pages[pages["at_s"].between(begin_s, end_s)]
    return float((seen["running"] + seen["waiting"]).mean())
