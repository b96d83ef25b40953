"""JupyterLab as `make lab` starts it, with a fake vLLM behind it: what it shows, and that nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from test_engine import Course, eventually

from helpers import lab, supervisor
from helpers.settings import REPO

# helpers.lab with the fake in the place of vLLM, which is kept for only 1 s after its last user.
LAB = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from helpers import engine, lab, model, recipes

    fake, mode = sys.argv[1:3]
    engine.GRACE_SECONDS = 1.0
    engine.why_not_embedded = lambda: None
    model.prepare = lambda say: Path("no-model")
    recipes.command = lambda recipe, path, name, host, port: [sys.executable, fake, mode, str(port)]
    sys.exit(lab.main(sys.argv[3:]))
    """
)


class Lab(Course):
    """A course whose callers are labs."""

    def __init__(self, folder):
        super().__init__(folder)
        # Jupyter's own settings of this machine's user stay out of it.
        self.own = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "DATA", "RUNTIME")}
        self.own |= {"PHONELLM_WORKSPACE": str(self.workspace), "HOME": str(folder)}

    def open(self, mode="ok", stdin=subprocess.DEVNULL) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", LAB, str(self.fake), mode, "--no-browser"],
            cwd=REPO,
            env=os.environ | self.own,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def stop(self) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "helpers.lab", "stop"],
            cwd=REPO, env=os.environ | self.own, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        return done.stdout + done.stderr

    def lab(self) -> str:
        """The name of the lab's process."""
        return json.loads((self.workspace / "lab.json").read_text())["lab"]

    def end(self) -> None:
        names = (self.workspace / "lab.json").exists() and self.lab()
        super().end()
        if names and supervisor.runs(names):
            supervisor.end(int(names.split("-")[0]), polite_seconds=0)


@pytest.fixture
def course(tmp_path):
    course = Lab(tmp_path)
    yield course
    course.end()


def ready(process) -> str:
    """The lab's address, when both it and the engine are up (in whichever order they say so)."""
    said = ""
    while "the lab is at " not in said or "engine: ready" not in said:
        line = process.stdout.readline()
        assert line, f"the lab ended:\n{said}"
        said += line
    return next(line for line in said.splitlines() if line.startswith("the lab is at ")).split()[-1]


def get(address: str) -> tuple[int, str, str]:
    """Status, final address and text."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=30) as answer:
            return answer.status, answer.geturl(), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, address, ""


def test_the_lab_opens_at_the_lesson_for_its_user_alone_and_sigterm_ends_all(course):
    starter = course.open()
    address = ready(starter)
    parts = urlsplit(address)
    token = parse_qs(parts.query)["token"][0]
    root = f"{parts.scheme}://{parts.netloc}"
    assert len(token) >= 32
    assert parts.path.endswith("lessons/00_start_here.ipynb")

    members = [psutil.Process(starter.pid), *psutil.Process(starter.pid).children(recursive=True)]
    listening = {
        link.laddr.ip for one in members for link in one.net_connections("inet") if link.status == "LISTEN"
    }
    assert listening == {"127.0.0.1"}

    assert get(f"{root}/api/contents")[0] == 403, "nobody else on this machine may read along"
    status, _, text = get(f"{root}/api/contents/lessons/00_start_here.ipynb?token={token}")
    assert status == 200
    assert json.loads(text)["writable"] is True
    status, landed, _ = get(f"{root}/?token={token}")
    assert status == 200
    assert urlsplit(landed).path == parts.path

    lab_process = course.lab()
    again = course.open().communicate(timeout=60)[0]
    assert f"the lab already runs; it is at {address}" in again
    assert course.lab() == lab_process

    starter.send_signal(signal.SIGTERM)
    said = starter.communicate(timeout=60)[0]
    assert said.splitlines()[-1] == "the lab has ended, and the engine with it"
    assert not supervisor.runs(lab_process)
    assert not (course.workspace / "lab.json").exists()
    assert course.processes() == []


def test_stop_ends_the_lab_and_the_engine(course):
    starter = course.open()
    ready(starter)
    lab_process = course.lab()
    assert course.stop().splitlines()[0] == "stopped the lab"
    assert not supervisor.runs(lab_process)
    assert eventually(lambda: starter.poll() is not None)
    assert course.processes() == []
    assert course.stop() == "nothing was running\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_ctrl_c_asks_and_then_ends_all(course):
    """As at a real terminal: only there JupyterLab asks back. Elsewhere it would end at once, unasked."""
    ours, theirs = os.openpty()
    try:
        starter = course.open(stdin=theirs)
        ready(starter)
        lab_process = course.lab()
        os.killpg(starter.pid, signal.SIGINT)
        asked = ""
        while "Shut down this Jupyter server" not in asked or not asked.endswith("? "):
            letter = starter.stdout.read(1)
            assert letter, f"it ended unasked: {asked}"
            asked += letter
        os.write(ours, b"y\n")
        said = starter.communicate(timeout=60)[0]
    finally:
        os.close(ours)
        os.close(theirs)
    assert "the lab has ended, and the engine with it" in said
    assert "Traceback" not in said
    assert not supervisor.runs(lab_process)
    assert course.processes() == []


def test_ctrl_c_without_a_terminal_ends_all(course):
    starter = course.open()
    ready(starter)
    os.killpg(starter.pid, signal.SIGINT)
    assert "the lab has ended, and the engine with it" in starter.communicate(timeout=60)[0]
    assert course.processes() == []


def test_the_lab_may_be_closed_while_the_engine_still_starts(course):
    starter = course.open("slow")
    assert eventually(lambda: course.state.get("server"))
    begun = time.monotonic()
    starter.send_signal(signal.SIGTERM)
    starter.communicate(timeout=60)
    assert time.monotonic() - begun < 30
    assert course.processes() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_killing_what_started_it_leaves_nothing(course):
    starter = course.open()
    ready(starter)
    lab_process = course.lab()
    assert course.servers()
    starter.kill()
    assert eventually(lambda: not supervisor.runs(lab_process))
    assert eventually(lambda: course.processes() == []), "the engine has no user any more"
    assert "lab" not in course.stop()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"lab": 1}', '{"lab": "1-1.0", "starter": "1-1.0"}'])
def test_a_spoilt_note_of_a_lab_is_as_none(tmp_path, monkeypatch, text):
    (tmp_path / "lab.json").write_text(text)
    monkeypatch.setattr(lab, "workspace", tmp_path.joinpath)
    assert lab.stop() == []


def test_of_several_starts_at_once_one_opens_the_lab(course):
    starters = [course.open() for _ in range(3)]
    assert eventually(lambda: sum(starter.poll() is not None for starter in starters) == 2)
    [winner] = [starter for starter in starters if starter.poll() is None]
    address = ready(winner)
    for starter in starters:
        if starter is not winner:
            assert f"the lab already runs; it is at {address}" in starter.communicate(timeout=60)[0]
    labs = [
        child
        for child in psutil.Process(winner.pid).children()
        if child.is_running() and "jupyterlab" in child.cmdline()
    ]
    assert [supervisor.identity(child.pid) for child in labs] == [course.lab()]


def test_without_a_folder_to_write_in_one_line_says_so(course):
    course.workspace.write_text("a file is in the way")
    starter = course.open()
    said = starter.communicate(timeout=60)[0]
    assert starter.returncode == 1
    assert len(said.splitlines()) == 1
    assert "set PHONELLM_WORKSPACE to another folder" in said
    assert course.stop() == "nothing was running\n"
    course.workspace.unlink()


def test_only_the_note_of_its_own_lab_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "workspace", tmp_path.joinpath)
    note = tmp_path / "lab.json"
    note.write_text('{"lab": "1-1.0", "starter": "1-1.0"}')
    lab._forget()
    assert note.exists()
    lab._remember(os.getpid())
    lab._forget()
    assert not note.exists()
