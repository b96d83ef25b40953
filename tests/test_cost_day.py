"""A day of calls and a break-even: Erlang's formula, whole GPUs, three ways to pay, and where bills meet."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import cost_break_even, cost_day
from helpers.settings import CourseError

BANK = "bank, weekday"
FLAT = "the same all day"
PRICES = {"reserved": 5.0, "on demand": 6.0, "serverless": 9.0}


def plan(calls: float = 100_000, gpu: float = 88, day: str = BANK, **options):
    options = {"calls_per_day": calls, "minutes_per_call": 3.0, "calls_per_gpu": gpu} | options
    return cost_day.plan(cost_day.day(day), **options)


@pytest.mark.parametrize("name", cost_day.names())
def test_each_day_has_24_hours_that_add_up_to_all_calls(name):
    shape = cost_day.day(name)
    assert list(shape["hour"]) == list(range(24))
    assert shape["share"].sum() == pytest.approx(1)


def test_the_banks_day_is_published_where_it_was_counted_and_an_assumption_where_not():
    shape = cost_day.day(BANK)
    assert list(shape.loc[shape["origin"] == "published", "hour"]) == list(range(7, 22))
    assert set(shape.loc[shape["origin"] == "modelled", "share"]) == {0.0}
    assert cost_day.peak_to_mean(shape) == pytest.approx(2.51, abs=0.01)
    assert shape.loc[shape["share"].idxmax(), "hour"] == 10
    assert cost_day.peak_to_mean(cost_day.day(FLAT)) == pytest.approx(1)


def test_an_unknown_day_is_answered_with_those_there_are():
    with pytest.raises(CourseError, match="bank, weekday"):
        cost_day.day("sunday")


@pytest.mark.parametrize(
    ("lines", "offered", "blocked"),
    [(1, 1.0, 0.5), (2, 1.0, 0.2), (10, 5.0, 0.018385), (100, 100.0, 0.0757)],  # tables of Erlang B
)
def test_erlangs_formula(lines, offered, blocked):
    assert cost_day.erlang_b(lines, offered) == pytest.approx(blocked, abs=5e-5)


def test_erlangs_formula_at_its_ends():
    assert cost_day.erlang_b(0, 3.0) == 1
    assert cost_day.erlang_b(5, 0.0) == 0
    assert cost_day.lines_for(0.0) == 0


@given(st.floats(0.1, 300), st.sampled_from([0.001, 0.01, 0.1]))
def test_lines_are_the_fewest_that_do(offered, share):
    lines = cost_day.lines_for(offered, blocked=share)
    assert cost_day.erlang_b(lines, offered) <= share
    assert cost_day.erlang_b(lines - 1, offered) > share


def test_a_plan_has_room_for_the_calls_in_whole_gpus():
    planned = plan()
    assert planned["calls"].sum() == pytest.approx(100_000)
    assert planned["live_calls"].mean() == pytest.approx(100_000 * 3 / 1440)  # Little's law
    assert (planned["lines"] >= planned["live_calls"]).all()
    assert (planned["gpus"] * 88 >= planned["lines"]).all()
    assert ((planned["gpus"] - 1) * 88 < planned["lines"]).all()
    assert planned.loc[3, "gpus"] == 0


def test_the_random_day_has_as_many_live_calls_as_the_mean_one_says():
    live = cost_day._random_day(np.full(24, 5000.0), 3.0, seed=1)
    assert live.min() >= 0
    assert live.mean() == pytest.approx(5000 * 3 / 60, rel=0.02)
    assert live.var() == pytest.approx(250, rel=0.35)  # Poisson: as large as the mean


def test_serverless_gpus_come_and_go_and_the_same_seed_is_the_same_day():
    planned = plan()
    assert planned["warm_gpus"].equals(plan()["warm_gpus"])
    assert not planned["warm_gpus"].equals(plan(seed=1)["warm_gpus"])
    assert (planned["warm_gpus"] * 88 >= 0.9 * planned["live_calls"]).all()
    longer, shorter = plan(keep_s=1200), plan(keep_s=0)
    assert longer["warm_gpus"].sum() > planned["warm_gpus"].sum() > shorter["warm_gpus"].sum()
    assert longer["starts"].sum() < planned["starts"].sum() < shorter["starts"].sum()


def test_three_bills_of_one_day():
    planned = plan()
    bill = cost_day.bill(planned, calls_per_gpu=88, usd_per_hour=PRICES).set_index("way")
    assert bill.loc["reserved", "gpu_hours"] == 24 * planned["gpus"].max()
    assert bill.loc["on demand", "gpu_hours"] > planned["gpus"].sum()  # starts are paid, too
    assert (bill["usd_per_day"] == bill["gpu_hours"] * bill["usd_per_hour"]).all()
    assert bill["usd_per_minute"].to_numpy() == pytest.approx(bill["usd_per_day"] / 300_000)
    used = planned["live_calls"].sum() / (bill["gpu_hours"] * 88)
    assert bill["utilisation"].to_numpy() == pytest.approx(used)
    assert bill.loc["reserved", "utilisation"] < 1 / cost_day.peak_to_mean(cost_day.day(BANK))
    assert list(bill["cold_calls"] > 0) == [False, False, True]
    assert set(bill["origin"]) == {"modelled"}


def test_a_flat_day_is_used_better_than_the_banks():
    def reserved(day):
        return cost_day.bill(plan(day=day), calls_per_gpu=88, usd_per_hour=PRICES)["utilisation"].iloc[0]

    assert reserved(FLAT) > 2 * reserved(BANK)


def test_longer_starts_cost_more():
    planned = plan()
    options = {"calls_per_gpu": 88, "usd_per_hour": PRICES}
    short = cost_day.bill(planned, **options, start_minutes=0, cold_start_s=0)["gpu_hours"]
    long = cost_day.bill(planned, **options, start_minutes=30, cold_start_s=600)["gpu_hours"]
    assert list(long > short) == [False, True, True]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: plan(calls=-1), "calls_per_day"),
        (lambda: plan(minutes_per_call=0), "minutes_per_call"),
        (lambda: plan(gpu=0.5), "calls_per_gpu"),
        (lambda: plan(blocked=0), "blocked"),
        (lambda: plan(keep_s=-1), "keep_s"),
        (lambda: plan(keep_s=1e300), "keep_s"),
        (lambda: plan(seed=-1), "seed"),
        (lambda: cost_day.bill(plan().drop(columns="starts"), calls_per_gpu=8, usd_per_hour={}), "'starts'"),
        (lambda: cost_break_even.volumes(9, 9, {}, {"x": 1}, points=10**9), "points"),
        (lambda: cost_break_even.volumes(9, 9, {}, {"x": math.nan}), "api['x']"),
        (lambda: cost_day.erlang_b(-1, 1), "lines"),
        (lambda: cost_day.erlang_b(1, math.nan), "offered"),
        (lambda: cost_day.bill(plan(), calls_per_gpu=88, usd_per_hour={"reserved": 1}), "on demand"),
        (lambda: cost_day.bill(plan(calls=0), calls_per_gpu=88, usd_per_hour=PRICES), "No call comes"),
        (lambda: cost_break_even.break_even(9, 0, 0.003), "live_calls"),
        (lambda: cost_break_even.break_even(9, 88, 0), "api_usd_per_minute"),
        (lambda: cost_break_even.break_even(-9, 88, 0.003), "usd_per_gpu_hour"),
        (lambda: cost_break_even.break_even(9, 88, 0.003, paid_hours=25), "paid_hours"),
        (lambda: cost_break_even.gpu_usd_per_day(-1, 9, 88), "minutes_per_day"),
    ],
)
def test_nonsense_is_refused_and_named(make, words):
    with pytest.raises(CourseError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("spoil", [lambda day: day.iloc[:5], lambda day: day.assign(share=-1.0)])
def test_what_is_no_day_is_refused(spoil):
    with pytest.raises(CourseError, match="24 rows"):
        cost_day.plan(spoil(cost_day.day(BANK)), calls_per_day=1000, minutes_per_call=3.0, calls_per_gpu=88)


def test_the_break_even_by_hand():
    found = cost_break_even.break_even(9.0, 88, 0.003)
    assert (found.live_calls, found.utilisation) == pytest.approx((50, 50 / 88))
    assert found.minutes_per_day == pytest.approx(50 * 1440)
    assert found.possible
    office = cost_break_even.break_even(9.0, 88, 0.003, paid_hours=10)
    assert office.minutes_per_day == pytest.approx(50 * 600)


def test_a_gpu_that_is_dearer_when_full_never_breaks_even():
    found = cost_break_even.break_even(9.0, 44, 0.003)
    assert not found.possible
    assert math.isinf(found.live_calls)
    assert math.isinf(found.minutes_per_day)
    assert found.utilisation == pytest.approx(50 / 44)


@given(st.floats(0.1, 50), st.floats(1, 2000), st.floats(1e-5, 0.1))
@settings(max_examples=60)
def test_at_the_break_even_both_bills_are_the_same(hour, most, api):
    found = cost_break_even.break_even(hour, most, api)
    if found.possible:
        gpu = cost_break_even.gpu_usd_per_day(found.minutes_per_day, hour, most)
        assert gpu == pytest.approx(found.minutes_per_day * api)
        assert (
            cost_break_even.gpu_usd_per_day(found.minutes_per_day / 2, hour, most)
            > found.minutes_per_day / 2 * api
        )
    else:
        assert hour / 60 / most > api


def test_tables_of_pairs_and_of_volumes():
    pairs = cost_break_even.table(9.0, {"small": 44, "large": 88}, {"one": 0.003, "two": 0.004})
    assert list(pairs["gpu"]) == ["small", "small", "large", "large"]
    assert list(np.isfinite(pairs["minutes_per_day"])) == [False, True, True, True]
    lines = cost_break_even.volumes(10_000, 9.0, {"a GPU": 5}, {"an API": 0.003}, peak_to_mean=2, points=11)
    gpu = lines[lines["series"] == "a GPU"]["usd_per_day"]
    assert gpu.iloc[0] == 9 * 24
    assert gpu.is_monotonic_increasing
    assert gpu.iloc[-1] == 9 * 24 * math.ceil(10_000 / 1440 * 2 / 5)
