"""From bytes to timelines: SSE parsing, time stamps, errors, keys, and running in scripts and notebooks."""

import asyncio
import dataclasses
import gc
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import aiohttp
import pytest
from fakeserver import CUT, DONE, PING, ROLE, Script, chunk, event, serve, usage_chunk
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import streaming
from helpers.settings import REPO, CourseError, Server
from helpers.stream_errors import explain
from helpers.streaming import Event, StreamError, Timeline, ask, ask_many, chat_request, parse_events, stream

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")

KEY = "sk-very-secret-0123456789"
GOOD = [(0, ROLE), (0.01, chunk("Hel")), (0.01, chunk("lo", finish="stop")), (0, usage_chunk(2)), (0, DONE)]


@pytest.fixture(autouse=True)
def no_listeners(monkeypatch):
    monkeypatch.setattr(streaming, "on_timeline", [])


def texts(timeline):
    """The answer, read without helpers.latency."""
    chunks = [json.loads(e.data) for e in timeline.events if e.data != "[DONE]"]
    return [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]


# --- SSE ----------------------------------------------------------------------------------------------------


def whole(body):
    return parse_events([(0, body)])


@st.composite
def streams_of_events(draw):
    """Bytes of an SSE stream, and the payloads in it."""
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    letters = st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])
    payloads = draw(st.lists(st.text(letters, min_size=1).filter(str.strip), max_size=6))
    body = b""
    for payload in payloads:
        if draw(st.booleans()):
            body += b": comment" + end + end
        body += b"data: " + payload.encode() + end + end
    return body, payloads


@given(streams_of_events(), st.data())
def test_any_split_into_reads_gives_the_same_events(made, data):
    body, payloads = made
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    events, comments = parse_events([(number, piece) for number, piece in enumerate(pieces)])
    assert [e.data for e in events] == payloads
    assert (comments, [e.data for e in events]) == (whole(body)[1], [e.data for e in whole(body)[0]])
    assert [e.at_ns for e in events] == sorted(e.at_ns for e in events)


@given(streams_of_events())
def test_an_event_has_the_time_of_the_byte_that_completed_it(made):
    body, _ = made
    events, _ = parse_events([(number, body[number : number + 1]) for number in range(len(body))])
    for parsed, earlier in zip(events, [Event(-1, ""), *events], strict=False):
        assert earlier.at_ns < parsed.at_ns
        # Without its last byte the event is not there yet (its blank line is missing, so only as a leftover).
        before, _ = parse_events([(0, body[: parsed.at_ns + 1])])
        assert before[-1].data == parsed.data
        assert len(before) == events.index(parsed) + 1


def test_events_of_one_read_share_its_time_and_a_split_one_has_that_of_the_last():
    events, _ = parse_events([(10, b"data: a\n\ndata: b\n\nda"), (20, b"ta: c\n"), (30, b"\n")])
    assert events == (Event(10, "a"), Event(10, "b"), Event(30, "c"))


def test_comments_other_fields_and_empty_data_are_no_events():
    body = b": ping\n\nevent: message\nid: 1\nretry: 5\ndata: a\n\ndata:\n\n: ping\n\n"
    events, comments = whole(body)
    assert [e.data for e in events] == ["a"]
    assert comments == 2


def test_data_lines_of_one_event_are_joined():
    assert [e.data for e in whole(b"data: {\ndata: }\n\n")[0]] == ["{\n}"]


def test_a_last_line_without_blank_line_counts_and_half_a_line_does_not():
    assert [e.data for e in whole(b"data: a\n\ndata: [DONE]\n")[0]] == ["a", "[DONE]"]
    assert [e.data for e in whole(b'data: a\n\ndata: {"cho')[0]] == ["a"]


# --- times --------------------------------------------------------------------------------------------------


def test_events_arrive_after_they_were_sent_and_before_what_is_sent_next():
    pauses = [(0, ROLE), (0.15, chunk("a")), (0.15, chunk("b")), (0.15, chunk("c", finish="stop")), (0, DONE)]
    with serve(pauses) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error is None
    sent = [server.sent_at(0, piece) for _, piece in pauses]
    arrived = [e.at_ns for e in timeline.events]
    assert timeline.sent_ns < sent[0]
    assert all(a >= s for a, s in zip(arrived, sent, strict=True))
    assert all(a < s for a, s in zip(arrived[:3], sent[1:4], strict=True))
    assert arrived[-1] <= timeline.ended_ns
    assert timeline.origin == "measured"
    assert timeline.server == "fake server"


def test_a_character_split_over_reads_arrives_whole_at_the_time_of_its_last_byte():
    smile = chunk("🙂", finish="stop")
    cut = smile.index("🙂".encode()) + 2
    with serve([(0, ROLE), (0, smile[:cut]), (0.2, smile[cut:]), (0, DONE)]) as server:
        timeline = ask(server.as_server(), "hi")
    assert texts(timeline) == ["", "🙂"]
    assert timeline.events[1].at_ns >= server.sent_at(0, smile[cut:])
    assert timeline.events[0].at_ns < server.sent_at(0, smile[cut:])


def test_chunks_sent_together_share_a_time():
    with serve(
        [(0, ROLE), (0.1, chunk("a") + chunk("b") + chunk("c", finish="stop")), (0.1, DONE)]
    ) as server:
        timeline = ask(server.as_server(), "hi")
    times = [e.at_ns for e in timeline.events]
    assert times[0] < times[1] == times[2] == times[3] < times[4]


def test_keep_alive_comments_are_counted_and_are_no_events():
    with serve([(0, PING), (0.05, PING), (0.05, ROLE), (0, chunk("a", finish="stop")), (0, DONE)]) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error is None
    assert timeline.comments == 2
    assert len(timeline.events) == 3


def test_compression_is_declined():
    with serve(GOOD) as server:
        ask(server.as_server(), "hi")
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_an_open_connection_is_used_again_and_opening_one_is_known():
    async def two(server):
        async with streaming.new_session() as session:
            request = chat_request("hi")
            return [await stream(server, request, session=session) for _ in range(2)]

    with serve(GOOD) as server:
        first, second = asyncio.run(two(server.as_server()))
    assert 0 < first.connect_ns < first.events[0].at_ns - first.sent_ns
    assert second.connect_ns == 0


# --- many at a time -----------------------------------------------------------------------------------------


def test_ask_many_keeps_the_order_and_the_limit_and_the_wait():
    def script(body):
        return [(0.05, chunk(body["messages"][0]["content"], finish="stop")), (0, DONE)]

    with serve(script) as server:
        timelines = ask_many(server.as_server(), [f"number {i}" for i in range(9)], concurrency=3)
    assert [texts(t) for t in timelines] == [[f"number {i}"] for i in range(9)]
    assert server.most_in_flight == 3
    assert len({t.due_ns for t in timelines}) == 1
    waits = [t.sent_ns - t.due_ns for t in timelines]
    assert min(waits) >= 0
    # The fourth could only be sent when one of the first three had ended.
    assert timelines[3].sent_ns >= min(t.ended_ns for t in timelines[:3])


def test_more_streams_than_the_http_client_opens_by_itself():
    arrived = threading.Barrier(130)

    def script(body):
        return [(0.5, chunk("a", finish="stop")), (0, DONE)]

    with serve(script) as server:
        timelines = ask_many(server.as_server(), ["hi"] * arrived.parties, concurrency=arrived.parties)
        assert server.most_in_flight > 100
    assert all(t.error is None for t in timelines)


def test_concurrency_of_nothing_is_refused():
    with pytest.raises(CourseError, match="concurrency=0"):
        ask_many(Server("http://127.0.0.1:9/v1", "m"), ["hi"], concurrency=0)


def test_stream_keeps_the_time_at_which_it_was_due():
    with serve(GOOD) as server:
        due_ns = time.perf_counter_ns() - 10**9
        timeline = asyncio.run(stream(server.as_server(), chat_request("hi"), due_ns=due_ns))
    assert timeline.due_ns == due_ns
    assert timeline.sent_ns - timeline.due_ns >= 10**9


# --- where it runs ------------------------------------------------------------------------------------------


def test_ask_works_inside_a_running_event_loop():
    async def in_a_notebook(server):
        return ask(server, "hi"), ask_many(server, ["hi", "there"], concurrency=2)

    with serve(GOOD) as server:
        one, many = asyncio.run(in_a_notebook(server.as_server()))
    assert [t.error for t in (one, *many)] == [None] * 3


def test_interrupting_a_request_in_a_notebook_stops_it(monkeypatch):
    started, ended = threading.Event(), threading.Event()

    def stop_button(future, timeout=None):
        assert started.wait(30)
        raise KeyboardInterrupt

    async def request():
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def in_a_notebook():
        monkeypatch.setattr(Future, "result", stop_button)
        with pytest.raises(KeyboardInterrupt):
            streaming._run(request)
        monkeypatch.undo()

    began = time.monotonic()
    asyncio.run(in_a_notebook())
    assert ended.is_set()
    assert time.monotonic() - began < 60  # it was ended, not waited for


def test_garbage_collection_waits_and_comes_back():
    seen = []

    def script(body):
        seen.append(gc.isenabled())
        return GOOD

    with serve(script) as server:
        ask(server.as_server(), "hi")
    assert seen == [False]
    assert gc.isenabled()


def test_importing_it_loads_no_engine():
    code = "import sys; from helpers import latency, stats; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    loaded = set(out.stdout.split())
    assert "helpers.streaming" in loaded
    assert not loaded & {"vllm", "torch", "transformers"}


# --- requests -----------------------------------------------------------------------------------------------


def test_chat_request_asks_for_a_stream_with_usage_and_thinking_off():
    request = chat_request("hi", max_tokens=5, tools=[], chat_template_kwargs={"other": 1})
    assert request["messages"] == [{"role": "user", "content": "hi"}]
    assert request["stream"] is True
    assert request["stream_options"] == {"include_usage": True}
    assert request["chat_template_kwargs"] == {"enable_thinking": False, "other": 1}
    assert (request["max_tokens"], request["temperature"], request["tools"]) == (5, 0, [])
    assert "model" not in request
    assert chat_request([{"role": "system", "content": "s"}], model="m")["model"] == "m"
    assert "chat_template_kwargs" not in chat_request("hi", thinking=None)


def test_the_timeline_keeps_the_body_as_sent_with_the_servers_model():
    with serve(GOOD) as server:
        by_server = ask(server.as_server(model="its own"), "hi", max_tokens=3)
        by_request = ask(server.as_server(), chat_request("hi", model="another"))
    assert by_server.request == server.bodies[0]
    assert (by_server.request["model"], by_server.request["max_tokens"]) == ("its own", 3)
    assert by_request.request["model"] == server.bodies[1]["model"] == "another"


def test_a_request_changed_afterwards_does_not_change_the_timeline():
    messages = [{"role": "user", "content": "hi"}]
    request = chat_request(messages)
    with serve(GOOD) as server:
        timeline = ask(server.as_server(), request)
    messages[0]["content"] = "changed"
    request["messages"].append({"role": "user", "content": "more"})
    assert timeline.request == server.bodies[0]


def test_options_beside_a_complete_request_are_refused():
    with pytest.raises(CourseError, match="max_tokens"):
        ask(Server("http://127.0.0.1:9/v1", "m"), chat_request("hi"), max_tokens=3)


# --- listeners ----------------------------------------------------------------------------------------------


def test_listeners_get_each_timeline_and_a_broken_one_loses_nothing():
    def broken(timeline):
        raise OSError("disk full")

    heard = []
    streaming.on_timeline += [broken, heard.append]
    with serve(GOOD) as server:
        with pytest.warns(UserWarning, match="disk full"):
            one = ask(server.as_server(), "hi")
        with pytest.warns(UserWarning, match="disk full"):
            many = ask_many(server.as_server(), ["a", "b"], concurrency=1)
        with pytest.warns(UserWarning, match="disk full"):
            last = asyncio.run(stream(server.as_server(), chat_request("c")))
    assert heard == [one, *many, last]


# --- what goes wrong ----------------------------------------------------------------------------------------


def refusal(status, body, **kw):
    return Script([(0, json.dumps(body).encode())], status=status, content_type="application/json", **kw)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, ["did not accept", "said 'context is 2048'", "too long"]),
        (401, ["none was given", "PHONELLM_API_KEY"]),
        (403, ["may not use fake", "PHONELLM_API_KEY"]),
        (404, ["no model named fake", "/models", "PHONELLM_MODEL"]),
        (429, ["Too many", "Wait"]),
        (500, ["failed inside", "log"]),
        (503, ["not ready", "minutes"]),
    ],
)
def test_http_errors_say_what_to_do(status, words):
    with serve(refusal(status, {"error": {"message": "context is 2048"}})) as server:
        timeline = ask(server.as_server(), "hi")
        address = server.base_url
    assert (timeline.status, timeline.events, timeline.streamed) == (status, (), False)
    assert timeline.error.kind == "http"
    for word in [f"HTTP {status}", address, "context is 2048", *[w.replace("said '", "") for w in words]]:
        assert word.strip("'") in timeline.error.message


@pytest.mark.parametrize(
    "body",
    [{"error": "the reason"}, {"message": "the reason"}, {"detail": "the reason"}, {"object": "the reason"}],
)
def test_the_servers_own_words_are_found_wherever_they_are(body):
    with serve(refusal(400, body)) as server:
        assert "the reason" in ask(server.as_server(), "hi").error.message


def test_a_refused_key_is_told_from_a_missing_one():
    with serve(refusal(401, {})) as server:
        assert "refused the key" in ask(server.as_server(api_key=KEY), "hi").error.message


def test_a_redirect_is_reported_and_not_followed():
    with serve(Script([], status=307, headers={"Location": "https://elsewhere.example/v1"})) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error.kind == "http"
    assert "https://elsewhere.example/v1" in timeline.error.message
    assert "PHONELLM_BASE_URL" in timeline.error.message


def test_a_refused_connection_asks_whether_the_server_is_up():
    server = Server(f"http://127.0.0.1:{free_port()}/v1", "m")
    timeline = ask(server, "hi")
    assert (timeline.status, timeline.events, timeline.error.kind) == (None, (), "connection")
    for word in ("connection refused", "server up", server.base_url, "PHONELLM_BASE_URL"):
        assert word in timeline.error.message
    assert timeline.ended_ns > timeline.sent_ns


@pytest.mark.parametrize("address", ["http://no-such-machine.invalid/v1", "not a url", "http://[::1"])
def test_an_address_that_cannot_be_reached_does_not_raise(address):
    error = ask(Server(address, "m"), "hi").error
    assert error.kind == "connection"
    assert "PHONELLM_BASE_URL" in error.message


def test_a_machine_that_does_not_pick_up_is_not_a_slow_answer():
    server = Server("http://10.0.0.1/v1", "m")
    facts = {"status": None, "waited_s": 10, "body": "", "events": [], "streamed": False, "model": "m"}
    error = explain(server, failure=aiohttp.ConnectionTimeoutError("Connection timeout to host"), **facts)
    assert error.kind == "connection"
    assert "PHONELLM_BASE_URL" in error.message
    assert explain(server, failure=TimeoutError(), **facts).kind == "timeout"


def test_a_server_that_hangs_up_before_it_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            connection, _ = listener.accept()
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        error = ask(Server(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "m"), "hi").error
        thread.join(30)
    assert error.kind == "connection"
    assert "No answer from" in error.message


def test_a_server_that_hangs_up_after_the_headers():
    with serve([(0, CUT)]) as server:
        error = ask(server.as_server(), "hi").error
    assert error.kind == "connection"
    assert "mid-stream after 0 events" in error.message


def test_a_connection_cut_in_mid_stream_keeps_what_came():
    with serve([(0, ROLE), (0, chunk("Hel")), (0.2, chunk("lo")[:20]), (0.1, CUT)]) as server:
        timeline = ask(server.as_server(), "hi")
    assert texts(timeline) == ["", "Hel"]
    assert timeline.error.kind == "connection"
    assert "cut in mid-stream after 2 events" in timeline.error.message


def test_a_cut_after_the_end_is_no_error():
    with serve([*GOOD, (0.1, CUT)]) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error is None
    assert texts(timeline)[-1] == "lo"


def test_a_stream_that_ends_before_the_answer_is_an_error():
    with serve([(0, ROLE), (0, chunk("Hel"))]) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error.kind == "stream"
    assert "no finish_reason" in timeline.error.message


def test_a_stream_without_done_but_with_a_finish_reason_is_complete():
    with serve([(0, ROLE), (0, chunk("Hello", finish="stop"))]) as server:
        assert ask(server.as_server(), "hi").error is None


@pytest.mark.parametrize("end", [[], [(0, DONE)]])
def test_an_error_object_in_mid_stream_keeps_what_came(end):
    broken = event({"error": {"message": "engine died", "type": "InternalServerError", "code": 500}})
    with serve([(0, ROLE), (0, chunk("Hel")), (0.05, broken), *end]) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.status == 200
    assert timeline.error.kind == "stream"
    assert "engine died" in timeline.error.message
    assert "log" in timeline.error.message
    assert '"Hel"' in timeline.events[1].data


def test_a_timeout_keeps_what_came():
    with serve([(0, ROLE), (0, chunk("Hel")), (30, DONE)]) as server:
        timeline = ask(server.as_server(), "hi", timeout_s=0.5)
    assert texts(timeline) == ["", "Hel"]
    assert timeline.error.kind == "timeout"
    assert "timeout_s" in timeline.error.message


def test_an_answer_that_is_not_of_this_kind():
    page = Script([(0, b"<html>Please log in</html>")], content_type="text/html")
    with serve(page) as server:
        error = ask(server.as_server(), "hi").error
    assert error.kind == "stream"
    assert "Please log in" in error.message
    assert "/v1" in error.message


def test_an_event_that_is_not_json():
    with serve([(0, b"data: <html>\n\n"), (0, DONE)]) as server:
        error = ask(server.as_server(), "hi").error
    assert error.kind == "stream"
    assert "<html>" in error.message


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (refusal(200, {"detail": "nope"}), "nope"),
        (refusal(200, {}), "choices"),
        (refusal(200, {"choices": 5}), "choices"),
        ([(0, event({"object": "error", "message": "nope"})), (0, DONE)], "nope"),
        ([(0, b"event: error\n" + event({"message": "nope"})), (0, DONE)], "nope"),
        ([*GOOD[:2], (0, b"event: error\n" + event({"message": "nope"})), (0, DONE)], "nope"),
        ([(0, event({"object": "error", "code": 5})), (0, DONE)], "code"),
        ([(0, event([1])), (0, DONE)], "[1]"),
        ([(0, DONE)], "choices"),
    ],
)
def test_what_is_no_answer_does_not_count_as_a_good_one(script, word):
    with serve(script) as server:
        error = ask(server.as_server(), "hi").error
    assert error.kind == "stream"
    assert word in error.message
    assert "log" in error.message or "/v1" in error.message or "directly" in error.message


@pytest.mark.parametrize("status", [200, 500])
def test_json_nested_too_deeply_does_not_raise(status):
    deep = b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    plain = Script([(0, deep)], status=status, content_type="application/json")
    for script in (plain, Script([(0, ROLE), (0, b"data: " + deep + b"\n\n"), (0, DONE)], status=status)):
        with serve(script) as server:
            assert ask(server.as_server(), "hi").error.kind == ("stream" if status == 200 else "http")


def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_BYTES", 5_000)
    with serve([(0, ROLE), *[(0.01, chunk("again " * 100))] * 200, (30, DONE)]) as server:
        timeline = ask(server.as_server(), "hi", timeout_s=25)
    assert timeline.error.kind == "stream"
    assert "5,000 bytes" in timeline.error.message
    assert "max_tokens" in timeline.error.message
    assert 1 < len(timeline.events) < 200  # what came is kept


def test_an_answer_up_to_the_limit_is_read(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_BYTES", sum(len(piece) for _, piece in GOOD))
    with serve(GOOD) as server:
        assert ask(server.as_server(), "hi").error is None


@pytest.mark.parametrize("spaces", [b" ", b"  ", b"\t"])
def test_done_with_spaces_is_done(spaces):
    with serve([(0, chunk("a")), (0, b"data: [DONE]" + spaces + b"\n\n")]) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error is None
    assert timeline.events[-1].data == "[DONE]"


def test_a_byte_order_mark_is_skipped():
    bom = b"\xef\xbb\xbf"
    events, _ = parse_events([(1, bom[:2]), (2, bom[2:] + b"data: a\n\nda"), (3, b"ta: b\n\n")])
    assert events == (Event(2, "a"), Event(3, "b"))
    answer = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    plain = Script([(0, bom + json.dumps(answer).encode())], content_type="application/json")
    with serve(plain) as server:
        timeline = ask(server.as_server(), "hi")
    assert timeline.error is None
    assert json.loads(timeline.events[0].data) == answer


@pytest.mark.parametrize("one", ["hi", chat_request("hi")])
def test_one_request_is_not_taken_for_many(one):
    with pytest.raises(CourseError, match="Give a list"):
        ask_many(Server("http://127.0.0.1:9/v1", "m"), one, concurrency=1)


def test_a_server_that_answers_without_streaming():
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}
    body = json.dumps(answer).encode()
    script = Script([(0, body[:20]), (0.1, body[20:])], content_type="application/json")
    with serve(script) as server:
        timeline = ask(server.as_server(), "hi")
    assert (timeline.streamed, timeline.error) == (False, None)
    assert [json.loads(e.data) for e in timeline.events] == [answer]
    assert timeline.events[0].at_ns >= server.sent_at(0, body[20:])


# --- the key ------------------------------------------------------------------------------------------------


def echo(body):
    """A server that gives the key away in its answer."""
    return [(0, ROLE), (0, chunk(f"your key is {KEY}", finish="stop")), (0, DONE)]


@pytest.mark.parametrize(
    "script",
    [
        GOOD,
        echo,
        refusal(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
        Script([(0, f"Bearer {KEY}?".encode())], status=500, content_type="text/plain"),
        [(0, event({"error": {"message": f"bad key {KEY}"}}))],
        Script([(0, f"page for {KEY}".encode())], content_type="text/html"),
        [(0, CUT)],
    ],
    ids=["good", "echo", "401", "500", "mid-stream", "page", "cut"],
)
def test_the_key_goes_into_the_header_and_nowhere_else(script):
    with serve(script) as fake:
        server = fake.as_server(api_key=f"{KEY}\n")  # as pasted from a file
        timeline = ask(server, "hi")
    assert fake.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert sum(KEY in value for value in fake.headers[0].values()) == 1
    assert KEY not in json.dumps(fake.bodies[0])
    told = [repr(server), repr(timeline), str(timeline), json.dumps(timeline.to_dict()), repr(timeline.error)]
    told += [repr(timeline.events), repr(dataclasses.asdict(timeline))]
    assert not any(KEY in text for text in told)


def test_a_key_that_cannot_be_a_header_does_not_raise():
    with serve(GOOD) as server:
        timeline = ask(server.as_server(api_key=f"{KEY}\nX-More: 1"), "hi")
    assert timeline.error.kind == "connection"
    assert KEY not in repr(timeline)


def test_no_key_no_header():
    with serve(GOOD) as server:
        ask(server.as_server(), "hi")
    assert "Authorization" not in server.headers[0]


def test_a_stand_in_for_a_key_is_not_cut_out_of_answers():
    with serve([(0, chunk("the cup is EMPTY", finish="stop")), (0, DONE)]) as server:
        assert texts(ask(server.as_server(api_key="EMPTY"), "hi")) == ["the cup is EMPTY"]


def test_a_password_in_the_address_is_not_shown():
    server = Server(f"http://me:{KEY}@127.0.0.1:{free_port()}/v1", "m")
    timeline = ask(server, "hi")
    assert KEY not in json.dumps(timeline.to_dict())
    assert "127.0.0.1" in timeline.error.message


# --- JSON ---------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.integers(0, 10**15)
timelines = st.builds(
    Timeline,
    request=st.dictionaries(words, words | st.integers() | st.none(), max_size=4),
    sent_ns=times,
    events=st.lists(st.builds(Event, times, words), max_size=5).map(tuple),
    ended_ns=times,
    status=st.none() | st.integers(100, 599),
    streamed=st.booleans(),
    error=st.none() | st.builds(StreamError, words, words),
    server=words,
    origin=st.sampled_from(["measured", "recorded"]),
    due_ns=st.none() | times,
    connect_ns=st.none() | times,
    comments=st.integers(0, 9),
)


@given(timelines)
def test_a_timeline_survives_json(timeline):
    assert Timeline.from_dict(json.loads(json.dumps(timeline.to_dict()))) == timeline


def test_a_measured_timeline_survives_json():
    with serve(GOOD) as server:
        timeline = ask(server.as_server(), "hi")
    assert len(timeline.events) == 5
    assert Timeline.from_dict(json.loads(json.dumps(timeline.to_dict()))) == timeline


@pytest.mark.parametrize("plain", [{}, {"events": [], "error": None, "colour": "red"}])
def test_something_else_is_not_read_as_a_timeline(plain):
    with pytest.raises(CourseError, match="not a timeline"):
        Timeline.from_dict(plain)
