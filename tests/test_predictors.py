"""What the tools are asked, the trace, and what happens where they are not. Nothing is installed here."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from helpers import capacity, predictor_tools, predictors, workload
from helpers.predictor_tools import Case
from helpers.settings import REPO, CourseError

WORKER = """
import json, sys
cases = json.load(sys.stdin)
if {broken}:
    print("the tables are not here", file=sys.stderr)
    sys.exit(3)
for case in cases:
    print(json.dumps({answer}))
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A worker of our own instead of the tool's, in this Python."""

    def put(answer: str = "{}", *, broken: bool = False) -> None:
        path = tmp_path / "worker.py"
        path.write_text(WORKER.format(answer=answer, broken=broken))
        monkeypatch.setattr(predictor_tools, "WORKER", path)
        monkeypatch.setattr(predictor_tools, "environment", lambda spec, say: sys.executable)
        monkeypatch.setattr(predictor_tools.platform, "machine", lambda: "x86_64")

    return put


def test_aiconfigurator_is_asked_for_the_right_engine_kernels_and_experts(worker):
    worker("{'tables': json.dumps(case), 'ttft_ms': 1.0}")
    cases = [Case("B200", "FP8", 2, "SGLang 0.5", 8, 100, 50), Case("H100", "BF16", 1, "vLLM", 1, 10, 5)]
    frame = predictors.aiconfigurator(cases)
    one, two = (json.loads(text) for text in frame["tables"])
    assert one["backend_name"] == "sglang"
    assert one["moe_quant_mode"] == one["gemm_quant_mode"] == "fp8"
    assert one["model_path"].endswith("-BF16")  # the FP8 config is not inside the package
    assert one["tp_size"] == one["moe_tp_size"] == 2
    assert (two["system_name"], two["backend_name"]) == ("h100_sxm", "vllm")
    assert "moe_quant_mode" not in two
    assert set(frame["origin"]) == {"modelled"}
    assert math.isnan(frame["tpot_ms"].iloc[0])  # not said


def test_replay_is_not_asked_for_what_it_cannot_do(worker):
    worker("{'mean_ttft_ms': case['engine']['num_gpu_blocks'], 'median_ttft_ms': case['replay_concurrency']}")
    cases = [Case("B200", "FP8", 1, "vLLM", 4, 100, 50), Case("B200", "BF16", 1, "vLLM", 4, 100, 50)]
    frame = predictors.replay(cases)
    assert frame["why"].tolist() == ["it can only be asked for BF16", ""]
    assert math.isnan(frame["ttft_ms"].iloc[0])
    assert frame["ttft_ms"].iloc[1] > 16_384  # its own pool would be too small for a B200
    assert frame["ttft_p50_ms"].iloc[1] == 4


def test_a_tool_that_breaks_says_its_last_words_and_what_goes_on(worker):
    worker(broken=True)
    with pytest.raises(CourseError, match=r"(?s)0 of 1 cases.*tables are not here.*recorded run"):
        predictors.aiconfigurator([Case("B200", "BF16", 1, "vLLM", 1, 10, 5)])


def test_another_processor_gets_the_recorded_run(monkeypatch):
    monkeypatch.setattr(predictor_tools.platform, "machine", lambda: "arm64")
    with pytest.raises(CourseError, match="recorded_points"):
        predictors.aiconfigurator([Case("B200", "BF16", 1, "vLLM", 1, 10, 5)])


def test_the_worker_goes_on_after_a_case_that_fails(monkeypatch, capfd):
    from helpers import predictor_worker

    class Panic(BaseException):
        """What the compiled part of such a tool raises."""

    def estimate(**case):
        print("noise")
        if case["batch"] == 2:
            raise Panic("no table for this at /somewhere/secret")
        return SimpleNamespace(
            ttft=1.0, tpot=2.0, tokens_per_second=3.0, backend_name="vllm", backend_version="0",
            per_ops_source={"step": {"a": "silicon", "b": "sol", "c": "sol"}},
        )  # fmt: skip

    module = SimpleNamespace(cli_estimate=estimate)
    monkeypatch.setitem(sys.modules, "aiconfigurator", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "aiconfigurator.cli", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "aiconfigurator.cli.api", module)
    answer = predictor_worker._aiconfigurator()
    found = answer({"batch": 1})
    assert found["kernels"] == "1 silicon, 2 sol"
    with pytest.raises(Panic):
        answer({"batch": 2})
    assert predictor_worker._answered(answer, {"batch": 2}) == {"why": "Panic: no table for this"}


def test_the_trace_is_the_workload(tmp_path):
    path = tmp_path / "trace.jsonl"
    count = predictors.write_trace(path, 5, seconds=200, seed=3)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert count == len(rows)
    sessions = pd.DataFrame(rows).groupby("session_id", sort=False)
    assert len(sessions) == 5
    for _, mine in sessions:  # one start a line, then pauses
        assert mine["timestamp"].notna().tolist() == [True] + [False] * (len(mine) - 1)
        assert mine["delay"].notna().sum() == len(mine) - 1
    calls = workload.load()
    first = capacity.asks(calls, calls.call(0, seed=3))
    assert [row["input_length"] for row in rows[: len(first)]] == [ask.prompt_tokens for ask in first]
    assert [row["output_length"] for row in rows[: len(first)]] == [ask.output_tokens for ask in first]
    assert rows[1]["delay"] == pytest.approx(1000 * (first[1].listen_s + first[1].pause_s))
    block = predictor_tools.TRACE_BLOCK
    assert all(len(row["hash_ids"]) == -(-row["input_length"] // block) for row in rows)


def test_the_traces_blocks_are_shared_where_the_text_is(tmp_path):
    path = tmp_path / "trace.jsonl"
    predictors.write_trace(path, 2, seconds=1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    one = [row["hash_ids"] for row in rows if row["session_id"] == "line-0"]
    other = [row["hash_ids"] for row in rows if row["session_id"] == "line-1"]
    calls = workload.load()
    system = capacity.asks(calls, calls.call(0))[0].known_tokens // predictor_tools.TRACE_BLOCK
    assert one[0][:system] == other[0][:system]  # the system prompt is everybody's
    assert not set(one[0][system:]) & {number for ids in other for number in ids}  # the rest is not
    whole = len(one[0]) - 1
    assert one[1][:whole] == one[0][:whole]  # a call's own history is found again
    assert one[1][whole] != one[0][whole]  # but not its last, unfinished block


def test_the_same_trace_twice(tmp_path):
    for name in ("a", "b"):
        predictors.write_trace(tmp_path / name, 3, seconds=60)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_recorded_tables_have_their_conditions():
    for frame in (predictors.recorded_points(), predictors.recorded_replay(), predictors.recorded_line()):
        assert set(frame["origin"]) == {"modelled"}
        about = frame.attrs["conditions"]
        assert about["command"].startswith("python -m helpers.predictors")
        assert (REPO / about["pins"]).exists()
        assert about["rows"] == len(frame)
        assert "/" not in "".join(frame["why"])  # no place on somebody's machine


def test_the_recorded_line_has_a_tail_and_a_reuse_that_a_mamba_model_would_not_get():
    line = predictors.recorded_line()
    assert (line["ttft_p95_ms"] >= line["ttft_p50_ms"]).all()
    assert (line["reuse"] > 0.5).any()


def test_recording_replaces_nothing_unasked(tmp_path):
    (tmp_path / f"{predictors.POINTS_TABLE}.csv").write_text("kept")
    with pytest.raises(CourseError, match="--replace"):
        predictors.record(predictors.POINTS_TABLE, folder=tmp_path)
    with pytest.raises(CourseError, match="no table"):
        predictors.record("nothing", folder=tmp_path)


def test_recording_and_checking(tmp_path, monkeypatch):
    frame = predictors.recorded_replay()
    monkeypatch.setitem(
        predictors.RUNNERS, predictors.REPLAY_TABLE, (lambda say: frame.copy(), predictors.DYNAMO)
    )
    (path,) = predictors.record(predictors.REPLAY_TABLE, folder=tmp_path, say=lambda line: None)
    again = pd.read_csv(path)
    assert again["tok_s"].to_numpy() == pytest.approx(frame["tok_s"].to_numpy(), nan_ok=True)
    assert predictors.check(predictors.REPLAY_TABLE)["same"].all()
    frame["tok_s"] *= 1.001
    assert not predictors.check(predictors.REPLAY_TABLE)["same"].any()
