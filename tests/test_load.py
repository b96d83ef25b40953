"""The load maker against a server of known behaviour: who asks when, what is counted, and what is kept."""

import asyncio
import math
import os
import signal
import statistics
import time
from itertools import pairwise, takewhile

import pandas as pd
import pytest
from fakeserver import DONE, ROLE, chunk, serve, tool_call, usage_chunk

from helpers import calls, load, load_run, runs, settings, streaming, workload
from helpers.settings import CourseError, Server

# A call takes some tenths of a second: the callers speak a hundred times as fast.
FAST = workload.load().scaled(turns=0.4, pauses=0.02, pace=100, tools=0)
TOOLS = workload.load().scaled(turns=0.4, pauses=0.02, pace=100, tools=2.5)
QUIET = {"say": lambda line: None}


def answers(body):
    """A role, a pause, an answer in two pieces; a call of the tool where one is required."""
    end = [(0, usage_chunk(5)), (0, DONE)]
    if body.get("tool_choice") == "required":
        called = tool_call("find_order", '{"order": "1234"}')
        return [(0, ROLE), (0.01, called), (0, chunk("", finish="tool_calls")), *end]
    return [(0, ROLE), (0.01, chunk("Hello there, ")), (0.01, chunk("caller", finish="stop")), *end]


@pytest.fixture(scope="module")
def ran():
    """One closed run for the tests that only look: 5 live calls, half of the turns with a tool."""
    with serve(answers) as server:
        found = load.run(server.as_server(), TOOLS, live_calls=5, seconds=1.5, warmup_s=0.5, seed=7, **QUIET)
    found.bodies = server.bodies
    found.most_in_flight = server.most_in_flight
    return found


def by_call(requests):
    return [rows.sort_values("sent_s") for _, rows in requests.groupby("call")]


def test_every_request_is_in_the_table_and_finished(ran):
    assert ran.ended == "time"
    assert len(ran.requests) == len(ran.bodies) > 30
    assert set(ran.requests["outcome"]) == {"finished"}
    assert list(ran.requests["sent_s"]) == sorted(ran.requests["sent_s"])
    assert set(load_run.EXTRA_COLUMNS) <= set(ran.requests.columns)


def test_a_calls_requests_come_one_after_another_in_the_order_of_its_turns(ran):
    for rows in by_call(ran.requests):
        order = list(zip(rows["turn"], rows["step"], strict=True))
        assert order == sorted(order)
        assert list(rows["turn"].unique()) == list(range(rows["turn"].nunique()))
        assert (rows["sent_s"].to_numpy()[1:] >= rows["ended_s"].to_numpy()[:-1]).all()


def test_no_more_calls_live_than_lines(ran):
    spans = [
        (rows["call_began_s"].min(), rows["heard_s"].fillna(rows["ended_s"]).max())
        for rows in by_call(ran.requests)
    ]
    edges = sorted([(begun, 1) for begun, _ in spans] + [(heard, -1) for _, heard in spans])
    live = most = 0
    for _, step in edges:
        live += step
        most = max(most, live)
    assert most == 5
    assert ran.most_in_flight <= 5


def test_a_request_is_due_when_the_caller_has_listened_thought_and_spoken(ran):
    """From the answer heard to the next request due: exactly the pause and the words of the seeded call."""
    wanted = {call.id: call for call in TOOLS.calls(len(ran.requests), seed=7)}
    checked = 0
    for rows in by_call(ran.requests):
        turns = wanted[rows["call"].iloc[0].removeprefix(ran.about["mark"] + "-")].turns
        first = rows.iloc[0]
        assert first["due_s"] - first["call_began_s"] == pytest.approx(turns[0].think_s + turns[0].speak_s)
        for before, after in pairwise(rows.itertuples()):
            if after.step:
                assert after.due_s - before.ended_s == pytest.approx(turns[after.turn].tool_s)
            else:
                turn = turns[after.turn]
                assert after.due_s - before.heard_s == pytest.approx(turn.think_s + turn.speak_s)
                checked += 1
    assert checked > 10


def test_the_caller_listens_from_the_first_token_to_the_last_word(ran):
    spoken = ran.requests[~ran.requests["tool"]].dropna(subset="heard_s")
    listened = spoken["heard_s"] - spoken["first_answer_s"]
    least = TOOLS.listen_s("Hello there, caller")
    assert len(spoken)
    assert listened.min() >= least - 1e-9
    # Nothing can have been heard before it was there.
    assert (spoken["heard_s"] >= spoken["ended_s"]).all()


def test_a_turn_with_a_tool_is_two_requests_and_the_real_answers_are_fed_back(ran):
    steps = ran.requests.groupby(["call", "turn"])["step"].apply(list)
    tools = ran.requests.groupby(["call", "turn"])["tool"].any()
    assert tools.any()
    assert not tools.all()
    assert all(steps[turn] == ([0, 1] if tools[turn] else [0]) or steps[turn] == [0] for turn in steps.index)
    longest = max(ran.bodies, key=lambda body: len(body["messages"]))["messages"]
    assert [message["role"] for message in longest[:2]] == ["system", "user"]
    assert {"role": "assistant", "content": "Hello there, caller"} in longest
    with_tool = next(body["messages"] for body in ran.bodies if body["messages"][-1]["role"] == "tool")
    call, result = with_tool[-2:]
    assert call["tool_calls"][0]["function"] == {"name": "find_order", "arguments": '{"order": "1234"}'}
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert '"1234"' in result["content"]


def test_all_calls_share_the_system_prompt_and_each_begins_with_a_mark_of_its_own(ran):
    assert len({body["messages"][0]["content"] for body in ran.bodies}) == 1
    openings = {body["messages"][1]["content"].partition(".")[0] for body in ran.bodies}
    assert len(openings) == ran.requests["call"].nunique()
    assert all(opening.startswith(f"My number is {ran.about['mark']} 7-") for opening in openings)
    assert all(body["tools"] == ran.bodies[0]["tools"] for body in ran.bodies)


def test_half_a_call_of_a_tool_is_answered_all_the_same():
    def half(body):
        if body.get("tool_choice") == "required":
            return [(0, tool_call("find_order", '{"ord')), (0, chunk("", finish="length")), (0, DONE)]
        return answers(body)

    with serve(half) as server:
        found = load.run(server.as_server(), TOOLS, live_calls=3, seconds=0.7, warmup_s=0, **QUIET)
    assert set(found.requests["outcome"]) == {"finished"}
    assert (found.requests["step"] == 1).any()


def test_warm_up_is_marked_by_when_a_request_was_due(ran):
    warm = ran.requests["due_s"] < 0.5
    assert warm.any()
    assert (ran.requests["phase"] == warm.map({True: "warmup", False: "measured"})).all()
    assert len(ran.measured) == (~warm).sum()


def test_the_calls_begin_spread_over_half_of_the_warm_up(ran):
    first = (
        ran.requests[ran.requests["call"].str.contains(r"7-000[0-4]$")]
        .groupby("call")["call_began_s"]
        .first()
    )
    starts = sorted(first)
    assert len(starts) == 5
    assert all(line * 0.05 <= at_s <= (line + 1) * 0.05 for line, at_s in enumerate(starts))


def test_latency_counts_from_due_and_the_lateness_is_kept_apart(ran):
    rows = ran.requests.dropna(subset="ttfat_ms")
    assert (rows["wait_ms"] >= 0).all()
    assert (rows["sent_s"] - rows["due_s"]).to_numpy() * 1000 == pytest.approx(
        rows["wait_ms"].to_numpy(), abs=1e-3
    )
    assert rows["due_to_ttfat_ms"].to_numpy() == pytest.approx(
        (rows["wait_ms"] + rows["ttfat_ms"]).to_numpy()
    )
    assert ((rows["first_answer_s"] - rows["due_s"]) * 1000).to_numpy() == pytest.approx(
        rows["due_to_ttfat_ms"].to_numpy(), abs=1e-3
    )


def test_littles_law_holds_on_the_run_and_the_duty_cycle_agrees(ran):
    law = calls.little(ran.requests).iloc[0]
    assert law["difference"] == pytest.approx(0, abs=1e-9)
    assert 0 < calls.duty_cycle(ran.requests) < 1


def test_two_runs_with_one_seed_have_the_same_callers_but_other_marks():
    said, marks = [], []
    for _ in range(2):
        with serve(answers) as server:
            found = load.run(
                server.as_server(), FAST, live_calls=2, seconds=60, warmup_s=0, max_calls=4, seed=3, **QUIET
            )
        first = [body["messages"][1]["content"] for body in server.bodies if len(body["messages"]) == 2]
        marks.append(found.about["mark"])
        said.append({text.removeprefix(f"My number is {marks[-1]} ") for text in first})
    begun = {f"{call.id}. {call.turns[0].user}" for call in FAST.calls(4, seed=3)}
    assert begun <= said[0] & said[1]
    assert marks[0] != marks[1]


# --- caps and ends ------------------------------------------------------------------------------------------


def test_a_cap_on_requests_is_exact_and_nothing_in_flight_is_lost():
    with serve(answers) as server:
        found = load.run(
            server.as_server(), FAST, live_calls=4, seconds=60, warmup_s=0.3, max_requests=9, **QUIET
        )
    assert found.ended == "requests"
    assert len(found.measured) == 9
    assert set(found.requests["outcome"]) == {"finished"}
    assert len(server.bodies) == len(found.requests)


def test_a_cap_on_calls_ends_when_so_many_have_said_goodbye():
    with serve(answers) as server:
        found = load.run(server.as_server(), FAST, live_calls=3, seconds=60, warmup_s=0, max_calls=4, **QUIET)
    assert found.ended == "done"
    whole = {f"{found.about['mark']}-{call.id}": len(call.turns) for call in FAST.calls(50)}
    complete = sum(rows["turn"].nunique() == whole[call] for call, rows in found.requests.groupby("call"))
    assert complete >= 4


def test_a_burst_sends_all_first_requests_at_once():
    def slow(body):
        return [(0, ROLE), (0.6, chunk("Hi", finish="stop")), (0, DONE)]

    with serve(slow) as server:
        found = load.run(
            server.as_server(), FAST, live_calls=20, seconds=0.2, warmup_s=0, burst=True, **QUIET
        )
    assert server.most_in_flight == 20
    assert found.requests["due_s"].max() == 0


def test_answers_still_streaming_at_the_end_are_waited_for():
    def slow(body):
        return [(0, ROLE), (0.4, chunk("Hi", finish="stop")), (0, DONE)]

    with serve(slow) as server:
        found = load.run(server.as_server(), FAST, live_calls=3, seconds=0.3, warmup_s=0, **QUIET)
    assert set(found.requests["outcome"]) == {"finished"}
    assert found.requests["ended_s"].max() > 0.3
    assert found.requests["due_s"].max() <= 0.3


def test_a_stop_in_a_script_keeps_what_was_measured():
    def stops(body):
        if len(server.bodies) == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return answers(body)

    with serve(stops) as server:
        found = load.run(server.as_server(), FAST, live_calls=4, seconds=60, warmup_s=0, **QUIET)
    assert found.ended == "stopped by you"
    assert len(found.requests) >= 12
    assert (found.requests["outcome"] == "finished").sum() >= 8
    assert found.requests["outcome"].isin(load_run.OUTCOMES).all()


def test_the_stop_button_in_a_notebook_keeps_what_was_measured():
    """There an event loop runs already, and the interrupt is raised in the thread that waits."""

    def stops(body):
        if len(server.bodies) == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return answers(body)

    async def cell():
        return load.run(server.as_server(), FAST, live_calls=4, seconds=60, warmup_s=0, **QUIET)

    loop = asyncio.new_event_loop()
    try:
        with serve(stops) as server:
            found = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert found.ended == "stopped by you"
    assert (found.requests["outcome"] == "finished").sum() >= 8


def test_a_cap_on_requests_in_flight_shows_what_it_hides():
    def slow(body):
        return [(0, ROLE), (0.1, chunk("Hi", finish="stop")), (0, DONE)]

    with serve(slow) as server:
        found = load.run(
            server.as_server(),
            FAST,
            live_calls=8,
            seconds=0.8,
            warmup_s=0,
            burst=True,
            max_in_flight=2,
            **QUIET,
        )
    assert server.most_in_flight == 2
    assert found.requests["wait_ms"].max() > 200  # the last of eight waits for three pairs before it
    assert found.requests["ttfat_ms"].median() < found.requests["due_to_ttfat_ms"].median()
    assert set(found.requests["outcome"]) == {"finished"}
    assert "sent requests late" not in found.why_not


# --- open load ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_arrivals_are_a_poisson_process(seed):
    times = list(takewhile(lambda at_s: at_s < 6000, load.arrivals_s(60, seed=seed)))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == pytest.approx(6000, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.06)
    counts = (
        pd.Series(1, index=pd.Series(times) // 10).groupby(level=0).sum().reindex(range(600), fill_value=0)
    )
    assert counts.var() == pytest.approx(counts.mean(), rel=0.2)
    assert times[:50] == [at_s for at_s, _ in zip(load.arrivals_s(60, seed=seed), range(50), strict=False)]


def test_open_calls_begin_when_they_arrive_however_slow_the_server_is():
    def slow(body):
        return [(0, ROLE), (0.5, chunk("Hi", finish="stop")), (0, DONE)]

    with serve(slow) as server:
        found = load.run(
            server.as_server(), FAST, calls_per_minute=1200, seconds=0.8, warmup_s=0, seed=5, **QUIET
        )
    begun = found.requests.groupby("call")["call_began_s"].first().sort_values().to_numpy()
    assert begun == pytest.approx(
        [at_s for at_s, _ in zip(load.arrivals_s(1200, seed=5), begun, strict=False)], abs=1e-6
    )
    assert found.requests["live_calls"].isna().all()
    assert set(found.requests["calls_per_minute"]) == {1200}
    assert server.most_in_flight > 5
    assert found.level() == "1200 calls a minute"


# --- can it be trusted --------------------------------------------------------------------------------------


def test_a_client_that_is_too_slow_is_not_trusted_and_its_lateness_counts():
    def dawdles(timeline):
        time.sleep(0.1)  # in the client's own event loop

    streaming.on_timeline.append(dawdles)
    try:
        with serve(answers) as server:
            found = load.run(server.as_server(), FAST, live_calls=6, seconds=1.0, warmup_s=0, **QUIET)
    finally:
        streaming.on_timeline.remove(dawdles)
    assert not found.trusted
    assert "This client itself" in found.why_not
    assert found.why_not in found.sentence()
    assert found.lag["lag_ms"].max() > 50
    late = found.requests[found.requests["wait_ms"] > 50]
    assert len(late)
    assert (late["due_to_ttfat_ms"] > 50 + late["ttfat_ms"]).all()


def test_doubt_is_about_the_measured_phase_and_the_p95():
    server = Server("http://127.0.0.1:1/v1", "m")
    rows = pd.DataFrame(
        {"phase": ["warmup"] + ["measured"] * 40, "due_s": range(41), "wait_ms": [900.0] + [1.0] * 40}
    )
    calm = pd.DataFrame({"at_s": range(41), "lag_ms": [500.0] + [1.0] * 40})
    assert load_run.doubt(rows, calm, server) == ""
    rare = calm.assign(lag_ms=[0.0, 500.0] + [1.0] * 39)
    assert load_run.doubt(rows, rare, server) == ""
    often = calm.assign(lag_ms=[0.0] + [500.0] * 5 + [1.0] * 35)
    assert "500 ms" in load_run.doubt(rows, often, server)
    assert "sent requests late" in load_run.doubt(rows.assign(wait_ms=100.0), calm, server)
    assert "No request" in load_run.doubt(rows.iloc[:1], calm, server)


def test_a_replayed_server_is_not_trusted():
    with serve(answers) as server:
        replay = server.as_server(origin="recorded")
        found = load.run(replay, FAST, live_calls=2, seconds=0.3, warmup_s=0, **QUIET)
    assert not found.trusted
    assert "replays" in found.why_not
    assert set(found.requests["origin"]) == {"recorded"}


# --- what is said, and kept ---------------------------------------------------------------------------------


def test_progress_is_told_while_it_runs():
    lines = []
    with serve(answers) as server:
        load.run(server.as_server(), FAST, live_calls=2, seconds=1.2, warmup_s=0, say=lines.append)
    assert len(lines) >= 2
    assert "2 live calls" in lines[0]
    assert "TTFAT" in lines[0]
    assert lines[-1].endswith("Ended: time\n")


def test_a_say_that_fails_does_not_end_the_run():
    def broken(line):
        raise ValueError("no screen")

    with serve(answers) as server:
        found = load.run(server.as_server(), FAST, live_calls=2, seconds=0.8, warmup_s=0, say=broken)
    assert found.ended == "time"
    assert (found.lag["at_s"] > 0.7).any()


def test_save_load_and_compare(ran):
    first, second = ran.save("07-test"), ran.save("07-test")
    assert first != second
    assert {first, second} <= set(load.names("07-test"))
    again = load.load(first)
    assert (again.trusted, again.why_not, again.ended) == (ran.trusted, ran.why_not, ran.ended)
    assert again.about["seed"] == 7
    assert again.about["parameters"]["tool_share"] == TOOLS.value("tool_share")
    assert again.about["conditions"]["server"]["name"] == "fake server"
    assert again.sentence() == ran.sentence()
    for name in ("due_s", "due_to_ttfat_ms", "heard_s", "turn"):
        assert again.requests[name].to_numpy() == pytest.approx(ran.requests[name].to_numpy(), nan_ok=True)
    for name in ("call", "phase", "outcome", "tool"):
        assert list(again.requests[name]) == list(ran.requests[name])
    assert len(again.lag) == len(ran.lag)
    assert list(again.pages.columns) == list(ran.pages.columns)
    both = load.compare(first, second)
    assert list(both["run"]) == [first, second]
    assert list(both["finished"]) == [len(ran.measured)] * 2
    assert both["ttfat_p95_ms"].iloc[0] >= both["ttfat_p50_ms"].iloc[0] > 10
    assert set(both["origin"]) == {"measured"}
    with pytest.raises(CourseError, match="saved already"):
        again.save("07-test")


def test_a_request_without_an_answer_counts_as_too_slow_in_a_comparison(ran):
    rows = ran.requests.copy()
    rows["due_to_ttfat_ms"] = math.nan
    name = load_run.LoadRun(rows, ran.lag, ran.pages, ran.about, True, "", "time", ran.server).save("07-none")
    assert load.compare(name)["ttfat_p50_ms"].iloc[0] == math.inf


def test_what_is_no_load_says_so(ran):
    with pytest.raises(CourseError, match="no run named"):
        load.load("07-nobody")
    ran.save("07-whole")
    name = ran.save("07-damaged")
    path = load_run.WORKSPACE / "runs" / f"{name}.load.json"
    path.write_text("{}")
    with pytest.raises(CourseError, match="damaged"):
        load.load(name)
    with pytest.raises(CourseError, match="damaged"):
        load.compare(name)
    with pytest.warns(UserWarning, match=name):
        assert name not in list(load.compare()["run"])
    path.unlink()
    with pytest.raises(CourseError, match="no load"):
        load.load(name)
    assert name not in load.names()


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"live_calls": 3, "calls_per_minute": 5},
        {"live_calls": 0},
        {"calls_per_minute": -1},
        {"live_calls": 1, "seconds": 0},
        {"live_calls": 1, "warmup_s": -1},
    ],
)
def test_what_would_make_no_load_is_refused(wrong):
    with pytest.raises(CourseError):
        load.run(Server("http://127.0.0.1:1/v1", "m"), FAST, **({"seconds": 1} | wrong))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"seconds": None}, "seconds=None"),
        ({"seconds": math.inf}, "seconds=inf"),
        ({"warmup_s": "5"}, "warmup_s='5'"),
        ({"warmup_s": math.nan}, "warmup_s=nan"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"max_in_flight": 0}, "max_in_flight=0"),
        ({"max_in_flight": -2}, "max_in_flight=-2"),
        ({"max_calls": 2.5}, "max_calls=2.5"),
        ({"max_requests": "all"}, "max_requests='all'"),
        ({"live_calls": None, "calls_per_minute": "20"}, "calls_per_minute='20'"),
        ({"live_calls": 1_000_000}, "live_calls=1,000,000"),
        ({"server": "http://127.0.0.1:9/v1"}, "is no server"),
        ({"workload": "support-call"}, "is no kind of call"),
    ],
)
def test_an_argument_that_makes_no_load_is_named(wrong, named):
    given = {"server": Server("http://127.0.0.1:9/v1", "m"), "workload": FAST, "live_calls": 2, "seconds": 1}
    given |= wrong
    with pytest.raises(CourseError, match=named):
        load.run(given.pop("server"), given.pop("workload"), **given)


def test_nothing_saved_yet_is_a_table_with_its_columns_and_a_word_on_how_to_save(
    tmp_path, monkeypatch, capsys
):
    for module in (runs, load_run, settings):
        monkeypatch.setattr(module, "WORKSPACE", tmp_path)
    table = load.compare()
    assert list(table.columns) == list(load_run.COMPARED)
    assert table.empty
    assert "first.save('07-first')" in capsys.readouterr().out


def test_the_columns_of_a_comparison_are_those_it_is_said_to_have(ran):
    assert list(load.compare(ran.save("07-columns")).columns) == list(load_run.COMPARED)


@pytest.mark.parametrize("lines", [2.5, "4", True, math.nan, math.inf, 0, -1])
def test_what_is_no_number_of_lines_is_refused(lines):
    with pytest.raises(CourseError, match="live_calls="):
        load.run(Server("http://127.0.0.1:9/v1", "m"), FAST, live_calls=lines, seconds=1)
