"""Slow turns in a call: the arithmetic, the simulation against exact numbers, and a run of known make."""

from __future__ import annotations

from itertools import product
from math import inf, isclose, nan, sqrt
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import slow_turns, sweeps
from helpers.settings import CourseError

SHARES = st.floats(0, 1)
NORMAL = NormalDist()


def exact(turns: int, slow_share: float, alike: float) -> float:
    """Share of calls with a slow turn by integration over the call's luck, to be held against the draws."""
    line = NORMAL.inv_cdf(1 - slow_share)
    at, weights = np.polynomial.hermite_e.hermegauss(80)
    in_time = [NORMAL.cdf((line - sqrt(alike) * luck) / sqrt(1 - alike)) ** turns for luck in at]
    return 1 - float(np.dot(weights, in_time) / weights.sum())


def test_the_number_of_the_lesson():
    assert round(slow_turns.share_of_calls(20), 3) == 0.642


@given(st.integers(0, 6), SHARES)
def test_the_share_is_that_of_counting_all_cases(turns, slow_share):
    hit = sum(
        np.prod([slow_share if slow else 1 - slow_share for slow in case])
        for case in product((True, False), repeat=turns)
        if any(case)
    )
    assert isclose(slow_turns.share_of_calls(turns, slow_share), hit, abs_tol=1e-9)


@given(st.integers(0, 200), SHARES, SHARES)
def test_more_turns_and_slower_turns_hit_more_calls(turns, one, other):
    low, high = sorted((one, other))
    assert slow_turns.share_of_calls(turns, low) <= slow_turns.share_of_calls(turns, high) + 1e-12
    assert slow_turns.share_of_calls(turns, high) <= slow_turns.share_of_calls(turns + 1, high) + 1e-12


@pytest.mark.parametrize("alike", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("turns", [1, 5, 20])
def test_the_simulation_agrees_with_exact_integration(turns, alike):
    hit = slow_turns.simulated(turns, alike=alike).any(axis=1).mean()
    expected = exact(turns, 0.05, alike)
    assert hit == pytest.approx(expected, abs=4 * sqrt(expected * (1 - expected) / slow_turns.CALLS))


def test_turns_that_are_all_the_same_hit_as_many_calls_as_turns():
    slow = slow_turns.simulated(20, alike=1.0)
    assert (slow.any(axis=1) == slow.all(axis=1)).all()
    assert slow.mean() == pytest.approx(0.05, abs=0.007)


def test_alike_turns_hit_fewer_calls_and_harder():
    frame = slow_turns.spread(20, alike=(0, 0.25, 0.5, 0.75))
    assert frame["slow turns"].to_list() == pytest.approx([0.05] * 4, abs=0.007)
    assert frame["calls with one"].is_monotonic_decreasing
    assert frame["slow turns in such a call"].is_monotonic_increasing
    assert frame["calls with 5 or more"].is_monotonic_increasing
    assert set(frame["origin"]) == {"modelled"}


def test_curves_have_both_series_and_say_how():
    frame = slow_turns.curves(range(0, 21))
    plain, alike = (frame[frame["series"] == name] for name in (slow_turns.INDEPENDENT, slow_turns.ALIKE))
    assert plain["share"].to_list() == pytest.approx([1 - 0.95**turns for turns in range(21)])
    assert (alike["share"].to_numpy()[2:] < plain["share"].to_numpy()[2:]).all()
    assert alike["share"].is_monotonic_increasing
    assert alike["share"].iloc[0] == 0
    assert set(frame["origin"]) == {"modelled"}
    assert "our assumption" in alike["source"].iloc[0]


def test_the_same_each_time_and_another_with_another_seed():
    one = slow_turns.simulated(5, calls=200)
    assert np.array_equal(one, slow_turns.simulated(5, calls=200))
    assert not np.array_equal(one, slow_turns.simulated(5, calls=200, seed=1))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_none_and_all(share):
    assert slow_turns.simulated(3, slow_share=share, calls=50).mean() == share


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: slow_turns.share_of_calls(-1), "turns"),
        (lambda: slow_turns.share_of_calls(nan), "turns"),
        (lambda: slow_turns.share_of_calls(inf), "turns"),
        (lambda: slow_turns.share_of_calls(20, 5), "5 % is 0.05"),
        (lambda: slow_turns.share_of_calls(20, nan), "slow_share"),
        (lambda: slow_turns.simulated(5, alike=1.5), "alike"),
        (lambda: slow_turns.simulated(0), "turns"),
        (lambda: slow_turns.curves([]), "empty"),
    ],
)
def test_what_makes_no_sense_is_said(call, says):
    with pytest.raises(CourseError, match=says):
        call()


def run_of(waits: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(call, wait) for call, some in waits.items() for wait in some]
    return pd.DataFrame(rows, columns=["call", "wait_ms"]).assign(origin="measured")


def test_slow_turns_of_a_run_are_counted_by_call():
    waits = {f"call {number}": [100.0] * 10 for number in range(9)} | {"bad": [100.0] * 5 + [900.0] * 5}
    found = slow_turns.observed(run_of(waits), metric="wait_ms")
    assert (found["calls"], found["turns"], found["line_ms"]) == (10, 100, 100.0)
    assert (found["slow_turns"], found["calls_with_one"]) == (0.05, 0.1)
    assert found["if_independent"] == pytest.approx(1 - 0.95**10)


def test_an_answer_that_never_came_is_slow():
    waits = {f"call {number}": [100.0] * 10 for number in range(10)} | {"bad": [nan]}
    assert slow_turns.observed(run_of(waits), metric="wait_ms")["slow_turns"] == pytest.approx(1 / 101)


def test_a_table_without_its_columns_or_rows_is_refused():
    frame = run_of({"a": [1.0]})
    with pytest.raises(CourseError, match="'call'"):
        slow_turns.observed(frame.drop(columns="call"), metric="wait_ms")
    with pytest.raises(CourseError, match="no turn"):
        slow_turns.observed(frame.iloc[:0], metric="wait_ms")


def test_the_recorded_run_can_be_asked():
    run = sweeps.kept_sweep(sweeps.REAL_TIME)
    found = slow_turns.observed(run.at(int(run.levels["live_calls"].max())), metric=sweeps.CLOCK)
    assert found["origin"] == "recorded"
    assert 0 < found["slow_turns"] <= 0.05
    assert found["slow_turns"] < found["calls_with_one"] < 1
