"""Figures of lesson 04: where the time of a start goes, and what a missing parser does to the clocks."""

from __future__ import annotations

import pandas as pd

from helpers import drills, figures, latency, recorded, server_log
from helpers.exhibit import Exhibit
from helpers.settings import CourseError


def startup() -> pd.DataFrame:
    """The phases of the embedded engine's start, from its recorded log."""
    start = drills.recorded_log()
    log = server_log.frame(start.text)
    return server_log.startup(log, before_s=start.before_s, origin=start.origin, server=start.server)


def parser() -> pd.DataFrame:
    """One request that thinks, to a server with a reasoning parser and to one without, as recorded.

    Raises:
        CourseError: the recorded run lacks that request.
    """
    without = drills.recorded_replies("thinks")[0]
    run = recorded.load(recorded.RUNS / "04_serve_with_vllm.jsonl.gz")
    same = [
        timeline
        for timeline in run.timelines
        if timeline.request == without.request and timeline.error is None
    ]
    if not same:
        raise CourseError("The recorded run of lesson 04 has no reply with a parser. Type: make record")
    return latency.chunk_table({"with parser": same[-1], "without": without})


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "04-startup",
        figures.startup_phases,
        startup,
        "A small model's server spends its start on importing packages; it is ready long after it has "
        "started.",
        {"title": "Where the time of a start goes"},
    ),
    Exhibit(
        "04-parser",
        figures.stream_timeline,
        parser,
        "Without a reasoning parser the thoughts pass for the answer, and TTFAT looks better than it is.",
        {"title": "The same thoughts, told apart and not"},
    ),
)
