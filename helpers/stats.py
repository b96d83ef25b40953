"""Percentiles that say what they are worth.

A P95 is a statement about a tail, and a small sample has hardly any tail: of 20 requests, one is above it.
So a percentile comes here with its sample size and an interval, and the interval assumes nothing about the
shape of the distribution. It is made of order statistics (the sorted samples): the number of samples below
the true P95 follows a binomial distribution whatever the shape, so the chance that the true value lies
between, say, the 184th and the 197th of 200 can be counted exactly. Where the sample is too small for an
end, that end is infinite.

Two things it does assume: that the samples are independent, and that the server stayed the same meanwhile.
Turns of one call are not independent (a slow call is slow all along); take one sample a call, or many calls.

Sources: H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed. (2003), section 7.1; C. J. Clopper and
E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
26 (1934); R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American Statistician 50
(1996).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom, binomtest

from helpers.settings import CourseError


@dataclass(frozen=True)
class Percentile:
    """A percentile of a sample and the interval for the true one.

    Attributes:
        q: which, as a share: 0.95 for P95.
        value: the smallest sample that at least a share ``q`` of the samples do not exceed.
        low: lower end of the interval, a sample too; ``-inf`` where the sample is too small, or one-sided.
        high: upper end; ``inf`` where the sample is too small.
        n: number of samples.
        confidence: how often such an interval holds the true percentile, at least.
        sides: 2 for an interval, 1 for an upper bound only.
    """

    q: float
    value: float
    low: float
    high: float
    n: int
    confidence: float
    sides: int = 2

    def sentence(self, unit: str = "ms") -> str:
        """The percentile in words, with what it is worth."""
        name = _name(self.q)
        text = f"{name} of {_count(self.n)}: {_number(self.value)} {unit}."
        sure = f"With {_percent(self.confidence)} confidence the true {name} is"
        if math.isinf(self.high):
            ends = f"at least {_number(self.low)} {unit}, its upper end unbounded"
            if math.isinf(self.low):
                ends = "unbounded"
            one, two = (samples_needed(self.q, self.confidence, sides) for sides in (1, 2))
            if self.n >= (one if self.sides == 1 else two):
                return f"{text} {sure} {ends}: too many of the samples are infinite."
            return (
                f"{text} {sure} {ends}. For a one-sided upper bound {one} samples are needed, for a "
                f"two-sided interval {two}."
            )
        if math.isinf(self.low):
            return f"{text} {sure} at most {_number(self.high)} {unit}."
        return f"{text} {sure} between {_number(self.low)} and {_number(self.high)} {unit}."


@dataclass(frozen=True)
class Share:
    """How many of the samples are over a limit, and the interval for the true share.

    Attributes:
        limit: the limit; a sample equal to it is not over it.
        over: number of samples over it.
        n: number of samples.
        value: ``over / n``.
        low: lower end of the interval for the true share; 0 if one-sided.
        high: upper end.
        confidence: how often such an interval holds the true share, at least.
        sides: 2 for an interval, 1 for an upper bound only.
    """

    limit: float
    over: int
    n: int
    value: float
    low: float
    high: float
    confidence: float
    sides: int = 2

    def sentence(self, unit: str = "ms") -> str:
        """The share in words, with what it is worth."""
        ends = f"at most {_percent(self.high)}"
        if self.sides == 2:
            ends = f"between {_percent(self.low)} and {_percent(self.high)}"
        return (
            f"{self.over} of {_count(self.n)} ({_percent(self.value)}) are over {_number(self.limit)} {unit}."
            f" With {_percent(self.confidence)} confidence the true share is {ends}."
        )


def percentile(samples: Iterable[float], q: float, *, confidence: float = 0.95, sides: int = 2) -> Percentile:
    """A percentile with a distribution-free interval.

    ``value`` is the smallest sample that at least a share ``q`` of the samples do not exceed (type 1 of
    Hyndman and Fan; ``inverted_cdf`` in numpy). It is what a limit asks ("do 95 % of the requests stay under
    it?"), it is a time that was really measured, and it is never mixed with a neighbour: numpy's default
    draws a line between the two samples around the place, and where they lie far apart, as in a tail they
    do, reports a time between them that nobody waited. With hundreds of samples the two differ little.

    Args:
        samples: finite numbers, or ``inf`` for a request that never got there (a failed one: leaving it out
            would make the server look better).
        q: share, between 0 and 1: 0.95 for P95.
        confidence: between 0 and 1.
        sides: 2 for an interval with equal risk at both ends; 1 for an upper bound only (``low`` is
            ``-inf``).

    Raises:
        CourseError: no samples, a missing one (NaN or None), or ``q``, ``confidence`` or ``sides`` out of
    range.
    """
    _check(q, confidence, sides)
    ordered = np.sort(_clean(samples))
    n = len(ordered)
    risk = _risk(confidence, sides)
    # How many samples lie below the true percentile is binomial(n, q). Sample number k (from 1) is too high
    # as a lower end if fewer than k lie below, and too low as an upper end if k or more do.
    fewer_than_k = binom.cdf(np.arange(n), n, q)
    k_or_more = binom.sf(np.arange(n), n, q)
    low = int(np.sum(fewer_than_k <= risk)) if sides == 2 else 0
    high = n + 1 - int(np.sum(k_or_more <= risk))
    rank = max(1, math.ceil(n * q - 1e-9))  # 0.07 * 100 is a little more than 7 in floating point
    return Percentile(
        q=q,
        value=float(ordered[rank - 1]),
        low=float(ordered[low - 1]) if low >= 1 else -math.inf,
        high=float(ordered[high - 1]) if high <= n else math.inf,
        n=n,
        confidence=confidence,
        sides=sides,
    )


def samples_needed(q: float, confidence: float = 0.95, sides: int = 2) -> int:
    """The smallest sample for which :func:`percentile` has finite ends.

    One-sided, the largest sample is an upper bound unless all samples are below the true percentile, which
    happens with chance ``q ** n``. Two-sided, half the risk is left for each end, and the end on the thinner
    tail decides. (A sample of this size gives the widest interval there is: its largest value. More is
    better.)
    """
    _check(q, confidence, sides)
    risk = _risk(confidence, sides)
    share = q if sides == 1 else max(q, 1 - q)
    n = max(1, math.floor(math.log(risk) / math.log(share)))
    while share**n > risk:
        n += 1
    return n


def share_over(samples: Iterable[float], limit: float, *, confidence: float = 0.95, sides: int = 2) -> Share:
    """The share of samples over a limit, with the exact (Clopper-Pearson) interval.

    The other way to ask about a percentile, and the one for a yes or no: "P95 is at most L" means "at most 5
    % are over L", so a one-sided ``high`` of 0.05 or less says, with that confidence, that it holds.

    Args:
        samples: as for :func:`percentile`; ``inf`` is over every limit.
        limit: in the unit of the samples. A sample equal to it is not over it.
        confidence: between 0 and 1.
        sides: 2 for an interval; 1 for an upper bound only (``low`` is 0).

    Raises:
        CourseError: as for :func:`percentile`, or ``limit`` is missing (NaN or None).
    """
    _check(0.5, confidence, sides)
    if pd.isna(limit):
        raise CourseError(f"limit={limit}: nothing is over a limit that is missing. Give a number.")
    values = _clean(samples)
    over, n = int(np.sum(values > limit)), len(values)
    test = binomtest(over, n, alternative="two-sided" if sides == 2 else "less")
    interval = test.proportion_ci(confidence_level=confidence, method="exact")
    return Share(
        limit=limit,
        over=over,
        n=n,
        value=over / n,
        low=float(interval.low),
        high=float(interval.high),
        confidence=confidence,
        sides=sides,
    )


def _clean(samples: Iterable[float]) -> np.ndarray:
    # None becomes NaN by itself; pandas' own NA, in its nullable columns, does not.
    values = np.asarray([math.nan if sample is pd.NA else sample for sample in samples], dtype=float)
    missing = int(np.sum(np.isnan(values)))
    if missing:
        raise CourseError(
            f"{missing} of {len(values)} samples are missing: requests that have no such time, because they "
            "failed or made no token. Leave them out with .dropna() and say so, or count them as too slow "
            "with .fillna(float('inf'))."
        )
    if not len(values):
        raise CourseError("There are no samples. Did all requests fail? Look at the column error.")
    return values


def _check(q: float, confidence: float, sides: int) -> None:
    for name, value, example in (("q", q, "0.95 for P95"), ("confidence", confidence, "0.95")):
        if not 0 < value < 1:
            raise CourseError(f"{name}={value} is not between 0 and 1. Give a share: {example}.")
    if sides not in (1, 2):
        raise CourseError(f"sides={sides}: an interval has 2 sides, a bound 1. Give one of these.")


def _risk(confidence: float, sides: int) -> float:
    """What may go wrong at one end; a hair more, for 1 - 0.9 is a hair less than 0.1 in floating point."""
    return (1 - confidence) / sides + 1e-12


def _name(q: float) -> str:
    return f"P{q * 100:g}"


def _count(n: int) -> str:
    return "1 sample" if n == 1 else f"{n:,} samples"


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _number(value: float) -> str:
    if math.isinf(value):
        return "infinitely many"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
