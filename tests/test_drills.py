"""Drills: a server of one's own fails, works, is killed, and never stays behind; elsewhere the record speaks.

A small program stands in for vLLM: it starts in a fraction of a second, and what it does is decided by the
value of ``--tool-call-parser``.
"""

import ast
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest
from fakeserver import DONE, ROLE, chunk, serve

from helpers import (
    api,
    child,
    drills,
    model,
    practice_serve,
    recipes,
    recorded,
    server_log,
    settings,
    sources,
    streaming,
    supervisor,
)
from helpers.settings import REPO, WORKSPACE, CourseError, Server

KEY = "sk-never-to-be-seen-0123456789"
FAKE = textwrap.dedent(
    """
    import http.server, json, os, subprocess, sys, threading, time
    mode, port = sys.argv[1], int(sys.argv[2])
    print("(APIServer pid=1) INFO 12-01 07:44:14 [x.py:1] non-default args:", mode, flush=True)
    print("environment:", sorted(os.environ), flush=True)
    if mode == "crash":
        print("(Worker pid=2) ERROR 12-01 07:44:15 [x.py:2] ValueError: no such weights", flush=True)
        print("(APIServer pid=1) RuntimeError: failed. See root cause above.", flush=True)
        sys.exit(3)
    core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # EngineCore"])
    print("core:", core.pid, flush=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def event(self, payload):
            self.wfile.write(b"data: " + json.dumps(payload).encode() + b"\\n\\n")
            self.wfile.flush()

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if core.poll() is not None:
                self.send_response(500)
                self.end_headers()
                self.wfile.write(b'{"error": {"message": "EngineCore encountered an issue."}}')
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for n in range(body["max_tokens"]):
                if n >= 10:
                    core.wait()
                    self.event({"error": {"message": "EngineCore encountered an issue."}})
                    return
                self.event({"choices": [{"index": 0, "delta": {"content": f"{n} "}, "finish_reason": None}]})
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\\n\\n")

        def log_message(self, *rest):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if mode == "ends":
        threading.Thread(target=lambda: (core.wait(), time.sleep(1), os._exit(0)), daemon=True).start()
    server.serve_forever()
    """
)
MAIN = Server("http://127.0.0.1:1/v1", "small", name="the shared one")


def command(fake):
    """In the place of recipes.command: the stand-in, told its mode by one of the flags."""

    def words(recipe, path, name, host, port):
        mode = next(flag.value for flag in recipe.flags if flag.name == "--tool-call-parser")
        return [sys.executable, str(fake), mode, str(port)]

    return words


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Children are the stand-in; all that were started are stopped, whatever happens."""
    fake = tmp_path / "fake_vllm.py"
    fake.write_text(FAKE)
    started = []
    real_start = child.start
    monkeypatch.setattr(recipes, "command", command(fake))
    monkeypatch.setattr(model, "prepare", lambda say: tmp_path)
    monkeypatch.setattr(drills, "why_not", lambda server: None)
    monkeypatch.setattr(child, "start", lambda *given: started.append(real_start(*given)) or started[-1])
    monkeypatch.setattr(
        child.Child, "as_server", lambda self: Server(f"http://127.0.0.1:{self.port}/v1", "small", name="own")
    )
    yield started
    for one in started:
        one.stop()


def ended(one):
    """Nothing of this child runs: not the supervisor, the server or the server's engine."""
    state = supervisor.read_state(one.folder)
    core = [line.split()[1] for line in one.log().splitlines() if line.startswith("core:")]
    names = [state.get("supervisor"), state.get("server")]
    left = supervisor.wait_for([str(name) for name in names], 30)
    return not left and not any(supervisor.identity(int(pid)) for pid in core)


def until(condition, seconds=30):
    """Wait for a condition; says whether it came true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_ready(session):
    with contextlib.suppress(ConnectionError):
        return session.ready()
    return False


# --- starts that fail -------------------------------------------------------------------------------------


def test_a_start_that_fails_is_told_with_its_log(stand_in, capsys):
    outcome = drills.run("crash", {"--tool-call-parser": "crash"}, MAIN)
    assert (outcome.exit_code, outcome.origin) == (3, "measured")
    assert server_log.cause(outcome.log) == "ValueError: no such weights"
    assert "See root cause above" in outcome.tail(1)
    assert "exit code 3" in capsys.readouterr().out
    assert ended(stand_in[0])
    kept = json.loads((WORKSPACE / "drills" / "last.json").read_text())
    assert kept["starts"]["crash"]["exit_code"] == 3


def test_one_that_does_start_is_said_and_stopped(stand_in, capsys):
    outcome = drills.run("good", {"--tool-call-parser": "ok"}, MAIN)
    assert outcome.exit_code is None
    assert "it runs" in capsys.readouterr().out
    assert ended(stand_in[0])


def test_another_server_at_the_port_does_not_answer_for_it(stand_in):
    with serve([(0, DONE)]) as other:
        port = drills.port_of(other.as_server())
        outcome = drills.run("taken", {"--tool-call-parser": "ok", "--port": port}, MAIN)
    assert outcome.exit_code == 1
    assert server_log.cause(outcome.log) == "OSError: [Errno 98] Address already in use"


def test_the_learners_key_stays_out_of_it(stand_in, monkeypatch):
    monkeypatch.setenv("PHONELLM_API_KEY", KEY)
    outcome = drills.run("key", {"--tool-call-parser": "crash", "VLLM_CPU_KVCACHE_SPACE": "9"}, MAIN)
    assert "PHONELLM_API_KEY" not in outcome.log
    assert "VLLM_CPU_KVCACHE_SPACE" in outcome.log


def test_too_little_memory_is_said_before_anything_starts(stand_in, monkeypatch):
    monkeypatch.setattr(child, "MEMORY_NEEDED_GIB", 10**6)
    with pytest.raises(CourseError, match="free memory"):
        drills.run("crash", {"--tool-call-parser": "crash"}, MAIN)
    assert stand_in == []


def test_one_that_was_only_just_started_is_stopped_too(stand_in):
    """Its supervisor has not even said yet that it runs."""
    child.start("early", {"--tool-call-parser": "ok"}).stop()
    assert not stand_in[0].lives()
    assert not until(lambda: listens(stand_in[0].port), 3)


def test_a_start_that_is_broken_off_leaves_nothing(stand_in, monkeypatch):
    """Interrupted after the supervisor was started, before anybody knew of it."""
    real, seen = subprocess.Popen, []

    def broken_off(*words, **options):
        seen.append(real(*words, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(child.subprocess, "Popen", broken_off)
    with pytest.raises(KeyboardInterrupt):
        child.start("broken-off", {"--tool-call-parser": "ok"})
    seen[0].wait(30)


def test_a_drill_whose_folder_is_removed_says_so(stand_in):
    one = child.start("gone", {"--tool-call-parser": "ok"})
    assert until(lambda: supervisor.read_state(one.folder).get("server"))
    shutil.rmtree(one.folder)
    with pytest.raises(CourseError, match="folder removed"):
        one.wait(ready=False)


@pytest.mark.parametrize("spoilt", ["[1, 2]", '{"starts": 5}', '{"session": []}', "{"])
def test_notes_that_are_spoilt_are_begun_anew(spoilt):
    path = WORKSPACE / "drills" / "last.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(spoilt)
    with pytest.raises(CourseError, match=r"no drills to keep|lacks engine"):
        drills.keep()
    drills._note("starts", {"one": {"exit_code": 1}})
    assert json.loads(path.read_text())["starts"] == {"one": {"exit_code": 1}}


def test_notes_that_cannot_be_written_stop_no_lesson(tmp_path, monkeypatch):
    (tmp_path / "drills").write_text("a file where the folder should be")
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path)
    drills._note("starts", {"one": {}})
    (tmp_path / "drills").unlink()
    (tmp_path / "drills" / "last.json").mkdir(parents=True)
    drills._note("starts", {"one": {}})


def test_two_drills_of_one_name_have_a_folder_each(stand_in):
    for _ in range(2):
        drills.run("twice", {"--tool-call-parser": "crash"}, MAIN)
    one, other = (started.folder for started in stand_in)
    assert one != other
    assert (one / "server.log").exists()


# --- one that works ---------------------------------------------------------------------------------------


def test_a_session_is_refused_gets_ready_answers_and_stops(stand_in):
    session = drills.session({"--tool-call-parser": "ok"}, MAIN)
    with pytest.raises(ConnectionError):
        session.ready()
    assert session.ready_s is None
    assert until(lambda: is_ready(session))
    assert session.ready_s > 0
    reply = session.ask("count", streaming.chat_request("hi", max_tokens=3))
    assert reply.error is None
    assert len(reply.events) == 5
    session.stop()
    assert ended(stand_in[0])
    kept = json.loads((WORKSPACE / "drills" / "last.json").read_text())["session"]
    assert list(kept["timelines"]) == ["count"]
    assert kept["refused"]


def test_a_killed_engine_breaks_the_stream_and_the_next_request(stand_in):
    session = drills.session({"--tool-call-parser": "ends"}, MAIN)
    assert until(lambda: is_ready(session))
    broken = session.kill_in_midstream(streaming.chat_request("hi", max_tokens=300))
    assert (broken.status, broken.chunks) == (200, drills.KILL_AFTER_CHUNKS)
    assert broken.text.startswith("0 1 2 ")
    assert "EngineCore encountered an issue" in broken.error
    assert "HTTP 500" in broken.next_error
    assert broken.exit_code == 0
    with pytest.raises(CourseError, match="has ended"):
        session.ready()
    session.stop()
    assert ended(stand_in[0])


def test_who_runs_the_cells_out_of_order_is_told(stand_in):
    """Asked or killed before it is ready, and after it was stopped."""
    session = drills.session({"--tool-call-parser": "ok"}, MAIN)
    with pytest.raises(CourseError, match="not ready yet"):
        session.kill_in_midstream(streaming.chat_request("hi"))
    with pytest.raises(CourseError, match="gave no answer"):
        session.ask("early", streaming.chat_request("hi"))
    for _ in range(2):
        session.stop()
    for late in (session.ready, lambda: session.kill_in_midstream({})):
        with pytest.raises(CourseError, match="has ended"):
            late()
    with pytest.raises(CourseError, match="has ended"):
        session.ask("late", streaming.chat_request("hi"))


def test_one_whose_end_is_known_has_ended_though_its_supervisor_still_ends(stand_in):
    one = child.start("crash", {"--tool-call-parser": "crash"})
    assert one.wait() == 3
    assert not replace(one, guard=supervisor.identity(os.getpid())).lives()


def test_a_second_session_ends_the_first_however_soon(stand_in):
    drills.session({"--tool-call-parser": "ok"}, MAIN)
    drills.session({"--tool-call-parser": "ok"}, MAIN).stop()
    assert not stand_in[0].lives()
    assert not until(lambda: listens(stand_in[0].port), 3)


def test_a_second_session_ends_the_first(stand_in):
    first = drills.session({"--tool-call-parser": "ok"}, MAIN)
    assert until(lambda: is_ready(first))
    second = drills.session({"--tool-call-parser": "ok"}, MAIN)
    assert ended(stand_in[0])
    assert until(lambda: is_ready(second))
    second.stop()


def test_nothing_stays_behind_a_killed_notebook(tmp_path):
    fake = tmp_path / "fake_vllm.py"
    fake.write_text(FAKE)
    code = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from helpers import child, model, recipes
        recipes.command = lambda *of: [sys.executable, sys.argv[1], "ok", str(of[-1])]
        model.prepare = lambda say: Path("no-model")
        one = child.start("left", {})
        print(one.port, flush=True)
        time.sleep(600)
        """
    )
    notebook = subprocess.Popen(
        [sys.executable, "-c", code, str(fake)],
        cwd=REPO,
        env=os.environ | {"PHONELLM_WORKSPACE": str(tmp_path / "ws")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(notebook.stdout.readline())
        assert until(lambda: listens(port))
    finally:
        notebook.send_signal(signal.SIGKILL)
        notebook.communicate(timeout=30)
    assert until(lambda: not listens(port), 60)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- the recipe of a child --------------------------------------------------------------------------------


def test_changes_replace_add_and_leave_out():
    made = child.recipe(
        {
            "--tool-call-parser": "x",
            "--reasoning-parser": None,
            "--no-access-log": True,
            "--port": "8",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "DO_NOT_TRACK": False,
        }
    )
    flags = {flag.name: flag.value for flag in made.flags}
    assert flags["--tool-call-parser"] == "x"
    assert flags["--no-access-log"] is None
    assert "--reasoning-parser" not in flags
    assert "--port" not in flags
    environment = {flag.name: flag.value for flag in made.environment}
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert "DO_NOT_TRACK" not in environment
    assert {flag.name for flag in recipes.EMBEDDED.flags} - set(flags) == {"--reasoning-parser"}


def test_the_shared_engines_recipe_stays_as_it_was():
    before = recipes.EMBEDDED
    child.recipe({"--max-model-len": "1"})
    assert before == recipes.EMBEDDED


# --- where none can run -----------------------------------------------------------------------------------


def test_who_may_be_broken(live_server, monkeypatch):
    assert drills.why_not(live_server) is None
    assert "no vLLM" in drills.why_not(replace(live_server, origin="recorded"))
    assert "left in peace" in drills.why_not(MAIN)
    monkeypatch.setattr(child, "MEMORY_NEEDED_GIB", 10**6)
    assert "GiB of memory" in drills.why_not(live_server)


@pytest.mark.parametrize("name", ["parser", "port", "memory"])
def test_the_recorded_starts_failed_as_they_should(name, capsys):
    outcome = drills.run(name, {}, MAIN)
    assert outcome.origin == "recorded"
    assert outcome.exit_code == 1
    assert len(outcome.log.splitlines()) > 20
    assert "recorded on vLLM" in capsys.readouterr().out


def test_a_start_that_nobody_recorded_is_said():
    with pytest.raises(CourseError, match="parser, port, memory"):
        drills.run("another", {}, MAIN)


def test_the_recorded_session_shows_the_same_things():
    session = drills.session({}, MAIN)
    with pytest.raises(ConnectionError, match="refused"):
        session.ready()
    assert until(lambda: is_ready(session))
    assert session.ready_s > 1
    assert session.origin == "recorded"
    said = {streaming_text(session.ask("silent", {})) for _ in range(4)}
    assert len(said) == 1  # the temperature was set at the server; the fourth is the first again
    thought = session.ask("thinks", {})
    assert "</think>" in streaming_text(thought)
    assert thought.origin == "recorded"
    broken = session.kill_in_midstream({})
    assert broken.status == 200
    assert "EngineDeadError" in session.log()
    session.stop()


def streaming_text(timeline):
    chunks = [json.loads(event.data) for event in timeline.events if event.data != "[DONE]"]
    return "".join(c["delta"].get("content") or "" for one in chunks for c in one["choices"])


def test_the_recorded_drills_name_no_folder_of_a_machine():
    text = drills.KEPT.read_text(encoding="utf-8")
    for mark in ("/root/", "/home/", "/tmp/", "/Users/"):
        assert mark not in text


def test_only_a_lesson_that_ran_to_its_end_can_be_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(drills, "workspace", lambda *parts: tmp_path.joinpath(*parts))
    with pytest.raises(CourseError, match="no drills to keep"):
        drills.keep()
    (tmp_path / "drills").mkdir()
    (tmp_path / "drills" / "last.json").write_text(json.dumps({"starts": {}, "session": {"ready_s": 2}}))
    with pytest.raises(CourseError, match="lacks engine, broken, refused"):
        drills.keep()
    assert drills.main(["other"]) == 1


def test_the_log_of_a_server_elsewhere_is_a_recorded_one(capsys):
    start = drills.engine_log(MAIN)
    assert start.origin == "recorded"
    assert "recorded on" in capsys.readouterr().out
    assert len(server_log.startup(server_log.frame(start.text), before_s=start.before_s)) == 7
    assert start.server.startswith("vLLM")


def test_the_log_of_our_own_engine_may_be_gone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(drills, "_ours", lambda server: True)
    monkeypatch.setattr(drills.engine, "log_path", lambda: tmp_path / "no.log")
    assert drills.engine_log(MAIN).origin == "recorded"


def test_a_run_of_one_server_does_not_record_another(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "on_timeline", [])
    monkeypatch.setattr(api, "on_page", [])
    with serve([(0, ROLE), (0, chunk("a", finish="stop")), (0, DONE)]) as fake:
        one = fake.as_server(name="the shared one")
        with recorded.recording(str(tmp_path / "some_lesson"), one) as path:
            streaming.ask(replace(one, name="a child"), "to the child")
            streaming.ask(one, "to the shared one")
    text = path.read_text(encoding="utf-8")
    assert "to the shared one" in text
    assert "to the child" not in text


# --- what the lesson says to the learner ------------------------------------------------------------------


def test_no_hint_has_a_backslash_before_a_quote():
    """A raw string keeps the backslash, and code that a learner copies from a hint must run."""
    [lesson] = [path for path in sources.paths() if path.stem.startswith("04_")]
    texts = [
        node.value
        for node in ast.walk(ast.parse(lesson.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(texts) > 100
    assert not [text for text in texts if '\\"' in text or "\\'" in text]


# --- the exercise's server that is starting ---------------------------------------------------------------


def test_the_exercises_server_gets_ready_on_its_own_clock():
    startup = practice_serve.Startup(2, 4)
    with pytest.raises(ConnectionError):
        startup.ready()
    startup.sleep(2.5)
    assert startup.ready() is False
    startup.sleep(2)
    assert startup.ready() is True
    assert 4.5 <= startup.clock() < 5


def test_whoever_asks_without_end_is_stopped():
    startup = practice_serve.Startup(0, 1000, patience=5)

    def ask_for_ever():
        while True:
            with contextlib.suppress(Exception):
                startup.ready()

    with pytest.raises(SystemExit, match="pause with the given sleep"):
        ask_for_ever()


@pytest.mark.parametrize("asks_the_clock", [True, False])
def test_a_bare_except_does_not_hold_the_kernel(asks_the_clock):
    """SystemExit is caught in the loop; where time is taken outside, it is raised again. Every loop ends."""
    startup = practice_serve.Startup(0, 1000, patience=5)

    def ask_for_ever():
        while True:
            try:
                if startup.ready():
                    return startup.clock()
            except BaseException:  # what a bare except catches
                pass
            if asks_the_clock:
                startup.clock()

    if asks_the_clock:
        with pytest.raises(SystemExit, match=r"asked 5 times, within 0\.0 s"):
            ask_for_ever()
    else:
        assert ask_for_ever() < 1
