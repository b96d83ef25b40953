"""Stages as distributions, and their sum: what holds for any of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, spearmanr

from helpers import budget_sum, stats
from helpers.budget_sum import fixed, from_iqr, from_samples, spiky, through
from helpers.settings import CourseError

MS = st.floats(1, 5_000)
SHARES = st.floats(0.001, 0.999)
SAMPLES = st.lists(st.floats(0, 5_000), min_size=1, max_size=40)


@st.composite
def any_stage(draw, name: str = "s"):
    kind = draw(st.sampled_from(["fixed", "through", "bent", "iqr", "samples", "spiky"]))
    middle, more, most = draw(MS), draw(st.floats(1, 3)), draw(st.floats(1, 4))
    return {
        "fixed": lambda: fixed(name, middle),
        "through": lambda: through(name, {0.5: middle, 0.95: middle * more}),
        "bent": lambda: through(name, {0.5: middle, 0.95: middle * more, 0.99: middle * more * most}),
        "iqr": lambda: from_iqr(name, middle, middle * (more - 1)),
        "samples": lambda: from_samples(name, draw(SAMPLES)),
        "spiky": lambda: spiky(name, middle, middle * more, 0.03),
    }[kind]()


@st.composite
def some_stages(draw):
    return [draw(any_stage(f"stage {i}")) for i in range(draw(st.integers(1, 4)))]


# --- one stage --------------------------------------------------------------------------------------------


@given(any_stage(), SHARES, SHARES)
def test_a_higher_share_never_takes_less(stage, one, other):
    low, high = sorted((one, other))
    assert 0 <= stage.at(low) <= stage.at(high) * (1 + 1e-12)


@given(MS, st.floats(1.001, 5))
def test_two_points_make_the_lognormal(p50, ratio):
    stage = through("s", {0.5: p50, 0.95: p50 * ratio})
    spread = math.log(ratio) / norm.ppf(0.95)
    for share in (0.01, 0.25, 0.75, 0.99, 0.999):
        assert stage.at(share) == pytest.approx(p50 * math.exp(spread * norm.ppf(share)))


@given(MS, st.floats(1, 3), st.floats(1, 5), st.floats(0.991, 0.9999))
def test_three_points_are_met_and_beyond_them_the_body_goes_on(p50, more, most, beyond):
    known = {0.5: p50, 0.95: p50 * more, 0.99: p50 * more * most}
    stage = through("s", known)
    for share, ms in known.items():
        assert stage.at(share) == pytest.approx(ms)
    body = math.log(more) / norm.ppf(0.95)
    step = norm.ppf(beyond) - norm.ppf(0.99)
    assert stage.at(beyond) == pytest.approx(known[0.99] * math.exp(body * step))


@given(MS, st.floats(0, 3))
def test_the_interquartile_range_is_met(p50, width):
    stage = from_iqr("s", p50, width * p50)
    assert stage.at(0.5) == pytest.approx(p50)
    assert stage.at(0.75) - stage.at(0.25) == pytest.approx(width * p50, abs=1e-6)


@given(SAMPLES, SHARES)
def test_samples_have_the_percentiles_of_the_course(samples, share):
    assert from_samples("s", samples).at(share) == stats.percentile(samples, share).value


def test_spikes_are_as_rare_as_said():
    stage = spiky("s", 100, 1000, 0.04)
    assert (stage.at(0.95), stage.at(0.961)) == (100, 1000)
    drawn = budget_sum.draw([stage], n=100_000)["s"]
    assert np.mean(drawn == 1000) == pytest.approx(0.04, abs=0.003)


@given(any_stage(), st.floats(0, 5), SHARES)
def test_stretching_stretches_every_percentile(stage, factor, share):
    assert stage.scaled(factor).at(share) == pytest.approx(factor * stage.at(share))


# --- sums -------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(some_stages(), st.floats(-1, 1))
def test_columns_are_the_stages_and_the_same_seed_gives_the_same(stages, correlation):
    if len(stages) > 2:
        correlation = abs(correlation)
    drawn = budget_sum.draw(stages, n=50, correlation=correlation)
    assert list(drawn.columns) == [stage.name for stage in stages]
    assert drawn.equals(budget_sum.draw(stages, n=50, correlation=correlation))
    assert (drawn >= 0).all().all()


@settings(max_examples=40)
@given(some_stages(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_all_slow_at_once_and_percentiles_add_exactly(stages, share):
    """The one case in which they do: the P95 of such a sum is the sum of the P95s, sample for sample."""
    drawn = budget_sum.draw(stages, n=400, correlation=1)
    apart = sum(stats.percentile(drawn[name], share).value for name in drawn)
    assert stats.percentile(drawn.sum(axis=1), share).value == pytest.approx(apart, rel=1e-9)


@settings(max_examples=40)
@given(some_stages(), st.floats(0, 1), st.randoms())
def test_order_does_not_matter(stages, correlation, random):
    mixed = list(stages)
    random.shuffle(mixed)
    one, other = (budget_sum.draw(part, n=60, correlation=correlation) for part in (stages, mixed))
    for name in one:
        assert np.allclose(one[name], other[name], rtol=1e-6)


@settings(max_examples=40)
@given(some_stages(), st.floats(1, 3), st.floats(0, 1), st.sampled_from([0.5, 0.95]))
def test_a_slower_stage_never_makes_a_quicker_turn(stages, factor, correlation, share):
    slower = [stages[0].scaled(factor), *stages[1:]]
    before, after = (
        budget_sum.of_sum(part, share, n=200, correlation=correlation).value for part in (stages, slower)
    )
    assert after >= before * (1 - 1e-9)


@settings(max_examples=30)
@given(some_stages(), st.floats(0.1, 10))
def test_units_are_carried_through(stages, factor):
    """The same budget in another unit has the same percentiles in that unit."""
    before = budget_sum.of_sum(stages, n=200)
    after = budget_sum.of_sum([stage.scaled(factor) for stage in stages], n=200)
    assert after.value == pytest.approx(factor * before.value)
    assert after.low == pytest.approx(factor * before.low)


def test_a_fixed_stage_moves_the_sum_and_nothing_else():
    varying = through("llm", {0.5: 300, 0.95: 600})
    alone = budget_sum.draw([varying])
    more = budget_sum.draw([fixed("wait", 200), varying])
    assert more["llm"].equals(alone["llm"])
    assert np.allclose(more.sum(axis=1), alone["llm"] + 200)


@pytest.mark.parametrize("rank", [0.0, 0.3, 0.7, 0.95])
def test_the_rank_correlation_is_the_one_that_was_asked_for(rank):
    stages = [through("a", {0.5: 100, 0.95: 400}), from_iqr("b", 200, 100), through("c", {0.5: 5, 0.95: 9})]
    drawn = budget_sum.draw(stages, n=40_000, correlation=rank)
    found = spearmanr(drawn).statistic
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert found[i, j] == pytest.approx(rank, abs=0.02)


def test_two_stages_can_be_opposed_and_three_only_so_far():
    pair = [through("a", {0.5: 100, 0.95: 400}), through("b", {0.5: 100, 0.95: 400})]
    drawn = budget_sum.draw(pair, n=4000, correlation=-1)
    assert spearmanr(drawn).statistic == pytest.approx(-1, abs=1e-3)
    three = [*pair, through("c", {0.5: 100, 0.95: 400})]
    budget_sum.draw(three, n=10, correlation=-0.48)
    with pytest.raises(CourseError, match="cannot all be that opposed"):
        budget_sum.draw(three, n=10, correlation=-0.6)


def test_correlation_leaves_each_stage_as_it_is():
    stages = [through("a", {0.5: 100, 0.95: 400, 0.99: 900}), from_iqr("b", 200, 100)]
    for rank in (0, 0.5, 1):
        drawn = budget_sum.draw(stages, n=50_000, correlation=rank)
        for stage in stages:
            for share in (0.5, 0.95):
                assert stats.percentile(drawn[stage.name], share).value == pytest.approx(
                    stage.at(share), rel=0.03
                )


def test_adding_is_wrong_in_both_directions():
    usual = [through(name, {0.5: 200, 0.95: 500}) for name in "abc"]
    rare = [spiky(name, 100, 1000, 0.04) for name in "abc"]
    found = budget_sum.compared({"usual": (usual, 0), "at once": (usual, 1), "rare": (rare, 0)})
    high, right, low = found["off_percent"]
    assert high > 10
    assert right == pytest.approx(0, abs=2)
    assert low < -50
    assert found["added_ms"].tolist() == pytest.approx([1500, 1500, 300])
    assert found.set_index("case").loc["rare", "true_ms"] == 1200
    assert set(found["origin"]) == {"modelled"}


def test_the_interval_holds_the_known_answer():
    """Of two independent normals in the logarithm nothing is known in closed form; of a sum with one varying
    part everything is."""
    held = 0
    for seed in range(100):
        stages = [fixed("rest", 500), through("llm", {0.5: 300, 0.95: 600})]
        found = budget_sum.of_sum(stages, n=500, seed=seed)
        held += found.low <= 1100 <= found.high
    assert held >= 90


# --- nonsense ---------------------------------------------------------------------------------------------

GOOD = through("a", {0.5: 100, 0.95: 200})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fixed("a", -1), "not a time"),
        (lambda: fixed("a", math.nan), "not a time"),
        (lambda: fixed("a", "100"), "not a time"),
        (lambda: through("a", {0.5: 100}), "two percentiles"),
        (lambda: through("a", {0.5: 100, 95: 200}), "95 is not a share"),
        (lambda: through("a", {0.5: 200, 0.95: 100}), "cannot be a shorter"),
        (lambda: through("a", {0.5: 0, 0.95: 100}), "above 0"),
        (lambda: through("a", {0.5: 100, 0.95: math.inf}), "not a time"),
        (lambda: from_iqr("a", 0, 10), "above 0"),
        (lambda: from_iqr("a", 100, -10), "not a time"),
        (lambda: from_samples("a", []), "no samples"),
        (lambda: from_samples("a", [1, math.nan]), "not a time"),
        (lambda: from_samples("a", [1, math.inf]), "not a time"),
        (lambda: spiky("a", 100, 50, 0.01), "below the usual"),
        (lambda: spiky("a", 100, 500, 4), "4 is not a share"),
        (lambda: GOOD.at(95), "95 is not a share"),
        (lambda: GOOD.scaled(-1), "factor"),
        (lambda: budget_sum.draw([]), "at least one stage"),
        (lambda: budget_sum.draw([GOOD, GOOD]), "a name of its own"),
        (lambda: budget_sum.draw([GOOD], n=0), "n=0"),
        (lambda: budget_sum.draw([GOOD], n=1.5), r"n=1\.5"),
        (lambda: budget_sum.draw([GOOD], n=10**9), "n="),
        (lambda: budget_sum.draw([GOOD], correlation=1.1), "between -1 and 1"),
        (lambda: budget_sum.draw([GOOD], correlation=-1.1), "between -1 and 1"),
        (lambda: budget_sum.draw([GOOD], correlation=math.nan), "between -1 and 1"),
        (lambda: budget_sum.draw([GOOD], seed=-1), "seed"),
        (lambda: budget_sum.draw([GOOD], correlation=10**400), "between -1 and 1"),
        (lambda: GOOD.scaled(10**400), "not a time"),
        (lambda: budget_sum.compared({"two": ([budget_sum.fixed("a", 0)], 0.0)}), "two: .* no time"),
        (lambda: budget_sum.of_sum([GOOD], 95), "95 is not a share"),
    ],
)
def test_what_makes_no_sense_is_said(make, words):
    with pytest.raises(CourseError, match=words):
        make()
