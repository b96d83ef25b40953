"""Percentiles: the interval against scipy and against simulation, the floors, and the words."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import quantile_test

from helpers.settings import CourseError
from helpers.stats import percentile, samples_needed, share_over

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")

SHAPES = {
    "lognormal": (lambda random, size: random.lognormal(5, 0.6, size), math.exp(5 + 0.6 * 1.6448536)),
    # 92 % around 100, 8 % around 1000: P95 lies in the upper hump, 5/8 of it above.
    "bimodal": (
        lambda random, size: (
            np.where(random.random(size) < 0.92, 100.0, 1000.0) + 10 * random.standard_normal(size)
        ),
        1000 + 10 * -0.3186394,
    ),
    "pareto": (lambda random, size: 100 * (1 + random.pareto(2.5, size)), 100 * 0.05 ** (-1 / 2.5)),
}


@pytest.mark.parametrize(("q", "sides", "n"), [(0.95, 1, 59), (0.95, 2, 72), (0.99, 1, 299), (0.5, 2, 6)])
def test_samples_needed_is_the_floor_of_the_interval(q, sides, n):
    assert samples_needed(q, 0.95, sides) == n
    assert math.isfinite(percentile(range(n), q, sides=sides).high)
    assert math.isinf(percentile(range(n - 1), q, sides=sides).high)


def test_more_confidence_needs_more_samples():
    assert samples_needed(0.95, 0.99, 1) == 90


@given(
    st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99]), st.sampled_from([0.8, 0.95, 0.99]), st.sampled_from([1, 2])
)
def test_samples_needed_agrees_with_the_ends_of_percentile(q, confidence, sides):
    n = samples_needed(q, confidence, sides)

    def finite(size):
        result = percentile(range(size), q, confidence=confidence, sides=sides)
        return math.isfinite(result.high) and (sides == 1 or math.isfinite(result.low))

    assert finite(n)
    assert n == 1 or not finite(n - 1)


@pytest.mark.parametrize("n", [2, 20, 59, 71, 72, 100, 333, 1000])
@pytest.mark.parametrize("q", [0.05, 0.5, 0.95, 0.99])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_interval_is_that_of_scipy(n, q, confidence):
    samples = np.random.default_rng(n).lognormal(5, 1, n)
    ours = percentile(samples, q, confidence=confidence)
    theirs = quantile_test(samples, q=0, p=q).confidence_interval(confidence)
    assert ours.low == (-math.inf if math.isnan(theirs.low) else theirs.low)
    assert ours.high == (math.inf if math.isnan(theirs.high) else theirs.high)


@pytest.mark.parametrize("n", [20, 60, 100, 500])
def test_the_one_sided_bound_is_that_of_scipy(n):
    samples = np.random.default_rng(n).lognormal(5, 1, n)
    theirs = quantile_test(samples, q=0, p=0.95, alternative="less").confidence_interval(0.95)
    ours = percentile(samples, 0.95, sides=1)
    assert ours.low == -math.inf
    assert ours.high == (math.inf if math.isnan(theirs.high) else theirs.high)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("n", [20, 100, 400])
def test_the_interval_holds_the_true_percentile_as_often_as_it_says(shape, sides, n):
    draw, truth = SHAPES[shape]
    random = np.random.default_rng(7)
    runs = 400
    intervals = [percentile(draw(random, n), 0.95, sides=sides) for _ in range(runs)]
    covered = sum(interval.low <= truth <= interval.high for interval in intervals) / runs
    # 95 % is promised; the exact chance is known to be more. 3 standard errors of 400 runs are 0.033.
    assert covered >= 0.95 - 0.033
    # An interval that always holds it by being infinite would pass the line above: at 400 it must not.
    assert n < 400 or all(math.isfinite(interval.high) for interval in intervals)
    assert n < 400 or covered < 1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0.01, 0.99), st.sampled_from([1, 2]))
def test_value_is_a_sample_with_enough_below_and_lies_in_its_interval(samples, q, sides):
    result = percentile(samples, q, sides=sides)
    assert result.value in samples
    assert sum(sample <= result.value for sample in samples) >= q * len(samples) - 1e-6
    assert sum(sample < result.value for sample in samples) < q * len(samples)
    assert result.low <= result.value <= result.high
    assert result.n == len(samples)


@pytest.mark.parametrize(("n", "q", "rank"), [(20, 0.95, 19), (100, 0.07, 7), (100, 0.95, 95), (1, 0.5, 1)])
def test_value_is_not_a_sample_too_high_for_floating_point(n, q, rank):
    assert percentile(range(1, n + 1), q).value == rank


def test_value_does_not_mix_two_humps():
    samples = [100.0] * 94 + [1000.0] * 6
    assert percentile(samples, 0.94).value == 100
    assert 100 < np.quantile(samples, 0.94) < 1000


def test_a_p95_of_20_samples_says_what_it_is_worth():
    text = percentile(range(101, 121), 0.95).sentence()
    assert text.startswith("P95 of 20 samples: 119 ms.")
    assert "upper end unbounded" in text
    assert "one-sided upper bound 59 samples" in text
    assert "two-sided interval 72" in text


def test_a_large_sample_says_both_ends():
    result = percentile(range(1000, 1200), 0.95)
    assert result.sentence() == (
        f"P95 of 200 samples: 1,189 ms. With 95 % confidence the true P95 is between {result.low:,.0f} and "
        f"{result.high:,.0f} ms."
    )
    one_sided = percentile(range(1000, 1200), 0.95, sides=1)
    assert f"at most {one_sided.high:,.0f} ms" in one_sided.sentence()


def test_requests_that_never_got_there_count_as_infinite():
    result = percentile([100.0] * 90 + [math.inf] * 10, 0.95)
    assert result.value == math.inf
    assert result.low < result.high == math.inf
    assert "too many of the samples are infinite" in result.sentence()


@pytest.mark.parametrize(("n", "allowed"), [(100, 1), (200, 4), (300, 8), (400, 12), (600, 20), (1000, 38)])
def test_violations_allowed_to_certify_a_p95(n, allowed):
    def high(over):
        return share_over([2] * over + [1] * (n - over), 1, sides=1).high

    assert high(allowed) <= 0.05 < high(allowed + 1)


def test_the_bound_and_the_share_give_the_same_verdict():
    random = np.random.default_rng(3)
    verdicts = set()
    for limit in np.linspace(300, 500, 41):
        samples = random.lognormal(5, 0.6, 400)
        by_bound = percentile(samples, 0.95, sides=1).high <= limit
        assert by_bound == (share_over(samples, limit, sides=1).high <= 0.05)
        verdicts.add(bool(by_bound))
    assert verdicts == {True, False}


def test_share_over_counts_and_words():
    share = share_over([1, 2, 3, 4, math.inf], 3)
    assert (share.over, share.n, share.value) == (2, 5, 0.4)
    assert 0 < share.low < 0.4 < share.high < 1
    assert share.sentence().startswith("2 of 5 samples (40 %) are over 3 ms. With 95 % confidence")
    assert "at most" in share_over([1, 2], 3, sides=1).sentence()


@pytest.mark.parametrize(
    "ask", [lambda samples: percentile(samples, 0.95), lambda samples: share_over(samples, 1)]
)
def test_missing_or_no_samples_are_refused(ask):
    with pytest.raises(CourseError, match=r"1 of 3 samples are missing.*dropna"):
        ask([1.0, None, 2.0])
    with pytest.raises(CourseError, match="no samples"):
        ask([])


@pytest.mark.parametrize("wrong", [{"q": 95}, {"q": 0.95, "confidence": 95}, {"q": 0.95, "sides": 3}])
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(CourseError, match="Give"):
        percentile([1, 2, 3], **wrong)


def test_a_missing_value_of_a_nullable_column_is_missing():
    with pytest.raises(CourseError, match="1 of 3 samples are missing"):
        percentile(pd.Series([1.0, pd.NA, 2.0], dtype="Float64"), 0.95)


@pytest.mark.parametrize("limit", [math.nan, None, pd.NA])
def test_a_limit_that_is_missing_is_refused(limit):
    with pytest.raises(CourseError, match=r"limit=.*Give a number"):
        share_over([1, 2, 3], limit)
