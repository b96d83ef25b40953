"""Exercises: mistakes are named, only strict mode raises, the reference never passes for an answer."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import check, compare, lessons, progress, settings, sources
from helpers.check import NOT_DONE

DATA = Path(__file__).parent / "data" / "lessons"
HINTS = ("look", "do")


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.setattr(sources, "NOTEBOOKS", DATA)
    monkeypatch.delenv("PHONELLM_CHECK", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.delenv("PHONELLM_RECORD", raising=False)
    monkeypatch.setattr(check, "_GIVEN", {})


@pytest.fixture
def shown(monkeypatch):
    """The HTML of each card, in order."""
    found: list[str] = []
    real = check.cards.card

    def card(inner, plain, **look):
        found.append(inner)
        real(inner, plain, **look)

    monkeypatch.setattr(check.cards, "card", card)
    return found


def exercise(id: str = "07-1") -> check.Exercise:
    return check.Exercise(id, hints=HINTS)


def said(function, **case) -> str:
    made = exercise()
    made.case("it", function, **case)
    (only,) = made.cases
    return f"{only.state}: {only.said}"


# ------------------------------------------------------------------------------------------ not done yet


def test_not_done_says_so_wherever_it_is_used():
    for value in (
        NOT_DONE + 1,
        2 * NOT_DONE,
        -NOT_DONE,
        NOT_DONE / NOT_DONE,
        abs(NOT_DONE),
        round(NOT_DONE, 2),
    ):
        assert repr(value) == "not done yet"
    for value in (NOT_DONE.anything, NOT_DONE[3], NOT_DONE["key"], NOT_DONE(1, x=2), NOT_DONE.a.b(1)[0] ** 2):
        assert value is NOT_DONE
    assert f"{NOT_DONE:.1f} ms" == "not done yet ms"
    assert f"{NOT_DONE}" == "not done yet"
    assert not NOT_DONE
    assert not NOT_DONE < 3
    assert not NOT_DONE >= 3
    assert NOT_DONE != 3
    assert NOT_DONE == NOT_DONE
    assert list(NOT_DONE) == []
    assert sum(NOT_DONE) == 0
    assert math.isnan(float(NOT_DONE))


def test_where_not_done_cannot_go_on_its_error_says_what_to_do():
    for use in (int, range, lambda value: [1, 2][value]):
        with pytest.raises(TypeError, match=r"not done yet.*finish the exercise"):
            use(NOT_DONE)


def test_not_done_stays_the_same_object():
    assert copy.deepcopy(NOT_DONE) is NOT_DONE
    assert pickle.loads(pickle.dumps(NOT_DONE)) is NOT_DONE


def test_not_done_can_stand_in_tables_arrays_and_plots():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    assert "not done yet" in repr(pd.DataFrame({"answer": [NOT_DONE, 1]}))
    assert np.asarray([1.0, float(NOT_DONE)]).shape == (2,)
    figure, axes = plt.subplots()
    axes.plot([0, 1], [1.0, float(NOT_DONE)])
    plt.close(figure)


# ---------------------------------------------------------------------------------------------- comparing

FRAME = pd.DataFrame({"ttft_ms": [1.0, 2.0], "server": ["a", "b"]})


@pytest.mark.parametrize(
    ("result", "expect"),
    [
        (0.1 + 0.2, 0.3),
        (np.float64(3), 3),
        (3, 3.0),
        (math.nan, math.nan),
        (math.inf, math.inf),
        ([1, 2.0000000001], (1, 2)),
        (np.array([1.0, 2.0]), [1, 2]),
        ([1, 2], np.array([1, 2])),
        ({"a": [1.0]}, {"a": (1,)}),
        (FRAME.astype({"ttft_ms": "float32"}), FRAME),
        (FRAME["ttft_ms"], FRAME["ttft_ms"].copy()),
        (np.bool_(True), True),
        (None, None),
        ({1, 2}, {2, 1}),
        ("ms", "ms"),
    ],
)
def test_the_same(result, expect):
    assert compare.same(result, expect)


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    ("result", "expect"),
    [
        (0.3001, 0.3),
        (1, True),
        (True, 1),
        ("3", 3),
        (None, 0),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"b": 1}),
        (FRAME.head(1), FRAME),
        (FRAME.rename(columns={"server": "s"}), FRAME),
        ([1.0], FRAME),
        (np.ones((2, 1)), np.ones(2)),
        (Hostile(), 3),
        (3, Hostile()),
        (math.nan, 1.0),
    ],
)
def test_not_the_same(result, expect):
    assert not compare.same(result, expect)


@pytest.mark.parametrize(
    ("result", "expect", "says"),
    [
        (None, 3.0, "return"),
        (len, 3, "brackets"),
        (0.24, 240.0, "factor of 1,000"),
        (240e6, 240.0, "factor of 1,000,000"),
        (-3.0, 3.0, "sign"),
        ("3", 3, "should be a number; it is text"),
        (3, [3], "should be a list; it is a number"),
        ([1, 2], [1, 2, 3], "should have 3 entries; it has 2"),
        ({"a": 1}, {"a": 1, "b": 2}, "Keys missing: `b`"),
        (FRAME[["server"]], FRAME, "Columns missing: `ttft_ms`"),
        (Hostile(), 3, "it is a `Hostile`"),
        (5.0, 3.0, ""),
    ],
)
def test_a_likely_reason_is_given_where_the_author_names_none(result, expect, says):
    found = compare.guess(result, expect)
    assert says in found
    assert bool(found) == bool(says)


# ----------------------------------------------------------------------------------------------- cases


def test_a_right_answer_passes():
    assert said(lambda a, b: a + b, args=(1,), kwargs={"b": 2}, expect=3) == "passed: "
    assert said(lambda: 0.5, expect=lambda result: 0 < result < 1) == "passed: "


def test_the_likely_mistake_is_named_by_value_and_by_test():
    mistakes = {1.0: "the first", (lambda result: result < 0): "below zero"}
    assert said(lambda: 1.0000000001, expect=2.0, mistakes=mistakes).endswith("it should be `2`. the first")
    assert said(lambda: -7, expect=2.0, mistakes=mistakes).endswith("below zero")
    assert said(lambda: [1], expect=[2], mistakes=[([1], "a list")]).endswith("a list")
    assert "the first" not in said(lambda: "text", expect=2.0, mistakes=mistakes)  # its test does not apply


def test_a_named_mistake_that_happens_to_be_right_is_no_mistake():
    assert said(lambda: 2.0, expect=2.0, mistakes={2.0: "wrong"}) == "passed: "


def test_an_exception_is_told_with_the_learners_own_line():
    def first(chunks):
        return json.loads(chunks)  # the error comes from inside json

    line = inspect.getsourcelines(first)[1] + 1
    told = said(first, args=("{",), expect=1)
    assert told.startswith("failed: it stopped with `JSONDecodeError: ")
    assert f"in line {line} of your cell: `return json.loads(chunks)" in told


def test_a_call_that_does_not_fit_and_an_exit_are_told():
    assert "still take the arguments" in said(lambda: 1, args=(1,), expect=1)
    assert "SystemExit" in said(lambda: sys.exit(2), expect=1)


def test_a_recursion_without_end_is_told():
    def again():
        return again()

    assert "RecursionError" in said(again, expect=1)


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raising(error):
    def answer():
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (ValueError("bad \ud83d text"), r"bad \ud83d text"),
        (Speechless(), "Speechless: (its text cannot be shown: RuntimeError)"),
    ],
)
def test_no_exception_stops_a_check(error, says, shown):
    made = exercise()
    made.case("it", raising(error), expect=1)
    made.verdict()
    assert says in made.cases[0].said
    shown[0].encode()
    assert len(progress.read()) == 1


def test_cancelling_inside_an_async_answer_stops_no_check():
    async def answer():
        raise asyncio.CancelledError

    assert "CancelledError" in said(answer, expect=1)


def test_the_learner_can_still_interrupt():
    with pytest.raises(KeyboardInterrupt):
        said(raising(KeyboardInterrupt()), expect=1)


def test_no_result_stops_a_check():
    loop = [1]
    loop.append(loop)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for result in (loop, deep, 60_000**100, -(60_000**2000)):
        for expect in ([1], 2.0, {"a": 1}):
            assert said(lambda result=result: result, expect=expect).startswith("failed: ")
    loop.append(NOT_DONE)
    assert said(lambda: loop, expect=1) == "not done: "
    while deep:  # taking so deep a list apart in one go is hard on Python
        deep = deep.pop()


def test_no_function_at_all():
    assert said(NOT_DONE, expect=1) == "not done: "
    assert "it should be a function; it is a number" in said(3, expect=1)


def test_not_done_inside_a_result_is_not_done():
    for result in (NOT_DONE, [1, NOT_DONE], {"a": NOT_DONE}, NOT_DONE + 1):
        assert said(lambda result=result: result, expect=1) == "not done: "


def test_an_async_answer_is_awaited_even_while_a_loop_runs():
    async def answer(x):
        await asyncio.sleep(0)
        return x + 1

    async def as_in_jupyter():
        return said(answer, args=(1,), expect=2)

    assert asyncio.run(as_in_jupyter()) == "passed: "
    assert said(answer, args=(1,), expect=2) == "passed: "


def test_an_answer_cannot_spoil_the_next_case():
    chunks = [1, 2, 3]
    assert said(lambda values: values.pop(), args=(chunks,), expect=3) == "passed: "
    assert chunks == [1, 2, 3]


def test_the_right_value_is_not_given_away():
    made = exercise()
    made.value("the price", 0.5, expect=0.00251, mistakes={0.5: "that is the hour"})
    assert "0.00251" not in made.cases[0].said
    assert made.cases[0].said.endswith("that is the hour")


# --------------------------------------------------------------------------------------------- verdicts


def test_not_done_is_said_kindly_and_is_no_attempt(shown, capsys):
    made = exercise()
    made.case("it", lambda: NOT_DONE, expect=1)
    made.verdict()
    assert "Exercise 07-1 is not done yet." in capsys.readouterr().out
    assert "Hint 1 of 3" in shown[0]
    assert progress.read() == []


def test_a_failed_check_does_not_raise_and_is_recorded(shown, capsys):
    made = exercise()
    made.case("one", lambda: 1, expect=2, mistakes={1: "off by one"})
    made.case("two", lambda: 2, expect=2)
    made.verdict()
    made.verdict()
    out = capsys.readouterr().out
    assert "not yet. 1 of 2 cases right" in out
    assert "off by one" in out
    assert [entry["passed"] for entry in progress.read()] == [False, False]
    assert "off by one" in progress.read()[0]["detail"]


def test_a_passed_check_is_recorded_and_its_answer_kept(shown):
    def first_token_ms(chunks):
        return chunks[0]

    made = exercise()
    made.case("one", first_token_ms, args=([4],), expect=4)
    made.verdict()
    assert progress.read()[0]["passed"] is True
    kept = settings.WORKSPACE / "answers" / "07-1-1.py"
    assert "return chunks[0]" in kept.read_text(encoding="utf-8")
    assert "Compare with the course" in shown[0]


def test_the_hints_open_one_inside_the_other_and_the_answer_is_the_source(shown):
    made = check.Exercise("07-1", hints=("Look at `text` < here", "Go through them"))
    made.case("it", lambda: 1, expect=2)
    made.verdict()
    (html,) = shown
    order = ["Hint 1 of 3", "<code>text</code> &lt; here", "Hint 2 of 3", "Go through them", "Hint 3 of 3"]
    positions = [html.index(part) for part in [*order, "for at_ms, text in chunks"]]
    assert positions == sorted(positions)
    assert html.count("<details>") == 3
    assert html.endswith("</details>" * 3)  # nested: the second is inside the first
    assert "<script" not in html


def test_text_of_the_learner_cannot_break_the_card(shown):
    made = exercise()
    made.case("it", lambda: "<b>`&", expect=2)
    made.verdict()
    assert "<b>`&" not in shown[0]
    assert "&lt;b&gt;" in shown[0]


def test_progress_that_cannot_be_written_stops_nothing(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "file")
    made = exercise()
    made.case("it", lambda: 2, expect=2)
    made.verdict()
    out = capsys.readouterr().out
    assert "passed" in out
    assert "could not be written" in out


@pytest.mark.parametrize("result", [1, NOT_DONE])
def test_strict_mode_raises_and_names_the_exercise(monkeypatch, result):
    monkeypatch.setenv("PHONELLM_CHECK", "strict")
    made = exercise()
    made.case("the case", lambda: result, expect=2)
    with pytest.raises(AssertionError, match=r"07-1 has not passed.*the case"):
        made.verdict()
    assert progress.read() == []


def test_strict_mode_lets_a_right_answer_pass_and_does_not_record_it(monkeypatch):
    monkeypatch.setenv("PHONELLM_CHECK", "strict")
    made = exercise()
    made.case("it", lambda: 2, expect=2)
    made.verdict()
    assert not settings.WORKSPACE.exists()


def test_an_authors_mistakes_raise():
    with pytest.raises(ValueError, match="two hints"):
        check.Exercise("07-1", hints=("only one",))
    with pytest.raises(ValueError, match="no case"):
        exercise().verdict()


# ------------------------------------------------------------------------------------- going on with it


def test_a_passed_answer_is_used(capsys):
    def mine():
        return 2

    made = exercise()
    made.case("it", mine, expect=2)
    assert made.use(mine, reference=len) is mine
    assert "Going on with your own mine" in capsys.readouterr().out


def test_an_async_answer_can_be_called_plainly():
    async def mine(x):
        return x + 1

    function = mine
    for _ in range(2):  # also when the check is run again
        made = exercise()
        made.case("it", function, args=(1,), expect=2)
        function = made.use(function, reference=len)
        assert function(1) == 2


def test_where_the_courses_answer_is_async_the_learners_stays_so():
    async def mine():
        return 2

    async def reference():
        return 2

    made = exercise()
    made.case("it", mine, expect=2)
    assert made.use(mine, reference=reference) is mine


def test_otherwise_the_reference_is_used_and_said(capsys):
    def mine():
        return NOT_DONE

    made = exercise()
    made.case("it", mine, expect=2)
    assert made.use(mine, reference=len) is len
    assert (
        "Using the course's reference for mine, because exercise 07-1 is not done yet."
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("name", ["first_token_ms", "<lambda>"])
def test_the_reference_is_taken_from_the_source_and_sees_the_notebook(name):
    """As in a notebook: the learner's function and the check live in one namespace."""
    notebook = types.ModuleType("notebook").__dict__
    body = "lambda chunks: 1" if name == "<lambda>" else None
    exec(
        "from helpers import check\n"
        + (f"first_token_ms = {body}" if body else "def first_token_ms(c): pass"),
        notebook,
    )
    exec("exercise = check.Exercise('07-1', hints=('a', 'b'))", notebook)
    exec("exercise.case('it', first_token_ms, args=([(1.0, 'x')],), expect=2)", notebook)
    exec("first_token_ms = exercise.use(first_token_ms)", notebook)
    assert notebook["first_token_ms"]([(1.0, ""), (5.0, "x")]) == 5.0


def test_without_any_reference_the_author_is_told():
    made = check.Exercise("99-1", hints=HINTS)
    made.case("it", lambda: 1, expect=2)
    with pytest.raises(ValueError, match="reference="):
        made.use(lambda: 1)


@pytest.mark.parametrize("reference", [2, "ms", True, 0.5, [1], (1, 2), {"a": 1}])
def test_running_a_check_again_does_not_take_the_reference_for_an_answer(reference):
    answer = NOT_DONE
    for _ in range(3):
        made = exercise("07-2")
        made.value("it", answer, expect=reference)
        assert not made.passed
        answer = made.use(answer, reference=reference)
        assert answer == reference
        assert repr(answer) == repr(reference)
    made = exercise("07-2")
    made.value("it", reference, expect=reference)  # equal, but the learner's own
    assert made.passed


def test_running_a_check_again_tries_the_learners_own_function():
    def wrong():
        return 1

    function = wrong
    for _ in range(3):
        made = exercise()
        made.case("it", function, expect=2)
        assert made.cases[0].said.startswith("you have `1`")
        function = made.use(function, reference=lambda: 2)
        assert function() == 2


# ----------------------------------------------------------------------------------- a whole lesson


def run_lesson(path: Path, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run a built notebook's code cells one after another in a plain Python process."""
    code = "\n\n".join(
        "".join(cell["source"])
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    )
    # The sample's source is not among the course's own; say where it is.
    where = f"from pathlib import Path\nfrom helpers import sources\nsources.NOTEBOOKS = Path({str(DATA)!r})"
    code = f"{where}\n{code}"
    env = {key: value for key, value in os.environ.items() if key != "PHONELLM_CHECK"}
    env |= {"PHONELLM_WORKSPACE": str(tmp_path / "ws"), "PYTHONPATH": str(settings.REPO), **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture
def built(tmp_path):
    folder = tmp_path / "notebooks"
    shutil.copytree(DATA / "src", folder / "src")
    lessons.build(folder)
    return folder


def test_the_learners_version_runs_to_its_end_untouched(built, tmp_path):
    ran = run_lesson(built / "07_sample.ipynb", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "07-1 is not done yet" in ran.stdout
    assert "TTFT: 212.5 ms" in ran.stdout  # by the course's reference
    assert "0 of 2 exercises" in ran.stdout


def test_the_solved_version_passes_in_strict_mode_and_the_stub_does_not(built, tmp_path):
    ran = run_lesson(built / "solutions" / "07_sample.ipynb", tmp_path, PHONELLM_CHECK="strict")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(": passed.") == 2
    ran = run_lesson(built / "07_sample.ipynb", tmp_path, PHONELLM_CHECK="strict")
    assert ran.returncode != 0
    assert "AssertionError: exercise 07-1 has not passed" in ran.stderr
