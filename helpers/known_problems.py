"""Known problems of serving PhoneLLM, and tests that tell whether a server has them.

:func:`table` is the list (``data/known_problems.csv``), the dangerous one first. The other functions ask a
running server, any one that speaks the API, and answer with a :class:`Finding`. ``cannot tell`` is an honest
answer: a server that does not report cached tokens may or may not have a working cache.

The small model of the embedded engine is a poor subject for some of them: it gets sums wrong because it
cannot do sums. Where that is so, the finding says it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from helpers import api, latency, prompts, streaming
from helpers.latency import Latency
from helpers.settings import DATA, CourseError, Server

FINE, PROBLEM, UNKNOWN = "fine", "problem", "cannot tell"
MARKS = ("<think>", "</think>")
SMALL_MODEL = "smollm2-135m-instruct"  # helpers.model.NAME; a test holds the two together
LONG_LINES = 90  # of prompts.rules: longer than a block of PhoneLLM's cache; a test holds it to that
NO_TEXT, NO_TEXT_MEANS = "no text in any reply", "is this the address of a chat server, and of its /v1?"
RIGHT_SHARE = 0.9  # a 30B model that works gets all of QUESTIONS; one slip is no broken kernel

# (what is asked, words that must all be in the answer, in any case). Things that a model either computes or
# copies: a broken kernel gives fluent sentences, but not these.
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is 17 plus 25? Answer with the number only.", ("42",)),
    ("What is 9 times 8? Answer with the number only.", ("72",)),
    ("What is 100 minus 37? Answer with the number only.", ("63",)),
    ("Repeat exactly, and write nothing else: kestrel 7 blue tram", ("kestrel 7 blue tram",)),
    ("Repeat exactly, and write nothing else: order 4815, two lamps", ("order 4815, two lamps",)),
    ("Which month comes after March? Answer with one word.", ("april",)),
    ("What is the capital of France? Answer with one word.", ("paris",)),
    ("Write the opposite of hot, one word.", ("cold",)),
    ("A caller's order number is 2290. Which number did the caller give? Only the number.", ("2290",)),
    ("Put these in alphabetical order: pear, apple, fig. Only the list.", ("apple, fig, pear",)),
)


@dataclass(frozen=True)
class Finding:
    """What one test found.

    Attributes:
        problem: id of the row of :func:`table` that it is about.
        verdict: ``fine``, ``problem`` or ``cannot tell``.
        saw: what was seen, in numbers or the server's own words.
        meaning: how to read it, and what to do next.
        server: label of the server.
        origin: ``measured``, or ``recorded`` on a replayed run.
    """

    problem: str
    verdict: str
    saw: str
    meaning: str
    server: str
    origin: str


Test = Callable[[Server], Finding]


def table() -> pd.DataFrame:
    """The known problems, a row each, wrong text first. Columns: ``problem``, ``affects`` (engine, version,
    GPU, format), ``what_to_do``, ``how_to_test`` (a function of this module, a command or a look at the log),
    ``status`` when we last read of it, ``source``, ``date``; the index is ``id``."""
    frame = pd.read_csv(DATA / "known_problems.csv", dtype=str, keep_default_na=False).set_index("id")
    return frame[["problem", "affects", "what_to_do", "how_to_test", "status", "source", "date"]]


def check(server: Server, *tests: Test) -> pd.DataFrame:
    """Run the given tests, or all, one after another: a row each, with the columns of :class:`Finding`."""
    return pd.DataFrame([vars(test(server)) for test in tests or TESTS])


# ---------------------------------------------------------------------------------------------------------
# Tests
# ---------------------------------------------------------------------------------------------------------


def _about(server: Server, problem: str) -> Callable[[str, str, str], Finding]:
    """Findings about one row of the list: a function of verdict, what was seen and what it means."""

    def found(verdict: str, saw: str, meaning: str) -> Finding:
        return Finding(problem, verdict, saw, meaning, server.name, server.origin)

    return found


def _test(problem: str) -> Callable[[Test], Test]:
    """A test whose requests fail has found out nothing about its problem, and says so."""

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        def run(server: Server) -> Finding:
            try:
                return test(server)
            except CourseError as error:
                return _about(server, problem)(UNKNOWN, str(error), "the request failed: see to that first")

        return run

    return wrap


def answers(server: Server) -> pd.DataFrame:
    """Ask :data:`QUESTIONS`, temperature 0, thinking off: ``question``, ``expected``, ``answer``, ``right``
    and ``origin``."""
    rows = []
    for question, words in QUESTIONS:
        got = _ask(server, question, max_tokens=32)
        said = _flat(got.answer or got.reasoning)
        right = all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", said) for word in words)
        rows.append((question, ", ".join(words), said, right, server.origin))
    return pd.DataFrame(rows, columns=["question", "expected", "answer", "right", "origin"])


@_test("wrong-text-nvfp4")
def wrong_text(server: Server) -> Finding:
    """Does the server compute what it should? Questions with one known answer each, at temperature 0.

    A large model whose kernels are right gets them all. One whose kernels are wrong still writes fluent
    sentences, so reading its replies does not show it; these do. The embedded engine's 135M model fails for
    want of ability, which says nothing about kernels.
    """
    found = _about(server, "wrong-text-nvfp4")
    frame = answers(server)
    right, asked = int(frame["right"].sum()), len(frame)
    saw = f"{right} of {asked} right"
    if server.model == SMALL_MODEL:
        return found(
            UNKNOWN,
            saw,
            "this small model cannot do most of these, right kernels or not: the test is for the real one",
        )
    if right >= RIGHT_SHARE * asked:
        return found(FINE, saw, "it copies and computes as it should")
    return found(
        PROBLEM,
        saw,
        "look at known_problems.answers(server); with NVFP4 on a B200, start with --moe-backend "
        "flashinfer_cutlass and ask again; compare with the BF16 weights",
    )


@_test("think-leak")
def think_leak(server: Server) -> Finding:
    """With thinking off: does a mark of thinking get into the answer, or the answer into the reasoning field?

    Asked four ways, streamed and not, with thinking turned off in the request and by the server's default,
    because parsers differ between them.
    """
    found = _about(server, "think-leak")
    seen: list[str] = []
    thinks_by_default = said_something = False
    for asked, thinking in (("in the request", False), ("by the server's default", None)):
        for way in (True, False):
            got = _ask(server, prompts.HELLO, thinking=thinking, stream=way, max_tokens=24)
            how = f"{'streamed' if way else 'not streamed'}, off {asked}"
            said_something |= bool(got.answer or got.reasoning)
            if any(mark in got.answer for mark in MARKS):
                seen.append(f"{how}: the answer has {' and '.join(m for m in MARKS if m in got.answer)}")
            elif (got.reasoning and not got.answer) or got.answer_in_reasoning:
                if thinking is None and way:
                    thinks_by_default = True
                elif not thinks_by_default:
                    seen.append(f"{how}: the answer came in the reasoning field")
    if seen:
        return found(
            PROBLEM,
            "; ".join(seen),
            "stream, send enable_thinking false in each request, and try it with the plugin and without",
        )
    if not said_something:
        return found(UNKNOWN, NO_TEXT, NO_TEXT_MEANS)
    saw = "no mark in an answer, no answer in the reasoning field"
    if thinks_by_default:
        return found(
            FINE,
            f"{saw}; but it thinks unless the request says no",
            "send enable_thinking false, or start it with --default-chat-template-kwargs",
        )
    return found(FINE, saw, "a voice would read out the answer and nothing else")


@_test("reasoning-field")
def field_name(server: Server) -> Finding:
    """With thinking on: under which name does the thinking arrive? ``reasoning``, ``reasoning_content`` or,
    without a parser, ``content``."""
    found = _about(server, "reasoning-field")
    timeline = _send(server, streaming.chat_request("What is 2 plus 2?", thinking=True, max_tokens=48))
    used: dict[str, str] = {}
    for event in timeline.events:
        for name, text in _delta(event.data).items():
            if name in ("reasoning", "reasoning_content", "content") and isinstance(text, str):
                used[name] = used.get(name, "") + text
    used = {name: text for name, text in used.items() if text}
    saw = f"text in: {', '.join(used) or 'no field'}"
    if any(mark in used.get("content", "") for mark in MARKS):
        return found(
            PROBLEM,
            f"{saw}; the answer has a mark of thinking in it",
            "thinking goes to the caller: start the server with a reasoning parser, or keep thinking off",
        )
    if "reasoning" in used or "reasoning_content" in used:
        empty = "" if used.get("content") else "; no answer within 48 tokens"
        return found(FINE, saw + empty, "a client must read this name; helpers.latency reads both")
    return found(
        UNKNOWN,
        saw,
        "no thinking was seen: the model did not think, or the switch is not passed to the template",
    )


@_test("short-prompt-no-hit")
def prefix_hits(server: Server) -> Finding:
    """Is a prompt that was seen before taken from the cache, and is the answer the same then?

    A long prompt and a short one, each new to the server, each sent twice. Hits come in whole blocks, and a
    block of PhoneLLM has 2,096 tokens (vLLM 0.27.1, mode align, KV cache in BF16: so many tokens of KV cache
    take up as much as one Mamba state). The long prompt has about 2,700.
    """
    hits, changed = [], []
    for label, lines in (("long", LONG_LINES), ("short", 8)):
        prompt = f"{prompts.call_id()}\n{prompts.rules(lines)}\n\nHow many days may a return take by rule 3?"
        first, again = (_ask(server, prompt, max_tokens=24) for _ in range(2))
        if again.cached_tokens is None:
            return _about(server, "short-prompt-no-hit")(
                UNKNOWN,
                "the server does not say how many tokens came from its cache",
                "start it with --enable-prompt-tokens-details (SGLang: --enable-cache-report)",
            )
        hits.append((label, again.prompt_tokens or 0, again.cached_tokens))
        if first.answer != again.answer:
            changed.append(label)
    saw = "; ".join(f"{label} prompt: {hit} of {tokens} tokens cached" for label, tokens, hit in hits)
    if changed:
        return _about(server, "mamba-cache-all-nan")(
            PROBLEM,
            f"{saw}; another answer from the cache ({', '.join(changed)})",
            "a word or two may differ by rounding; if it is garbage, use --mamba-cache-mode align",
        )
    if not hits[0][2]:
        return _about(server, "prefix-cache-off")(
            PROBLEM,
            saw,
            "no hit at all: start it with --enable-prefix-caching and --mamba-cache-mode align; if it has "
            "both, its blocks may be longer than the prompt (its log: Setting attention block size to)",
        )
    if not hits[1][2]:
        return _about(server, "short-prompt-no-hit")(
            PROBLEM,
            saw,
            "prompts shorter than a block have no hits: keep what never changes long and in front",
        )
    return _about(server, "short-prompt-no-hit")(FINE, saw, "the cache works, for short prompts too")


@_test("sampling-by-default")
def temperature_default(server: Server) -> Finding:
    """Without a temperature in the request: does the server sample? Four equal requests, then four with
    temperature 0 to compare with."""
    found = _about(server, "sampling-by-default")
    question = "Tell me something about bicycles that few people know."
    free = {_ask(server, question, temperature=None, max_tokens=24).answer for _ in range(4)}
    fixed = {_ask(server, question, max_tokens=24).answer for _ in range(4)}
    saw = f"{len(free)} different answers of 4 without temperature, {len(fixed)} of 4 with temperature 0"
    if not any(free | fixed):
        return found(UNKNOWN, NO_TEXT, NO_TEXT_MEANS)
    if len(fixed) > 1:
        return found(
            UNKNOWN, saw, "it varies even at temperature 0 (other requests in the same batch can do that)"
        )
    if len(free) > 1:
        return found(
            PROBLEM, saw, "send temperature 0 in each request, or start it with --override-generation-config"
        )
    return found(FINE, saw, "its default is not to sample")


@_test("raw-tool-call")
def raw_tool_call(server: Server) -> Finding:
    """Does a tool call come as a tool call, or as marks in the text?"""
    found = _about(server, "raw-tool-call")
    got = _ask(
        server,
        prompts.conversation("Where is my order 4815?"),
        max_tokens=96,
        tools=[prompts.ORDER_TOOL],
        tool_choice="auto",
    )
    if any(mark in got.answer for mark in ("<tool_call>", "<function=", "</tool_call>")):
        return found(
            PROBLEM,
            f"in the text: {got.answer[:80]!r}",
            "is --tool-call-parser the one for this model (qwen3_coder)? Check each call before using it",
        )
    if got.tool_call:
        return found(FINE, f"a call: {got.tool_call[:80]}", "parsed into fields")
    return found(
        UNKNOWN, f"no call; it said: {got.answer[:60]!r}", "the model chose not to call, as small ones do"
    )


@_test("queue-as-latency")
def queueing(server: Server) -> Finding:
    """Do requests wait at the server right now? From its ``/metrics`` page; ask while a load runs."""
    found = _about(server, "queue-as-latency")
    try:
        frame = api.metrics(server)
    except api.Refused as error:
        return found(UNKNOWN, str(error).splitlines()[0], "no metrics to read")
    names = {"vllm:num_requests_waiting": "waiting", "sglang:num_queue_reqs": "waiting"}
    names |= {"vllm:num_requests_running": "running", "sglang:num_running_reqs": "running"}
    counts = frame[frame["name"].isin(names)].groupby(frame["name"].map(names))["value"].sum()
    if "waiting" not in counts:
        return found(UNKNOWN, "no such metric", "another engine, or metrics are off")
    saw = f"{counts.get('running', 0):.0f} running, {counts['waiting']:.0f} waiting"
    if counts["waiting"]:
        return found(
            PROBLEM,
            saw,
            "TTFT now is mostly the wait in the queue: fewer callers, or a larger --max-num-seqs",
        )
    return found(FINE, saw, "nobody waits at this moment")


TESTS: tuple[Test, ...] = (
    wrong_text,
    think_leak,
    field_name,
    prefix_hits,
    temperature_default,
    raw_tool_call,
    queueing,
)


# ---------------------------------------------------------------------------------------------------------
# One request
# ---------------------------------------------------------------------------------------------------------


def _ask(
    server: Server,
    prompt: str | Sequence[streaming.Message],
    *,
    thinking: bool | None = False,
    temperature: float | None = 0,
    stream: bool = True,
    **options: Any,
) -> Latency:
    request = streaming.chat_request(prompt, thinking=thinking, **options)
    if temperature is None:
        del request["temperature"]
    if not stream:
        del request["stream"], request["stream_options"]
    return latency.measure(_send(server, request))


def _send(server: Server, request: streaming.Request) -> streaming.Timeline:
    timeline = streaming.ask(server, request)
    if timeline.error:
        raise CourseError(timeline.error.message)
    return timeline


def _delta(data: str) -> dict[str, Any]:
    try:
        delta = json.loads(data)["choices"][0]["delta"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return delta if isinstance(delta, dict) else {}


def _flat(text: str) -> str:
    return " ".join(text.split()).lower()
