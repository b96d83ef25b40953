"""The learner's own latencies for a budget: the newest saved run, or else the recorded one, and which it is.

Lessons 05 and 07 save what they measure with :func:`helpers.runs.save`. Where nothing is saved yet, the run
that we recorded in the same lesson takes its place, and every row says ``recorded``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from helpers import budget_sum, latency, recorded, run_file, runs, stats
from helpers.budget_sum import Stage
from helpers.origins import validate
from helpers.settings import CourseError

CLOCKS = {
    "ttft_ms": "TTFT",
    "ttfat_ms": "TTFAT",
    "due_to_ttfat_ms": "TTFAT from the caller's last word",
}
KINDS = {
    "05-ttft": "one short question at a time",
    "07": "callers on several lines at once",
}
WARM_UP = 5  # lesson 05 sends so many of its short requests first and does not count them
LEAST = 20  # fewer samples than that make no distribution


def newest(name: str = "05-ttft", *, clock: str = "ttft_ms") -> pd.DataFrame:
    """The newest run of a kind, one row a request that ended well.

    Args:
        name: ``05-ttft`` (lesson 05: one request at a time) or ``07`` (lesson 07: callers at once).
        clock: ``ttft_ms``; ``ttfat_ms``; or ``due_to_ttfat_ms``, from the caller's last word, which only
            lesson 07 has.

    Returns:
        A frame with ``ms``, ``clock``, ``origin``, ``server``, ``date``, ``run`` (its name), ``what`` (the
        load), in the order of the run. A saved run in which fewer than :data:`LEAST` requests have that time
        is passed over for the one before it.

    Raises:
        CourseError: there is no such kind or clock, or a file is damaged.
    """
    if name not in KINDS:
        raise CourseError(f"There are no runs of the kind {name!r}. It may be {', '.join(KINDS)}.")
    if clock not in CLOCKS or (name == "05-ttft" and clock == "due_to_ttfat_ms"):
        raise CourseError(
            f"The runs of {name} have no time {clock!r}. It may be {', '.join(list(CLOCKS)[:2])}."
        )
    for saved in sorted(runs.names(name), key=_when, reverse=True):
        frame, about = runs.load(saved)
        found = _cleaned(frame, clock)
        if len(found) >= LEAST:
            return _told(found, clock, saved, about, str(about.get("workload", "")))
    return _RECORDED[name](clock)


def stage(name: str = "05-ttft", *, clock: str = "ttft_ms", called: str = "language model") -> Stage:
    """The newest run as a stage of a turn: its samples. Arguments as for :func:`newest`."""
    frame = newest(name, clock=clock)
    row = frame.iloc[0]
    said = {column: str(row[column]) for column in ("origin", "server", "date")}
    return budget_sum.from_samples(called, frame["ms"], source=str(row["run"]), **said)


def sentence(frame: pd.DataFrame) -> str:
    """Which run this is, in words."""
    row = frame.iloc[0]
    whose = "your own run" if row["run"] in runs.names() else "our recorded run"
    return (
        f"{CLOCKS[row['clock']]} of {len(frame)} requests, {whose} {row['run']} of {row['date']}, "
        f"{row['origin']} on {row['server']}: {row['what']}"
    )


def _when(saved: str) -> str:
    """Runs of lesson 07 have several names; the time at the end of each is what sorts them."""
    parts = saved.split("-")
    stamps = [i for i, part in enumerate(parts) if len(part) == 8 and part.isdigit()]
    return "-".join(parts[stamps[-1] :]) if stamps else ""


def _cleaned(frame: pd.DataFrame, clock: str) -> pd.DataFrame:
    """Requests that count: measured, not failed, with that time (one that the end of a run cut has it)."""
    if clock not in frame.columns:
        return frame.iloc[:0]
    good = pd.to_numeric(frame[clock], errors="coerce")
    keep = np.isfinite(good) & (good >= 0)
    if "phase" in frame.columns:
        keep &= frame["phase"] == "measured"
    if "error" in frame.columns:
        keep &= frame["error"].isna() | frame["error"].isin(["", "cut"])
    return frame[keep].reset_index(drop=True)


def _told(frame: pd.DataFrame, clock: str, run: str, about: dict, what: str) -> pd.DataFrame:
    server = about.get("server", {}).get("name") or "an unnamed server"
    told = pd.DataFrame({"ms": pd.to_numeric(frame[clock]), "clock": clock, "origin": frame["origin"]})
    told = told.assign(server=server, date=str(about.get("date", "")), run=run, what=what)
    return validate(told, numeric=("ms",), used_by="own_latency.newest")


def _recorded_05(clock: str) -> pd.DataFrame:
    """The many short requests of lesson 05, out of the recorded run of the whole lesson."""
    run = run_file.load(recorded.RUNS / "05_measure_ttft.jsonl.gz")
    short = [timeline for timeline in run.timelines if timeline.request.get("max_tokens") == 1]
    frame = latency.table(short[WARM_UP:]).assign(origin="recorded")
    what = "one short question, thinking off, max_tokens 1, one at a time"
    return _told(_cleaned(frame, clock), clock, "05_measure_ttft", run.conditions, what)


def _recorded_07(clock: str) -> pd.DataFrame:
    """The lowest level of the recorded calls in real time whose P95 has an interval with two ends."""
    frame = recorded.load_table("07-real-time")
    about = frame.attrs["conditions"]
    timed = _cleaned(frame, "ttfat_ms" if clock == "ttft_ms" else clock)
    turns = timed["live_calls"].value_counts()
    level = turns.index[turns >= stats.samples_needed(0.95, 0.95)].min()
    found = timed[timed["live_calls"] == level]
    found = found.assign(ttft_ms=found["ttfat_ms"])  # thinking is off in these calls: the two are the same
    return _told(found, clock, "07-real-time", about, f"{level:g} live calls in real time, thinking off")


_RECORDED: dict[str, Callable[[str], pd.DataFrame]] = {"05-ttft": _recorded_05, "07": _recorded_07}
