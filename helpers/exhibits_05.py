"""Figures of lesson 05, from its recorded run: what a timer sees, what moves TTFT, what a P95 is worth."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pandas as pd
from prometheus_client.parser import text_string_to_metric_families

from helpers import api, figures, latency, opinions, recorded, stats
from helpers.exhibit import Exhibit
from helpers.run_file import Run
from helpers.settings import CourseError
from helpers.streaming import Timeline

LESSON = "05_measure_ttft"
SAMPLE_COUNTS = (10, 20, 40, 60, 80, 100, 150, 200)
WARM_UPS = 5  # of the short requests, sent first and not counted
BUDGETS = (0, 10, 40)  # tokens of thinking
LABELS = {"plain question": (), "tool call": ("tools", "tool_choice")}


@cache
def _run() -> Run:
    return recorded.load(recorded.RUNS / f"{LESSON}.jsonl.gz")


def _good(*fields: str) -> list[Timeline]:
    """Requests with exactly these fields beside those that all have, answered without an error."""
    usual = {"model", "messages", "max_tokens", "temperature", "stream", "stream_options"}
    wanted = usual | {"chat_template_kwargs"} | set(fields)
    return [one for one in _run().timelines if set(one.request) == wanted and one.error is None]


def _first(label: str, found: list[Timeline]) -> Timeline:
    if not found:
        raise CourseError(f"The recorded run of lesson 05 has no {label}. Type: make record")
    return found[0]  # lesson 05 has warmed both kinds up before, with its naive timer


def replies(*labels: str) -> pd.DataFrame:
    """Every chunk of the plain question and of the tool call, or of those named.

    Raises:
        CourseError: the recorded run lacks one of them.
    """
    chosen = {label: _first(label, _good(*LABELS[label])) for label in labels or LABELS}
    name = _run().conditions["server"]["name"]
    return latency.chunk_table(chosen).assign(origin="recorded", server=name)


def emoji() -> pd.DataFrame:
    """Every chunk of the reply with emoji."""
    return latency.chunk_table({"emoji": _first("reply with emoji", _good("structured_outputs"))})


def gaps() -> pd.DataFrame:
    """Gaps between the chunks of a plain reply, of one that thinks first, and of one with emoji."""
    thinking = [one for one in _thinking() if _budget(one) == max(BUDGETS)]
    chosen = {
        "plain question": _first("plain question", _good()),
        "thinks first": _first("reply that thinks", thinking),
        "emoji": _first("reply with emoji", _good("structured_outputs")),
    }
    rows = [
        {"reply": label, "gap_ms": gap, "server": one.server, "origin": one.origin}
        for label, one in chosen.items()
        for gap in latency.measure(one).itl_ms
    ]
    return pd.DataFrame(rows)


def lengths() -> pd.DataFrame:
    """TTFT of prompts of several lengths, new to the server (``cold``) and once more (``cached``)."""
    short = [one for one in _good() if one.request["max_tokens"] == 2]
    asked = Counter(json.dumps(one.request["messages"]) for one in short)
    pairs = [one for one in short if asked[json.dumps(one.request["messages"])] == 2]
    seen: set[str] = set()
    caches = []
    for one in pairs:
        words = json.dumps(one.request["messages"])
        caches.append("cached" if words in seen else "cold")
        seen.add(words)
    frame = latency.table(pairs, cache=caches)
    rules = [one.request["messages"][0]["content"].count("Rule ") for one in pairs]
    frame["prompt_tokens"] = frame.groupby(rules)["prompt_tokens"].transform("median")  # ids differ by one
    return frame


def _budget(one: Timeline) -> int:
    return int(one.request.get("thinking_token_budget", 0))


def _thinking() -> list[Timeline]:
    found = _good("ignore_eos") + _good("ignore_eos", "thinking_token_budget")
    return [one for one in found if _budget(one) in BUDGETS]


def thoughts() -> pd.DataFrame:
    """TTFT and TTFAT with thinking off, and with two budgets for it."""
    found = sorted(_thinking(), key=_budget)
    labels = [f"thinking, {_budget(one)} tokens" if _budget(one) else "thinking off" for one in found]
    return latency.table(found, label=labels)


def _many() -> pd.DataFrame:
    """The row of short requests, one after the other, without the first few."""
    found = [one for one in _run().timelines if one.request["max_tokens"] == 1]
    return latency.table(found[WARM_UPS:])


def growing() -> pd.DataFrame:
    """The P95 of TTFT and its interval, as the short requests came in."""
    times = _many()["ttft_ms"]
    found = [vars(stats.percentile(times[:n], 0.95)) for n in SAMPLE_COUNTS if n <= len(times)]
    return pd.DataFrame(found).assign(origin="recorded", server=_run().conditions["server"]["name"])


def both_clocks() -> pd.DataFrame:
    """The same requests by the client's clock, and in the server's histogram, read before and after them.

    Raises:
        CourseError: the server's page was not read before and after.
    """
    pages = [page.text for page in _run().pages if page.path == "/metrics"]
    if len(pages) < 2:
        raise CourseError("The recorded run of lesson 05 has no two readings of /metrics. Type: make record")
    before, after = (_histogram(text) for text in (pages[0], pages[1]))
    total = after["count"] - before["count"]
    buckets = pd.DataFrame({"side": "server", "le_s": after["le"], "count": total.diff().fillna(total)})
    client = _many()[["ttft_ms"]].assign(side="client")
    frame = pd.concat([client, buckets], ignore_index=True)
    return frame.assign(origin="recorded", server=_run().conditions["server"]["name"])


def _histogram(text: str) -> pd.DataFrame:
    rows = [
        {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    return api.histogram(pd.DataFrame(rows), "vllm:time_to_first_token_seconds")


def tools(workload: str) -> pd.DataFrame:
    """One of the two workloads of lesson 05, timed by three tools."""
    kept = recorded.load_table(opinions.RECORDED_TABLE)
    return kept[kept["workload"] == workload].reset_index(drop=True)


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "05-two-replies",
        figures.stream_timeline,
        replies,
        "A naive timer stops at the first chunk; for a tool call that is long before anything the caller "
        "could get.",
        {"title": "What a naive timer sees (first chunk), and what the caller gets (TTFAT)"},
    ),
    Exhibit(
        "05-plain-question",
        figures.stream_timeline,
        lambda: replies("plain question"),
        "For a plain question the first chunk comes with the first token, and the naive timer is nearly "
        "right.",
        {"title": "A plain question, chunk by chunk"},
    ),
    Exhibit(
        "05-tool-call",
        figures.stream_timeline,
        lambda: replies("tool call"),
        "For a tool call the first chunk is empty, and a timer that stops there is wrong.",
        {"title": "A tool call, chunk by chunk"},
    ),
    Exhibit(
        "05-emoji",
        figures.stream_timeline,
        emoji,
        "Chunks are not tokens: the server holds an emoji back until all its tokens are made.",
        {"title": "An emoji is several tokens"},
    ),
    Exhibit(
        "05-itl",
        figures.itl,
        gaps,
        "Between the chunks of plain text the gaps are nearly even; where several tokens share a chunk "
        "they are longer.",
        {"title": "Gaps between chunks (ITL), in three replies"},
    ),
    Exhibit(
        "05-prompt-length",
        figures.ttft_by_prompt_length,
        lengths,
        "TTFT grows with the part of the prompt that the server has not computed before.",
        {"title": "TTFT grows with the part of the prompt that is new"},
    ),
    Exhibit(
        "05-thinking",
        figures.latency_bars,
        thoughts,
        "Every token of thought moves the first token of the answer, and TTFT does not show it.",
        {"title": "Thinking leaves TTFT alone and moves TTFAT"},
    ),
    Exhibit(
        "05-p95-samples",
        figures.percentile_by_samples,
        growing,
        "A P95 from a few dozen requests has no upper bound; it needs more of them than one thinks.",
        {"name": "P95 of TTFT", "title": "A P95 needs more requests than one thinks"},
    ),
    Exhibit(
        "05-client-and-server",
        figures.client_vs_server,
        both_clocks,
        "The server's histogram knows between which edges a request fell, and no more; the client knows "
        "each one.",
        {"title": "Your clock and the server's"},
    ),
    Exhibit(
        "05-tools-thinking",
        figures.tool_comparison,
        lambda: tools("thinks first"),
        "On a reply that thinks first the tools agree about TTFT, and one of them has no TTFAT.",
        {"title": "A reply that thinks first"},
    ),
    Exhibit(
        "05-tools-call",
        figures.tool_comparison,
        lambda: tools("calls a tool"),
        "On a tool call one tool is far off: it stops its clock at the first chunk of any kind.",
        {"title": "A reply that calls a tool"},
    ),
)
