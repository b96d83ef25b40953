"""The same workloads timed by us and by the field's tools, in one table.

What each tool means by "first token" is at the top of :mod:`helpers.tools`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping

import pandas as pd

from helpers import engine, latency, prompts, recorded, stats, streaming, tools
from helpers.environments import AIPERF, Say, environment
from helpers.settings import CourseError, Server, workspace
from helpers.tools import Workload

RECORDED_TABLE = "05-tools"
METRICS = {"TTFT": "ttft_ms", "TTFAT": "ttfat_ms"}


def workloads() -> dict[str, Workload]:
    """The two kinds of request that lesson 05 gives to each tool, one at a time: one that thinks before it
    answers, and one that must call a tool. Each prompt is new, by its call id."""
    return {
        "thinks first": Workload(
            prompts=tuple(f"{prompts.HELLO} {prompts.call_id()}" for _ in range(12)),
            max_tokens=20,
            thinking=True,
            extra={"thinking_token_budget": 8, "ignore_eos": True},
        ),
        "calls a tool": Workload(
            prompts=tuple(f"Where is order 1234? {prompts.call_id()}" for _ in range(8)),
            max_tokens=60,
            extra={"tools": [prompts.ORDER_TOOL], "tool_choice": "required"},
        ),
    }


def compare(server: Server, loads: Mapping[str, Workload], *, say: Say = print) -> pd.DataFrame:
    """Time each workload with our timer and with the tools that are at hand; the others' rows are recorded.

    On a live server our timer and ``vllm bench serve`` run; aiperf does too where its environment has been
    made. On recorded runs, all tools' rows are the recorded ones.

    Returns:
        One row a workload, tool and metric (TTFT, TTFAT): ``workload``, ``tool``, ``metric``, ``p50_ms``,
        ``max_ms`` (the slowest; NaN where the tool does not report it), ``n``, ``origin``, ``server``.
    """
    tables = {("our timer", name): _ours(server, load) for name, load in loads.items()}
    if server.origin == "measured":
        if importlib.util.find_spec("vllm"):
            for name, run in zip(loads, tools.vllm_bench(server, *loads.values(), say=say), strict=True):
                tables[run.tool, name] = run.table
        if workspace("envs", AIPERF.name, "complete").exists():
            for name, load in loads.items():
                tables["aiperf", name] = tools.aiperf(server, load, say=say).table
    rows = [
        _row(name, tool, metric, table[column], server)
        for (tool, name), table in tables.items()
        for metric, column in METRICS.items()
    ]
    for (tool, name), table in tables.items():
        wrong = [str(error) for error in table["error"] if error]
        if wrong:
            say(
                f"{tool}, {name}: {len(wrong)} of {len(table)} requests failed and are left out: "
                f"{wrong[0][:200]}"
            )
    frame = pd.DataFrame(rows)
    try:
        kept = recorded.load_table(RECORDED_TABLE)
    except CourseError:  # a new set of recordings is being made: nothing to fill in from yet
        return frame
    missing = kept[~kept["tool"].isin(frame["tool"]) & kept["workload"].isin(list(loads))]
    return pd.concat([frame, missing[frame.columns]], ignore_index=True)


def clocks() -> pd.DataFrame:
    """How far off each tool's TTFT is, on a server whose true times are known (``make bench``, recorded).

    Returns:
        Indexed by the number of streams and the tool: ``median_ms`` and ``p99_ms`` of the tool's TTFT minus
        the true one, ``n`` requests, ``origin``.
    """
    kept = json.loads((recorded.RUNS / "timer-benchmark.json").read_text(encoding="utf-8"))
    frame = pd.DataFrame(kept["ttft"])
    frame = frame[frame["wave"] == "all"].rename(columns={"concurrency": "streams"})
    columns = ["median_ms", "p99_ms", "n"]
    frame["tool"] = frame["tool"].replace("helpers.streaming", "our timer")
    return frame.set_index(["streams", "tool"])[columns].assign(origin=kept["origin"])


def _ours(server: Server, load: Workload) -> pd.DataFrame:
    requests = [
        streaming.chat_request(
            prompt,
            max_tokens=load.max_tokens,
            thinking=load.thinking,
            **load.extra,
        )
        for prompt in load.prompts
    ]
    return latency.table(streaming.ask_many(server, requests, concurrency=load.concurrency))


def _row(
    workload: str, tool: str, metric: str, times: pd.Series, server: Server
) -> dict[str, str | float | int]:
    known = pd.to_numeric(times).dropna()
    p50 = stats.percentile(known, 0.5).value if len(known) else float("nan")
    return {
        "workload": workload,
        "tool": tool,
        "metric": metric,
        "p50_ms": p50,
        "max_ms": known.max() if len(known) else float("nan"),
        "n": len(known) if metric == "TTFT" else len(times),
        "origin": server.origin,
        "server": server.name,
    }


def record() -> None:
    """Run all three tools on the embedded engine and keep the table as ``data/runs/05-tools.csv``."""
    environment(AIPERF)
    server = engine.connect()
    compare(server, workloads())  # once for warmth: the first tool call compiles its grammar
    frame = compare(server, workloads())
    sentence = "one at a time: 12 requests that think for 8 tokens first, 8 that must call a tool"
    path = recorded.save_table(RECORDED_TABLE, frame, server=server, workload=sentence, replace_old=True)
    print(frame.round(1).to_string())
    print(f"kept as {path}")


if __name__ == "__main__":
    record()
