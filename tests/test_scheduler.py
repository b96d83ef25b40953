"""The virtual server: nothing lost, nothing before its time, and the queues of the textbooks."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import scheduler
from helpers.scheduler import Ask, Limits
from helpers.settings import CourseError


def flat(ms: float):
    """Each step takes as long, whatever is in it."""
    return lambda decodes, prompt_tokens, context_tokens: ms


ASKS = st.builds(
    Ask,
    prompt_tokens=st.integers(1, 3000),
    output_tokens=st.integers(1, 60),
    known_tokens=st.integers(0, 3000),
    listen_s=st.floats(0, 2),
    pause_s=st.floats(0, 2),
)


@settings(deadline=None, max_examples=60)
@given(
    lines=st.lists(st.lists(ASKS, min_size=1, max_size=6), min_size=1, max_size=8),
    seats=st.integers(1, 5),
    budget=st.integers(6, 4000),
    block=st.sampled_from([None, 16, 500]),
)
def test_every_request_ends_once_in_order_and_keeps_to_the_limits(lines, seats, budget, block):
    running = []

    def step(decodes, prompt_tokens, context_tokens):
        assert 0 <= decodes <= seats
        assert decodes + prompt_tokens <= budget
        assert context_tokens >= decodes
        running.append(decodes)
        return 1.0 + 0.01 * prompt_tokens

    limits = Limits(max_num_seqs=seats, max_num_batched_tokens=budget, cache_block=block, delay_ms=3.0)
    found = scheduler.run(lines, step, limits)
    rows = found.requests
    assert len(rows) == sum(map(len, lines))  # none lost, none twice
    assert (rows["first_answer_s"] > rows["due_s"] + 0.003).all()
    assert (rows["ended_s"] >= rows["first_answer_s"]).all()
    assert (rows["queue_ms"] >= -1e-6).all()
    assert (rows["cached_tokens"] < rows["prompt_tokens"]).all()
    for line, asked in enumerate(lines):
        mine = rows[rows["line"] == line]
        assert list(mine["completion_tokens"]) == [ask.output_tokens for ask in asked]
        # The next request comes after the answer, its listening and its pause.
        gaps = mine["due_s"].iloc[1:].to_numpy() - mine["ended_s"].iloc[:-1].to_numpy()
        assert (gaps >= [ask.pause_s - 1e-9 for ask in asked[1:]]).all()
    assert found.busy_s <= found.span_s + 1e-9


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(ASKS, min_size=1, max_size=4), min_size=1, max_size=5))
def test_littles_law_holds_on_the_table(lines):
    """Requests in the system, counted from the events, against rate times mean time."""
    rows = scheduler.run(lines, flat(2.0)).requests
    events = sorted([(at, 1) for at in rows["sent_s"]] + [(at, -1) for at in rows["ended_s"]])
    area, inside, before = 0.0, 0, 0.0
    for at, change in events:
        area += inside * (at - before)
        inside, before = inside + change, at
    assert inside == 0
    rate = len(rows) / before
    assert area / before == pytest.approx(rate * rows["e2e_ms"].mean() / 1000, rel=1e-9)


def test_steps_taken_in_one_go_are_those_taken_one_by_one():
    """Without the shortcut each decode step would be asked for alone: an arrival at each step forces that."""

    def step(decodes, prompt_tokens, context_tokens):
        return 5.0 + decodes + 0.001 * context_tokens

    long = [Ask(100, 50)]
    alone = scheduler.run([long], step).requests.iloc[0]
    expected = step(0, 100, 0) + sum(step(1, 0, 101 + i) for i in range(49))
    assert alone["e2e_ms"] == pytest.approx(expected)


def service(utilisation: float, *, fixed: bool, count: int = 20_000) -> float:
    """Mean wait of a queue with one seat and Poisson arrivals, in service times.

    A request is one token, so its service is one step; the step's length is drawn for each request.
    """
    chance = Random(7)
    lines, starts, now = [], [], 0.0
    for _ in range(count):
        now += chance.expovariate(utilisation)
        lines.append([Ask(1, 1)])
        starts.append(now / 100)  # a mean service is 10 ms

    def step(decodes, prompt_tokens, context_tokens):
        return 10.0 if fixed else 10 * chance.expovariate(1.0)

    limits = Limits(max_num_seqs=1, max_num_batched_tokens=2)
    rows = scheduler.run(lines, step, limits, starts_s=starts).requests
    return float(rows["queue_ms"].mean()) / 10


@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_one_seat_is_mm1_and_md1(utilisation):
    """Mean waits of Erlang: rho / (1 - rho) service times, and half of that where all are alike."""
    assert service(utilisation, fixed=False) == pytest.approx(utilisation / (1 - utilisation), rel=0.12)
    assert service(utilisation, fixed=True) == pytest.approx(utilisation / (1 - utilisation) / 2, rel=0.12)


def test_a_cap_on_seats_is_a_queue_that_looks_like_ttft():
    lines = [[Ask(100, 40)] for _ in range(32)]
    free = scheduler.run(lines, flat(10), Limits(max_num_seqs=64)).requests
    capped = scheduler.run(lines, flat(10), Limits(max_num_seqs=4)).requests
    assert free["ttft_ms"].max() == pytest.approx(10)
    assert capped["ttft_ms"].quantile(0.95) > 2000
    assert capped["tpot_ms"].median() == pytest.approx(free["tpot_ms"].median())


def test_memory_holds_requests_back_as_seats_do():
    lines = [[Ask(90, 10)] for _ in range(10)]
    found = scheduler.run(lines, flat(10), Limits(room_tokens=250, request_tokens=20)).requests
    assert (found["ttft_ms"] < 15).sum() == 2  # two of 120 fit into 250
    with pytest.raises(CourseError, match="does not fit"):
        scheduler.run([[Ask(300, 10)]], flat(10), Limits(room_tokens=250))


def test_long_prompts_are_read_in_chunks_beside_the_answers():
    seen = []

    def step(decodes, prompt_tokens, context_tokens):
        seen.append((decodes, prompt_tokens))
        return 10.0

    scheduler.run([[Ask(10, 100)], [Ask(1000, 2)]], step, Limits(8, 256), starts_s=[0, 0.05])
    chunks = [prompt for _, prompt in seen if prompt]
    assert chunks == [10, 255, 255, 255, 235]
    assert all(decodes == 1 for decodes, prompt in seen if prompt > 10)


@pytest.mark.parametrize(
    ("limits", "cached"),
    [
        (Limits(), 0),
        (Limits(cache_block=2096), 2096),
        (Limits(cache_block=64), 2944),
        (Limits(cache_share=0.5), 1500),
        (Limits(cache_share=1.0), 3000),
        (Limits(cache_block=0), 0),
    ],
)
def test_prefix_cache(limits, cached):
    assert limits.cached(Ask(3100, 5, known_tokens=3000)) == cached
    assert limits.cached(Ask(100, 5, known_tokens=100)) <= 99


def test_nothing_is_due_after_the_end_and_what_was_due_is_served():
    lines = [[Ask(10, 100, pause_s=0.3)] * 50 for _ in range(3)]
    rows = scheduler.run(lines, flat(10), until_s=5).requests
    assert rows["due_s"].max() <= 5 < rows["ended_s"].max()
    assert rows["ended_s"].notna().all()


def test_the_same_asks_give_the_same_table():
    lines = [[Ask(50 + i, 20, pause_s=0.1)] * 5 for i in range(7)]
    one, two = (scheduler.run(lines, flat(3)).requests for _ in range(2))
    assert one.equals(two)


@pytest.mark.parametrize(
    ("asks", "limits", "words"),
    [
        ([Ask(0, 1)], Limits(), "at least one token"),
        ([Ask(1, 0)], Limits(), "at least one token"),
        ([Ask(1, 1)], Limits(max_num_seqs=0), "max_num_seqs"),
        ([Ask(1, 1)], Limits(max_num_seqs=128, max_num_batched_tokens=128), "max_num_batched_tokens"),
    ],
)
def test_what_makes_no_sense_is_said(asks, limits, words):
    with pytest.raises(CourseError, match=words):
        scheduler.run([asks], flat(1), limits)
    with pytest.raises(CourseError, match="one for each"):
        scheduler.run([[Ask(1, 1)]], flat(1), starts_s=[0, 1])


def test_no_lines_no_rows():
    found = scheduler.run([], flat(1))
    assert found.requests.empty
    assert not math.isnan(found.span_s)
