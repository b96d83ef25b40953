"""The server of known delays keeps its law and logs what it did; the benchmark reads that right."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from itertools import pairwise

import pandas as pd
import pytest

from benchmarks import timer
from benchmarks.known_server import MODEL, KnownServer, Law, _arguments, running
from helpers import streaming, tools
from helpers.settings import REPO, CourseError, Server

LAW = Law(first_ms=30, first_spread_ms=40, gap_ms=5, gap_spread_ms=5, tokens=6, reasoning_tokens=2, seed=3)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    with running(LAW, tmp_path_factory.mktemp("known") / "log.jsonl") as server:
        yield server


def post(known: KnownServer, **body) -> list[str]:
    """One request; the payloads of its events."""
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hello id 5"}], **body}
    request = urllib.request.Request(
        known.server.base_url + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Request-Id": "mine"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = response.read().decode().split("\n\n")
    return [line.removeprefix("data: ") for line in lines if line]


def test_delays_depend_on_the_seed_and_the_id_only():
    assert LAW.delays_ms("7") == Law(**{**vars(LAW)}).delays_ms("7")
    assert LAW.delays_ms("7") != LAW.delays_ms("8")
    assert LAW.delays_ms("7") != Law(**{**vars(LAW), "seed": 4}).delays_ms("7")
    delays = LAW.delays_ms("7")
    assert len(delays) == LAW.tokens
    assert 30 <= delays[0] <= 70
    assert all(5 - 1e-9 <= later - earlier <= 10 + 1e-9 for earlier, later in pairwise(delays))
    assert Law(first_ms=10, gap_ms=2, tokens=3).delays_ms("anything") == [10, 12, 14]


def test_a_reply_is_a_chat_stream_and_the_log_tells_of_it(known):
    before = len(known.records())
    payloads = post(known)
    chunks = [json.loads(payload) for payload in payloads[:-1]]
    assert payloads[-1] == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [set(delta) for delta in deltas[1:-1]] == [{"reasoning"}] * 2 + [{"content"}] * 4
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 6

    records = known.records()
    assert len(records) == before + 1
    record = records[-1]
    assert (record["id"], record["request_id"], record["complete"]) == ("5", "mine", True)
    assert record["kinds"] == ["role", "reasoning", "reasoning", *["answer"] * 4, "finish", "usage"]
    assert len(record["kinds"]) == len(chunks) == len(record["sent_ns"]) == len(record["due_ns"])
    planned = [(ns - record["arrived_ns"]) / 1e6 for ns in record["due_ns"]]
    assert planned[1:7] == pytest.approx(LAW.delays_ms("5"), abs=1e-3)
    assert record["sent_ns"] == sorted(record["sent_ns"])
    # Nothing leaves before its time. The event loop may call up to its clock's tick early.
    assert all(sent >= due - 1e6 for sent, due in zip(record["sent_ns"], record["due_ns"], strict=True))


def test_a_shorter_reply_says_length(known):
    payloads = post(known, max_completion_tokens=3)
    assert json.loads(payloads[-3])["choices"][0]["finish_reason"] == "length"
    assert json.loads(payloads[-2])["usage"]["completion_tokens"] == 3


def test_it_only_streams_and_knows_its_model(known):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(known, stream=False)
    assert refused.value.code == 400
    with urllib.request.urlopen(known.server.base_url + "/models", timeout=30) as response:
        assert json.load(response)["data"][0]["id"] == known.server.model
    with urllib.request.urlopen(
        known.server.base_url.removesuffix("/v1") + "/health", timeout=30
    ) as response:
        assert response.status == 200


def test_the_role_can_come_with_the_first_token_and_reasoning_under_its_old_name(tmp_path):
    law = Law(
        first_ms=5,
        gap_ms=1,
        tokens=3,
        reasoning_tokens=1,
        reasoning_field="reasoning_content",
        role_first=False,
    )
    with running(law, tmp_path / "log.jsonl") as known:
        first = json.loads(post(known)[0])["choices"][0]["delta"]
        assert first == {"role": "assistant", "reasoning_content": " w0"}
        assert known.records()[-1]["kinds"][0] == "reasoning"
        pid = known.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_client_that_leaves_is_in_the_log_as_incomplete(tmp_path):
    with running(Law(first_ms=20, gap_ms=30_000, tokens=2), tmp_path / "log.jsonl") as known:
        timeline = streaming.ask(known.server, "id 1", timeout_s=1)
        assert timeline.error is not None
        record = known.records()[-1]
        assert not record["complete"]
        assert len(record["sent_ns"]) == 2  # the role and the first token


def test_a_log_is_never_overwritten(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("precious\n")
    with pytest.raises(CourseError, match="never overwritten"), running(LAW, log):
        pass
    assert log.read_text() == "precious\n"


def test_the_command_line_takes_every_part_of_the_law(tmp_path):
    argv = ["--log", str(tmp_path / "x"), "--first-ms", "7", "--tokens", "2", "--role-first", "False"]
    law, log = _arguments(argv)
    assert law == Law(first_ms=7, tokens=2, role_first=False)
    assert log == tmp_path / "x"


# --- the benchmark's arithmetic ---------------------------------------------------------------------------

RECORD = {
    "id": "10000",
    "request_id": "",
    "arrived_ns": 1_000_000_000,
    "kinds": ["role", "reasoning", "answer", "finish", "usage"],
    "due_ns": [1_000_000_000, 1_100_000_000, 1_130_000_000, 1_130_000_000, 1_130_000_000],
    "sent_ns": [1_000_100_000, 1_101_000_000, 1_131_000_000, 1_131_000_000, 1_131_000_000],
    "complete": True,
}


def row(**values) -> dict:
    common = {"tool": "x", "server": "s", "origin": "measured", "concurrency": 1, "request": 0, "error": ""}
    return {**dict.fromkeys(tools.COLUMNS), **common, **values}


def test_the_error_is_the_tools_ttft_minus_the_servers():
    load = timer.workload(1, 2)
    table = pd.DataFrame([row(ttft_ms=103.5), row(request=1, ttft_ms=50.0)])
    errors = timer.ttft_errors(table, load, [RECORD, {**RECORD, "id": "10001", "complete": False}])
    assert len(errors) == 1  # the second request has no whole record
    found = errors.iloc[0]
    assert found["error_ms"] == pytest.approx(2.5)
    assert found["from_first_chunk_ms"] == pytest.approx(103.4)
    assert found["from_first_answer_ms"] == pytest.approx(-27.5)
    assert found["opened"]


def test_failed_requests_have_no_error_of_time():
    table = pd.DataFrame([row(error="refused"), row(ttft_ms=None)])
    assert timer.ttft_errors(table, timer.workload(1, 2), [RECORD]).empty


def test_legs_compare_stamp_with_stamp():
    events = [streaming.Event(ns + 200_000, "{}") for ns in RECORD["sent_ns"]]
    events.append(streaming.Event(events[-1].at_ns, "[DONE]"))
    request = streaming.chat_request("Count the minutes. id 10000")
    timeline = streaming.Timeline(
        request, 999_600_000, tuple(events), 1_131_300_000, 200, True, None, "s", "measured"
    )
    found = timer.legs([timeline], [RECORD])
    assert found[found["leg"] == "request"]["error_ms"].tolist() == pytest.approx([0.4])
    assert found[found["leg"] == "chunk"]["error_ms"].tolist() == pytest.approx([0.2] * 5)
    assert timer.lateness_ms([RECORD]) == pytest.approx([0.1, 1, 1, 1, 1])


def spread_row(tool: str, median_ms: float, p99_ms: float, wave: str = "all", level: int = 64) -> dict:
    return {
        "concurrency": level,
        "tool": tool,
        "wave": wave,
        "n": 9,
        "median_ms": median_ms,
        "p99_ms": p99_ms,
    }


def test_goals_are_met_or_missed_by_the_figures():
    rows = [spread_row(timer.OURS, 0.5, 6.0), spread_row("aiperf", 0.4, 9.0)]
    rows.append(spread_row(timer.OURS, 99, 99, wave="first wave"))
    verdicts = {(goal["what"].split()[0], goal["from"]): goal["met"] for goal in timer.goals(rows)}
    assert verdicts == {
        ("median", "goal"): True,
        ("p99", "goal"): False,
        ("median", "aiperf"): False,
        ("p99", "aiperf"): True,
    }
    assert timer.goals([spread_row(timer.OURS, 0.5, 6.0, level=8)]) == []


def test_the_report_of_a_real_run_of_our_timer(tmp_path, monkeypatch):
    quick = Law(first_ms=10, gap_ms=1, tokens=3, role_first=False)
    monkeypatch.setattr(timer, "LAW", quick)
    monkeypatch.setattr(timer, "MEANING_LAW", Law(first_ms=50, gap_ms=20, tokens=4, reasoning_tokens=2))
    monkeypatch.setattr(timer, "REQUESTS", {1: 2, 64: 64})
    report = timer.run((1, 64), 1, (timer.OURS,), tmp_path, lambda text: None)
    assert {(r["concurrency"], r["wave"]): r["n"] for r in report["ttft"]} == {
        (1, "all"): 2,
        (1, "first wave"): 1,
        (1, "later"): 1,
        (64, "all"): 64,
        (64, "first wave"): 64,
    }
    assert all(r["min_ms"] > 0 for r in report["ttft"] + report["legs"])  # nothing arrives before it is sent
    assert [r["nearest"] for r in report["meaning"]] == ["first token"]
    assert len(report["goals"]) == 2
    text = timer.markdown(json.loads(json.dumps(report)))
    assert "| 64 | helpers.streaming | all | 64 |" in text
    assert str(tmp_path) not in text


def test_help_names_the_options():
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks.timer", "--help"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--record" in shown.stdout


def test_the_server_label_is_fit_for_a_legend(known):
    assert isinstance(known.server, Server)
    assert known.server.name
    assert known.server.origin == "measured"
