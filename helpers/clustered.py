"""Turns in calls: how much they say together, when those of one call are alike.

The statistics under :mod:`helpers.slo`, whose docstring says why it is done this way and with which sources.
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
import pandas as pd
from scipy.stats import beta

from helpers.settings import CourseError

PRIOR_CALLS = 1.0
"""Weight, in calls, of the assumption that all turns of a call are alike."""

RESAMPLES = 2000
"""Bootstrap samples: the ends of a 95 % interval then jitter by about a twentieth of its width."""


class Turns:
    """Times of the turns and the calls they belong to, as arrays; a failed turn has an infinite time."""

    def __init__(self, times_ms: np.ndarray, call: np.ndarray) -> None:
        self.times_ms = times_ms
        self.call = call
        """Number of each turn's call, from 0."""
        self.sizes = np.bincount(call).astype(float)
        self.n_calls = len(self.sizes)

    @classmethod
    def of(cls, requests: pd.DataFrame, metric: str) -> Turns:
        """From a requests table; see :func:`helpers.slo.attainment`."""
        for column in ("call", metric):
            if column not in requests:
                raise CourseError(
                    f"The table has no column {column!r}. It needs call, the call a turn belongs to, and the "
                    f"times in {metric}; load.run(...).requests has them."
                )
        if "phase" in requests:
            requests = requests[requests["phase"] != "warmup"]
        if not len(requests):
            raise CourseError("There are no turns to judge. Did the run end in its warm-up? Measure longer.")
        times_ms = requests[metric].to_numpy(float, copy=True)
        times_ms[np.isnan(times_ms)] = math.inf
        if "error" in requests:
            # One that the run's end cut off may have had its token before; then that is known.
            failed = requests["error"].notna() & ~requests["error"].isin(["", "cut"])
            times_ms[failed.to_numpy(bool)] = math.inf
        call, _ = pd.factorize(requests["call"])
        if (call < 0).any():
            raise CourseError("Some turns belong to no call (column call is empty). Give each turn its call.")
        return cls(times_ms, call)

    def joined(self, earlier: Turns | None) -> Turns:
        """With the turns of an earlier measurement, whose calls are others."""
        if earlier is None:
            return self
        times_ms = np.concatenate([earlier.times_ms, self.times_ms])
        return Turns(times_ms, np.concatenate([earlier.call, self.call + earlier.n_calls]))

    def percentile(self, q: float) -> float:
        """As :func:`helpers.stats.percentile` defines it, without an interval."""
        return float(np.quantile(self.times_ms, q, method="inverted_cdf"))

    def within(self, limit_ms: float) -> np.ndarray:
        """For each turn, whether it was within the limit."""
        if not isinstance(limit_ms, Real) or math.isnan(limit_ms):
            raise CourseError(f"limit_ms={limit_ms!r} is no limit. Give a number of milliseconds.")
        return self.times_ms <= limit_ms if math.isfinite(limit_ms) else np.isfinite(self.times_ms)

    def estimate(self, within: np.ndarray, *, prior_calls: float = PRIOR_CALLS) -> tuple[float, float]:
        """The share of true values, and its design effect: how many turns are worth one independent one."""
        turns, calls = len(within), self.n_calls
        hits = np.bincount(self.call, weights=within, minlength=calls)
        share = float(hits.sum() / turns)
        # If all turns of a call were alike, a call would be one sample.
        worst = turns / calls
        squares = (hits - share * self.sizes) ** 2
        if calls < 2 or hits.sum() in (0, turns):
            return share, worst
        scatter = calls / (calls - 1) * float(squares.sum()) / turns**2
        estimated = scatter / (share * (1 - share) / turns)
        if estimated > 1:
            # How many calls that estimate rests on: a few slow ones may make up most of it.
            telling = float(squares.sum() ** 2 / (squares**2).sum())
        else:
            telling = float(min((hits < self.sizes).sum(), (hits > 0).sum()))
        estimated = max(1.0, estimated)
        weight = telling / (telling + prior_calls)
        return share, weight * estimated + (1 - weight) * max(worst, estimated)

    def bounds(self, limit_ms: float, risk: float) -> tuple[float, float]:
        """Bounds of the attainment at a limit, each wrong with chance ``risk``."""
        within = self.within(limit_ms)
        share, effect = self.estimate(within)
        return bounds(share, len(within) / effect, self.n_calls, risk)


def bounds(share: float, n_effective: float, n_calls: float, risk: float) -> tuple[float, float]:
    """Lower and upper bound of a share, each wrong with chance ``risk``.

    Exact bounds for the effective number of turns; but a sample with slow turns is no better witness than the
    same number of calls without any, of which each is one sample (and likewise at the other end).
    """
    low, high = exact_bounds(share, n_effective, risk)
    return min(low, exact_bounds(1.0, n_calls, risk)[0]), max(high, exact_bounds(0.0, n_calls, risk)[1])


def exact_bounds(share: float, n: float, risk: float) -> tuple[float, float]:
    """Clopper and Pearson's lower and upper bound of a share, each wrong with chance ``risk``.

    As in :func:`helpers.stats.share_over`, for a number of samples that need not be whole.
    """
    hits, misses = share * n, (1 - share) * n
    low = float(beta.ppf(risk + 1e-12, hits, misses + 1)) if hits > 1e-9 else 0.0
    high = float(beta.ppf(1 - risk - 1e-12, hits + 1, misses)) if misses > 1e-9 else 1.0
    return low, high


def bootstrap(
    turns: Turns, q: float, risk: float, *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Ends of the middle of the percentiles of resampled calls, leaving out ``risk`` at either end."""
    order = np.argsort(turns.times_ms, kind="stable")
    call, ordered = turns.call[order], turns.times_ms[order]
    random = np.random.default_rng(seed)
    even = np.full(turns.n_calls, 1 / turns.n_calls)
    found: list[float] = []
    while len(found) < resamples:
        # Drawing calls with replacement is giving each turn the weight of its call. A block at a time: a
        # block of 100 with 10,000 turns is 8 MB.
        reached = np.cumsum(random.multinomial(turns.n_calls, even, size=100)[:, call], axis=1)
        ranks = [_rank(int(total), q) for total in reached[:, -1]]
        found += [ordered[np.searchsorted(row, rank)] for row, rank in zip(reached, ranks, strict=True)]
    low, high = np.quantile(found, [risk, 1 - risk], method="inverted_cdf")
    return float(low), float(high)


def _rank(n: int, q: float) -> int:
    return max(1, math.ceil(n * q - 1e-9))  # 0.07 * 100 is a little more than 7 in floating point
