"""Figures of lesson 02: how long a download takes, and what a broken one still has."""

from __future__ import annotations

import pandas as pd

from helpers import figures, hub_drill, hub_listing
from helpers.exhibit import Exhibit

LINES_MBIT_PER_S = (20, 50, 100, 200, 500, 1000, 2500, 10_000)


def minutes() -> pd.DataFrame:
    """Minutes for both forms of the model, over lines that do what they say."""
    rows = [
        (label, mbit, 8 * hub_listing.recorded(repo).bytes / (mbit * 1e6) / 60)
        for label, repo in (("BF16", hub_listing.REPO), ("NVFP4", hub_listing.NVFP4))
        for mbit in LINES_MBIT_PER_S
    ]
    frame = pd.DataFrame(rows, columns=["label", "mbit_per_s", "minutes"])
    return frame.assign(origin="modelled", source="published sizes over a line that does what it says")


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "02-download-minutes",
        figures.download_minutes,
        minutes,
        "The same weights take an evening on a slow line and less than a minute in a data centre; the "
        "small form takes far less.",
        {"title": "From an evening to a minute"},
    ),
    Exhibit(
        "02-second-run",
        figures.second_run,
        hub_drill.recorded_run,
        "A download killed in the last file: the usual client fetches that file anew, the course's keeps "
        "its part.",
        {"title": "Killed in the middle of the last shard: what the second run fetches"},
    ),
)
