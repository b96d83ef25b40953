"""Opens JupyterLab at lesson 00 with the engine starting behind it, and stops both together.

``make lab`` runs this. The lab listens on this machine only, with Jupyter's own access token. Further words
go to JupyterLab: ``make lab LAB="--no-browser --port 8890"``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from filelock import FileLock

from helpers import engine, lessons, supervisor
from helpers.settings import REPO, WORKSPACE, CourseError, cannot_write, workspace

FIRST_LESSON = "00_start_here.ipynb"


def main(words: list[str]) -> int:
    """Copy the lessons to the learner's folder, open the lab, start the engine; end when the lab ends.

    Returns:
        The exit status: the lab's own, or 1 where it could not be opened (the reason is then printed).
    """
    try:
        return _open(words)
    except CourseError as error:
        reason = error
    except OSError as error:
        reason = cannot_write(error)
    print(" ".join(str(reason).split()), flush=True)
    return 1


def _open(words: list[str]) -> int:
    root = REPO if WORKSPACE.is_relative_to(REPO) else WORKSPACE
    first = (WORKSPACE / "lessons" / FIRST_LESSON).relative_to(root).as_posix()
    # Until a new lab is noted down: of several starts at once, one opens it and the others find it.
    with FileLock(workspace("lab.lock")):
        names = _running()
        lab = None if names else _start(root.as_posix(), first, words)
    if lab is None:
        where = _await_address(_pid(names["lab"]), first) if names else None
        print(f"the lab already runs; it is at {where or 'some other address'}")
        return 0
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, frame: lab.terminate())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the lab, which asks back
    threading.Thread(target=_say_where, args=(lab.pid, first), daemon=True).start()
    threading.Thread(target=_start_engine, daemon=True).start()
    code = lab.wait()
    _forget()
    engine.release()
    print("the lab has ended, and the engine with it")
    return code


def _start(root: str, first: str, words: list[str]) -> subprocess.Popen[bytes]:
    lessons.copy()
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    command += [f"--LabApp.default_url=/lab/tree/{first}", "--ServerApp.ip=127.0.0.1"]
    command += ["--LabApp.news_url=None", "--ServerApp.log_level=WARN"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command += ["--ServerApp.allow_root=True"]  # as in a container; Jupyter asks to be told
    own: dict[str, Any] = {"preexec_fn": supervisor.die_with_parent} if sys.platform == "linux" else {}
    lab = subprocess.Popen([*command, *words], **own)
    try:
        _remember(lab.pid)
    except BaseException:  # nobody could find it any more
        lab.terminate()
        lab.wait()
        raise
    return lab


def stop() -> list[str]:
    """Stop the lab that ``make lab`` started, if it runs; returns a line if it did."""
    names = _running()
    if not names:
        return []
    # The lab first: what started it then lets go of the engine by itself.
    supervisor.end(_pid(names["lab"]))
    supervisor.wait_for([names["starter"]], 30)
    return ["stopped the lab"]


def _running() -> dict[str, str] | None:
    """The names of the processes of the lab that runs, and of what started it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, CourseError):
        names = json.loads(workspace("lab.json").read_text())
        if supervisor.runs(str(names["lab"])):
            return {"lab": names["lab"], "starter": names["starter"]}
    return None


def _pid(name: str) -> int:
    return int(name.split("-")[0])


def _remember(pid: int) -> None:
    names = {"lab": supervisor.identity(pid), "starter": supervisor.identity(os.getpid())}
    workspace("lab.json").write_text(json.dumps(names))


def _forget() -> None:
    """Remove the note of the lab, if it is still about the one that this process started."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, CourseError):
        note = workspace("lab.json")
        if json.loads(note.read_text())["starter"] == supervisor.identity(os.getpid()):
            note.unlink()


def _say_where(pid: int, first: str) -> None:
    """Print the lab's address as soon as it has one; needed where no browser opens by itself."""
    if address := _await_address(pid, first):
        print(f"the lab is at {address}", flush=True)


def _await_address(pid: int, first: str) -> str | None:
    """Its address as soon as it has one; None if it has none after a minute, or has ended."""
    name = supervisor.identity(pid)
    for _ in range(240):
        if address := _address(pid, first):
            return address
        if not name or not supervisor.runs(name):
            break
        time.sleep(0.25)
    return None


def _address(pid: int, first: str) -> str | None:
    """Where a browser finds the first lesson in the lab with this pid, key included; None if it is not up."""
    from jupyter_server.serverapp import list_running_servers

    for running in list_running_servers():
        if running["pid"] == pid:
            token = f"?token={running['token']}" if running["token"] else ""
            return f"{running['url']}lab/tree/{first}{token}"
    return None


def _start_engine() -> None:
    shown = ""

    def say(line: str) -> None:
        nonlocal shown
        words = line.lstrip(" 0123456789").removeprefix("s").strip()
        if words != shown:  # only what is more than another second, the lab's own lines stand around it
            print(f"engine: {words}", flush=True)
            shown = words

    try:
        engine.connect(say)
    except CourseError as error:
        print(f"engine: {error}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["stop"]:
        try:
            print("\n".join(stop() + engine.stop()) or "nothing was running")
        except CourseError as error:
            sys.exit(str(error))
    else:
        sys.exit(main(sys.argv[1:]))
