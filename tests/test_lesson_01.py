"""Lesson 01 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import lesson_mistakes
import numpy as np
import pandas as pd
import pytest

from helpers import budget, phonebench, practice_clips, published, slow_turns, sweeps

LESSON = lesson_mistakes.Lesson("01", np=np, pd=pd, practice_clips=practice_clips)
LOUD = "np.abs(samples) > threshold"
COMPARED = 'models["ttfat_p95_ms"] <= line_ms'

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        ("* 1000", "* 1", "That is in seconds"),
        ("longest / rate_hz * 1000", "longest", "That is in samples"),
        (LOUD, "samples > threshold", "above zero only"),
        ("np.diff(loud).max()", "len(samples) - loud[-1]", "A gap has a sound on both sides"),
        (
            "np.diff(loud).max()",
            "len(samples) - len(loud)",
            "You added up all the silence",
        ),
        ("np.diff(loud).max()", "np.diff(loud)[np.diff(loud) > 400][0]", "a pause inside the caller's turn"),
        (LOUD, "samples != 0", "the hiss is sound"),
        (LOUD, "np.abs(samples) < threshold", "the longest stretch of sound"),
        ("np.diff(loud).max()", "np.diff(loud).mean()", "the mean of the steps"),
        ("np.diff(loud).max()", "np.diff(loud).argmax()", "the place of the longest step"),
        ("np.diff(loud).max()", "loud[-1] - loud[0]", "from the first sound to the last"),
        ("* 1000", "/ 1000", "you divided"),
        ("/ rate_hz", "/ 8000", "Use `rate_hz`"),
    ),
    "ex-2": (
        ("1 - (1 - slow_share) ** turns", "turns * slow_share", "You multiplied"),
        ("1 - (1 - slow_share) ** turns", "(1 - slow_share) ** turns", "*without* a slow turn"),
        ("1 - (1 - slow_share) ** turns", "100 * (1 - (1 - slow_share) ** turns)", "not a percentage"),
        ("1 - (1 - slow_share) ** turns", "slow_share ** turns", "*every* turn is slow"),
        ("1 - (1 - slow_share) ** turns", "1 - slow_share ** turns", "not every turn is slow"),
        ("1 - (1 - slow_share) ** turns", "slow_share", "That is the share of turns"),
        ("1 - (1 - slow_share) ** turns", "1 - (1 - slow_share) * turns", "chance of being in time"),
        ("1 - (1 - slow_share) ** turns", "round(1 - (1 - slow_share) ** turns, 2)", "not rounded"),
        (
            "1 - (1 - slow_share) ** turns",
            "turns * slow_share * (1 - slow_share) ** (turns - 1)",
            "exactly one slow turn",
        ),
    ),
    "ex-3": (
        ("ttfat_p95_ms", "ttfat_p50_ms", "You took P50"),
        (COMPARED, '~(models["ttfat_p95_ms"] > line_ms)', "has not shown that it fits"),
        (COMPARED, 'models["ttfat_p95_ms"] < line_ms', "*At most*"),
        (COMPARED, 'models["ttfat_p95_ms"] > line_ms', "the ones that do not fit"),
        (COMPARED, '~(models["ttfat_p95_ms"] <= line_ms)', "and the unknown one"),
        ("list(models", "(models", "Return a plain list"),
    ),
}


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    lesson_mistakes.own_workspace(tmp_path, monkeypatch)


@lesson_mistakes.each(WRONG)
def test_a_known_mistake_is_named(exercise, right, wrong, words):
    assert words in LESSON.told(exercise, right, wrong)


@pytest.mark.parametrize("exercise", WRONG)
def test_the_solution_passes(exercise):
    assert LESSON.told(exercise).strip() == ""


# What the lesson concludes


def test_terra_alone_is_past_the_limit_and_with_the_rest_far_past():
    terra = phonebench.table().set_index("model").loc[phonebench.TERRA, "ttfat_p95_ms"]
    assert terra > budget.LIMIT_MS
    assert terra + budget.rest_ms(budget.table("card")) == 2600


def test_under_both_lines_are_the_same_models_all_at_the_ceiling():
    board = phonebench.table()
    left = budget.left_for_ms(budget.table("card"))
    names = [
        set(board.loc[board["ttfat_p95_ms"] <= line, "model"])
        for line in (left, published.value("card.llm_line"))
    ]
    assert left == 857
    assert names[0] == names[1]
    assert len(names[0]) == 7
    assert board.loc[board["model"].isin(names[0]), "p95_about"].all()


def test_the_tail_of_the_recorded_run_moves_most():
    run = sweeps.kept_sweep(sweeps.REAL_TIME)
    assert run.levels["trusted"].all()
    waits = run.measured.groupby("live_calls")[sweeps.CLOCK]
    grown = waits.quantile(0.95).diff().iloc[1:] > 2 * waits.mean().diff().iloc[1:]
    assert grown.all()


def test_the_recorded_run_does_not_tell_bad_turns_from_bad_calls():
    """Slow calls are as many as independent turns would give, within what so few can tell."""
    run = sweeps.kept_sweep(sweeps.REAL_TIME)
    found = slow_turns.observed(run.at(int(run.levels["live_calls"].max())), metric=sweeps.CLOCK)
    spread = np.sqrt(found["if_independent"] * (1 - found["if_independent"]) / found["calls"])
    assert abs(found["calls_with_one"] - found["if_independent"]) < spread


def test_the_line_and_the_simulation_of_the_lesson_agree_on_independent_turns():
    spread = slow_turns.spread(20, alike=(0,))
    assert spread["calls with one"].iloc[0] == pytest.approx(slow_turns.share_of_calls(20), abs=0.015)
