"""How many people can be on the phone before the P95 breaks the promise? A search that spends near the edge.

A grid measures every level with the same number of calls, most of them where the answer is plain. This search
keeps a bracket (a level that keeps the promise, a higher one that breaks it) and narrows it:

1. *Double* from the lowest level until one breaks the promise; then halve the bracket.
2. *Stop early.* A level gets a few calls first. If they settle the question loosely (confidence
   :data:`LOOSE`, enough to choose where to go next), that is all; if not, more, up to ``most``.
3. *Pool.* More people never make a server faster. So the shares of all levels are fitted by a sequence that
   only falls (isotonic regression, each level weighted by its calls), and the bracket is read from the fit: a
   lucky or an unlucky level is outvoted by its neighbours, and a choice that was wrong is taken back.
4. *Narrow down to neighbours*, and give both ends calls until they are settled at the stated confidence, or
   have ``most``.
5. *Confirm.* The search asked the same question many times and stopped where it liked the answer, so its own
   numbers flatter. A fresh run at the answer, of a size fixed beforehand, is what counts
   (:attr:`helpers.found.Found.confirmed`). If it plainly fails, its calls join the others and the search goes
   on below.

Between 4 and 5, if the budget allows, the calls go halfway between what is sure and what is open, on either
side, so that the statement "so many surely, so many surely not" gets narrower, too.

A run that ends early (budget, time, a server that is gone, an interrupt) gives what is known so far, and says
so.

Sources: R. E. Barlow et al., Statistical Inference under Order Restrictions (1972), for the fit; the choice
of numbers: ``python -m benchmarks.search``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pandas as pd

from helpers import arguments, probes
from helpers.found import Found
from helpers.probes import Gone, Known, Measure
from helpers.settings import CourseError

__all__ = ["CONFIRMATIONS", "FINENESS", "LOOSE", "Found", "Measure", "limit"]

LOOSE = 0.8
"""Confidence enough to choose the next level; a wrong choice costs calls, not the answer."""

FINENESS = 8
"""The sure levels are brought within about an eighth of the answer, as far as ``most`` calls can."""

CONFIRMATIONS = 3
"""Fresh runs at most: each is one more chance to be lucky."""


def limit(
    measure: Measure,
    *,
    limit_ms: float = 600,
    q: float = 0.95,
    metric: str = "ttfat_ms",
    low: int = 1,
    high: int = 64,
    most: int = 200,
    confirm: int | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    confidence: float = 0.95,
    tighten: bool = True,
    say: Callable[[str], None] | None = None,
) -> Found:
    """Search for the largest number of live calls whose percentile ``q`` stays within a limit.

    Args:
        measure: ``measure(live_calls, calls)`` runs that many calls, at that many at a time, and returns
            their requests table. It is asked for *new* calls each time. An error of the server belongs into
            the table (column ``error``); a :class:`CourseError` ends the search with what is known, be it
            nothing. Two things it may say in ``table.attrs``: ``ended``, as :class:`helpers.load.LoadRun`
            does (``stopped by you`` and ``server gone: ...`` count this table and end the search), and
            ``why_not``, why this measurement is not to be trusted.
        limit_ms: in the unit of ``metric``.
        q: share, 0.95 for P95.
        metric: column of times.
        low: lowest level.
        high: highest level.
        most: calls at which a level is given up as too close to call; the more, the surer and the dearer.
        confirm: calls of the fresh run; ``most`` if None; 0 for none.
        budget: calls that may be spent in all, those of the first fresh run set aside from the start.
        seconds: time after which no new measurement is begun.
        confidence: of the stated bounds and verdicts.
        tighten: spend calls on levels beside the answer, too, to bring ``Found.low`` and ``Found.high``
            nearer to it.
        say: gets one line for each measurement.

    Returns:
        What was found, also if the server was gone before the first measurement: then ``probes`` has no row,
        and :meth:`Found.sentence` says what to do. Else it has a row a measurement: ``live_calls``,
        ``calls`` and ``turns`` of this measurement, ``share`` of its turns within the limit, ``p95_ms`` of
        it, ``purpose`` (``search`` or ``confirm``), ``total_calls`` at this level so far, ``verdict`` on all
        of them, ``why_not``, ``origin``.

    Raises:
        CourseError: arguments out of range, or the first table lacks the columns that :mod:`helpers.slo`
            needs.
    """
    _check(low, high, q, confidence, limit_ms, seconds, most, confirm, budget)
    confirm = most if confirm is None else confirm
    if budget is not None and budget <= confirm:
        raise CourseError(
            f"budget={budget} leaves nothing for the search: the fresh run alone takes {confirm} calls. "
            "Raise the budget, or lower confirm."
        )
    known = Known(measure, limit_ms, q, metric, confidence, say)
    known.calls_left = math.inf if budget is None else budget - confirm
    known.ends_at = math.inf if seconds is None else time.monotonic() + seconds
    answer, confirmed, ended, top = 0, None, "done", high
    try:
        for _ in range(CONFIRMATIONS):
            answer, ended = _narrow(known, low, top, most, tighten)
            if not (answer and confirm):
                break
            if confirmed:
                known.calls_left -= confirm  # only the first was set aside
                if known.calls_left < 0:
                    break
            confirmed = known.take(answer, confirm, "confirm")
            if confirmed.verdict(q) != "fails":
                break
            top = answer - 1
            answer = known.bracket(low, top)[0] or 0
            if ended not in ("done", "top") or top < low:
                break
    except KeyboardInterrupt:
        answer, ended = known.bracket(low, top)[0] or 0, "stopped by you"
    except Gone as error:
        answer, ended = known.bracket(low, top)[0] or 0, f"server gone: {error}"
    except CourseError as error:
        if not known.rows:
            raise
        answer, ended = known.bracket(low, top)[0] or 0, f"could not be judged: {error}"
    if confirmed and known.rows[-1]["live_calls"] != answer:
        confirmed = None  # it was about another level
    sure_low, sure_high = known.settled()
    return Found(
        live_calls=answer,
        # A level that is sure by itself may be outvoted by its neighbours; then less is said, not more.
        low=min(sure_low, answer),
        high=None if sure_high is None else max(sure_high, answer + 1),
        confirmed=confirmed,
        # Stopped before its first measurement was over, it has no row; then it still has columns.
        probes=pd.DataFrame(known.rows, columns=list(probes.COLUMNS)),
        ended="done" if ended == "top" and answer < high else ended,
        limit_ms=limit_ms,
        q=q,
        metric=metric,
        confidence=confidence,
    )


def _check(
    low: object,
    high: object,
    q: object,
    confidence: object,
    limit_ms: object,
    seconds: object,
    most: object,
    confirm: object,
    budget: object,
) -> None:
    """Raise a CourseError that names the argument of :func:`limit` which makes no sense."""
    low = arguments.number("low", low, least=1, whole=True, example="1")
    arguments.number("high", high, least=low, whole=True, example="64, no lower than low")
    for name, share in {"q": q, "confidence": confidence}.items():
        if not 0 < arguments.number(name, share) < 1:
            raise CourseError(f"{name}={share}: give a share between 0 and 1, such as 0.95.")
    arguments.number("limit_ms", limit_ms, example="600")
    if seconds is not None:
        arguments.number("seconds", seconds, above=0, example="75")
    arguments.number("most", most, least=1, whole=True, example="200 (calls)")
    if confirm is not None:
        arguments.number("confirm", confirm, least=0, whole=True, example="200 (calls)")
    if budget is not None:
        arguments.number("budget", budget, least=1, whole=True, example="1000 (calls)")


def _narrow(known: Known, low: int, high: int, most: int, tighten: bool) -> tuple[int, str]:
    """Measure until two neighbours are known, one that keeps the promise and one that breaks it.

    Returns:
        The answer, and how it ended: ``done``, ``top``, or why it was over before.
    """
    while True:
        keeps, _ = known.bracket(low, high)
        level, calls = _next(known, low, high, most)
        answered = not calls
        if answered and tighten:
            level, calls = _tighten(known, low, high, most)
        over = known.over()
        if calls and not over:
            known.take(level, calls, "search")
        else:
            done = "top" if keeps == high else "done"
            return keeps or 0, done if answered else over


def _next(known: Known, low: int, high: int, most: int) -> tuple[int, int]:
    """The level to measure next and with how many calls; 0 calls when all is known that can be."""
    keeps, breaks = known.bracket(low, high)
    ends = [level for level in (keeps, breaks) if level is not None]
    for level in ends:
        if calls := known.wants(level, LOOSE, most):
            return level, calls
    if breaks is None:
        between = low if keeps is None else min(2 * keeps, high)
    else:
        between = ((low - 1 if keeps is None else keeps) + breaks) // 2
    if between not in known.found and low <= between <= high:
        return between, known.wants(between, LOOSE, most)
    for level in ends:
        if calls := known.wants(level, known.confidence, most):
            return level, calls
    return low, 0


def _tighten(known: Known, low: int, high: int, most: int) -> tuple[int, int]:
    """The level halfway between what is sure and the nearest that is open, on either side of the answer."""
    levels = [level for level in sorted(known.found) if low <= level <= high]
    sure_low, sure_high = known.settled()
    sure_low = max(sure_low, low - 1)
    opened = [level for level in levels if level > sure_low and (sure_high is None or level < sure_high)]
    if not opened:
        return low, 0
    gaps = [(sure_low, opened[0]), (opened[-1], high + 1 if sure_high is None else sure_high)]
    for below, above in sorted(gaps, key=lambda gap: gap[0] - gap[1]):
        between = (below + above) // 2
        if above - below > max(1, opened[0] // FINENESS) and between not in known.found and between >= low:
            return between, known.wants(between, LOOSE, most)
    for level in (opened[0], opened[-1]):
        if calls := known.wants(level, known.confidence, most):
            return level, calls
    return low, 0
