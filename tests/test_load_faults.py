"""What goes wrong in mid-run ends in a partial result that says so: nothing raises, and nothing hangs."""

import socket
import threading
from contextlib import ExitStack
from random import Random

import pandas as pd
import pytest
from fakeserver import CUT, DONE, ROLE, Script, chunk, serve

from helpers import calls, load, load_loop, load_run, workload
from helpers.settings import Server

FAST = workload.load().scaled(turns=0.4, pauses=0.02, pace=100, tools=0)
GOOD = [(0, ROLE), (0.01, chunk("Hello there, ")), (0.01, chunk("caller", finish="stop")), (0, DONE)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The same rules with shorter waits."""
    monkeypatch.setattr(load_loop, "DRAIN_S", 0.3)
    monkeypatch.setattr(load, "REDIAL_S", 0.02)
    monkeypatch.setattr(load, "MOST_REDIAL_S", 0.05)


def run(server: Server, **changes) -> load_run.LoadRun:
    asked = {"live_calls": 5, "seconds": 0.5, "warmup_s": 0, "say": lambda line: None} | changes
    return load.run(server, FAST, **asked)


def outcomes(found) -> dict:
    """How many requests ended how. Every request ended in one of the three ways, whatever happened."""
    rows = found.requests
    count = rows["outcome"].value_counts()
    assert set(count.index) <= set(load_run.OUTCOMES)
    assert (rows["error"].notna() == (rows["outcome"] != "finished")).all()
    assert ((rows["error"] == "cut") == (rows["outcome"] == "cut")).all()
    assert (rows["ended_s"] >= rows["sent_s"]).all()
    return {name: int(count.get(name, 0)) for name in load_run.OUTCOMES}


def test_half_of_the_streams_are_cut():
    def script(body):
        odd = len(server.bodies) % 2
        return [(0, ROLE), (0.01, chunk("Hel")), (0.01, CUT)] if odd else GOOD

    with serve(script) as server:
        found = run(server.as_server())
    count = outcomes(found)
    assert found.ended == "time"
    assert sum(count.values()) == len(server.bodies)
    assert count["failed"] == sum(number % 2 for number in range(1, len(server.bodies) + 1))
    assert count["cut"] == 0
    failed = found.requests[found.requests["outcome"] == "failed"]
    assert set(failed["error"]) == {"connection"}
    # The first token had come: that is kept, and whether to count it is the reader's choice.
    assert failed["ttfat_ms"].notna().all()
    assert f"{count['failed']} failed" in found.sentence()


def test_a_caller_whose_request_failed_hangs_up():
    def script(body):
        second = len(body["messages"]) > 2
        return Script([], status=500) if second else GOOD

    with serve(script) as server:
        found = run(server.as_server())
    assert found.requests.groupby("call")["turn"].max().max() == 1
    assert found.requests.loc[found.requests["turn"] == 1, "error"].eq("http").all()
    assert found.requests["call"].nunique() > 5  # the line takes the next call


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        (Script([(0, b'{"error": "slow down"}')], status=429, headers={"Retry-After": "1"}), "http", "429"),
        (Script([(0, b'{"error": "oops"}')], status=500), "http", "500"),
        (Script([(0, b"data: not json\n\n")]), "stream", "JSON"),
        (Script([(0, ROLE), (0, CUT)]), "connection", "cut"),
    ],
)
def test_a_server_that_refuses_everything_ends_the_run(script, kind, says):
    with serve(lambda body: GOOD if len(server.bodies) <= 10 else script) as server:
        found = run(server.as_server(), seconds=60)
    count = outcomes(found)
    assert found.ended.startswith("server gone: the last 20 requests failed.")
    assert says in found.ended
    assert count["finished"] == 10
    assert count["failed"] >= load_loop.GIVE_UP
    assert set(found.requests["error"].dropna()) <= {kind, "cut"}


def test_refusals_now_and_then_do_not_end_it():
    def script(body):
        many = Script([], status=429, headers={"Retry-After": "1"})
        return many if len(server.bodies) % 3 == 0 else GOOD

    with serve(script) as server:
        found = run(server.as_server())
    assert found.ended == "time"
    assert outcomes(found)["failed"] == len(server.bodies) // 3
    assert found.requests["error_message"].dropna().str.contains("429").all()


def test_a_server_that_dies_in_mid_run():
    with ExitStack() as stack:
        dying = []

        def script(body):
            if len(server.bodies) == 15:
                dying.append(threading.Thread(target=stack.close))
                dying[0].start()
            return [(0, ROLE), (0.02, chunk("Hello")), (0.05, chunk(" you", finish="stop")), (0, DONE)]

        server = stack.enter_context(serve(script))
        found = run(server.as_server(), seconds=60)
        dying[0].join()
    count = outcomes(found)
    assert found.ended.startswith("server gone")
    assert count["finished"] >= 8
    assert count["failed"] + count["cut"] >= 1


def test_a_server_that_was_never_there():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        found = run(Server(address, "m"), seconds=60)
    assert found.ended.startswith("server gone: nothing listens")
    assert "refused" in found.ended
    assert outcomes(found)["finished"] == 0
    assert not found.trusted or len(found.measured)


def test_a_server_that_stalls_is_cut_at_the_end_and_not_left_out():
    def script(body):
        return GOOD if len(server.bodies) <= 8 else [(0, ROLE), (60, chunk("late", finish="stop"))]

    with serve(script) as server:
        found = run(server.as_server())
    count = outcomes(found)
    assert found.ended == "time"
    assert count == {"finished": 8, "failed": 0, "cut": len(server.bodies) - 8}
    assert 1 <= count["cut"] <= 5
    cut = found.requests[found.requests["outcome"] == "cut"]
    assert cut["ttfat_ms"].isna().all()
    assert cut["first_chunk_ms"].notna().all()  # what had come is kept
    assert (cut["ended_s"] >= 0.8).all()
    assert f"{count['cut']} cut" in found.sentence()


def test_an_answer_whose_first_token_came_before_the_cut_keeps_its_time():
    slow = [(0, ROLE), (0.05, chunk("Hello")), (60, chunk(" you", finish="stop"))]
    with serve(slow) as server:
        found = run(server.as_server())
    assert outcomes(found) == {"finished": 0, "failed": 0, "cut": len(server.bodies)}
    assert found.requests["ttfat_ms"].ge(40).all()


def test_a_server_that_stalls_before_the_headers_is_cut_too():
    with serve([(60, ROLE)]) as server:
        found = run(server.as_server())
    assert outcomes(found) == {"finished": 0, "failed": 0, "cut": len(server.bodies)}
    assert found.requests["ttfat_ms"].isna().all()


def test_a_request_that_takes_too_long_is_given_up_and_the_run_goes_on():
    def script(body):
        return [(60, ROLE)] if len(server.bodies) == 3 else GOOD

    with serve(script) as server:
        found = run(server.as_server(), timeout_s=1.0, seconds=1.3)
    count = outcomes(found)
    assert (count["failed"], count["cut"]) == (1, 0)
    assert found.requests.loc[found.requests["outcome"] == "failed", "error"].item() == "timeout"
    assert count["finished"] > 10


def test_open_load_on_a_server_that_refuses_ends_too():
    with serve(Script([], status=503)) as server:
        found = run(server.as_server(), live_calls=None, calls_per_minute=3000, seconds=60)
    assert found.ended.startswith("server gone")
    assert outcomes(found)["failed"] >= load_loop.GIVE_UP


def test_a_fault_of_the_load_maker_is_said_and_the_rest_kept(monkeypatch):
    with serve(GOOD) as server:

        def breaks(self, answer):
            if len(server.bodies) >= 6:
                raise RuntimeError("a bug")
            return 0.01

        monkeypatch.setattr(workload.Workload, "listen_s", breaks)
        found = run(server.as_server(), seconds=60)
    assert "a bug" in found.ended
    assert outcomes(found)["finished"] >= 5


@pytest.mark.parametrize("seed", [1, 2])
def test_every_request_sent_is_accounted_for_whatever_became_of_it(seed):
    chance, given = Random(seed), []
    fates = {
        "finished": GOOD,
        "failed": Script([], status=500),
        "failed ": [(0, ROLE), (0.01, CUT)],
        "failed  ": [(0, ROLE), (0, chunk("no end")), (0, DONE)][:2],
        "cut": [(0, ROLE), (60, DONE)],
    }

    def script(body):
        given.append(chance.choices(list(fates), weights=[10, 2, 2, 2, 1])[0])
        return fates[given[-1]]

    with serve(script) as server:
        found = run(server.as_server(), live_calls=8)
    count = outcomes(found)
    assert sum(count.values()) == len(given)
    assert count == {name: sum(fate.strip() == name for fate in given) for name in load_run.OUTCOMES}
    assert calls.little(found.requests)["difference"].item() == pytest.approx(0, abs=1e-9)
    for _, rows in found.requests.groupby("call"):
        rows = rows.sort_values("sent_s")
        assert (rows["sent_s"].to_numpy()[1:] >= rows["ended_s"].to_numpy()[:-1]).all()
        assert (rows["outcome"].iloc[:-1] == "finished").all()  # after a failure the caller has hung up


def test_a_partial_run_can_be_saved_and_compared():
    with serve(lambda body: GOOD if len(server.bodies) <= 5 else Script([], status=500)) as server:
        found = run(server.as_server(), seconds=60)
    again = load.load(found.save("07-partial"))
    assert again.ended == found.ended
    pd.testing.assert_series_equal(again.requests["outcome"], found.requests["outcome"], check_dtype=False)
