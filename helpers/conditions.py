"""Under what something was measured, and what of that stays private.

:func:`conditions` puts it together; it stands in every recorded run (:mod:`helpers.recorded`) and beside each
run that a learner saves (:mod:`helpers.runs`). A number without its machine, server and date says nothing.

Nothing private is kept: :func:`cleaner` takes API keys, host names and folders of the machine out of every
text before it is written. Request headers never get here.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import socket
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import psutil

from helpers import api, machine, recipes
from helpers.settings import API_KEY_VARIABLE, REPO, WORKSPACE, Server

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def conditions(server: Server, lesson: str) -> dict[str, Any]:
    """Under what a run is recorded: date, machine, server. Asks the server for its version.

    ``machine`` is the one that this runs on: the server's too if ``server["where"]`` says "this machine",
    otherwise only the client's. ``flags`` and ``birth_ms`` (see :func:`helpers.engine.birth`) are known for
    the embedded engine.
    """
    host = urlsplit(server.base_url).hostname or ""
    known: dict[str, Any] = {"flags": [], "environment": {}, "birth_ms": []}
    try:
        state = json.loads((WORKSPACE / "engine" / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        state = {}
    if state.get("base_url") == server.base_url:
        known = {
            "flags": _flags(state.get("command", [])),
            "environment": {flag.name: flag.value for flag in recipes.EMBEDDED.environment},
            "birth_ms": state.get("birth_ms", []),
        }
    about = {
        "lesson": lesson,
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": machine.processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        },
        "os": machine.system(),
        "python": platform.python_version(),
        "server": {
            "name": server.name.removesuffix(f" at {host}"),
            "version": _version(server),
            "model": server.model,
            "where": "this machine" if host in LOOPBACK else "another machine",
            **known,
        },
    }
    return cleaned(about, cleaner(server))


def _version(server: Server) -> str | None:
    try:
        return str(json.loads(api.page(server, "/version"))["version"])
    except (api.Refused, ValueError, KeyError, TypeError):
        return None  # this page is vLLM's own; other servers need not have it


def _flags(command: list[str]) -> list[str]:
    """The flags of a command line, without address and folders, which mean nothing on another machine."""
    words = command[next((i for i, word in enumerate(command) if word.startswith("--")), len(command)) :]
    kept: list[str] = []
    for before, word in pairwise(["", *words]):
        if not {before, word} & {"--host", "--port"}:
            kept.append(_last_part(word))
    return kept


def _last_part(word: str) -> str:
    path = PureWindowsPath(word) if re.match(r"[A-Za-z]:[\\/]", word) else PurePosixPath(word)
    return path.name if path.is_absolute() else word


def cleaner(server: Server | None = None) -> Callable[[str], str]:
    """A function that takes out of a text what is nobody's business: keys become ``[key]``, the name of this
    machine ``[machine]``, that of a server elsewhere ``[server]``; of a folder's path the last part stays."""
    stand_ins: dict[str, str] = {}
    for key in (server.api_key if server else None, os.environ.get(API_KEY_VARIABLE)):
        if key and len(key.strip()) >= 8:  # a stand-in such as "EMPTY" is no secret
            stand_ins[re.escape(key.strip())] = "[key]"
    host = urlsplit(server.base_url).hostname if server else None
    if host and host not in LOOPBACK:
        stand_ins[rf"(?<![\w.-]){re.escape(host)}(?![\w-])"] = "[server]"
    machine = socket.gethostname()
    if machine not in ("", *LOOPBACK):
        stand_ins[rf"(?<![\w.-]){re.escape(machine)}(?![\w-])"] = "[machine]"
    words = [(re.compile(pattern, re.IGNORECASE), stand_in) for pattern, stand_in in stand_ins.items()]
    home = str(Path.home())
    folders = [folder for folder in (REPO, WORKSPACE, Path(home), Path(sys.prefix)) if len(folder.parts) > 1]
    own = "|".join(re.escape(str(folder)) for folder in folders)
    usual = r"/(?:home|Users|root|tmp|var|opt|usr|mnt|srv|private)(?=/)|[A-Za-z]:\\+Users(?=\\)"
    paths = re.compile(rf"(?<![\w/.-])(?:{own}|{usual})(?:[\\/]+[\w.@+-]+)*[\\/]*")

    homes = re.compile(rf"{re.escape(home)}|/(?:home|Users)/[^/]+|[A-Za-z]:\\+Users\\+[^\\]+")

    def last_part(match: re.Match[str]) -> str:
        path = match[0].rstrip("\\/")
        if homes.fullmatch(path):  # its last part is a person's name
            return "[home]"
        return re.split(r"[\\/]+", path)[-1]

    def clean(text: str) -> str:
        for pattern, stand_in in words:
            text = pattern.sub(stand_in, text)
        return paths.sub(last_part, text)

    return clean


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A value of JSON with each text in it cleaned; names of fields stay as they are."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: cleaned(entry, clean) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(entry, clean) for entry in value]
    return value
