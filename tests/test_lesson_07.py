"""Lesson 07 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import math

import lesson_mistakes
import numpy as np
import pytest
from scipy.stats import binom

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


@lesson_mistakes.each(WRONG)
def test_a_known_mistake_is_named(exercise, right, wrong, words):
    assert words in LESSON.told(exercise, right, wrong)


@pytest.mark.parametrize("exercise", WRONG)
def test_the_solution_passes(exercise):
    assert LESSON.told(exercise).strip() == ""
