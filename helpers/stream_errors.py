"""What went wrong with a request, and what to do about it.

A measurement should not end in a stack trace of an HTTP library. :func:`explain` looks at how a request ended
and says it in words: what happened, why, and what to type next. The words never hold the API key: the caller
takes it out of ``body`` and ``events`` first, and nothing else here holds it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from helpers.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE, MODEL_VARIABLE, Server

DONE = "[DONE]"  # the last event of an OpenAI-compatible stream; the only one that is not JSON


class TooManyBytes(Exception):
    """An answer was longer than any real one and was given up; the argument is the limit in bytes."""


@dataclass(frozen=True)
class StreamError:
    """Why a request did not end well.

    Attributes:
        kind: ``http`` (refused by the server, with a status), ``connection`` (none, or cut), ``stream`` (the
            server reported an error in mid-stream, or what it sent cannot be read, is no chat completion or
            has no end), ``timeout``.
        message: what happened, why, and what to type next.
    """

    kind: str
    message: str


def explain(
    server: Server,
    *,
    status: int | None,
    failure: Exception | None,
    waited_s: float,
    body: str,
    events: Sequence[str],
    streamed: bool,
    model: str,
    location: str | None = None,
) -> StreamError | None:
    """How a request ended, or None if it ended well.

    Args:
        server: whom we asked.
        status: HTTP status, None if no response came.
        failure: what the HTTP client raised, if anything.
        waited_s: seconds from sending to the end.
        body: the response as text, as far as it came.
        events: payloads of the events in it; for an answer without streaming, the body as the only one.
        streamed: whether it came as server-sent events.
        model: the model asked for.
        location: where a redirect points.
    """
    address = shown(server.base_url)
    if status is not None and status >= 300:
        return StreamError("http", about_status(server, status, body, model=model, location=location))
    if isinstance(failure, TooManyBytes):
        return StreamError(
            "stream",
            f"{address} sent more than {failure.args[0]:,} bytes for one request; the rest was not read. No "
            "answer is so long: it repeats itself, or it is no chat completion. Ask for fewer max_tokens; if "
            "that changes nothing, look at the last lines of the server's log.",
        )
    for event in events:
        if trouble := _trouble_in(event):
            return StreamError("stream", trouble)
    answered = any(isinstance((read_chunk(event) or {}).get("choices"), list) for event in events)
    if streamed and answered and events[-1] == DONE:
        return None  # all there, whatever became of the connection afterwards
    if isinstance(failure, TimeoutError) and not isinstance(failure, aiohttp.ConnectionTimeoutError):
        return StreamError(
            "timeout",
            f"The answer from {address} was not complete after {waited_s:.0f} s ({len(events)} events had "
            "come). The server is overloaded, still warming up, or the answer is long. Look at its log, ask "
            "for fewer max_tokens, or give a larger timeout_s.",
        )
    if failure is not None and status is not None:
        return StreamError(
            "connection",
            f"The connection to {address} was cut in mid-stream after {len(events)} events. The server, or a "
            "proxy before it, stopped. Look at the last lines of the server's log, then send it again.",
        )
    if failure is not None:
        return StreamError(
            "connection",
            f"No answer from {address}: {_reason(failure)}. Is the server up, and is this its address? Try "
            f"curl {address}/models. The address comes from {BASE_URL_VARIABLE}; without it the lessons use "
            "the engine on this machine.",
        )
    if not events:
        return StreamError(
            "stream",
            f"{address} answered, but with neither events nor JSON: {_short(body)!r}. Is this the address of "
            f"an OpenAI-compatible server? It should end in /v1; it comes from {BASE_URL_VARIABLE}.",
        )
    if not answered:
        return StreamError(
            "stream",
            f"{address} answered, but not with a chat completion: nothing in {_short(body)!r} has choices. "
            "Is this the address of an OpenAI-compatible server? It should end in /v1; it comes from "
            f"{BASE_URL_VARIABLE}. If it is, look at the last lines of the server's log.",
        )
    if streamed and not any(_finishes(event) for event in events):
        return StreamError(
            "stream",
            f"The stream from {address} ended before the answer did: no finish_reason and no {DONE} after "
            f"{len(events)} events. Look at the last lines of the server's log, then send the request again.",
        )
    return None


def about_status(
    server: Server, status: int, body: str, *, model: str | None = None, location: str | None = None
) -> str:
    """What an HTTP status other than success means here, what the server said, and what to do."""
    address = shown(server.base_url)
    if status == 401:
        what = "It refused the key it was given" if server.api_key else "It wants a key, and none was given"
        todo = f"Set {API_KEY_VARIABLE} to a key for this server and restart the notebook's kernel."
    elif status == 403:
        what = f"This key may not use {model or 'it'}"
        todo = f"Set {API_KEY_VARIABLE} to a key that may, and restart the notebook's kernel."
    elif status == 404:
        what = f"It has no model named {model or server.model}, or no chat completions at this address"
        todo = (
            f"List its models with curl {address}/models and set {MODEL_VARIABLE} to one of them; the "
            f"address ({BASE_URL_VARIABLE}) should end in /v1."
        )
    elif status == 429:
        what, todo = "Too many requests for it", "Wait a minute, then send fewer at a time."
    elif status in (502, 503, 504):
        what = "It is not ready, or the machine behind it is not"
        todo = "An endpoint that was asleep needs minutes to start: wait, then send the request again."
    elif status >= 500:
        what, todo = "It failed inside", "Look at the last lines of the server's log; they say why."
    elif status < 400:
        what = f"It points to another address{', ' + shown(location) if location else ''}"
        todo = f"Set {BASE_URL_VARIABLE} to the address that answers itself; a detour would be timed too."
    else:
        what = "It did not accept the request"
        todo = "Change what it names: the prompt may be too long, or a field unknown to this server."
    said = _detail(body)
    return f"{address} answered HTTP {status}. {what}.{f' It said: {said!r}.' if said else ''} {todo}"


def shown(address: str) -> str:
    """An address without the user name and password that a URL may hold."""
    if "@" not in address:
        return address
    try:
        return str(URL(address).with_user(None))
    except ValueError:
        return address.rpartition("@")[2]


def read_chunk(event: str) -> dict[str, Any] | None:
    """The JSON object in the payload of an event; None if there is none that can be read."""
    try:
        chunk = json.loads(event)
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        return None
    return chunk if isinstance(chunk, dict) else None


def reported(chunk: dict[str, Any]) -> Any:
    """The error that a chunk reports; None if it reports none.

    The usual place is ``error``. Some servers send a ``message`` or a ``detail`` instead of ``choices``.
    """
    if chunk.get("error"):
        return chunk["error"]
    if isinstance(chunk.get("choices"), list):
        return None
    said = next((chunk[name] for name in ("message", "detail") if chunk.get(name)), None)
    if isinstance(said, str | list):
        return said
    return chunk if "error" in (chunk.get("object"), chunk.get("type")) else None


def as_json(value: Any) -> str:
    """A value that came as JSON, as JSON again; an ellipsis if it is nested too deeply for that."""
    try:
        return json.dumps(value)
    except RecursionError:
        return "…"


def _trouble_in(event: str) -> str | None:
    """What an event reports, or what is wrong with it."""
    if event == DONE:
        return None
    chunk = read_chunk(event)
    if chunk is None:
        return (
            f"The server sent an event that is not a JSON object: {_short(event)!r}. Is there a proxy in "
            "between? Ask the server directly."
        )
    if reported(chunk):
        return (
            f"The server stopped with an error. It said: {_detail(event)!r}. Look at the last lines of its "
            "log, then send the request again."
        )
    return None


def _finishes(event: str) -> bool:
    choices = (read_chunk(event) or {}).get("choices")
    choices = choices if isinstance(choices, list) else []
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _detail(body: str) -> str:
    """What the server itself says about an error, in whichever of the usual places."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return _short(body)
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and said.get(name):
            said = said[name]
    return _short(said if isinstance(said, str) else as_json(said))


def _short(text: str, most: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _reason(failure: Exception) -> str:
    refused = isinstance(getattr(failure, "os_error", None), ConnectionRefusedError)
    if refused:
        return "connection refused"
    if isinstance(failure, aiohttp.InvalidURL):
        return "this is not a URL"
    if isinstance(failure, aiohttp.ClientConnectorDNSError):
        return "there is no machine of this name"
    if isinstance(failure, aiohttp.ServerDisconnectedError):
        return "it closed the connection without a word"
    return _short(str(failure) or type(failure).__name__)
