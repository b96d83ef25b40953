"""Lesson 07 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import lesson_mistakes
import numpy as np
import pandas as pd
import pytest
from fakeserver import DONE, ROLE, chunk, serve, usage_chunk
from scipy.stats import binom

from helpers import calls, figures, limits, load, search, showcases, sweeps, workload
from helpers.settings import Server

MODULES = (calls, figures, limits, load, search, showcases, sweeps, workload)
LESSON = lesson_mistakes.Lesson("07", math=math, np=np, binom=binom)

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        (
            "return in_flight / duty_cycle",
            "return in_flight * duty_cycle",
            "You multiplied by the duty cycle",
        ),
        ("flight_s / call_s", "flight_s / (call_s - flight_s)", "work over rest"),
        ("flight_s / call_s", "100 * flight_s / call_s", "no factor of 100"),
        ("flight_s / call_s", "1 - flight_s / call_s", "the share of the call without work"),
        ("return in_flight / duty_cycle", "return 1 / duty_cycle", "how many calls share one request"),
    ),
    "ex-2": (
        ("requests_per_minute / 60", "requests_per_minute", "divide by 60 once"),
        ("each_ms / 1000", "each_ms", "divide by 1000 once"),
        ("requests_per_minute / 60", "1000 * requests_per_minute", "Bring both to seconds"),
        ("requests_per_minute / 60", "requests_per_minute * 60", "You multiplied by 60"),
        (
            "return per_second * each_ms / 1000",
            "return per_second / (each_ms / 1000)",
            "the rate by the time",
        ),
        (
            "return per_second * each_ms / 1000",
            "return each_ms / 1000 / per_second if per_second else 0",
            "time by the rate",
        ),
        (
            "return per_second * each_ms / 1000",
            "return int(per_second * each_ms / 1000)",
            "A mean may lie between",
        ),
    ),
    "ex-3": (
        ("first_s - due_s", "first_s - _", "coordinated omission"),
        ("* 1000", "* 1", "Multiply by 1000"),
        ("first_s - due_s", "_ - due_s", "how late it was sent"),
        ("first_s - due_s", "due_s - first_s", "Later minus earlier"),
        ("waits.append(", "first_s is None or waits.append(", "left out the one without an answer"),
        ("math.inf if", "None if", "cannot be compared with a limit"),
        ("math.inf if", "math.nan if", "be it None or NaN"),
        ("math.inf if", "0 if", "the best there is"),
    ),
    "ex-4": (
        (
            "binom.cdf(slow, count, 0.05) <= 0.05",
            "slow <= 0.05 * count",
            "more often than once in three tries",
        ),
        ("binom.cdf(slow, count, 0.05) <= 0.05", "binom.cdf(slow - 1, count, 0.05) <= 0.05", "is one short"),
        (
            "binom.cdf(slow, count, 0.05) <= 0.05",
            "binom.cdf(slow + 1, count, 0.05) <= 0.05",
            "just below 0.05",
        ),
        ('return "open"', 'return "fails"', "nothing speaks for a no"),
        ('return "holds"', 'return "fails"', "speaks for the server"),
        ('return "fails"', 'return "holds"', "speaks against the server"),
        ("binom.sf(slow - 1,", "binom.sf(slow,", "it means *more than*"),
        ("binom.sf(slow - 1, count, 0.05) <= 0.05", "slow > 0.05 * count", "is no proof"),
        ("binom.sf(slow - 1,", "binom.sf(slow - 2,", "too many for the line"),
        (
            "binom.cdf(slow, count, 0.05) <= 0.05",
            "binom.cdf(slow, count, 0.05) > 0.05",
            "Which of the two chances",
        ),
    ),
}


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    lesson_mistakes.own_workspace(tmp_path, monkeypatch)


# --- what the cells do when the server is not there any more ----------------------------------------------


def answers(body):
    end = [(0, usage_chunk(5)), (0, DONE)]
    return [(0, ROLE), (0.01, chunk("Hello there, ")), (0.01, chunk("caller", finish="stop")), *end]


@pytest.fixture
def cells(monkeypatch):
    """Runs cells of the solved lesson by name, on short calls, with nothing drawn: ``cells(server, *names)``
    gives the names they left behind."""
    drawn = []

    def show(function, *given, **options):
        drawn.append(figures.alt_text(function(*given, **options)))

    monkeypatch.setattr(figures, "show", show)
    fast = workload.load().scaled(turns=0.4, pauses=0.02, pace=100, tools=0)
    space = {
        "LIMIT_MS": 600.0,
        "math": math,
        "pd": pd,
        "real_time": fast,
        "time_lapse": fast,
        "drawn": drawn,
        **{module.__name__.removeprefix("helpers."): module for module in MODULES},
    }

    def run(server, *names, **more):
        space.update({"server": server} | more)
        for name in names:
            # Shorter than in the lesson; what is tested is how the cells go on.
            source = re.sub(r"seconds=\d+", "seconds=1", LESSON.cells[name])
            exec(re.sub(r"warmup_s=\d+", "warmup_s=0.2", source).replace("most_s=25", "most_s=2"), space)
        return space

    return run


def gone_server():
    with serve(answers) as server:
        return server.as_server()


def test_a_first_run_without_an_answer_says_what_to_do(cells, capsys):
    there = cells(gone_server(), "first-run", "own-duty")
    assert not there["duty"] > 0
    said = capsys.readouterr().out
    assert "No duty cycle without an answer" in said
    assert "Run the cell `connect` again" in said
    assert "nan" not in said


def test_from_the_search_on_the_lesson_goes_on_without_a_server(cells, capsys):
    curve = pd.DataFrame({"live_calls": [4], "p95_ms": [100.0]})
    names = ("run-search", "figure-search", "found", "predict", "check-prediction", "keep-limit")
    there = cells(gone_server(), *names, duty=0.2, curve=curve)
    assert there["found"].probes.empty
    assert any("Nothing was measured" in words for words in there["drawn"])
    said = capsys.readouterr().out
    for words in (
        "Start the server again",
        "Nothing to convert",
        "the prediction is untested",
        "Your search found no limit, so none is kept",
        limits.recorded().sentence(),
    ):
        assert words in said


def test_the_burst_goes_on_with_a_sweep_that_was_stopped_early(cells, capsys):
    with serve(answers) as server:
        there = server.as_server()
        sweep = sweeps.run(there, workload.load().scaled(pace=100, pauses=0.02, tools=0), (2, 4), seconds=1,
                           warmup_s=0.2, say=lambda line: None)  # fmt: skip
        left = cells(there, "burst", sweep=sweep)
    assert left["callers"] == 4
    assert list(left["told"]["run"]) == ["all at once", "spread"]
    capsys.readouterr()


def test_on_recorded_runs_the_cell_says_that_the_prediction_was_not_tried(cells, capsys):
    replay = Server("http://127.0.0.1:9/v1", "m", origin="recorded", name="a replay")
    first = sweeps.kept_sweep(sweeps.REAL_TIME)
    duty = calls.duty_cycle(first.requests[first.requests["live_calls"] == 8])
    curve = sweeps.curve(sweeps.kept_sweep(sweeps.SWEEP), 600)
    there = cells(replay, "run-search", "predict", "check-prediction", "keep-limit", duty=duty, curve=curve)
    said = capsys.readouterr().out
    assert f"The predicted {there['predicted']} live calls were not tried" in said
    assert "so the prediction is too high" in said
    assert "recorded on vLLM" in said


def test_a_live_run_is_kept_for_the_next_lesson(cells, capsys, tmp_path):
    """What it keeps is what lesson 08 reads, however early the search ended."""
    curve = pd.DataFrame({"live_calls": [1], "p95_ms": [1.0]})
    with serve(answers) as server:
        there = replace(server.as_server(), name="a fake server")
        names = ("first-run", "own-duty", "run-search", "predict", "check-prediction", "keep-limit")
        left = cells(there, *names, curve=curve)
    assert left["found"].live_calls >= 1
    assert "kept as 07-limit-" in capsys.readouterr().out
    assert limits.latest().server == "a fake server"
    assert limits.latest().origin == "measured"


@lesson_mistakes.each(WRONG)
def test_a_known_mistake_is_named(exercise, right, wrong, words):
    assert words in LESSON.told(exercise, right, wrong)


@pytest.mark.parametrize("exercise", WRONG)
def test_the_solution_passes(exercise):
    assert LESSON.told(exercise).strip() == ""
