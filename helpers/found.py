"""What a search for the limit found, how sure it is, and what would make it surer (:mod:`helpers.search`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from helpers import slo


@dataclass(frozen=True)
class Found:
    """What a search found, and how sure it is.

    Attributes:
        live_calls: the largest number of live calls that keeps the promise, best estimate; 0 if not even the
            lowest level does.
        low: largest level that surely keeps it (one-sided, ``confidence``); 0 if that can be said of none.
        high: smallest level that surely breaks it; None if that can be said of none.
        confirmed: the fresh run at ``live_calls`` by itself; None if there was none.
        probes: one row a measurement, see :func:`helpers.search.limit`; none if nothing was measured.
        ended: ``done``, ``top`` (the highest level still keeps the promise), ``budget``, ``time``, ``stopped
            by you``, ``server gone: ...``, or ``could not be judged: ...``.
        limit_ms: the limit.
        q: the share: 0.95 for P95.
        metric: column of times.
        confidence: of each statement.
    """

    live_calls: int
    low: int
    high: int | None
    confirmed: slo.Attainment | None
    probes: pd.DataFrame = field(repr=False)
    ended: str
    limit_ms: float
    q: float
    metric: str
    confidence: float

    @property
    def verdict(self) -> slo.Verdict:
        """Of the fresh run; ``open`` without one."""
        return self.confirmed.verdict(self.q) if self.confirmed else "open"

    @property
    def calls(self) -> int:
        """Calls spent, the fresh run's too."""
        return int(self.probes["calls"].sum())

    @property
    def requests(self) -> int:
        """Turns measured, the fresh run's too."""
        return int(self.probes["turns"].sum())

    @property
    def calls_needed(self) -> int | None:
        """More calls at ``live_calls`` that would settle it, see :func:`helpers.slo.calls_needed`."""
        return slo.calls_needed(self.confirmed, q=self.q) if self.confirmed else None

    def sentence(self) -> str:
        """The answer, how sure it is, and what would make it surer."""
        name = f"P{self.q * 100:g} of {self.metric} at most {self.limit_ms:g} ms"
        if not len(self.probes):
            return f"{name}: nothing was measured ({self.ended}), so nothing is known. {self._next_step()}"
        parts = [f"{name}: up to {self.live_calls} live calls."]
        if self.live_calls == 0:
            parts = [f"{name}: no number of live calls was found that keeps it."]
        elif self.ended == "top":
            parts = [f"{name}: still kept at {self.live_calls} live calls, the most that were tried."]
        if self.ended not in ("done", "top"):
            parts.append(f"The search ended early ({self.ended}), so this is what is known so far.")
        sure = f"With {self.confidence * 100:g} % confidence each:"
        low = f"{self.low} live calls keep it" if self.low else "no level surely keeps it"
        high = f"{self.high} break it" if self.high else "no level surely breaks it"
        parts.append(f"{sure} {low}, {high}.")
        if self.confirmed:
            parts.append(f"Fresh run at {self.live_calls}: {self._confirmation()}")
        elif self.live_calls:
            parts.append("No fresh run confirmed it, and a search's own numbers flatter.")
        doubted = self.probes.loc[self.probes["why_not"] != "", "why_not"]
        if len(doubted):
            parts.append(
                f"{len(doubted)} of {len(self.probes)} measurements are not to be trusted: {doubted.iloc[0]}"
            )
        parts.append(f"Spent: {self.calls:,} calls, {self.requests:,} requests.")
        return " ".join(parts)

    def _next_step(self) -> str:
        """What to do after a search without a measurement."""
        if self.ended.startswith("server gone"):
            return "Start the server again (engine.connect() starts the embedded one), then search again."
        return "Search again, and let it run for longer."

    def _confirmation(self) -> str:
        assert self.confirmed is not None
        seen = (
            f"{self.confirmed.share * 100:.3g} % of {self.confirmed.n_turns:,} turns in "
            f"{self.confirmed.n_calls} calls within the limit; the question is"
        )
        if self.verdict == "holds":
            return f"{seen} settled: it keeps the promise."
        more = self.calls_needed
        wish = "no number of calls would settle it: it lies on the line"
        if more is not None:
            wish = f"about {int(float(f'{more:.2g}')):,} more calls like these would settle it"
        return f"{seen} open; {wish}."
