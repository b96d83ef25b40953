"""A small OpenAI-compatible server that sends what a test tells it to, when it tells it to.

    with serve([(0, chunk(role="assistant")), (0.03, chunk("Hello")), (0, DONE)]) as server:
        timeline = ask(server.as_server(), "hi")
    server.sent[0]        # [(perf_counter_ns just before the write, bytes), ...] of the first request

A script is a list of (seconds to wait, bytes to send). ``CUT`` instead of bytes cuts the connection. Wrap it
in a Script to choose status, content type or headers. ``serve`` takes one script for all requests, or a
function from the request's JSON body to a script. The server runs in a thread, on a free port of the
loopback interface.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from helpers.settings import Server

CUT = object()
DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"


def event(payload) -> bytes:
    """One SSE event with a JSON payload."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def chunk(content=None, *, finish=None, usage=None, **delta) -> bytes:
    """One chunk of a chat stream: chunk("text"), chunk("", role="assistant"), chunk(reasoning="hm")."""
    if content is not None:
        delta["content"] = content
    payload = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return event(payload | ({"usage": usage} if usage else {}))


ROLE = chunk("", role="assistant")


def usage_chunk(completion_tokens, prompt_tokens=7, **details) -> bytes:
    """The last chunk of a stream with include_usage: no choices, only the counts."""
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens} | details
    return event({"id": "chatcmpl-1", "choices": [], "usage": counts})


def tool_call(name=None, arguments="") -> bytes:
    """One piece of a tool call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return chunk(tool_calls=[{"index": 0, "type": "function", "function": function}])


@dataclass
class Script:
    """Steps, and how the response is labelled."""

    steps: Sequence[tuple[float, object]]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeServer:
    """What the server saw and did; one entry for each request, in order of arrival."""

    script: Sequence | Script | Callable[[dict], Sequence | Script]
    base_url: str = ""
    bodies: list[dict] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sent: list[list[tuple[int, bytes]]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def as_server(self, **changes) -> Server:
        """The Server to hand to helpers.streaming."""
        return Server(**({"base_url": self.base_url, "model": "fake", "name": "fake server"} | changes))

    def sent_at(self, request: int, piece: bytes) -> int:
        """When the write that held this piece began."""
        return next(at_ns for at_ns, data in self.sent[request] if piece in data)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        log: list[tuple[int, bytes]] = []
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.sent.append(log)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            script = self.script(body) if callable(self.script) else self.script
            script = script if isinstance(script, Script) else Script(script)
            response = web.StreamResponse(status=script.status, headers=script.headers)
            response.content_type = script.content_type
            started = False
            due = time.perf_counter()
            for wait_s, data in script.steps:
                due += wait_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                if not started and (started := True):
                    await response.prepare(request)
                if data is CUT:
                    request.transport.abort()
                    break
                log.append((time.perf_counter_ns(), data))
                await response.write(data)
            else:
                if not started:
                    await response.prepare(request)
                await response.write_eof()
            return response
        finally:
            self.in_flight -= 1


@contextmanager
def serve(script) -> Iterator[FakeServer]:
    """Run a FakeServer while the block runs."""
    fake = FakeServer(script)
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake._chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        fake.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=30)
        loop.close()
