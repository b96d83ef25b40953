"""aiperf and guidellm get our calls, their files become our table, and what they leave out is put back."""

import dataclasses
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import load_tools as benchmark
from benchmarks.known_server import Law, running
from helpers import calls, environments, load_tools, settings, tool_process, workload
from helpers.latency import NUMBER_COLUMNS
from helpers.load_tool_tables import COLUMNS, Plan, Step, aiperf_table, guidellm_table
from helpers.settings import CourseError, Server
from helpers.workload import Call, Turn

SAMPLES = Path(__file__).parent / "data" / "tools"
SERVER = Server("http://127.0.0.1:9/v1", "tiny", api_key="not-a-real-key", name="somewhere")
PAUSE_S = 0.4


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")


@pytest.fixture
def plan() -> Plan:
    """What was asked when the samples were made: four calls, two at a time, at most 12 s."""
    turn = Turn("hello", speak_s=0.1, think_s=0.1, calls_tool=False, max_tokens=8)
    asked = tuple(Call(f"0-{n:04d}", "be kind", (turn,) * turns) for n, turns in enumerate((4, 3, 4, 3)))
    told = {
        call.id: [Step("hello", 0.0 if place == 0 else PAUSE_S) for place in range(len(call.turns))]
        for call in asked
    }
    return Plan(asked, told, {"live_calls": 2.0, "in_flight_limit": 2.0}, 12.0, SERVER, "mark")


@pytest.fixture
def lines() -> list[dict]:
    text = (SAMPLES / "aiperf-calls-0.13.0.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def report() -> dict:
    return json.loads((SAMPLES / "guidellm-calls-0.8.1.json").read_text())


def row(table: pd.DataFrame, call: str, turn: int) -> pd.Series:
    found = table[(table["call"] == f"mark-{call}") & (table["turn"] == turn)]
    assert len(found) == 1
    return found.iloc[0]


# --- their files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["aiperf", "guidellm"])
def test_both_tools_fill_one_table(tool, plan, lines, report):
    table = aiperf_table(lines, plan) if tool == "aiperf" else guidellm_table(report, plan)
    assert tuple(table.columns) == COLUMNS
    assert set(table["made_by"]) == {tool}
    assert set(table["unit"]) == {"live calls" if tool == "aiperf" else "requests in flight"}
    assert set(table["origin"]) == {"measured"}
    assert all(table[name].dtype == float for name in NUMBER_COLUMNS)
    assert table["sent_s"].min() == 0
    assert table["sent_s"].is_monotonic_increasing
    good = table[table["outcome"] == "finished"]
    # The server thought for 30 ms, sent three tokens 20 ms apart, and counted four.
    assert good["ttft_ms"].between(50, 90).all()
    assert (good["ttfat_ms"] > good["ttft_ms"] + 10).all()
    assert (good["e2e_ms"] > good["ttfat_ms"] + 20).all()
    assert set(good["completion_tokens"]) == {4.0}
    assert good["error"].isna().all()
    assert (good["ended_s"] - good["sent_s"]).between(0.1, 0.3).all()
    bad = table[table["outcome"] == "failed"]
    assert bad[["ttft_ms", "ttfat_ms", "e2e_ms", "completion_tokens"]].isna().all(axis=None)
    assert bad["error_message"].str.contains("oo many requests", case=False).all()
    assert len(bad) == 1


def test_the_table_serves_what_is_asked_of_our_own(plan, lines):
    table = aiperf_table(lines, plan)
    law = calls.little(table).iloc[0]
    assert law["rate_x_time"] == pytest.approx(law["mean_in_flight"])
    assert 0 < calls.duty_cycle(table) < 1
    ours = load_tools.ours(table.drop(columns=["made_by", "unit", "in_flight_limit"]))
    found = load_tools.summary(ours, table)
    assert found["made_by"].tolist() == ["our load maker", "aiperf"]
    assert found["asked"].tolist() == [2, 2]
    assert found["failed"].tolist() == [2, 2]
    assert found["ttft_p50_ms"].nunique() == 1


def test_what_aiperf_left_unanswered_is_put_back(plan, lines):
    table = aiperf_table(lines, plan, ran_s=22.0)
    stalled = row(table, "0-0002", 1)
    assert (stalled["outcome"], stalled["error"]) == ("cut", "cut")
    assert "no record" in stalled["error_message"]
    assert math.isnan(stalled["ttft_ms"])
    before = row(table, "0-0002", 0)
    assert stalled["sent_s"] == pytest.approx(before["ended_s"] + PAUSE_S)
    assert stalled["ended_s"] == pytest.approx(22.0)
    assert len(table) == len(lines) + 1
    # Twenty of the 22 seconds somebody waited: without the row, Little's law would know nothing of it.
    assert calls.mean_in_flight(table) == pytest.approx(1, abs=0.1)


def test_nothing_is_put_back_that_was_not_due(plan, lines):
    soon = dataclasses.replace(plan, seconds=1.0)  # nothing was sent after one second
    assert len(aiperf_table(lines, soon, ran_s=22.0)) == len(lines)
    slow = {name: [Step(step.text, 600.0) for step in steps] for name, steps in plan.steps.items()}
    later = dataclasses.replace(plan, steps=slow)  # the caller still thinks at the end
    assert len(aiperf_table(lines, later, ran_s=22.0)) == len(lines)


def test_a_call_whose_first_answer_never_came_is_put_back(plan, lines):
    without = [line for line in lines if line["metadata"]["conversation_id"] != "0-0002"]
    table = aiperf_table(without, plan, ran_s=22.0)
    first = row(table, "0-0002", 0)
    assert first["outcome"] == "cut"
    assert first["sent_s"] == pytest.approx(row(table, "0-0003", 0)["sent_s"])
    # The last call may not have begun at all.
    without = [line for line in lines if line["metadata"]["conversation_id"] != "0-0003"]
    assert "mark-0-0003" not in set(aiperf_table(without, plan, ran_s=22.0)["call"])


def test_aiperf_asks_on_after_a_failure_and_guidellm_hangs_up(plan, lines, report):
    assert row(aiperf_table(lines, plan), "0-0001", 2)["outcome"] == "finished"
    table = guidellm_table(report, plan)
    assert table[table["call"] == "mark-0-0001"]["outcome"].tolist() == ["failed"]


def test_guidellm_keeps_what_had_come_of_a_request_that_was_cut(plan, report):
    cut = row(guidellm_table(report, plan), "0-0002", 1)
    assert (cut["outcome"], cut["error"]) == ("cut", "cut")
    assert 50 < cut["ttft_ms"] < 90
    assert math.isnan(cut["ttfat_ms"])
    assert math.isnan(cut["e2e_ms"])


def test_what_guidellm_forgot_is_put_back(plan, report):
    asked = report["benchmarks"][0]["requests"]["successful"]
    last = max(asked, key=lambda one: one["info"]["timings"]["request_end"])
    asked.remove(last)
    about = last["info"]
    table = guidellm_table(report, plan)
    assert row(table, about["conversation_id"], about["turn_index"])["outcome"] == "cut"


def test_the_wait_for_a_place_counts_from_when_a_request_was_due(plan, report):
    times = report["benchmarks"][0]["requests"]["successful"]
    late = next(one["info"] for one in times if one["info"]["turn_index"] == 1)
    for name in ("request_start", "first_request_iteration", "first_token_iteration", "request_end"):
        late["timings"][name] += 5
    late["timings"]["first_output_token_iteration"] += 5
    found = row(guidellm_table(report, plan), late["conversation_id"], 1)
    assert found["wait_ms"] > 4900
    assert found["due_to_ttfat_ms"] == pytest.approx(found["wait_ms"] + found["ttfat_ms"])
    assert found["ttfat_ms"] < 200


def test_the_warm_up_is_marked(plan, lines):
    table = aiperf_table(lines, plan, warmup_s=1.0)
    assert (table["phase"] == "warmup").tolist() == (table["due_s"] < 1.0).tolist()
    assert table["phase"].nunique() == 2


def test_no_record_at_all_says_so(plan, report):
    with pytest.raises(CourseError, match="no record of any request"):
        aiperf_table([], plan)
    report["benchmarks"][0]["requests"] = {"successful": [], "errored": None, "incomplete": []}
    with pytest.raises(CourseError, match="no record of any request"):
        guidellm_table(report, plan)


# --- what they are told -----------------------------------------------------------------------------------


def stand_in(folder: Path, name: str, result: str, text: str, monkeypatch) -> Path:
    """A module ``name`` that writes down how it was called, and then a result file."""
    called = folder / "called.json"
    module = folder / "modules" / f"{name}.py"
    module.parent.mkdir()
    module.write_text(
        "import json, os, pathlib, sys\n"
        f"pathlib.Path({str(called)!r}).write_text(json.dumps([sys.argv, dict(os.environ)]))\n"
        f"pathlib.Path({result!r}).write_text({text!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    return called


SHORT = workload.load().scaled(turns=0.4, tools=0.5)


def renamed(text: str, made: list[Call]) -> str:
    """A sample with its calls named as in another workload, so that each has a plan."""
    for number, call in enumerate(made):
        text = text.replace(f"0-{number:04d}", call.id)
    return text


def test_aiperf_gets_our_calls_and_no_key_in_its_files(tmp_path, monkeypatch):
    made = SHORT.calls(6, seed=3)
    text = renamed((SAMPLES / "aiperf-calls-0.13.0.jsonl").read_text().splitlines()[0] + "\n", made)
    called = stand_in(tmp_path, "aiperf", "profile_export.jsonl", text, monkeypatch)
    monkeypatch.setattr(tool_process, "environment", lambda spec, say: Path(sys.executable))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    table = load_tools.aiperf(
        SERVER, SHORT, live_calls=3, calls=6, seconds=50, warmup_s=8, seed=3, say=lambda line: None
    )
    assert set(table["live_calls"]) == {3.0}
    folder = next((settings.WORKSPACE / "runs" / "tools").iterdir())
    config = json.loads((folder / "config.yaml").read_text())["benchmark"]
    assert config["phases"] == {
        "type": "concurrency", "concurrency": 3, "sessions": 6, "duration": 50,
        "grace_period": load_tools.GRACE_S, "concurrency_ramp": 4.0,
    }  # fmt: skip
    assert config["dataset"]["format"] == "multi_turn"
    assert config["endpoint"]["use_server_token_count"] is True
    assert config["endpoint"]["extra"]["tool_choice"] == "none"
    sessions = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert [session["session_id"] for session in sessions] == [call.id for call in made]
    for session, call in zip(sessions, made, strict=True):
        system, first, *rest = session["turns"]
        assert system == {"role": "system", "text": call.system}
        assert call.turns[0].user in first["text"]
        assert first["text"] != call.turns[0].user
        assert "delay" not in first
        assert [turn["text"] for turn in rest] == [turn.user for turn in call.turns[1:]]
        listens_ms = 1000 * SHORT.listen_s("word " * 36)  # three quarters of the longest answer
        for told, turn in zip(rest, call.turns[1:], strict=True):
            assert told["delay"] == pytest.approx(listens_ms + 1000 * (turn.think_s + turn.speak_s))
            assert told["output_length"] == turn.max_tokens
    _, environ = json.loads(called.read_text())
    assert "HF_HUB_OFFLINE" not in environ
    assert environ["OPENAI_API_KEY"] == SERVER.api_key
    assert all(SERVER.api_key not in path.read_text() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("pauses", [True, False])
def test_guidellm_gets_our_calls_and_no_key_in_its_files(tmp_path, monkeypatch, pauses):
    made = SHORT.calls(4, seed=3)
    text = renamed((SAMPLES / "guidellm-calls-0.8.1.json").read_text(), made)
    kept = json.loads(text)
    requests = kept["benchmarks"][0]["requests"]
    requests["successful"] = [one for one in requests["successful"] if one["info"]["turn_index"] == 0]
    requests["errored"] = requests["incomplete"] = []
    called = stand_in(tmp_path, "guidellm", "result.json", json.dumps(kept), monkeypatch)
    monkeypatch.setattr(load_tools, "environment", lambda spec, say: Path(sys.executable))
    table = load_tools.guidellm(
        SERVER, SHORT, in_flight=2, calls=4, seconds=50, seed=3, pauses=pauses, say=lambda line: None
    )
    assert set(table["in_flight_limit"]) == {2.0}
    assert table["live_calls"].isna().all()
    folder = next((settings.WORKSPACE / "runs" / "tools").iterdir())
    spec = json.loads((folder / "scenario.json").read_text())["spec"]
    assert spec["profile"] == {"kind": "concurrent", "streams": [2]}
    assert spec["backend"]["max_tokens"] == SHORT.value("answer_tokens")
    assert {"kind": "max_duration", "seconds": 50} in spec["constraints"]
    assert {"kind": "max_errors", "count": 4} in spec["constraints"]  # else it waits for who hung up
    rows = [
        json.loads(line)["conversation_turns"] for line in (folder / "calls.jsonl").read_text().splitlines()
    ]
    for graph, call in zip(map(json.loads, rows), made, strict=True):
        assert graph["graph_id"] == call.id
        assert graph["turns"][0]["columns"]["prefix_column"] == [call.system]
        texts = [turn["columns"]["text_column"][0] for turn in graph["turns"]]
        assert texts[1:] == [turn.user for turn in call.turns[1:]]
        # A number of tokens in the data would make it send ignore_eos.
        assert all(set(turn["columns"]) <= {"text_column", "prefix_column"} for turn in graph["turns"])
        assert graph["turns"][-1]["settings"] is None
        assert all((turn["settings"] is not None) is pauses for turn in graph["turns"][:-1])
        assert [len(turn["parents"]) for turn in graph["turns"]] == [0] + [1] * (len(call.turns) - 1)
    _, environ = json.loads(called.read_text())
    assert environ["GUIDELLM__SPEC__BACKEND__API_KEY"] == SERVER.api_key
    assert "OPENAI_API_KEY" not in environ
    assert Path(environ["HF_HOME"]).is_relative_to(folder)
    assert all(SERVER.api_key not in path.read_text() for path in folder.rglob("*") if path.is_file())


def test_a_load_of_nothing_is_refused():
    with pytest.raises(CourseError, match="live_calls=0"):
        load_tools.aiperf(SERVER, SHORT, live_calls=0, calls=4)
    with pytest.raises(CourseError, match="calls=0"):
        load_tools.guidellm(SERVER, SHORT, in_flight=2, calls=0)


def test_the_stop_button_leaves_no_process_of_a_tool(tmp_path):
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"

    def press() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            log = tmp_path / "output.log"
            if log.exists() and log.read_text().strip():
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.02)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        tool_process.run([sys.executable, "-c", child], tmp_path, dict(os.environ), timeout_s=90)
    finger.join()
    pid = int((tmp_path / "output.log").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# --- guidellm's environment -------------------------------------------------------------------------------


def test_torch_goes_in_first_from_its_own_pin_and_elsewhere_only_if_need_be(tmp_path, monkeypatch):
    done: list[tuple[str, ...]] = []

    def install(argv, log, spec, say) -> bool:
        done.append(argv)
        return "torch-cpu.txt" not in argv[-1] or "--index-url" in argv

    monkeypatch.setattr(environments, "_done", install)
    environments._install(environments.GUIDELLM, tmp_path / "made", Path("python"), print)
    files = [Path(argv[-1]).name for argv in done[1:]]
    assert files == ["torch-cpu.txt", "torch-cpu.txt", "guidellm.txt"]
    assert ["--index-url" in argv for argv in done] == [False, False, True, False]
    assert all("--require-hashes" in argv and "--no-deps" in argv for argv in done[1:])


def test_an_environment_with_torch_is_remade_when_the_pin_of_torch_changes(tmp_path, monkeypatch):
    before = environments._fingerprint(environments.GUIDELLM)
    plain = environments._fingerprint(environments.AIPERF)
    other = tmp_path / "torch-cpu.txt"
    other.write_text("torch==0\n")
    monkeypatch.setattr(environments, "TORCH", other)
    assert environments._fingerprint(environments.GUIDELLM) != before
    assert environments._fingerprint(environments.AIPERF) == plain


def test_the_pins_of_guidellm_leave_torch_out():
    pins = environments.GUIDELLM.requirements.read_text()
    names = {line.partition("==")[0] for line in pins.splitlines() if "==" in line}
    assert {"guidellm", "datasets"} <= names
    assert not {name for name in names if name.startswith(("torch", "nvidia", "cuda", "triton"))}


# --- the benchmark ----------------------------------------------------------------------------------------


def beside(**times: list[float]) -> pd.DataFrame:
    """Requests with a role-only chunk at 1 ms, a first token at 200 and a first answer token at 300."""
    count = len(next(iter(times.values())))
    frame = pd.DataFrame({"mark": [str(n) for n in range(count)]} | times)
    log = {"role-only chunk": 1.0, "first token": 200.0, "first answer token": 300.0, "end": 500.0}
    return frame.assign(**log)


def test_a_time_is_that_of_the_nearest_event():
    about = {"origin": "measured", "server": "x"}
    tool = beside(ttft_ms=[2.0, 2.5, 3.0], ttfat_ms=[301.0, 302.0, 303.0])
    role, answer = benchmark.meaning("s", "aiperf", tool, about)
    assert (role["fires_on"], role["agrees"]) == ("role-only chunk", False)
    assert role["off_by_ms"] == pytest.approx(-197.5)
    assert (answer["fires_on"], answer["agrees"], answer["n"]) == ("first answer token", True, 3)
    silent = beside(ttft_ms=[301.0], ttfat_ms=[math.nan])
    late, none = benchmark.meaning("s", "vllm bench serve", silent, about)
    assert (late["fires_on"], late["agrees"]) == ("first answer token", False)
    assert (none["fires_on"], none["n"], none["agrees"]) == ("not reported", 0, False)


def test_where_two_events_are_one_it_is_the_one_that_was_meant():
    plain = beside(ttft_ms=[201.0], ttfat_ms=[201.0]).assign(**{"first answer token": 200.0})
    rows = benchmark.meaning("s", "aiperf", plain, {})
    assert [row["agrees"] for row in rows] == [True, True]


def test_medians_are_of_the_requests_that_all_tools_have():
    mine = beside(ttft_ms=[201.0, 202.0, 203.0], ttfat_ms=[301.0] * 3, e2e_ms=[501.0] * 3)
    theirs = beside(ttft_ms=[204.0, 205.0], ttfat_ms=[301.0] * 2, e2e_ms=[501.0] * 2)
    found = pd.concat(
        [mine.assign(tool="our load maker", repetition=0), theirs.assign(tool="aiperf", repetition=0)]
    )
    rows = {(line["number"], line["tool"]): line for line in benchmark.agreement(found)}
    assert rows["TTFT", "our load maker"]["n"] == rows["TTFT", "aiperf"]["n"] == 2
    assert rows["TTFT", "our load maker"]["p50_ms"] == pytest.approx(201.5)
    assert rows["TTFT", "aiperf"]["from_ours_ms"] == pytest.approx(3.0)
    assert rows["TTFT", "aiperf"]["paired_ms"] == pytest.approx(3.0)
    assert rows["TTFT", "aiperf"]["error_p50_ms"] == pytest.approx(4.5)
    assert [line["spread_ms"] for line in rows.values()] == pytest.approx([3.0, 3.0, 0, 0, 0, 0])


def test_a_report_can_be_read_and_says_how_each_repetition_came_out():
    quiet = beside(ttft_ms=[201.0], ttfat_ms=[301.0], e2e_ms=[501.0]).assign(repetition=0)
    busy = beside(ttft_ms=[231.0], ttfat_ms=[301.0], e2e_ms=[501.0]).assign(repetition=1)
    mine = pd.concat([quiet, quiet.assign(repetition=1)]).assign(tool="our load maker")
    found = pd.concat([mine, pd.concat([quiet, busy]).assign(tool="aiperf")])
    each = benchmark.agreement_each(found)
    ttft = {row["repetition"]: row["spread_ms"] for row in each if row["number"] == "TTFT"}
    assert ttft == {0: 0.0, 1: 30.0}
    table = load_tools.meanings()
    report = table.attrs["conditions"]["report"] | {"agreement_each": each}
    text = benchmark.markdown(report | {"meanings": table.to_dict("records")})
    assert "0.00, 30.00 ms apart" in text
    assert text.count("| vllm bench serve |") == 2 * len(benchmark.STREAMS)


def test_our_load_maker_beside_the_servers_log(tmp_path):
    law = Law(first_ms=40, first_spread_ms=20, gap_ms=5, tokens=4, reasoning_tokens=2)
    shape = dataclasses.replace(benchmark.SHORT, level=2, calls=4)
    with running(law, tmp_path / "log.jsonl") as known:
        table = benchmark.ask(benchmark.OURS, known, shape)
        found = benchmark.beside_log(table, known.records())
    assert len(found) >= 2
    assert found["mark"].is_unique
    assert (found["ttft_ms"] >= found["first token"]).all()
    assert (found["first answer token"] > found["first token"]).all()
    assert (found["role-only chunk"] < found["first token"]).all()


def test_the_recorded_table_says_where_they_differ():
    table = load_tools.meanings()
    assert set(table["origin"]) == {"recorded"}
    assert set(table["stream"]) == set(benchmark.STREAMS)
    assert set(benchmark.TOOLS) <= set(table["tool"])
    assert table[table["tool"] == benchmark.OURS]["agrees"].all()
    assert set(table[~table["agrees"]]["tool"]) <= {benchmark.VLLM}
    agreed = load_tools.agreement()
    assert set(agreed["tool"]) == set(benchmark.TOOLS)
    assert (agreed["n"] >= 50).all()
    asked = load_tools.units().groupby("unit")["asked"].unique()
    assert {int(one[0]) for one in asked} == {table.attrs["conditions"]["report"]["live_calls"]}
