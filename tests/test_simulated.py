"""The simulated servers keep their laws, and the queues agree with the formulas for them."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import latency, published, showcases, simulated, stats
from helpers.settings import CourseError
from helpers.simulated import SERVERS, fifo, mean_wait

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")


@pytest.mark.parametrize("name", SERVERS)
def test_a_run_has_the_attainment_that_the_law_says(name):
    server = SERVERS[name]
    for level in (server.truth(600), server.truth(600) + 1):
        call, times_ms = server.times_ms(level, 6000, 1)
        shares = pd.Series(times_ms <= 600).groupby(call).mean()
        # Calls are independent; their mean share scatters by so much.
        error = shares.std() / math.sqrt(len(shares))
        assert abs(np.mean(times_ms <= 600) - server.attainment(level, 600)) < 4 * error + 1e-3


@pytest.mark.parametrize("name", SERVERS)
def test_truth_is_the_last_level_that_keeps_it(name):
    server = SERVERS[name]
    truth = server.truth(600)
    assert server.attainment(truth, 600) >= 0.95 > server.attainment(truth + 1, 600)
    assert truth > 8, "the search has something to do"
    assert server.truth(1) == 0


def test_percentile_is_where_the_attainment_is():
    server = SERVERS["bimodal"]
    assert server.attainment(15, server.percentile_ms(15)) == pytest.approx(0.95)
    assert math.isinf(SERVERS["breaks"].percentile_ms(14))


def test_a_run_has_the_columns_of_a_measured_one_and_the_same_seed_gives_the_same():
    server = SERVERS["breaks"]
    requests = server.requests(14, 50, 3)
    assert set(latency.COLUMNS) <= set(requests.columns)
    pd.testing.assert_frame_equal(requests, server.requests(14, 50, 3))
    assert not requests["ttfat_ms"].equals(server.requests(14, 50, 4)["ttfat_ms"])
    assert set(requests["origin"]) == {"modelled"}
    failed = requests["error"].notna()
    assert 0.3 < failed.mean() < 0.7
    assert (requests["ttfat_ms"].isna() == failed).all()
    call, times_ms = server.times_ms(14, 50, 3)
    assert (np.isinf(times_ms) == failed.to_numpy()).all()
    assert (call == requests["call"]).all()


def test_a_line_has_one_call_after_another_and_a_call_one_turn_after_another():
    requests = SERVERS["queue"].requests(7, 40, 1).sort_values(["call", "turn"])
    for _, call in requests.groupby("call"):
        assert list(call["turn"]) == list(range(len(call)))
        assert (call["due_s"].to_numpy()[1:] >= call["ended_s"].to_numpy()[:-1]).all()
    live = requests.groupby("call").agg(begin=("due_s", "min"), end=("ended_s", "max"))
    for at_s in np.linspace(live["begin"].min(), live["end"].max(), 50):
        assert ((live["begin"] <= at_s) & (live["end"] > at_s)).sum() <= 7


def test_less_than_one_call_is_an_error():
    with pytest.raises(CourseError):
        SERVERS["queue"].requests(0, 5)
    with pytest.raises(CourseError):
        SERVERS["queue"].requests(5, 0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5)), min_size=1, max_size=40), st.integers(1, 4))
def test_a_queue_serves_in_order_never_too_many_and_never_rests_while_someone_waits(jobs, servers):
    arrival = np.cumsum([gap for gap, _ in jobs])
    service = np.array([time for _, time in jobs])
    begun = fifo(arrival, service, servers)
    assert (begun >= arrival).all()
    assert (np.diff(begun) >= 0).all()
    ended = begun + service
    for i, at in enumerate(begun):
        busy = ((begun[:i] <= at) & (ended[:i] > at)).sum()
        assert busy < servers
        if at > arrival[i]:  # it waited: until somebody's end
            assert np.isclose(ended[:i], at).any()


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize(("name", "scatter"), [("M/M/1", 1.0), ("M/D/1", 0.0)])
def test_the_queue_waits_as_long_as_the_formula_says(load, name, scatter):
    """Twenty runs; the formula lies within four standard errors of their mean."""
    service_s, n, means = 0.05, 8000, []
    for seed in range(20):
        random = np.random.default_rng(seed)
        arrival = np.cumsum(random.exponential(service_s / load, n))
        service = random.exponential(service_s, n) if scatter else np.full(n, service_s)
        means.append(float(np.mean((fifo(arrival, service) - arrival)[n // 10 :])))
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    expected = mean_wait(load, service_s, scatter=scatter)
    assert abs(np.mean(means) - expected) < 4 * error
    assert error < 0.1 * expected, "precise enough to notice"


def test_an_mm1_queue_has_the_sojourn_times_of_the_formula():
    """In an M/M/1 queue the whole time is exponential with mean service / (1 - load): so is its P95."""
    random, service_s, load, n = np.random.default_rng(5), 0.05, 0.5, 60_000
    arrival = np.cumsum(random.exponential(service_s / load, n))
    service = random.exponential(service_s, n)
    whole = fifo(arrival, service) + service - arrival
    assert stats.percentile(whole, 0.95).value == pytest.approx(
        -math.log(0.05) * service_s / (1 - load), rel=0.06
    )


def test_a_queue_without_a_mean_is_an_error():
    with pytest.raises(CourseError):
        mean_wait(1.0, 0.1)
    with pytest.raises(CourseError, match="order of time"):
        fifo(np.array([2.0, 1.0]), np.array([1.0, 1.0]))


def test_coordinated_omission_hides_the_pause():
    frame = showcases.coordinated_omission()
    found = showcases.summary(frame).set_index("run")
    assert found.loc["waits for each answer", "p99_ms"] == pytest.approx(4)
    assert found.loc["arrivals on time", "p99_ms"] > 900
    assert found["n"].eq(20_000).all()
    assert found["max_ms"].nunique() == 1, "both met the pause; one met it ten times, the other all the time"
    assert set(frame["origin"]) == {"modelled"}


def test_a_start_burst_is_a_queue_of_its_own_making():
    frame = showcases.start_burst(live_calls=32, prefill_ms=60)
    found = showcases.summary(frame).set_index("run")
    assert found.loc["all at once", "p95_ms"] > 5 * found.loc["spread", "p95_ms"]
    first = frame[(frame["run"] == "all at once") & (frame["turn"] == 0)]
    assert sorted(first["ttft_ms"].round()) == [60 * (i + 1) for i in range(32)]
    later = showcases.summary(frame[frame["turn"] > 1]).set_index("run")
    assert later.loc["all at once", "p95_ms"] < 3 * later.loc["spread", "p95_ms"]
    assert (frame.groupby("run").size() == 160).all()


def test_under_a_cap_longer_answers_make_ttft_fall_and_callers_wait_longer():
    frame = showcases.longer_answers_under_a_cap()
    sent = showcases.summary(frame)["p95_ms"]
    due = showcases.summary(frame, metric="due_to_ttft_ms")["p95_ms"]
    assert sent.is_monotonic_decreasing
    assert sent.iloc[-1] < 0.5 * sent.iloc[0]
    assert due.is_monotonic_increasing
    assert due.iloc[-1] > 10 * due.iloc[0]


def test_the_cap_holds_and_the_arrivals_are_the_same():
    frame = showcases.longer_answers_under_a_cap((64, 256), cap=5, requests=300)
    runs = [part for _, part in frame.groupby("answer_tokens")]
    assert np.array_equal(runs[0]["due_s"], runs[1]["due_s"])
    for part in runs:
        for at_s in part["sent_s"]:
            assert ((part["sent_s"] <= at_s) & (part["ended_s"] > at_s)).sum() <= 5
        assert (part["sent_s"] >= part["due_s"]).all()


def test_littles_law_explains_the_published_queue():
    found = showcases.published_queue().set_index("what")["value"]
    asked = published.value("load.queue_in_flight")
    assert found["requests in flight, by Little's law"] == pytest.approx(asked, rel=0.03)
    parts = found["of them before their first token"] + found["of them being answered"]
    assert parts == pytest.approx(found["requests in flight, by Little's law"])
    rate, tokens = published.value("load.queue_requests_per_s"), published.value("load.queue_answer_tokens")
    assert rate * tokens == pytest.approx(published.value("load.queue_output_rate"), rel=0.01)
    assert set(showcases.published_queue()["origin"]) == {"published", "modelled"}
    assert simulated.SPEAK_S > 0
