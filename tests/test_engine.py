"""The one local server: found, started once, noticed when it is broken, replaced, and never left behind.

Most tests use a fake vLLM, a small HTTP server that starts in a fraction of a second; the last ones use the
real engine. Callers are processes of their own (``Course.caller``), as notebooks' kernels are.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

import psutil
import pytest

from helpers import engine, readiness, recipes, supervisor
from helpers.settings import REPO, CourseError, Server

KEY = "sk-never-to-be-seen-0123456789"

# What it does is decided by its first argument: "ok", "slow" (healthy after 3 s), "crash" (before it is
# healthy), "dies" (on its first chat request), "tired" (takes 4 s to end), "parent" (has a child).
FAKE_VLLM = textwrap.dedent(
    """
    import http.server, json, os, signal, subprocess, sys, time
    mode, port = sys.argv[1], int(sys.argv[2])
    born = time.monotonic()
    print("fake vLLM says hello in mode", mode, flush=True)
    if mode == "crash":
        print("RuntimeError: no such weights", flush=True)
        sys.exit(3)
    if mode == "tired":
        signal.signal(signal.SIGTERM, lambda *rest: (time.sleep(4), os._exit(0)))
    if mode == "parent":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # engine core"])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def send(self, status, text, kind="application/json"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self):
            if self.path == "/environment":
                self.send(200, json.dumps(dict(os.environ)))
            else:
                self.send(503 if mode == "slow" and time.monotonic() < born + 3 else 200, "")

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            if mode == "dies":
                print("MemoryError: killed while answering", flush=True)
                os._exit(9)
            chunk = {"choices": [{"index": 0, "delta": {"content": "Yes"}}]}
            self.send(200, "data: " + json.dumps(chunk) + "\\n\\ndata: [DONE]\\n\\n", "text/event-stream")

        def log_message(self, *rest):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
    """
)

# A process that uses the course, with the fake in the place of vLLM: the mode, then what to do.
CALLER = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from helpers import engine, model, recipes

    fake, mode, grace, action = sys.argv[1:5]
    engine.GRACE_SECONDS, engine.HEALTH_SECONDS = float(grace), 2.0
    engine.why_not_embedded = lambda: None
    model.prepare = lambda say: Path("no-model")
    recipes.command = lambda recipe, path, name, host, port: [sys.executable, fake, mode, str(port)]
    if action == "stop":
        print(engine.stop(), flush=True)
        sys.exit()
    try:
        server = engine.connect(lambda line: print("say:", line, flush=True), keep=action == "keep")
    except engine.CourseError as error:
        print("error:", error, flush=True)
        sys.exit(1)
    print("url:", server.base_url, flush=True)
    if action == "release":
        engine.release()
    if action == "stay":
        time.sleep(600)
    """
)


class Course:
    """A workspace with a fake vLLM, and callers that ask for it."""

    def __init__(self, folder):
        self.workspace = folder / "workspace"
        self.folder = self.workspace / "engine"
        self.fake = folder / "fake_vllm.py"
        self.fake.write_text(FAKE_VLLM)
        self.started: list[subprocess.Popen] = []

    def caller(self, mode="ok", action="once", *, grace=60.0, **environment) -> subprocess.Popen:
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, str(self.fake), mode, str(grace), action],
            cwd=REPO,
            env=os.environ | {"PHONELLM_WORKSPACE": str(self.workspace)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(caller)
        return caller

    def call(self, mode="ok", action="once", **rest) -> str:
        """What a caller says from beginning to end."""
        return self.caller(mode, action, **rest).communicate(timeout=90)[0]

    def staying(self, mode="ok", **rest) -> tuple[subprocess.Popen, str]:
        """A caller that goes on using its server, and what it said until it had one."""
        caller = self.caller(mode, "stay", **rest)
        return caller, until(caller, "url:")

    @property
    def state(self) -> dict:
        return supervisor.read_state(self.folder) or {}

    def pid(self, role="server") -> int:
        return int(self.state[role].split("-")[0])

    def processes(self) -> list[psutil.Process]:
        """All supervisors, servers and servers' children of this workspace that run."""
        found = {}
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or []
            ours = (str(self.fake) in words and "-c" not in words) or str(self.folder) in words
            if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
                with contextlib.suppress(psutil.NoSuchProcess):
                    found |= {child.pid: child for child in process.children(recursive=True)}
        return list(found.values())

    def servers(self) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if str(self.fake) in words and "helpers.supervisor" not in words:
                    found.append(process)
        return found

    def end(self) -> None:
        for caller in self.started:
            caller.kill()
            caller.wait()
            caller.stdout.close()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def until(caller: subprocess.Popen, mark: str) -> str:
    said = ""
    for line in caller.stdout:
        said += line
        if line.startswith(mark):
            return said
    raise AssertionError(f"the caller ended without {mark!r}:\n{said}")


def eventually(condition, seconds=40.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def url(said: str) -> str:
    return next(line for line in said.splitlines() if line.startswith("url:"))


def kill(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def course(tmp_path):
    course = Course(tmp_path)
    yield course
    course.end()


# ---------------------------------------------------------------- the learner's folder


@pytest.mark.parametrize(
    ("named", "found", "passed_on"),
    [
        (None, REPO / "workspace", None),
        ("", REPO / "workspace", ""),
        ("some/where", REPO / "some" / "where", str(REPO / "some" / "where")),
        ("/some/where", "/some/where", "/some/where"),
    ],
)
def test_the_workspace_is_where_the_variable_says(tmp_path, named, found, passed_on):
    name = "PHONELLM_WORKSPACE"
    environment = {key: value for key, value in os.environ.items() if key != name} | {"PYTHONPATH": str(REPO)}
    show = (
        f"import os; from helpers import settings\nprint([str(settings.WORKSPACE), os.environ.get('{name}')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", show],
        cwd=tmp_path,  # not the repository: a relative path does not depend on it
        env=environment | ({} if named is None else {name: named}),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == str([str(found), passed_on]), done.stderr


@pytest.mark.parametrize("wanted", ["embedded", "recorded"])
def test_a_workspace_that_cannot_be_written_in_is_a_course_error(tmp_path, monkeypatch, wanted):
    (tmp_path / "file").touch()
    for name in ("EMBEDDED", "RECORDED"):
        monkeypatch.setattr(engine, name, engine.Kind(name.lower(), tmp_path / "file" / name))
    monkeypatch.setattr(engine, "why_not_embedded", lambda: None)
    monkeypatch.delenv("PHONELLM_BASE_URL", raising=False)
    monkeypatch.setenv("PHONELLM_ENGINE", wanted)
    with pytest.raises(CourseError, match="set PHONELLM_WORKSPACE to another folder"):
        engine.connect(lambda line: None)


@pytest.mark.parametrize(
    ("address", "server"), [("", "vLLM on this machine"), ("http://h/v1", "at PHONELLM_BASE_URL")]
)
def test_an_empty_address_is_none_for_the_readiness_check_too(monkeypatch, address, server):
    monkeypatch.setenv("PHONELLM_BASE_URL", address)
    monkeypatch.delenv("PHONELLM_ENGINE", raising=False)
    monkeypatch.setattr(engine, "why_not_embedded", lambda: None)
    assert readiness.check().set_index("what").loc["server", "found"] == server


# ---------------------------------------------------------------- started once, found by others


def test_two_callers_at_the_same_moment_get_one_server(course):
    callers = [course.caller("slow", "stay") for _ in range(2)]
    said = [until(caller, "url:") for caller in callers]
    assert url(said[0]) == url(said[1])
    assert len(course.servers()) == 1
    assert sum("another notebook, or the lab, is starting the server" in text for text in said) == 1


def test_a_second_caller_finds_the_server_and_starts_nothing(course):
    _, first = course.staying()
    pid = course.pid()
    second = course.call()
    assert url(second) == url(first)
    assert course.pid() == pid
    assert [line for line in second.splitlines() if line.startswith("say:")] == [
        f"say: ready: {course.state['name']} at {url(first)[5:].removesuffix('/v1')}"
    ]


def test_files_are_where_the_docstring_says(course):
    course.staying()
    names = {path.name for path in course.folder.iterdir()}
    assert {"state.json", "server.log", "users"} <= names
    state = course.state
    assert state["port"] == int(state["base_url"].split(":")[2].split("/")[0])
    assert supervisor.runs(state["server"])
    assert supervisor.runs(state["supervisor"])
    assert "fake vLLM says hello" in (course.folder / "server.log").read_text()
    assert len(state["birth_ms"]) == 3
    assert all(ms > 0 for ms in state["birth_ms"])


def test_the_server_is_in_a_process_group_of_its_own(course):
    course.staying()
    assert os.getpgid(course.pid()) == course.pid()


def test_connect_again_in_the_same_process_is_one_user(course):
    course.staying()
    course.call()
    assert len(supervisor.users(course.folder)) == 1


# ---------------------------------------------------------------- broken in some way


def test_a_caller_killed_while_it_starts_leaves_a_server_for_the_next(course):
    first = course.caller("slow", "stay")
    assert eventually(lambda: course.state.get("server"))
    kill(first)
    pid = course.pid()
    _, said = course.staying("slow")
    assert course.pid() == pid
    assert course.state["ready"] is True
    assert "is gone" not in said
    assert len(course.servers()) == 1


def test_callers_killed_at_any_moment_never_leave_two_servers(course):
    for delay in (0.2, 0.5, 0.8, 1.1):
        caller = course.caller("slow", "stay")
        time.sleep(delay)
        kill(caller)
    course.staying("slow")
    assert eventually(lambda: len(course.servers()) == 1)
    assert course.servers()[0].pid == course.pid()


def test_a_start_that_crashes_shows_why_and_the_next_caller_starts_anew(course):
    said = course.call("crash")
    assert "before it was ready" in said
    assert "RuntimeError: no such weights" in said
    assert "make stop" in said
    assert "(it ended by itself)" in said
    assert course.state["exit_code"] == 3
    assert course.processes() == []
    _, again = course.staying("ok")
    assert "it ended by itself" in again
    assert "RuntimeError: no such weights" in again, "the last log lines are the explanation"
    assert (course.folder / "server.previous.log").read_text().endswith("RuntimeError: no such weights\n")


def test_a_server_that_dies_at_its_first_request_is_a_course_error(course):
    said = course.call("dies")
    assert said.splitlines()[-1] == "Type: make stop   and run this again."
    assert "MemoryError: killed while answering" in said
    assert "Traceback" not in said


def test_a_killed_server_is_noticed_explained_and_replaced(course):
    _, first = course.staying()
    os.kill(course.pid(), signal.SIGKILL)
    assert eventually(lambda: course.state["phase"] == "ended")
    second = course.call()
    assert url(second) != url(first)
    assert "the last server is gone (it ended by itself); starting a new one" in second
    assert "fake vLLM says hello" in second
    assert len(course.servers()) == 1


def test_what_a_killed_server_had_started_ends_with_it(course):
    course.staying("parent")
    assert eventually(lambda: len(course.processes()) == 3)  # supervisor, server, its child
    children = psutil.Process(course.pid()).children()
    os.kill(course.pid(), signal.SIGKILL)
    assert eventually(lambda: course.state["phase"] == "ended")
    assert [child for child in children if child.is_running() and child.status() != "zombie"] == []


def test_a_server_that_hangs_is_noticed_and_replaced(course):
    _, first = course.staying()
    hung = course.pid()
    os.kill(hung, signal.SIGSTOP)
    _, second = course.staying()
    assert url(second) != url(first)
    assert "no longer answers" in second
    assert not psutil.pid_exists(hung)
    assert len(course.servers()) == 1


def test_a_killed_supervisor_takes_the_server_with_it(course):
    course.staying()
    os.kill(course.pid("supervisor"), signal.SIGKILL)
    assert eventually(lambda: course.processes() == [])


def test_right_after_a_supervisor_was_killed_nobody_gets_the_dying_server(course):
    _, first = course.staying("tired")
    os.kill(course.pid("supervisor"), signal.SIGKILL)
    second = course.call("ok")
    assert url(second) != url(first)
    assert "it was killed" in second
    assert len(course.servers()) == 1


@pytest.mark.parametrize("garbage", ['{"port": 1', "[]", "{}", '{"server": 7, "phase": "running"}'])
def test_a_spoilt_state_file_is_as_none(course, garbage):
    (course.folder / "users").mkdir(parents=True)
    (course.folder / "state.json").write_text(garbage)
    assert "url:" in course.call()
    assert len(course.servers()) == 1


def test_a_state_file_spoilt_while_the_server_runs_leaves_one_server(course):
    course.staying()
    (course.folder / "state.json").write_text("{")
    course.staying()
    assert eventually(lambda: len(course.servers()) == 1)
    assert course.servers()[0].pid == course.pid()


def test_a_deleted_workspace_ends_the_server(course):
    course.staying()
    (course.folder / "state.json").unlink()
    assert eventually(lambda: course.processes() == [])


def test_another_process_with_the_old_number_is_left_alone(course):
    course.staying()
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.PIPE
    )
    course.started.append(stranger)
    pids = [course.pid(), course.pid("supervisor")]
    course.call(action="stop")
    (course.folder / "users").mkdir(exist_ok=True)
    old = {"phase": "running", "ready": True, "base_url": "http://127.0.0.1:9/v1", "port": 9}
    old |= dict.fromkeys(("server", "supervisor"), f"{stranger.pid}-1.00")
    supervisor.write_state(course.folder, old)
    assert "url:" in course.call()
    assert stranger.poll() is None
    assert course.pid() not in pids


# ---------------------------------------------------------------- ended when nobody needs it


def test_the_server_ends_some_time_after_its_last_user(course):
    caller, _ = course.staying(grace=1.0)
    other, _ = course.staying(grace=1.0)
    kill(caller)
    time.sleep(2.5)
    assert len(course.servers()) == 1, "the other one still uses it"
    kill(other)
    assert eventually(lambda: course.processes() == [])
    assert course.state["why"] == "nobody used it any more"
    assert "is gone" not in course.call(), "an end on purpose is nothing to report"


def test_a_server_that_is_kept_stays_until_it_is_stopped(course):
    assert "url:" in course.call(action="keep", grace=0.5)
    time.sleep(2.5)
    assert len(course.servers()) == 1
    assert "stopped the embedded server" in course.call(action="stop")
    assert course.processes() == []
    assert supervisor.users(course.folder) == []


def test_release_ends_it_at_once_if_nobody_else_is_there(course):
    course.call(action="release")
    assert course.processes() == []
    assert course.state["why"] == "it was stopped"


def test_release_leaves_it_to_those_who_still_use_it(course):
    course.staying()
    course.call(action="release")
    assert len(course.servers()) == 1


@pytest.mark.parametrize("mode", ["ok", "parent"])
def test_stop_leaves_nothing(course, mode):
    course.staying(mode)
    said = course.call(action="stop")
    assert f"at port {course.state['port']}" in said
    assert course.processes() == []
    assert course.call(action="stop").strip() == "[]"


def test_stop_does_not_wait_for_a_start_to_finish(course):
    starting = course.caller("slow", "stay")
    assert eventually(lambda: course.state.get("server"))
    assert "stopped the embedded server" in course.call(action="stop")
    said = starting.communicate(timeout=60)[0]
    assert "it was stopped" in said
    assert "url:" not in said
    assert course.processes() == []


def test_a_released_start_is_given_up(course):
    """As when the lab is closed while its own thread is still starting the engine."""
    code = CALLER.replace(
        "try:\n",
        "import threading\nthreading.Timer(1.5, engine.release).start()\ntry:\n",
        1,
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(course.fake), "slow", "60", "once"],
        cwd=REPO,
        env=os.environ | {"PHONELLM_WORKSPACE": str(course.workspace)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "it was stopped" in done.stdout, done.stdout + done.stderr
    assert course.processes() == []


# ---------------------------------------------------------------- what may not get out


def test_keys_stay_out_of_the_server_its_files_and_its_command(course):
    _, said = course.staying(PHONELLM_API_KEY=KEY, VLLM_API_KEY=KEY, VLLM_LOGGING_LEVEL="ERROR")
    with urllib.request.urlopen(course.state["base_url"].removesuffix("/v1") + "/environment") as page:
        environment = json.load(page)
    assert KEY not in environment.values()
    assert "VLLM_API_KEY" not in environment, "the server would ask the lessons for it"
    assert "VLLM_LOGGING_LEVEL" not in environment, "its log is what the lessons read"
    assert environment["HF_HUB_OFFLINE"] == "1"
    for process in course.processes():
        assert KEY not in " ".join(process.cmdline())
        assert KEY not in process.environ().values()
    for path in course.workspace.rglob("*"):
        if path.is_file():
            assert KEY not in path.read_text(errors="replace"), path.name
    assert KEY not in said


def test_the_command_listens_on_this_machine_only(tmp_path):
    words = recipes.command(recipes.EMBEDDED, tmp_path, "name", engine.HOST, 1234)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert all(flag.why for flag in (*recipes.EMBEDDED.flags, *recipes.EMBEDDED.environment))


def test_too_little_memory_is_said_before_anything_starts(course, monkeypatch):
    monkeypatch.setattr(engine, "EMBEDDED", engine.Kind("embedded", course.folder))
    monkeypatch.setattr(engine, "why_not_embedded", lambda: None)
    monkeypatch.setattr(engine, "MEMORY_NEEDED_GIB", 1e6)
    with pytest.raises(CourseError, match=r"needs 1000000 GiB of free memory.*\n.*PHONELLM_ENGINE=recorded"):
        engine.connect(lambda line: None)
    assert course.processes() == []


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [("darwin", "arm64", "exists for Linux only"), ("linux", "riscv64", "riscv64 processors")],
)
def test_where_vllm_cannot_run_the_reason_is_given(monkeypatch, system, machine, words):
    monkeypatch.setattr(engine.sys, "platform", system)
    monkeypatch.setattr(engine.platform, "machine", lambda: machine)
    assert words in engine.why_not_embedded()


# ---------------------------------------------------------------- an address of the learner's own


@pytest.fixture
def external(monkeypatch):
    """connect() with an address; gives the server or raises."""
    monkeypatch.delenv(engine.API_KEY_VARIABLE, raising=False)
    monkeypatch.delenv(engine.MODEL_VARIABLE, raising=False)

    def connect(address, **environment):
        monkeypatch.setenv(engine.BASE_URL_VARIABLE, address)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return engine.connect(lambda line: None)

    return connect


@pytest.mark.parametrize(
    "address",
    ["localhost:8000", "example.org", "ftp://example.org/v1", "http://", "http://host:port/v1", "http://[::1/v1",
     "http://a b/v1", "http://host:99999/v1", "see the wiki", "http://host:0/v1"],
)  # fmt: skip
def test_what_is_no_address_is_said_with_an_example(external, address):
    with pytest.raises(CourseError) as caught:
        external(address)
    assert repr(address) in str(caught.value)
    assert "export PHONELLM_BASE_URL=http://HOST:8000/v1" in str(caught.value)


@pytest.mark.parametrize(
    "address", [f"http://me:{KEY}@host/v1", f"me:{KEY}@host:8000", f"https://{KEY}@host"]
)
def test_a_password_in_the_address_is_refused_and_not_shown(external, address):
    with pytest.raises(CourseError, match="PHONELLM_API_KEY") as caught:
        external(address)
    assert KEY not in str(caught.value)


def test_a_key_after_the_question_mark_is_not_shown(external):
    with pytest.raises(CourseError) as caught:
        external(f"host:8000/v1?key={KEY}")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("spoilt", [KEY + "\nX-Evil: 1", KEY + " " + KEY, KEY + "…", KEY + "\x7f"])
def test_a_spoilt_key_is_refused_without_showing_it(external, spoilt):
    with pytest.raises(CourseError, match="PHONELLM_API_KEY") as caught:
        external("http://127.0.0.1:9/v1", PHONELLM_API_KEY=spoilt)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


# ---------------------------------------------------------------- the real engine


def test_the_real_engine_answers_this_machine_only(live_server):
    state = supervisor.read_state(engine.EMBEDDED.folder)
    top = psutil.Process(int(state["supervisor"].split("-")[0]))
    listening = [
        link.laddr
        for process in top.children(recursive=True)
        for link in process.net_connections("inet")
        if link.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in listening if address.port == state["port"]} == {"127.0.0.1"}
    # PyTorch's store, by which the engine's processes would find each other if there were several, binds to
    # every address, whatever it is told. It takes no requests; but let nothing else join it unnoticed.
    others = [address for address in listening if address.ip not in ("127.0.0.1", "::1")]
    assert len(others) <= 1, others
    for address in others:
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"http://127.0.0.1:{address.port}/v1/models", timeout=2)


def test_the_real_engine_is_found_again_and_has_its_birth_noted(live_server):
    said = []
    again = engine.connect(said.append)
    assert again == live_server
    assert len(said) == 1
    assert said[0].startswith("ready: vLLM ")
    births = engine.birth(live_server)
    assert len(births) == 3
    assert all(ms > 0 for ms in births)
    assert engine.birth(Server("http://elsewhere/v1", "m")) == []
    assert any(line.startswith("embedded: running at 127.0.0.1:") for line in engine.status())


def post(server: Server, path: str, **body) -> dict:
    request = urllib.request.Request(
        server.base_url.removesuffix("/v1") + path,
        json.dumps({"model": server.model} | body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=300
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


QUESTION = [{"role": "user", "content": "Is the shop open on Sunday?"}]


@pytest.mark.parametrize("thinking", [False, True])
def test_with_thinking_off_structured_outputs_bind_the_answer(live_server, thinking):
    """The reason why <think> and </think> are single tokens: vLLM has to see in the prompt's token ids that
    the thinking is over, or it never applies the structure."""
    choices = ["Yes, from ten to four.", "No, we are closed on Sundays."]
    extra = {"thinking_token_budget": 8} if thinking else {}
    answer = post(
        live_server,
        "/v1/chat/completions",
        messages=QUESTION,
        max_tokens=64,
        temperature=0,
        structured_outputs={"choice": choices},
        chat_template_kwargs={"enable_thinking": thinking},
        **extra,
    )["choices"][0]["message"]
    assert answer["content"] is not None
    assert answer["content"].strip() in choices
    assert bool(answer.get("reasoning")) is thinking


def test_with_thinking_off_a_required_tool_is_called(live_server):
    days = ["monday", "sunday"]
    tool = {
        "name": "opening_hours",
        "description": "Opening hours of a day.",
        "parameters": {
            "type": "object",
            "properties": {"day": {"type": "string", "enum": days}},
            "required": ["day"],
            "additionalProperties": False,
        },
    }
    message = post(
        live_server,
        "/v1/chat/completions",
        messages=QUESTION,
        max_tokens=80,
        temperature=0,
        tools=[{"type": "function", "function": tool}],
        tool_choice="required",
        chat_template_kwargs={"enable_thinking": False},
    )["choices"][0]["message"]
    call = message["tool_calls"][0]["function"]
    assert call["name"] == "opening_hours"
    assert json.loads(call["arguments"])["day"] in days
