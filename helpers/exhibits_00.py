"""Figures of lesson 00: the first streamed reply, and the map of the course."""

from __future__ import annotations

import pandas as pd

from helpers import figures, latency, recorded
from helpers.exhibit import Exhibit


def first_reply() -> pd.DataFrame:
    """Every chunk of the reply of lesson 00, as recorded."""
    run = recorded.load(recorded.RUNS / "00_start_here.jsonl.gz")
    return latency.chunk_table({"first reply": run.timelines[0]})


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "00-first-reply",
        figures.stream_timeline,
        first_reply,
        "A reply comes in pieces. The wait before the first word is TTFT; here the first piece brings it.",
        {"title": "One streamed reply, chunk by chunk"},
    ),
    Exhibit(
        "00-course-map",
        figures.course_map,
        None,
        "The lessons stand along one chain, from a prompt to the price of a minute.",
        {"title": "The way through the course"},
    ),
)
