"""What goes beyond the OpenAI API, and what to do with a server that refuses it.

The lessons send a few fields that vLLM knows and the API does not: the switch for thinking, a budget for it,
structured output. A server that answers 400 to them gets the requests without them (``Server.plain``); the
cells then still run, with less to see.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from helpers.settings import Server

FIELDS = ("chat_template_kwargs", "thinking_token_budget", "structured_outputs", "ignore_eos", "min_tokens")


def accepted(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """The request as this server takes it: without :data:`FIELDS` if it refuses them."""
    if not server.plain:
        return request
    return {name: value for name, value in request.items() if name not in FIELDS}


def refused(server: Server, *, timeout_s: float = 30) -> bool:
    """Whether the server answers 400 or 422 to a request of one token that has the switch for thinking, and
    200 to the same without it. What else goes wrong is left for the lessons' own requests to meet."""
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    switch = {"chat_template_kwargs": {"enable_thinking": False}}
    return _status(server, body | switch, timeout_s) in (400, 422) and _status(server, body, timeout_s) == 200


def _status(server: Server, body: dict[str, Any], timeout_s: float) -> int | None:
    headers = {"Content-Type": "application/json"}
    if server.api_key:
        headers["Authorization"] = f"Bearer {server.api_key}"
    address = server.base_url + "/chat/completions"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=timeout_s
        ) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return None
