"""The server that replays recorded runs: which recording, when, and the pages in between."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil
import pytest
from fakeserver import chunk, tool_call, usage_chunk
from hypothesis import given
from hypothesis import strategies as st

from helpers import api, latency, prompts, recorded, replay
from helpers.run_file import Page, Run, load, save
from helpers.settings import REPO, Server
from helpers.stream_errors import StreamError, about_status
from helpers.streaming import Event, Timeline, ask, ask_many, chat_request

TINY = Path(__file__).parent / "data" / "runs"
MS = 1_000_000


# --- recordings to replay ---------------------------------------------------------------------------------


def payload(wire: bytes) -> str:
    return wire.decode().removeprefix("data: ").strip()


def reply(prompt, words, *, sent_ms=0, first_ms=20, gap_ms=5, events=None, error=None, status=200, **options):
    """One recorded request: a role chunk with the first word, the other words, then the end at once."""
    request = {"model": "tiny"} | chat_request(prompt, **options)
    at = [sent_ms + first_ms + gap_ms * i for i in range(len(words))]
    if events is None:
        events = [(at[0], chunk("", role="assistant"))] if words else []
        events += [(t, chunk(word)) for t, word in zip(at[:-1], words[:-1], strict=True)]
        events += (
            [(at[-1], chunk(words[-1], finish="stop")), (at[-1], usage_chunk(len(words)))] if words else []
        )
        events += [(at[-1], b"data: [DONE]")] if words else []
    made = tuple(Event(round(t * MS), payload(wire)) for t, wire in events)
    ended = made[-1].at_ns if made else (sent_ms + first_ms) * MS
    return Timeline(request, sent_ms * MS, made, ended, status, bool(made), error, "Tiny", "recorded")


def a_run(*timelines, pages=(), lesson="05_sample", model="tiny"):
    about = {
        "lesson": lesson,
        "date": "2026-12-01",
        "server": {"name": "Tiny", "model": model, "version": "9"},
    }
    return Run(about, tuple(timelines), tuple(Page(path, text, round(at * MS)) for path, text, at in pages))


@contextmanager
def replaying(*runs, folder=None, lessons=()):
    """Run the server in a process of its own, as the engine does; gives the Server."""
    for run in runs:
        save(run, folder / f"{run.conditions['lesson']}.jsonl.gz")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "helpers.replay", "--port", str(port), "--runs", str(folder)]
    words += [word for lesson in lessons for word in ("--lesson", lesson)]
    process = subprocess.Popen(words, cwd=REPO, stdout=subprocess.DEVNULL)
    model = "smollm2-135m-instruct" if folder in (TINY, recorded.RUNS) else "tiny"
    server = Server(f"http://127.0.0.1:{port}/v1", model, None, "recorded", "Tiny, recorded")
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                api.page(server, "/health")
                break
            except api.Refused:
                assert process.poll() is None, "the server ended before it was ready"
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def post(server, body, path="/chat/completions"):
    """Status, headers and JSON (or text) of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.base_url + path, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as response:
            status, headers, text = response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        status, headers, text = error.code, error.headers, error.read().decode()
    return status, headers, json.loads(text) if text.startswith("{") else text


def answer(timeline):
    assert timeline.error is None, timeline.error
    return latency.measure(timeline).answer


# --- which recording --------------------------------------------------------------------------------------


def chosen(session, prompt, **options):
    """The words of the recording that the session chooses, and whether it is exact."""
    recording, exact = session.choose({"model": "any"} | chat_request(prompt, **options))
    return latency.measure(recording.timeline).answer, exact


def test_marks_of_new_calls_do_not_matter_but_everything_else_does():
    like = replay.likeness
    one = like(chat_request("[call 00aa11] Hello", model="a"))
    assert one.whole == like(chat_request("[call 99ff99] Hello", model="b")).whole
    assert one.prompt != like(chat_request("[call 99ff99] Hello")).prompt
    for other in ("[call 00aa1] Hello", "[call 00AA11] Hello", "[call 00aa11] Hallo", "Hello"):
        assert one.whole != like(chat_request(other)).whole
    assert one.whole != like(chat_request("[call 00aa11] Hello", max_tokens=5)).whole
    assert one.whole != like(chat_request("[call 00aa11] Hello", thinking=True)).whole


def test_first_and_repeated_prompts_have_their_own_recordings():
    run = a_run(
        reply("[call 000001] long", ["cold"], sent_ms=0),
        reply("[call 000001] long", ["cached"], sent_ms=100),
        reply("[call 000002] long", ["cold2"], sent_ms=200),
        reply("[call 000002] long", ["cached2"], sent_ms=300),
    )
    session = replay.Session({"a": run})
    said = [
        chosen(session, f"[call {mark}] long") for mark in ("aaaaaa", "aaaaaa", "aaaaaa", "bbbbbb", "cccccc")
    ]
    assert said == [
        ("cold", True),
        ("cached", True),
        ("cached2", True),
        ("cold2", True),
        ("cold", True),
    ]
    two = replay.Session({"a": run})
    assert chosen(two, "[call aaaaaa] long") == ("cold", True), "another session begins anew"


def test_the_same_request_comes_before_a_similar_one_of_the_right_rank():
    run = a_run(
        reply("once", ["first time"]),
        reply("once", ["others' words"], sent_ms=1, max_tokens=9),
        reply("[call 000001] never repeated", ["cold"], sent_ms=2),
        reply("often", ["of another kind"], sent_ms=3, max_tokens=9),
        reply("often", ["one"], sent_ms=4),
        reply("often", ["two"], sent_ms=5),
    )
    session = replay.Session({"a": run})
    assert [chosen(session, "once") for _ in range(3)] == [("first time", True)] * 3
    assert [chosen(session, "[call aaaaaa] never repeated") for _ in range(2)] == [("cold", True)] * 2
    assert chosen(session, "often") == ("one", True), "only repetitions were recorded"
    assert chosen(session, "often") == ("two", True)
    two = replay.Session({"a": run})
    assert chosen(two, "once", max_tokens=9) == ("others' words", True)


def test_what_is_refused_is_refused_every_time():
    refused = reply("too long", [], status=400, error=StreamError("http", "no"))
    session = replay.Session({"a": a_run(refused, reply("too long", ["ok"], sent_ms=1, max_tokens=9))})
    for _ in range(3):
        recording, exact = session.choose(chat_request("too long"))
        assert (recording.timeline, exact) == (refused, True)


def test_several_recordings_are_used_in_turn_those_of_the_run_in_use_first():
    runs = {
        "a": a_run(reply("[call 000001] hi", ["a1"]), reply("[call 000002] hi", ["a2"], sent_ms=50)),
        "b": a_run(reply("only b", ["b0"]), reply("[call 000001] hi", ["b1"], sent_ms=50)),
    }
    session = replay.Session(runs)
    marks = iter(f"[call {i:06x}] hi" for i in range(99))
    assert [chosen(session, next(marks))[0] for _ in range(3)] == ["a1", "a2", "a1"]
    assert chosen(session, "only b") == ("b0", True)
    assert [chosen(session, next(marks))[0] for _ in range(2)] == ["b1", "b1"]


def test_the_nearest_recording():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    session = replay.Session(
        {
            "a": a_run(
                reply("[call 000001] short", ["plain short"]),
                reply("long " * 100, ["plain long"], sent_ms=1),
                reply("long " * 100, ["plain long cached"], sent_ms=2),
                reply("think", ["thought"], sent_ms=3, thinking=True),
                reply("tool", ["called"], sent_ms=4, tools=tools),
                reply("shape", ["shaped"], sent_ms=5, structured_outputs={"choice": ["a"]}),
                reply("[call 000002] short", ["short, more tokens"], sent_ms=6, max_tokens=900),
                reply("broken", [], sent_ms=7, status=400, error=StreamError("http", "no")),
            )
        }
    )
    assert chosen(session, "other") == ("plain short", False)
    assert chosen(session, "other " * 80) == ("plain long", False)
    assert chosen(session, "other " * 80) == ("plain long cached", False)
    assert chosen(session, "other " * 80, thinking=True) == ("thought", False)
    assert chosen(session, "broke", tools=tools) == ("called", False)
    assert chosen(session, "other", response_format={"type": "json_object"}) == ("shaped", False)
    assert chosen(session, "[call 000003] short", max_tokens=800) == ("short, more tokens", False)


def test_a_reply_that_ran_past_its_end_answers_only_who_asked_for_that():
    past = {"ignore_eos": True}
    budget = {"thinking": True, "thinking_token_budget": 8}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    runs = {
        "a": a_run(
            reply("other", ["cold past"], **past),
            reply("other", ["cached past"], sent_ms=1, **past),
            reply("other", ["thought past"], sent_ms=2, **budget, **past),
            reply("other", ["called past"], sent_ms=3, tools=tools, **past),
            reply("quite another, and longer" * 9, ["plain"], sent_ms=4),
            reply("quite another, and longer" * 9, ["at least"], sent_ms=5, min_tokens=5),
        )
    }
    session = replay.Session(runs)
    assert [chosen(session, "other") for _ in range(2)] == [("plain", False)] * 2
    assert chosen(session, "other", thinking=True) == ("plain", False)
    assert chosen(session, "other", tools=tools) == ("plain", False)
    assert chosen(session, "other", ignore_eos=False, min_tokens=3) == ("at least", False)
    assert chosen(session, "other", min_tokens=0) == ("plain", False)
    assert chosen(session, "other", max_tokens=99, **past) == ("cached past", False)
    assert chosen(session, "other", max_tokens=99, **budget, **past) == ("thought past", False)
    only = replay.Session({"a": a_run(reply("other", ["past"], **past))})
    assert chosen(only, "other") == ("past", False), "if there is nothing else"


def test_a_thinking_budget_is_told_from_none_but_thinking_counts_more():
    session = replay.Session(
        {
            "a": a_run(
                reply("plain", ["plain"]),
                reply("one", ["budget"], sent_ms=1, thinking=True, thinking_token_budget=8),
            )
        }
    )
    assert chosen(session, "plain", thinking=True) == ("budget", False)
    more = replay.Session(
        {
            "a": a_run(
                *(r.timeline for r in session.recordings),
                reply("a much longer one", ["free"], sent_ms=2, thinking=True),
            )
        }
    )
    assert chosen(more, "one", thinking=True) == ("free", False)
    assert chosen(more, "a much longer one", thinking=True, thinking_token_budget=0) == ("budget", False)


def test_what_broke_off_outside_the_server_is_not_replayed():
    lost = reply("hi", [], status=None, error=StreamError("connection", "refused"))
    cut = reply("hi", ["half"], error=StreamError("connection", "cut"))
    assert replay.Session({"a": a_run(lost, cut)}).choose(chat_request("hi")) is None


# --- what is sent -----------------------------------------------------------------------------------------


@given(limit=st.integers(1, 12))
def test_a_smaller_limit_ends_the_answer_earlier(limit):
    words = [f"w{i} " for i in range(8)]
    whole = reply("hi", words)
    short = replay.shortened(whole, limit)
    if limit >= 8:
        assert short is whole
        return
    measured = latency.measure(short)
    assert measured.answer == "".join(words[:limit])
    assert (measured.finish_reason, measured.completion_tokens) == ("length", limit)
    assert measured.prompt_tokens == latency.measure(whole).prompt_tokens
    assert measured.ttft_ms == latency.measure(whole).ttft_ms
    assert short.events[-1].data == "[DONE]"


def test_events_that_arrived_together_are_written_together():
    timeline = reply("hi", ["a", "b"], sent_ms=7)
    written = replay.pieces(timeline, usage=True)
    assert [at for at, _ in written] == [20 * MS, 25 * MS]
    assert [data.count(b"data: ") for _, data in written] == [2, 3]
    assert b"".join(data for _, data in written).decode() == "".join(
        f"data: {event.data}\n\n" for event in timeline.events
    )
    without = replay.pieces(timeline, usage=False)
    assert [data.count(b"data: ") for _, data in without] == [2, 2]
    assert b'"choices": []' not in without[-1][1]


def test_a_stream_becomes_one_answer():
    events = [(1, chunk("", role="assistant")), (2, chunk(reasoning="hm ")), (3, chunk(reasoning="ok"))]
    events += [
        (4, tool_call("book", '{"peo')),
        (5, tool_call(None, 'ple": 2}')),
        (5, chunk(finish="tool_calls")),
    ]
    events += [(5, usage_chunk(9)), (5, b"data: [DONE]")]
    whole = replay.assembled(reply("hi", [], events=events))
    (choice,) = whole["choices"]
    assert choice["message"]["reasoning"] == "hm ok"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "book", "arguments": '{"people": 2}'}
    assert choice["finish_reason"] == "tool_calls"
    assert whole["usage"]["completion_tokens"] == 9


# --- pages ------------------------------------------------------------------------------------------------


def histogram(count, running=0):
    return f'# TYPE ttft histogram\nttft_bucket{{le="+Inf"}} {count}\nttft_count {count}\nrunning {running}\n'


def value(text, sample="ttft_count"):
    return float(next(line for line in text.splitlines() if line.startswith(sample)).rpartition(" ")[2])


BATCHES = a_run(
    reply("warm-up", ["hi"], sent_ms=0),
    *(reply(f"[call 00000{i}] batch", ["hi"], sent_ms=200 + i) for i in range(4)),
    reply("after", ["hi"], sent_ms=500),
    pages=[("/metrics", histogram(4), 100), ("/metrics", histogram(8), 400), ("/metrics", histogram(9), 600)],
)


def ask_session(session, prompt):
    assert session.choose(chat_request(prompt))[1]


def batch_difference(session, marks, count=4):
    """What a lesson does: read, send a batch, read again."""
    before = value(session.page("/metrics"))
    for _ in range(count):
        ask_session(session, f"[call {next(marks):06x}] batch")
    return value(session.page("/metrics")) - before


def test_pages_go_with_the_requests_also_when_a_cell_is_run_again():
    session = replay.Session({"a": BATCHES})
    marks = iter(range(99))
    ask_session(session, "warm-up")
    assert value(session.page("/metrics")) == 4
    assert value(session.page("/metrics")) == 4
    assert batch_difference(session, marks) == 4
    assert batch_difference(session, marks) == 4, "the same cell again"
    seen = value(session.page("/metrics"))
    assert batch_difference(session, marks, count=2) == 4, "a part of the batch: the nearest page there is"
    ask_session(session, "after")
    assert value(session.page("/metrics")) > seen, "counters never go back"
    assert value(session.page("/metrics"), "running") == 0, "what is no counter stays as recorded"


def test_the_whole_lesson_a_second_time_and_the_last_page_repeats():
    session = replay.Session({"a": BATCHES})
    marks = iter(range(99))
    readings = []
    for _ in range(3):
        ask_session(session, "warm-up")
        readings.append(value(session.page("/metrics")))
        assert batch_difference(session, marks) == 4
        ask_session(session, "after")
        readings += [value(session.page("/metrics")), value(session.page("/metrics"))]
        assert readings[-1] == readings[-2]
    assert readings == sorted(readings)


def test_without_a_request_the_first_page_comes_and_each_session_has_its_own():
    one, two = replay.Session({"a": BATCHES}), replay.Session({"a": BATCHES})
    assert value(one.page("/metrics")) == 4
    ask_session(one, "after")
    assert (value(one.page("/metrics")), value(two.page("/metrics"))) == (9, 4)
    assert one.page("/elsewhere") is None


def test_a_reading_among_requests_in_flight_is_no_second_run():
    session = replay.Session({"a": BATCHES})
    ask_session(session, "warm-up")
    session.page("/metrics")
    for i in range(4):
        ask_session(session, f"[call {i:06x}] batch")
        session.in_flight = 1
        assert value(session.page("/metrics")) == 8
    session.in_flight = 0
    assert value(session.page("/metrics")) == 8


def test_pages_come_from_the_run_that_answers():
    other = a_run(reply("b", ["b"]), pages=[("/metrics", histogram(100), 50)])
    session = replay.Session({"a": BATCHES, "b": other})
    assert value(session.page("/metrics")) == 4
    ask_session(session, "b")
    assert value(session.page("/metrics")) == 100
    ask_session(session, "after")
    assert value(session.page("/metrics")) == 9


# --- the runs that come with the course -------------------------------------------------------------------


def test_the_first_requests_of_the_lessons_in_notebook_order():
    hello = prompts.conversation(prompts.HELLO)
    # As the openai package sends it in lesson 00: the same request, other order, and nobody recorded it.
    by_openai = {
        "messages": hello,
        "model": "smollm2-135m-instruct",
        "max_tokens": 40,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    lesson_00 = chat_request(hello, max_tokens=40)
    lesson_05 = chat_request(hello, max_tokens=24)
    there_are = [t for name in recorded.runs() for t in load(recorded.RUNS / f"{name}.jsonl.gz").timelines]
    with replaying(folder=recorded.RUNS) as server:
        for body in (by_openai, lesson_00, lesson_00, lesson_05, lesson_05, lesson_05):
            whole = replay.likeness(body).whole
            of_this = [t for t in there_are if replay.likeness(t.request).whole == whole]
            status, headers, text = post(server, body)
            assert (status, headers["X-Recorded-Match"]) == (200, "exact")
            assert "<|im_end|>" not in text
            then = next(t for t in of_this if text == "".join(f"data: {e.data}\n\n" for e in t.events))
            now = ask(server, body)
            assert latency.measure(now).finish_reason == latency.measure(then).finish_reason
            assert "<|im_end|>" not in answer(now)


def test_new_calls_are_cold_and_their_repetitions_cached():
    runs = {name: load(recorded.RUNS / f"{name}.jsonl.gz") for name in recorded.runs()}
    kinds: dict[str, set[bool]] = {}
    for recording in replay.Session(runs).recordings:
        kinds.setdefault(recording.like.whole, set()).add(recording.again)
    session = replay.Session(runs)
    # Those with a mark that makes each call new; a lesson may also have asked the very same thing twice.
    both = [
        whole
        for whole, ranks in kinds.items()
        if len(ranks) == 2 and replay.NONCE.search(json.dumps(session.exact[whole][0].timeline.request))
    ]
    assert both
    for number, whole in enumerate(both):
        asked = json.dumps(session.exact[whole][0].timeline.request)
        for mark in range(3):
            new = json.loads(replay.NONCE.sub(f"[call {number * 16 + mark:06x}]", asked))
            assert [session.choose(new)[0].again for _ in range(3)] == [False, True, True]


# --- the server -------------------------------------------------------------------------------------------


def test_a_real_run_is_replayed_at_its_own_speed():
    run = load(TINY / "tiny.jsonl.gz")
    different = {replay.likeness(t.request).whole: t for t in reversed(run.timelines)}
    cached = next(t for t in run.timelines if t.request == run.timelines[5].request and t != run.timelines[5])
    with replaying(folder=TINY) as server:
        assert api.models(server) == ["smollm2-135m-instruct"]
        assert json.loads(api.page(server, "/version"))["version"] == run.conditions["server"]["version"]
        for then in (*sorted(different.values(), key=lambda t: t.sent_ns), cached):
            now = ask(server, then.request)
            assert now.error is None
            assert now.origin == "recorded"
            assert [event.data for event in now.events] == [event.data for event in then.events]
            late_ms = []
            for new, old in zip(now.events, then.events, strict=True):
                due_ns = old.at_ns - then.sent_ns - then.connect_ns
                late_ms.append((new.at_ns - now.sent_ns - due_ns) / 1e6)
            assert min(late_ms) >= 0, "nothing comes before its time"
            length_ms = (then.ended_ns - then.sent_ns) / 1e6
            assert median(late_ms) < max(length_ms, 250), "nor does the delay grow with the stream"
            assert latency.measure(now).answer == latency.measure(then).answer


def test_sixteen_at_once(tmp_path):
    timelines = [reply(f"question {i}", [f"{i}.", "a", "b"], first_ms=400, gap_ms=50) for i in range(16)]
    with replaying(a_run(*timelines), folder=tmp_path) as server:
        began = time.perf_counter_ns()
        replies = ask_many(server, [t.request for t in timelines], concurrency=16)
        took_ns = time.perf_counter_ns() - began
    assert [answer(one) for one in replies] == [f"{i}.ab" for i in range(16)]
    assert took_ns < sum(t.ended_ns - t.sent_ns for t in timelines), "they ran beside each other"


def test_answers_say_how_they_were_found(tmp_path):
    with replaying(a_run(reply("hello", ["one", "two", "three"])), folder=tmp_path) as server:
        request = {"model": "tiny"} | chat_request("hello")
        assert post(server, request)[1]["X-Recorded-Match"] == "exact"
        status, headers, body = post(server, {"model": "tiny", "messages": request["messages"]})
        assert (status, headers["X-Recorded-Match"]) == (200, "nearest")
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"]["content"] == "onetwothree"
        assert body["usage"]["completion_tokens"] == 3
        short = ask(server, "never recorded", max_tokens=2)
        assert answer(short) == "onetwo"
        assert latency.measure(short).completion_tokens == 2
        unstreamed = ask(server, chat_request("hello") | {"stream": False})
        assert (unstreamed.streamed, answer(unstreamed)) == (False, "onetwothree")


def test_refusals_come_in_openais_form(tmp_path):
    live = Server("http://127.0.0.1:9/v1", "tiny")
    said = about_status(live, 400, '{"error": {"message": "The prompt isn\'t short enough."}}')
    refused = reply("too long", [], status=400, error=StreamError("http", said))
    messages = [{"role": "user", "content": "hi"}]
    with replaying(a_run(reply("hello", ["one"]), refused), folder=tmp_path) as server:
        for body in (
            b"{",
            b"[]",
            {},
            {"messages": []},
            {"messages": ["hi"]},
            {"messages": messages, "max_tokens": 0},
            {"messages": messages, "stream": "yes"},
            {"messages": messages, "n": 2},
            {"messages": messages, "stream_options": 1},
        ):
            status, _, answered = post(server, body)
            assert status == 400, body
            assert answered["error"]["message"]
            assert answered["error"]["code"] == 400
        assert post(server, {"messages": messages, "model": "gpt"})[0] == 404
        assert post(server, {"prompt": "hi"}, "/completions")[0] == 404
        status, _, answered = post(server, refused.request)
        assert (status, answered["error"]["message"]) == (400, "The prompt isn't short enough.")
        assert ask(server, refused.request).error.kind == "http"
        with pytest.raises(api.Refused, match="404"):
            api.page(server, "/metrics")


def test_without_recordings_it_says_what_to_do(tmp_path):
    with replaying(folder=tmp_path) as server:
        status, _, answered = post(server, {"messages": [{"role": "user", "content": "hi"}]})
        assert status == 503
        assert "git status" in answered["error"]["message"]
        assert "PHONELLM_BASE_URL" in answered["error"]["message"]


def test_all_lessons_are_there_or_only_those_named(tmp_path):
    runs = [
        a_run(reply("from a", ["a"]), lesson="a"),
        a_run(reply("from b", ["b"]), lesson="b", model="tiny-b"),
    ]
    with replaying(*runs, folder=tmp_path) as server:
        assert [answer(ask(server, f"from {name}")) for name in "ab"] == ["a", "b"]
        assert api.models(server) == ["tiny", "tiny-b"]
    with replaying(folder=tmp_path, lessons=["a"]) as server:
        assert answer(ask(server, "from b")) == "a"
    words = [sys.executable, "-m", "helpers.replay", "--port", "1", "--runs", str(tmp_path), "--lesson", "c"]
    ended = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "c.jsonl.gz" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_two_sessions_see_the_same(tmp_path):
    prompts = ["warm-up", "[call abcdef] batch", "[call abcdef] batch", "after"]
    seen = []
    with replaying(BATCHES, folder=tmp_path) as one, replaying(folder=tmp_path) as two:
        for server in (one, two):
            pages = []
            for prompt in prompts:
                answer(ask(server, prompt))
                pages.append(api.page(server, "/metrics"))
            seen.append(pages)
    assert seen[0] == seen[1]
    assert [value(page) for page in seen[0]] == [4, 8, 8 + 4, 9 + 4]


def test_a_caller_who_hangs_up_leaves_the_server_well(tmp_path):
    slow = reply("slow", ["a"] * 40, first_ms=100, gap_ms=100)
    with replaying(a_run(slow, reply("quick", ["ok"], sent_ms=1)), folder=tmp_path) as server:
        assert ask(server, "slow", timeout_s=0.3).error.kind == "timeout"
        assert answer(ask(server, "quick")) == "ok"


def test_it_listens_on_this_machine_only(tmp_path):
    with replaying(a_run(reply("hello", ["one"])), folder=tmp_path) as server:
        port = urlsplit(server.base_url).port
        child = next(c for c in psutil.Process().children() if str(port) in c.cmdline())
        listening = [c.laddr.ip for c in child.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]
