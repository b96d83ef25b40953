"""Stages as distributions, and what their sum is: by drawing turns, since percentiles do not add.

A :class:`Stage` knows for each share ``u`` between 0 and 1 the time that a share ``u`` of the turns stays
under (its quantile function). Three ways to one:

- :func:`from_samples`: the samples themselves, each as likely as any other;
- :func:`through`: through two or more published percentiles. Between them the logarithm of the time is a
  straight line in the normal score of the share. With two points that is exactly a lognormal distribution;
  with more the line bends at the points. Above the last point nothing is published: there the line goes on
  with the slope of its first piece, so the extreme tail is not claimed to be known;
- :func:`from_iqr`: the lognormal with a published median and interquartile range (P75 less P25).

:func:`draw` makes turns. The stages of a turn may be slow together (a busy network, a busy machine). That is
one number here, the rank correlation of Spearman between any two stages, brought in by a Gaussian copula:
each turn gets one normal score a stage, all equally correlated, and each stage reads off its own time. A
copula leaves every stage's distribution as it is and moves only the togetherness; a *rank* correlation means
the same whatever the shapes; and from so few published figures more than one number could not be justified. A
Gaussian copula makes extremes of two stages nearly independent unless the correlation is 1: stages that jump
together (one shared network) are not described by it.

The interval that comes with a drawn percentile is that of the drawing alone. It shrinks with more turns. How
wrong the inputs are it does not know.

Sources: A. Sklar (1959) for copulas; for ``2 sin(pi rho / 6)``, the correlation of two normals whose rank
correlation is ``rho``, K. Pearson (1907); R. B. Nelsen, An Introduction to Copulas, 2nd ed. (2006).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from helpers import stats
from helpers.arguments import number
from helpers.budget import checked_ms
from helpers.settings import CourseError

DRAWS = 20_000
MOST_DRAWS = 2_000_000
_UPPER_QUARTILE = float(ndtri(0.75))


@dataclass(frozen=True)
class Stage:
    """How long one part of a turn takes, as a distribution.

    Attributes:
        name: what it is; no two stages of a turn have the same.
        quantile: shares between 0 and 1 to ms, never falling.
        form: how it was made, in words.
        varies: whether it takes more than one value.
        origin: of the distribution: ``modelled`` for a curve through published figures.
        source, date: whose figures.
        server: of samples: what was timed.
    """

    name: str
    quantile: Callable[[np.ndarray], np.ndarray] = field(repr=False, compare=False)
    form: str
    varies: bool = True
    origin: str = "modelled"
    source: str = ""
    date: str = ""
    server: str = ""

    def at(self, share: float) -> float:
        """The time that this share of the turns stays under, in ms: 0.95 for the P95."""
        return float(self.quantile(np.array([_checked_share(share)]))[0])

    def scaled(self, factor: float) -> Stage:
        """The same, every time multiplied by ``factor``."""
        factor = checked_ms(factor, "factor")
        return replace(
            self,
            quantile=lambda share: factor * self.quantile(share),
            form=f"{self.form}, times {factor:g}",
            origin="modelled",
        )

    def named(self, name: str) -> Stage:
        """The same with another name, for a part that a turn has twice."""
        return replace(self, name=name)


def fixed(name: str, ms: float, **said: str) -> Stage:
    """A stage that always takes the same. ``said``: ``origin``, ``source``, ``date``, ``server``."""
    ms = checked_ms(ms, name)
    return Stage(name, lambda share: np.full(np.shape(share), ms), "always the same", varies=False, **said)


def through(name: str, known: Mapping[float, float], **said: str) -> Stage:
    """A stage through published percentiles, see the module.

    Args:
        name: of the stage.
        known: share to ms, such as ``{0.5: 247, 0.95: 298, 0.99: 326}``; at least two.
        said: ``source`` and ``date`` of the figures.

    Raises:
        CourseError: fewer than two, a share outside 0 to 1, a time of 0 or less, or times that fall.
    """
    shares = sorted(_checked_share(share) for share in known)
    times = [checked_ms(known[share], f"{name}, P{100 * share:g}") for share in shares]
    if len(shares) < 2 or min(times) <= 0:
        raise CourseError(
            f"{name}: a curve needs two percentiles or more, all above 0 ms; got {dict(known)}."
        )
    if any(later < earlier for earlier, later in pairwise(times)):
        raise CourseError(f"{name}: a higher percentile cannot be a shorter time; got {dict(known)}.")
    scores, logs = ndtri(np.array(shares)), np.log(times)
    slope = (logs[1] - logs[0]) / (scores[1] - scores[0])  # of the first piece: it also goes on at both ends

    def quantile(share: np.ndarray) -> np.ndarray:
        at = ndtri(share)
        inside = np.interp(at, scores, logs)
        below, above = np.minimum(at - scores[0], 0.0), np.maximum(at - scores[-1], 0.0)
        return np.exp(inside + slope * (below + above))

    points = ", ".join(f"P{100 * share:g}" for share in shares)
    shape = "lognormal through" if len(shares) == 2 else "log of the time straight between"
    return Stage(name, quantile, f"{shape} {points}", varies=times[-1] > times[0], **said)


def from_iqr(name: str, p50_ms: float, iqr_ms: float, **said: str) -> Stage:
    """The lognormal with this median and interquartile range.

    Of a lognormal with median m and spread s, P75 - P25 is ``2 m sinh(0.674 s)``, so s follows.

    Raises:
        CourseError: a median of 0 or less, or a range below 0.
    """
    middle, width = checked_ms(p50_ms, f"{name}, median"), checked_ms(iqr_ms, f"{name}, interquartile range")
    if middle <= 0:
        raise CourseError(f"{name}: a median of 0 ms leaves nothing to spread. Give a time above 0.")
    spread = math.asinh(width / (2 * middle)) / _UPPER_QUARTILE
    return Stage(
        name,
        lambda share: middle * np.exp(spread * ndtri(share)),
        "lognormal with the median and the interquartile range",
        varies=width > 0,
        **said,
    )


def from_samples(name: str, samples_ms: Iterable[float], **said: str) -> Stage:
    """The samples themselves: each is as likely as any other, and nothing between or beyond them happens.

    The percentiles are those of :func:`helpers.stats.percentile`.

    Raises:
        CourseError: no samples, or one that is no time (missing, infinite, below 0).
    """
    ordered = np.sort([checked_ms(sample, f"{name}, a sample") for sample in samples_ms])
    if not len(ordered):
        raise CourseError(f"{name}: there are no samples.")

    def quantile(share: np.ndarray) -> np.ndarray:
        place = np.ceil(np.asarray(share) * len(ordered) - 1e-9).astype(int) - 1
        return ordered[np.clip(place, 0, len(ordered) - 1)]

    return Stage(name, quantile, f"{len(ordered)} samples", varies=ordered[0] < ordered[-1], **said)


def spiky(name: str, usual_ms: float, spike_ms: float, share: float, **said: str) -> Stage:
    """A stage that takes ``usual_ms``, and ``spike_ms`` in a small share of the turns."""
    usual, spike = checked_ms(usual_ms, f"{name}, usual time"), checked_ms(spike_ms, f"{name}, spike")
    if spike < usual:
        raise CourseError(f"{name}: a spike of {spike:g} ms is below the usual {usual:g} ms.")
    rare = _checked_share(share)
    form = f"{usual:g} ms, and {spike:g} ms in {rare:.3g} of the turns"
    return Stage(name, lambda at: np.where(np.asarray(at) > 1 - rare, spike, usual), form, **said)


def _checked_share(share: float) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float | np.floating) or not 0 < share < 1:
        raise CourseError(f"{share!r} is not a share between 0 and 1. Give 0.95 for the P95.")
    return float(share)


# --- turns ------------------------------------------------------------------------------------------------


def draw(stages: Sequence[Stage], *, n: int = DRAWS, correlation: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Turns, one a row: what each stage took, in ms. Their sum: ``draw(stages).sum(axis=1)``.

    The same arguments give the same turns. A stage's own chance hangs on its name and the seed, so its turns
    stay the same when others change (as long as nothing is correlated), and their order does not matter.

    Args:
        stages: with different names.
        n: how many turns.
        correlation: rank correlation of any two stages that vary: 0 independent, 1 all at the same rank.
            Below 0 not all pairs of many stages can be equally opposed: with k of them -1 / (k - 1) is the
            least.
        seed: which turns.

    Raises:
        CourseError: no stage, two of the same name, or a number that makes no sense.
    """
    stages = list(stages)
    names = [stage.name for stage in stages]
    if not stages or len(set(names)) < len(names):
        raise CourseError(
            f"Give at least one stage, and each a name of its own; got {', '.join(names) or 'none'}."
        )
    n = number("n", n, least=1, most=MOST_DRAWS, whole=True, example=f"{DRAWS} (turns)")
    seed = number("seed", seed, least=0, whole=True)
    shares = _shares([stage.name for stage in stages if stage.varies], n, correlation, seed)
    middle = np.full(n, 0.5)
    return pd.DataFrame({stage.name: stage.quantile(shares.get(stage.name, middle)) for stage in stages})


def _shares(names: list[str], n: int, correlation: float, seed: int) -> dict[str, np.ndarray]:
    """For each stage that varies, the share (its rank) of each turn: equally correlated normals, through the
    normal distribution function."""
    count = len(names)
    rank = _checked_correlation(correlation, count)
    if not count:
        return {}
    own = np.column_stack(
        [np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(n) for name in names]
    )
    between = 1.0 if rank == 1 else 2 * math.sin(math.pi * rank / 6)
    mean = own.mean(axis=1, keepdims=True)
    # The two parts are independent; their sizes give each score variance 1 and each pair the correlation.
    apart, together = math.sqrt(1 - between), math.sqrt(max(0.0, 1 + (count - 1) * between))
    scores = own if between == 0 else apart * (own - mean) + together * mean
    return dict(zip(names, np.clip(ndtr(scores), 1e-12, 1 - 1e-12).T, strict=True))


def _checked_correlation(correlation: float, count: int) -> float:
    try:
        rank = float(correlation)
    except (TypeError, ValueError, OverflowError):
        rank = math.nan
    if not -1 <= rank <= 1:
        raise CourseError(f"correlation={correlation!r} is not between -1 and 1.")
    if count > 1 and 1 + (count - 1) * 2 * math.sin(math.pi * rank / 6) < -1e-9:
        least = 6 / math.pi * math.asin(-0.5 / (count - 1))
        raise CourseError(
            f"correlation={rank:g}: {count} stages cannot all be that opposed to each other. "
            f"The least is {least:.2f}."
        )
    return rank


def of_sum(
    stages: Sequence[Stage], share: float = 0.95, *, n: int = DRAWS, correlation: float = 0.0, seed: int = 0
) -> stats.Percentile:
    """A percentile of the sum of the stages, from drawn turns, with the interval of the drawing.

    Raises:
        CourseError: as for :func:`draw`, or ``share`` makes no sense.
    """
    turns = draw(stages, n=n, correlation=correlation, seed=seed)
    return stats.percentile(turns.sum(axis=1), _checked_share(share))


def added_ms(stages: Iterable[Stage], share: float = 0.95) -> float:
    """The sum of the stages' own percentiles: what one gets by adding, right if all are slow at once."""
    return sum(stage.at(share) for stage in stages)


def compared(
    cases: Mapping[str, tuple[Sequence[Stage], float]], share: float = 0.95, **how: int
) -> pd.DataFrame:
    """Sum of the percentiles against percentile of the sum, one row a case.

    Args:
        cases: name to stages and rank correlation.
        share: which percentile.
        how: ``n`` and ``seed`` of the drawing.

    Returns:
        A frame with ``case``, ``added_ms``, ``true_ms`` with ``low_ms`` and ``high_ms`` (95 % interval of the
        drawing), ``off_percent`` (how much adding is too high), ``n``, ``origin`` (modelled).
    """
    rows = []
    for case, (stages, correlation) in cases.items():
        found, added = of_sum(stages, share, correlation=correlation, **how), added_ms(stages, share)
        if not found.value:
            raise CourseError(f"{case}: these stages take no time at all, so there is nothing to compare.")
        row = {"case": case, "added_ms": added, "true_ms": found.value, "low_ms": found.low}
        off = 100 * (added / found.value - 1)
        rows.append(row | {"high_ms": found.high, "off_percent": off, "n": found.n, "origin": "modelled"})
    return pd.DataFrame(rows)


def table(stages: Iterable[Stage]) -> pd.DataFrame:
    """The stages as a table: ``stage``, ``p50_ms``, ``p95_ms``, ``form``, ``source``, ``date``,
    ``origin``."""
    rows = [
        {
            "stage": stage.name,
            "p50_ms": stage.at(0.5),
            "p95_ms": stage.at(0.95),
            "form": stage.form,
            "source": stage.source or stage.server,
            "date": stage.date,
            "origin": stage.origin,
        }
        for stage in stages
    ]
    return pd.DataFrame(rows)
