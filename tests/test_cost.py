"""The cost chain: its numbers, its directions, its units, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import cost
from helpers.settings import CourseError

PRICE = st.floats(0.01, 1000)
SHARE = st.floats(0.01, 1)
CALLS = st.floats(0.1, 10_000)
FACTOR = st.floats(1.01, 100)


@dataclass(frozen=True)
class Limit:
    live_calls: float
    low: float
    high: float | None


def test_the_cards_own_inputs_give_the_charts_price_and_not_the_texts():
    minute = cost.agent_minute(6.2496, 88, region_factor=1.5, utilisation=0.7)
    assert minute == pytest.approx(0.0025364, abs=1e-7)
    assert round(minute, 4) == 0.0025
    assert cost.calls_needed(6.2496, 0.00025, region_factor=1.5, utilisation=0.7) == pytest.approx(892.8)
    assert cost.hour_needed(0.00025, 88) == pytest.approx(1.32)


def test_each_step_of_the_chain():
    steps = cost.chain(6.2496, 88, region_factor=1.5, utilisation=0.7)
    assert list(steps["value"]) == pytest.approx([6.2496, 9.3744, 13.392, 0.2232, 0.0025364], rel=1e-4)
    assert steps["unit"].iloc[0] == "USD per GPU-hour"
    assert steps["unit"].iloc[-1] == "USD per agent minute"
    assert set(steps["origin"]) == {"modelled"}


@pytest.mark.parametrize(
    ("usd", "than", "share"),
    [
        (0.0025, 0.0347, 0.928),
        (0.0025, 0.0347 * 1.25, 0.942),
        (0.0025, 0.0035, 0.286),
        (3, 2, -0.5),
        (0, 1, 1),
    ],
)
def test_savings(usd, than, share):
    assert cost.saving(usd, than) == pytest.approx(share, abs=0.0005)


@given(PRICE, CALLS, SHARE, FACTOR)
def test_dearer_hours_more_idle_time_and_fewer_calls_make_a_minute_dearer(price, calls, used, factor):
    minute = cost.agent_minute(price, calls, utilisation=used)
    assert cost.agent_minute(price * factor, calls, utilisation=used) > minute
    assert cost.agent_minute(price, calls, utilisation=used, region_factor=factor) > minute
    assert cost.agent_minute(price, calls, utilisation=used / factor) > minute
    assert cost.agent_minute(price, calls * factor, utilisation=used) < minute


@given(PRICE, CALLS, SHARE, FACTOR)
def test_units_an_hour_of_a_full_gpu_is_sixty_minutes_of_all_its_calls(price, calls, used, factor):
    minute = cost.agent_minute(price, calls, utilisation=used)
    assert minute * 60 * calls == pytest.approx(cost.effective_hour(price, utilisation=used))
    assert minute * 60 * calls * used == pytest.approx(price)
    assert cost.agent_minute(factor * price, factor * calls, utilisation=used) == pytest.approx(minute)


@given(PRICE, CALLS, SHARE)
def test_the_chain_backwards_is_the_chain(price, calls, used):
    minute = cost.agent_minute(price, calls, utilisation=used)
    assert cost.calls_needed(price, minute, utilisation=used) == pytest.approx(calls)
    assert cost.hour_needed(minute, calls) == pytest.approx(cost.effective_hour(price, utilisation=used))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"utilisation": 1.01}, "utilisation"),
        ({"utilisation": 70}, "Such as 0.7 for 70 %"),
        ({"utilisation": 0}, "utilisation"),
        ({"utilisation": -0.5}, "utilisation"),
        ({"utilisation": math.nan}, "utilisation"),
        ({"region_factor": 0}, "region_factor"),
        ({"price_usd_per_hour": -1}, "price_usd_per_hour"),
        ({"price_usd_per_hour": math.nan}, "price_usd_per_hour"),
        ({"price_usd_per_hour": math.inf}, "price_usd_per_hour"),
        ({"price_usd_per_hour": "6.25 USD"}, "6.25 USD"),
        ({"price_usd_per_hour": None}, "None"),
        ({"price_usd_per_hour": 10**400}, "price_usd_per_hour"),
        ({"live_calls": 0}, "live_calls"),
        ({"live_calls": -4}, "live_calls"),
        ({"live_calls": math.nan}, "live_calls"),
    ],
)
def test_nonsense_is_refused_and_the_argument_named(options, words):
    with pytest.raises(CourseError) as caught:
        cost.agent_minute(**{"price_usd_per_hour": 6.25, "live_calls": 88} | options)
    assert words in str(caught.value)


def test_a_saving_against_nothing_and_a_free_target_are_refused():
    with pytest.raises(CourseError, match="instead_of_usd"):
        cost.saving(1, 0)
    with pytest.raises(CourseError, match="usd_per_minute"):
        cost.calls_needed(6, 0)


def test_the_price_of_a_limit_has_its_interval_the_other_way_round():
    found = cost.from_limit(Limit(20, 10, 40), 6.0)
    assert (found.low, found.usd_per_minute, found.high) == pytest.approx((0.0025, 0.005, 0.01))
    assert "between 0.00250 USD and 0.0100 USD" in found.sentence()


def test_an_open_limit_leaves_the_price_open_and_says_at_which_end():
    open_above = cost.from_limit(Limit(20, 10, None), 6.0)
    assert open_above.low is None
    assert "at most 0.0100 USD" in open_above.sentence()
    assert "no lower bound" in open_above.sentence()
    nothing_sure = cost.from_limit(Limit(20, 0, 40), 6.0)
    assert math.isinf(nothing_sure.high)
    assert "no upper bound" in nothing_sure.sentence()
    assert "no upper bound" in cost.from_limit(Limit(20, 0, None), 6.0).sentence()


@pytest.mark.parametrize("limit", [Limit(20, 30, 40), Limit(50, 10, 40), Limit(0, 0, 40), Limit(20, -1, 40)])
def test_a_limit_that_makes_no_sense_is_refused(limit):
    with pytest.raises(CourseError, match="limit"):
        cost.from_limit(limit, 6.0)


@given(CALLS, st.floats(0.1, 1), st.floats(1, 10), PRICE)
def test_the_estimate_is_between_its_ends(calls, down, up, price):
    found = cost.from_limit(Limit(calls, calls * down, calls * up), price)
    assert found.low <= found.usd_per_minute <= found.high


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0025364, "0.00254 USD"), (0.00025, "0.000250 USD"), (0, "0 USD"), (1.32, "1.32 USD"),
     (13.392, "13.39 USD"), (1234.5, "1,234 USD"), (math.inf, "an unbounded price"), (99.999, "100.00 USD")],
)  # fmt: skip
def test_prices_in_words(value, text):
    assert cost.usd(value) == text
