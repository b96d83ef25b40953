"""Lesson 08 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import ast
import math

import lesson_mistakes
import pytest

from helpers import sources

LESSON = lesson_mistakes.Lesson("08", math=math)

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        ("/ utilisation", "/ (1 - utilisation + 1e-9)", "the idle share"),
        ("/ utilisation", "* (2 - utilisation)", "the idle share on top"),
        ("return usd", "return 100 * usd", "in cents"),
        ("region_factor / utilisation", "region_factor * utilisation", "Idle hours are paid too"),
        ("* region_factor / utilisation", "* region_factor", "The utilisation is missing"),
        ("price_usd_per_hour * region_factor /", "price_usd_per_hour /", "The region factor is missing"),
        (
            "price_usd_per_hour * region_factor",
            "price_usd_per_hour / region_factor",
            "divided by the region factor",
        ),
        ("usd_per_full_hour / 60", "usd_per_full_hour", "the price of an hour of a call"),
        ("usd_per_full_hour / 60", "usd_per_full_hour * 60", "multiplied by the minutes"),
        ("usd_per_full_hour / 60", "usd_per_full_hour / 3600", "seconds of an hour"),
        (
            "return usd_per_full_minute / live_calls",
            "return usd_per_full_minute",
            "a minute of the whole GPU",
        ),
        ("usd_per_full_minute / live_calls", "usd_per_full_minute * live_calls", "They share the GPU"),
    ),
    "ex-2": (
        ("(instead_of_usd - usd) / instead_of_usd", "usd / instead_of_usd", "what is still paid"),
        (
            "(instead_of_usd - usd) / instead_of_usd",
            "(instead_of_usd - usd) / usd",
            "divided by the new price",
        ),
        ("return 100 * (", "return (", "asks for per cent"),
        ("instead_of_usd - usd", "usd - instead_of_usd", "The sign"),
        ("100 * (instead_of_usd - usd) / instead_of_usd", "instead_of_usd / usd", "how many times as dear"),
        ("100 * (instead_of_usd - usd) / instead_of_usd", "instead_of_usd - usd", "a part of anything"),
        ("100 * (instead_of_usd - usd)", "100 * abs(instead_of_usd - usd)", "the number is negative"),
        (
            "100 * (instead_of_usd - usd) / instead_of_usd",
            "max(100 * (instead_of_usd - usd) / instead_of_usd, 0.0)",
            "do not cut it off",
        ),
    ),
    "ex-3": (
        ("return total", "return turns * (system + turns * (remark + answer))", "the prompts grow"),
        ("total += prompt", "total = prompt", "the last prompt alone"),
        ("return total", "return system + turns * (remark + answer)", "everything once"),
        ("history = prompt + answer", "history = system", "turn two sends turn one again"),
        ("total += prompt", "total += prompt + answer", "comes back in the next one"),
        ("return total", "return total - system * (turns - 1)", "with every turn, not once"),
        ("history = prompt + answer", "history = prompt", "part of the history, too"),
        (
            "prompt = history + remark\n        total += prompt",
            "prompt = history + remark\n        total += history",
            "The new remark is part",
        ),
        ("total, history = 0, system", "total, history = 0, system + remark + answer", "One turn's answer"),
    ),
    "ex-4": (
        ("calls <= most_calls", "calls < most_calls", "what just fits"),
        ("usd_per_gpu_hour / 60 /", "usd_per_gpu_hour /", "bring both to the same time"),
        ("usd_per_gpu_hour / 60 /", "usd_per_gpu_hour * 60 /", "multiplied by the minutes"),
        (
            "usd_per_gpu_hour / 60 / api_usd_per_minute",
            "api_usd_per_minute * 60 / usd_per_gpu_hour",
            "Upside down",
        ),
        ("calls if calls <= most_calls else math.inf", "24 * calls", "hours of the day fall out"),
        (
            "calls if calls <= most_calls else math.inf",
            "usd_per_gpu_hour / 60",
            "what a minute of the GPU costs",
        ),
        ("calls if calls <= most_calls else math.inf", "calls / most_calls", "the utilisation it takes"),
        ("calls <= most_calls", "calls > most_calls", "Which way round"),
        ("calls if calls <= most_calls else math.inf", "calls", "So many calls do not fit"),
        ("calls if calls <= most_calls else math.inf", "min(calls, most_calls)", "there is no break-even"),
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


def test_every_mistake_that_the_lesson_names_is_tried_here():
    """A dictionary of mistakes that nobody tried may hold a number that no wrong answer gives."""
    for exercise, mistakes in WRONG.items():
        tree = ast.parse(LESSON.cells[f"{exercise}-check"])
        named = {
            value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg == "mistakes" and isinstance(node.value, ast.Dict)
            for value in node.value.values
        }
        missed = [text for text in named if not any(words in text for _, _, words in mistakes)]
        assert len(missed) <= 1, missed  # two cases of ex-2 share their words; ex-3 has a second growing case


def test_the_lesson_asks_no_server():
    [path] = [path for path in sources.paths() if path.stem.startswith("08_")]
    assert "engine" not in path.read_text(encoding="utf-8").replace("the engine of this course", "").replace(
        "small engine", ""
    )
