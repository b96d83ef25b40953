"""Callers for a server: N live calls, or calls that arrive by themselves. Small enough to read.

:func:`run` makes load and returns what came of it. Two kinds of load, and the unit is always said:

* ``live_calls=8`` (closed): eight lines, each with somebody on the phone; when a call ends, the line takes
  the next one. These are *calls*, not requests in flight: mostly a caller speaks, listens or thinks.
* ``calls_per_minute=20`` (open): calls arrive at random (a Poisson process), whether the server keeps up or
  not. Within a call the caller still waits for the answer.

A caller (:func:`take_call`) thinks, speaks, and then the request is *due*; gets the real answer, which
becomes part of the conversation; listens for as long as the agent's voice needs for it; and so on. If this
client is late, the request counts from when it was due (``due_to_ttfat_ms``; ``wait_ms`` is the lateness
alone). Leaving that out is called coordinated omission.

What goes wrong ends up in the table: a request that fails has an ``error`` and its caller hangs up; one that
is still unanswered when the run ends is waited for (:data:`DRAIN_S`) and then marked ``cut``, because leaving
out the slow ones would make the server look fast. Nothing is sent twice, a refusal (429) neither: nobody on
the phone waits for ``Retry-After``. The stop button and Ctrl-C keep what was measured.

The callers' words are in :mod:`helpers.workload`, the clock and the sending in :mod:`helpers.load_loop`, the
table and its files in :mod:`helpers.load_run`, and what follows from a table in :mod:`helpers.calls`.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from contextlib import suppress
from numbers import Real
from random import Random

from helpers import arguments, streaming, watch
from helpers.load_loop import DRAIN_S, HungUp, Load, Over, Say, clock, conduct, kept, ns, one_line, safely
from helpers.load_run import (
    Asked,
    LoadRun,
    compare,
    doubt,
    lag_table,
    late,
    load,
    names,
    table,
)
from helpers.prompts import ORDER_TOOL
from helpers.settings import CourseError, Server
from helpers.streaming import Message
from helpers.workload import Call, Workload

__all__ = ["LoadRun", "arrivals_s", "compare", "load", "names", "run", "take_call"]

MOST_LINES = 10_000  # of one client: at a request in 5 s each, more than one process can send
TIMEOUT_S = 30.0  # nobody stays on a silent line for longer
REDIAL_S = 1.0  # a caller whose request failed hangs up; the line's next call; doubles up to MOST_REDIAL_S
MOST_REDIAL_S = 8.0
TOOL_TOKENS = 40  # a call of the tool, complete


# --- the callers ------------------------------------------------------------------------------------------


async def take_call(load: Load, call: Call, began_ns: int) -> None:
    """One call, from hello to goodbye."""
    messages: list[Message] = [{"role": "system", "content": call.system}]
    quiet_ns = began_ns  # since when nobody speaks: the call begins, or the agent's last word
    for number, turn in enumerate(call.turns):
        words = turn.user if number else call.opening(load.mark)
        messages.append({"role": "user", "content": words})
        due_ns = quiet_ns + ns(turn.think_s + turn.speak_s)
        asked = Asked(call.id, number, 0, turn.calls_tool, due_ns, began_ns)
        reply = await load.ask(asked, messages, TOOL_TOKENS if turn.calls_tool else turn.max_tokens)
        if turn.calls_tool and reply.tool_call:
            messages += _looked_up(reply.tool_call)  # the shop's system answers after tool_s
            asked = Asked(call.id, number, 1, False, asked.ended_ns + ns(turn.tool_s), began_ns)
            reply = await load.ask(asked, messages, turn.max_tokens)
        messages.append({"role": "assistant", "content": reply.answer})
        quiet_ns = asked.heard_ns = asked.listened(reply, load.workload.listen_s(reply.answer))
    await load.until(quiet_ns)
    load.goodbye()


async def _line(load: Load, calls: Iterator[Call], first_ns: int, burst: bool) -> None:
    """Closed: one line, one call after another."""
    began_ns, redial_s = first_ns, REDIAL_S
    await load.until(began_ns)
    for call in calls:
        call, burst = (call.at_once() if burst else call), False
        try:
            await take_call(load, call, began_ns)
            redial_s = REDIAL_S
        except HungUp:
            await load.until(clock() + ns(redial_s))
            redial_s = min(2 * redial_s, MOST_REDIAL_S)
        began_ns = clock()


def arrivals_s(calls_per_minute: float, *, seed: int = 0) -> Iterator[float]:
    """When calls begin, in seconds: a Poisson process, so the gaps are exponential and nobody knows of the
    others. Without end; the same for the same seed."""
    chance, at_s = Random(f"arrivals {seed}"), 0.0
    while True:
        at_s += chance.expovariate(calls_per_minute / 60)
        yield at_s


async def _arrivals(load: Load, calls: Iterator[Call], begin_s: Iterator[float]) -> None:
    """Open: a call begins whenever somebody dials."""
    async with asyncio.TaskGroup() as live:
        for call, at_s in zip(calls, begin_s, strict=False):
            began_ns = load.start_ns + ns(at_s)
            try:
                await load.until(began_ns)
            except Over:
                break
            live.create_task(kept(load, take_call(load, call, began_ns)))


def _looked_up(tool_call: str) -> list[Message]:
    """The call of the tool as the model made it, and what the shop's system says to it."""
    name = ORDER_TOOL["function"]["name"]
    try:
        order = json.loads(tool_call.removeprefix(name))["order"]
    except (ValueError, TypeError, KeyError):
        order = "0000"  # half a call; what comes back is as long
    function = {"name": name, "arguments": json.dumps({"order": order})}
    result = {"order": order, "status": "sent on Tuesday, arrives on Friday"}
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call-1", "content": json.dumps(result)},
    ]


# --- the run ----------------------------------------------------------------------------------------------


def check_lines(live_calls: int) -> None:
    """Raises a CourseError if this is no number of lines."""
    if not isinstance(live_calls, Real) or isinstance(live_calls, bool) or live_calls != live_calls // 1:
        raise CourseError(f"live_calls={live_calls!r} is no number of lines. Give a whole number, such as 8.")
    if not live_calls > 0:
        raise CourseError(f"live_calls={live_calls} would measure nothing. Give a number above 0.")
    if live_calls > MOST_LINES:
        raise CourseError(
            f"live_calls={live_calls:,} are more than one client can be: {MOST_LINES:,} at most, and it is "
            "late long before that. Send from several machines, a part of them from each."
        )


def _check(
    server: object, workload: object, needed: dict[str, object], counts: dict[str, object], warmup_s: object
) -> None:
    """Raise a CourseError that says which argument of :func:`run` makes no load."""
    if not isinstance(server, Server):
        raise CourseError(f"server={server!r} is no server. Give what engine.connect() returns.")
    if not isinstance(workload, Workload):
        raise CourseError(f"workload={workload!r} is no kind of call. Give what workload.load() returns.")
    for name, value in needed.items():
        arguments.number(name, value, above=0, example="12")
    arguments.number("warmup_s", warmup_s, least=0, example="5 (seconds)")
    for name, value in counts.items():
        if value is not None:
            arguments.number(name, value, least=1, whole=True, example="100, or None for no end of this kind")


def run(
    server: Server,
    workload: Workload,
    *,
    live_calls: int | None = None,
    calls_per_minute: float | None = None,
    seconds: float,
    warmup_s: float = 10.0,
    max_requests: int | None = None,
    max_calls: int | None = None,
    max_in_flight: int | None = None,
    seed: int = 0,
    burst: bool = False,
    thinking: bool = False,
    timeout_s: float = TIMEOUT_S,
    say: Say | None = None,
) -> LoadRun:
    """Make load, and return every request of it. Give ``live_calls`` or ``calls_per_minute``.

    Args:
        server: where to.
        workload: the kind of call, from :func:`helpers.workload.load`.
        live_calls: closed: so many lines with somebody on each.
        calls_per_minute: open: so many calls begin in a minute on average, at random.
        seconds: how long to measure, after the warm-up. Answers in flight at the end are waited for, at most
            :data:`DRAIN_S` more.
        warmup_s: seconds before that. The calls begin spread over its first half. Requests due in it are
            in the table, as ``phase`` ``warmup``: leave them out of your numbers.
        max_requests: measured requests after which to end.
        max_calls: calls after which to end: so many have said goodbye since the warm-up. The lines stay
            full until then.
        max_in_flight: at most so many requests at a time, as many tools cap them; the others wait in this
            client, which their ``wait_ms`` shows. To see what a cap hides; None for no cap.
        seed: which callers.
        burst: all first requests at the same moment, to see what that does. With ``warmup_s=0``.
        thinking: let the model think first.
        timeout_s: seconds for one request; a caller hangs up then.
        say: called with one line of progress about twice a second; by default it is printed, one line that is
            rewritten. ``lambda line: None`` is silent.

    Raises:
        CourseError: the arguments make no load; it says which, and why. Nothing that the server does raises.
    """
    if (live_calls is None) == (calls_per_minute is None):
        raise CourseError("Give live_calls=8 (lines) or calls_per_minute=20 (arrivals), one of the two.")
    if live_calls is not None:
        check_lines(live_calls)
    needed = {"seconds": seconds, "timeout_s": timeout_s}
    needed |= {} if calls_per_minute is None else {"calls_per_minute": calls_per_minute}
    counts = {"max_requests": max_requests, "max_calls": max_calls, "max_in_flight": max_in_flight}
    _check(server, workload, needed, counts, warmup_s)
    load = Load(server, workload, warmup_s, max_requests, max_calls, max_in_flight, timeout_s, thinking)
    calls, chance = workload.stream(seed=seed), Random(f"starts {seed}")

    async def callers() -> None:
        if live_calls is None:
            return await _arrivals(load, calls, arrivals_s(calls_per_minute or 0, seed=seed))
        apart_ns = 0 if burst else ns(warmup_s / 2 / live_calls)
        starts = [load.start_ns + round(apart_ns * (line + chance.random())) for line in range(live_calls)]
        await asyncio.gather(*(kept(load, _line(load, calls, at_ns, burst)) for at_ns in starts))

    about = {
        "workload": workload.name,
        "what": workload.sentence(),
        "parameters": {parameter.name: parameter.value for parameter in workload.parameters},
        "live_calls": live_calls,
        "calls_per_minute": calls_per_minute,
        "seconds": seconds,
        "warmup_s": warmup_s,
        "max_requests": max_requests,
        "max_calls": max_calls,
        "max_in_flight": max_in_flight,
        "seed": seed,
        "burst": burst,
        "thinking": thinking,
        "timeout_s": timeout_s,
        "drain_s": DRAIN_S,
        "begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    tell = safely(say or one_line())
    with suppress(KeyboardInterrupt), streaming.no_garbage_pauses():  # the stop button: keep what there is
        streaming._run(lambda: conduct(load, callers, warmup_s + seconds, tell))
    requests = table(
        load.asked,
        start_ns=load.start_ns,
        server=server,
        mark=load.mark,
        warmup_s=warmup_s,
        live_calls=live_calls,
        calls_per_minute=calls_per_minute,
    )
    lag = lag_table(load.lag)
    pages = watch.table(load.pages, server)
    level = requests[["live_calls", "calls_per_minute"]].head(1).to_dict("records") or [{}]
    pages = pages.assign(run=load.mark, **level[0])
    why_not = doubt(requests, lag, server, capped=max_in_flight is not None)
    return LoadRun(
        requests=requests,
        lag=lag,
        pages=pages,
        about=about | {"mark": load.mark, "lag_ms": late(lag)},
        trusted=not why_not,
        why_not=why_not,
        ended=load.ended,
        server=server,
    )
