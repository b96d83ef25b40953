"""What a search has measured so far, level by level, and what it says. Used by :mod:`helpers.search`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
from scipy.optimize import isotonic_regression

from helpers import slo
from helpers.clustered import Turns
from helpers.settings import CourseError

Measure = Callable[[int, int], pd.DataFrame]

FIRST_CALLS = 32
"""Calls a level gets first: without a slow turn they settle the question loosely (0.95 ** 32 is 0.19)."""

CALLS_A_LINE = 2
"""A level is not that level before every line has had a call; two keep the lines busy most of the time."""


COLUMNS = (
    "live_calls",
    "calls",
    "turns",
    "share",
    "p95_ms",
    "purpose",
    "total_calls",
    "verdict",
    "why_not",
    "origin",
)
"""Of the table of measurements: what :meth:`Known.take` notes of each."""


class Gone(CourseError):
    """A measurement could not be made: the server does not answer any more, or there is nothing to ask."""


class Known:
    """All that was measured so far, by level."""

    def __init__(
        self,
        measure: Measure,
        limit_ms: float,
        q: float,
        metric: str,
        confidence: float,
        say: Callable[[str], None] | None,
    ) -> None:
        self.measure, self.limit_ms, self.q, self.metric = measure, limit_ms, q, metric
        self.confidence, self.say = confidence, say
        self.turns: dict[int, Turns] = {}
        self.found: dict[int, slo.Attainment] = {}
        self.asked: dict[int, int] = {}
        """Calls asked for at a level. A run may end with fewer; asking for ever would not help."""
        self.rows: list[dict[str, object]] = []
        self.calls_left = math.inf
        self.ends_at = math.inf

    def over(self) -> str:
        """Why no further measurement is begun; empty if one may be."""
        if self.calls_left < 1:
            return "budget"
        return "time" if time.monotonic() >= self.ends_at else ""

    def take(self, level: int, calls: int, purpose: str) -> slo.Attainment:
        """Measure, keep, and return what this measurement says by itself."""
        if purpose == "search":
            calls = int(min(calls, self.calls_left))
        try:
            table = self.measure(level, calls)
        except CourseError as error:
            raise Gone(f"{error}") from error
        turns = Turns.of(table, self.metric)
        alone = self.judge(turns)
        self.turns[level] = turns.joined(self.turns.get(level))
        self.found[level] = self.judge(self.turns[level])
        if purpose == "search":
            self.calls_left -= calls
            self.asked[level] = self.asked.get(level, 0) + calls
        row = {
            "live_calls": level,
            "calls": alone.n_calls,
            "turns": alone.n_turns,
            "share": alone.share,
            "p95_ms": turns.percentile(self.q),
            "purpose": purpose,
            "total_calls": self.found[level].n_calls,
            "verdict": self.found[level].verdict(self.q),
            "why_not": table.attrs.get("why_not", ""),
            "origin": table["origin"].iloc[0] if "origin" in table else "measured",
        }
        self.rows.append(row)
        if self.say:
            self.say(
                f"{level} live calls, {alone.n_calls} calls ({purpose}): {alone.share * 100:.3g} % within "
                f"{self.limit_ms:g} ms; so far: {row['verdict']}"
            )
        ended = str(table.attrs.get("ended", ""))
        if ended.startswith("stopped"):
            raise KeyboardInterrupt
        if ended.startswith("server gone"):
            raise Gone(ended.removeprefix("server gone: "))
        return alone

    def judge(self, turns: Turns) -> slo.Attainment:
        """What so many turns say about the limit."""
        return slo.judged(turns, self.limit_ms, metric=self.metric, confidence=self.confidence)

    def bracket(self, low: int, high: int) -> tuple[int | None, int | None]:
        """The largest level that keeps the promise and the smallest that breaks it, by the falling fit."""
        levels = [level for level in sorted(self.found) if low <= level <= high]
        if not levels:
            return None, None
        shares = [self.found[level].share for level in levels]
        weights = [float(self.found[level].n_calls) for level in levels]
        fit = isotonic_regression(shares, weights=weights, increasing=False).x
        keeps = [level for level, share in zip(levels, fit, strict=True) if share >= self.q - 1e-12]
        breaks = levels[len(keeps) :]
        return (keeps[-1] if keeps else None), (breaks[0] if breaks else None)

    def wants(self, level: int, confidence: float, most: int) -> int:
        """How many calls more a level should get; 0 if it is settled at this confidence, or has them all."""
        if level in self.found:
            if replace(self.found[level], confidence=confidence).verdict(self.q) != "open":
                return 0
            return min(self.asked[level], most - self.asked[level]) if self.asked[level] < most else 0
        return max(min(FIRST_CALLS, most), CALLS_A_LINE * level)

    def settled(self) -> tuple[int, int | None]:
        """The largest level that surely keeps the promise, and the smallest that surely breaks it."""
        verdicts = {level: found.verdict(self.q) for level, found in self.found.items()}
        high = min((level for level, said in verdicts.items() if said == "fails"), default=None)
        holding = [
            level for level, said in verdicts.items() if said == "holds" and (high is None or level < high)
        ]
        return max(holding, default=0), high
