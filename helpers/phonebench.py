"""PhoneBench v1, the makers' own benchmark of phone agents, from ``data/phonebench.csv``.

Read it with its caveats (:data:`CAVEATS`): it is published by those who made one of the models in it.
"""

from __future__ import annotations

import math
from functools import cache

import pandas as pd

from helpers import tables
from helpers.settings import CourseError

PHONELLM, TERRA = "PhoneLLM Alpha 1", "GPT-5.6 Terra"
NUMBERS = ("score", "ttfat_p50_ms", "floor_p50_ms", "ttfat_p95_ms", "usd_per_minute")
CAVEATS = (
    "The makers of PhoneLLM ran it themselves.",
    "Language models judge the calls; the makers say that they calibrated them on people's labels.",
    "The benchmark's program is not published, so nobody else can run it.",
    "A P95 of about 600 ms is, as we read the card, the ceiling of a sweep: the makers put more callers on a "
    "machine until the P95 came to 600 ms. It says where they stopped, not how fast a model is.",
    "The other P95s are those of hosted models, whose load and machines nobody outside knows.",
)


@cache
def _read() -> pd.DataFrame:
    frame = tables.read("phonebench.csv", key="model", numeric=NUMBERS, text=("p95_about",), unitless=True)
    for model, word in frame["p95_about"].items():
        if word not in ("true", "false"):
            raise CourseError(f"phonebench.csv ({model}): 'p95_about' is {word!r}; write true or false.")
    return frame.assign(p95_about=frame["p95_about"] == "true").reset_index()


def table() -> pd.DataFrame:
    """The leaderboard, one row a model, best score first.

    Columns: ``model``; ``score`` (of 100); ``ttfat_p50_ms`` and ``ttfat_p95_ms`` (time to the first answer
    token); ``floor_p50_ms`` (the chart's "P50 floor", which it does not explain: presumably without load;
    only for models that the makers served themselves); ``p95_about`` (True where the chart says "about");
    ``usd_per_minute`` (the language model's share of a minute of conversation); ``source``, ``date``,
    ``origin`` (published). NaN: the chart has no number.
    """
    return _read().copy()


def missing(frame: pd.DataFrame | None = None) -> list[str]:
    """Which numbers the chart does not give, a line a model: ``Qwen 3.8 27B: no P50, no P95``."""
    names = {"ttfat_p50_ms": "no P50", "ttfat_p95_ms": "no P95"}
    lines = []
    for row in (table() if frame is None else frame).to_dict("records"):
        gone = [words for column, words in names.items() if math.isnan(row[column])]
        if gone:
            lines.append(f"{row['model']}: {', '.join(gone)}")
    return lines
