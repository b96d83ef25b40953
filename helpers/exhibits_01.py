"""The figures of lesson 01 for the gallery, from what is in the repository alone."""

from __future__ import annotations

from typing import Any

import pandas as pd

from helpers import budget, clips, phonebench, ratings, slow_turns, sweeps
from helpers.exhibit import Exhibit, Lazily
from helpers.figures_clips import clip_gaps, tolerance, waveform
from helpers.figures_course import budget_line
from helpers.figures_waits import leaderboard, slow_calls, wait_distribution

SHOWN_MS = 1293.0  # of the clip that is drawn as a waveform
TURNS = 20


def _waveform() -> pd.DataFrame:
    return clips.envelope(clips.exchange(SHOWN_MS))


def _example() -> pd.DataFrame:
    return ratings.example(clips.gaps()["gap_ms"])


def _turn() -> pd.DataFrame:
    return budget.by_group(budget.table("card")).rename(columns={"group": "stage"})


def _lines() -> dict[str, Any]:
    left_ms = budget.left_for_ms(budget.table("card"))
    limits = {"left_ms": left_ms, "limit_ms": budget.LIMIT_MS}
    return limits | {"bold": phonebench.PHONELLM, "title": "PhoneBench: score, wait, price"}


def _waits() -> pd.DataFrame:
    run = sweeps.kept_sweep(sweeps.REAL_TIME)
    return run.at(int(run.levels["live_calls"].max()))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "01-clip-gaps",
        clip_gaps,
        clips.table,
        "Seven clips of one exchange that differ in one thing: how long the caller waits.",
        {"title": "One exchange, seven gaps"},
    ),
    Exhibit(
        "01-waveform",
        waveform,
        _waveform,
        "The wait can be read off a recording, without asking any part of the agent.",
        {"title": "The gap in a recording"},
    ),
    Exhibit(
        "01-tolerance",
        tolerance,
        _example,
        "What ratings of the clips look like; these are made up, the lesson draws your own.",
        {"title": "How long is too long?"},
    ),
    Exhibit(
        "01-turn",
        budget_line,
        _turn,
        "The language model has the largest part of a turn, and the rest is not small.",
        {"title": "A turn, planned"},
    ),
    Exhibit(
        "01-waits",
        wait_distribution,
        _waits,
        "Median, mean and P95 of the same turns lie far apart.",
        {
            "metric": sweeps.CLOCK,
            "what": "time to the first answer token",
            "title": "One run, three summaries",
        },
    ),
    Exhibit(
        "01-slow-calls",
        slow_calls,
        lambda: slow_turns.curves(range(1, 41)),
        "With 95 % of turns in time, most calls of twenty turns still hold a slow one, if the turns are "
        "independent.",
        {"turns": TURNS, "title": "Calls with at least one slow turn"},
    ),
    Exhibit(
        "01-leaderboard",
        leaderboard,
        phonebench.table,
        "Models that leave room for the rest of the path are, as we read it, those held at a ceiling.",
        Lazily(_lines),
    ),
)
