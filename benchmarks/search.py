"""Does the search find the limit, and are its statements worth what they say? On servers of known truth.

    python -m benchmarks.search             # a few minutes; report under workspace/runs/benchmarks/
    python -m benchmarks.search --record    # also writes data/runs/07-search-benchmark.json

Two parts, 200 seeded trials each, in virtual time (``helpers/simulated.py``).

Coverage: at a server whose attainment is exactly 95 %, how often does a bound or an interval that states 95 %
hold the truth? For several ways in which the turns of a call are alike, numbers of calls, and methods: among
them what people do (turns as independent), and what ``helpers/slo.py`` does.

Search: ``helpers/search.py`` against the grid that measures every level with as many calls. Both are
held against the truth and against each other, once on the same calls (the search sees a part of what the grid
sees: has it left out only what does not matter?) and once on fresh ones (then two grids differ as well, and
that is given beside it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from helpers import clustered, search, slo, stats
from helpers.settings import DATA, workspace
from helpers.simulated import SERVERS, Server

TRIALS = 200
STATED, GOAL_POINTS, GOAL_SHARE = 0.95, 0.03, 1 / 3
LIMIT_MS, HIGH, CALLS = 600.0, 40, 200
BUDGET = int(0.32 * HIGH * CALLS)  # a third, and a little room: calls differ in turns
SIZES = (40, 60, 100, 200, 400)
GOAL_FROM = 100  # calls; with fewer the bound is on the safe side, or a rare slow call is not seen at all
RESAMPLES = 500
RECORDED = DATA / "runs" / "07-search-benchmark.json"

FLAT = Server("flat", lambda _: 200.0)
ALIKE: dict[str, Server] = {
    "turns independent": replace(FLAT, between=0.0, within=0.5),
    "as in a call of ours": FLAT,
    "calls differ more": replace(FLAT, between=0.8, within=0.3),
    "6 % slow calls": replace(FLAT, between=0.1, within=0.3, slow_share=lambda _: 0.06, slow_factor=3.0),
    "3 % very slow calls": replace(FLAT, between=0.1, within=0.3, slow_share=lambda _: 0.03, slow_factor=9.0),
}
"""In the last two a call is slow as a whole: of 6 % some turns are too slow, of 3 % all."""

COURSE = "this course"


@dataclass(frozen=True)
class Job:
    """One trial: which part, which case, which seed."""

    part: str
    case: str
    size: int
    seed: int


def bounds_of(turns: clustered.Turns, limit_ms: float) -> dict[str, float]:
    """Lower bound of the attainment at 95 %, one-sided, by method."""
    within = turns.within(limit_ms)
    share, plain = turns.estimate(within, prior_calls=0)
    risk, n = 1 - STATED, len(within)
    effects = {
        "turns as independent": 1.0,
        "Korn and Graubard": plain,
        "all turns of a call alike": n / turns.n_calls,
    }
    found = {name: clustered.exact_bounds(share, n / each, risk)[0] for name, each in effects.items()}
    return found | {COURSE: turns.bounds(limit_ms, risk)[0]}


def coverage_trial(job: Job) -> dict[str, bool]:
    """For each statement and method: did it hold?"""
    server = ALIKE[job.case]
    truth_ms = server.percentile_ms(1)
    call, times_ms = server.times_ms(1, job.size, job.seed)
    table = pd.DataFrame({"call": call, "ttfat_ms": times_ms})
    turns = clustered.Turns.of(table, "ttfat_ms")
    bounds = bounds_of(turns, truth_ms)
    held = {f"share, lower bound: {name}": low <= STATED + 1e-12 for name, low in bounds.items()}
    plain, course = stats.percentile(times_ms, 0.95), slo.p95_interval(table)
    resampled = clustered.bootstrap(turns, 0.95, (1 - STATED) / 2, seed=job.seed, resamples=RESAMPLES)
    intervals = {
        "turns as independent": (plain.low, plain.high),
        "bootstrap over calls": resampled,
        COURSE: (course.low, course.high),
    }
    return held | {
        f"P95, interval: {name}": low <= truth_ms <= high for name, (low, high) in intervals.items()
    }


def grid(measured: Callable[[int], np.ndarray]) -> tuple[int, int]:
    """The answer of the full grid, and its requests: the falling fit to the shares of all levels."""
    shares, requests = [], 0
    for level in range(1, HIGH + 1):
        times_ms = measured(level)
        shares.append(float(np.mean(times_ms <= LIMIT_MS)))
        requests += len(times_ms)
    fit = isotonic_regression(shares, increasing=False).x
    return int(np.sum(fit >= STATED - 1e-12)), requests


def search_trial(job: Job) -> dict[str, Any]:
    """One search on the grid's own calls, one on fresh ones, and two grids."""
    server, base = SERVERS[job.case], job.seed * 1000
    truth = server.truth(LIMIT_MS)
    first, requests = grid(lambda level: server.times_ms(level, CALLS, base + 998)[1])
    second, _ = grid(lambda level: server.times_ms(level, CALLS, base + 999)[1])
    row: dict[str, Any] = {"truth": truth, "grid": first, "second_grid": second, "grid_requests": requests}
    for kind, measure in (("same", _grids_calls(server, base + 998)), ("fresh", _fresh_calls(server, base))):
        found = search.limit(measure, limit_ms=LIMIT_MS, high=HIGH, most=CALLS, budget=BUDGET)
        row |= {
            f"{kind}_answer": found.live_calls,
            f"{kind}_requests": found.requests,
            f"{kind}_low_right": found.low <= truth,
            f"{kind}_high_right": found.high is None or found.high > truth,
            f"{kind}_low": found.low,
            f"{kind}_high": HIGH + 1 if found.high is None else found.high,
            f"{kind}_verdict": found.verdict,
            f"{kind}_ended": found.ended,
        }
        if found.confirmed:
            level = found.live_calls
            row[f"{kind}_confirmed_right"] = found.confirmed.low <= server.attainment(level, LIMIT_MS)
            row[f"{kind}_holds_wrongly"] = found.verdict == "holds" and level > truth
    return row


def _table(call: np.ndarray, times_ms: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"call": call, "ttfat_ms": times_ms, "origin": "modelled"})


def _fresh_calls(server: Server, base: int) -> search.Measure:
    asked = iter(range(900))
    return lambda level, calls: _table(*server.times_ms(level, calls, base + next(asked)))


def _grids_calls(server: Server, seed: int) -> search.Measure:
    """The calls of the grid, in order; what goes beyond them (the fresh run) is drawn anew."""
    taken: dict[int, int] = defaultdict(int)
    fresh = _fresh_calls(server, seed + 500_000_000)

    def measure(level: int, calls: int) -> pd.DataFrame:
        begin, end = taken[level], taken[level] + calls
        if end > CALLS:
            return fresh(level, calls)
        taken[level] = end
        call, times_ms = server.times_ms(level, CALLS, seed)
        mine = (call >= begin) & (call < end)
        return _table(call[mine], times_ms[mine])

    return measure


def trial(job: Job) -> dict[str, Any]:
    """One trial of either part."""
    return coverage_trial(job) if job.part == "coverage" else search_trial(job)


def coverage_report(jobs: Sequence[Job], held: Sequence[dict[str, bool]]) -> pd.DataFrame:
    """How often each statement held: one row a statement, method, case and number of calls."""
    rows = []
    frame = pd.DataFrame(held).assign(case=[job.case for job in jobs], calls=[job.size for job in jobs])
    for (case, calls), part in frame.groupby(["case", "calls"], sort=False):
        for column in part.columns.drop(["case", "calls"]):
            statement, method = column.split(": ")
            share = float(part[column].mean())
            rows.append(
                {
                    "statement": statement,
                    "method": method,
                    "case": case,
                    "calls": int(calls),
                    "trials": len(part),
                    "stated": STATED,
                    "held": share,
                    "points_off": (share - STATED) * 100,
                    "within_goal": bool(abs(share - STATED) <= GOAL_POINTS + 1e-9),
                    "origin": "modelled",
                }
            )
    return pd.DataFrame(rows)


def search_report(jobs: Sequence[Job], found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a server."""
    frame = pd.DataFrame(found).assign(server=[job.case for job in jobs])
    rows = []
    for server, part in frame.groupby("server", sort=False):
        truth, grid_answer = part["truth"], part["grid"]
        row: dict[str, Any] = {"server": server, "trials": len(part), "truth": int(truth.iloc[0])}
        row |= {
            "grids_agree": float((grid_answer == part["second_grid"]).mean()),
            "grids_apart": float((grid_answer - part["second_grid"]).abs().mean()),
            "grid_error": float((grid_answer - truth).abs().mean()),
        }
        for kind in ("same", "fresh"):
            answer, share = part[f"{kind}_answer"], part[f"{kind}_requests"] / part["grid_requests"]
            row |= {
                f"{kind}_agrees": float((answer == grid_answer).mean()),
                f"{kind}_apart": float((answer - grid_answer).abs().mean()),
                f"{kind}_error": float((answer - truth).abs().mean()),
                f"{kind}_requests_median": float(share.median()),
                f"{kind}_requests_mean": float(share.mean()),
                f"{kind}_requests_max": float(share.max()),
                f"{kind}_low_right": float(part[f"{kind}_low_right"].mean()),
                f"{kind}_high_right": float(part[f"{kind}_high_right"].mean()),
                f"{kind}_low_median": float(part[f"{kind}_low"].median()),
                f"{kind}_high_median": float(part[f"{kind}_high"].median()),
                f"{kind}_confirmed_right": float(part[f"{kind}_confirmed_right"].dropna().mean()),
                f"{kind}_holds": float((part[f"{kind}_verdict"] == "holds").mean()),
                f"{kind}_holds_wrongly": float(part[f"{kind}_holds_wrongly"].fillna(False).mean()),
                f"{kind}_ended": part[f"{kind}_ended"].value_counts().to_dict(),
            }
        rows.append(row | {"origin": "modelled"})
    return pd.DataFrame(rows)


def run(trials: int, workers: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Both parts. The seeds are those of the trials: the same on every machine."""
    began = time.monotonic()
    coverage = [
        Job("coverage", case, size, seed) for case in ALIKE for size in SIZES for seed in range(trials)
    ]
    searches = [Job("search", case, CALLS, seed) for case in SERVERS for seed in range(trials)]
    with ProcessPoolExecutor(workers) as pool:
        held = list(pool.map(trial, coverage, chunksize=10))
        say(f"coverage: {len(held)} trials, {time.monotonic() - began:.0f} s")
        found = list(pool.map(trial, searches, chunksize=10))
        say(f"search: {len(found)} trials, {time.monotonic() - began:.0f} s")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "origin": "modelled",
        "conditions": {
            "trials": trials,
            "limit_ms": LIMIT_MS,
            "levels": HIGH,
            "calls_a_level": CALLS,
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "scipy": version("scipy"),
            "seconds": round(time.monotonic() - began),
        },
        "coverage": coverage_report(coverage, held).to_dict("records"),
        "search": search_report(searches, found).to_dict("records"),
    }


def markdown(report: dict[str, Any]) -> str:
    """The report for a reader, misses included."""
    coverage, searches = pd.DataFrame(report["coverage"]), pd.DataFrame(report["search"])
    lines = [f"# The search and its statistics, {report['date']}", "", f"Conditions: {report['conditions']}"]
    for statement, part in coverage.groupby("statement", sort=False):
        lines += ["", f"## {statement}: how often it held, stated {STATED * 100:g} %", ""]
        lines += [
            _row(["method", "case", *(f"{size} calls" for size in SIZES)]),
            _row(["---"] * (2 + len(SIZES))),
        ]
        for (method, case), cell in part.groupby(["method", "case"], sort=False):
            lines.append(_row([method, case, *(f"{100 * held:.1f}" for held in cell["held"])]))
        ours = part[(part["method"] == COURSE) & (part["calls"] >= GOAL_FROM)]
        missed = ours[~ours["within_goal"]]
        lines += [
            "",
            f"Ours, {GOAL_FROM} calls or more: {len(missed)} of {len(ours)} cells miss the goal of",
        ]
        lines[-1] += f" {GOAL_POINTS * 100:g} points."
        lines += [f"- {row.case}, {row.calls} calls: {100 * row.held:.1f} %" for row in missed.itertuples()]
    for kind, title in (("same", "on the grid's own calls"), ("fresh", "on fresh calls")):
        lines += ["", f"## Search and grid, {title}", ""]
        names = ("grids_agree", "grids_apart", "grid_error", *(f"{kind}_{name}" for name in SHOWN))
        lines += [_row(["server", "truth", *names]), _row(["---"] * (2 + len(names)))]
        for row in searches.to_dict("records"):
            lines.append(_row([row["server"], str(row["truth"]), *(f"{row[name]:.3g}" for name in names)]))
    worst = max(searches["same_requests_max"].max(), searches["fresh_requests_max"].max())
    lines += ["", f"Largest share of the grid's requests in any trial: {worst:.3f} (goal {GOAL_SHARE:.3f})."]
    return "\n".join(lines) + "\n"


SHOWN = (
    "agrees",
    "apart",
    "error",
    "requests_median",
    "requests_max",
    "low_right",
    "high_right",
    "low_median",
    "high_median",
    "confirmed_right",
    "holds",
    "holds_wrongly",
)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help="seeded trials of each case")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--record", action="store_true", help="also write data/runs/07-search-benchmark.json")
    given = parser.parse_args(argv)
    report = run(given.trials, given.workers, print)
    base = workspace("runs", "benchmarks", time.strftime("search-%Y%m%d-%H%M%S"))
    base.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    base.with_suffix(".md").write_text(markdown(report))
    print(markdown(report))
    print(f"Written to {base}.md and .json")
    if given.record:
        RECORDED.write_text(json.dumps(report, indent=1) + "\n")
        print(f"and to {RECORDED}")


if __name__ == "__main__":
    main(sys.argv[1:])
