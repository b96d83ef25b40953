"""From a timeline to its numbers: TTFT, TTFAT, ITL, TPOT, end-to-end. Defined here and nowhere else.

All times are in milliseconds and count from ``sent_ns``, the moment before the request was handed to the HTTP
client. The definitions, and why:

first_chunk_ms
    First event of any kind: what a naive timer reports. In a chat stream it is usually the chunk that says
    ``role: assistant`` and holds no token, so it is not TTFT.
ttft_ms
    Time to first token: first chunk with reasoning text, answer text or a tool call in it. Thinking counts,
    because a token of thinking is as much work as one of the answer. The field has two names, ``reasoning``
    and (older) ``reasoning_content``; both count. So do aiperf and guidellm. ``vllm bench serve`` differs:
    0.27.1 stops its clock at the role-only chunk; 0.33.0 does not know ``reasoning_content`` and then reports
    TTFAT as TTFT.
ttfat_ms
    Time to first answer token: the first thing the caller would get, answer text or a tool call. A turn that
    calls a tool ends its wait at the call; the answer after the tool's result is a measurement of its own.
    With thinking off it equals TTFT. The name is Pipecat's (``TTFATMetricsData``); aiperf and guidellm call
    it time to first output token.
first_speakable_ms
    First answer text that is not only white space. A leading newline is a token, so it counts for the two
    above, which stay literal; but a voice cannot say it.
itl_ms
    Inter-token latency: the gaps between token-bearing chunks. Chunks that arrive in one read have a gap of
    0.
tpot_ms
    Time per output token: from the first token to the last, divided by ``completion_tokens - 1``. The server
    counts the tokens (``usage``), not we the chunks, because a chunk can hold several. The last token can be
    the one that means "stop": it is counted, has no text, and arrives with ``finish_reason``; so the clock
    runs to that chunk.
e2e_ms
    End-to-end: the last event, for requests that ended well.

A number that was not observed is None: no TTFT without a token, no TPOT without ``usage`` or with fewer than
two tokens, no end-to-end time of a request that failed. An answer that came without streaming shows its
end-to-end time only: when its first token was made cannot be known, and a caller waits for the whole. (A
proxy that holds a stream back until it is complete does the same and still looks like streaming: TTFT is
then close to end-to-end and all gaps are 0.)

A chunk with empty text and no role is no token here. The server may have made one all the same: it sends such
chunks while it holds back half an emoji. Those tokens are in ``completion_tokens``.

With thinking switched off in the request (``chat_template_kwargs.enable_thinking`` false), the reasoning
parser of a server may still put the whole answer into the reasoning field. If text came only there, it is
the answer, and ``answer_in_reasoning`` says so.

Sources: the metrics and SSE modules of aiperf 0.13.0, guidellm 0.8.1, vllm 0.27.1 and vllm 0.33.0;
pipecat-ai/pipecat, ``src/pipecat/metrics/metrics.py``, commit acead05 (2026-08-21).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

import pandas as pd

from helpers.origins import validate
from helpers.settings import CourseError
from helpers.stream_errors import DONE, StreamError, as_json, read_chunk, reported
from helpers.streaming import Timeline

KINDS = ("role", "reasoning", "answer", "tool_call", "empty", "finish", "usage", "error")
TOKEN_KINDS = ("reasoning", "answer", "tool_call")
ANSWER_KINDS = ("answer", "tool_call")


@dataclass(frozen=True)
class Delta:
    """One piece of the answer, as one chunk brought it.

    Attributes:
        at_ms: arrival, in milliseconds after the request was sent.
        kind: one of :data:`KINDS`.
        text: the text; of a tool call, the name and the piece of the arguments; of a finish, its reason; of
            an error, its JSON.
        tokens: how many tokens the chunk holds, if the server says so: vLLM does with
            ``stream_options={"include_usage": True, "continuous_usage_stats": True}``. Otherwise None.
        chunk: number of the chunk, from 0. A chunk with several things in it gives several deltas with the
            same number and time; the first of them has the ``tokens``, the others 0.
    """

    at_ms: float
    kind: str
    text: str
    tokens: int | None
    chunk: int


@dataclass(frozen=True)
class Latency:
    """The numbers of one request. Times in ms; definitions in the module's docstring; None: not observed.

    Attributes:
        ttft_ms: time to first token.
        ttfat_ms: time to first answer token (answer text or tool call).
        itl_ms: gaps between token-bearing chunks, one fewer than ``chunks``.
        tpot_ms: time per output token.
        e2e_ms: end-to-end.
        first_chunk_ms: what a naive timer would call TTFT.
        first_speakable_ms: first answer text that is not only white space.
        wait_ms: time the request was due but waited in our own client; not part of the times above.
        connect_ms: opening the connection; part of the times above. 0: an open one was used again.
        prompt_tokens: tokens of the prompt, template included, as counted by the server.
        completion_tokens: tokens generated, as counted by the server: reasoning and the stop token too.
        reasoning_tokens: those of them that were thinking, if the server says.
        cached_tokens: prompt tokens found in the prefix cache, if the server says.
        chunks: token-bearing chunks.
        tokens_per_chunk: ``completion_tokens / chunks``. Far above 1: chunks are not tokens on this server.
        finish_reason: ``stop``, ``length`` or ``tool_calls``, for example.
        answer: the answer's text.
        reasoning: the thinking's text.
        tool_call: names and arguments of tool calls, as text.
        answer_in_reasoning: the answer came in the reasoning field although thinking was off.
        streamed: False if the answer came in one piece.
        error: what went wrong, see :class:`helpers.stream_errors.StreamError`.
    """

    ttft_ms: float | None
    ttfat_ms: float | None
    itl_ms: tuple[float, ...] = field(repr=False)
    tpot_ms: float | None
    e2e_ms: float | None
    first_chunk_ms: float | None
    first_speakable_ms: float | None
    wait_ms: float
    connect_ms: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    chunks: int
    tokens_per_chunk: float | None
    finish_reason: str | None
    answer: str
    reasoning: str
    tool_call: str
    answer_in_reasoning: bool
    streamed: bool
    error: StreamError | None


def deltas(timeline: Timeline) -> list[Delta]:
    """What the chunks of a timeline brought, in order of arrival. ``[DONE]`` is no delta.

    An answer without streaming gives its parts, all at the time of the whole.
    """
    return _deltas(timeline, _chunks(timeline))[0]


def chunk_table(replies: Mapping[str, Timeline]) -> pd.DataFrame:
    """Every delta of one or several replies as a frame, for looking at and for ``figures.stream_timeline``.

    Args:
        replies: a label for each timeline.

    Returns:
        Columns ``reply`` (the label), ``at_ms``, ``kind``, ``text`` as in :class:`Delta`, ``ttft_ms`` and
        ``ttfat_ms`` of the reply, ``server`` and ``origin``.
    """
    rows = []
    for label, timeline in replies.items():
        latency = measure(timeline)
        rows += [
            {
                "reply": label,
                "at_ms": delta.at_ms,
                "kind": delta.kind,
                "text": delta.text,
                "ttft_ms": latency.ttft_ms,
                "ttfat_ms": latency.ttfat_ms,
                "server": timeline.server,
                "origin": timeline.origin,
            }
            for delta in deltas(timeline)
        ]
    columns = ["reply", "at_ms", "kind", "text", "ttft_ms", "ttfat_ms", "server", "origin"]
    return pd.DataFrame(rows, columns=columns)


def measure(timeline: Timeline) -> Latency:
    """The numbers of one request; definitions in the module's docstring."""
    chunks = _chunks(timeline)
    found, answer_in_reasoning = _deltas(timeline, chunks)
    usages = [_dict(chunk.get("usage")) for _, chunk in chunks]
    usage = next((usage for usage in reversed(usages) if usage), {})
    tokens = _int(usage.get("completion_tokens"))
    token_chunks = {d.chunk: d.at_ms for d in found if d.kind in TOKEN_KINDS}
    due_ns = timeline.sent_ns if timeline.due_ns is None else timeline.due_ns

    # Without streaming all tokens came at once, and nothing is known about the time of any of them.
    seen = found if timeline.streamed else []
    token_times = list(token_chunks.values()) if timeline.streamed else []
    ends = [d.at_ms for d in seen if d.kind in (*TOKEN_KINDS, "finish")]
    tpot_ms = (ends[-1] - token_times[0]) / (tokens - 1) if token_times and (tokens or 0) > 1 else None

    def joined(kind: str) -> str:
        return "".join(d.text for d in found if d.kind == kind)

    return Latency(
        ttft_ms=next((d.at_ms for d in seen if d.kind in TOKEN_KINDS), None),
        ttfat_ms=next((d.at_ms for d in seen if d.kind in ANSWER_KINDS), None),
        itl_ms=tuple(later - earlier for earlier, later in pairwise(token_times)),
        tpot_ms=tpot_ms,
        e2e_ms=_ms(timeline, timeline.events[-1].at_ns) if timeline.events and not timeline.error else None,
        first_chunk_ms=found[0].at_ms if found else None,
        first_speakable_ms=next((d.at_ms for d in seen if d.kind == "answer" and d.text.strip()), None),
        wait_ms=(timeline.sent_ns - due_ns) / 1e6,
        connect_ms=None if timeline.connect_ns is None else timeline.connect_ns / 1e6,
        prompt_tokens=_int(usage.get("prompt_tokens")),
        completion_tokens=tokens,
        reasoning_tokens=_int(_dict(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        cached_tokens=_int(_dict(usage.get("prompt_tokens_details")).get("cached_tokens")),
        chunks=len(token_chunks),
        tokens_per_chunk=tokens / len(token_chunks) if tokens and token_chunks else None,
        finish_reason=next((d.text for d in reversed(found) if d.kind == "finish"), None),
        answer=joined("answer"),
        reasoning=joined("reasoning"),
        tool_call=joined("tool_call"),
        answer_in_reasoning=answer_in_reasoning,
        streamed=timeline.streamed,
        error=timeline.error,
    )


NUMBER_COLUMNS = (
    "sent_s",
    "wait_ms",
    "connect_ms",
    "first_chunk_ms",
    "ttft_ms",
    "ttfat_ms",
    "first_speakable_ms",
    "itl_median_ms",
    "itl_max_ms",
    "tpot_ms",
    "e2e_ms",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "chunks",
    "tokens_per_chunk",
)
TEXT_COLUMNS = ("server", "origin", "finish_reason", "error", "error_message")
FLAG_COLUMNS = ("streamed", "answer_in_reasoning")
COLUMNS = (*TEXT_COLUMNS[:2], *NUMBER_COLUMNS, *TEXT_COLUMNS[2:], *FLAG_COLUMNS)


def table(timelines: Iterable[Timeline], **columns: Any) -> pd.DataFrame:
    """One row for each request, in order, failed ones too: ``error`` says which, so leave them out knowingly.

    Args:
        timelines: what was measured.
        **columns: further columns, put first: one value for all rows, or a list with one for each.

    Returns:
        A frame with :data:`COLUMNS`. ``server`` and ``origin`` come from the timeline; ``sent_s`` is the
        time of sending in seconds after the first of the table; ``itl_median_ms`` and ``itl_max_ms`` are
        over the gaps of the request; ``error`` is the kind of error and ``error_message`` its text, None if
        all went well; the others as in :class:`Latency`. What was not observed is NaN (numbers, all float)
        or None (text).

    Raises:
        CourseError: a further column has the name of one that is there, or a wrong number of values.
    """
    timelines = list(timelines)
    rows = [_row(timeline) for timeline in timelines]
    frame = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)  # object keeps None as None
    start_ns = min((timeline.sent_ns for timeline in timelines), default=0)
    frame["sent_s"] = [(timeline.sent_ns - start_ns) / 1e9 for timeline in timelines]
    types = ((NUMBER_COLUMNS, float), (TEXT_COLUMNS, object), (FLAG_COLUMNS, bool))
    frame = frame.astype({name: kind for names, kind in types for name in names})
    for place, (name, values) in enumerate(columns.items()):
        if name in COLUMNS:
            raise CourseError(f"The table has a column {name} of its own. Give yours another name.")
        if not isinstance(values, str) and isinstance(values, Sequence) and len(values) != len(frame):
            raise CourseError(
                f"{name} has {len(values)} values for {len(frame)} requests. Give one for each."
            )
        frame.insert(place, name, values)
    return validate(frame, used_by="latency.table")


def _row(timeline: Timeline) -> dict[str, Any]:
    latency = measure(timeline)
    error = latency.error
    return vars(latency) | {
        "server": timeline.server,
        "origin": timeline.origin,
        "itl_median_ms": median(latency.itl_ms) if latency.itl_ms else None,
        "itl_max_ms": max(latency.itl_ms, default=None),
        "error": error.kind if error else None,
        "error_message": error.message if error else None,
    }


def _ms(timeline: Timeline, at_ns: int) -> float:
    return (at_ns - timeline.sent_ns) / 1e6


def _chunks(timeline: Timeline) -> list[tuple[float, dict[str, Any]]]:
    """Arrival and JSON of each chunk. One that is no JSON object counts as an error the server sent."""
    chunks = []
    for event in timeline.events:
        if event.data != DONE:
            chunk = read_chunk(event.data)
            if chunk is None:
                chunk = {"error": event.data}
            chunks.append((_ms(timeline, event.at_ns), chunk))
    return chunks


def _deltas(timeline: Timeline, chunks: list[tuple[float, dict[str, Any]]]) -> tuple[list[Delta], bool]:
    """The deltas of all chunks, and whether the answer came in the reasoning field."""
    found: list[Delta] = []
    counted = 0
    for number, (at_ms, chunk) in enumerate(chunks):
        tokens = None
        so_far = _int(_dict(chunk.get("usage")).get("completion_tokens"))
        parts = _parts(chunk)
        if so_far is not None and parts[0][0] != "usage":
            tokens, counted = so_far - counted, so_far
        for kind, text in parts:
            found.append(Delta(at_ms, kind, text, tokens, number))
            tokens = None if tokens is None else 0
    kinds = {delta.kind for delta in found}
    thinking_off = _dict(timeline.request.get("chat_template_kwargs")).get("enable_thinking") is False
    if thinking_off and "reasoning" in kinds and "answer" not in kinds:
        return [replace(d, kind="answer") if d.kind == "reasoning" else d for d in found], True
    return found, False


def _parts(chunk: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and text of what one chunk holds; at least one entry. What is not as it should be is not there."""
    if error := reported(chunk):
        return [("error", as_json(error))]
    choices = _list(chunk.get("choices"))
    if not choices:
        return [("usage" if _dict(chunk.get("usage")) else "empty", "")]
    choice = _dict(choices[0])
    delta = _dict(choice.get("delta")) or _dict(choice.get("message"))
    calls = [_dict(_dict(call).get("function")) for call in _list(delta.get("tool_calls"))]
    parts = [
        # Some servers send the same text under both names: it is one text.
        ("reasoning", _text(delta.get("reasoning")) or _text(delta.get("reasoning_content"))),
        ("answer", _text(delta.get("content"))),
        ("tool_call", "".join(_text(call.get("name")) + _arguments(call.get("arguments")) for call in calls)),
        ("finish", _text(choice.get("finish_reason"))),
    ]
    parts = [(kind, text) for kind, text in parts if text]
    return parts or [("role" if delta.get("role") else "empty", "")]


def _text(content: Any) -> str:
    """Text of a content field, which may also be missing, null or a list of parts."""
    if isinstance(content, list):
        content = "".join(text for part in content if isinstance(text := _dict(part).get("text"), str))
    return content if isinstance(content, str) else ""


def _arguments(arguments: Any) -> str:
    """A tool call's arguments: JSON text as the API has it, or the object itself, as some servers send it."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else as_json(arguments)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any) -> int | None:
    """A count, or None for what cannot be one."""
    return value if type(value) is int and 0 <= value < 2**63 else None
