"""One request becomes one timeline: what arrived, and when.

A server that streams sends its answer in pieces, as server-sent events (SSE). This module sends a request,
notes the time at which each piece of bytes arrives, and keeps the pieces raw. What the pieces mean (which of
them is the first token?) is decided later, by :mod:`helpers.latency`, so a definition can change without
measuring again.

How the time is taken:

* The clock is ``time.perf_counter_ns``: monotonic, so that a correction of the wall clock in mid-stream
  cannot bend a number. Only differences between its values mean anything.
* It starts (``sent_ns``) immediately before the request is handed to the HTTP client, as in NVIDIA's aiperf.
  Opening the connection is inside the measurement, because a caller waits for it too; ``connect_ns`` says how
  much that was. The body is turned into JSON before the clock starts.
* Bytes are stamped when the event loop hands them over, and parsed after the stream has ended (in
  :func:`ask_many`, after all have), so that parsing does not delay a stamp. Events that come in one read
  share its time; an event split over several reads gets the time of the read that completed it.
* Compression is declined and proxies of the environment are not used: both may hold pieces back.

Use :func:`ask` for one request and :func:`ask_many` for several at a time; both are ordinary functions and
work in a script and in Jupyter. :func:`stream` is the same for code that is asynchronous itself. What a
server gets wrong does not raise: it ends in ``Timeline.error`` (worded by :mod:`helpers.stream_errors`), and
what had arrived by then is kept.

To see every finished timeline, for example to record a run, append a function to :data:`on_timeline`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
import warnings
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

import aiohttp

from helpers.extras import accepted
from helpers.settings import CourseError, Server
from helpers.stream_errors import DONE, StreamError, TooManyBytes, explain, shown

TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 10.0
MAX_BYTES = 64 * 2**20  # of one answer; a real one has some hundred bytes a token
TURN_S = 0.005  # the longest that one request of a burst holds up the next

Message = dict[str, Any]
Request = dict[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Event:
    """One SSE event.

    Attributes:
        at_ns: ``time.perf_counter_ns`` at the arrival of the bytes that completed it.
        data: its payload, raw: JSON text, or ``[DONE]`` (without spaces around it).
    """

    at_ns: int
    data: str


@dataclass(frozen=True)
class Timeline:
    """One request and everything that came back, with arrival times in ``time.perf_counter_ns``.

    Attributes:
        request: the JSON body as sent. No headers, so no key.
        sent_ns: immediately before the request was handed to the HTTP client.
        events: what arrived, raw and in order. A server that does not stream gives one event, its whole body.
        ended_ns: when the response was complete, or was given up.
        status: HTTP status; None if no response came.
        streamed: False if the answer came as one JSON body (or not at all).
        error: None if all went well.
        server: label of the server, for legends.
        origin: ``measured`` or ``recorded``.
        due_ns: when the request was ready to go. ``sent_ns - due_ns`` is time spent waiting in our own client
            (:func:`ask_many` keeps a limit of requests in flight); leaving that wait out without a trace is
            the mistake called coordinated omission. None: not known, taken as sent at once.
        connect_ns: nanoseconds spent on opening the connection, part of the time after ``sent_ns``; 0 if an
            open one was used again, None if not known.
        comments: how many SSE comments (keep-alives) came. They carry no data and are never tokens.
    """

    request: Request = field(repr=False)
    sent_ns: int
    events: tuple[Event, ...] = field(repr=False)
    ended_ns: int
    status: int | None
    streamed: bool
    error: StreamError | None
    server: str
    origin: str
    due_ns: int | None = None
    connect_ns: int | None = None
    comments: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The timeline as plain data for JSON; each event as ``[at_ns, data]``."""
        plain = asdict(self)
        plain["events"] = [[event.at_ns, event.data] for event in self.events]
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Timeline:
        """The inverse of :meth:`to_dict`. Raises CourseError if a field is missing or unknown."""
        try:
            error = plain["error"] and StreamError(**plain["error"])
            events = tuple(Event(at_ns, data) for at_ns, data in plain["events"])
            return cls(**{**plain, "events": events, "error": error})
        except (KeyError, TypeError, ValueError) as problem:
            raise CourseError(
                f"This is not a timeline that Timeline.to_dict wrote: {problem}. Record the run again."
            ) from problem


on_timeline: list[Callable[[Timeline], None]] = []
"""Functions called with each finished timeline, by :func:`stream`, :func:`ask` and :func:`ask_many`.

After ``ask_many`` they are called when the last stream has ended, in the order of the requests, so that a
slow one (writing to disk) does not delay a time stamp. One that raises gives a warning; the measurement is
kept.
"""


def chat_request(
    prompt: str | Sequence[Message],
    *,
    model: str | None = None,
    max_tokens: int = 128,
    thinking: bool | None = False,
    temperature: float = 0,
    **extra: Any,
) -> Request:
    """The JSON body of a streamed chat request.

    Args:
        prompt: text of one user message, or a list of messages.
        model: None for the server's own (filled in when the request is sent).
        max_tokens: the most tokens to generate, thinking included.
        thinking: sent as ``chat_template_kwargs.enable_thinking``; None leaves the field out, for servers
            that do not know it.
        temperature: 0 by default. Sent always: a model's ``generation_config.json`` may say otherwise.
        **extra: further fields of the body, such as ``tools``.
    """
    body: Request = {
        "messages": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        # Without this the server never says how many tokens it made, and chunks are not tokens.
        "stream_options": {"include_usage": True},
    }
    if model is not None:
        body["model"] = model
    if thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": thinking, **extra.pop("chat_template_kwargs", {})}
    return body | extra


def new_session() -> aiohttp.ClientSession:
    """A client for :func:`stream`: no limit on connections, which are kept open and used again.

    aiohttp's own limit of 100 would make request 101 wait inside the client, unseen.
    """
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(_connection_opens)
    trace.on_connection_create_end.append(_connection_is_open)
    trace.on_connection_reuseconn.append(_connection_is_reused)
    trace.on_request_chunk_sent.append(_request_is_written)
    return aiohttp.ClientSession(
        # A server built on uvicorn, as vLLM's, drops a connection that was idle for 5 s. A request sent at
        # that moment would be lost, so we do it first.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity"},
        trace_configs=[trace],
    )


def ask(
    server: Server,
    prompt: str | Sequence[Message] | Request,
    *,
    timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> Timeline:
    """Send one request on a connection of its own and wait for the whole answer.

    Args:
        server: where to.
        prompt: text, a list of messages, or a body made by :func:`chat_request`.
        timeout_s: seconds for the whole request.
        **options: passed to :func:`chat_request`.
    """
    request = _as_request(prompt, **options)
    with no_garbage_pauses():
        received = _run(lambda: receive(server, request, timeout_s=timeout_s))
    if received.nearest:
        print(
            "note: nobody recorded this request. This is the reply to the recorded one that is most like it."
        )
    return finish(received)


def ask_many(
    server: Server,
    requests: Iterable[str | Sequence[Message] | Request],
    *,
    concurrency: int,
    timeout_s: float = TIMEOUT_S,
) -> list[Timeline]:
    """Send several requests, at most ``concurrency`` of them in flight, and wait for all answers.

    All are due at once; the wait for a free place is not part of a request's own time (``sent_ns`` is after
    it) but is kept, as ``sent_ns - due_ns``. A burst of many is spread over some ten milliseconds (see
    below). ``timeout_s`` is for each request and does not count that wait.

    Returns:
        One timeline for each request, in the order given.

    Raises:
        CourseError: ``requests`` is one request, not several, or ``concurrency`` is below 1.
    """
    if isinstance(requests, str | dict):
        raise CourseError(
            "ask_many takes several requests, and was given one. Give a list, [request], or use ask(server, "
            "request)."
        )
    if concurrency < 1:
        raise CourseError(f"concurrency={concurrency} would send nothing. Give a number of 1 or more.")
    bodies = [_as_request(request) for request in requests]

    async def send_all() -> list[Received]:
        places = asyncio.Semaphore(concurrency)
        turn = asyncio.Lock()
        due_ns = time.perf_counter_ns()

        async def send(body: Request) -> Received:
            async with places:
                # One request at a time takes its stamp and goes onto the wire. Otherwise the first stamps of
                # a burst are taken long before the loop has come round to writing those requests, and that
                # delay of ours would look like the server's. A far server's slow handshakes still overlap:
                # each holds up the next for TURN_S at most. This wait, too, is kept as sent_ns - due_ns.
                async with turn:
                    written = asyncio.Event()
                    task = asyncio.create_task(
                        receive(
                            server, body, session=session, timeout_s=timeout_s, due_ns=due_ns, written=written
                        )
                    )
                    with suppress(TimeoutError):
                        await asyncio.wait_for(written.wait(), TURN_S)
                return await task

        async with new_session() as session:
            return await asyncio.gather(*(send(body) for body in bodies))

    with no_garbage_pauses():
        everything = _run(send_all)
    return [finish(received) for received in everything]


async def stream(
    server: Server,
    request: Request,
    *,
    session: aiohttp.ClientSession | None = None,
    timeout_s: float = TIMEOUT_S,
    due_ns: int | None = None,
) -> Timeline:
    """Send one request from asynchronous code, and parse what came as soon as it has ended.

    Where others are still streaming in the same loop, parsing delays their stamps a little: use
    :func:`receive` for each and :func:`finish` when all have ended.

    Args:
        server: where to.
        request: JSON body, see :func:`chat_request`. ``model`` is filled in if it is missing.
        session: from :func:`new_session`, to keep connections open between requests. None opens a new one.
        timeout_s: seconds for the whole request.
        due_ns: when the request should have gone (``time.perf_counter_ns``), for load on a schedule.
    """
    return finish(await receive(server, request, session=session, timeout_s=timeout_s, due_ns=due_ns))


# --- while the stream runs: as little as possible ---------------------------------------------------------


@dataclass
class Received:
    """What one request brought, before anything is parsed; :func:`finish` makes a timeline of it.

    The fields that :class:`Timeline` has too mean the same. ``reads`` holds ``(arrival time in ns, bytes)``
    of each read, ``failure`` what the HTTP client raised, ``location`` where a redirect points, ``written``
    is set when the request is on the wire, ``nearest`` if the replay of recorded runs had nothing recorded
    for this request and sent what is most like it.
    """

    server: Server = field(repr=False)
    request: Request = field(repr=False)
    due_ns: int | None
    sent_ns: int = 0
    ended_ns: int = 0
    connect_ns: int | None = None
    status: int | None = None
    location: str | None = None
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    failure: Exception | None = None
    written: asyncio.Event | None = field(default=None, repr=False)
    nearest: bool = False


async def receive(
    server: Server,
    request: Request,
    *,
    session: aiohttp.ClientSession | None = None,
    timeout_s: float = TIMEOUT_S,
    due_ns: int | None = None,
    written: asyncio.Event | None = None,
) -> Received:
    """Send one request and stamp what arrives, without looking at it. Arguments as for :func:`stream`.

    An answer longer than :data:`MAX_BYTES` is given up, before it fills the memory.
    """
    if session is None:
        async with new_session() as session:
            return await receive(server, request, session=session, timeout_s=timeout_s, due_ns=due_ns)
    body = json.dumps({"model": server.model} | accepted(server, request)).encode()
    received = Received(server, json.loads(body), due_ns, written=written)  # a copy
    url = server.base_url.rstrip("/") + "/chat/completions"
    headers = {"Content-Type": "application/json"}
    if server.api_key:
        headers["Authorization"] = f"Bearer {server.api_key.strip()}"
    clock, keep = time.perf_counter_ns, received.reads.append
    size = 0
    received.sent_ns = clock()
    try:
        async with session.post(
            url,
            data=body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
            allow_redirects=False,  # it would hide a second round trip in the number
            trace_request_ctx=received,
        ) as response:
            received.status = response.status
            received.location = response.headers.get("Location")
            received.nearest = response.headers.get("X-Recorded-Match") == "nearest"
            async for piece in response.content.iter_any():
                keep((clock(), piece))
                size += len(piece)
                if size > MAX_BYTES:
                    response.close()
                    raise TooManyBytes(MAX_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TooManyBytes) as failure:
        received.failure = failure  # ValueError: a bad header
    received.ended_ns = clock()
    return received


async def _connection_opens(session: aiohttp.ClientSession, context: Any, _: Any) -> None:
    context.opened_at_ns = time.perf_counter_ns()


async def _connection_is_open(session: aiohttp.ClientSession, context: Any, _: Any) -> None:
    context.trace_request_ctx.connect_ns = time.perf_counter_ns() - context.opened_at_ns


async def _request_is_written(session: aiohttp.ClientSession, context: Any, _: Any) -> None:
    if context.trace_request_ctx.written is not None:
        context.trace_request_ctx.written.set()


async def _connection_is_reused(session: aiohttp.ClientSession, context: Any, _: Any) -> None:
    context.trace_request_ctx.connect_ns = 0


@contextmanager
def no_garbage_pauses() -> Iterator[None]:
    """Python's cycle collector stops everything while it walks the heap, which in a notebook that has loaded
    pandas and matplotlib can take a tenth of a second: a fake TTFT. Inside this context it is put off.
    :func:`ask` and :func:`ask_many` use it; a load made of :func:`stream` should too."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(start: Callable[[], Awaitable[Result]]) -> Result:
    """Wait for an asynchronous function, also where an event loop runs already, as in Jupyter."""
    task: asyncio.Task[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None

    async def main() -> Result:
        nonlocal loop, task
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        return await start()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(max_workers=1) as worker:  # a loop cannot wait inside itself; a thread's own can
        future = worker.submit(asyncio.run, main())
        try:
            return future.result()
        except KeyboardInterrupt:  # the stop button: end the request too, not only the wait for it
            if loop is not None and task is not None:
                loop.call_soon_threadsafe(task.cancel)
            raise


# --- after the stream has ended ---------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"  # a byte order mark; the standard says to skip one at the start
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r)")  # the three line ends that the SSE standard allows


def parse_events(reads: Sequence[tuple[int, bytes]]) -> tuple[tuple[Event, ...], int]:
    """Cut a stream of bytes into SSE events.

    The bytes are joined first, so it makes no difference how the network cut them up, even inside a
    character.

    Args:
        reads: ``(arrival time in ns, bytes)`` of each read, in order.

    Returns:
        The events, and the number of comments. An event ends at its blank line. A last event without one
        is kept if its line is complete: some servers leave it out after ``[DONE]``. Half a line is dropped.

    Source:
        WHATWG HTML Living Standard, section 9.2.6, "Interpreting an event stream".
    """
    body = b"".join(piece for _, piece in reads)
    read_ends = list(accumulate(len(piece) for _, piece in reads))
    events: list[Event] = []
    data: list[bytes] = []
    comments = end = 0

    def complete() -> None:
        payload = b"\n".join(data).decode("utf-8", "replace")
        if payload.strip():
            at_ns = reads[bisect_left(read_ends, end)][0]  # the first read that reaches so far
            events.append(Event(at_ns, DONE if payload.strip() == DONE else payload))
        data.clear()

    for match in _LINE.finditer(body, len(_BOM) if body.startswith(_BOM) else 0):
        line, end = match[1], match.end()
        if not line:
            complete()
        elif line.startswith(b":"):
            comments += 1
        elif line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
    complete()
    return tuple(events), comments


def finish(received: Received) -> Timeline:
    """Parse what was received, find out whether it ended well, and tell the listeners."""
    body = b"".join(piece for _, piece in received.reads).removeprefix(_BOM)
    events: tuple[Event, ...] = ()
    comments, streamed = 0, False
    if received.status is not None and received.status < 300:
        if body.lstrip().startswith(b"{"):  # no SSE line starts so: a plain JSON answer
            events = (Event(received.reads[-1][0], body.decode("utf-8", "replace")),)
        else:
            events, comments = parse_events(received.reads)
            streamed = bool(events)
    key = (received.server.api_key or "").strip()
    if len(key) >= 8:  # a server may echo the key; a stand-in such as "EMPTY" is no secret
        body = body.replace(key.encode(), b"[key]")
        events = tuple(Event(event.at_ns, event.data.replace(key, "[key]")) for event in events)
    timeline = Timeline(
        request=received.request,
        sent_ns=received.sent_ns,
        events=events,
        ended_ns=received.ended_ns,
        status=received.status,
        streamed=streamed,
        error=explain(
            received.server,
            status=received.status,
            failure=received.failure,
            waited_s=(received.ended_ns - received.sent_ns) / 1e9,
            body=body.decode("utf-8", "replace"),
            events=[event.data for event in events],
            streamed=streamed,
            model=received.request["model"],
            location=received.location,
        ),
        server=received.server.name or shown(received.server.base_url),
        origin=received.server.origin,
        due_ns=received.sent_ns if received.due_ns is None else received.due_ns,
        connect_ns=received.connect_ns,
        comments=comments,
    )
    for listener in on_timeline:
        try:
            listener(timeline)
        except Exception as problem:
            warnings.warn(f"on_timeline: {listener} failed: {problem!r}. The timeline is kept.", stacklevel=2)
    return timeline


def _as_request(prompt: str | Sequence[Message] | Request, **options: Any) -> Request:
    if not isinstance(prompt, dict):
        return chat_request(prompt, **options)
    if options:
        raise CourseError(
            f"A complete request was given and options too ({', '.join(options)}). Put them into the "
            "request: chat_request(prompt, ...)."
        )
    return prompt
