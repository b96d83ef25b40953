"""One turn from its stages: how they join, what a lever does, and the learner's own samples in it."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import budget, budget_stages, budget_sum, budget_turn, own_latency, runs
from helpers.budget_turn import AGAIN, HEARD, LLM, SENTENCE, TOTAL, Turn
from helpers.settings import CourseError

FAST = {"n": 400}


def total(turn: Turn, **how) -> pd.Series:
    return budget_turn.simulate(turn, **FAST | how)[TOTAL]


def test_a_turn_is_the_sum_of_its_stages():
    turns = budget_turn.simulate(Turn(tool=True), n=200)
    parts = turns.drop(columns=[TOTAL, "origin"])
    assert np.allclose(parts.sum(axis=1), turns[TOTAL])
    assert set(turns["origin"]) == {"modelled"}
    assert set(budget.GROUPS) < set(parts.columns)


def test_the_wait_for_silence_is_counted_once():
    """It is inside the published TTFS: with that wait the median of the stage is the published one."""
    quick = Turn(turn_model_ms=0)
    drawn = budget_turn.simulate(quick, n=20_000)[HEARD]
    row = budget_stages.table("stt").set_index("name").loc[quick.stt]
    assert drawn.median() == pytest.approx(row["p50_ms"], rel=0.01)
    longer = budget_turn.simulate(Turn(turn_model_ms=0, stop_ms=500), n=20_000)[HEARD]
    assert (longer - drawn).to_numpy() == pytest.approx(300)


def test_beside_is_the_slower_of_the_two_and_after_is_both():
    rest = budget_turn.simulate(Turn(turn_model_ms=0), **FAST)[HEARD] - 200
    beside = budget_turn.simulate(Turn(turn_model_ms=65), **FAST)[HEARD] - 200
    after = budget_turn.simulate(Turn(turn_model_ms=65, beside=False), **FAST)[HEARD] - 200
    assert np.allclose(beside, np.maximum(rest, 65))
    assert np.allclose(after, rest + 65)


def test_a_tool_call_asks_the_model_twice_and_not_with_the_same_luck():
    turns = budget_turn.simulate(Turn(tool=True, tool_ms=250), n=4000)
    assert set(turns["tool"]) == {250}
    assert abs(np.corrcoef(turns[LLM], turns[AGAIN])[0, 1]) < 0.06
    assert turns[AGAIN].median() == pytest.approx(turns[LLM].median(), rel=0.05)
    plain = total(Turn(), n=4000)
    assert turns[TOTAL].mean() == pytest.approx(plain.mean() + 250 + turns[AGAIN].mean())


def test_the_first_sentence_costs_its_tokens():
    turn = Turn(first_words=12, ms_per_token=20)
    assert set(budget_turn.simulate(turn, **FAST)[SENTENCE]) == {turn.sentence_ms}
    assert turn.sentence_ms == pytest.approx(12 * 4 / 3 * 20, rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["stop_ms", "turn_model_ms", "first_words", "ms_per_token", "tool_ms"]),
    st.floats(0, 500),
    st.floats(0, 500),
    st.booleans(),
    st.booleans(),
)
def test_more_of_anything_never_makes_a_quicker_turn(name, one, other, tool, beside):
    low, high = sorted((one, other))
    base = {"tool": tool, "beside": beside}
    quick, slow = (total(Turn(**base, **{name: value}), n=100) for value in (low, high))
    assert (slow >= quick - 1e-9).all()


@pytest.mark.parametrize("kind", ["stt", "llm", "tts", "path"])
def test_every_choice_can_be_drawn(kind):
    for name in budget_stages.names(kind):
        turns = total(Turn(**{kind: name}))
        assert np.isfinite(turns).all()
        assert (turns > 0).all()


def test_a_verdict_turns_with_the_limit():
    turns = budget_turn.simulate(Turn())
    kept, broken = (budget_turn.verdict(turns, limit_ms=limit) for limit in (1500, 1000))
    assert kept.kept
    assert not broken.kept
    assert kept.sentence().startswith("kept")
    assert broken.sentence().startswith("broken")
    assert kept.p95.low < kept.p95.value < kept.p95.high
    assert kept.over.low < kept.over.value < kept.over.high
    assert broken.over.value > 0.05 >= kept.over.value


def test_variants_change_one_thing_each_and_meet_the_same_chances():
    rows = budget_turn.variants({"base": {}, "again": {}, "wait": {"stop_ms": 500.0}}, **FAST).set_index(
        "case"
    )
    assert rows.loc["again", "more_ms"] == 0
    assert rows.loc["wait", "more_ms"] == pytest.approx(300)
    assert set(budget_turn.variants(budget_turn.LEVERS, **FAST)["origin"]) == {"modelled"}
    with pytest.raises(CourseError, match="a turn has no speed"):
        budget_turn.variants({"odd": {"speed": 3}})


def test_the_largest_model_meets_the_limit_exactly():
    turn = Turn()
    largest = budget_turn.largest_llm_p95_ms(turn, n=2000)
    model = budget_stages.stage("llm", turn.llm)
    factor = largest / model.at(0.95)
    at, above = (
        budget_turn.verdict(budget_turn.simulate(turn, llm=model.scaled(factor * more), n=2000)).p95.value
        for more in (1, 1.01)
    )
    assert at <= budget.LIMIT_MS < above
    assert at == pytest.approx(budget.LIMIT_MS, rel=0.001)
    assert math.isnan(budget_turn.largest_llm_p95_ms(turn, limit_ms=300, n=200))
    with pytest.raises(CourseError, match="without end"):
        budget_turn.largest_llm_p95_ms(turn, llm=budget_sum.fixed("x", 0), n=200)


def test_the_table_of_a_turn_ends_with_the_whole_and_not_with_a_sum():
    turn = Turn(tool=True)
    turns = budget_turn.simulate(turn, n=4000)
    rows = budget_turn.table(turn, turns)
    assert rows["stage"].iloc[-1] == "the whole turn"
    assert rows["P95, ms"].iloc[-1] < rows["P95, ms"].iloc[:-1].sum()
    assert list(rows["what"][rows["stage"] == HEARD]) == [turn.stt]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Turn(stop_ms=-1), "stop_ms"),
        (lambda: Turn(tool_ms=math.nan), "tool_ms"),
        (lambda: Turn(first_words=math.inf), "first_words"),
        (lambda: Turn(ms_per_token="5"), "ms_per_token"),
        (lambda: budget_turn.simulate(Turn(stt="Siri")), "Siri"),
        (lambda: budget_turn.simulate(Turn(llm="Siri")), "Siri"),
        (lambda: budget_turn.simulate(Turn(tts="Siri")), "Siri"),
        (lambda: budget_turn.simulate(Turn(path="pigeon")), "pigeon"),
        (lambda: budget_turn.simulate(Turn(correlation=2)), "between -1 and 1"),
        (lambda: budget_turn.verdict(budget_turn.simulate(Turn(), n=100), limit_ms=-5), "limit_ms"),
    ],
)
def test_nonsense_is_said(make, words):
    with pytest.raises(CourseError, match=words):
        make()


# --- the learner's own --------------------------------------------------------------------------------------


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "WORKSPACE", tmp_path)
    (tmp_path / "runs").mkdir()

    def keep(name: str, frame: pd.DataFrame, *, date: str = "2026-12-02") -> None:
        frame.to_csv(tmp_path / "runs" / f"{name}.csv", index=False)
        about = {"date": date, "server": {"name": "my GPU"}, "workload": "mine", "origin": "measured"}
        (tmp_path / "runs" / f"{name}.json").write_text(json.dumps(about))

    return keep


def requests(ms: float, count: int = 40) -> pd.DataFrame:
    return pd.DataFrame(
        {"ttft_ms": [ms] * count, "ttfat_ms": [2 * ms] * count, "origin": "measured", "error": ""}
    )


def test_without_a_run_of_ones_own_the_recorded_one_is_taken_and_says_so(own_folder):
    frame = own_latency.newest("05-ttft")
    assert len(frame) == 200  # the counted requests of the recorded lesson, its warm-up left out
    assert set(frame["origin"]) == {"recorded"}
    assert "our recorded run" in own_latency.sentence(frame)
    later = own_latency.newest("07", clock="due_to_ttfat_ms")
    assert set(later["origin"]) == {"recorded"}
    assert (later["ms"] > 0).all()


def test_what_failed_or_warmed_up_does_not_count_and_what_the_end_cut_does(own_folder):
    kinds = {"": 100, "cut": 200, "connection refused": 1}
    rows = [(ms, error, "measured") for error, ms in kinds.items()] + [
        (7, "", "warm-up"),
        (None, "cut", "measured"),
    ]
    frame = pd.DataFrame(rows, columns=["ttft_ms", "error", "phase"]).assign(origin="measured")
    own_folder("05-ttft-20261201-101500", pd.concat([frame] * 40))
    assert set(own_latency.newest("05-ttft")["ms"]) == {100, 200}


def test_a_limit_longer_than_an_hour_is_a_slip(own_folder):
    with pytest.raises(CourseError, match="hour"):
        budget_turn.largest_llm_p95_ms(budget_turn.Turn(), limit_ms=1e308)


def test_the_newest_run_of_ones_own_comes_first(own_folder):
    own_folder("05-ttft-20261201-101500", requests(100))
    own_folder("05-ttft-20261202-080000", requests(50))
    frame = own_latency.newest("05-ttft")
    assert set(frame["ms"]) == {50}
    assert set(frame["server"]) == {"my GPU"}
    assert "your own run 05-ttft-20261202-080000" in own_latency.sentence(frame)
    assert set(own_latency.newest("05-ttft", clock="ttfat_ms")["ms"]) == {100}
    stage = own_latency.stage("05-ttft")
    assert (stage.origin, stage.server, stage.at(0.95)) == ("measured", "my GPU", 50)


def test_runs_of_lesson_07_are_sorted_by_their_time_not_their_name(own_folder):
    waits = requests(100).assign(due_to_ttfat_ms=300.0, phase="measured")
    own_folder("07-zebra-20261201-101500", waits)
    own_folder("07-ant-20261202-101500", waits.assign(due_to_ttfat_ms=400.0))
    assert set(own_latency.newest("07", clock="due_to_ttfat_ms")["ms"]) == {400}


def test_what_does_not_count_is_left_out_and_too_small_a_run_passed_over(own_folder):
    frame = requests(100, 60).assign(phase="measured")
    frame.loc[:9, "phase"], frame.loc[10:14, "error"], frame.loc[15:17, "ttft_ms"] = (
        "warmup",
        "status",
        np.nan,
    )
    own_folder("07-some-20261201-101500", frame)
    assert len(own_latency.newest("07")) == 60 - 10 - 5 - 3
    own_folder("07-few-20261203-101500", frame.tail(5))
    assert set(own_latency.newest("07")["run"]) == {"07-some-20261201-101500"}


def test_own_samples_go_into_a_turn_as_they_are(own_folder):
    own_folder("05-ttft-20261201-101500", requests(123))
    turns = budget_turn.simulate(Turn(), llm=own_latency.stage(), **FAST)
    assert set(turns[LLM]) == {123}


def test_a_kind_or_clock_that_is_not_there_is_named(own_folder):
    with pytest.raises(CourseError, match="'06'"):
        own_latency.newest("06")
    with pytest.raises(CourseError, match="due_to_ttfat_ms"):
        own_latency.newest("05-ttft", clock="due_to_ttfat_ms")
    with pytest.raises(CourseError, match="itl_ms"):
        own_latency.newest("07", clock="itl_ms")


def test_a_damaged_run_is_named(own_folder, tmp_path):
    (tmp_path / "runs" / "05-ttft-20261201-101500.csv").write_text("ttft_ms,origin\n1,measured\n")
    with pytest.raises(CourseError, match="05-ttft-20261201-101500"):
        own_latency.newest("05-ttft")
