"""Several tools, one table: what is measured here, and what is filled in from recorded rows."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers import opinions, practice, recorded, tools
from helpers.settings import CourseError
from tests import fakeserver

ROWS = {"tool": ["aiperf"], "metric": ["TTFT"], "p50_ms": [1.0], "max_ms": [2.0], "n": [3]}


@pytest.fixture
def server():
    # Thinks first, then answers: TTFT and TTFAT must differ.
    script = [
        (0.0, fakeserver.ROLE),
        (0.02, fakeserver.chunk(reasoning="Hm")),
        (0.06, fakeserver.chunk(content="Yes")),
        (0.0, fakeserver.chunk(finish_reason="stop")),
        (0.0, fakeserver.DONE),
    ]
    with fakeserver.serve(script) as running:
        yield running.as_server(origin="recorded")


def loads() -> dict[str, tools.Workload]:
    return {"thinks first": tools.Workload(prompts=("a", "b", "c"), thinking=True)}


def test_recorded_rows_fill_in_the_tools_that_did_not_run(server, monkeypatch):
    kept = pd.DataFrame(ROWS).assign(workload="thinks first", origin="recorded", server="s")
    monkeypatch.setattr(recorded, "load_table", lambda name: kept)
    frame = opinions.compare(server, loads())
    ours = frame[frame["tool"] == "our timer"].set_index("metric")
    assert ours.loc["TTFAT", "p50_ms"] > ours.loc["TTFT", "p50_ms"] > 0
    assert (ours["n"] == 3).all()
    assert frame[frame["tool"] == "aiperf"]["origin"].tolist() == ["recorded"]


def test_without_recorded_rows_the_table_has_ours_alone(server, monkeypatch):
    def nothing(name):
        raise CourseError("no such table")

    monkeypatch.setattr(recorded, "load_table", nothing)
    assert set(opinions.compare(server, loads())["tool"]) == {"our timer"}


def test_the_recorded_table_has_all_three_tools_and_shows_why_they_differ():
    kept = recorded.load_table(opinions.RECORDED_TABLE).set_index(["workload", "tool", "metric"])["p50_ms"]
    assert set(kept.index.get_level_values("tool")) == {"our timer", "vllm bench serve", "aiperf"}
    # vLLM's tool stops at the role-only chunk, which comes long before the tool call.
    assert kept["calls a tool", "vllm bench serve", "TTFT"] < 0.5 * kept["calls a tool", "our timer", "TTFT"]
    assert kept["thinks first", "our timer", "TTFAT"] > 1.5 * kept["thinks first", "our timer", "TTFT"]


def test_each_workload_is_new_to_the_prefix_cache():
    first, second = opinions.workloads(), opinions.workloads()
    for name, load in first.items():
        assert len(set(load.prompts)) == len(load.prompts)
        assert not set(load.prompts) & set(second[name].prompts)


def test_the_practice_client_keeps_its_times():
    import time

    begun = time.perf_counter()
    at_ms = [(time.perf_counter() - begun) * 1000 for _ in practice.Client(5, 20, 60).create(stream=True)]
    assert at_ms[0] >= 20
    assert at_ms[1] >= 60
    with pytest.raises(TypeError, match="stream"):
        practice.Client(5, 20, 60).create(model="any")
