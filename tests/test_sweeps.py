"""Sweeps: several levels on one axis of time, what follows from them, and what is recorded of them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fakeserver import CUT, DONE, ROLE, chunk, serve, usage_chunk

from helpers import calls, load, recorded, search, simulated, sweeps, workload
from helpers.settings import CourseError, Server

FAST = workload.load().scaled(turns=0.4, pauses=0.02, pace=100, tools=0)
QUIET = {"say": lambda line: None}
REPLAY = Server("http://127.0.0.1:9/v1", "m", origin="recorded", name="a replay")


def answers(body):
    end = [(0, usage_chunk(5)), (0, DONE)]
    return [(0, ROLE), (0.01, chunk("Hello there, ")), (0.01, chunk("caller", finish="stop")), *end]


@pytest.fixture(scope="module")
def made():
    """A sweep of two levels on a server that is always as fast."""
    with serve(answers) as server:
        there = replace(server.as_server(), name="a fake server")
        return sweeps.run(there, FAST, (2, 4), seconds=1.0, warmup_s=0.3, **QUIET)


def kept_in(folder, monkeypatch, name, sweep):
    """Record a sweep in a folder of the test's own."""
    monkeypatch.setattr(recorded, "RUNS", folder)
    about = {"server": {"name": "vLLM on CPU"}, "date": "2026-12-01"}
    monkeypatch.setattr(recorded, "conditions", lambda server, lesson: dict(about))
    server = Server("http://127.0.0.1:9/v1", "m", name="vLLM on CPU")
    sweeps.keep_sweep(name, sweep, server, "a test's calls")
    return server


def test_each_level_is_there_with_other_callers(made):
    assert list(made.levels["live_calls"]) == [2, 4]
    assert set(made.measured["live_calls"]) == {2.0, 4.0}
    assert not set(made.at(2)["call"]) & set(made.at(4)["call"])
    assert (made.levels["ended"] == "time").all()
    assert set(made.requests["phase"]) == {"warmup", "measured"}


def test_a_level_that_was_not_tried_is_named(made):
    with pytest.raises(CourseError, match="no level of 3 live calls"):
        made.at(3)


def test_the_curve_counts_calls_and_turns_and_what_was_in_time(made):
    curve = sweeps.curve(made, 1000)
    assert list(curve["live_calls"]) == [2, 4]
    for row in curve.to_dict("records"):
        part = made.at(row["live_calls"])
        assert row["n"] == part["call"].nunique()
        assert row["turns"] == len(part)
        assert row["share"] == 1
        assert row["goodput_per_s"] == row["requests_per_s"] == len(part) / 1.0
        assert row["p50_ms"] <= row["p95_ms"] <= row["high_ms"]
    none = sweeps.curve(made, 0.001)
    assert (none["goodput_per_s"] == 0).all()
    assert (none["requests_per_s"] == curve["requests_per_s"]).all()


def test_the_levels_follow_one_another_on_the_axis_of_time(made):
    frame = sweeps.over_time(made)
    spans = frame.groupby("live_calls")["at_s"].agg(["min", "max"])
    assert spans.loc[4, "min"] > spans.loc[2, "max"]
    waits = frame[frame["series"] == "TTFAT"]
    assert len(waits) == len(made.requests)
    assert frame["value"].notna().all()
    assert (frame.loc[frame["series"] == "in flight", "value"] <= frame["live_calls"].max()).all()


def test_a_request_without_an_answer_is_infinitely_slow_in_every_view():
    def broken(body):
        return [(0, ROLE), (0.005, CUT)]

    with serve(broken) as server:
        sweep = sweeps.run(server.as_server(), FAST, (3,), seconds=0.8, warmup_s=0.0, **QUIET)
    curve = sweeps.curve(sweep, 600)
    assert curve["failed"].iloc[0] == curve["turns"].iloc[0] > 0
    assert curve["goodput_per_s"].iloc[0] == 0
    assert math.isinf(curve["p50_ms"].iloc[0])
    frame = sweeps.over_time(sweep)
    assert np.isinf(frame.loc[frame["series"] == "TTFAT", "value"]).all()


def test_a_server_that_is_gone_ends_the_sweep_with_what_there_is():
    with serve(answers) as server:
        gone = server.as_server()
    sweep = sweeps.run(gone, FAST, (2, 4, 8), seconds=30.0, warmup_s=0.0, **QUIET)
    assert list(sweep.levels["live_calls"]) == [2]
    assert sweep.levels["ended"].iloc[0].startswith("server gone")


def test_after_a_server_that_is_gone_each_view_says_how_it_ended_and_what_to_do():
    with serve(answers) as server:
        gone = server.as_server()
    sweep = sweeps.run(gone, FAST, (2, 4, 8), seconds=30.0, warmup_s=30.0, **QUIET)
    assert sweep.measured.empty
    for view in (lambda: sweeps.curve(sweep, 600), lambda: sweep.nearest(12), lambda: sweep.at(2)):
        with pytest.raises(CourseError, match=r"(?s)It tried: 2\..*server gone.*engine\.connect"):
            view()
    assert "untested" in sweeps.beside(30, sweep, 600)


def test_the_nearest_level_is_one_that_was_measured(made):
    assert [made.nearest(level) for level in (1, 2, 4, 12)] == [2, 2, 4, 4]


def test_a_prediction_is_held_against_what_was_tried(made):
    assert sweeps.beside(4, made, 1000) == ""
    above = sweeps.beside(40, made, 1000)
    assert "40 live calls were not tried; the runs here had 2, 4." in above
    assert "At 4 the promise was still kept" in above
    assert "Already at 2 only 0% of the turns were in time" in sweeps.beside(40, made, 0.001)
    assert "either side" in sweeps.beside(3, made, 1000)


@pytest.mark.parametrize("wrong", [{"warmup_s": -1}, {"warmup_s": None}, {"most_s": 0}, {"most_s": "25"}])
def test_a_search_is_refused_before_it_begins(wrong):
    with pytest.raises(CourseError, match=next(iter(wrong))):
        sweeps.measure(Server("http://127.0.0.1:9/v1", "m"), FAST, **wrong)


def test_no_levels_at_all_is_said():
    with pytest.raises(CourseError, match="no level to try"):
        sweeps.run(Server("http://127.0.0.1:9/v1", "m"), FAST, (), seconds=1.0)


def test_littles_law_holds_on_each_level(made):
    found = sweeps.little(made)
    assert list(found["live_calls"]) == [2, 4]
    assert np.allclose(found["rate_x_time"], found["mean_in_flight"])


def test_a_recorded_sweep_is_the_same_sweep(made, tmp_path, monkeypatch):
    kept_in(tmp_path, monkeypatch, "07-test", made)
    sweep = sweeps.run(REPLAY, FAST, (1,), seconds=1.0, kept="07-test", **QUIET)
    assert set(sweep.requests["origin"]) == set(sweep.levels["origin"]) == {"recorded"}
    assert set(sweep.requests["server"]) == {"vLLM on CPU, 2026-12-01"}
    assert len(sweep.requests) == len(made.requests)
    before, after = sweeps.curve(made, 1000), sweeps.curve(sweep, 1000)
    assert list(before["n"]) == list(after["n"])
    assert np.allclose(before["p95_ms"], after["p95_ms"], atol=0.06)  # kept to a tenth of a millisecond
    assert np.allclose(before["duty_cycle"], after["duty_cycle"], atol=0.01)
    waits = [
        (frame["series"] == "TTFAT").sum() for frame in (sweeps.over_time(sweep), sweeps.over_time(made))
    ]
    assert waits[0] == waits[1]
    assert np.allclose(sweeps.little(sweep)["rate_x_time"], sweeps.little(made)["rate_x_time"], atol=0.01)


@pytest.mark.parametrize(
    ("p95_ms", "begins"),
    [
        ([100.0, 250.0, 700.0], 4),
        ([100.0, 250.0, 290.0], 8),
        ([400.0, 250.0, 290.0], 1),  # a bad level below: nothing above it is plain
        ([np.inf, np.inf, np.inf], 1),
    ],
)
def test_a_search_begins_where_the_sweep_was_plain(p95_ms, begins):
    levels = pd.DataFrame({"live_calls": [2, 4, 8], "p95_ms": p95_ms})
    assert sweeps.first_level(levels, 600) == begins


def test_a_measurement_gives_new_calls_each_time_and_says_how_it_ended():
    tables = []
    with serve(answers) as server:
        take = sweeps.measure(server.as_server(), FAST, warmup_s=0.2, most_s=5.0, keep=tables)
        first, second = take(4, 8), take(4, 8)
    assert len(tables) == 2
    assert not set(first["call"]) & set(second["call"])
    for table in (first, second):
        assert table.attrs["ended"] == "done"
        measured = table[table["phase"] == "measured"]
        assert measured["call"].nunique() >= 8


def test_a_server_that_answers_nothing_ends_a_search_with_a_course_error():
    with serve(answers) as server:
        gone = server.as_server()
    take = sweeps.measure(gone, FAST, warmup_s=5.0, most_s=5.0)
    with pytest.raises(CourseError, match="No request was measured at 4 live calls"):
        take(4, 8)


def test_a_recorded_search_comes_out_as_it_did(tmp_path, monkeypatch):
    law = simulated.Server("a law", lambda live_calls: 30.0 * live_calls)
    tables = []

    def live(live_calls, count):
        tables.append(law.requests(live_calls, count, seed=len(tables)))
        return tables[-1]

    how = {"limit_ms": 600, "metric": sweeps.CLOCK, "low": 4} | sweeps.SEARCH_SETTINGS
    once = search.limit(live, **how)
    monkeypatch.setattr(recorded, "RUNS", tmp_path)
    about = {"server": {"name": "vLLM on CPU"}, "date": "2026-12-01"}
    monkeypatch.setattr(recorded, "conditions", lambda server, lesson: dict(about))
    probes = pd.concat([table.assign(probe=number) for number, table in enumerate(tables)])
    server = Server("http://127.0.0.1:9/v1", "m", name="vLLM on CPU")
    recorded.save_table("07-test", sweeps.slim(probes), server=server, workload="a law")
    kept = []
    again = search.limit(sweeps.measure(REPLAY, FAST, kept="07-test", keep=kept), **how)
    assert again.sentence() == once.sentence()
    assert [len(table) for table in kept] == [len(table) for table in tables]
    take = sweeps.measure(REPLAY, FAST, kept="07-test")
    with pytest.raises(CourseError, match="no further measurement at 47 live calls"):
        take(47, 10)


def test_what_is_recorded_for_the_lesson_is_complete():
    """The lesson runs on these where there is no live server."""
    for name in (sweeps.SWEEP, sweeps.REAL_TIME, sweeps.BURST):
        sweep = sweeps.kept_sweep(name)
        assert set(sweep.requests["origin"]) == {"recorded"}
        assert len(sweeps.curve(sweep, 600)) == len(sweep.levels)
        assert len(sweep.pages) > 0
    assert {1, 4, 8, 12, 16} <= set(sweeps.kept_sweep(sweeps.SWEEP).levels["live_calls"])
    tables = []
    take = sweeps.measure(REPLAY, FAST, kept=sweeps.SEARCH, keep=tables)
    low = sweeps.first_level(sweeps.curve(sweeps.kept_sweep(sweeps.SWEEP), 600), 600)
    found = search.limit(take, limit_ms=600, metric=sweeps.CLOCK, low=low, **sweeps.SEARCH_SETTINGS)
    assert not found.ended.startswith("server gone"), (
        "the recorded search is not the one of today: make record"
    )
    assert 0 < calls.mean_in_flight(tables[-1]) < 64


@pytest.mark.parametrize(
    "levels", [(1, 0), (2, 2), (1, 2.5), (1, "4"), (1, math.nan), 4, "48", None, (1, 10**6)]
)
def test_levels_are_checked_before_the_first_is_measured(levels, monkeypatch):
    monkeypatch.setattr(load, "run", lambda *args, **more: pytest.fail("measured"))
    with pytest.raises(CourseError):
        sweeps.run(Server("http://127.0.0.1:9/v1", "fake"), FAST, levels, seconds=1)


def test_a_failed_request_is_late_in_the_figures_as_it_is_in_the_table():
    requests = pd.DataFrame(
        {sweeps.CLOCK: [50.0, 50.0, 50.0, math.nan], "error": [None, "connection", "cut", "cut"]}
    )
    assert sweeps.waits_ms(requests).tolist() == [50.0, math.inf, 50.0, math.inf]


def test_a_search_without_a_table_says_so():
    with pytest.raises(CourseError, match="measured nothing"):
        sweeps.last([])
