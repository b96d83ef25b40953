"""Do three load makers see the same? Ours, aiperf and guidellm on one server of known delays, in one run.

    python -m benchmarks.load_tools             # about ten minutes; report under workspace/runs/benchmarks/
    python -m benchmarks.load_tools --record    # also writes data/runs/07-tools.csv and .json

Two questions. *Agreement*: the same calls, the tools taking turns; the medians of what means the same should
lie within :data:`GOAL_MS` of each other. The delays of a request depend on its number only, so they are
compared request by request, and against the server's own log. *Meaning*: streams that begin in different ways
(with or without a role-only chunk; thinking in ``reasoning`` or in ``reasoning_content``), and what each tool
calls the first token then. ``vllm bench serve`` is asked too, where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.known_server import KnownServer, Law, running
from benchmarks.timer import grid, machine, pinned
from helpers import environments, load, load_tools, recorded, tools, workload
from helpers.load_tools import AIPERF, GUIDELLM, OURS
from helpers.settings import workspace

VLLM = "vllm bench serve"
TOOLS = (OURS, AIPERF, GUIDELLM)
LIVE_CALLS, CALLS, REPETITIONS = 8, 24, 3
GOAL_MS = 2.0  # between the medians of two tools, where they mean the same
MARKS_PER_CALL = 100  # numbers of requests that a call has for itself
TOKENS = 16

# Spread, so that requests do not stay in step, but little: a median of some hundred is then known to a
# fraction of the goal.
LAW = Law(first_ms=230, first_spread_ms=40, gap_ms=20, gap_spread_ms=5, tokens=TOKENS)
PLAIN = replace(LAW, role_first=False)
THINKS = replace(PLAIN, reasoning_tokens=5)
STREAMS = {  # each differs from the first in one thing
    "tokens only": PLAIN,
    "role-only chunk first": LAW,
    "thinks in `reasoning`": THINKS,
    "thinks in `reasoning_content`": replace(THINKS, reasoning_field="reasoning_content"),
}

EVENTS = ("role-only chunk", "first token", "first answer token")
MEANT = {"ttft_ms": "first token", "ttfat_ms": "first answer token"}
COMMON = {"ttft_ms": "TTFT", "ttfat_ms": "TTFAT"}
OWN_NAMES = {
    OURS: {"ttft_ms": "TTFT", "ttfat_ms": "TTFAT"},
    AIPERF: {"ttft_ms": "time_to_first_token", "ttfat_ms": "time_to_first_output_token"},
    GUIDELLM: {"ttft_ms": "time_to_first_token_ms", "ttfat_ms": "time_to_first_output_token_ms"},
    VLLM: {"ttft_ms": "ttft", "ttfat_ms": "none"},
}
SAME_MS = 10.0  # closer than this to an event, a time is the time of that event: half a token apart

Say = Callable[[str], None]


class Numbered(workload.Workload):
    """Calls whose every turn names a number of its own, by which the server draws its delays and keeps its
    log: ``id 302`` is the third turn of the fourth call."""

    def call(self, number: int, *, seed: int = 0) -> workload.Call:
        """Call ``number`` of a seed, its turns numbered."""
        call = super().call(number, seed=seed)
        turns = enumerate(call.turns, number * MARKS_PER_CALL)
        return replace(
            call, turns=tuple(replace(turn, user=f"{turn.user} id {mark}") for mark, turn in turns)
        )


def calls(*, pauses: float, pace: float) -> Numbered:
    """Support calls as a time-lapse, without tools."""
    plain = workload.load().scaled(turns=0.6, pauses=pauses, pace=pace, tools=0)
    return Numbered(plain.name, plain.title, plain.parameters, plain.changes)


@dataclass(frozen=True)
class Shape:
    """How much is asked of each tool: lines, or requests in flight for guidellm; calls; what kind of them."""

    level: int
    calls: int
    kind: Numbered


BUSY = Shape(LIVE_CALLS, CALLS, calls(pauses=0.3, pace=8))
SHORT = Shape(4, 6, calls(pauses=0.05, pace=60))


def ask(tool: str, known: KnownServer, shape: Shape) -> pd.DataFrame:
    """The requests of one tool on the server, as a table of :mod:`helpers.load_tools`; ``mark`` is added."""
    if tool == VLLM:
        return _vllm(known, shape)
    about: dict[str, Any] = {"calls": shape.calls, "seconds": 120.0, "answer_words": TOKENS, "say": _quiet}
    if tool == OURS:
        run = load.run(
            known.server,
            shape.kind,
            live_calls=shape.level,
            seconds=120,
            warmup_s=2,
            max_calls=shape.calls - shape.level,  # those that are live when so many are over come on top
            say=_quiet,
        )
        table = load_tools.ours(run.requests)
    elif tool == AIPERF:
        table = load_tools.aiperf(known.server, shape.kind, live_calls=shape.level, warmup_s=2, **about)
    else:
        table = load_tools.guidellm(known.server, shape.kind, in_flight=shape.level, warmup_s=2, **about)
    number = table["call"].str.rpartition("-")[2].astype(int)
    return table.assign(mark=(number * MARKS_PER_CALL + table["turn"]).astype(str))


def _vllm(known: KnownServer, shape: Shape) -> pd.DataFrame:
    """vLLM's own tool knows no calls: each turn goes out alone."""
    marks = [
        str(number * MARKS_PER_CALL + turn)
        for number, call in enumerate(shape.kind.calls(shape.calls))
        for turn in range(len(call.turns))
    ]
    prompts = tuple(f"Where is my parcel? id {mark}" for mark in marks)
    asked = tools.Workload(prompts, concurrency=shape.level, max_tokens=TOKENS)
    table = tools.vllm_bench(known.server, asked, say=_quiet)[0].table
    outcome = np.where(table["error"] == "", "finished", "failed")
    return table.assign(mark=marks, outcome=outcome, made_by=VLLM)


def _quiet(line: str) -> None:
    """The benchmark says by itself what it is at."""


def beside_log(table: pd.DataFrame, records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The finished requests of a tool beside what the server wrote down.

    Returns:
        ``mark``, ``ttft_ms``, ``ttfat_ms``, ``e2e_ms`` by the tool, and by the server's log, in ms after the
        arrival: ``role-only chunk``, ``first token``, ``first answer token``, ``end``. One row a request.
    """
    rows = []
    for record in records:
        if not record["complete"]:
            continue
        kinds, at_ms = record["kinds"], [(ns - record["arrived_ns"]) / 1e6 for ns in record["sent_ns"]]
        first = min(place for place, kind in enumerate(kinds) if kind in ("reasoning", "answer"))
        rows.append(
            {
                "mark": record["id"],
                "role-only chunk": at_ms[0] if kinds[0] == "role" else np.nan,
                "first token": at_ms[first],
                "first answer token": at_ms[kinds.index("answer")],
                "end": at_ms[-1],
            }
        )
    log = pd.DataFrame(rows, columns=["mark", *EVENTS, "end"]).drop_duplicates("mark")
    whole = table[table["outcome"] == "finished"]
    times = whole[["mark", "ttft_ms", "ttfat_ms", "e2e_ms"]].astype({"ttft_ms": float, "ttfat_ms": float})
    return times.merge(log, on="mark")


def agreement(found: pd.DataFrame) -> list[dict[str, Any]]:
    """What the tools say of the same requests.

    Args:
        found: :func:`beside_log` of each tool and repetition, with columns ``tool`` and ``repetition``.

    Returns:
        One row a number (``TTFT``, ``TTFAT``, end-to-end) and tool, over the requests that all tools have in
        a repetition: ``n``, ``p50_ms``, ``p95_ms``, ``log_p50_ms`` (by the server's log), ``error_p50_ms``
        and ``error_p95_ms`` (of the single requests, against the log), ``from_ours_ms`` (its median less
        ours), ``paired_ms`` (median of the differences from ours, request by request), and ``spread_ms``
        (largest distance between two tools' medians; the same in the three rows).
    """
    keys = found.groupby(["repetition", "mark"])["tool"].nunique()
    common = keys[keys == found["tool"].nunique()].index
    shared = found.set_index(["repetition", "mark"]).loc[common].reset_index()
    truths = {"ttft_ms": "first token", "ttfat_ms": "first answer token", "e2e_ms": "end"}
    rows = []
    for column, truth in truths.items():
        medians = shared.groupby("tool")[column].median()
        side_by_side = shared.pivot(index=["repetition", "mark"], columns="tool", values=column)
        for tool in dict.fromkeys(found["tool"]):
            part = shared[shared["tool"] == tool]
            errors = part[column] - part[truth]
            rows.append(
                {
                    "number": COMMON.get(column, "end to end"),
                    "tool": tool,
                    "n": len(part),
                    "p50_ms": float(medians[tool]),
                    "p95_ms": float(part[column].quantile(0.95)),
                    "log_p50_ms": float(part[truth].median()),
                    "error_p50_ms": float(errors.median()),
                    "error_p95_ms": float(errors.quantile(0.95)),
                    "from_ours_ms": float(medians[tool] - medians.get(OURS, np.nan)),
                    "paired_ms": float((side_by_side[tool] - side_by_side.get(OURS, np.nan)).median()),
                    "spread_ms": float(medians.max() - medians.min()),
                }
            )
    return rows


def agreement_each(found: pd.DataFrame) -> list[dict[str, Any]]:
    """``spread_ms`` of :func:`agreement` for each ``repetition`` and ``number`` alone: a burst of other work
    on the machine spoils one repetition, and not the others."""
    return [
        {"repetition": int(repetition), "number": row["number"], "spread_ms": row["spread_ms"]}
        for repetition, part in found.groupby("repetition")
        for row in agreement(part)
        if row["tool"] == OURS
    ]


def meaning(stream: str, tool: str, found: pd.DataFrame, about: dict[str, str]) -> list[dict[str, Any]]:
    """What a tool's two times are the times of, on one kind of stream; columns as in
    :func:`helpers.load_tools.meanings`."""
    rows = []
    for column, meant in MEANT.items():
        known = found.dropna(subset=[column])
        distance = {event: float((known[column] - known[event]).median()) for event in EVENTS}
        fires_on = "not reported"
        if len(known):
            near = {event: abs(ms) for event, ms in distance.items() if not np.isnan(ms)}
            # Where two events are one, it is the one that was meant.
            fires_on = meant if near[meant] < SAME_MS else min(near, key=lambda event: near[event])
        rows.append(
            {
                "stream": stream,
                "tool": tool,
                "metric": OWN_NAMES[tool][column],
                "common": COMMON[column],
                "n": len(known),
                "p50_ms": float(known[column].median()) if len(known) else np.nan,
                "fires_on": fires_on,
                "off_by_ms": distance[meant] if len(known) else np.nan,
                "agrees": fires_on == meant,
                **about,
            }
        )
    return rows


def run(repetitions: int, shape: Shape, short: Shape, folder: Path, say: Say) -> dict[str, Any]:
    """The whole benchmark; what it returns goes into the report."""
    started, loads = datetime.now(UTC), [os.getloadavg()[0]]
    conditions = machine() | {"guidellm": pinned(environments.GUIDELLM)}
    pairs, units = [], []
    with running(LAW, folder / "agreement.jsonl") as known:
        seen = 0
        for repetition in range(repetitions):
            shift = repetition % len(TOOLS)
            for tool in (*TOOLS[shift:], *TOOLS[:shift]):  # nobody is always first
                say(f"agreement, repetition {repetition + 1} of {repetitions}: {tool}")
                table = ask(tool, known, shape)
                records = known.records()[seen:]
                seen += len(records)
                loads.append(os.getloadavg()[0])
                pairs.append(beside_log(table, records).assign(tool=tool, repetition=repetition))
                units.append(load_tools.summary(table).assign(repetition=repetition, load=loads[-1]))
    found = pd.concat(pairs)
    agreed = agreement(found)
    meanings = []
    chosen = (*TOOLS, VLLM) if importlib.util.find_spec("vllm") else TOOLS
    for place, (stream, law) in enumerate(STREAMS.items()):
        with running(law, folder / f"meaning-{place}.jsonl") as known:
            about, seen = {"origin": known.server.origin, "server": known.server.name}, 0
            for tool in chosen:
                say(f"meaning, {stream}: {tool}")
                table = ask(tool, known, short)
                records = known.records()[seen:]
                seen += len(records)
                meanings += meaning(stream, tool, beside_log(table, records), about)
    loads.append(os.getloadavg()[0])
    seconds = round((datetime.now(UTC) - started).total_seconds())
    return {
        "origin": "measured",
        "date": started.strftime("%Y-%m-%d %H:%M UTC"),
        "conditions": conditions
        | {"load_before": loads[0], "load_highest": max(loads), "load_after": loads[-1], "seconds": seconds},
        "repetitions": repetitions,
        "live_calls": shape.level,
        "calls": shape.calls,
        "law": asdict(LAW),
        "streams": {stream: asdict(law) for stream, law in STREAMS.items()},
        "goal_ms": GOAL_MS,
        "agreement": agreed,
        "agreement_each": agreement_each(found),
        "units": json.loads(pd.concat(units).to_json(orient="records")),
        "meanings": meanings,
    }


def markdown(report: dict[str, Any]) -> str:
    """The report for a reader."""
    conditions = ", ".join(
        f"{name.replace('_', ' ')} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in report["conditions"].items()
    )
    columns = ("p50_ms", "p95_ms", "log_p50_ms", "error_p50_ms", "error_p95_ms", "from_ours_ms", "paired_ms")
    agreed = [
        [
            row["number"],
            row["tool"],
            row["n"],
            *(f"{row[name]:.1f}" for name in columns),
            f"{row['spread_ms']:.2f}",
        ]
        for row in report["agreement"]
    ]
    verdicts = {row["number"]: row["spread_ms"] for row in report["agreement"]}
    said = "; ".join(
        f"{number}: {spread:.2f} ms apart, {'met' if spread <= report['goal_ms'] else 'MISSED'}"
        for number, spread in verdicts.items()
    )
    each = ", ".join(
        f"{row['spread_ms']:.2f}" for row in report["agreement_each"] if row["number"] == COMMON["ttft_ms"]
    )
    units = [
        [row["made_by"], f"{row['asked']:.0f} {row['unit']}", row["calls"], row["requests"], row["failed"]]
        + [f"{row[name]:.2f}" for name in ("mean_in_flight", "duty_cycle")]
        + [f"{row[name]:.0f}" for name in ("ttfat_p95_ms", "due_to_ttfat_p95_ms")]
        + [f"{row['load']:.1f}"]
        for row in report["units"]
    ]
    meant = [
        [row["stream"], row["tool"], row["metric"], row["n"], row["fires_on"]]
        + [f"{row[name]:.1f}" if row["n"] else "" for name in ("p50_ms", "off_by_ms")]
        + ["yes" if row["agrees"] else "NO" if row["n"] else ""]
        for row in report["meanings"]
    ]
    parts = [
        "# Three load makers on one server of known delays",
        f"{report['origin'].capitalize()} {report['date']}: {conditions}. {report['repetitions']} "
        f"repetitions of {report['calls']} calls, the tools taking turns; all on the same cores.",
        "## The same requests",
        f"Medians within {report['goal_ms']:g} ms of each other? {said}. TTFT in each repetition: {each} "
        "ms apart. Times in ms; an error is the tool's time less the server's, request by request.",
        grid(
            [
                "number",
                "tool",
                "n",
                "P50",
                "P95",
                "P50 by the log",
                "error P50",
                "error P95",
                "from ours",
                "paired",
                "apart",
            ],
            agreed,
        ),
        "## The unit of load",
        "The same calls and the same number asked for; what was in flight on average. The last columns: P95 "
        "of TTFAT from sending, and from when the request was due, ms; load of the machine.",
        grid(
            [
                "tool",
                "asked",
                "calls",
                "requests",
                "failed",
                "in flight",
                "duty cycle",
                "P95",
                "from due",
                "load",
            ],
            units,
        ),
        "## What each tool calls the first token",
        "`off` is the median distance to the event that our TTFT (first token) or TTFAT (first answer token) "
        "means.",
        grid(["stream", "tool", "its name for it", "n", "fires on", "P50", "off", "as ours"], meant),
    ]
    return "\n\n".join(parts) + "\n"


def record(report: dict[str, Any], folder: Path) -> Path:
    """Keep the table of meanings as ``data/runs/07-tools.csv``, all else in the JSON file beside it."""
    with running(LAW, folder / "record.jsonl") as known:  # it is asked for its conditions
        path = recorded.save_table(
            load_tools.RECORDED_TABLE,
            pd.DataFrame(report["meanings"]),
            server=known.server,
            workload=BUSY.kind.sentence(),
            replace_old=True,
        )
    about = json.loads(path.with_suffix(".json").read_text())
    rest = {name: value for name, value in report.items() if name != "meanings"} | {"origin": "recorded"}
    path.with_suffix(".json").write_text(json.dumps(about | {"report": rest}, indent=1) + "\n")
    return path


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load_tools", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls of each tool in a repetition")
    parser.add_argument("--record", action="store_true", help="also write data/runs/07-tools.csv and .json")
    given = parser.parse_args(argv)
    for spec in (environments.AIPERF, environments.GUIDELLM):
        environments.environment(spec)
    stamp = time.strftime("load-tools-%Y%m%d-%H%M%S")
    folder = workspace("runs", "benchmarks", stamp + "-raw")
    folder.mkdir()
    report = run(given.repetitions, replace(BUSY, calls=given.calls), SHORT, folder, print)
    base = workspace("runs", "benchmarks", stamp)
    base.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    base.with_suffix(".md").write_text(markdown(report))
    print(markdown(report))
    print(f"Written to {base}.md and .json")
    if given.record:
        print(f"and, as a recorded run, to {record(report, folder)}")


if __name__ == "__main__":
    main(sys.argv[1:])
