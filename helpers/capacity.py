"""How many live calls a GPU could carry that nobody here has: a phone line on a modelled server.

The same calls as in the real load (:mod:`helpers.workload`) are asked of a server in virtual time
(:mod:`helpers.scheduler`) whose steps take what :mod:`helpers.machine_model` says. Everything is modelled.

A modelled call differs from a real one in three ways, all on the safe side or said: each answer is as long as
the turn allows; words become tokens by a rule of thumb; nobody thinks, hangs up early or sends late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from types import MappingProxyType

import numpy as np
import pandas as pd

from helpers import arguments, published, scheduler
from helpers.machine_model import PARAMETERS, Machine, machine, mamba_block, parameter_table
from helpers.origins import validate
from helpers.scheduler import Ask, Simulation
from helpers.settings import CourseError
from helpers.workload import Call, Workload, load

__all__ = [
    "PARAMETERS",
    "Machine",
    "asks",
    "curve",
    "limit",
    "machine",
    "mamba_block",
    "parameter_table",
    "sensitivity",
    "simulate",
]

LIMIT_MS = published.value("card.ttfat_ceiling")
TOKENS_PER_WORD = published.value("assumption.tokens_per_word")
# Our assumptions, in tokens: what the template puts around a message, a call of a tool, and its result.
MESSAGE_TOKENS = 6
MARK_TOKENS = 4  # what makes the first words of a call its own, see Call.opening
TOOL_CALL_TOKENS = 24
TOOL_RESULT_TOKENS = 40
# Answers behind one P95. The clock is virtual, so they cost little; 5 % of them are 200 above the percentile.
REQUESTS = 4000
SHORTEST_CALLS = 2.0  # one call long to fill the lines, at least one more to measure
MOST_CALLS = 8192  # a search ends here, some tens of seconds long: more would be beyond any sense
MOST_REQUESTS = 200_000  # more would take minutes, and tell nothing more
SEATS = 128  # requests that run at once (max_num_seqs), unless something else is said


def asks(
    workload: Workload, call: Call, *, first: bool = False, system_tokens: int | None = None
) -> list[Ask]:
    """What one call asks of the server, with lengths in tokens.

    Args:
        workload: the kind of call.
        call: one of its calls.
        first: the system prompt is not in the cache yet.
        system_tokens: tokens of the system prompt; by default its words times the rule of thumb.

    Returns:
        One ask a request. A turn with a tool is two: the call of the tool, and the answer.
    """
    system = _tokens(call.system) if system_tokens is None else system_tokens
    held = system + MESSAGE_TOKENS
    known = 0 if first else held
    made, answer_s = [], 0.0
    for number, turn in enumerate(call.turns):
        held += _tokens(turn.user) + MESSAGE_TOKENS + (MARK_TOKENS if number == 0 else 0)
        pause = turn.think_s + turn.speak_s
        label = {"call": call.id, "turn": number}
        if turn.calls_tool:
            made.append(Ask(held, TOOL_CALL_TOKENS, known, answer_s, pause, **label))
            known = held + TOOL_CALL_TOKENS
            held = known + TOOL_RESULT_TOKENS + 2 * MESSAGE_TOKENS
            answer_s, pause = 0.0, turn.tool_s
        made.append(Ask(held, turn.max_tokens, known, answer_s, pause, tool=turn.calls_tool, **label))
        held += turn.max_tokens + MESSAGE_TOKENS
        known = held - MESSAGE_TOKENS
        words = turn.max_tokens / TOKENS_PER_WORD
        answer_s = 60 * words / workload.value("agent_words_per_minute")
    return made


def simulate(
    where: Machine,
    live_calls: int,
    *,
    workload: Workload | None = None,
    max_num_seqs: int = SEATS,
    max_num_batched_tokens: int = 8192,
    cache: int | float | None = None,
    system_tokens: int | None = None,
    pauses: bool = True,
    requests: int = REQUESTS,
    seed: int = 0,
) -> Simulation:
    """``live_calls`` lines, each with one call after another, on a modelled server.

    Args:
        where: the server's machine.
        live_calls: people on the phone at once.
        workload: the kind of call; the support call by default.
        max_num_seqs: requests that run at once.
        max_num_batched_tokens: tokens of a step.
        cache: see :meth:`helpers.machine_model.Machine.limits`.
        system_tokens: instead of the workload's own system prompt.
        pauses: False: nobody speaks, listens or thinks, so each line has a request in flight at all times
            and ``live_calls`` is the number of requests in flight.
        requests: measured answers to get, about.
        seed: of the calls and of when the lines begin.

    Returns:
        The simulation, see :func:`helpers.scheduler.run`; its ``requests`` have the further columns ``phase``
        (``warmup`` until every line is in its steady state) and ``live_calls``.

    Raises:
        CourseError: the machine, or an argument, makes no sense; or so many live calls that it would take
            minutes, and no GPU carries them.
    """
    live_calls = _checked(where, live_calls, workload, max_num_seqs, max_num_batched_tokens, requests)
    workload = workload or load()
    limits = where.limits(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, cache=cache
    )
    sample = [_asks(workload, number, seed, system_tokens, pauses) for number in range(20)]
    per_call = float(np.mean([len(call) for call in sample]))
    # How long a call takes, about. Without pauses all lines are in the server all the time.
    beside = 1 if pauses else min(live_calls, max_num_seqs)
    call_s = float(np.mean([sum(_about_s(where, ask, beside) for ask in call) for call in sample]))
    until_s = max(SHORTEST_CALLS * call_s, call_s * (1 + requests / per_call / live_calls))
    lines, number = [], 0
    for _ in range(live_calls):
        line: list[Ask] = []
        planned_s = 0.0
        while planned_s <= until_s:
            made = _asks(workload, number, seed, system_tokens, pauses)
            planned_s += sum(_about_s(where, ask, 1) for ask in made)
            line += made
            number += 1
        lines.append(line)
    chance = Random(f"starts {seed}")
    starts = [chance.uniform(0, call_s) for _ in lines]
    found = scheduler.run(lines, where.step_ms, limits, starts_s=starts, until_s=until_s)
    frame = found.requests
    frame["phase"] = np.where(frame["due_s"] < call_s, "warmup", "measured")
    frame["live_calls"] = float(live_calls)
    frame.attrs["window_s"] = until_s - call_s
    return found


def _checked(
    where: object, live_calls: object, workload: object, seats: object, tokens: object, requests: object
) -> int:
    """The number of live calls; raises a CourseError if it or another argument makes no sense."""
    if not isinstance(where, Machine):
        raise CourseError(f"where={where!r} is no machine. Give what capacity.machine('B200') returns.")
    if workload is not None and not isinstance(workload, Workload):
        raise CourseError(f"workload={workload!r} is no kind of call. Give what workload.load() returns.")
    arguments.number("max_num_seqs", seats, least=1, whole=True, example="128")
    arguments.number("max_num_batched_tokens", tokens, least=1, whole=True, example="8192")
    arguments.number("requests", requests, least=1, most=MOST_REQUESTS, whole=True, example=f"{REQUESTS}")
    return int(
        arguments.number(
            "live_calls",
            live_calls,
            least=1,
            most=MOST_CALLS,
            whole=True,
            example="128 (more than the most would take minutes, and the answer beyond any sense)",
        )
    )


def curve(
    where: Machine | None = None, live_calls: Iterable[int] = (8, 32, 64, 128, 256, 512), **how: object
) -> pd.DataFrame:
    """TTFAT against the number of live calls, on a modelled server.

    Args:
        where: the server's machine; one B200 in BF16, uncorrected, by default.
        live_calls: the levels.
        **how: as in :func:`simulate`.

    Returns:
        One row a level: ``live_calls``, ``ttfat_p50_ms``, ``ttfat_p95_ms``, ``requests`` and ``calls`` behind
        them, ``in_flight`` (mean), ``duty_cycle`` (share of a live call in which its request is in flight),
        ``queue_p95_ms``, ``tpot_p50_ms``, ``busy`` (share of the time in which a step runs), ``cached_share``
        (of the prompts' tokens), ``gpu``, ``format``, ``factor`` (of the machine's times), ``max_num_seqs``
        and ``origin`` (modelled).

    Raises:
        CourseError: there is no level, or as :func:`simulate`.
    """
    where = where or machine()
    levels = list(live_calls) if isinstance(live_calls, Iterable) else [live_calls]
    if not levels:
        raise CourseError("There is no level to simulate. Give some, such as live_calls=(8, 64, 512).")
    rows = []
    for level in levels:
        found = simulate(where, level, **how)
        about = {"gpu": where.gpu, "format": where.fmt, "factor": where.factor}
        rows.append(_row(found, level) | about | {"max_num_seqs": how.get("max_num_seqs", SEATS)})
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="capacity.curve")


def _row(found: Simulation, level: int) -> dict[str, float]:
    rows = found.requests[found.requests["phase"] == "measured"]
    in_flight = float(rows["e2e_ms"].sum()) / 1000 / found.requests.attrs["window_s"]
    return {
        "live_calls": level,
        "ttfat_p50_ms": float(rows["ttfat_ms"].quantile(0.5)),
        "ttfat_p95_ms": float(rows["ttfat_ms"].quantile(0.95)),
        "requests": len(rows),
        "calls": rows["call"].nunique(),
        "in_flight": in_flight,
        "duty_cycle": in_flight / level,
        "queue_p95_ms": float(rows["queue_ms"].quantile(0.95)),
        "tpot_p50_ms": float(rows["tpot_ms"].median()),
        "busy": found.busy_s / found.span_s,
        "cached_share": float(rows["cached_tokens"].sum() / rows["prompt_tokens"].sum()),
    }


def limit(
    where: Machine | None = None,
    *,
    limit_ms: float = LIMIT_MS,
    steps: float = 0.03,
    most: int = MOST_CALLS,
    **how: object,
) -> dict[str, float]:
    """The largest number of live calls whose P95 TTFAT stays under a limit, on a modelled server.

    Doubles until the limit is passed, then halves the gap until it is ``steps`` wide. Close to the edge the
    P95 of some thousand simulated answers moves with the seed: answers in live calls that differ by less than
    about 5 % do not differ, nor do answers in requests in flight that differ by less than about 10 %. (The
    search with statistics, for measurements, is :mod:`helpers.search`.)

    Args:
        where: the server's machine; one B200 in BF16, uncorrected, by default.
        limit_ms: 600 by default, as on the model's card.
        steps: how close the answer is, as a share of it.
        most: live calls; a machine that still holds there gets no more of them, so more are possible.
        **how: as in :func:`simulate`.

    Returns:
        The row of :func:`curve` at the answer, as a dict; with ``live_calls`` 0 if not even one call holds.

    Raises:
        CourseError: as :func:`simulate`.
    """
    where = where or machine()
    arguments.number("limit_ms", limit_ms, above=0, example="600")
    arguments.number("steps", steps, above=0, most=1, example="0.03")
    most = int(arguments.number("most", most, least=1, most=MOST_CALLS, whole=True, example="4096"))

    def row(level: int) -> dict[str, float]:
        return curve(where, [level], **how).iloc[0].to_dict()

    low, best, high = 0, {"live_calls": 0}, 8
    while high <= most and (found := row(high))["ttfat_p95_ms"] <= limit_ms:
        low, best, high = high, found, high * 2
    high = min(high, most + 1)
    while high - low > max(1, steps * low):
        middle = (low + high) // 2
        found = row(middle)
        if found["ttfat_p95_ms"] <= limit_ms:
            low, best = middle, found
        else:
            high = middle
    return best


def sensitivity(
    where: Machine | None = None,
    *,
    limit_ms: float = LIMIT_MS,
    prompts: Sequence[int] = (500, 1500, 4000, 8000),
    caches: Sequence[int | float | None] = (0, None, 0.5, 0.95),
    formats: Sequence[str] = ("BF16", "FP8", "NVFP4"),
    seats: Sequence[int] = (32, 64, 128, 512),
    own_factors: Mapping[str, float] = MappingProxyType({}),
    say: Callable[[str], None] | None = None,
    **how: object,
) -> pd.DataFrame:
    """How the largest number of live calls moves when one thing is changed and the rest stays.

    Args:
        where: the server's machine to begin with; one B200 in BF16, uncorrected, by default.
        limit_ms: the limit of P95 TTFAT.
        prompts: tokens of the system prompt.
        caches: prefix cache, see :meth:`helpers.machine_model.Machine.limits`.
        formats: of the weights.
        seats: values of ``max_num_seqs``.
        own_factors: for a format also a case with another factor than that of ``where``, such as its own.
        say: told each answer as it comes.
        **how: as in :func:`simulate`.

    Returns:
        One row a case: ``what`` is changed, to which ``value``, ``live_calls``, ``in_flight``,
        ``ttfat_p50_ms``, ``ttfat_p95_ms``, ``cached_share``, ``factor`` and ``max_num_seqs`` of this case,
        ``start`` (the case that all others differ from) and ``origin`` (modelled).
    """
    where = where or machine()
    cases: list[tuple[str, str, Machine, dict[str, object]]] = [("as it is", "", where, {})]
    cases += [("system prompt", f"{size:,} tokens", where, {"system_tokens": size}) for size in prompts]
    cases += [("prefix cache", _cache_words(where, cache), where, {"cache": cache}) for cache in caches]
    for fmt in formats:
        other = machine(where.gpu, fmt, gpus=where.gpus, **where.constants).slower(where.factor)
        cases.append(("format", fmt, other, {}))
        if fmt in own_factors:
            own = machine(where.gpu, fmt, gpus=where.gpus, **where.constants).slower(own_factors[fmt])
            cases.append(("format", f"{fmt}, own correction", own, {}))
    cases += [("max-num-seqs", f"{count}", where, {"max_num_seqs": count}) for count in seats]
    rows = []
    for what, value, place, changed in cases:
        found = limit(place, limit_ms=limit_ms, **how | changed)
        columns = ("live_calls", "in_flight", "ttfat_p50_ms", "ttfat_p95_ms", "cached_share")
        row = {"what": what, "value": value} | {name: found.get(name, np.nan) for name in columns}
        row |= {"factor": place.factor, "max_num_seqs": (how | changed).get("max_num_seqs", SEATS)}
        rows.append(row | {"start": not changed and place is where})
        if say:
            say(f"{what} {value}: {row['live_calls']:.0f} live calls")
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="capacity.sensitivity")


def _cache_words(where: Machine, cache: int | float | None) -> str:
    if cache is None:
        return f"blocks of {mamba_block(where.arch):,} tokens"
    if isinstance(cache, float):
        return f"{cache:.0%} of what is known"
    return f"blocks of {cache:,} tokens" if cache else "off"


@lru_cache(maxsize=8192)
def _asks(
    workload: Workload, number: int, seed: int, system_tokens: int | None, pauses: bool
) -> tuple[Ask, ...]:
    """What call ``number`` asks. Kept, because a search for the limit needs the same calls often."""
    call = workload.call(number, seed=seed)
    made = asks(workload, call, first=number == 0, system_tokens=system_tokens)
    return tuple(made if pauses else (replace(ask, listen_s=0.0, pause_s=0.0) for ask in made))


def _about_s(where: Machine, ask: Ask, beside: int) -> float:
    """Seconds of one ask among ``beside`` running ones, its pauses included."""
    each = where.step_ms(beside, ask.prompt_tokens // ask.output_tokens if beside > 1 else 0)
    work_ms = where.delay_ms + where.step_ms(0, ask.prompt_tokens) + ask.output_tokens * each
    return ask.listen_s + ask.pause_s + work_ms / 1000


def _tokens(text: str) -> int:
    """Tokens of a text by the rule of thumb (``assumption.tokens_per_word`` in ``data/published.csv``)."""
    return max(1, round(len(text.split()) * TOKENS_PER_WORD))
