"""A server in virtual time: continuous batching on a clock that only counts.

What it does is what vLLM's scheduler does, and no more than TTFT needs. In each step every running request
gets one more token; what is left of the step's token budget goes to prompts, first come first served, in
chunks; a request is let in while there is a seat (``max_num_seqs``) and memory for it. How long a step takes
is asked of a function (:class:`helpers.capacity.Machine` gives one).

Not here: preemption, eviction from the prefix cache, speculative decoding, more than one server. A request
takes its seat with the memory of its whole length, so none is ever thrown out.

Between two events (an arrival, the end of an answer) all decode steps are alike and are taken in one go,
each with the mean length of the batch: that is what makes an hour of load take a second. The same asks
give the same table.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pandas as pd

from helpers.origins import validate
from helpers.settings import CourseError

# decoding requests, prompt tokens in this step, tokens that the decoding requests hold together -> ms
StepMs = Callable[[int, int, float], float]


@dataclass(frozen=True)
class Ask:
    """One request that a line (one caller, or one slot of a benchmark) makes after the one before.

    Attributes:
        prompt_tokens: whole prompt, history included.
        output_tokens: tokens of the answer, at least 1.
        known_tokens: how many of the prompt's first tokens the server has seen in an earlier request.
        listen_s: seconds from the previous answer's first token during which the line cannot ask; the end of
            that answer is waited for in any case.
        pause_s: seconds after that: thinking and speaking. The request is due then.
        call: label of the call.
        turn: number of the turn in its call, from 0.
        tool: the request of this turn that brings back a tool's result.
    """

    prompt_tokens: int
    output_tokens: int
    known_tokens: int = 0
    listen_s: float = 0.0
    pause_s: float = 0.0
    call: str = ""
    turn: int = 0
    tool: bool = False


@dataclass(frozen=True)
class Limits:
    """What the engine is started with.

    Attributes:
        max_num_seqs: requests that run at once; the others wait.
        max_num_batched_tokens: tokens of one step, of prompts and answers together.
        room_tokens: tokens of all running requests for which there is memory, each request counted with
            ``request_tokens`` more (its Mamba state, in tokens of KV cache).
        request_tokens: see above.
        delay_ms: added to each request before the scheduler sees it; takes no seat and no GPU time.
        cache_block: the prefix cache hands out whole blocks of so many tokens; None: no prefix cache.
        cache_share: instead of blocks: this share of the known tokens is a hit, from 0 to 1.
    """

    max_num_seqs: int = 128
    max_num_batched_tokens: int = 8192
    room_tokens: float = math.inf
    request_tokens: float = 0.0
    delay_ms: float = 0.0
    cache_block: int | None = None
    cache_share: float | None = None

    def cached(self, ask: Ask) -> int:
        """Tokens of a prompt that the prefix cache spares; at least one is always computed."""
        known = min(ask.known_tokens, ask.prompt_tokens - 1)
        if self.cache_share is not None:
            return int(known * self.cache_share)
        return known // self.cache_block * self.cache_block if self.cache_block else 0


@dataclass
class _Running:
    line: int
    ask: Ask
    due_s: float
    cached: int
    left: int
    order: int
    admitted_s: float = math.nan
    first_s: float = math.nan
    ended_s: float = math.nan

    @property
    def whole(self) -> int:
        return self.ask.prompt_tokens + self.ask.output_tokens


@dataclass
class Simulation:
    """What came out.

    Attributes:
        requests: a row a request that ended, see :func:`run`.
        steps: how many steps the engine took.
        busy_s: how long it was at work.
        span_s: when the last request ended.
    """

    requests: pd.DataFrame
    steps: int = 0
    busy_s: float = 0.0
    span_s: float = 0.0


@dataclass
class _State:
    now: float = 0.0
    counter: int = 0  # decode steps so far: a request that has n tokens to go ends at counter + n
    context: float = 0.0  # tokens that the decoding requests hold
    held: float = 0.0  # tokens for which memory is taken
    steps: int = 0
    busy_s: float = 0.0
    arrivals: list[tuple[float, int, _Running]] = field(default_factory=list)
    waiting: deque[_Running] = field(default_factory=deque)
    filling: deque[_Running] = field(default_factory=deque)
    decoding: list[tuple[int, int, _Running]] = field(default_factory=list)


def run(
    lines: Sequence[Sequence[Ask]],
    step_ms: StepMs,
    limits: Limits | None = None,
    *,
    starts_s: Sequence[float] | None = None,
    until_s: float = math.inf,
) -> Simulation:
    """Let lines ask a simulated server, each its next request after the answer to the one before.

    Args:
        lines: what each line asks, in order.
        step_ms: how long a step takes.
        limits: of the engine.
        starts_s: when each line begins (its first ask's ``pause_s`` comes on top); by default all at 0.
        until_s: no request is made that would be due after this. Those made before are served to their end,
            so the slow ones are in the table too.

    Returns:
        The simulation. Its ``requests`` have the columns ``line``, ``call``, ``turn``, ``tool``,
        ``prompt_tokens``, ``cached_tokens``, ``completion_tokens``, ``due_s``, ``sent_s``,
        ``first_answer_s``, ``ended_s`` (seconds of the virtual clock), ``queue_ms`` (until the scheduler let
        it in, without the delay), ``ttft_ms``, ``ttfat_ms`` (the same: nothing thinks here),
        ``due_to_ttfat_ms`` (the same again: nothing sends late), ``tpot_ms`` (NaN for one token), ``e2e_ms``,
        ``error`` (None always) and ``origin`` (modelled), ordered by ``due_s``.

    Raises:
        CourseError: an ask or a limit makes no sense, or a request is larger than the memory.
    """
    limits = limits or Limits()
    _check(lines, limits)
    starts = list(starts_s) if starts_s is not None else [0.0] * len(lines)
    if len(starts) != len(lines):
        raise CourseError(f"starts_s has {len(starts)} values for {len(lines)} lines. Give one for each.")
    state = _State()
    iterators = [iter(line) for line in lines]
    done: list[_Running] = []
    order = 0

    def send(line: int, ready_s: float, previous: _Running | None) -> None:
        nonlocal order
        ask = next(iterators[line], None)
        if ask is None:
            return
        heard = ready_s if previous is None else max(ready_s, previous.first_s + ask.listen_s)
        due = heard + ask.pause_s
        if due > until_s:
            return
        cached = limits.cached(ask)
        request = _Running(line, ask, due, cached, ask.prompt_tokens - cached, order)
        heapq.heappush(state.arrivals, (due + limits.delay_ms / 1000, order, request))
        order += 1

    def end(request: _Running) -> None:
        request.ended_s = state.now
        state.held -= request.whole + limits.request_tokens
        done.append(request)
        send(request.line, state.now, request)

    for line, start in enumerate(starts):
        send(line, start, None)
    while state.arrivals or state.waiting or state.filling or state.decoding:
        if not (state.waiting or state.filling or state.decoding):
            state.now = max(state.now, state.arrivals[0][0])
        _admit(state, limits)
        if state.filling:
            _mixed_step(state, step_ms, limits, end)
        else:
            _decode_steps(state, step_ms, end)
    return Simulation(_table(done, limits), state.steps, state.busy_s, state.now)


def _check(lines: Sequence[Sequence[Ask]], limits: Limits) -> None:
    if limits.max_num_seqs < 1 or limits.max_num_batched_tokens <= limits.max_num_seqs:
        raise CourseError(
            f"max_num_seqs ({limits.max_num_seqs}) has to be 1 or more and max_num_batched_tokens "
            f"({limits.max_num_batched_tokens}) above it: each running request needs a token in each step."
        )
    for line in lines:
        for ask in line:
            if ask.prompt_tokens < 1 or ask.output_tokens < 1:
                raise CourseError(f"A request has at least one token in and one out: {ask}.")
            if ask.prompt_tokens + ask.output_tokens + limits.request_tokens > limits.room_tokens:
                raise CourseError(
                    f"A request of {ask.prompt_tokens + ask.output_tokens:,} tokens does not fit beside the "
                    f"weights. Take a shorter one, a smaller format or a larger GPU."
                )


def _admit(state: _State, limits: Limits) -> None:
    while state.arrivals and state.arrivals[0][0] <= state.now:
        state.waiting.append(heapq.heappop(state.arrivals)[2])
    while state.waiting and len(state.filling) + len(state.decoding) < limits.max_num_seqs:
        need = state.waiting[0].whole + limits.request_tokens
        if state.held + need > limits.room_tokens:
            break
        request = state.waiting.popleft()
        request.admitted_s = state.now
        state.held += need
        state.filling.append(request)


def _mixed_step(state: _State, step_ms: StepMs, limits: Limits, end: Callable[[_Running], None]) -> None:
    """One step in which prompts are read beside the running answers."""
    decodes = len(state.decoding)
    budget = limits.max_num_batched_tokens - decodes
    read, complete = 0, []
    for request in state.filling:
        chunk = min(request.left, budget - read)
        request.left -= chunk
        read += chunk
        if request.left == 0:
            complete.append(request)
        if read == budget:
            break
    _advance(state, step_ms(decodes, read, state.context), 1)
    ended = _ended(state)
    for request in complete:
        state.filling.popleft()  # they are the first ones: prompts are read in order
        request.first_s = state.now
        if request.ask.output_tokens == 1:
            ended.append(request)
            continue
        state.context += request.ask.prompt_tokens + 1
        last = state.counter + request.ask.output_tokens - 1
        heapq.heappush(state.decoding, (last, request.order, request))
    for request in ended:
        end(request)


def _decode_steps(state: _State, step_ms: StepMs, end: Callable[[_Running], None]) -> None:
    """All steps up to the next end of an answer, or to the first step after the next arrival."""
    if not state.decoding:
        return
    decodes = len(state.decoding)
    count = state.decoding[0][0] - state.counter

    def one(count: int) -> float:
        return step_ms(decodes, 0, state.context + decodes * (count - 1) / 2)

    if state.arrivals:
        until_ms = 1000 * (state.arrivals[0][0] - state.now)
        if count * one(count) > until_ms:
            count = min(count, max(1, math.ceil(until_ms / one(1))))
    _advance(state, one(count), count)
    for request in _ended(state):
        end(request)


def _advance(state: _State, ms: float, count: int) -> None:
    state.now += ms * count / 1000
    state.busy_s += ms * count / 1000
    state.steps += count
    state.counter += count
    state.context += len(state.decoding) * count


def _ended(state: _State) -> list[_Running]:
    ended = []
    while state.decoding and state.decoding[0][0] <= state.counter:
        request = heapq.heappop(state.decoding)[2]
        state.context -= request.whole
        ended.append(request)
    return ended


def _table(done: list[_Running], limits: Limits) -> pd.DataFrame:
    rows = [
        {
            "line": request.line,
            "call": request.ask.call,
            "turn": request.ask.turn,
            "tool": request.ask.tool,
            "prompt_tokens": float(request.ask.prompt_tokens),
            "cached_tokens": float(request.cached),
            "completion_tokens": float(request.ask.output_tokens),
            "due_s": request.due_s,
            "sent_s": request.due_s,
            "first_answer_s": request.first_s,
            "ended_s": request.ended_s,
            "queue_ms": 1000 * (request.admitted_s - request.due_s) - limits.delay_ms,
        }
        for request in sorted(done, key=lambda request: (request.due_s, request.order))
    ]
    columns = ["line", "call", "turn", "tool", "prompt_tokens", "cached_tokens", "completion_tokens"]
    columns += ["due_s", "sent_s", "first_answer_s", "ended_s", "queue_ms"]
    frame = pd.DataFrame(rows, columns=columns)
    times = ["due_s", "sent_s", "first_answer_s", "ended_s", "queue_ms"]
    frame[times] = frame[times].astype(float)
    frame["ttft_ms"] = 1000 * (frame["first_answer_s"] - frame["sent_s"])
    frame["ttfat_ms"] = frame["ttft_ms"]
    frame["due_to_ttfat_ms"] = frame["ttft_ms"]
    after = frame["completion_tokens"].astype(float) - 1
    frame["tpot_ms"] = 1000 * (frame["ended_s"] - frame["first_answer_s"]) / after.where(after > 0)
    frame["e2e_ms"] = 1000 * (frame["ended_s"] - frame["sent_s"])
    frame["error"] = None
    return validate(frame.assign(origin="modelled"), used_by="scheduler.run")
