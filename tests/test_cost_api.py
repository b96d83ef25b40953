"""Tokens and what they cost: the sum over the turns is the formula; a cache makes it smaller, not flat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import cost_api, published, workload
from helpers.cost_api import EXACT, Caching, TokenPrice
from helpers.settings import CourseError

PRICE = TokenPrice("a model", input=2.0, cached_input=0.2, cache_write=2.5, output=12.0)
TOKENS = st.integers(0, 3000)
TURNS = st.integers(1, 60)


def total(frame) -> float:
    return float(frame["usd"].sum())


@given(TOKENS, TOKENS, TOKENS, TURNS)
def test_the_formula_is_the_sum_over_the_turns(system, remark, answer, turns):
    asked = cost_api.even_calls(system, remark, answer, turns)
    assert cost_api.input_tokens(system, remark, answer, turns) == asked["prompt_tokens"].sum()
    args = (PRICE, system, remark, answer, turns)
    assert total(cost_api.priced(asked, PRICE)) == pytest.approx(cost_api.call_usd(*args), abs=1e-12)
    cached = total(cost_api.priced(asked, PRICE, EXACT))
    assert cached == pytest.approx(cost_api.call_usd(*args, cached=True), abs=1e-12)


@given(TOKENS, TOKENS, TOKENS, TURNS)
def test_whole_steps_and_a_least_length_only_make_it_dearer(system, remark, answer, turns):
    asked = cost_api.even_calls(system, remark, answer, turns)
    assert (
        total(cost_api.priced(asked, PRICE, Caching())) >= total(cost_api.priced(asked, PRICE, EXACT)) - 1e-12
    )


def test_without_a_cache_the_input_grows_with_the_square_and_with_one_still_more_than_in_proportion():
    once, twice = (cost_api.even_calls(0, 20, 50, turns) for turns in (100, 200))
    plain = [cost_api.priced(frame, PRICE)["input_usd"].sum() for frame in (once, twice)]
    cached = [cost_api.priced(frame, PRICE, EXACT)["input_usd"].sum() for frame in (once, twice)]
    assert plain[1] / plain[0] == pytest.approx(4, rel=0.01)
    assert 2 < cached[1] / cached[0] < 4
    assert cached[1] < 0.25 * plain[1]


def test_one_request_by_hand():
    asked = cost_api.even_calls(2000, 100, 50, 2)
    first, second = cost_api.priced(asked, PRICE, EXACT).to_dict("records")
    assert first["usd"] == pytest.approx((2000 * 0.2 + 100 * 2.5 + 50 * 12) / 1e6)
    # The second prompt: 2000 + 100 were sent before; the answer of 50 and the new remark of 100 were not.
    assert second["cached_tokens"] == 2100
    assert second["usd"] == pytest.approx((2100 * 0.2 + 150 * 2.5 + 50 * 12) / 1e6)


def test_a_cold_system_prompt_is_written_in_the_first_request_only():
    asked = cost_api.even_calls(2000, 100, 50, 3)
    cold = cost_api.priced(asked, PRICE, Caching(0, 1, warm_system=False))
    warm = cost_api.priced(asked, PRICE, EXACT)
    assert cold["cached_tokens"].iloc[0] == 0
    assert total(cold) - total(warm) == pytest.approx(2000 * (2.5 - 0.2) / 1e6)


def test_thinking_is_billed_as_output():
    asked = cost_api.even_calls(1000, 20, 50, 4)
    thought = total(cost_api.priced(asked, PRICE, thinking_tokens=300)) - total(cost_api.priced(asked, PRICE))
    assert thought == pytest.approx(4 * 300 * 12 / 1e6)


@pytest.mark.parametrize(
    ("known", "found"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (5000, 4992)]
)
def test_the_cache_finds_whole_steps_from_a_least_length_on(known, found):
    assert Caching(1024, 128).found(known) == found
    assert Caching(1024, 128, hits=0.5).found(known) == found / 2


def test_the_requests_are_those_of_the_modelled_gpu():
    asked = cost_api.requests(calls=5)
    support = workload.load()
    tools = sum(turn.calls_tool for call in support.calls(5) for turn in call.turns)
    turns = sum(len(call.turns) for call in support.calls(5))
    assert len(asked) == turns + tools
    assert (asked["known_tokens"] < asked["prompt_tokens"]).all()
    rises = asked.groupby("call")["prompt_tokens"].diff().dropna()
    assert (rises > 0).all()
    assert set(asked["origin"]) == {"modelled"}


def test_a_call_takes_as_long_as_its_workload_says():
    minutes = cost_api.call_minutes()
    assert 2 < minutes < 4  # "a call takes two to four minutes", data/workloads/support-call.toml
    assert cost_api.call_minutes(workload.load().scaled(pace=2)) < minutes


def test_a_turn_with_a_tool_makes_the_caller_wait_for_two_answers():
    plain = workload.load().scaled(tools=0)
    call = plain.call(0)
    second = replace(call.turns[0], calls_tool=True)
    with_tool = replace(call, turns=(second, *call.turns[1:]))
    longer = cost_api._seconds(plain, with_tool) - cost_api._seconds(plain, call)
    assert longer == pytest.approx(published.value("chart.ttfat_p50") / 1000)


def test_known_prices_and_the_cut():
    terra, launch = cost_api.token_price("terra"), cost_api.token_price("terra-launch")
    assert (terra.input, terra.cached_input, terra.cache_write, terra.output) == (2, 0.2, 2.5, 12)
    assert launch.input / terra.input == launch.output / terra.output == 1.25
    luna = cost_api.token_price("luna")
    assert terra.input / luna.input == pytest.approx(10)
    with pytest.raises(CourseError, match="terra"):
        cost_api.token_price("nobody")


def test_compare_has_each_model_and_a_cache_saves_with_each():
    frame = cost_api.compare()
    assert len(frame) == len(cost_api.models()) >= 4
    assert (frame["cached"] < frame["uncached"]).all()
    price = cost_api.token_price("terra")
    row = frame.set_index("model").loc[price.name]
    assert row["cached"] == pytest.approx(cost_api.usd_per_minute(price, Caching()))
    assert row["uncached"] == pytest.approx(cost_api.usd_per_minute(price))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenPrice("x", -1, 0, 0, 0), "TokenPrice.input"),
        (lambda: TokenPrice("x", 1, 0, 0, float("nan")), "TokenPrice.output"),
        (lambda: Caching(hits=1.5), "Caching.hits"),
        (lambda: Caching(step_tokens=0), "Caching.step_tokens"),
        (lambda: cost_api.even_calls(-1, 1, 1, 1), "system_tokens"),
        (lambda: cost_api.even_calls(1, 1, 1, 0), "turns"),
        (lambda: cost_api.requests(calls=0), "calls"),
        (lambda: cost_api.requests(calls=2.5), "calls"),
        (lambda: cost_api.call_minutes(calls=0), "calls"),
        (lambda: cost_api.input_tokens(1, -1, 1, 1), "caller_tokens"),
        (lambda: cost_api.call_usd(PRICE, 1, 1, 1, 2.5), "turns"),
        (lambda: cost_api.priced(cost_api.even_calls(1, 1, 1, 1), PRICE, thinking_tokens=-1), "thinking"),
    ],
)
def test_nonsense_is_refused_and_named(make, words):
    with pytest.raises(CourseError) as caught:
        make()
    assert words in str(caught.value)


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_more_hits_are_never_dearer(one, other):
    asked = cost_api.even_calls(1500, 20, 50, 10)
    less, more = sorted((one, other))
    dear, cheap = (total(cost_api.priced(asked, PRICE, Caching(hits=hits))) for hits in (less, more))
    assert cheap <= dear + 1e-12
