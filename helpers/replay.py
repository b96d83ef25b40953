"""A small local server that plays recorded runs at their recorded speed, with the OpenAI API.

    python -m helpers.replay --port 8000 [--lesson 05_measure_ttft ...]

For machines on which no vLLM runs. :mod:`helpers.engine` starts it there; the lessons then ask it as they
would ask vLLM, and every number says "recorded". It listens on this machine only.

Which recording answers a request? One of the same request: everything but the model's name is the same, save
the marks by which lessons make a prompt new to the cache, ``[call 8f3a2c]``. A prompt that this server sees
for the first time gets a recording of a first time, one seen before a recording of a repetition, since the
prefix cache made the difference; if there is only the other kind, that one. Several such recordings are used
in turn. For a request that nobody recorded, the recording of the most similar one is used, cut to
``max_tokens``: its speed is about right, its words answer another question. The header ``X-Recorded-Match``
says ``exact`` or ``nearest``.

Times are those of the recording, whatever the load is now: sixteen requests at once replay quickly if they
were recorded one at a time. A lesson on load needs a run that was recorded under that load.

Pages such as ``/metrics`` come from the same run, as they were at the same point between its requests
(:class:`Pages`), so the difference between two of them is what the requests in between added.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import re
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from aiohttp import web

from helpers import recorded
from helpers.latency import TOKEN_KINDS, deltas
from helpers.run_file import Page, Run
from helpers.settings import CourseError
from helpers.stream_errors import DONE
from helpers.streaming import Event, Message, Request, Timeline

HOST = "127.0.0.1"
NONCE = re.compile(r"\[call [0-9a-f]{6}\]")
TOKENS_IF_NOT_SAID = 16  # the OpenAI API's old default; it only serves to find a similar recording


# --- which recording answers a request --------------------------------------------------------------------


@dataclass(frozen=True)
class Likeness:
    """What makes two requests similar.

    Attributes:
        whole: digest of the request without the model's name and the marks of new calls.
        prompt: digest of messages and tools with those marks: what the prefix cache goes by.
        messages: digest of the messages without the marks.
        past_end: whether the model is to write on after its end mark (``ignore_eos``).
        manner: thinking, tools, structured output: three yes or no.
        bounds: ``ignore_eos``, ``min_tokens``, ``thinking_token_budget``: whether each is set.
        length: characters of the messages and tools.
        max_tokens: the most tokens to generate.
    """

    whole: str
    prompt: str
    messages: str
    past_end: bool
    manner: tuple[bool, ...]
    bounds: tuple[bool, ...]
    length: int
    max_tokens: int


def likeness(request: Request) -> Likeness:
    """What of a request decides which recording answers it."""
    body = {name: value for name, value in request.items() if name != "model"}
    prompt = _sorted_json([body.get("messages"), body.get("tools")])
    structured = ("structured_outputs", "response_format", "guided_json", "guided_choice", "guided_regex")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or TOKENS_IF_NOT_SAID
    past_end = bool(body.get("ignore_eos"))
    return Likeness(
        whole=_digest(NONCE.sub("[call]", _sorted_json(body))),
        prompt=_digest(prompt),
        messages=_digest(NONCE.sub("[call]", _sorted_json(body.get("messages")))),
        past_end=past_end,
        manner=(
            recorded.thinks(body),
            bool(body.get("tools")),
            any(body.get(name) for name in structured),
        ),
        # min_tokens 0 is the default; a budget of 0 is a budget.
        bounds=(past_end, bool(body.get("min_tokens")), body.get("thinking_token_budget") is not None),
        length=len(prompt),
        max_tokens=limit,
    )


@dataclass(frozen=True, eq=False)
class Recording:
    """One recorded request.

    Attributes:
        run: the name of its run.
        place: its place in the run, in order of sending, from 0.
        again: whether its prompt had been sent before in that run.
        like: see :func:`likeness`.
        timeline: what came back, and when.
    """

    run: str
    place: int
    again: bool
    like: Likeness
    timeline: Timeline


class Session:
    """The recordings, and what has been asked of them since the server started."""

    def __init__(self, runs: dict[str, Run]) -> None:
        self.recordings: list[Recording] = []
        self.pages: dict[tuple[str, str], Pages] = {}
        self.models: list[str] = []
        self.version: str | None = None
        for name, run in runs.items():
            seen: set[str] = set()
            for place, timeline in enumerate(run.timelines):
                like = likeness(timeline.request)
                if _playable(timeline):
                    self.recordings.append(Recording(name, place, like.prompt in seen, like, timeline))
                seen.add(like.prompt)
            for path in dict.fromkeys(page.path for page in run.pages):
                mine = [page for page in run.pages if page.path == path]
                self.pages[name, path] = Pages(mine, [timeline.sent_ns for timeline in run.timelines])
            model = run.conditions["server"]["model"]
            self.models += [model] if model not in self.models else []
            self.version = run.conditions["server"].get("version") or self.version
        self.exact: dict[str, list[Recording]] = {}
        for recording in self.recordings:
            self.exact.setdefault(recording.like.whole, []).append(recording)
        self.uses: Counter[Recording] = Counter()
        self.seen: set[str] = set()
        self.run = next(iter(runs), "")  # the run that the last request was answered from
        self.in_flight = 0

    def choose(self, request: Request) -> tuple[Recording, bool] | None:
        """The recording that answers a request, and whether it is one of the very same request. None if
        there is none at all."""
        like = likeness(request)
        again = like.prompt in self.seen
        self.seen.add(like.prompt)
        same = self.exact.get(like.whole, [])
        if same:
            # The same request first of all: one answered with or without the cache differs in speed, another
            # request also in words. What is refused is refused every time; the cache has no part in it.
            chosen = min(same, key=lambda r: (not r.timeline.error and r.again != again, *self._turn(r)))
        else:
            chosen = self._nearest(like, again, bool(request.get("stream")))
        if chosen is None:
            return None
        self.uses[chosen] += 1
        self.run = chosen.run
        for (run, _), pages in self.pages.items():
            if run == chosen.run:
                pages.asked(chosen.place, chosen.timeline.sent_ns, idle=self.in_flight == 0)
        return chosen, bool(same)

    def _nearest(self, like: Likeness, again: bool, stream: bool) -> Recording | None:
        def distance(recording: Recording) -> tuple[Any, ...]:
            other = recording.like
            return (
                other.past_end and not like.past_end,  # end marks as text, where nobody asked for them
                _differences(like.manner, other.manner),
                _differences(like.bounds, other.bounds),
                like.messages != other.messages,
                again != recording.again,
                abs(like.length - other.length),
                abs(like.max_tokens - other.max_tokens),
                *self._turn(recording),
            )

        usable = (r for r in self.recordings if not r.timeline.error and (r.timeline.streamed or not stream))
        return min(usable, key=distance, default=None)

    def _turn(self, recording: Recording) -> tuple[Any, ...]:
        # The run in use first, so that the pages go with the requests; then whichever was used least.
        return recording.run != self.run, self.uses[recording], recording.place

    def page(self, path: str) -> str | None:
        """A recorded page, or None."""
        runs = [self.run, *(run for run, other in self.pages if other == path)]
        pages = next((self.pages[run, path] for run in runs if (run, path) in self.pages), None)
        return pages.read(idle=self.in_flight == 0) if pages else None


def _playable(timeline: Timeline) -> bool:
    """Not what broke off for a reason that lay outside the server."""
    return timeline.status is not None and (
        timeline.error is None or timeline.error.kind in ("http", "stream")
    )


def _differences(one: tuple[bool, ...], other: tuple[bool, ...]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


# --- pages between requests -------------------------------------------------------------------------------


class Pages:
    """What one page of a run said at each point between its requests.

    The recorded pages are grouped by how many requests had been sent before them. Once a request was answered
    from the recording at some place, the group that follows that place is the one to read from; within it,
    the page nearest in time (a page that is read again and again while requests are in flight moves on).
    After the last group, its last page repeats.

    A cell that is run a second time goes back in the run. The counters of a server never go back, so what was
    counted until then is added to the pages that follow: the difference of two readings stays right.
    """

    def __init__(self, pages: Sequence[Page], sent_ns: Sequence[int]) -> None:
        grouped = groupby(pages, lambda page: bisect_right(sent_ns, page.at_ns))
        self.groups = [(before, list(group)) for before, group in grouped]
        self.at = 0  # the group to read from
        self.was_read = False
        self.added: Counter[str] = Counter()
        self.clock: tuple[float, int] | None = None  # now, in our time and in the run's

    def asked(self, place: int, sent_ns: int, *, idle: bool) -> None:
        """A request is answered from this place of the run; ``idle`` if no other is in flight."""
        group = bisect_right([before for before, _ in self.groups], place)
        # While others are in flight, an earlier place only means that they were sent in another order.
        if idle and (group < self.at or (group == self.at and self.was_read)):
            first = self.groups[0][1][0]
            here = self._group(self.at)[-1]
            before = self._group(group - 1)[-1] if group else first
            self.added.update(counters(here.text))
            self.added.subtract(counters(before.text))
            self.at = group
        else:
            self.at = max(self.at, group)
        self.was_read = False
        self.clock = (time.monotonic(), sent_ns)

    def read(self, *, idle: bool) -> str:
        """The page as it is now."""
        group = self._group(self.at)
        chosen = group[0]
        if self.clock:
            began, sent_ns = self.clock
            now_ns = sent_ns + (time.monotonic() - began) * 1e9
            chosen = min(group, key=lambda page: abs(page.at_ns - now_ns))
        self.was_read = self.was_read or idle
        return _with_added(chosen.text, self.added)

    def _group(self, number: int) -> list[Page]:
        return self.groups[min(number, len(self.groups) - 1)][1]


def counters(text: str) -> dict[str, float]:
    """The samples of a Prometheus page that only ever grow: counters, and the parts of histograms."""
    found = {}
    for line in text.splitlines():
        sample, _, value = line.rpartition(" ")
        name = sample.partition("{")[0]
        if not line.startswith("#") and name.endswith(("_total", "_bucket", "_count", "_sum")):
            with suppress(ValueError):
                found[sample] = float(value)
    return found


def _with_added(text: str, added: Counter[str]) -> str:
    if not any(added.values()):
        return text
    now = counters(text)
    lines = []
    for line in text.split("\n"):
        sample = line.rpartition(" ")[0]
        grown = sample in now and added[sample]
        lines.append(f"{sample} {now[sample] + added[sample]!r}" if grown else line)
    return "\n".join(lines)


# --- what is sent -----------------------------------------------------------------------------------------


def shortened(timeline: Timeline, max_tokens: int) -> Timeline:
    """The timeline as it would have been with a smaller ``max_tokens``: after so many tokens it ends, with
    finish reason ``length``. Where a chunk holds several tokens, as many chunks are kept as they fill."""
    chunks = list(dict.fromkeys(d.chunk for d in deltas(timeline) if d.kind in TOKEN_KINDS))
    usage = next((u for event in reversed(timeline.events) if (u := _chunk(event.data).get("usage"))), None)
    tokens = usage["completion_tokens"] if usage else len(chunks)
    if not timeline.streamed or not chunks or max_tokens >= tokens:
        return timeline
    last = chunks[max(1, max_tokens * len(chunks) // tokens) - 1]
    at_ns = timeline.events[last].at_ns
    chunk = _chunk(timeline.events[last].data)
    chunk["choices"][0]["finish_reason"] = "length"
    events = [*timeline.events[:last], Event(at_ns, _compact(chunk))]
    for event in timeline.events[last + 1 :]:
        if _is_usage(event.data):
            counts = {"completion_tokens": max_tokens, "total_tokens": usage["prompt_tokens"] + max_tokens}
            events.append(Event(at_ns, _compact(_chunk(event.data) | {"usage": usage | counts})))
    return replace(timeline, events=(*events, Event(at_ns, DONE)), ended_ns=at_ns)


def assembled(timeline: Timeline) -> dict[str, Any]:
    """The answer of a recorded stream as one JSON object, as the server gives it without streaming."""
    if not timeline.streamed:
        return json.loads(timeline.events[0].data)
    chunks = [_chunk(event.data) for event in timeline.events]
    texts: dict[str, str] = {}
    calls: dict[int, dict[str, Any]] = {}
    finish_reason = None
    for choice in (choice for chunk in chunks for choice in chunk.get("choices") or []):
        finish_reason = choice.get("finish_reason") or finish_reason
        delta = choice.get("delta") or {}
        for name in ("content", "reasoning", "reasoning_content"):
            if delta.get(name):
                texts[name] = texts.get(name, "") + delta[name]
        for piece in delta.get("tool_calls") or []:
            call = calls.setdefault(
                piece.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}}
            )
            call.update({name: piece[name] for name in ("id", "type") if piece.get(name)})
            for name in ("name", "arguments"):
                call["function"][name] += (piece.get("function") or {}).get(name) or ""
    message: Message = {"role": "assistant", "content": None} | texts
    if calls:
        message["tool_calls"] = list(calls.values())
    first = {name: value for name, value in chunks[0].items() if name in ("id", "created", "model")}
    return first | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": next((chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")), None),
    }


def pieces(timeline: Timeline, *, usage: bool) -> list[tuple[int, bytes]]:
    """What to write, and when, in nanoseconds after the request came: one piece for the events that had
    arrived together. The event that holds nothing but usage is left out if it was not asked for."""
    made = []
    # The caller opens a connection again and waits for that himself, so it is not played.
    start_ns = timeline.sent_ns + (timeline.connect_ns or 0)
    for at_ns, events in groupby(timeline.events, lambda event: event.at_ns):
        kept = [event.data for event in events if usage or not _is_usage(event.data)]
        if kept:
            made.append((at_ns - start_ns, "".join(f"data: {data}\n\n" for data in kept).encode()))
    return made


def _chunk(data: str) -> dict[str, Any]:
    with suppress(ValueError):
        chunk = json.loads(data)
        if isinstance(chunk, dict):
            return chunk
    return {}


def _is_usage(data: str) -> bool:
    chunk = _chunk(data)
    return bool(chunk.get("usage")) and not chunk.get("choices")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- the server -------------------------------------------------------------------------------------------


def application(runs: dict[str, Run]) -> web.Application:
    """The web application that replays these runs, given by name."""
    session = Session(runs)
    app = web.Application(client_max_size=16 * 2**20)

    async def chat(request: web.Request) -> web.StreamResponse:
        came_ns = time.perf_counter_ns()
        try:
            body = json.loads(await request.read())
        except ValueError:
            return _error(400, "The body is not JSON.")
        problem = _problem(body)
        if problem:
            return _error(400, problem)
        model = body.get("model")
        if model is not None and model not in session.models and session.models:
            return _error(404, f"The model `{model}` does not exist.", "NotFoundError")
        chosen = session.choose(body)
        if chosen is None:
            return _error(503, str(recorded.no_runs()).replace("\n", " "), "ServiceUnavailableError")
        recording, exact = chosen
        headers = {"X-Recorded-Match": "exact" if exact else "nearest"}
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        timeline = shortened(recording.timeline, limit) if limit else recording.timeline
        session.in_flight += 1
        try:
            if timeline.error and timeline.error.kind == "http":
                await _until(came_ns + timeline.ended_ns - timeline.sent_ns)
                return _error(timeline.status or 500, _said(timeline.error.message), headers=headers)
            if not body.get("stream") or not timeline.streamed:
                await _until(came_ns + timeline.ended_ns - timeline.sent_ns)
                return web.json_response(assembled(timeline), headers=headers)
            options = body.get("stream_options") or {}
            response = web.StreamResponse(headers=headers | {"Cache-Control": "no-cache"})
            response.content_type = "text/event-stream"
            to_write = pieces(timeline, usage=bool(options.get("include_usage")))
            with suppress(ConnectionError):  # whoever asked has gone: nothing is left to do
                await response.prepare(request)
                for after_ns, data in to_write:
                    await _until(came_ns + after_ns)
                    await response.write(data)
                await response.write_eof()
            return response
        finally:
            session.in_flight -= 1

    async def page(request: web.Request) -> web.Response:
        path = request.path
        text = session.page(path)
        if path == "/health":
            return web.Response()
        if path == "/v1/models":  # all models, not only those of one run
            return web.json_response({"object": "list", "data": _models(session, text)})
        if text is not None:
            kind = "application/json" if text.lstrip().startswith(("{", "[")) else "text/plain"
            return web.Response(text=text, content_type=kind)
        if path == "/version":
            return web.json_response({"version": session.version})
        return _error(404, f"{path} was not recorded.", "NotFoundError")

    async def other(request: web.Request) -> web.Response:
        return _error(404, f"Recorded runs hold chat completions only, not {request.path}.", "NotFoundError")

    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/{path:.*}", page)
    app.router.add_route("*", "/{path:.*}", other)
    return app


def _problem(body: Any) -> str | None:
    """Why a request cannot be answered, or None."""
    if not isinstance(body, dict):
        return "The body must be a JSON object."
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        return "messages must be a list with at least one message."
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name)
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            return f"{name} must be at least 1, got {limit}."
    if not isinstance(body.get("stream", False) or False, bool):
        return "stream must be true or false."
    if body.get("n") not in (None, 1):
        return "Recorded runs hold one answer to each request: n must be 1."
    for name in ("stream_options", "chat_template_kwargs"):
        if not isinstance(body.get(name) or {}, dict):
            return f"{name} must be an object."
    return None


def _models(session: Session, text: str | None) -> list[dict[str, Any]]:
    listed = {entry.get("id"): entry for entry in _chunk(text or "").get("data", [])}
    plain = {"object": "model", "owned_by": "recorded"}
    return [listed.get(model, {"id": model} | plain) for model in session.models]


def _said(message: str) -> str:
    """What the server itself said, out of the message that :mod:`helpers.stream_errors` made of it."""
    said = re.search(r"It said: (['\"])(.*)\1\. ", message)
    return said[2] if said else message


def _error(
    status: int, message: str, kind: str = "BadRequestError", headers: dict[str, str] | None = None
) -> web.Response:
    """An error in OpenAI's form."""
    error = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": error}, status=status, headers=headers)


async def _until(due_ns: int) -> None:
    """Wait for a moment of ``time.perf_counter_ns``. Each is counted from the request's arrival, so that one
    late wake-up does not delay all that follow."""
    wait_ns = due_ns - time.perf_counter_ns()
    if wait_ns > 0:
        await asyncio.sleep(wait_ns / 1e9)


def main(words: list[str]) -> int:
    """``python -m helpers.replay --port N``; runs until it is stopped, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.replay", description="Replay recorded runs.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--lesson", action="append", help="only this run; may be given several times")
    parser.add_argument("--runs", type=Path, default=recorded.RUNS, help="folder of the recorded runs")
    options = parser.parse_args(words)
    try:
        names = options.lesson or recorded.runs(options.runs)
        runs = {name: recorded.load(options.runs / f"{name}.jsonl.gz") for name in names}
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    app = application(runs)
    gc.collect()
    gc.freeze()  # the recordings stay: the collector need not walk them while a stream is played
    count = sum(len(run.timelines) for run in runs.values())
    print(f"replaying {count} requests of {', '.join(runs) or 'no runs'} at http://{HOST}:{options.port}/v1")
    sys.stdout.flush()
    web.run_app(app, host=HOST, port=options.port, print=None, access_log=None, shutdown_timeout=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
