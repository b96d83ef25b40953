"""The definitions, each case against a real server that sends what the case says."""

import json
import math

import pytest
from fakeserver import CUT, DONE, PING, ROLE, Script, chunk, event, serve, tool_call, usage_chunk
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import latency
from helpers.latency import deltas, measure, table
from helpers.settings import CourseError
from helpers.streaming import Event, StreamError, Timeline, ask, ask_many, chat_request

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")

GAP = 0.15  # seconds between sends: long enough that a busy machine does not turn their order around


def run(steps, *, script=Script, **request):
    """Send one request to a server with this script; its numbers, timeline and server."""
    with serve(script(steps)) as server:
        timeline = ask(server.as_server(), chat_request("hi", **request))
    return measure(timeline), timeline, server


def timeline_of(*chunks, thinking=False, gap_ms=10, error=None, ended_ms=None, done=True, **fields):
    """A timeline without a server: one chunk (bytes of an event) every gap_ms, from gap_ms on."""
    payloads = [
        piece.removeprefix(b"data: ").strip().decode() for piece in [*chunks, *([DONE] if done else [])]
    ]
    events = tuple(Event(round(gap_ms * 1e6) * (i + 1), data) for i, data in enumerate(payloads))
    return Timeline(
        **{
            "request": chat_request("hi", model="m", thinking=thinking),
            "sent_ns": 0,
            "events": events,
            "ended_ns": events[-1].at_ns if events else 10**6,
            "status": 200,
            "streamed": True,
            "error": error,
            "server": "made up",
            "origin": "measured",
        }
        | fields
    )


def kinds(timeline):
    return [delta.kind for delta in deltas(timeline)]


def after_send(ms, timeline, server, piece, before=None):
    """Is this time after the server sent this piece, and before it sent the other?"""
    at_ns = timeline.sent_ns + ms * 1e6
    return server.sent_at(0, piece) <= at_ns and (before is None or at_ns < server.sent_at(0, before))


# --- the cases, on a live server ----------------------------------------------------------------------------


def test_role_only_first_chunk_is_no_token():
    first, second = chunk("Hel"), chunk("lo", finish="stop")
    numbers, timeline, server = run([(0, ROLE), (GAP, first), (GAP, second), (0, usage_chunk(2)), (0, DONE)])
    assert after_send(numbers.first_chunk_ms, timeline, server, ROLE, before=first)
    assert after_send(numbers.ttft_ms, timeline, server, first, before=second)
    assert numbers.ttfat_ms == numbers.ttft_ms == numbers.first_speakable_ms > numbers.first_chunk_ms
    assert kinds(timeline)[0] == "role"
    assert numbers.answer == "Hello"
    assert numbers.finish_reason == "stop"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_under_either_name_is_a_token_and_no_answer(name):
    thought, answer = chunk(**{name: "hm"}), chunk("Hi", finish="stop")
    steps = [(0, ROLE), (GAP, thought), (GAP, chunk(**{name: "..."})), (GAP, answer), (0, DONE)]
    numbers, timeline, server = run(steps, thinking=True)
    assert after_send(numbers.ttft_ms, timeline, server, thought, before=answer)
    assert after_send(numbers.ttfat_ms, timeline, server, answer)
    assert numbers.ttft_ms < numbers.ttfat_ms
    assert (numbers.reasoning, numbers.answer, numbers.answer_in_reasoning) == ("hm...", "Hi", False)
    assert kinds(timeline) == ["role", "reasoning", "reasoning", "answer", "finish"]
    assert numbers.chunks == 3


def test_reasoning_under_both_names_at_once_is_one_text():
    numbers = measure(timeline_of(chunk(reasoning="hm", reasoning_content="hm"), thinking=True))
    assert (numbers.reasoning, numbers.chunks) == ("hm", 1)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_answer_in_the_reasoning_field_with_thinking_off(name):
    first = chunk(**{name: "Good "})
    steps = [(0, ROLE), (GAP, first), (GAP, chunk(**{name: "day"}, finish="stop")), (0, DONE)]
    numbers, timeline, server = run(steps, thinking=False)
    assert numbers.answer_in_reasoning
    assert (numbers.answer, numbers.reasoning) == ("Good day", "")
    assert after_send(numbers.ttfat_ms, timeline, server, first)
    assert numbers.ttft_ms == numbers.ttfat_ms
    assert "reasoning" not in kinds(timeline)


@pytest.mark.parametrize("thinking", [True, None])
def test_the_same_text_is_thinking_where_thinking_was_not_switched_off(thinking):
    numbers = measure(timeline_of(chunk(reasoning="Good day", finish="length"), thinking=thinking))
    assert (numbers.answer, numbers.reasoning, numbers.answer_in_reasoning) == ("", "Good day", False)
    assert numbers.ttft_ms is not None
    assert numbers.ttfat_ms is None


def test_reasoning_beside_an_answer_stays_reasoning_even_with_thinking_off():
    numbers = measure(timeline_of(chunk(reasoning="hm"), chunk("Hi"), thinking=False))
    assert (numbers.answer, numbers.reasoning, numbers.answer_in_reasoning) == ("Hi", "hm", False)
    assert (numbers.ttft_ms, numbers.ttfat_ms) == (10, 20)


def test_several_tokens_in_one_chunk():
    first, last = chunk("one two three"), chunk(" four five six", finish="length")
    numbers, _, _ = run([(0, ROLE), (GAP, first), (GAP, last), (0, usage_chunk(6)), (0, DONE)])
    assert (numbers.chunks, numbers.completion_tokens, numbers.tokens_per_chunk) == (2, 6, 3)
    (gap,) = numbers.itl_ms
    assert gap > 0
    assert numbers.tpot_ms == pytest.approx(gap / 5)  # not the gap itself


def test_tool_call_first():
    call, more = tool_call("book_table"), tool_call(arguments='{"people": 2}')
    numbers, timeline, server = run(
        [(0, ROLE), (GAP, call), (GAP, more), (0, chunk(finish="tool_calls")), (0, usage_chunk(9)), (0, DONE)]
    )
    assert after_send(numbers.ttfat_ms, timeline, server, call, before=more)
    assert numbers.ttft_ms == numbers.ttfat_ms
    assert numbers.first_speakable_ms is None
    assert numbers.tool_call == 'book_table{"people": 2}'
    assert (numbers.answer, numbers.finish_reason) == ("", "tool_calls")
    assert kinds(timeline) == ["role", "tool_call", "tool_call", "finish", "usage"]


def test_thinking_before_a_tool_call_counts_for_ttft_only():
    numbers = measure(timeline_of(ROLE, chunk(reasoning="hm"), tool_call("book"), thinking=True))
    assert (numbers.ttft_ms, numbers.ttfat_ms) == (20, 30)


def test_a_tool_call_delta_without_name_and_arguments_is_no_token():
    numbers = measure(timeline_of(tool_call(), tool_call("book")))
    assert numbers.ttfat_ms == 20


def test_usage_only_last_chunk_counts_and_is_no_token():
    details = {
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    last = usage_chunk(3, prompt_tokens=11, **details)
    numbers, timeline, _ = run(
        [(0, ROLE), (0, chunk("a")), (0, chunk("b", finish="stop")), (GAP, last), (0, DONE)]
    )
    assert (numbers.prompt_tokens, numbers.completion_tokens) == (11, 3)
    assert (numbers.cached_tokens, numbers.reasoning_tokens) == (5, 1)
    assert kinds(timeline)[-1] == "usage"
    assert numbers.chunks == 2
    assert numbers.e2e_ms > numbers.ttft_ms + numbers.tpot_ms * 2


@pytest.mark.parametrize("details", [{}, {"prompt_tokens_details": None, "completion_tokens_details": None}])
def test_counts_a_server_does_not_give_are_none(details):
    numbers = measure(timeline_of(chunk("a"), usage_chunk(1, **details)))
    assert (numbers.cached_tokens, numbers.reasoning_tokens) == (None, None)
    without = measure(timeline_of(chunk("a"), chunk("b")))
    assert (without.completion_tokens, without.tpot_ms, without.tokens_per_chunk) == (None, None, None)


def test_no_token_at_all():
    numbers, timeline, _ = run([(0, ROLE), (0, chunk("", finish="stop")), (0, usage_chunk(1)), (0, DONE)])
    assert timeline.error is None
    assert (numbers.ttft_ms, numbers.ttfat_ms, numbers.first_speakable_ms) == (None, None, None)
    assert (numbers.itl_ms, numbers.tpot_ms, numbers.chunks, numbers.tokens_per_chunk) == ((), None, 0, None)
    assert 0 < numbers.first_chunk_ms <= numbers.e2e_ms
    assert kinds(timeline) == ["role", "finish", "usage"]


def test_error_in_mid_stream_keeps_the_first_token_and_has_no_end():
    died = event({"error": {"message": "engine died"}})
    numbers, timeline, server = run([(0, ROLE), (GAP, chunk("Hel")), (GAP, died), (0, DONE)])
    assert after_send(numbers.ttft_ms, timeline, server, chunk("Hel"), before=died)
    assert (numbers.e2e_ms, numbers.tpot_ms) == (None, None)
    assert numbers.error.kind == "stream"
    assert kinds(timeline) == ["role", "answer", "error"]


def test_connection_cut_keeps_the_first_token_and_has_no_end():
    numbers, timeline, server = run([(0, ROLE), (GAP, chunk("Hel")), (GAP, chunk("lo")), (GAP, CUT)])
    assert after_send(numbers.ttft_ms, timeline, server, chunk("Hel"), before=chunk("lo"))
    assert numbers.e2e_ms is None
    assert numbers.error.kind == "connection"
    assert numbers.answer == "Hello"
    assert len(numbers.itl_ms) == 1


def test_keep_alive_comments_move_no_number():
    numbers, timeline, server = run(
        [
            (0, PING),
            (GAP, ROLE),
            (GAP, PING),
            (GAP, chunk("a")),
            (GAP, PING),
            (0, chunk("b", finish="stop")),
            (0, DONE),
        ]
    )
    assert timeline.comments == 3
    assert after_send(numbers.first_chunk_ms, timeline, server, ROLE, before=chunk("a"))
    assert after_send(numbers.ttft_ms, timeline, server, chunk("a"))
    assert numbers.chunks == 2


def test_emoji_split_over_reads_is_one_token_at_its_last_byte():
    smile = chunk("🙂", finish="stop")
    cut = smile.index("🙂".encode()) + 2
    numbers, timeline, server = run([(0, ROLE), (GAP, smile[:cut]), (GAP, smile[cut:]), (0, DONE)])
    assert numbers.answer == "🙂"
    assert after_send(numbers.ttft_ms, timeline, server, smile[cut:])


def test_emoji_held_back_by_the_tokenizer_counts_when_it_shows():
    nothing, smile = chunk(""), chunk("🙂", finish="stop")
    numbers, timeline, server = run([(0, ROLE), (GAP, nothing), (GAP, smile), (0, usage_chunk(2)), (0, DONE)])
    assert kinds(timeline) == ["role", "empty", "answer", "finish", "usage"]
    assert after_send(numbers.ttft_ms, timeline, server, smile)
    assert (numbers.chunks, numbers.tokens_per_chunk) == (1, 2)


def test_chunks_that_arrive_together_have_gaps_of_zero():
    pair = chunk("b") + chunk("c", finish="stop")
    numbers, _, _ = run([(0, ROLE), (GAP, chunk("a")), (GAP, pair), (0, usage_chunk(3)), (0, DONE)])
    first, second = numbers.itl_ms
    assert first > 0 == second
    assert numbers.chunks == 3
    assert numbers.tpot_ms == pytest.approx(first / 2)


def test_a_server_that_answers_without_streaming_shows_its_end_only():
    answer = {
        "choices": [
            {"message": {"role": "assistant", "content": "Hello", "reasoning": "hm"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3},
    }
    body = json.dumps(answer).encode()
    numbers, timeline, server = run(
        [(GAP, body)], script=lambda steps: Script(steps, content_type="application/json"), thinking=True
    )
    assert not numbers.streamed
    assert (numbers.ttft_ms, numbers.ttfat_ms, numbers.first_speakable_ms) == (None, None, None)
    assert (numbers.itl_ms, numbers.tpot_ms) == ((), None)
    assert numbers.first_chunk_ms == numbers.e2e_ms
    assert after_send(numbers.e2e_ms, timeline, server, body)
    assert (numbers.answer, numbers.reasoning, numbers.finish_reason) == ("Hello", "hm", "stop")
    assert (numbers.prompt_tokens, numbers.completion_tokens, numbers.chunks) == (4, 3, 1)


def test_an_http_error_has_no_times():
    numbers, timeline, _ = run([(0, b"{}")], script=lambda steps: Script(steps, status=500))
    assert numbers.error.kind == "http"
    assert deltas(timeline) == []
    assert (numbers.first_chunk_ms, numbers.ttft_ms, numbers.e2e_ms) == (None, None, None)


# --- finer points -------------------------------------------------------------------------------------------


def test_white_space_is_a_token_and_cannot_be_spoken():
    numbers = measure(timeline_of(ROLE, chunk("\n\n"), chunk("Hi")))
    assert (numbers.ttft_ms, numbers.ttfat_ms, numbers.first_speakable_ms) == (20, 20, 30)


def test_the_first_chunk_may_have_role_and_text():
    numbers = measure(timeline_of(chunk("Hi", role="assistant")))
    assert numbers.ttft_ms == numbers.first_chunk_ms == 10


def test_tpot_runs_to_the_stop_token_which_has_no_text():
    # Tokens at 10, 20, 30 and the stop token at 40 ms: 4 tokens, 10 ms each.
    numbers = measure(
        timeline_of(chunk("a"), chunk("b"), chunk("c"), chunk("", finish="stop"), usage_chunk(4))
    )
    assert numbers.tpot_ms == 10
    assert numbers.itl_ms == (10, 10)


def test_tpot_needs_two_tokens():
    assert measure(timeline_of(chunk("a", finish="length"), usage_chunk(1))).tpot_ms is None


def test_reasoning_and_answer_in_one_chunk_are_two_deltas_and_one_chunk():
    timeline = timeline_of(chunk(reasoning="hm"), chunk("Hi", reasoning="."), chunk("!"), thinking=True)
    assert kinds(timeline) == ["reasoning", "reasoning", "answer", "answer"]
    numbers = measure(timeline)
    assert numbers.chunks == 3
    assert numbers.itl_ms == (10, 10)
    assert (numbers.ttft_ms, numbers.ttfat_ms) == (10, 20)


def test_tokens_of_a_chunk_are_known_where_the_server_counts_as_it_goes():
    def counted(text, so_far, **delta):
        return chunk(text, usage={"prompt_tokens": 7, "completion_tokens": so_far}, **delta)

    timeline = timeline_of(
        counted("", 0, role="assistant"), counted("a", 1), counted("b c", 3, reasoning="x"), usage_chunk(3)
    )
    assert [(d.kind, d.tokens) for d in deltas(timeline)] == [
        ("role", 0),
        ("answer", 1),
        ("reasoning", 2),
        ("answer", 0),
        ("usage", None),
    ]
    assert measure(timeline).completion_tokens == 3
    assert {d.tokens for d in deltas(timeline_of(chunk("a"), usage_chunk(1)))} == {None}


def test_text_in_parts_is_text():
    assert measure(timeline_of(chunk([{"type": "text", "text": "Hi"}]))).answer == "Hi"


@pytest.mark.parametrize("data", ["<html>", "[1]", "null", '"x"'])
def test_what_is_not_a_chunk_is_an_error_and_no_token(data):
    timeline = timeline_of(chunk("a"), f"data: {data}\n\n".encode())
    assert kinds(timeline) == ["answer", "error"]


@pytest.mark.parametrize("payload", [{"choices": []}, {"choices": None, "usage": None}, {}])
def test_chunks_with_nothing_in_them_are_empty(payload):
    assert kinds(timeline_of(event(payload))) == ["empty"]


def test_a_timeline_cut_before_usage_still_has_its_text():
    error = StreamError("timeout", "x")
    numbers = measure(timeline_of(chunk("a"), chunk("b"), done=False, error=error))
    assert (numbers.answer, numbers.tpot_ms, numbers.e2e_ms, numbers.error) == ("ab", None, None, error)


def test_waiting_and_connecting_are_shown_apart():
    numbers = measure(timeline_of(chunk("a"), sent_ns=5_000_000, due_ns=2_000_000, connect_ns=1_500_000))
    assert (numbers.wait_ms, numbers.connect_ms, numbers.ttft_ms) == (3, 1.5, 5)
    unknown = measure(timeline_of(chunk("a")))
    assert (unknown.wait_ms, unknown.connect_ms) == (0, None)


# --- what no server should send, and some do ----------------------------------------------------------------

DEEP = '{"choices": ' + "[" * 100_000 + "]" * 100_000 + "}"


def with_usage(usage):
    return {"choices": [{"delta": {"content": "a"}}], "usage": usage}


ODD = [
    (with_usage({"completion_tokens": None}), "answer"),
    (with_usage({"completion_tokens": "3"}), "answer"),
    (with_usage({"completion_tokens": 10**400}), "answer"),
    (with_usage("many"), "answer"),
    (with_usage([1]), "answer"),
    (with_usage({"completion_tokens_details": "none", "prompt_tokens_details": [1]}), "answer"),
    ({"usage": "many"}, "empty"),
    ({"choices": [None]}, "empty"),
    ({"choices": 5}, "empty"),
    ({"choices": {}}, "empty"),
    ({"choices": ["x"]}, "empty"),
    ({"choices": [{"delta": "x"}]}, "empty"),
    ({"choices": [{"delta": {"content": 5}}]}, "empty"),
    ({"choices": [{"delta": {}, "finish_reason": 5}]}, "empty"),
    ({"choices": [{"delta": {"tool_calls": [None]}}]}, "empty"),
    ({"choices": [{"delta": {"tool_calls": 5}}]}, "empty"),
    ({"choices": [{"delta": {"tool_calls": [{"function": "x"}]}}]}, "empty"),
    ({"message": "nope"}, "error"),
    ({"object": "error", "message": "nope"}, "error"),
    ({"detail": [{"msg": "nope"}]}, "error"),
    (DEEP, "error"),
]


@pytest.mark.parametrize(("payload", "kind"), ODD, ids=range(len(ODD)))
def test_an_odd_chunk_is_one_delta_and_spoils_no_number(payload, kind):
    odd = f"data: {payload}\n\n".encode() if payload is DEEP else event(payload)
    steps = [(0, odd), (0, chunk("b", finish="stop")), (0, usage_chunk(3)), (0, DONE)]
    numbers, timeline, _ = run(steps)
    assert kinds(timeline) == [kind, "answer", "finish", "usage"]
    assert numbers.completion_tokens == 3
    assert numbers.answer.endswith("b")
    assert (numbers.error is not None) == (kind == "error")
    assert table([timeline]).completion_tokens[0] == 3
    alone, _, _ = run([(0, odd)])  # nothing else to take the counts from
    assert (alone.completion_tokens, alone.reasoning_tokens, alone.cached_tokens) == (None, None, None)


def test_no_depth_of_nesting_raises():
    for depth in range(100, 1100, 7):
        nest = "[" * depth + "]" * depth
        parts = '[{"text": ' * depth + '"x"' + "}]" * depth
        for data in (
            f'{{"error": {nest}}}',
            f'{{"choices": [{{"delta": {{"content": {parts}}}}}]}}',
            f'{{"choices": [{{"delta": {{"tool_calls": [{{"function": {{"arguments": {nest}}}}}]}}}}]}}',
        ):
            assert len(deltas(timeline_of(f"data: {data}\n\n".encode()))) == 1


def test_arguments_that_are_an_object_become_their_json():
    numbers = measure(timeline_of(tool_call("book_table", {"people": 2})))
    assert numbers.tool_call == 'book_table{"people": 2}'
    assert numbers.ttfat_ms == 10


# --- properties ---------------------------------------------------------------------------------------------

pieces = st.sampled_from(
    [
        ROLE,
        chunk(""),
        chunk("\n"),
        chunk("word"),
        chunk(reasoning="hm"),
        chunk(reasoning_content="hm"),
        chunk("both", reasoning="hm"),
        chunk("end", finish="stop"),
        chunk(finish="stop"),
        tool_call("book"),
        tool_call(arguments="{}"),
        usage_chunk(5),
        event({"error": {"message": "x"}}),
    ]
)


@st.composite
def timelines(draw):
    chunks = draw(st.lists(pieces, max_size=12))
    made = timeline_of(*chunks, thinking=draw(st.sampled_from([True, False, None])))
    at_ns = sorted(
        draw(st.lists(st.integers(1, 10**10), min_size=len(made.events), max_size=len(made.events)))
    )
    events = tuple(Event(at, event.data) for at, event in zip(at_ns, made.events, strict=True))
    return Timeline(**{**vars(made), "events": events, "ended_ns": at_ns[-1]})


@given(timelines())
def test_numbers_are_in_order_and_add_up(timeline):
    numbers = measure(timeline)
    times = [numbers.first_chunk_ms, numbers.ttft_ms, numbers.ttfat_ms, numbers.e2e_ms]
    known = [time for time in times if time is not None]
    assert known == sorted(known)
    if numbers.first_speakable_ms is not None:
        assert numbers.ttfat_ms <= numbers.first_speakable_ms <= numbers.e2e_ms
    assert len(numbers.itl_ms) == max(0, numbers.chunks - 1)
    assert all(gap >= 0 for gap in numbers.itl_ms)
    assert (numbers.ttft_ms is None) == (numbers.chunks == 0)
    assert (numbers.ttfat_ms is None) == (numbers.answer + numbers.tool_call == "")
    if numbers.chunks:
        assert numbers.ttft_ms + sum(numbers.itl_ms) <= numbers.e2e_ms + 1e-6
    if numbers.tpot_ms is not None:
        assert numbers.tpot_ms * (numbers.completion_tokens - 1) >= sum(numbers.itl_ms) - 1e-6


@given(timelines())
def test_the_numbers_survive_json(timeline):
    again = Timeline.from_dict(json.loads(json.dumps(timeline.to_dict())))
    assert measure(again) == measure(timeline)
    assert deltas(again) == deltas(timeline)


@given(timelines(), st.integers(-(10**12), 10**12))
def test_only_differences_of_the_clock_matter(timeline, shift):
    events = tuple(Event(event.at_ns + shift, event.data) for event in timeline.events)
    moved = Timeline(
        **{**vars(timeline), "events": events, "sent_ns": shift, "ended_ns": timeline.ended_ns + shift}
    )
    assert measure(moved) == measure(timeline)


# --- the table ----------------------------------------------------------------------------------------------


def test_table_has_a_row_for_each_request_and_the_documented_columns():
    def script(body):
        if body["messages"][0]["content"] == "bad":
            return Script([(0, b"{}")], status=500)
        return [
            (0, ROLE),
            (0.01, chunk("a")),
            (0.01, chunk("b", finish="stop")),
            (0, usage_chunk(2)),
            (0, DONE),
        ]

    with serve(script) as server:
        measured = ask_many(server.as_server(), ["good", "bad", "good"], concurrency=1)
    frame = table(measured, prompt=["good", "bad", "good"], run=1)
    assert list(frame.columns) == ["prompt", "run", *latency.COLUMNS]
    assert list(frame.origin) == ["measured"] * 3
    assert list(frame.server) == ["fake server"] * 3
    assert list(frame.error) == [None, "http", None]
    assert list(frame.ttft_ms.isna()) == list(frame.e2e_ms.isna()) == [False, True, False]
    assert frame.loc[0, "ttft_ms"] == measure(measured[0]).ttft_ms
    assert frame.loc[0, "itl_max_ms"] == frame.loc[0, "itl_median_ms"] == measure(measured[0]).itl_ms[0]
    assert frame.sent_s[0] == 0
    assert frame.sent_s.is_monotonic_increasing
    assert frame.wait_ms.is_monotonic_increasing
    assert all(frame[name].dtype == float for name in latency.NUMBER_COLUMNS)


def test_table_of_nothing_has_its_columns():
    frame = table([])
    assert list(frame.columns) == list(latency.COLUMNS)
    assert len(frame) == 0


def test_table_keeps_the_origin_of_each_timeline_and_refuses_others():
    frame = table([timeline_of(chunk("a")), timeline_of(chunk("a"), origin="recorded")])
    assert list(frame.origin) == ["measured", "recorded"]
    assert math.isnan(frame.tpot_ms[0])
    with pytest.raises(CourseError, match="origin"):
        table([timeline_of(chunk("a"), origin="guessed")])


def test_table_refuses_columns_that_do_not_fit():
    with pytest.raises(CourseError, match="ttft_ms"):
        table([timeline_of(chunk("a"))], ttft_ms=1)
    with pytest.raises(CourseError, match="2 values for 1"):
        table([timeline_of(chunk("a"))], prompt=["x", "y"])
