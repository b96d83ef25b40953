"""From calls in time-lapse to calls in real time: Little's law, used twice. See :mod:`helpers.limits`.

At the limit the server gets so many requests a second. In real time a caller asks again after speaking and
thinking, and after the answer was waited for and heard::

    seconds from request to request = speaking and thinking + max(wait + listening, request in flight)
    live calls                      = requests a second x seconds from request to request

That is the number in flight divided by the duty cycle *under that load*. Waiting and flying are those of the
search at that load; the rest is the callers' own. A busy server holds each request longer, and most of the
listening falls into that time, so the duty cycle of an idle server would promise far too many calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from helpers.origins import validate
from helpers.settings import CourseError
from helpers.sweeps import Sweep
from helpers.workload import Workload

CALLS = 500  # of the plan, for the mean of speaking and thinking: its standard error is then below 2 %
OWN_PACE_S = 0.001  # an answer heard that much after it was complete was heard at the voice's pace


@dataclass(frozen=True)
class Pauses:
    """What a caller does beside waiting, in seconds, on average.

    Attributes:
        gap_s: speaking and thinking, from an answer heard to the next request due.
        listen_s: listening, from the first token of an answer on.
    """

    gap_s: float
    listen_s: float


def pauses(kind: Workload, requests: pd.DataFrame) -> Pauses:
    """The pauses of calls in real time: speaking and thinking as the calls are planned, listening as it was.

    Args:
        kind: the calls, without tools.
        requests: some of them, as ``LoadRun.requests`` has them (``first_answer_s``, ``ended_s``,
            ``heard_s``). An answer that was complete only when the voice could have ended says nothing about
            listening, and is left out.

    Raises:
        CourseError: the calls have tools, whose turns are of another shape; or no answer was heard.
    """
    if kind.value("tool_share"):
        raise CourseError(
            "Calls with tools cannot be converted: a turn with a tool is two requests and one pause. Measure "
            "them in real time, or take the calls without tools: kind.scaled(tools=0)."
        )
    turns = [turn for call in kind.calls(CALLS) for turn in call.turns]
    gap_s = float(np.mean([turn.speak_s + turn.think_s for turn in turns]))
    heard = requests[requests["heard_s"] > requests["ended_s"] + OWN_PACE_S]
    heard = heard if len(heard) else requests
    listen_s = float((heard["heard_s"] - heard["first_answer_s"]).mean())
    if math.isnan(listen_s):
        raise CourseError(
            "No caller in real time heard an answer, so nobody can say how long a turn takes. Run them again "
            "on a server that answers: load.run(server, kind, live_calls=4, seconds=12)."
        )
    return Pauses(gap_s, listen_s)


def converted(requests: pd.DataFrame, beside: Pauses) -> dict[str, float]:
    """The load of a run in real-time live calls: so many of them put it on the server.

    Args:
        requests: of one run with lines that ask again and again, at any pace.
        beside: what callers in real time do beside waiting.

    Returns:
        ``live_calls``, ``in_flight`` (requests, mean over the measured time), ``duty_cycle`` (in real time,
        at this load) and ``requests`` behind them.

    Raises:
        CourseError: fewer than two requests were measured.
    """
    measured = requests[requests["phase"] == "measured"]
    begin_s, end_s = measured["due_s"].min(), measured["sent_s"].max()
    rows = requests[requests["sent_s"].between(begin_s, end_s)]
    if len(rows) < 2 or not end_s > begin_s:
        raise CourseError("This run has fewer than two measured requests: too little to convert.")
    done_s = rows["ended_s"] - rows["due_s"]
    waited_s = (rows["first_answer_s"] - rows["due_s"]).fillna(done_s)
    cycle_s = beside.gap_s + float(np.maximum(waited_s + beside.listen_s, done_s).mean())
    rate, flight_s = len(rows) / float(end_s - begin_s), float((rows["ended_s"] - rows["sent_s"]).mean())
    return {
        "live_calls": rate * cycle_s,
        "in_flight": rate * flight_s,
        "duty_cycle": flight_s / cycle_s,
        "requests": float(len(rows)),
    }


def check(kind: Workload, tested: Sweep) -> pd.DataFrame:
    """The conversion held against runs in real time, whose live calls are known.

    Args:
        kind: the calls.
        tested: the runs. A level without two measured requests is left out.

    Returns:
        One row a level: ``live_calls``, ``converted`` (what the conversion makes of its requests),
        ``off`` (share: 0.1 is 10 % too much), ``origin``.
    """
    beside = pauses(kind, tested.requests)
    rows = []
    for level in tested.levels["live_calls"]:
        part = tested.requests[tested.requests["live_calls"] == level]
        if (part["phase"] == "measured").sum() < 2:
            continue
        found = converted(part, beside)["live_calls"]
        rows.append({"live_calls": level, "converted": found, "off": found / level - 1})
    frame = pd.DataFrame(rows, columns=["live_calls", "converted", "off"])
    return validate(frame.assign(origin="modelled"), used_by="limits_converted.check")


def bracket(curve: pd.DataFrame, q: float = 0.95) -> tuple[float, float]:
    """Between which levels of a sweep the limit lies: the largest that kept the promise and the smallest that
    broke it, by a fit that only falls (as :mod:`helpers.search` does it); 0 or infinity where there is none.

    Args:
        curve: of :func:`helpers.sweeps.curve`.
        q: share, 0.95 for P95.
    """
    rows = curve.sort_values("live_calls")
    fit = isotonic_regression(rows["share"], weights=rows["n"].astype(float), increasing=False).x
    keeps = rows["live_calls"][fit >= q - 1e-12]
    breaks = rows["live_calls"][fit < q - 1e-12]
    return float(keeps.max()) if len(keeps) else 0.0, float(breaks.min()) if len(breaks) else math.inf


def at_level(tables: Sequence[pd.DataFrame], level: int, beside: Pauses) -> dict[str, float]:
    """:func:`converted` for a level of a search: all its measurements together, or, if it was not measured
    itself, the nearest one that was, in proportion.

    Raises:
        CourseError: there is no measurement.
    """
    levels = {int(table["live_calls"].iloc[0]) for table in tables if len(table)}
    if not levels:
        raise CourseError(
            "The search kept no measurement. Pass the list that sweeps.measure(keep=...) filled."
        )
    nearest = min(levels, key=lambda there: abs(there - level))
    rows = pd.DataFrame(
        [converted(table, beside) for table in tables if int(table["live_calls"].iloc[0]) == nearest]
    )
    mean = rows.mul(rows["requests"], axis=0).sum() / rows["requests"].sum()
    return {
        "live_calls": mean["live_calls"] * level / nearest,
        "in_flight": mean["in_flight"],
        "duty_cycle": mean["duty_cycle"],
    }
