"""Lesson 03 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import lesson_mistakes
import pytest

from helpers import architecture

LESSON = lesson_mistakes.Lesson("03", architecture=architecture)

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        ("norm = hidden", "norm = 0", "forgot the norm"),
        ("hidden * kv_heads", "hidden * heads", "K and V have `kv_heads` heads"),
        ("2 * hidden * kv_heads", "hidden * kv_heads", "K and V are two"),
        ("2 * hidden * heads", "hidden * heads", "O, as large as Q"),
        ("norm = hidden", "norm = 1", "not one number"),
        ("return q_and_o + k_and_v + norm", "return 4 * hidden * hidden", "wider than `hidden`"),
        ("return q_and_o + k_and_v", "return (q_and_o + k_and_v) // 2 - norm", "And the norm is missing"),
        ("return q_and_o + k_and_v", "return (q_and_o + k_and_v) // head_dim", "`head_dim` numbers, not one"),
        ("return q_and_o + k_and_v", "return (q_and_o + k_and_v) // hidden", "what goes in"),
    ),
    "ex-2": (
        ("experts * 2 * hidden", "experts * 3 * hidden", "three matrices"),
        ("experts * 2 * hidden", "6 * 2 * hidden", "one token uses"),
        ("2 * hidden * shared_width", "0", "shared expert is missing"),
        ("experts * hidden + experts", "experts * hidden", "router's corrections"),
        ("experts * hidden + experts", "0", "has to choose the experts"),
        ("experts * hidden + experts", "experts * hidden + 1", "one correction for each expert"),
        ("return routed + shared + router + norm", "return routed", "Those are the routed experts"),
        ("return routed + shared + router + norm", "return routed + shared", "Those are the experts"),
        ("routed + shared +", "routed + experts * shared +", "one shared expert in the layer"),
        ("norm = hidden", "norm = 0", "forgot the norm"),
    ),
    "ex-3": (
        ("inner = heads * head_dim", "inner = 2 * hidden", "not `expand * hidden`"),
        (
            "hidden * (inner + channels + heads)",
            "hidden * (channels + heads)",
            "the gate in the in-projection",
        ),
        ("hidden * (inner + channels + heads)", "hidden * (inner + channels)", "one time step"),
        ("out_projection = inner * hidden", "out_projection = 0", "or the out-projection"),
        ("channels * (kernel + 1)", "channels * kernel", "has a bias"),
        ("channels * (kernel + 1)", "channels * kernel + 1", "not one in all"),
        ("channels * (kernel + 1)", "inner * (kernel + 1)", "over B and C too"),
        ("hidden * (inner + channels + heads)", "hidden * (inner + channels + 1)", "time step for each head"),
        ("2 * groups * state", "groups * state", "B and C are two"),
        ("2 * groups * state", "2 * state", "once for each group"),
        ("3 * heads", "heads", "three numbers for each head"),
        ("per_head + inner + out", "per_head + out", "second norm"),
        ("out_projection + hidden", "out_projection", "begins with is missing"),
    ),
    "ex-4": (
        ("return 2 * kv_heads", "return kv_heads", "factor of two"),
        ("2 * layers", "4 * layers", "not four"),
        ('layers.count("*")', "len(layers)", "Only the attention layers"),
        ('layers.count("*")', "1", "Six layers"),
    ),
}
STATE = (
    ("state * 4", "state * 2", "float32"),
    ("state * 4", "state", "not bytes"),
    ('layers.count("M")', "1", "one layer"),
    ('layers.count("M")', "23 / 2**20", "in MiB"),
    ("return heads * head_dim", "return heads", "`head_dim * state` numbers"),
)


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    lesson_mistakes.own_workspace(tmp_path, monkeypatch)


@lesson_mistakes.each(WRONG)
def test_a_known_mistake_is_named(exercise, right, wrong, words):
    assert words in LESSON.told(exercise, right, wrong)


@pytest.mark.parametrize(("right", "wrong", "words"), STATE)
def test_a_known_mistake_in_the_second_function_is_named(right, wrong, words):
    assert words in LESSON.told("ex-4", right, wrong)


@pytest.mark.parametrize("exercise", WRONG)
def test_the_solution_passes(exercise):
    assert LESSON.told(exercise).strip() == ""
