"""Names of processes, users, the state file, and ending a server with everything that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from helpers import supervisor
from helpers.settings import REPO

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
FAMILY = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); {SLEEPER}"
# Prints its child's pid and never takes note of the child's end.
CARELESS = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], stdout=subprocess.DEVNULL)\n"
    "print(child.pid, flush=True); time.sleep(600)"
)


@pytest.fixture
def start():
    """Start a Python program and wait for its first line; all are ended after the test."""
    started = []

    def start(code, *words, **own):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, cwd=REPO, **own
        )
        started.append(process)
        process.line = process.stdout.readline()
        return process

    yield start
    for process in started:
        for member in [*children(process.pid), process]:
            member.kill()
        process.wait()
        process.stdout.close()


def children(pid):
    return psutil.Process(pid).children(recursive=True) if psutil.pid_exists(pid) else []


def eventually(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


# ---------------------------------------------------------------- names


def test_a_process_has_one_name_as_long_as_it_runs(start):
    process = start(SLEEPER)
    name = supervisor.identity(process.pid)
    assert name.startswith(f"{process.pid}-")
    assert supervisor.identity(process.pid) == name
    assert supervisor.runs(name)
    process.kill()
    process.wait()
    assert not supervisor.runs(name)
    assert supervisor.identity(process.pid) is None


def test_a_process_that_ended_unnoticed_by_its_parent_does_not_run(start):
    process = start(SLEEPER)
    name = supervisor.identity(process.pid)
    process.kill()
    assert eventually(lambda: not supervisor.runs(name))
    assert psutil.pid_exists(process.pid), "still there as a zombie"


def test_the_name_does_not_hang_on_the_clock(monkeypatch):
    """After a sleep or a correction of the clock psutil computes another start time for the same process."""
    name = supervisor.identity(os.getpid())
    clock = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: clock + 3600)
    assert psutil.Process(os.getpid()).create_time() > time.time()
    assert supervisor.identity(os.getpid()) == name
    assert supervisor.runs(name)


@pytest.mark.parametrize("name", ["", "x", "-", "None", "keep", "1", "999999999-1.00", f"{os.getpid()}-0.00"])
def test_what_names_no_running_process_does_not_run(name):
    assert not supervisor.runs(name)


def test_a_process_with_brackets_and_spaces_in_its_name(tmp_path):
    program = tmp_path / "a ) b ("
    program.symlink_to(sys.executable)
    process = subprocess.Popen(
        [program, "-c", SLEEPER], stdout=subprocess.PIPE, env={"PYTHONHOME": sys.base_prefix}
    )
    try:
        assert supervisor.runs(supervisor.identity(process.pid))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---------------------------------------------------------------- users and state


def test_users_are_those_who_live_and_keep(tmp_path):
    (tmp_path / "users").mkdir()
    me = supervisor.identity(os.getpid())
    for name in (me, "keep", "999999999-1.00", f"{os.getpid()}-0.00", ".DS_Store"):
        (tmp_path / "users" / name).touch()
    assert sorted(supervisor.users(tmp_path)) == sorted([me, "keep"])
    assert not (tmp_path / "users" / "999999999-1.00").exists()


def test_no_reader_ever_sees_half_a_state(tmp_path):
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            supervisor.write_state(tmp_path, {"number": number, "padding": "x" * 20000})
            number += 1

    supervisor.write_state(tmp_path, {"number": -1})
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [supervisor.read_state(tmp_path) for _ in range(300)]
    finally:
        done.set()
        writer.join()
    assert None not in seen
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", '"a"', "null", "\x00\x00"])
def test_a_state_that_is_none(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert supervisor.read_state(tmp_path) is None


# ---------------------------------------------------------------- ending


def test_end_takes_the_whole_family_and_force_where_needed(start):
    process = start(FAMILY)
    assert eventually(lambda: children(process.pid))
    family = [supervisor.identity(process.pid), *(supervisor.identity(c.pid) for c in children(process.pid))]
    assert len(family) == 2
    supervisor.end(process.pid, polite_seconds=0.5)
    assert [name for name in family if supervisor.runs(name)] == []
    supervisor.end(process.pid)  # one that is gone is no error


def test_ending_does_not_wait_for_a_careless_parent(start):
    parent = start(CARELESS)
    pid = int(parent.line)
    supervisor.end(pid, polite_seconds=60)
    assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_waiting_returns_those_that_still_run(start):
    name = supervisor.identity(start(SLEEPER).pid)
    assert supervisor.wait_for([name, "999999999-1.00"], 0.2) == [name]


# ---------------------------------------------------------------- the process itself


@pytest.fixture
def supervised(tmp_path):
    """Start a supervisor over a command; its folder and process. Everything is ended after the test."""
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / str(supervisor.identity(os.getpid()))).touch()
    started = []

    def begin(*command, grace="60"):
        process = subprocess.Popen(
            [sys.executable, "-m", "helpers.supervisor", str(tmp_path), grace, "--", *command], cwd=REPO
        )
        started.append(process)
        return process

    yield tmp_path, begin
    for process in started:
        for member in [*children(process.pid), process]:
            member.kill()
        process.wait()


def state_of(folder, **wanted):
    state = supervisor.read_state(folder) or {}
    return state if all(state.get(key) == value for key, value in wanted.items()) else None


def test_it_notes_what_it_started_and_how_it_ended(supervised):
    folder, begin = supervised
    process = begin(sys.executable, "-c", "print('last words'); raise SystemExit(7)")
    assert process.wait(30) == 0
    state = state_of(folder, phase="ended")
    assert state["exit_code"] == 7
    assert state["why"] == "it ended by itself"
    assert state["ended"] > 0
    assert (folder / "server.log").read_text() == "last words\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_asked_to_end_it_ends_the_server_first(supervised, number):
    folder, begin = supervised
    process = begin(sys.executable, "-c", SLEEPER)
    state = eventually(lambda: state_of(folder, phase="running"))
    process.send_signal(number)
    assert process.wait(30) == 0
    assert not supervisor.runs(state["server"])
    assert state_of(folder, phase="ended", why="it was stopped", exit_code=None)


def test_without_users_it_ends_after_the_grace_time(supervised):
    folder, begin = supervised
    process = begin(sys.executable, "-c", SLEEPER, grace="0.5")
    assert eventually(lambda: state_of(folder, phase="running"))
    time.sleep(1.5)
    assert process.poll() is None, "this test uses it"
    next((folder / "users").iterdir()).unlink()
    assert process.wait(30) == 0
    assert state_of(folder, phase="ended", why="nobody used it any more")


def test_while_somebody_holds_the_lock_it_does_not_end(supervised):
    folder, begin = supervised
    next((folder / "users").iterdir()).unlink()
    with supervisor.FileLock(folder / "lock"):
        process = begin(sys.executable, "-c", SLEEPER, grace="0")
        assert eventually(lambda: state_of(folder, phase="running"))
        time.sleep(1.5)
        assert process.poll() is None
    assert process.wait(30) == 0


def test_one_whose_place_was_taken_ends_its_server_and_says_nothing(supervised):
    folder, begin = supervised
    first = begin(sys.executable, "-c", SLEEPER)
    state = eventually(lambda: state_of(folder, phase="running"))
    begin(sys.executable, "-c", SLEEPER, "second")
    assert first.wait(30) == 0
    assert not supervisor.runs(state["server"])
    now = state_of(folder, phase="running")
    assert now["supervisor"] != state["supervisor"]
    assert supervisor.runs(now["server"])


def test_one_that_comes_too_late_starts_nothing(supervised):
    folder, begin = supervised
    supervisor.write_state(folder, {"command": ["another"], "port": 1})
    assert begin(sys.executable, "-c", SLEEPER).wait(30) == 0
    assert supervisor.read_state(folder) == {"command": ["another"], "port": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_killed_outright_it_takes_the_server_along(supervised):
    folder, begin = supervised
    process = begin(sys.executable, "-c", SLEEPER)
    state = eventually(lambda: state_of(folder, phase="running"))
    process.kill()
    process.wait()
    assert eventually(lambda: not supervisor.runs(state["server"]))


def test_state_is_plain_json_for_people(supervised):
    folder, begin = supervised
    begin(sys.executable, "-c", SLEEPER)
    assert eventually(lambda: state_of(folder, phase="running"))
    text = (folder / "state.json").read_text()
    assert text.endswith("}\n")
    assert set(json.loads(text)) == {"supervisor", "server", "phase", "ended", "why"}
