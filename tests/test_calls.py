"""What follows from a table of requests: counts over time, Little's law, calls against requests."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import calls
from helpers.settings import CourseError

settings.register_profile("no deadline", deadline=None, max_examples=50)
settings.load_profile("no deadline")


def requests(*spans, run="a", origin="measured", **columns):
    """A table from (sent_s, ended_s)."""
    sent, ended = zip(*spans, strict=True) if spans else ((), ())
    frame = pd.DataFrame({"run": run, "sent_s": list(sent), "ended_s": list(ended), "origin": origin})
    return frame.astype({"sent_s": float, "ended_s": float}).assign(**columns)


moments = st.integers(0, 50).map(lambda tenth: tenth / 10)
spans = st.lists(
    st.tuples(moments, st.integers(1, 40).map(lambda tenth: tenth / 10)), min_size=1, max_size=30
).map(lambda pairs: [(at, at + length) for at, length in pairs])


def test_in_flight_is_a_row_at_each_change():
    frame = calls.in_flight(requests((0, 2), (1, 3), (2, 4)))
    assert list(zip(frame["at_s"], frame["in_flight"], strict=True)) == [
        (0, 1),
        (1, 2),
        (2, 2),
        (3, 1),
        (4, 0),
    ]
    assert set(frame["origin"]) == {"measured"}


@given(spans)
def test_in_flight_ends_empty_is_never_negative_and_counts_what_is_open(given_spans):
    frame = calls.in_flight(requests(*given_spans))
    assert frame["in_flight"].iloc[-1] == 0
    assert (frame["in_flight"] >= 0).all()
    for row in frame.itertuples():
        assert row.in_flight == sum(sent <= row.at_s < ended for sent, ended in given_spans)


@given(spans)
def test_littles_law_is_an_identity_over_a_closed_window(given_spans):
    row = calls.little(requests(*given_spans)).iloc[0]
    assert row["requests"] == len(given_spans)
    assert row["rate_x_time"] == pytest.approx(row["mean_in_flight"])
    assert row["difference"] == pytest.approx(0, abs=1e-9)


@given(spans, moments)
def test_the_mean_of_two_windows_is_the_mean_of_both(given_spans, middle):
    table = requests(*given_spans)

    def area(begin, end):
        return calls.mean_in_flight(table, window=(begin, end)) * (end - begin) if end > begin else 0

    assert area(-1, middle) + area(middle, 12) == pytest.approx(area(-1, 12))
    assert area(-1, 12) == pytest.approx(sum(ended - sent for sent, ended in given_spans))


def test_little_notices_lost_requests():
    whole = requests(*((at / 10, at / 10 + 1) for at in range(100)))
    row = calls.little(whole, window=(2, 8)).iloc[0]
    assert row["difference"] == pytest.approx(0, abs=0.2)
    lost = whole.assign(ended_s=whole["sent_s"] + 0.5)  # times of another clock
    assert calls.mean_in_flight(lost, window=(2, 8)) == pytest.approx(row["mean_in_flight"] / 2, rel=0.1)


def test_the_servers_own_count_stands_beside():
    pages = pd.DataFrame({"at_s": [0.5, 1.0, 9.0], "running": [1.0, 2.0, 50.0], "waiting": [0.0, 1.0, 50.0]})
    table = requests((0, 2), (0, 2))
    assert calls.little(table, pages)["server_in_flight"].iloc[0] == 2.0
    assert math.isnan(calls.little(table)["server_in_flight"].iloc[0])
    assert math.isnan(calls.little(table, pages.iloc[:0])["server_in_flight"].iloc[0])


def test_runs_are_kept_apart():
    both = pd.concat(
        [requests((0, 2), run="a", live_calls=1.0), requests((0, 4), (0, 4), run="b", live_calls=2.0)]
    )
    table = calls.little(both)
    assert list(table["run"]) == ["a", "b"]
    assert list(table["mean_in_flight"]) == [1, 2]
    assert list(table["live_calls"]) == [1, 2]
    with pytest.raises(CourseError, match="2 runs"):
        calls.mean_in_flight(both)
    with pytest.raises(CourseError, match="one run"):
        calls.little(both, pd.DataFrame({"at_s": [], "running": [], "waiting": []}))


def test_a_table_without_runs_is_one_run_and_an_empty_one_is_nothing():
    assert calls.mean_in_flight(requests((0, 1), (1, 2)).drop(columns="run")) == 1
    assert math.isnan(calls.mean_in_flight(requests()))
    assert calls.in_flight(requests()).empty
    assert calls.little(requests()).empty


def test_missing_columns_and_origins_are_said():
    with pytest.raises(CourseError, match="ended_s"):
        calls.in_flight(requests((0, 1)).drop(columns="ended_s"))
    with pytest.raises(CourseError, match="origin"):
        calls.in_flight(requests((0, 1)).drop(columns="origin"))


def test_duty_cycle_over_whole_calls():
    table = requests((5, 6), (15, 16), (4, 6)).assign(
        call=["x", "x", "y"], turn=[0, 1, 0], call_began_s=[0, 0, 0], heard_s=[8, 20, 10]
    )
    assert calls.duty_cycle(table) == pytest.approx((1 + 1 + 2) / (20 + 10))


def test_duty_cycle_leaves_out_calls_whose_beginning_is_missing():
    table = requests((5, 6), (15, 16)).assign(
        call=["x", "y"], turn=[0, 3], call_began_s=[0, 0], heard_s=[10, 20]
    )
    assert calls.duty_cycle(table) == pytest.approx(1 / 10)


def test_duty_cycle_of_a_request_that_nobody_heard_ends_with_it():
    table = requests((5, 6), (8, 10)).assign(call="x", turn=[0, 1], call_began_s=0, heard_s=[7, math.nan])
    assert calls.duty_cycle(table) == pytest.approx(3 / 10)


def test_duty_cycle_of_another_tools_table_goes_from_sending_to_sending():
    table = requests((0, 1), (5, 6), (10, 14)).assign(call="x", turn=[0, 1, 2])
    assert calls.duty_cycle(table) == pytest.approx(2 / 10)
    assert math.isnan(calls.duty_cycle(table.iloc[:1]))


@given(st.integers(1, 200), st.floats(0.01, 1))
def test_agents_are_requests_in_flight_by_the_duty_cycle(count, duty):
    assert calls.agents(count, duty) * duty == pytest.approx(count)
    assert calls.agents(count, duty) >= count


@pytest.mark.parametrize("duty", [0, -0.1, 1.1, math.nan, "0.5", None])
def test_a_duty_cycle_that_is_no_share_is_refused(duty):
    with pytest.raises(CourseError, match="share"):
        calls.agents(44, duty)


def test_the_duty_cycle_of_callers_is_mean_in_flight_by_live_calls():
    """Two definitions that must meet: ten lines that never rest, one cycle of 8 s with 2 s in flight."""
    rows = [
        (line * 0.8 + 8 * turn + 3, line * 0.8 + 8 * turn + 5, line, turn)
        for line in range(10)
        for turn in range(40)
    ]
    sent, ended, line, turn = map(np.array, zip(*rows, strict=True))
    table = requests(*zip(sent, ended, strict=True)).assign(
        call=[f"{number}" for number in line],
        turn=turn,
        call_began_s=line * 0.8,
        heard_s=line * 0.8 + 8 * (turn + 1),
    )
    duty = calls.duty_cycle(table)
    assert duty == pytest.approx(0.25)
    assert calls.agents(calls.mean_in_flight(table, window=(20, 300)), duty) == pytest.approx(10, rel=0.01)
