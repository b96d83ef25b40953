"""How many experts a batch wakes, and the bytes of a step."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import architecture, experts, hardware, memory, parameters
from helpers.settings import CourseError

PHONELLM = architecture.phonellm()


def mean_distinct(batch: int, **options) -> float:
    return float(experts.simulate(batch, **{"trials": 60, "seed": 1} | options)["distinct"].mean())


def test_the_formula_by_counting_every_case():
    """Two tokens, each with two of four experts: all 36 pairs of choices."""
    choices = list(combinations(range(4), 2))
    counted = [len({*first, *second}) for first, second in product(choices, repeat=2)]
    mean = sum(counted) / len(counted)
    assert experts.expected_distinct(2, experts=4, per_token=2) == pytest.approx(mean) == 3.0


def test_the_formula_for_phonellm():
    found = experts.expected_distinct([1, 4, 16, 44, 64])
    assert [round(value) for value in found] == [6, 22, 69, 113, 122]
    assert experts.expected_distinct(0) == 0
    assert isinstance(experts.expected_distinct(1), float)


@given(st.integers(0, 500), st.integers(1, 64), st.integers(1, 64))
def test_it_grows_with_the_batch_and_stays_within_bounds(batch, per_token, more):
    count = per_token + more
    now, next_ = experts.expected_distinct([batch, batch + 1], experts=count, per_token=per_token)
    assert now <= next_ <= count
    assert now <= batch * per_token + 1e-9


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_the_router_with_random_weights_agrees_with_the_formula(batch):
    assert mean_distinct(batch) == pytest.approx(experts.expected_distinct(batch), rel=0.02)


def test_popular_experts_and_similar_tokens_mean_fewer_distinct_ones():
    assert mean_distinct(16, skew=1) < 0.75 * mean_distinct(16)
    assert mean_distinct(16, skew=2) < mean_distinct(16, skew=1)
    assert mean_distinct(16, similarity=0.5) < 0.75 * mean_distinct(16)
    assert mean_distinct(16, similarity=1) == 6


def test_the_correction_makes_up_for_popularity_but_not_for_similar_tokens():
    options = {"trials": 5}
    balanced = mean_distinct(16, skew=1, balanced=True, **options)
    assert balanced == pytest.approx(experts.expected_distinct(16), rel=0.05)
    similar = mean_distinct(16, skew=1, similarity=0.5, balanced=True, **options)
    assert similar < 0.75 * balanced


def test_one_token_wakes_exactly_its_own_and_a_seed_repeats():
    frame = experts.simulate([1, 3], trials=5, seed=4, experts=16, per_token=2)
    assert set(frame.loc[frame["batch"] == 1, "distinct"]) == {2}
    assert frame["distinct"].max() <= 6
    assert frame.equals(experts.simulate([1, 3], trials=5, seed=4, experts=16, per_token=2))
    assert len(frame) == 10
    assert set(frame["origin"]) == {"modelled"}


def test_a_step_of_one_reads_the_active_weights():
    row = 2 * PHONELLM.hidden_size  # of the embedding
    assert experts.bytes_per_step(PHONELLM, 1) == 2 * parameters.active(PHONELLM, embedding=False) + row


def test_a_large_step_reads_every_weight_but_the_embedding():
    frame = experts.bytes_per_step(PHONELLM, [1, 10_000])
    table = PHONELLM.vocab_size * PHONELLM.hidden_size
    weights = frame["total_bytes"] - frame["batch"] * 2 * PHONELLM.hidden_size
    assert weights.iloc[1] == pytest.approx(2 * (parameters.total(PHONELLM) - table))
    assert frame["distinct_experts"].iloc[1] == pytest.approx(128)


@given(st.integers(1, 300), st.sampled_from(architecture.examples()), st.sampled_from([0.5, 1, 2]))
def test_bytes_grow_with_the_batch_but_less_than_it(batch, name, width):
    arch = architecture.example(name)
    one, now, next_ = experts.bytes_per_step(arch, [1, batch, batch + 1], width)["total_bytes"]
    assert now < next_
    assert now <= batch * one


def test_requests_add_their_cache_and_twice_their_state():
    without, with_ = (experts.bytes_per_step(PHONELLM, 8, tokens=tokens) for tokens in (None, 1000))
    one = 1000 * memory.kv_bytes_per_token(PHONELLM) + 2 * memory.mamba_state_bytes(PHONELLM)
    assert with_ - without == pytest.approx(8 * one)


def test_a_dense_model_reads_the_same_weights_for_any_batch():
    dense = architecture.example("nemotron-nano-9b-v2")
    frame = experts.bytes_per_step(dense, [1, 64])
    assert set(frame["expert_bytes"]) == {0}
    rows = 63 * 2 * dense.hidden_size
    assert frame["total_bytes"].iloc[1] - frame["total_bytes"].iloc[0] == rows


def test_floors_of_one_stream():
    frame = experts.floor_ms(PHONELLM, [1]).set_index("gpu")["floor_ms"]
    expected = {
        "B200": 0.81,
        "H200": 1.34,
        "H100": 1.93,
        "RTX PRO 6000": 3.60,
        "L40S": 7.47,
        "DGX Spark": 23.6,
    }
    for gpu, floor in expected.items():
        assert frame[gpu] == pytest.approx(floor, rel=0.004)
    own = hardware.own("mine", memory_gb=80, bandwidth_tb_s=1)
    assert experts.floor_ms(PHONELLM, [1], own)["floor_ms"].iloc[0] == pytest.approx(6.4555, abs=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: experts.expected_distinct(1, experts=4, per_token=5),
        lambda: experts.expected_distinct(-1),
        lambda: experts.simulate(0),
        lambda: experts.simulate(1, trials=0),
        lambda: experts.simulate(1, similarity=1.5),
        lambda: experts.simulate(1, skew=-1),
        lambda: experts.simulate([]),
        lambda: experts.bytes_per_step(PHONELLM, -1),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(CourseError):
        call()


@pytest.mark.parametrize("value", [-1, 0, float("nan"), float("inf")])
def test_bytes_of_a_weight_and_batches_that_are_none_are_refused(value):
    with pytest.raises(CourseError, match="bytes_per_weight"):
        experts.bytes_per_step(architecture.phonellm(), 4, value)
    with pytest.raises(CourseError, match="fewer than 0"):
        experts.expected_distinct([1, float("nan")])
