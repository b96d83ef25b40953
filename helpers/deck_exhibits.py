"""Exhibits for slides alone: a lesson's figure with less in it, where the lesson's is for reading.

A slide is seen from afar and for a minute. The function that draws is the lesson's, the table a part or a
sum of the lesson's.
"""

from __future__ import annotations

import pandas as pd

from helpers import budget, figures_budget
from helpers.exhibit import Exhibit


def groups() -> pd.DataFrame:
    """The card's budget with one line a group."""
    lines = budget.by_group(budget.table("card"))
    return lines.assign(stage=lines["group"])[["stage", "group", "ms", "source", "date", "origin"]]


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "06-waterfall-groups",
        figures_budget.waterfall,
        groups,
        "Six groups of lines add up to the card's total, and leave some of the limit unspent.",
        {"title": "The card's budget, as we read it"},
    ),
)
