"""The server's own view of a load: its ``/metrics`` page, read every second while the load runs.

A client sees that answers come later; only the server can say why. From its page: how many requests it is
working on, how many wait in its queue, how much of the prompts it found in its prefix cache, and how many
tokens it handles in one step.

The page is read inside the load's own event loop and kept as text; it is parsed when the run has ended, so
that parsing delays no time stamp. Making the page costs the server some milliseconds of its own, which is why
it is not asked more often.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import pandas as pd

from helpers.api import root
from helpers.settings import Server

EVERY_S = 1.0
TIMEOUT_S = 5.0

# Our name for it -> vLLM's. All are summed over label sets, that is, over the engines behind one page.
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_cache_share": "vllm:kv_cache_usage_perc",
}
COUNTERS = {
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
}
STEP_TOKENS, STEPS = "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count"
COLUMNS = ("at_s", *GAUGES, *COUNTERS, "steps", "tokens_per_step", "hit_share", "server", "origin")


@dataclass(frozen=True)
class Sample:
    """One page: when it was complete, in seconds since the start of the run, and its text."""

    at_s: float
    text: str


async def sample(server: Server, start_ns: int, kept: list[Sample], *, every_s: float = EVERY_S) -> None:
    """Read the page again and again and append to ``kept``, until cancelled. A server that shows no such page
    is asked three times; one that does not answer in time is asked again later.

    Args:
        server: whom to ask.
        start_ns: start of the run (``time.perf_counter_ns``).
        kept: where the pages go.
        every_s: seconds from one to the next.
    """
    headers = {"Authorization": f"Bearer {server.api_key.strip()}"} if server.api_key else {}
    limits = aiohttp.ClientTimeout(total=TIMEOUT_S)
    due_ns, refused = start_ns, 0
    async with aiohttp.ClientSession(trust_env=False, headers=headers, timeout=limits) as session:
        while refused < 3:
            with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                async with session.get(f"{root(server)}/metrics", allow_redirects=False) as response:
                    text = await response.text(errors="replace")
                    at_s = (time.perf_counter_ns() - start_ns) / 1e9
                    if response.status == 200 and _sums(text, {GAUGES["running"]}):
                        kept.append(Sample(at_s, text))
                        refused = 0
                    else:
                        refused += 1
            due_ns = max(due_ns + round(every_s * 1e9), time.perf_counter_ns())
            await asyncio.sleep((due_ns - time.perf_counter_ns()) / 1e9)


def table(samples: list[Sample], server: Server) -> pd.DataFrame:
    """The pages as a frame, one row each.

    Columns: ``at_s``; ``running`` and ``waiting`` (requests, at that moment); ``kv_cache_share`` (of the KV
    cache in use); ``prefix_queries``, ``prefix_hits``, ``prompt_tokens``, ``generation_tokens`` (tokens) and
    ``preemptions`` since the first page of the run; ``steps`` of the model since then; ``tokens_per_step``
    and ``hit_share`` (of the prompt tokens, found in the prefix cache) since the page before; ``server``,
    ``origin``. NaN where the server does not say, or nothing happened. A counter that fell began anew with
    the server: it counts from there.
    """
    wanted = {*GAUGES.values(), *COUNTERS.values(), STEP_TOKENS, STEPS}
    rows = [{"at_s": one.at_s} | _sums(one.text, wanted) for one in samples]
    found = pd.DataFrame(rows, columns=["at_s", *wanted], dtype=float)
    frame = pd.DataFrame({"at_s": found["at_s"]})
    for name, theirs in GAUGES.items():
        frame[name] = found[theirs]
    steps = {name: _growth(found[theirs]) for name, theirs in COUNTERS.items()}
    for name, growth in steps.items():
        frame[name] = growth.cumsum()
    taken = _growth(found[STEPS])
    frame["steps"] = taken.cumsum()
    frame["tokens_per_step"] = _growth(found[STEP_TOKENS]) / taken.where(taken > 0)
    frame["hit_share"] = steps["prefix_hits"] / steps["prefix_queries"].where(steps["prefix_queries"] > 0)
    frame["server"] = server.name or server.base_url
    frame["origin"] = server.origin
    return frame[list(COLUMNS)]


def _growth(counter: pd.Series) -> pd.Series:
    """How much a counter grew from page to page; the first row is 0 (or NaN if the server has no such)."""
    growth = counter.diff()
    growth = growth.where(~(growth < 0), counter)
    if len(growth) and counter.notna().iloc[0]:
        growth.iloc[0] = 0.0
    return growth


_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^\n]*\})? (\S+)", re.MULTILINE)


def _sums(text: str, wanted: set[str]) -> dict[str, float]:
    """The wanted samples of a page, summed over label sets."""
    found: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        if name in wanted:
            with suppress(ValueError):
                found[name] = found.get(name, 0.0) + float(value)
    return found
