"""Recording runs, keeping them, and what must not be kept."""

import gzip
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from fakeserver import DONE, ROLE, chunk, serve, usage_chunk
from hypothesis import given
from hypothesis import strategies as st

from helpers import api, conditions, recorded, run_file, streaming
from helpers.settings import REPO, CourseError, Server
from helpers.streaming import Event, Timeline, ask

KEY = "sk-a-secret-0123456789"
TINY = Path(__file__).parent / "data" / "runs" / "tiny.jsonl.gz"
REPLY = [(0, ROLE), (0.01, chunk("Hel")), (0.01, chunk("lo")), (0, usage_chunk(2)), (0, DONE)]


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Nothing of a test goes into the real folders, and no listener stays behind."""
    for module in (recorded, conditions):
        monkeypatch.setattr(module, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.setattr(recorded, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(recorded, "_started", None)
    monkeypatch.setattr(streaming, "on_timeline", [])
    monkeypatch.setattr(api, "on_page", [])
    monkeypatch.delenv(recorded.RECORD_VARIABLE, raising=False)
    return tmp_path


def a_page(server, text, path="/metrics"):
    """As if this page had been read."""
    for listener in api.on_page:
        listener(server, path, text)


def recorded_once(lesson="05_sample", script=REPLY, pages=("a 1\nb 2\n",), **server):
    """Record one request and finish the run; returns the live timeline and the run."""
    with serve(script) as fake:
        with recorded.recording(lesson, fake.as_server(**server)):
            timeline = ask(fake.as_server(**server), "Hi [call 00ff00]", max_tokens=3)
            for text in pages:
                a_page(fake.as_server(**server), text)
        recorded.finish(lesson)
    return timeline, recorded.load(recorded.RUNS / f"{lesson}.jsonl.gz")


def test_a_run_comes_back_as_it_was():
    live, run = recorded_once(pages=("a 1\nb 2\n", "a 1\nb 3\n", "a 1\nnew\nb 3\n", ""))
    (timeline,) = run.timelines
    assert timeline.request == live.request
    assert [event.data for event in timeline.events] == [event.data for event in live.events]
    for now, then in zip(timeline.events, live.events, strict=True):
        # two roundings to whole microseconds
        assert abs((now.at_ns - timeline.sent_ns) - (then.at_ns - live.sent_ns)) <= 1000
    assert abs(timeline.connect_ns - live.connect_ns) <= 500
    assert timeline.origin == "recorded"
    assert (timeline.status, timeline.streamed, timeline.error) == (200, True, None)
    assert timeline.sent_ns < 60e9, "times count from the beginning of the run, not from the machine's start"
    assert [page.text for page in run.pages] == ["a 1\nb 2\n", "a 1\nb 3\n", "a 1\nnew\nb 3\n", ""]
    assert run.pages[0].at_ns > timeline.sent_ns


def test_conditions_say_what_was_measured_where():
    _, run = recorded_once(name="vLLM 9 on CPU, Tiny")
    about = run.conditions
    assert about["lesson"] == "05_sample"
    assert about["server"]["name"] == "vLLM 9 on CPU, Tiny"
    assert about["server"]["where"] == "this machine"
    assert about["machine"]["cores"] == os.cpu_count()
    assert about["machine"]["memory_gib"] > 0
    assert (about["requests"], about["failed"], about["pages"]) == (1, 0, 1)
    assert "1 chat requests, at most 1 at once" in about["workload"]
    for name in ("date", "os", "python"):
        assert about[name]


def test_the_embedded_engines_flags_are_kept_without_its_folders():
    words = ["/opt/x/bin/python", "-m", "server", "--model", "/home/ann/model/tiny", "--host", "127.0.0.1"]
    words += ["--port", "1234", "--enforce-eager"]
    state = {"base_url": "http://127.0.0.1:9/v1", "command": words, "birth_ms": [9.0]}
    (recorded.WORKSPACE / "engine").mkdir(parents=True)
    (recorded.WORKSPACE / "engine" / "state.json").write_text(json.dumps(state))
    of_engine = conditions.conditions(Server("http://127.0.0.1:9/v1", "tiny"), "x")["server"]
    assert of_engine["flags"] == ["--model", "tiny", "--enforce-eager"]
    assert of_engine["birth_ms"] == [9.0]
    assert of_engine["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    of_another = conditions.conditions(Server("http://127.0.0.1:8/v1", "tiny"), "x")["server"]
    assert (of_another["flags"], of_another["birth_ms"]) == ([], [])


def test_the_same_run_gives_the_same_bytes(tmp_path):
    _, run = recorded_once()
    made = []
    for name in ("one", "two"):
        run_file.save(run, tmp_path / name)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1] == (recorded.RUNS / "05_sample.jsonl.gz").read_bytes()
    assert made[0][4:8] == b"\0\0\0\0", "no time of writing in the gzip header"
    run_file.save(recorded.load(TINY), tmp_path / "again")
    assert recorded.load(tmp_path / "again") == recorded.load(TINY)


def test_nothing_private_is_kept(monkeypatch):
    monkeypatch.setenv("PHONELLM_API_KEY", "another-secret-key")
    host, home = socket.gethostname(), str(Path.home())
    leaks = f"{KEY} another-secret-key {host} {home}/notes.txt /home/ann/x/model.bin C:\\Users\\ann\\run.log"
    script = [(0, chunk(leaks)), (0, usage_chunk(1)), (0, DONE)]
    recorded_once(script=script, pages=(leaks + "\n/v1/models 1",), api_key=KEY, name=f"Tiny {leaks}")
    kept = [path.read_bytes() for path in recorded.WORKSPACE.rglob("*.jsonl")]
    kept.append(gzip.decompress((recorded.RUNS / "05_sample.jsonl.gz").read_bytes()))
    assert len(kept) == 2
    for text in kept:
        for private in (KEY, "another-secret-key", host, home + "/", "/home", "ann", str(REPO)):
            assert private.encode() not in text, private
        assert b"[key] [key] [machine] notes.txt model.bin run.log" in text
        assert b"/v1/models 1" in text, "a path of the API is no path of the machine"


def test_clean_takes_out_names_and_leaves_the_rest():
    clean = conditions.cleaner(Server("http://gpu7.example.com:8000/v1", "m", "EMPTY"))
    assert clean("Tiny at gpu7.example.com") == "Tiny at [server]"
    assert clean("/home/ann") == clean(str(Path.home())) == clean("/Users/ann/") == "[home]"
    same = 'EMPTY and/or 2026/12/01, /v1/chat/completions, nvidia/PhoneLLM, {"root": 1}, 3 /4'
    assert clean(same) == same


def test_the_fixture_holds_nothing_private():
    text = gzip.decompress(TINY.read_bytes()).decode()
    for private in ("/home/", "/root/", "/Users/", "/tmp/", "\\Users", socket.gethostname(), "Bearer"):
        assert private not in text


def test_a_server_elsewhere_is_not_named():
    server = Server("http://gpu7.invalid:8000/v1", "m", None, "measured", "m at gpu7.invalid")
    about = conditions.conditions(server, "x")
    assert "gpu7" not in json.dumps(about)
    assert (about["server"]["name"], about["server"]["where"]) == ("m", "another machine")


CRASH = """
import os, sys
sys.path[:0] = sys.argv[1:3]
from fakeserver import DONE, chunk, serve
from helpers import recorded
from helpers.streaming import ask
with serve([(0, chunk("Hello")), (0, DONE)]) as fake:
    recorded.start_if_asked(fake.as_server())
    ask(fake.as_server(), "one")
    os._exit(3)
"""


def test_a_crash_loses_nothing_that_was_complete(tmp_path):
    asked = {recorded.RECORD_VARIABLE: str(tmp_path / "elsewhere" / "crash")}
    folders = [str(REPO), str(Path(__file__).parent)]
    ended = subprocess.run([sys.executable, "-c", CRASH, *folders], env=os.environ | asked, timeout=120)
    assert ended.returncode == 3
    (path,) = (tmp_path / "elsewhere" / "crash").glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"timeline": {"request"')  # half a line
    run = recorded.read_unfinished(path)
    assert [timeline.request["messages"][0]["content"] for timeline in run.timelines] == ["one"]
    recorded.finish(str(tmp_path / "elsewhere" / "crash"))
    assert "crash" in recorded.runs()


def test_recording_starts_only_if_asked_and_only_once(monkeypatch):
    with serve(REPLY) as fake:
        server = fake.as_server()
        assert recorded.start_if_asked(server) is None
        assert streaming.on_timeline == api.on_page == []
        monkeypatch.setenv(recorded.RECORD_VARIABLE, "05_sample")
        path = recorded.start_if_asked(server)
        assert path.parent == recorded.WORKSPACE / "runs" / "05_sample"
        assert recorded.start_if_asked(server) == path
        ask(server, "one")
        ask(replace(server, origin="recorded"), "a replayed one")
        a_page(replace(server, origin="recorded"), "a replayed page")
    run = recorded.read_unfinished(path)
    assert (len(run.timelines), run.pages) == (1, ())


def test_a_replayed_run_is_not_recorded_again(monkeypatch):
    monkeypatch.setenv(recorded.RECORD_VARIABLE, "05_sample")
    server = Server("http://127.0.0.1:9/v1", "m", origin="recorded")
    with pytest.raises(CourseError, match="unset PHONELLM_RECORD"):
        recorded.start_if_asked(server)
    with pytest.raises(CourseError, match="live server"), recorded.recording("05_sample", server):
        pass
    frame = pd.DataFrame({"origin": ["measured"]})
    with pytest.raises(CourseError, match="live server"):
        recorded.save_table("t", frame, server=server, workload="w")


def test_an_old_run_is_replaced_only_on_request(capsys):
    recorded_once()
    target = recorded.RUNS / "05_sample.jsonl.gz"
    old = target.read_bytes()
    assert recorded.main(["finish", "05_sample"]) == 1
    said = capsys.readouterr().err
    assert "as it is: 1 requests (0 failed), 1 pages, fake server" in said
    assert "--replace" in said
    assert target.read_bytes() == old
    assert recorded.main(["finish", "05_sample", "--replace", "--workload", "One greeting."]) == 0
    assert "replaced" in capsys.readouterr().out
    assert recorded.load(target).conditions["workload"] == "One greeting."
    (kept,) = recorded.WORKSPACE.rglob("replaced-*.jsonl.gz")
    assert kept.read_bytes() == old
    assert recorded.main([]) == 0
    assert "05_sample: 1 requests" in capsys.readouterr().out


def test_finish_says_what_to_type_when_nothing_was_recorded():
    with pytest.raises(CourseError, match="PHONELLM_RECORD=06_nothing"):
        recorded.finish("06_nothing")
    with serve(REPLY) as fake, recorded.recording("06_empty", fake.as_server()):
        pass
    with pytest.raises(CourseError, match="no timed request"):
        recorded.finish("06_empty")


@given(st.lists(st.lists(st.sampled_from(["a 1", "b 2", "b 3", ""]), min_size=1), min_size=2, max_size=4))
def test_a_page_follows_from_the_one_before(pages):
    before = []
    for page in pages:
        assert run_file._changed(before, run_file._changes(before, page)) == page
        before = page


times = st.integers(0, 10**10)


@given(
    sent=times, gaps=st.lists(st.tuples(times, st.text())), due=st.none() | times, comments=st.integers(0, 9)
)
def test_any_timeline_survives_packing(sent, gaps, due, comments):
    at, events = sent, []
    for gap, text in gaps:
        at += gap
        events.append(Event(at, text))
    live = Timeline(
        {"messages": []}, sent, tuple(events), at, 200, True, None, "s", "recorded", due, None, comments
    )
    packed = json.loads(json.dumps(run_file._pack(live)))
    back = run_file._unpack(packed)
    assert [event.data for event in back.events] == [event.data for event in live.events]
    for now, then in zip(back.events, live.events, strict=True):
        assert abs(now.at_ns - then.at_ns) <= 500
    assert run_file._pack(back) == run_file._pack(live), "packing again changes nothing more"


def test_about_names_server_and_date():
    with pytest.raises(CourseError, match="no recorded runs"):
        recorded.about()
    _, run = recorded_once("00_start", name="vLLM 9 on CPU, Tiny")
    date = run.conditions["date"]
    assert recorded.about() == {"model": "fake", "name": f"vLLM 9 on CPU, Tiny, {date}", "birth_ms": []}
    later = run.conditions | {"date": "2999-01-01"}
    later["server"] = later["server"] | {"birth_ms": [8.5], "model": "later"}
    run_file.save(replace(run, conditions=later), recorded.RUNS / "05_later.jsonl.gz")
    expected = {"model": "later", "name": f"vLLM 9 on CPU, Tiny, {date} to 2999-01-01", "birth_ms": [8.5]}
    assert recorded.about() == expected


def test_a_damaged_or_newer_file_is_explained():
    _, run = recorded_once()
    path = recorded.RUNS / "05_sample.jsonl.gz"
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"no gzip at all", gzip.compress(b"{}\n"), gzip.compress(b"")):
        path.write_bytes(damage)
        with pytest.raises(CourseError, match="git checkout -- data/runs/05_sample"):
            recorded.load(path)
    newer = json.dumps({"format": run_file.FORMAT + 1} | run.conditions)
    path.write_bytes(gzip.compress(newer.encode()))
    for read in (recorded.load, lambda path: recorded.runs(path.parent)):
        with pytest.raises(CourseError, match="newer version"):
            read(path)


def test_a_table_is_kept_with_its_conditions():
    frame = pd.DataFrame({"tool": ["aiperf", "own"], "ttft_ms": [51.25, 0.1 + 0.2], "origin": "measured"})
    frame["note"] = ["/home/ann/out.json", KEY]
    server = Server("http://127.0.0.1:9/v1", "m", KEY, name="vLLM")
    path = recorded.save_table("tools", frame, server=server, workload="20 requests")
    back = recorded.load_table("tools")
    assert list(back["ttft_ms"]) == list(frame["ttft_ms"])
    assert set(back["origin"]) == {"recorded"}
    assert set(frame["origin"]) == {"measured"}, "the caller's table is left alone"
    assert list(back["note"]) == ["out.json", "[key]"]
    about = back.attrs["conditions"]
    assert (about["workload"], about["rows"]) == ("20 requests", 2)
    assert KEY not in path.with_suffix(".json").read_text()
    first = path.read_bytes()
    with pytest.raises(CourseError, match="replace_old"):
        recorded.save_table("tools", frame, server=server, workload="other")
    recorded.save_table("tools", frame, server=server, workload="20 requests", replace_old=True)
    assert path.read_bytes() == first


def test_tables_that_cannot_be_kept_or_read():
    server = Server("http://127.0.0.1:9/v1", "m")
    with pytest.raises(CourseError, match="origin"):
        recorded.save_table("tools", pd.DataFrame({"x": [1]}), server=server, workload="w")
    with pytest.raises(CourseError, match="cannot be a file's name"):
        recorded.save_table("../x", pd.DataFrame({"origin": ["measured"]}), server=server, workload="w")
    with pytest.raises(CourseError, match="There are: none"):
        recorded.load_table("tools")


def test_importing_these_modules_loads_no_engine():
    code = "import sys, helpers.recorded, helpers.replay\n"
    code += "print({'vllm', 'torch', 'transformers'} & {*sys.modules})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ended.stdout.strip() == "set()"
