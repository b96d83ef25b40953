"""Runs one server for the course and makes sure that nothing of it is left behind.

:mod:`helpers.engine` starts this small process; it starts the server (vLLM, or the replay of recorded runs)
in a process group of its own and then watches:

* the server ended by itself -> say so in the state file and end;
* it was asked to end (SIGTERM, ``make stop``) -> end the server, politely first;
* none of the processes that use the server is alive any more (a notebook kernel, the lab, a test run: each
  left a small file under ``users/``) for a while -> end the server;
* the state file no longer names this supervisor (another took its place, or the folder was deleted), so that
  nobody could find the server any more -> end it.

So a killed kernel, a crashed test or a closed laptop lid never leaves a server running for good, and a second
notebook finds the first one's server.

Used as: ``python -m helpers.supervisor FOLDER GRACE_SECONDS -- COMMAND ...``
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from filelock import FileLock, Timeout

POLL_SECONDS = 0.5
POLITE_SECONDS = 10.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # see prctl(2)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def identity(pid: int) -> str | None:
    """``pid-start time``: a process's name that is not reused as a bare pid is. None if it does not run."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        if sys.platform != "linux":
            return f"{pid}-{process.create_time():.2f}"
        # In ticks since the machine started: the time of day changes when the clock is set, as after a sleep.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid}-{fields[19]}"
    except (psutil.NoSuchProcess, OSError):
        return None


def runs(name: str) -> bool:
    """Whether the process with this identity still runs."""
    pid = name.split("-")[0]
    return pid.isdigit() and identity(int(pid)) == name


def users(folder: Path) -> list[str]:
    """Identities of the live processes that use the server; files of dead ones are cleared away. The user
    ``keep`` is no process: it holds the server until it is stopped by name."""
    alive = []
    for path in (folder / "users").glob("*"):
        if path.name == "keep" or runs(path.name):
            alive.append(path.name)
        else:
            path.unlink(missing_ok=True)
    return alive


def write_state(folder: Path, state: dict) -> None:
    """Replace the state file whole, so that no reader ever sees half of one."""
    temporary = folder / f".state-{os.getpid()}"
    temporary.write_text(json.dumps(state, indent=1) + "\n")
    temporary.replace(folder / "state.json")


def read_state(folder: Path) -> dict | None:
    """The last written state, or None."""
    try:
        state = json.loads((folder / "state.json").read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def end(pid: int, polite_seconds: float = POLITE_SECONDS) -> None:
    """End a process and all its descendants: politely, and by force what is left after a while."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    _end_all(family, polite_seconds)


def _end_all(family: list[psutil.Process], polite_seconds: float = POLITE_SECONDS) -> None:
    names = {identity(process.pid): process for process in family}
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    left = wait_for([name for name in names if name], polite_seconds)
    for name in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            names[name].kill()
    wait_for(left, polite_seconds)


def wait_for(names: list[str], seconds: float) -> list[str]:
    """Wait until these processes have ended; returns those that still run after so long. (psutil's own wait
    goes on until the parent has taken note, and that may be a kernel that is busy with other things.)"""
    deadline = time.monotonic() + seconds
    while (left := [name for name in names if runs(name)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def die_with_parent() -> None:
    """In a child, before its program starts: the kernel ends it if its parent is killed outright (Linux)."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _start(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start the server in a process group of its own; on Linux it is also told to end if the supervisor is
    killed outright."""
    own: dict[str, Any] = {}
    if os.name == "posix":
        own["process_group"] = 0
    if sys.platform == "linux":
        own["preexec_fn"] = die_with_parent
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **own)


def main(folder: Path, grace_seconds: float, command: list[str]) -> int:
    """Start the command, watch, end it; returns the process's exit status."""
    asked: list[int] = []
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, frame: asked.append(number))
    me = identity(os.getpid())
    state = read_state(folder) or {}
    if state.get("command", command) != command:
        return 0  # whoever started this one was killed, and somebody else has begun anew
    if sys.platform == "linux":
        # Children of a server that was killed outright become this process's own, and can be found and ended.
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    with (folder / "server.log").open("ab") as log:
        server = _start(command, log)
    state.update(supervisor=me, server=identity(server.pid), phase="running", ended=None, why=None)
    write_state(folder, state)
    why = "it ended by itself"
    last_used = time.monotonic()
    while server.poll() is None:
        if asked:
            why = "it was stopped"
            break
        if (read_state(folder) or {}).get("supervisor") != me:
            why = "another took its place"
            break
        if users(folder):
            last_used = time.monotonic()
        elif time.monotonic() - last_used > grace_seconds and _may_stop(folder):
            why = "nobody used it any more"
            break
        time.sleep(POLL_SECONDS)
    code = server.poll()
    _end_all(psutil.Process().children(recursive=True))
    server.wait()
    state = read_state(folder) or {}
    if state.get("supervisor") == me:
        state.update(phase="ended", why=why, ended=time.time(), exit_code=code)
        write_state(folder, state)
    return 0


def _may_stop(folder: Path) -> bool:
    # Whoever starts or looks for the server holds this lock; then a user may be about to appear.
    try:
        with FileLock(folder / "lock", timeout=0):
            if users(folder):
                return False
            write_state(folder, {**(read_state(folder) or {}), "phase": "ending"})
            return True
    except (Timeout, OSError):  # OSError: the folder is gone; the loop sees that next
        return False


if __name__ == "__main__":
    place, grace, _, *rest = sys.argv[1:]
    sys.exit(main(Path(place), float(grace), rest))
