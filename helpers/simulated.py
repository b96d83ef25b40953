"""Servers that are not there, with a known truth: to see whether a search finds it.

A :class:`Server` here is a law: how long the first answer token takes when so many people are on the phone.
It holds the law of the crowd (how the median grows with the live calls, the share of calls that are slow as
a whole, the share of turns that fail) and the law of a single turn (a call has a pace of its own, and each
turn scatters around it, both lognormal). So the attainment of every level can be computed, and with it the
largest number of live calls that keeps the promise: :meth:`Server.truth`. No measurement knows it that well.

:meth:`Server.requests` draws a run from the law, in virtual time, seeded, in the columns of a measured one:
``live_calls`` lines, each with one call after another, each turn spoken, answered and thought about. A turn's
wait follows from the level alone; it does not depend on what the other lines do at that moment. For queues
where it does, see :func:`fifo`, which :mod:`helpers.showcases` uses, and which agrees with the formulas of
:func:`mean_wait`.

Sources: L. Kleinrock, Queueing Systems, Volume 1 (1975), sections 3.2 (M/M/1) and 5.6 (M/G/1: Pollaczek and
Khinchin). The scatter between and within calls (0.4 and 0.3) is our assumption; stronger ones are used too.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

from helpers.latency import COLUMNS, FLAG_COLUMNS, NUMBER_COLUMNS
from helpers.settings import CourseError

Law = Callable[[float], float]

SPEAK_S, LISTEN_AND_THINK_S = 4.0, 12.0
"""Mean seconds a caller speaks, and then listens and thinks; each turn draws around them."""

TOKEN_MS, ANSWER_TOKENS = 20.0, 40
"""Time per output token and length of an answer, for the end of a request."""


def never(_: float) -> float:
    """The law of what does not happen: 0 at every level."""
    return 0.0


@dataclass(frozen=True)
class Server:
    """A law of waiting times.

    Attributes:
        name: for tables and legends.
        median_ms: median TTFAT of an ordinary call's turn at a number of live calls.
        slow_share: share of calls that are slow from beginning to end, at a number of live calls.
        slow_factor: how many times slower such a call is.
        failing: share of turns that fail, at a number of live calls.
        between: scatter between calls: standard deviation of the logarithm of a call's pace.
        within: scatter between the turns of a call, likewise.
        turns: fewest and most turns of a call; all numbers between are as likely.
    """

    name: str
    median_ms: Law
    slow_share: Law = never
    slow_factor: float = 4.0
    failing: Law = never
    between: float = 0.4
    within: float = 0.3
    turns: tuple[int, int] = (3, 10)

    def attainment(self, live_calls: float, limit_ms: float) -> float:
        """The true share of turns within a limit, failed ones counted as too slow."""
        scatter = math.hypot(self.between, self.within)
        slow = self.slow_share(live_calls)
        at = math.log(limit_ms / self.median_ms(live_calls))
        within = (1 - slow) * norm.cdf(at / scatter)
        within += slow * norm.cdf((at - math.log(self.slow_factor)) / scatter)
        return float((1 - self.failing(live_calls)) * within)

    def percentile_ms(self, live_calls: float, q: float = 0.95) -> float:
        """The true percentile: the limit within which exactly a share ``q`` is; ``inf`` if too many fail."""
        if 1 - self.failing(live_calls) <= q:
            return math.inf
        median_ms = self.median_ms(live_calls)
        found = brentq(lambda log: self.attainment(live_calls, math.exp(log) * median_ms) - q, -20, 20)
        return median_ms * math.exp(float(found))

    def truth(self, limit_ms: float, *, q: float = 0.95, high: int = 10_000) -> int:
        """The largest number of live calls at which a share ``q`` is within the limit; 0 if there is none."""
        level = 0
        while level < high and self.attainment(level + 1, limit_ms) >= q:
            level += 1
        return level

    def requests(self, live_calls: int, calls: int, seed: int = 0) -> pd.DataFrame:
        """A run in virtual time: ``calls`` calls on ``live_calls`` lines.

        Returns:
            One row a turn, with the columns of ``helpers.load``: those of ``latency.table``, and ``call``,
            ``turn`` (from 0), ``tool``, ``phase`` ("measured"), ``due_s``, ``sent_s``, ``first_answer_s``,
            ``ended_s``, ``due_to_ttfat_ms``, ``live_calls``, ``calls_per_minute`` (NaN). What the law says
            nothing about is NaN. ``origin`` is ``modelled``.

        Raises:
            CourseError: fewer than one line or call.
        """
        call, turn, ttfat_ms, random = self._draw(live_calls, calls, seed)
        failed = np.isinf(ttfat_ms)
        spoken_s = SPEAK_S * random.gamma(4, 0.25, len(call))
        after_s = LISTEN_AND_THINK_S * random.gamma(4, 0.25, len(call))
        after_s += np.where(failed, 0.0, ttfat_ms + (ANSWER_TOKENS - 1) * TOKEN_MS) / 1000
        due_s = _due(call % live_calls, spoken_s, after_s)
        return self._table(call, turn, due_s, ttfat_ms, live_calls)

    def times_ms(self, live_calls: int, calls: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The quick form of :meth:`requests`: each turn's call, from 0, and TTFAT, infinite if it failed."""
        call, _, ttfat_ms, _ = self._draw(live_calls, calls, seed)
        return call, ttfat_ms

    def _draw(
        self, live_calls: int, calls: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
        if live_calls < 1 or calls < 1:
            raise CourseError(f"{live_calls} live calls, {calls} calls: both must be at least 1.")
        random = np.random.default_rng([seed, live_calls])
        sizes = random.integers(self.turns[0], self.turns[1] + 1, calls)
        call = np.repeat(np.arange(calls), sizes)
        turn = np.arange(len(call)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        pace = self.between * random.standard_normal(calls)
        pace += math.log(self.slow_factor) * (random.random(calls) < self.slow_share(live_calls))
        log_ms = pace[call] + self.within * random.standard_normal(len(call))
        ttfat_ms = self.median_ms(live_calls) * np.exp(log_ms)
        ttfat_ms[random.random(len(call)) < self.failing(live_calls)] = math.inf
        return call, turn, ttfat_ms, random

    def _table(
        self,
        call: np.ndarray,
        turn: np.ndarray,
        due_s: np.ndarray,
        ttfat_ms: np.ndarray,
        live_calls: int,
    ) -> pd.DataFrame:
        failed = np.isinf(ttfat_ms)
        missing = np.where(failed, np.nan, 1.0)  # what a failed turn does not have
        waited_ms = np.where(failed, np.nan, ttfat_ms)
        ended_s = due_s + np.where(failed, 0.0, ttfat_ms + (ANSWER_TOKENS - 1) * TOKEN_MS) / 1000
        known = {
            "sent_s": due_s,
            "wait_ms": 0.0,
            "ttft_ms": waited_ms,
            "ttfat_ms": waited_ms,
            "first_speakable_ms": waited_ms,
            "tpot_ms": TOKEN_MS * missing,
            "e2e_ms": waited_ms + (ANSWER_TOKENS - 1) * TOKEN_MS,
            "completion_tokens": ANSWER_TOKENS * missing,
        }
        columns = {"call": call, "turn": turn, "tool": False, "phase": "measured"}
        columns |= dict.fromkeys(COLUMNS) | dict.fromkeys(NUMBER_COLUMNS, np.nan)
        columns |= {name: name == "streamed" for name in FLAG_COLUMNS} | known
        columns |= {
            "server": self.name,
            "origin": "modelled",
            "error": np.where(failed, "http", None),
            "error_message": np.where(failed, "the law says that this turn fails", None),
            "due_s": due_s,
            "first_answer_s": due_s + waited_ms / 1000,
            "ended_s": ended_s,
            "due_to_ttfat_ms": waited_ms,
            "live_calls": float(live_calls),
            "calls_per_minute": np.nan,
        }
        return pd.DataFrame(columns)


def _due(line: np.ndarray, speak_s: np.ndarray, after_s: np.ndarray) -> np.ndarray:
    """When each turn's request is due: after all that happened on its line, and the caller's speaking."""
    due_s = np.empty(len(line))
    for number in range(int(line.max()) + 1):
        mine = np.flatnonzero(line == number)
        ends = np.cumsum(speak_s[mine] + after_s[mine])
        due_s[mine] = ends - after_s[mine]
    return due_s


def _queue(live_calls: float) -> float:
    return 120 / (1 - min(live_calls, 39.9) / 40)


def _cliff(live_calls: float) -> float:
    return 180.0 if live_calls <= 20 else 900.0


def _gentle(live_calls: float) -> float:
    return 150 + 5.0 * live_calls


def _bimodal_share(live_calls: float) -> float:
    return min(1.0, 0.01 + 0.005 * max(0.0, live_calls - 10))


def _breaks(live_calls: float) -> float:
    return 0.0 if live_calls <= 12 else 0.5


SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        Server("queue", _queue),
        Server("cliff", _cliff),
        Server("gentle", _gentle),
        Server("bimodal", lambda _: 150.0, slow_share=_bimodal_share, slow_factor=6.0),
        Server("breaks", lambda live_calls: 120 + 3 * live_calls, failing=_breaks),
        Server("correlated", _gentle, between=0.48, within=0.14),
    )
}
"""Growth as in an M/M/1 queue; a cliff; a gentle slope; more and more calls that are slow as a whole; a
server that breaks above 12 live calls; the gentle slope with calls that differ more and turns that differ
less."""


def fifo(arrival_s: np.ndarray, service_s: np.ndarray, servers: int = 1) -> np.ndarray:
    """When each request is begun by a queue that serves in order of arrival.

    Args:
        arrival_s: seconds, ascending.
        service_s: seconds of service, one for each.
        servers: how many are served at a time.

    Returns:
        Seconds at which the service of each begins. It ends ``service_s`` later.
    """
    if np.any(np.diff(arrival_s) < 0):
        raise CourseError("The arrivals are not in order of time. Sort them first.")
    free = [-math.inf] * servers
    begun = np.empty(len(arrival_s))
    for i, (arrival, service) in enumerate(zip(arrival_s, service_s, strict=True)):
        begun[i] = max(arrival, free[0])
        heapq.heapreplace(free, begun[i] + service)
    return begun


def mean_wait(load: float, service_s: float, *, scatter: float = 1.0) -> float:
    """Mean seconds a Poisson arrival waits for one server, before its service begins.

    Pollaczek and Khinchin: ``load / (1 - load) * service * (1 + scatter²) / 2``.

    Args:
        load: arrivals a second times ``service_s``, below 1.
        service_s: mean seconds of service.
        scatter: standard deviation of the service time / its mean: 1 for M/M/1, 0 for M/D/1.
    """
    if not 0 <= load < 1:
        raise CourseError(f"load={load}: a queue has a mean wait only below 1, and none is below 0.")
    return load / (1 - load) * service_s * (1 + scatter**2) / 2
