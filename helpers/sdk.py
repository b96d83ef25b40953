"""An ordinary ``openai`` client for the server of the lessons.

You could write ``OpenAI(base_url=..., api_key=...)`` yourself; in a project of your own you would. This one
also goes straight to a server on this machine, whatever proxy is set for the web, and takes the key out of an
answer that quotes it (some servers do, in "Incorrect API key"), so that it cannot end up in a saved notebook.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import openai

from helpers.extras import accepted
from helpers.settings import Server

# Arguments that the package knows by name; all others go into its extra_body.
KNOWN = ("model", "messages", "max_tokens", "temperature", "stream", "stream_options", "tools", "tool_choice")


def client(server: Server) -> openai.OpenAI:
    """A client that asks once (a second try would hide in a time) and keeps the key to itself."""
    key = (server.api_key or "").encode()

    def without_key(response: Any) -> None:
        if response.status_code >= 400 and len(key) >= 8:
            response._content = response.read().replace(key, b"[key]")

    http = openai.DefaultHttpxClient(trust_env=not _local(server), event_hooks={"response": [without_key]})
    return openai.OpenAI(
        base_url=server.base_url, api_key=server.api_key or "none", max_retries=0, http_client=http
    )


def arguments(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """A request body (:func:`helpers.streaming.chat_request`) as arguments of
    ``client.chat.completions.create``."""
    body = {"model": server.model} | accepted(server, request)
    extra = {name: value for name, value in body.items() if name not in KNOWN}
    return {name: body[name] for name in body if name in KNOWN} | {"extra_body": extra}


def _local(server: Server) -> bool:
    host = urlsplit(server.base_url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
