"""Lesson 06 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import lesson_mistakes
import numpy as np
import pytest

LESSON = lesson_mistakes.Lesson("06", np=np)

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        (
            "return limit_ms - others, limit_ms - everything",
            "return limit_ms - everything, limit_ms - others",
            "other way",
        ),
        ("if stage != name", "", "what do the *others* leave"),
        (
            "limit_ms - others, limit_ms - everything",
            "limit_ms - others, limit_ms - others",
            "the line counts, too",
        ),
        ("limit_ms - others, limit_ms - everything", "limit_ms - others, everything", "900 is the sum"),
        ("if stage != name", "if stage == name", "took the line itself off"),
        (
            "sum(ms for stage, ms in lines if",
            "sum(ms for stage, ms in dict(lines).items() if",
            "A dict keeps one value",
        ),
        ("limit_ms - everything", "max(0.0, limit_ms - everything)", "how much is missing"),
        ("limit_ms - everything", "abs(limit_ms - everything)", "The sign is lost"),
        ("limit_ms - everything", "everything - limit_ms", "The sign is turned"),
    ),
    "ex-2": (
        (
            "total += rng.choice(samples, size=turns)",
            "total += np.quantile(samples, 0.95, method='inverted_cdf')",
            "You added the percentiles",
        ),
        (
            "total += rng.choice(samples, size=turns)",
            "total += np.resize(samples, turns)",
            "as if all were slow in the same turn",
        ),
        (
            "total += rng.choice(samples, size=turns)",
            "total = np.maximum(total, rng.choice(samples, size=turns))",
            "The caller waits for all",
        ),
        ("total += rng.choice(samples, size=turns)", "total += max(samples)", "all three slow in one turn"),
        ('np.quantile(total, 0.95, method="inverted_cdf")', "np.mean(total)", "That is the mean"),
        (
            'np.quantile(total, 0.95, method="inverted_cdf")',
            "np.median(total)",
            "That is the median of the sum",
        ),
        (
            "total += rng.choice(samples, size=turns)",
            "total = rng.choice(samples, size=turns)",
            "the P95 of one stage",
        ),
    ),
    "ex-3": (
        ("rest_ms + first + tool_ms + again", "rest_ms + first + tool_ms", "asked twice"),
        ("rest_ms + first + tool_ms + again", "rest_ms + first + again", "The tool takes its time"),
        (
            "rest_ms + first + tool_ms + again",
            "rest_ms + rest_ms + first + tool_ms + again",
            "You counted the rest twice",
        ),
        (
            "rest_ms + first + tool_ms + again",
            "rest_ms + first + tool_ms + tool_ms + again",
            "One tool, one wait",
        ),
        (
            "rest_ms + first + tool_ms + again",
            "(rest_ms + first + tool_ms + again).mean()",
            "One value for each turn",
        ),
        (
            "again = rng.choice(llm_ms, size=len(rest_ms))",
            "again = first",
            "You drew once and counted it twice",
        ),
        ("first + tool_ms + again", "2 * np.mean(llm_ms) + tool_ms", "you took a mean"),
    ),
    "ex-4": (
        (
            "(middle, high) if p95 <= limit_ms else (low, middle)",
            "(low, middle) if p95 <= limit_ms else (middle, high)",
            "Which half did you keep",
        ),
        (
            "return low",
            "return limit_ms / np.quantile(rest_ms + llm_ms, 0.95)",
            "You stretched the whole turn",
        ),
        (
            "np.quantile(rest_ms + middle * llm_ms, 0.95)",
            "np.quantile(middle * llm_ms, 0.95)",
            "The rest takes its share",
        ),
        ("return low\n", "return low * np.quantile(llm_ms, 0.95)\n", "That is the time that is left"),
        (
            "np.quantile(rest_ms + middle * llm_ms, 0.95)",
            "np.quantile(rest_ms + llm_ms + middle * llm_ms, 0.95)",
            "not once more on top",
        ),
        (
            "np.quantile(rest_ms + middle * llm_ms, 0.95)",
            "np.quantile(rest_ms, 0.95) + middle * np.quantile(llm_ms, 0.95)",
            "do not subtract",
        ),
        (
            "np.quantile(rest_ms + middle * llm_ms, 0.95)",
            "np.median(rest_ms) + middle * np.median(llm_ms)",
            "With medians half",
        ),
        ("middle * llm_ms, 0.95)", "middle * llm_ms, 0.8)", "more than one turn in twenty"),
        ("middle * llm_ms, 0.95)", "middle * llm_ms, 0.99)", "may be slower than that"),
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
