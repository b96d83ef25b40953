"""A server whose delays are known, to hold timers against.

It speaks the OpenAI chat stream: role-only chunk at once, the first token after a known delay, further tokens
at a known gap, a finish chunk, a usage chunk, ``[DONE]``. It writes down, per request, when the request had
arrived and when each chunk was handed to the kernel, on ``time.perf_counter_ns``. On Linux that clock is
CLOCK_MONOTONIC, which all processes of one machine share: a client's stamp minus the server's stamp is the
client's error (plus a few hundredths of a millisecond of loopback). So it does not matter that the server
itself, like any program, sends a little later than planned; how late is in the log too (``due_ns``).

Every byte it sends is made before the first request, its log stays in memory until somebody asks for it, and
Python's garbage collector is put off until then too: a pause of the server of some milliseconds would make a
request look late that was not.

    python -m benchmarks.known_server --log known.jsonl --first-ms 200 --gap-ms 20 --tokens 24
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from helpers.settings import REPO, CourseError, Server

MODEL = "known-delays"
READY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Law:
    """When each token of a reply is sent, counted from the arrival of its request.

    Attributes:
        first_ms: delay of the first token.
        first_spread_ms: adds a delay drawn evenly between 0 and this to the first token. 0: constant.
        gap_ms: time from one token to the next.
        gap_spread_ms: adds a delay drawn evenly between 0 and this to each gap.
        tokens: tokens in a reply, reasoning included; a request's own ``max_tokens`` may lower it.
        reasoning_tokens: how many of them, from the first one, are reasoning.
        reasoning_field: ``reasoning`` or, the older name, ``reasoning_content``.
        role_first: send a chunk with the role and empty content at once, as vLLM does. Otherwise the role
            comes with the first token.
        seed: the draws of a request depend on this and on the request's id only, so that every client that
            sends "id 17" meets the same delays.
    """

    first_ms: float = 200.0
    first_spread_ms: float = 0.0
    gap_ms: float = 20.0
    gap_spread_ms: float = 0.0
    tokens: int = 24
    reasoning_tokens: int = 0
    reasoning_field: str = "reasoning"
    role_first: bool = True
    seed: int = 0

    def delays_ms(self, request_id: str) -> list[float]:
        """Delay of each token after the request's arrival, ms, in order. The same for the same id."""
        draw = random.Random(f"{self.seed}/{request_id}")
        at = self.first_ms + draw.uniform(0, self.first_spread_ms)
        delays = [at]
        for _ in range(self.tokens - 1):
            at += self.gap_ms + draw.uniform(0, self.gap_spread_ms)
            delays.append(at)
        return delays


def _chunk(
    delta: dict[str, str] | None, finish: str | None = None, usage: dict[str, int] | None = None
) -> bytes:
    """One server-sent event with one chat chunk in it."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body: dict[str, Any] = {"id": "chatcmpl-known", "object": "chat.completion.chunk", "created": 0}
    body |= {"model": MODEL, "choices": choices}
    if usage is not None:
        body["usage"] = usage
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _http_chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def _http_json(body: object, status: str = "200 OK") -> bytes:
    payload = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
ROLE = _http_chunk(_chunk({"role": "assistant", "content": ""}))


class _Replies:
    """The bytes of every reply under one law, made once."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.tokens: list[bytes] = []
        self.kinds: list[str] = []
        for i in range(law.tokens):
            reasoning = i < law.reasoning_tokens
            delta = {law.reasoning_field if reasoning else "content": f" w{i}"}
            if i == 0 and not law.role_first:
                delta = {"role": "assistant", **delta}
            self.tokens.append(_http_chunk(_chunk(delta)))
            self.kinds.append("reasoning" if reasoning else "answer")

    def end(self, tokens: int) -> bytes:
        """Finish chunk, usage chunk and [DONE], and the end of the HTTP body, for a reply that long."""
        finish = "stop" if tokens == self.law.tokens else "length"
        usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        events = (_chunk({}, finish), _chunk(None, usage=usage), b"data: [DONE]\n\n")
        return b"".join(map(_http_chunk, events)) + b"0\r\n\r\n"


class _Log:
    """Records in memory; on disk when asked for, and at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending: list[dict[str, Any]] = []

    def write(self) -> None:
        if self.pending:
            with self.path.open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in self.pending)
            self.pending.clear()
        gc.collect()


class _Connection(asyncio.Protocol):
    """One client connection: requests one after another, each answered by the law."""

    def __init__(self, replies: _Replies, ends: dict[int, bytes], log: _Log) -> None:
        self.replies, self.ends, self.log = replies, ends, log
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None
        self.record: dict[str, Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.finish()

    def data_received(self, data: bytes) -> None:
        arrived = time.perf_counter_ns()
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        if not blank or len(rest) < size:
            return
        self.buffer = rest[size:]
        self.answer(arrived, head, rest[:size])

    def answer(self, arrived: int, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/v1/chat/completions":
            self.stream(arrived, head, body)
        elif path == b"/v1/models":
            self.transport.write(_http_json({"object": "list", "data": [{"id": MODEL, "object": "model"}]}))
        elif path == b"/health":
            self.transport.write(_http_json({}))
        elif path == b"/log":
            self.log.write()
            self.transport.write(_http_json({}))
        else:
            self.transport.write(_http_json({"error": {"message": "not here"}}, "404 Not Found"))

    def stream(self, arrived: int, head: bytes, body: bytes) -> None:
        request = json.loads(body)
        if not request.get("stream"):
            error = {"error": {"message": 'This server only streams: send "stream": true.'}}
            self.transport.write(_http_json(error, "400 Bad Request"))
            return
        labels = re.findall(rb"\bid (\d+)", body)  # the last one: what came before is history
        header = re.search(rb"x-request-id: *(\S+)", head, re.IGNORECASE)
        name = labels[-1].decode() if labels else ""
        law = self.replies.law
        most = request.get("max_completion_tokens") or request.get("max_tokens") or law.tokens
        self.count = min(law.tokens, most)
        self.due = [arrived + round(ms * 1e6) for ms in law.delays_ms(name)[: self.count]]
        self.next = 0
        self.record = {
            "id": name,
            "request_id": header[1].decode() if header else "",
            "arrived_ns": arrived,
            "kinds": ["role"] if law.role_first else [],
            "due_ns": [arrived] if law.role_first else [],
            "sent_ns": [],
            "complete": False,
        }
        self.record["kinds"] += self.replies.kinds[: self.count]
        self.record["due_ns"] += self.due
        if law.role_first:
            self.record["sent_ns"].append(time.perf_counter_ns())
            self.transport.write(STREAM_HEAD + ROLE)
        else:
            self.transport.write(STREAM_HEAD)
        self.wait()

    def wait(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = (self.due[self.next] - time.perf_counter_ns()) / 1e9
        self.timer = loop.call_later(delay_s, self.send)

    def send(self) -> None:
        assert self.record is not None
        sent = time.perf_counter_ns()
        self.transport.write(self.replies.tokens[self.next])
        self.record["sent_ns"].append(sent)
        self.next += 1
        if self.next < self.count:
            self.wait()
            return
        self.record["kinds"] += ["finish", "usage"]
        sent = time.perf_counter_ns()
        self.record["due_ns"] += [self.due[-1]] * 2
        self.record["sent_ns"] += [sent] * 2
        self.record["complete"] = True
        self.finish()
        self.transport.write(self.ends[self.count])

    def finish(self) -> None:
        if self.record is not None:
            self.log.pending.append(self.record)
            self.record = None


async def serve(law: Law, log: Path) -> None:
    """Serve on a free loopback port until SIGTERM or SIGINT; print the port as the first line of output."""
    replies, book = _Replies(law), _Log(log)
    ends = {n: replies.end(n) for n in range(1, law.tokens + 1)}
    gc.disable()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await loop.create_server(lambda: _Connection(replies, ends, book), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()
    book.write()


@dataclass(frozen=True)
class KnownServer:
    """A running known server: ``server`` to send to, ``records()`` for what it wrote down."""

    server: Server
    law: Law
    log: Path
    pid: int

    def records(self) -> list[dict[str, Any]]:
        """All requests so far, in the order in which they ended.

        Each: ``id`` (the last number after "id" in the prompt), ``request_id`` (the X-Request-Id header),
        ``arrived_ns``, and in step with each other ``kinds`` (role, reasoning, answer, finish, usage),
        ``due_ns`` and ``sent_ns``; ``complete`` is False where the client went away.
        """
        with urllib.request.urlopen(self.server.base_url.removesuffix("/v1") + "/log", timeout=30):
            pass
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@contextmanager
def running(law: Law, log: Path) -> Iterator[KnownServer]:
    """Start a known server in a process of its own; stop it on the way out, whatever happened.

    Raises:
        CourseError: the log exists already (it is never overwritten), or the server did not come up.
    """
    if log.exists():
        raise CourseError(f"{log} is there already, and a log is never overwritten: give another name.")
    argv = [sys.executable, "-m", "benchmarks.known_server", "--log", str(log)]
    for name, value in asdict(law).items():
        argv += ["--" + name.replace("_", "-"), str(value)]
    child = subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout is not None
        line = child.stdout.readline().strip()
        if not line.isdigit():
            raise CourseError("The server of known delays did not start; its error is shown above.")
        server = Server(f"http://127.0.0.1:{line}/v1", MODEL, name="server of known delays")
        yield KnownServer(server, law, log, child.pid)
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        child.stdout.close()


def _arguments(argv: list[str] | None = None) -> tuple[Law, Path]:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.known_server", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--log", type=Path, required=True, help="JSONL file the log is added to")
    for field in fields(Law):
        kind = {"float": float, "int": int, "str": str, "bool": lambda text: text == "True"}[str(field.type)]
        parser.add_argument("--" + field.name.replace("_", "-"), type=kind, default=field.default)
    given = vars(parser.parse_args(argv))
    return Law(**{field.name: given[field.name] for field in fields(Law)}), given["log"]


if __name__ == "__main__":
    asyncio.run(serve(*_arguments()))
