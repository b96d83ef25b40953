"""Plain requests to a server's other pages: health, models, metrics.

The timed requests go through :mod:`helpers.streaming`; these are the untimed ones around them.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
from prometheus_client.parser import text_string_to_metric_families

from helpers.settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    MODEL_VARIABLE,
    CourseError,
    Server,
)

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

    Raises:
        Refused: what happened, why it may be, and what to type next.
    """
    address = root(server) + path
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    host = urlsplit(address).hostname or ""
    # A proxy set for the outside world must not catch what stays on this machine.
    local = host == "localhost" or host.startswith("127.") or host == "::1"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if local else None), _NoRedirect)
    try:
        with opener.open(urllib.request.Request(address, headers=headers), timeout=timeout_s) as response:
            text = response.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        moved = error.headers.get("Location", "") if 300 <= error.code < 400 else ""
        raise Refused(_status_help(address, error.code, moved), error.code) from error
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
    try:
        return [str(entry["id"]) for entry in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{root(server)}/v1/models did not answer with a list of models, so this is not an "
            f"OpenAI-compatible server.\nCheck {BASE_URL_VARIABLE}."
        ) from error


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
        Refused: see :func:`page`; many hosted servers do not show this page.
    """
    rows = [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value, "kind": family.type}
        for family in text_string_to_metric_families(page(server, "/metrics"))
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
    edges = buckets.assign(le=buckets["labels"].map(lambda labels: float(labels["le"])))
    return edges.groupby("le", as_index=False)["value"].sum().rename(columns={"value": "count"})
