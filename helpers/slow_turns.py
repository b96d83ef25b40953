"""What a percentile of turns means for a whole call: how many calls hold at least one slow turn.

A P95 says that one turn in twenty is slower. A call has many turns, so far more than one call in twenty meets
a slow one. If each turn were a fresh draw, the share would follow from arithmetic (:func:`share_of_calls`).
But turns of one call are alike (one network, one server at one moment), and then fewer calls are hit, each of
them more often: :func:`simulated` shows that on made-up calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from helpers.origins import validate
from helpers.settings import CourseError

INDEPENDENT, ALIKE = "turns independent", "turns of a call alike"
ALIKE_BY = 0.5  # our assumption; lesson 07 measures how alike the turns of a run were
CALLS = 20_000
MANY = 5  # so many slow turns make a bad call


def share_of_calls(turns: float, slow_share: float = 0.05) -> float:
    """Share of calls with at least one slow turn, if turns are independent: 1 - (1 - slow_share) ** turns.

    Args:
        turns: turns of a call, 0 or more.
        slow_share: share of turns that are slow, from 0 to 1; 0.05 where the P95 is the line.

    Raises:
        CourseError: one of them is out of its range.
    """
    _checked(turns, slow_share)
    return 1 - (1 - slow_share) ** turns


def simulated(
    turns: int, *, slow_share: float = 0.05, alike: float = ALIKE_BY, calls: int = CALLS, seed: int = 0
) -> np.ndarray:
    """Made-up calls: which of their turns are slow. The same for the same seed.

    Each turn's wait is a normal draw, partly the call's own luck and partly the turn's; the slowest
    ``slow_share`` of all turns are slow. Only ranks matter here, so any shape of waits gives the same.

    Args:
        turns: turns of each call, 1 or more.
        slow_share: share of all turns that are slow.
        alike: correlation of two turns of the same call, from 0 (independent) to 1 (all the same).
        calls: how many calls.
        seed: of the draws.

    Returns:
        An array of truth values, one row a call, one column a turn.

    Raises:
        CourseError: a value is out of its range.
    """
    _checked(turns, slow_share)
    if not 0 <= alike <= 1 or turns < 1 or calls < 1:
        raise CourseError(
            f"alike ({alike}) has to be from 0 to 1, turns ({turns}) and calls ({calls}) 1 or more."
        )
    draw = np.random.default_rng(seed)
    luck, own = draw.standard_normal((calls, 1)), draw.standard_normal((calls, turns))
    waits = math.sqrt(alike) * luck + math.sqrt(1 - alike) * own
    line = NormalDist().inv_cdf(1 - slow_share) if 0 < slow_share < 1 else math.inf * (0.5 - slow_share)
    return waits > line


def curves(turns: Sequence[int], *, slow_share: float = 0.05, alike: float = ALIKE_BY) -> pd.DataFrame:
    """Share of calls with at least one slow turn, for calls of several lengths.

    Columns: ``turns``, ``share``, ``series`` (:data:`INDEPENDENT` by arithmetic, :data:`ALIKE` simulated),
    ``source`` (how), ``origin`` (modelled).

    Raises:
        CourseError: a value is out of its range, or there are no turns.
    """
    lengths = [int(count) for count in turns]
    if not lengths:
        raise CourseError("turns is empty: give the lengths of the calls, such as range(1, 41).")
    plain = [share_of_calls(count, slow_share) for count in lengths]
    hit = np.logical_or.accumulate(simulated(max(lengths), slow_share=slow_share, alike=alike), axis=1).mean(
        axis=0
    )
    rows = pd.DataFrame(
        {
            "turns": lengths * 2,
            "share": plain + [float(hit[count - 1]) if count else 0.0 for count in lengths],
            "series": [INDEPENDENT] * len(lengths) + [ALIKE] * len(lengths),
            "source": ["arithmetic"] * len(lengths)
            + [f"simulated, two turns of a call correlate by {alike:g} (our assumption)"] * len(lengths),
            "origin": "modelled",
        }
    )
    return validate(rows, numeric=("turns", "share"), used_by="slow_turns.curves")


def spread(turns: int, *, alike: Sequence[float] = (0, ALIKE_BY), slow_share: float = 0.05) -> pd.DataFrame:
    """How the same share of slow turns falls on calls, for turns that are more and less alike.

    Columns: ``alike``; ``slow turns`` (share of all turns); ``calls with one`` (share of calls with at least
    one); ``slow turns in such a call`` (their mean number there); ``calls with 5 or more``; ``origin``
    (modelled).

    Raises:
        CourseError: a value is out of its range.
    """
    rows = []
    for value in alike:
        slow = simulated(turns, slow_share=slow_share, alike=value)
        counts = slow.sum(axis=1)
        hit = counts[counts > 0]
        rows.append(
            {
                "alike": float(value),
                "slow turns": float(slow.mean()),
                "calls with one": float((counts > 0).mean()),
                "slow turns in such a call": float(hit.mean()) if len(hit) else 0.0,
                f"calls with {MANY} or more": float((counts >= MANY).mean()),
                "origin": "modelled",
            }
        )
    return pd.DataFrame(rows)


def observed(requests: pd.DataFrame, *, metric: str, q: float = 0.95) -> pd.Series:
    """The same question of a run that was timed: take its own P95 as the line, and count calls.

    Args:
        requests: one row a turn, with ``call``, the column ``metric`` and ``origin``.
        metric: the waits; one that is missing (never answered) is slow.
        q: which percentile is the line.

    Returns:
        ``calls``, ``turns`` (all of them), ``line_ms``, ``slow_turns`` (share), ``calls_with_one`` (share),
        ``if_independent`` (the share of calls that independent turns would give, for calls of these lengths),
        ``origin``.

    Raises:
        CourseError: a column is missing, or there are no turns.
    """
    validate(requests, required=("call", metric), numeric=(metric,), used_by="slow_turns.observed")
    if requests.empty:
        raise CourseError("There is no turn in this table.")
    waits = pd.to_numeric(requests[metric]).astype(float).fillna(math.inf)
    line = float(np.quantile(waits, q, method="inverted_cdf"))  # a wait of the run itself
    slow = waits > line
    by_call = slow.groupby(requests["call"])
    share = float(slow.mean())
    return pd.Series(
        {
            "calls": int(by_call.ngroups),
            "turns": len(slow),
            "line_ms": line,
            "slow_turns": share,
            "calls_with_one": float(by_call.any().mean()),
            "if_independent": float(np.mean([share_of_calls(int(n), share) for n in by_call.size()])),
            "origin": str(requests["origin"].iloc[0]),
        }
    )


def _checked(turns: float, slow_share: float) -> None:
    if not (math.isfinite(turns) and turns >= 0):
        raise CourseError(f"turns is {turns}; it has to be a number, 0 or more.")
    if not 0 <= slow_share <= 1:
        raise CourseError(f"slow_share is {slow_share}; it is a share, from 0 to 1 (5 % is 0.05).")
