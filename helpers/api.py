"""Plain requests to a server's other pages: health, models, metrics.

The timed requests go through :mod:`helpers.streaming`; these are the untimed ones around them.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import pandas as pd
from prometheus_client.parser import text_string_to_metric_families

from helpers.settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    MODEL_VARIABLE,
    CourseError,
    Server,
)
from helpers.stream_errors import shown

MOST_BYTES = 16 * 2**20  # a larger page is none that the lessons read

# Called with (server, path, text) after each page that was read; the recorder of runs listens here.
on_page: list[Callable[[Server, str, str], None]] = []


class Refused(CourseError):
    """The server could not be reached or said no. ``status`` is its HTTP status, or None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would send the key along to wherever it is redirected."""

    def redirect_request(self, *request: Any) -> None:
        return None


def root(server: Server) -> str:
    """The server's address without the ``/v1`` of its API."""
    return server.base_url.removesuffix("/v1")


def page(server: Server, path: str, *, timeout_s: float = 10) -> str:
    """The text of one page, such as ``/metrics`` or ``/v1/models``.

    Args:
        server: whom to ask.
        path: which page, from the server's root.
        timeout_s: seconds until the whole page must be there.

    Raises:
        Refused: what happened, why it may be, and what to type next.
    """
    address = root(server) + path
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    try:
        text = _in_time(address, headers, timeout_s)
    except urllib.error.HTTPError as error:
        moved = error.headers.get("Location", "") if 300 <= error.code < 400 else ""
        # Of a redirect, urllib's own error may quote the whole address.
        cause = None if moved else error
        raise Refused(_status_help(address, error.code, _place(server, moved)), error.code) from cause
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise Refused(
            f"No answer from {address} ({reason}).\n"
            f"Is the server up, and is {BASE_URL_VARIABLE} its address, as in http://HOST:8000/v1 ? "
            f"Try: curl {address}"
        ) from error
    for listener in on_page:
        listener(server, path, text)
    return text


def _in_time(address: str, headers: dict[str, str], timeout_s: float) -> str:
    """Read a page in a thread, and leave that behind if it takes too long: the timeout of a socket begins
    anew with each byte, so a server that dribbles would hold us for ever."""
    deadline = time.monotonic() + timeout_s
    texts: list[str] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            texts.append(_read(address, headers, deadline))
        except Exception as error:  # for the caller, whichever it is
            errors.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    if not texts:
        raise Refused(
            f"{address} was not read to its end within {timeout_s:g} s.\n"
            f"Is the server overloaded, or is {BASE_URL_VARIABLE} another kind of server? Try: curl {address}"
        )
    return texts[0]


def _read(address: str, headers: dict[str, str], deadline: float) -> str:
    host = urlsplit(address).hostname or ""
    # A proxy set for the outside world must not catch what stays on this machine.
    local = host == "localhost" or host.startswith("127.") or host == "::1"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if local else None), _NoRedirect)
    request = urllib.request.Request(address, headers=headers)
    got = bytearray()
    with opener.open(request, timeout=max(deadline - time.monotonic(), 0.001)) as response:
        promised = response.length  # bytes; None if the server does not say
        while time.monotonic() < deadline and (piece := response.read1(65536)):
            got += piece
            if len(got) > MOST_BYTES:
                raise Refused(
                    f"{address} is longer than {MOST_BYTES / 2**20:.0f} MB, so it is no page that "
                    "a model server has.\n"
                    f"Check {BASE_URL_VARIABLE}, and look at: curl -s {address} | head"
                )
    if time.monotonic() >= deadline:
        raise TimeoutError("timed out")
    if promised is not None and len(got) < promised:
        raise http.client.IncompleteRead(bytes(got), promised - len(got))
    return got.decode("utf-8", "replace")


def _place(server: Server, location: str) -> str:
    """Where a redirect points, without what may be secret in it."""
    place = shown(location).partition("?")[0].partition("#")[0]
    for key in (server.api_key, quote(server.api_key or "", safe="")):
        place = place.replace(key, "***") if key else place
    return place


def _status_help(address: str, status: int, moved: str) -> str:
    if moved:
        return (
            f"{address} sends on to {moved} (HTTP {status}); the key is not sent there unasked.\n"
            f"If that is the server, put its address into {BASE_URL_VARIABLE}, then restart the kernel."
        )
    if status in (401, 403):
        return (
            f"{address} refused the key (HTTP {status}).\n"
            f"Set {API_KEY_VARIABLE} to a key that this server accepts, then restart the kernel."
        )
    if status == 404:
        return (
            f"{address} does not exist there (HTTP 404).\n"
            f"{BASE_URL_VARIABLE} should end where /v1/models begins, as in http://HOST:8000/v1"
        )
    if status in (502, 503, 504):
        return (
            f"{address} is not ready yet (HTTP {status}): it is starting, or a hosted endpoint that was "
            "asleep is waking up (that can take minutes).\nRun this cell again in a minute."
        )
    return f"{address} answered HTTP {status}.\nLook at the server's log, then run this cell again."


def models(server: Server) -> list[str]:
    """Names of the models that the server serves.

    Raises:
        Refused: see :func:`page`; also when the answer is not a list of models.
    """
    text = page(server, "/v1/models")
    wrong = Refused(
        f"{root(server)}/v1/models did not answer with a list of models, so this is not an "
        f"OpenAI-compatible server.\nCheck {BASE_URL_VARIABLE}."
    )
    try:
        entries = list(json.loads(text)["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise wrong from error
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    names = [name for name in ids if isinstance(name, str) and name]
    if entries and not names:
        raise wrong
    return names


def choose_model(server: Server, wanted: str | None) -> str:
    """The model to ask for: the wanted one, which the server must have, or the first one that it has.

    Raises:
        CourseError: the wanted model is not there, or there is none at all.
    """
    names = models(server)
    listed = ", ".join(names) or "none"
    if wanted is not None:
        if wanted not in names:
            raise CourseError(
                f"{root(server)} does not serve a model named {wanted!r}. It serves: {listed}.\n"
                f"Set {MODEL_VARIABLE} to one of these, or unset it to take the first."
            )
        return wanted
    if not names:
        raise CourseError(f"{root(server)} serves no model yet.\nRun this cell again in a minute.")
    return names[0]


def metrics(server: Server) -> pd.DataFrame:
    """The server's Prometheus page as a frame.

    Columns: ``name`` (sample name, such as ``vllm:time_to_first_token_seconds_bucket``), ``labels`` (dict),
    ``value`` (float; seconds where the name says so), ``kind`` (counter, gauge, histogram).

    Raises:
        Refused: see :func:`page`; also when the page is no such page. Many hosted servers do not show it.
    """
    text = page(server, "/metrics")
    try:
        families = list(text_string_to_metric_families(text))
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:  # the parser does not say what it raises
        raise Refused(
            f"{root(server)}/metrics is not a Prometheus page: it begins {text.strip()[:40]!r}.\n"
            f"Many hosted servers do not show theirs. Check {BASE_URL_VARIABLE}, or use the engine on this "
            "machine for what needs this page.",
            200,
        ) from error
    rows = [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value, "kind": family.type}
        for family in families
        for sample in family.samples
    ]
    return pd.DataFrame(rows, columns=["name", "labels", "value", "kind"])


def histogram(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """One histogram out of :func:`metrics`: columns ``le`` (upper edge of the bucket, in the metric's own
    unit; the last is infinite) and ``count`` (requests at or below it, summed over label sets).

    Raises:
        CourseError: the page has no such histogram.
    """
    buckets = frame[frame["name"] == f"{name}_bucket"]
    if buckets.empty:
        raise CourseError(f"The server's /metrics page has no histogram named {name}.")
    edges = buckets.assign(le=[_edge(labels.get("le")) for labels in buckets["labels"]]).dropna(subset="le")
    if edges.empty:
        raise CourseError(
            f"The histogram {name} on the server's /metrics page has no bucket with an edge.\n"
            f"Look at them: curl ADDRESS/metrics | grep {name}"
        )
    return edges.groupby("le", as_index=False)["value"].sum().rename(columns={"value": "count"})


def _edge(text: str | None) -> float:
    """The upper edge of a bucket; not a number where it has none."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")
