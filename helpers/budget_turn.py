"""One turn of a call, put together from its stages, and what each lever does to it. All of it is modelled.

How the stages join (a :class:`Turn`):

- end of turn: the detector waits ``stop_ms`` for silence. Then the transcript is finished and a model judges
  whether the caller is done, **beside** each other, so the slower of the two counts (``beside=False``: one
  after the other). The published times of transcription (TTFS) were taken with a wait of 200 ms inside; that
  wait is taken off first. That the rest stays the same for another wait holds for services which finish when
  the detector says so, as in that benchmark;
- language model: time to the first answer token. A turn that calls a tool asks it **twice**, with the tool
  in between: two requests, two draws;
- sentence aggregation: the voice begins when the first sentence is complete, so its words cost their tokens;
- everything else is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd

from helpers import budget, budget_stages, budget_sum, published, stats
from helpers.budget import GROUPS, LLM, checked_ms
from helpers.budget_sum import Stage
from helpers.settings import CourseError

TTFS_WAIT_MS = budget_stages.ms("turn.vad")
TOKENS_PER_WORD = published.value("assumption.tokens_per_word")
UP, HEARD, _, SENTENCE, VOICE, DOWN = GROUPS
MOST_MS = 3_600_000.0  # an hour: no limit of a turn is meant to be longer
TOOL, AGAIN, TOTAL = "tool", "language model, after the tool", "total_ms"


@dataclass(frozen=True)
class Turn:
    """What a turn is made of.

    Attributes:
        path: to and from the caller, one of ``budget_stages.names("path")``.
        stt, llm, tts: services, from ``budget_stages.names``.
        stop_ms: silence that the detector waits for (``stop_secs``).
        turn_model_ms: time of the model that judges whether the caller is done; 0: none.
        beside: it works beside the transcription, not after it.
        first_words: words of the first sentence.
        ms_per_token: of the language model after its first token.
        tool: the turn calls a tool.
        tool_ms: how long that takes.
        correlation: rank correlation of the stages, see :mod:`helpers.budget_sum`.
    """

    path: str = budget_stages.WEBRTC
    stt: str = "Deepgram nova-3-general"
    llm: str = "PhoneLLM Alpha 1"
    tts: str = "Cartesia Sonic-3"
    stop_ms: float = TTFS_WAIT_MS
    turn_model_ms: float = budget_stages.ms("turn.smart")
    beside: bool = True
    first_words: float = published.value("budget.first_words")
    ms_per_token: float = published.value("budget.ms_per_token")
    tool: bool = False
    tool_ms: float = published.value("budget.tool_ms")
    correlation: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense, by name."""
        for name in ("stop_ms", "turn_model_ms", "first_words", "ms_per_token", "tool_ms"):
            checked_ms(getattr(self, name), name)

    @property
    def sentence_ms(self) -> float:
        """Time from the first token to the end of the first sentence."""
        return self.first_words * TOKENS_PER_WORD * self.ms_per_token


def stages(turn: Turn, *, llm: Stage | None = None) -> list[Stage]:
    """The stages of a turn that are drawn, in its order. ``HEARD`` is the time of transcription as published
    (TTFS): :func:`simulate` makes the end of turn of it.

    Args:
        turn: the turn.
        llm: a language model in place of ``turn.llm``, such as your own samples
            (:func:`helpers.own_latency.stage`).

    Raises:
        CourseError: there is no such service or path.
    """
    up, down = budget_stages.ways(turn.path)
    model = (llm or budget_stages.stage("llm", turn.llm)).named(LLM)
    parts = [up, budget_stages.stage("stt", turn.stt, called=HEARD), model]
    if turn.tool:
        parts += [budget_sum.fixed(TOOL, turn.tool_ms), model.named(AGAIN)]
    parts += [budget_sum.fixed(SENTENCE, turn.sentence_ms)]
    return [*parts, budget_stages.stage("tts", turn.tts, called=VOICE), down]


def simulate(
    turn: Turn, *, llm: Stage | None = None, n: int = budget_sum.DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Turns, one a row: a column of ms for each stage of :func:`stages`, ``total_ms``, ``origin``.

    Raises:
        CourseError: the turn names something that is not there, or a number makes no sense.
    """
    drawn = budget_sum.draw(stages(turn, llm=llm), n=n, correlation=turn.correlation, seed=seed)
    rest = (drawn[HEARD] - TTFS_WAIT_MS).clip(lower=0)
    judged = rest.clip(lower=turn.turn_model_ms) if turn.beside else rest + turn.turn_model_ms
    drawn[HEARD] = turn.stop_ms + judged
    return drawn.assign(**{TOTAL: drawn.sum(axis=1)}, origin="modelled")


@dataclass(frozen=True)
class Verdict:
    """A limit, and what drawn turns say of it. The intervals are those of the drawing.

    Attributes:
        p50, p95: of the whole turn.
        over: share of the turns over the limit.
        limit_ms: the limit.
    """

    p50: stats.Percentile
    p95: stats.Percentile
    over: stats.Share
    limit_ms: float

    @property
    def kept(self) -> bool:
        """Whether the P95 is within the limit."""
        return self.p95.value <= self.limit_ms

    def sentence(self) -> str:
        """In words."""
        said = "kept" if self.kept else "broken"
        return (
            f"{said}: P95 {self.p95.value:,.0f} ms ({self.p95.low:,.0f} to {self.p95.high:,.0f}), P50 "
            f"{self.p50.value:,.0f} ms; {100 * self.over.value:.1f} % of the turns "
            f"({100 * self.over.low:.1f} to {100 * self.over.high:.1f}) take longer than "
            f"{self.limit_ms:,.0f} ms"
        )


def verdict(turns: pd.DataFrame, *, limit_ms: float = budget.LIMIT_MS) -> Verdict:
    """What drawn turns (:func:`simulate`) say of a limit.

    Raises:
        CourseError: the limit is no time, or there are no turns.
    """
    limit, total = checked_ms(limit_ms, "limit_ms"), turns[TOTAL]
    p50, p95 = (stats.percentile(total, share) for share in (0.5, 0.95))
    return Verdict(p50, p95, stats.share_over(total, limit), limit)


def table(turn: Turn, turns: pd.DataFrame, *, llm: Stage | None = None) -> pd.DataFrame:
    """Each stage of drawn turns: ``stage``, ``what``, ``P50, ms``, ``P95, ms``, ``origin``.

    The P95s are not there to be added up: the last row has that of the whole turn.
    """
    model = llm.source or llm.name if llm else turn.llm
    known = {UP: turn.path, HEARD: turn.stt, LLM: model, AGAIN: model, VOICE: turn.tts, DOWN: turn.path}
    known |= {SENTENCE: f"{turn.first_words:g} words at {turn.ms_per_token:g} ms a token", TOOL: "one call"}
    rows = []
    for name in turns.columns.drop("origin"):
        p50, p95 = (stats.percentile(turns[name], share).value for share in (0.5, 0.95))
        label = "the whole turn" if name == TOTAL else name
        rows.append(
            {"stage": label, "what": known.get(name, ""), "P50, ms": round(p50), "P95, ms": round(p95)}
        )
    return pd.DataFrame(rows).assign(origin="modelled")


def variants(
    cases: Mapping[str, Mapping[str, Any]],
    *,
    base: Turn | None = None,
    llm: Stage | None = None,
    limit_ms: float = budget.LIMIT_MS,
    **how: int,
) -> pd.DataFrame:
    """One turn, changed in one thing at a time.

    Args:
        cases: name to what is changed, such as ``{"a tool call": {"tool": True}}``; an empty one is the base.
        base: the turn to change; without it the default :class:`Turn`.
        llm: as in :func:`stages`.
        limit_ms: the limit.
        how: ``n`` and ``seed`` of the drawing. All cases meet the same chances.

    Returns:
        A frame with ``case``, ``p50_ms``, ``p95_ms``, ``low_ms``, ``high_ms`` (interval of the P95),
        ``more_ms`` (of the P95, against the first case), ``over_percent`` (of the turns), ``origin``.

    Raises:
        CourseError: a case changes something that a turn does not have.
    """
    if not cases:
        raise CourseError('There is no case to compare. Give one or more, such as {"as it is": {}}.')
    known, start, rows = {field.name for field in fields(Turn)}, base or Turn(), []
    for name, change in cases.items():
        if unknown := set(change) - known:
            raise CourseError(
                f"{name}: a turn has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}."
            )
        found = verdict(simulate(replace(start, **change), llm=llm, **how), limit_ms=limit_ms)
        row = {"case": name, "p50_ms": found.p50.value, "p95_ms": found.p95.value, "low_ms": found.p95.low}
        rows.append(row | {"high_ms": found.p95.high, "over_percent": 100 * found.over.value})
    frame = pd.DataFrame(rows)
    frame.insert(5, "more_ms", frame["p95_ms"] - frame["p95_ms"].iloc[0])
    return frame.assign(origin="modelled")


LEVERS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "wait 100 ms for silence": {"stop_ms": 100.0},
    "wait 500 ms for silence": {"stop_ms": 500.0},
    "end-of-turn model after the STT": {"beside": False},
    "end-of-turn model of 12 ms": {"turn_model_ms": budget_stages.ms("turn.smart_blog")},
    "first sentence of 12 words": {"first_words": 12.0},
    "the same at 20 ms a token": {"first_words": 12.0, "ms_per_token": 20.0},
    "STT with rare spikes (ink-2)": {"stt": "Cartesia ink-2"},
    "slower STT (OpenAI)": {"stt": "OpenAI gpt-4o-transcribe"},
    "steadier TTS (Gradium)": {"tts": "Gradium"},
    "one building, no carrier": {"path": "one building (on-premise)"},
    "over the phone network": {"path": "phone network"},
    "a tool call": {"tool": True},
}
"""What the lesson tries: name to what is changed."""


def largest_llm_p95_ms(
    turn: Turn, *, limit_ms: float = budget.LIMIT_MS, llm: Stage | None = None, **how: int
) -> float:
    """How slow the language model's P95 may be while the P95 of the turn stays within the limit: the model's
    distribution is stretched as a whole, its shape kept. NaN if the rest alone breaks the limit.

    Raises:
        CourseError: as for :func:`simulate`.
    """
    model = (llm or budget_stages.stage("llm", turn.llm)).named(LLM)
    limit = checked_ms(limit_ms, "limit_ms")
    if limit > MOST_MS:
        raise CourseError(f"limit_ms={limit:g} is longer than an hour. Give the limit of one turn, in ms.")

    def p95(factor: float) -> float:
        return verdict(simulate(turn, llm=model.scaled(factor), **how), limit_ms=limit).p95.value

    if model.at(0.95) == 0:
        raise CourseError("This model takes no time at all, so it can be stretched without end.")
    if p95(0.0) > limit:
        return math.nan
    low, high = 0.0, 1.0
    while p95(high) <= limit:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if p95(middle) <= limit else (low, middle)
    return low * model.at(0.95)
