"""The limit in real time: converted at the load of the search, held against real time, kept, found again."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import limits, limits_converted, search, settings, sweeps
from helpers.found import Found
from helpers.limits import Limit
from helpers.limits_converted import Pauses
from helpers.probes import COLUMNS
from helpers.settings import CourseError, Server

REAL_TIME, TIME_LAPSE = sweeps.lesson_workloads()
SERVER = Server("http://127.0.0.1:9/v1", "m", name="a fake server")
GOOD = Limit(30.0, 20.0, 40.0, "measured", "a server", "2026-12-01", "By hand.")


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    return tmp_path / "workspace" / "runs"


def lines(live_calls, gap_s, listen_s, wait_s, flight_s, *, seconds=200.0, seed=0):
    """Requests of lines that ask again and again: in virtual time, with a known cycle."""
    chance, rows = np.random.default_rng(seed), []
    for line in range(live_calls):
        heard_s = float(chance.uniform(0, gap_s + listen_s + wait_s))
        for turn in range(10_000):
            due_s = heard_s + gap_s * chance.uniform(0.5, 1.5)
            if due_s > seconds:
                break
            ended_s = due_s + flight_s
            heard_s = max(due_s + wait_s + listen_s, ended_s)
            rows.append((f"{seed}-{line}", turn, due_s, due_s + wait_s, ended_s, heard_s))
    frame = pd.DataFrame(rows, columns=["call", "turn", "due_s", "first_answer_s", "ended_s", "heard_s"])
    return frame.assign(
        sent_s=frame["due_s"],
        call_began_s=0.0,
        live_calls=float(live_calls),
        phase=np.where(frame["due_s"] < seconds / 5, "warmup", "measured"),
        due_to_ttfat_ms=1000 * wait_s,
        error=None,
        origin="measured",
    )


def a_sweep(*tables, trusted=True):
    levels = pd.DataFrame(
        {
            "live_calls": [int(table["live_calls"].iloc[0]) for table in tables],
            "seconds": 160.0,
            "lag_p95_ms": 1.0,
            "trusted": trusted,
            "why_not": "",
            "ended": "time",
            "origin": "measured",
            "server": "a fake server",
        }
    )
    return sweeps.Sweep(pd.concat(tables, ignore_index=True), pd.DataFrame(), levels)


def a_found(live_calls=8, low=4, high=12):
    probes = pd.DataFrame(
        [(live_calls, 64, 200, 0.96, 500.0, "search", 64, "open", "", "measured")], columns=list(COLUMNS)
    )
    return Found(live_calls, low, high, None, probes, "done", 600.0, 0.95, sweeps.CLOCK, 0.95)


# --- the conversion ---------------------------------------------------------------------------------------


@given(
    live_calls=st.integers(5, 40),
    listen_s=st.floats(0.2, 4),
    wait_s=st.floats(0.05, 1),
    more_s=st.floats(0, 3),
)
def test_a_run_in_real_time_is_its_own_number_of_calls(live_calls, listen_s, wait_s, more_s):
    """Whether the voice or the last token ends a turn: Little's law gives the lines back."""
    run = lines(live_calls, 2.0, listen_s, wait_s, wait_s + more_s)
    found = limits_converted.converted(run, Pauses(2.0, listen_s))
    assert found["live_calls"] == pytest.approx(live_calls, rel=0.1)
    assert found["in_flight"] / found["duty_cycle"] == pytest.approx(found["live_calls"])


def test_time_lapse_and_real_time_under_the_same_load_are_converted_alike():
    """Six lines at five times the speed keep as many requests in flight as more of them in real time."""
    lapse = lines(6, 0.6, 0.4, 0.3, 1.0, seconds=400)
    real = Pauses(3.0, 2.0)
    found = limits_converted.converted(lapse, real)
    again = limits_converted.converted(lines(round(found["live_calls"]), 3.0, 2.0, 0.3, 1.0), real)
    assert again["in_flight"] == pytest.approx(found["in_flight"], rel=0.1)
    assert again["live_calls"] == pytest.approx(found["live_calls"], rel=0.1)
    assert found["live_calls"] > 3 * 6


def test_the_duty_cycle_of_an_idle_server_would_promise_more():
    idle = lines(4, 3.0, 2.0, 0.1, 0.4)
    busy = limits_converted.converted(lines(30, 3.0, 2.0, 0.5, 2.0), Pauses(3.0, 2.0))
    alone = limits_converted.converted(idle, Pauses(3.0, 2.0))["duty_cycle"]
    assert busy["in_flight"] / alone > 2 * busy["live_calls"]


def test_speaking_and_thinking_are_those_of_the_plan_and_listening_is_as_it_was():
    found = limits_converted.pauses(REAL_TIME, lines(4, 3.0, 1.5, 0.1, 0.4))
    turns = [turn for call in REAL_TIME.calls(2000, seed=1) for turn in call.turns]
    assert found.gap_s == pytest.approx(np.mean([turn.speak_s + turn.think_s for turn in turns]), rel=0.05)
    assert found.listen_s == pytest.approx(1.5)
    faster = limits_converted.pauses(TIME_LAPSE, lines(4, 3.0, 1.5, 0.1, 0.4))
    assert faster.gap_s == pytest.approx(found.gap_s / sweeps.PACE, rel=0.01)


def test_answers_that_came_slower_than_the_voice_say_nothing_about_listening():
    slow = lines(4, 3.0, 0.2, 0.1, 3.0)
    both = pd.concat([slow, lines(4, 3.0, 1.5, 0.1, 0.4, seed=1)])
    assert limits_converted.pauses(REAL_TIME, both).listen_s == pytest.approx(1.5)


def test_what_cannot_be_converted_says_why():
    with pytest.raises(CourseError, match="tools"):
        limits_converted.pauses(sweeps.workload.load(), lines(4, 3.0, 1.5, 0.1, 0.4))
    with pytest.raises(CourseError, match="heard an answer"):
        limits_converted.pauses(REAL_TIME, lines(4, 3.0, 1.5, 0.1, 0.4).assign(heard_s=math.nan))
    with pytest.raises(CourseError, match="fewer than two"):
        limits_converted.converted(lines(4, 3.0, 1.5, 0.1, 0.4).iloc[:1], Pauses(3.0, 1.5))
    with pytest.raises(CourseError, match="kept no measurement"):
        limits_converted.at_level([], 8, Pauses(3.0, 1.5))


def test_the_measurements_of_a_level_count_together_and_an_unmeasured_one_goes_by_its_neighbour():
    tables = [lines(8, 0.6, 0.4, 0.3, 1.0, seed=seed) for seed in (0, 1)] + [lines(16, 0.6, 0.4, 0.4, 1.4)]
    beside = Pauses(3.0, 2.0)
    at = limits_converted.at_level(tables, 8, beside)
    alone = [limits_converted.converted(table, beside)["live_calls"] for table in tables]
    assert min(alone[:2]) <= at["live_calls"] <= max(alone[:2])
    assert limits_converted.at_level(tables, 17, beside)["live_calls"] == pytest.approx(alone[2] * 17 / 16)


def test_the_conversion_holds_against_the_recorded_sweep_in_real_time():
    """Its live calls are known, level by level; and the recorded limit lies where that sweep has it."""
    kept = sweeps.kept_sweep(sweeps.REAL_TIME)
    checked = limits_converted.check(REAL_TIME, kept)
    assert list(checked["live_calls"]) == list(kept.levels["live_calls"])
    assert checked["off"].abs().max() < 0.25
    assert checked["off"].abs().median() < 0.12
    low, high = limits_converted.bracket(sweeps.curve(kept, 600))
    limit = limits.recorded()
    assert 0 < low <= limit.live_calls <= high < math.inf, "the conversion misses the sweep in real time"
    found, tables = sweeps.recorded_search()
    at = limits_converted.at_level(
        tables, found.live_calls, limits_converted.pauses(REAL_TIME, kept.requests)
    )
    assert low * 0.8 <= at["live_calls"] <= high * 1.2
    assert f"{at['live_calls']:.0f} live calls" in limit.how


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([1.0, 0.99, 0.5], (4.0, 8.0)),
        ([1.0, 0.85, 1.0], (2.0, 4.0)),  # a lucky level above an unlucky one is outvoted
        ([0.5, 0.4, 0.3], (0.0, 2.0)),
        ([1.0, 1.0, 0.96], (8.0, math.inf)),
    ],
)
def test_between_which_levels_the_limit_lies(shares, expected):
    curve = pd.DataFrame({"live_calls": [2, 4, 8], "share": shares, "n": 50})
    assert limits_converted.bracket(curve) == expected


# --- the limit --------------------------------------------------------------------------------------------


def derive(found, tested=None, **more):
    tables = [lines(level, 0.6, 0.4, 0.3, 1.0, seed=level) for level in (4, 8, 12)]
    how = {"origin": "measured", "server": "a server", "date": "2026-12-01"} | more
    return limits.derived(
        found, kind=REAL_TIME, tables=tables, real_time=lines(4, 3.0, 2.0, 0.1, 0.4), tested=tested, **how
    )


def test_the_bounds_are_converted_with_the_answer():
    limit = derive(a_found())
    assert 0 < limit.low < limit.live_calls < limit.high
    assert limit.live_calls > 3 * 8
    for part in (limit.live_calls, limit.low, limit.high):
        assert part == int(part)
    for words in ("search in time-lapse", "8 live calls there", "converted likewise", "due_to_ttfat_ms"):
        assert words in limit.how
    nothing_sure = derive(a_found(low=0, high=None))
    assert (nothing_sure.low, nothing_sure.high) == (0, None)
    assert "no number surely breaks it" in nothing_sure.sentence()


def a_test_at(live_calls, wait_s):
    return lines(live_calls, 3.0, 2.0, wait_s, wait_s + 0.3, seconds=60).assign(
        call=lambda rows: rows["call"] + "-" + rows["turn"].astype(str)
    )


def test_what_is_proved_in_real_time_replaces_the_converted_bound():
    holds = derive(a_found(), a_sweep(a_test_at(36, 0.3)))
    assert holds.low == 36
    assert holds.live_calls >= 36
    assert "surely kept the promise at 36" in holds.how
    assert "outweighs what was converted" in holds.how
    fails = derive(a_found(), a_sweep(a_test_at(20, 0.9)))
    assert (fails.live_calls, fails.high) == (19, 20)
    assert "outweighs what was converted" in fails.how
    beside = derive(a_found(), a_sweep(a_test_at(30, 0.9)))
    assert (beside.live_calls, beside.high) == (derive(a_found()).live_calls, 30)
    assert "outweighs" not in beside.how
    both = derive(a_found(), a_sweep(a_test_at(20, 0.3), a_test_at(60, 0.9)))
    assert (both.low, both.high) == (20, 60)
    assert "surely kept the promise at 20 and surely broke it at 60" in both.how


def test_bounds_that_contradict_real_time_are_dropped():
    beyond = derive(a_found(), a_sweep(a_test_at(200, 0.3)))
    assert (beyond.live_calls, beyond.low, beyond.high) == (200, 200, None)
    below = derive(a_found(), a_sweep(a_test_at(9, 0.9)))
    assert (below.live_calls, below.low, below.high) == (8, 0, 9)


def test_a_run_in_which_the_client_was_late_proves_nothing():
    untrusted = derive(a_found(), a_sweep(a_test_at(20, 0.9), trusted=False))
    assert replace(untrusted, how="") == replace(derive(a_found()), how="")


def test_without_a_level_that_keeps_the_promise_there_is_no_limit():
    with pytest.raises(CourseError, match="no limit to keep"):
        derive(a_found(live_calls=0, low=0))

    def gone(live_calls, calls):
        raise CourseError("No server.")

    with pytest.raises(CourseError, match="Start the server again"):
        derive(search.limit(gone))


@pytest.mark.parametrize(
    "wrong",
    [
        {"live_calls": 0},
        {"live_calls": math.nan},
        {"live_calls": "30"},
        {"low": -1},
        {"low": 31},
        {"high": 29},
        {"high": math.inf},
        {"origin": "published"},
    ],
)
def test_what_cannot_be_a_limit_is_refused(wrong):
    with pytest.raises(CourseError, match=next(iter(wrong))):
        replace(GOOD, **wrong)


# --- kept and found again ---------------------------------------------------------------------------------


def keep(found=None, server=SERVER):
    tables = [lines(level, 0.6, 0.4, 0.3, 1.0, seed=level) for level in (4, 8, 12)]
    return limits.keep(
        found or a_found(), server, kind=REAL_TIME, tables=tables, real_time=lines(4, 3.0, 2.0, 0.1, 0.4)
    )


def test_kept_is_found_again_and_nothing_is_overwritten(own_workspace):
    names = [keep(), keep(a_found(live_calls=12, low=8, high=None)), keep()]
    assert len(set(names)) == 3
    assert all(name.startswith("07-limit-2") for name in names)
    kept = [json.loads((own_workspace / f"{name}.json").read_text()) for name in names]
    assert kept[0]["limit"] == kept[2]["limit"] != kept[1]["limit"]
    limit = limits.latest()
    assert limit == derive(a_found(), server="a fake server", date=limit.date)
    assert kept[0]["workload"] == REAL_TIME.sentence()
    assert kept[0]["probes"][0]["live_calls"] == 8
    assert kept[0]["conditions"]["server"]["name"] == "a fake server"
    assert limit.sentence().startswith(f"About {limit.live_calls:.0f} live calls in real time")


def test_the_newest_counts_by_its_time_and_then_by_its_number(own_workspace):
    own_workspace.mkdir(parents=True)
    names = ["07-limit-20261201-101500", "07-limit-20261201-101500-2", "07-limit-20261201-101500-10"]
    older = ["07-limit-20261130-235959", "07-limit-notes", "07-limits-20300101-000000"]
    for number, name in enumerate([*older, *names]):
        content = {"format": 1, "limit": vars(replace(GOOD, how=f"number {number}"))}
        (own_workspace / f"{name}.json").write_text(json.dumps(content))
    assert limits.latest().how == "number 5"


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"format": 1}', '{"format": 9, "limit": {}}', '{"format": 1, "limit": {"low": 1}}']
)
def test_a_damaged_file_is_named_and_an_older_limit_is_taken(damage, own_workspace):
    keep()
    before = limits.latest()
    (own_workspace / "07-limit-20991231-235959.json").write_text(damage)
    with pytest.warns(UserWarning, match=r"07-limit-20991231-235959\.json cannot be read"):
        assert limits.latest() == before
    assert (own_workspace / "07-limit-20991231-235959.json").read_text() == damage


def test_without_an_own_limit_it_is_the_recorded_one():
    limit = limits.latest()
    assert limit == limits.recorded()
    assert limit.origin == "recorded"
    assert "vLLM" in limit.server
    assert 0 <= limit.low <= limit.live_calls
    assert "Converted from a search in time-lapse" in limit.how
    assert "right to within" in limit.how


def test_a_replayed_search_is_nobodys_own():
    with pytest.raises(CourseError, match="replayed"):
        keep(server=replace(SERVER, origin="recorded"))


def test_a_folder_that_cannot_be_written_in_is_said(own_workspace):
    own_workspace.parent.mkdir(parents=True)
    own_workspace.write_text("a file where the folder should be")
    with pytest.raises(CourseError, match="could not be written"):
        keep()


def test_a_search_on_a_server_of_known_truth_is_kept(own_workspace):
    """The whole way, from a search to the limit that the next lesson reads."""
    tables = []

    def measure(live_calls, calls):
        wait_s = 0.3 if live_calls <= 10 else 0.9
        table = lines(
            live_calls, 0.6, 0.4, wait_s, wait_s + 0.6, seconds=max(60, 2 * calls), seed=len(tables)
        )
        table["call"] = table["call"] + "-" + table["turn"].astype(str)
        tables.append(table)
        return table

    found = search.limit(measure, limit_ms=600, metric=sweeps.CLOCK, high=24, most=64, confirm=64)
    assert found.live_calls == 10
    limits.keep(found, SERVER, kind=REAL_TIME, tables=tables, real_time=lines(4, 3.0, 2.0, 0.1, 0.4))
    limit = limits.latest()
    pauses = limits_converted.pauses(REAL_TIME, lines(4, 3.0, 2.0, 0.1, 0.4))
    cycle_s = 0.6 + max(0.3 + 0.4, 0.9)
    expected = 10 / cycle_s * (pauses.gap_s + max(0.3 + pauses.listen_s, 0.9))
    assert limit.live_calls == pytest.approx(expected, rel=0.1)
    assert 0 < limit.low <= limit.live_calls < limit.high
