"""What runs under the callers of :mod:`helpers.load`: the clock, the sending, the stop sign, the end.

A :class:`Load` is one run while it runs. Callers wait with :meth:`Load.until` and ask with :meth:`Load.ask`;
:func:`conduct` starts them, ends the run, and waits for the last answers. Nothing that a server does raises
here: a request that fails is kept with its error, and what would have no end is ended.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from helpers import latency, streaming, watch
from helpers.load_run import Asked
from helpers.prompts import ORDER_TOOL
from helpers.settings import Server
from helpers.streaming import Message, Timeline
from helpers.workload import Workload

DRAIN_S = 10.0  # how long the last answers are waited for: far beyond any limit worth asking about
GIVE_UP = 20  # so many failures in a row, and the run ends
TICK_S = 0.02  # how often the client looks whether it is late itself

clock = time.perf_counter_ns
Say = Callable[[str], None]


class Over(Exception):
    """The run has ended: no further request."""


class HungUp(Exception):
    """A request failed, and the caller hangs up."""


def ns(seconds: float) -> int:
    """Seconds in nanoseconds, the unit of the clock."""
    return round(seconds * 1e9)


@dataclass
class Load:
    """One run while it runs: its settings, its clock, its stop sign, and every request so far (``asked``)."""

    server: Server
    workload: Workload
    warmup_s: float
    max_requests: int | None
    max_calls: int | None
    max_in_flight: int | None
    timeout_s: float
    thinking: bool
    mark: str = field(default_factory=lambda: secrets.token_hex(3))
    asked: list[Asked] = field(default_factory=list)
    lag: list[tuple[float, float]] = field(default_factory=list)
    pages: list[watch.Sample] = field(default_factory=list)
    answered_ms: list[float] = field(default_factory=list)
    receiving: dict[asyncio.Task[Any] | None, streaming.Received] = field(default_factory=dict)
    ended: str = "stopped by you"  # until somebody gives a better reason
    start_ns: int = 0
    live: int = 0
    measured: int = 0
    calls_over: int = 0
    failed: int = 0
    failed_in_a_row: int = 0

    def prepare(self) -> None:
        """What belongs to the event loop that runs now."""
        self.stop, self.turn, self.session = asyncio.Event(), asyncio.Lock(), streaming.new_session()
        self.places = asyncio.Semaphore(self.max_in_flight or sys.maxsize)
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._begins)
        trace.freeze()
        self.session.trace_configs.append(trace)
        self.start_ns = clock()

    async def _begins(self, session: aiohttp.ClientSession, context: Any, _: Any) -> None:
        """Keep at hand what a request receives, so that it is not lost if the request is cut."""
        self.receiving[asyncio.current_task()] = context.trace_request_ctx

    def since_start_s(self) -> float:
        """Seconds that the run has run."""
        return (clock() - self.start_ns) / 1e9

    async def until(self, at_ns: int) -> None:
        """Wait for a moment; raise if the run ends before."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), max(0.0, (at_ns - clock()) / 1e9))
        if self.stop.is_set():
            raise Over

    async def ask(self, asked: Asked, messages: list[Message], max_tokens: int) -> latency.Latency:
        """Send one request when it is due, keep what came, and raise if the caller has to hang up."""
        await self.until(asked.due_ns)
        # Every request of a real agent has its tools, used or not: they are part of the prompt.
        tools = {"tools": [ORDER_TOOL], "tool_choice": "required" if asked.tool else "none"}
        tools = tools if self.workload.value("tool_share") else {}
        request = streaming.chat_request(messages, max_tokens=max_tokens, thinking=self.thinking, **tools)
        self._count(asked)
        sending = None
        try:
            async with self.places:
                async with self.turn:  # one at a time onto the wire, as in streaming.ask_many
                    asked.sent_ns, written = clock(), asyncio.Event()
                    sending = asyncio.create_task(
                        streaming.receive(
                            self.server,
                            request,
                            session=self.session,
                            timeout_s=self.timeout_s,
                            due_ns=asked.due_ns,
                            written=written,
                        )
                    )
                    with suppress(TimeoutError):
                        await asyncio.wait_for(written.wait(), streaming.TURN_S)
                received = await sending
        except asyncio.CancelledError:
            self._cut(asked, sending)
            raise
        self.receiving.pop(sending, None)
        asked.timeline = streaming.finish(received)
        asked.sent_ns, asked.ended_ns = asked.timeline.sent_ns, asked.timeline.ended_ns
        found = latency.measure(asked.timeline)
        if found.ttfat_ms is not None:
            self.answered_ms.append(found.wait_ms + found.ttfat_ms)
        if found.error:
            await self._failed(asked.timeline)
            raise HungUp
        self.failed_in_a_row = 0
        return found

    def end(self, why: str) -> None:
        """No further request from now on. The first reason counts."""
        if not self.stop.is_set():
            self.ended = why
            self.stop.set()

    def goodbye(self) -> None:
        """A call is over."""
        self.calls_over += self.since_start_s() >= self.warmup_s
        if self.max_calls and self.calls_over >= self.max_calls:
            self.end("done")

    def _count(self, asked: Asked) -> None:
        self.asked.append(asked)
        self.measured += (asked.due_ns - self.start_ns) / 1e9 >= self.warmup_s
        if self.max_requests and self.measured >= self.max_requests:
            self.end("requests")

    def _cut(self, asked: Asked, sending: asyncio.Task[streaming.Received] | None) -> None:
        """A request that has no time left: keep what had come."""
        asked.cut, asked.ended_ns = True, clock()
        if sending is not None:
            sending.cancel()
            if received := self.receiving.get(sending):
                received.ended_ns, received.failure = asked.ended_ns, TimeoutError()
                asked.timeline = streaming.finish(received)

    async def _failed(self, timeline: Timeline) -> None:
        self.failed += 1
        self.failed_in_a_row += 1
        if self.stop.is_set():
            return
        said = timeline.error.message.partition(". ")[0] if timeline.error else ""
        if self.failed_in_a_row >= GIVE_UP:
            self.end(f"server gone: the last {self.failed_in_a_row} requests failed. {said}")
        elif timeline.status is None and not await self._reachable():
            self.end(f"server gone: nothing listens at its address any more. {said}")

    async def _reachable(self) -> bool:
        """Whether something still listens there: a server that is only busy does."""
        address = urlsplit(self.server.base_url)
        port = address.port or (443 if address.scheme == "https" else 80)
        for _ in range(3):
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(address.hostname, port), 2)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.3)
            else:
                writer.close()
                return True
        return False


async def kept(load: Load, caller: Coroutine[Any, Any, None]) -> None:
    """A caller, whatever becomes of it."""
    load.live += 1
    try:
        with suppress(HungUp, Over):
            await caller
    except Exception as fault:
        load.end(f"stopped by a fault of the load maker: {fault!r}")
    finally:
        load.live -= 1


async def conduct(
    load: Load, callers: Callable[[], Coroutine[Any, Any, None]], seconds: float, say: Say
) -> None:
    """Start the callers, wait for the end, wait for the last answers, cut what is left."""
    load.prepare()
    calling = asyncio.create_task(callers())
    stopping = asyncio.create_task(load.stop.wait())
    beside = [
        asyncio.create_task(_tick(load, seconds, say)),
        asyncio.create_task(watch.sample(load.server, load.start_ns, load.pages)),
    ]
    try:
        await asyncio.wait({calling, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        load.end("time")
        gone = load.ended.startswith("server gone")
        await asyncio.wait({calling}, timeout=0.5 if gone else DRAIN_S)
    except asyncio.CancelledError:
        load.end("stopped by you")
    for task in (calling, stopping, *beside):
        task.cancel()  # what is in flight ends here, and keeps what had come
    await asyncio.gather(calling, stopping, *beside, return_exceptions=True)
    await load.session.close()
    count = f"{len(load.asked)} requests in {load.since_start_s():.0f} s"
    say(f"{count}, {load.failed} without a whole answer. Ended: {load.ended}\n")


async def _tick(load: Load, seconds: float, say: Say) -> None:
    """Note how late this client is itself, and tell how far it is. A tick that was missed because of the
    tick before counts too: a pause of 200 ms weighs ten ticks, not one."""
    due_ns, number = clock(), 0
    while True:
        due_ns, number = due_ns + ns(TICK_S), number + 1
        await asyncio.sleep(max(0.0, (due_ns - clock()) / 1e9))
        load.lag.append(((due_ns - load.start_ns) / 1e9, (clock() - due_ns) / 1e6))
        if number % 25 == 0:
            say(_progress(load, seconds))


def _progress(load: Load, seconds: float) -> str:
    times = sorted(load.answered_ms)
    seen = "no answer yet"
    if times:
        middle, tail = (times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
        seen = f"TTFAT so far P50 {middle:.0f}, P95 {tail:.0f} ms"
    late_ms = max((ms for _, ms in load.lag[-50:]), default=0)
    return (
        f"{load.since_start_s():5.1f} of {seconds:.0f} s · {load.live} live calls · {len(load.asked)} "
        f"requests, {load.failed} failed · {seen} · client late by {late_ms:.0f} ms"
    )


def one_line() -> Callable[[str], None]:
    """Progress as one line that is rewritten in place; where nothing can be rewritten, only the last."""
    rewrites = sys.stdout.isatty() or "ipykernel" in sys.modules
    width = 0

    def say(line: str) -> None:
        nonlocal width
        last = line.endswith("\n")
        if rewrites:
            print("\r" + line.rstrip("\n").ljust(width), end="\n" if last else "", flush=True)
        elif last:
            print(line, end="", flush=True)
        width = 0 if last else len(line)

    return say


def safely(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same, but one that fails, a closed screen for instance, ends no measurement."""

    def tell(line: str) -> None:
        with suppress(Exception):
            say(line)

    return tell
