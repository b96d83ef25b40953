"""The figures of lesson 06 for the gallery, from published figures and our model of a turn."""

from __future__ import annotations

import pandas as pd

from helpers import budget, budget_stages, budget_sum, budget_turn, figures_budget
from helpers.budget_sum import Stage
from helpers.exhibit import Exhibit


def adding_cases() -> dict[str, tuple[list[Stage], float]]:
    """The cases in which the lesson adds percentiles: name to stages and rank correlation."""
    turn = [stage for stage in budget_turn.stages(budget_turn.Turn()) if stage.varies]
    spiky = [
        budget_stages.stage("stt", "Cartesia ink-2", called=f"a stage like ink-2, number {number}")
        for number in (1, 2, 3)
    ]
    return {
        "STT + LLM + TTS, independent": (turn, 0.0),
        "the same, correlation 0.5": (turn, 0.5),
        "the same, all slow at once": (turn, 1.0),
        "three stages with rare spikes": (spiky, 0.0),
    }


def adding() -> pd.DataFrame:
    """Sum of the P95s against P95 of the sum, in the cases of the lesson."""
    return budget_sum.compared(adding_cases())


def levers() -> pd.DataFrame:
    """A turn, changed in one thing at a time."""
    return budget_turn.variants(budget_turn.LEVERS)


def turns() -> pd.DataFrame:
    """Drawn turns of the default turn over the phone network."""
    return budget_turn.simulate(budget_turn.Turn(path="phone network"))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "06-waterfall-primer",
        figures_budget.waterfall,
        lambda: budget.table("primer"),
        "The published budget of a turn, line by line, and what it leaves below 1500 ms.",
        {"title": "The Primer's budget: where a turn's time goes"},
    ),
    Exhibit(
        "06-waterfall-card",
        figures_budget.waterfall,
        lambda: budget.table("card"),
        "The same with the model's line of the card: 650 ms is a choice, and it leaves some slack.",
        {"title": "The card's budget, as we read it"},
    ),
    Exhibit(
        "06-adding",
        figures_budget.two_sums,
        adding,
        "Adding P95s: too high for independent stages, right if all are slow at once, too low with spikes.",
        {"title": "Percentiles do not add, in either direction"},
    ),
    Exhibit(
        "06-levers",
        figures_budget.levers,
        levers,
        "What one change at a time does to the P95 of a modelled turn.",
        {"title": "One turn, one change at a time (modelled)"},
    ),
    Exhibit(
        "06-turns",
        figures_budget.turn_times,
        turns,
        "Turns over the phone network: most are quick, and the limit is about those that are not.",
        {"title": "Modelled turns over the phone network"},
    ),
)
