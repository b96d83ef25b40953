"""The statistics of a limit: exact where they can be, honest about calls, and never better for failing."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import clustered, slo, stats
from helpers.settings import CourseError
from helpers.simulated import Server

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")


def table(*calls, **columns):
    """A row for each time of each call."""
    rows = [{"call": f"c{i}", "ttfat_ms": time} for i, times in enumerate(calls) for time in times]
    return pd.DataFrame(rows).assign(**columns)


def test_calls_of_one_turn_give_the_exact_bound():
    """Then turns are independent: the bound of stats.share_over, but for the worst case mixed in."""
    requests = table(*[[100.0]] * 95, *[[900.0]] * 5)
    found = slo.attainment(requests, 600, sides=2)
    plain = stats.share_over(requests["ttfat_ms"], 600)
    assert found.share == pytest.approx(0.95)
    assert (found.low, found.high) == pytest.approx((1 - plain.high, 1 - plain.low), abs=0.002)
    assert (found.n_calls, found.n_turns, found.within) == (100, 100, 95)


@pytest.mark.parametrize(("over", "n"), [(0, 59), (3, 100), (50, 100), (100, 100), (38, 1000)])
def test_exact_bounds_are_those_of_stats(over, n):
    low, high = clustered.exact_bounds(1 - over / n, n, 0.025)
    plain = stats.share_over([1.0] * over + [0.0] * (n - over), 0.5)
    assert (low, high) == pytest.approx((1 - plain.high, 1 - plain.low), abs=1e-6)


def test_59_calls_without_a_slow_turn_hold_and_58_do_not_however_many_turns():
    assert slo.verdict(table(*[[100.0] * 10] * 59), 600) == "holds"
    assert slo.verdict(table(*[[100.0] * 10] * 58), 600) == "open"
    assert slo.verdict(table(*[[100.0]] * 59), 600) == "holds"


def test_a_slow_turn_in_every_call_is_no_cluster():
    """The first turn finds no prefix in the cache, say: calls are alike, their turns are not."""
    found = slo.attainment(table(*[[900.0] + [100.0] * 9] * 100), 600)
    assert found.design_effect < 1.2
    assert found.verdict() == "fails"


@given(st.integers(20, 80), st.integers(0, 8))
def test_a_slow_turn_never_makes_it_surer(calls, slow):
    clean = slo.attainment(table(*[[100.0] * 5] * calls), 600)
    some = slo.attainment(table(*[[100.0] * 4 + [900.0 if i < slow else 100.0] for i in range(calls)]), 600)
    assert some.low <= clean.low


def test_turns_that_are_all_alike_are_worth_their_calls():
    """5 of 100 calls slow in all ten turns: no more is known than from 100 turns, so it stays open."""
    alike = table(*[[100.0] * 10] * 95, *[[900.0] * 10] * 5)
    found = slo.attainment(alike, 600)
    assert found.design_effect == pytest.approx(10, rel=0.02)
    assert found.n_effective == pytest.approx(100, rel=0.02)
    spread = table(*[[100.0] * 9 + [900.0]] * 50, *[[100.0] * 10] * 50)
    assert slo.attainment(spread, 600).share == found.share
    assert slo.attainment(spread, 600).low > found.low + 0.01


def test_a_failed_request_is_too_slow_and_a_cut_one_keeps_its_time():
    requests = table([100.0, 100.0], [100.0, math.nan], error=None)
    assert slo.attainment(requests, 600).share == 0.75
    assert slo.attainment(requests, 600).failed == 1
    requests.loc[0, "error"] = "http"
    assert slo.attainment(requests, 600).share == 0.5
    requests.loc[0, "error"] = "cut"
    assert slo.attainment(requests, 600).share == 0.75
    assert slo.attainment(requests, math.inf).share == 0.75, "an infinite limit does not forgive a failure"


def test_the_warm_up_is_left_out_and_the_limit_itself_is_within():
    requests = table([600.0, 601.0], phase=["measured", "warmup"])
    assert slo.attainment(requests, 600).share == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="call"), "no column 'call'"),
        (lambda frame: frame.drop(columns="ttfat_ms"), "no column 'ttfat_ms'"),
        (lambda frame: frame[:0], "no turns"),
        (lambda frame: frame.assign(phase="warmup"), "no turns"),
        (lambda frame: frame.assign(call=None), "belong to no call"),
    ],
)
def test_a_table_that_cannot_be_judged_says_why(change, said):
    with pytest.raises(CourseError, match=said):
        slo.attainment(change(table([1.0, 2.0])), 600)


def test_arguments_out_of_range():
    requests = table([1.0])
    for bad in ({"confidence": 1.0}, {"confidence": 0}, {"sides": 3}):
        with pytest.raises(CourseError):
            slo.attainment(requests, 600, **bad)
    with pytest.raises(CourseError, match="limit_ms=nan is no limit"):
        slo.attainment(requests, math.nan)
    with pytest.raises(CourseError, match="not between 0 and 1"):
        slo.p95_interval(requests, q=1.5)
    with pytest.raises(CourseError, match="method"):
        slo.p95_interval(requests, method="guess")
    with pytest.raises(CourseError, match="length of the measured"):
        slo.goodput(requests, 600, 0)


@given(
    st.lists(st.lists(st.floats(1, 1000), min_size=1, max_size=6), min_size=1, max_size=40),
    st.floats(1, 1000),
)
def test_bounds_hold_the_share_and_more_confidence_is_wider(calls, limit_ms):
    requests = table(*calls)
    sure, surer = (slo.attainment(requests, limit_ms, confidence=c, sides=2) for c in (0.9, 0.99))
    assert 0 <= surer.low <= sure.low <= sure.share + 1e-9
    assert sure.share - 1e-9 <= sure.high <= surer.high <= 1
    assert sure.design_effect >= 1
    assert slo.attainment(requests, limit_ms, sides=1).high == 1


@given(st.lists(st.lists(st.floats(1, 1000), min_size=2, max_size=5), min_size=70, max_size=90), st.data())
def test_interval_and_verdict_never_contradict(calls, data):
    requests = table(*calls)
    bound = slo.p95_interval(requests, sides=1)
    limit_ms = data.draw(st.sampled_from(sorted(requests["ttfat_ms"])))
    assert (slo.verdict(requests, limit_ms) == "holds") == (limit_ms >= bound.high)
    assert bound.value == stats.percentile(requests["ttfat_ms"], 0.95).value


def test_p95_interval_counts_calls_and_is_infinite_where_they_are_few():
    requests = table(*[[float(i), float(i)] for i in range(1, 41)])
    found = slo.p95_interval(requests)
    assert found.n == 40
    assert math.isinf(found.high)
    assert found.low < found.value
    resampled = slo.p95_interval(requests, method="bootstrap")
    assert math.isfinite(resampled.high), "the bootstrap knows no infinity"
    assert slo.p95_interval(requests, method="bootstrap") == resampled


def test_goodput_counts_what_was_in_time():
    row = slo.goodput(table([100.0, 700.0], [100.0, math.nan]), 600, 10).iloc[0]
    assert (row["requests_per_s"], row["goodput_per_s"], row["share"]) == (0.4, 0.2, 0.5)


def test_calls_needed_would_have_settled_it():
    requests = table(*[[100.0] * 4 + [900.0] * (i % 6 == 0) for i in range(100)])
    found = slo.attainment(requests, 600)
    assert found.verdict() == "open"
    more = slo.calls_needed(found)
    times = (found.n_calls + more) / found.n_calls
    longer = pd.concat(
        [requests.assign(call=requests["call"] + str(i)) for i in range(math.ceil(times * 1.1))]
    )
    assert slo.verdict(longer, 600) == "holds"
    fewer = pd.concat([requests.assign(call=requests["call"] + str(i)) for i in range(int(times * 0.9))])
    assert slo.verdict(fewer, 600) == "open"


def test_calls_needed_at_the_ends():
    settled = slo.attainment(table(*[[1.0]] * 60), 600)
    assert slo.calls_needed(settled) == 0
    on_the_line = slo.attainment(table(*[[1.0]] * 95, *[[900.0]] * 5), 600)
    assert slo.calls_needed(on_the_line) is None
    few = slo.attainment(table(*[[1.0]] * 10), 600)
    assert slo.calls_needed(few) == 49


def test_sentence_names_calls_and_failures():
    said = slo.attainment(table(*[[100.0, 100.0]] * 60, [math.nan]), 600).sentence()
    assert "121 turns in 61 calls" in said
    assert "1 of them failed" in said


STRONG = Server("flat", lambda _: 200.0, between=0.5, within=0.2)


def test_coverage_with_correlated_turns():
    """Ours holds what it states; turns taken for independent do not. 200 seeded runs of 100 calls each."""
    truth_ms = STRONG.percentile_ms(1)
    ours = independent = 0
    for seed in range(200):
        call, times_ms = STRONG.times_ms(1, 100, seed)
        ours += clustered.Turns(times_ms, call).bounds(truth_ms, 0.05)[0] <= 0.95
        independent += 1 - stats.share_over(times_ms, truth_ms, sides=1).high <= 0.95
    assert 0.92 <= ours / 200 <= 0.985
    assert independent / 200 < 0.90


def test_the_bootstrap_draws_calls_not_turns():
    """Two kinds of calls, alike within: the interval must be as wide as that of the calls alone."""
    random = np.random.default_rng(0)
    pace = random.lognormal(5, 0.5, 150)
    long = slo.p95_interval(table(*[[p] * 8 for p in pace]), method="bootstrap")
    short = slo.p95_interval(table(*[[p] for p in pace]), method="bootstrap")
    assert long.high - long.low > 0.8 * (short.high - short.low)
