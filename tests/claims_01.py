"""What lesson 01 says, and what it must then be true of. See claims.py."""

from __future__ import annotations

import numpy as np

from helpers import budget, clips, phonebench, published, slow_turns, sources, sweeps

[LESSON] = [path for path in sources.paths() if path.stem.startswith("01_")]
CELLS = {cell.name: cell.source for cell in sources.read(LESSON)}
CEILING_MS = published.value("card.ttfat_ceiling")
LEFT_MS = budget.left_for_ms(budget.table("card"))


def busiest() -> tuple:
    """The recorded run of the lesson: its waits level by level, and those of the highest level."""
    run = sweeps.kept_sweep(sweeps.REAL_TIME)
    most = int(run.levels["live_calls"].max())
    return run.measured.groupby("live_calls")[sweeps.CLOCK], run.at(most)


def tail_moves_most() -> bool:
    """Whether P95 grows by more ms than median and mean from each level to the next."""
    waits, _ = busiest()
    tail, mean, median = (one.diff().iloc[1:] for one in (waits.quantile(0.95), waits.mean(), waits.median()))
    return bool((tail > 2 * mean).all() and (tail > median).all())


def mean_in_and_p95_at_twice() -> bool:
    """Whether the highest level's mean keeps the makers' ceiling and its P95 is at twice that."""
    _, busy = busiest()
    return (
        CEILING_MS == 600 and busy[sweeps.CLOCK].mean() < 600 and busy[sweeps.CLOCK].quantile(0.95) > 2 * 600
    )


def hardly_differ() -> bool:
    """Whether calls with a slow turn are as many as independent turns would give, and few could have two."""
    _, busy = busiest()
    found = slow_turns.observed(busy, metric=sweeps.CLOCK)
    return (
        abs(found["calls_with_one"] - found["if_independent"]) < 0.03 and found["turns"] / found["calls"] < 3
    )


def fitting(line_ms: float) -> set[str]:
    """Models whose published P95 is at most so much."""
    board = phonebench.table()
    return set(board.loc[board["ttfat_p95_ms"] <= line_ms, "model"])


def spread_is_the_same() -> bool:
    """Whether, with turns more alike, the same share of turns is slow, fewer calls are hit, and harder."""
    frame = slow_turns.spread(20, alike=(0, 0.25, 0.5, 0.75))
    return (
        np.allclose(frame["slow turns"], 0.05, atol=0.007)
        and frame["calls with one"].is_monotonic_decreasing
        and frame["slow turns in such a call"].is_monotonic_increasing
    )


def board() -> dict:
    """The leaderboard by model."""
    return phonebench.table().set_index("model").to_dict("index")


CLAIMS = {
    r"run of section 7|where section 6 stopped": lambda: (
        "## 7." in CELLS["p95-note"] and "## 6." in CELLS["budget-note"]
    ),
    r"everything but section 2 works": lambda: "## 2." in CELLS["rate-note"],
    r"with seven different\s+waits": lambda: len(clips.gaps()) == 7,
    r"some of the published numbers are for one stage alone": lambda: (
        list(clips.gaps().query("not whole_path")["origin"]) == ["published", "published"]
    ),
    r"the shortest and the longest are ours": lambda: (
        list(clips.gaps()["origin"].iloc[[0, -1]]) == ["modelled", "modelled"]
        and clips.gaps()["gap_ms"].is_monotonic_increasing
    ),
    r"Two ms or so are too many": lambda: (
        (table := clips.table()).eval("measured_ms - gap_ms").between(1.5, 3).all() and len(table) == 7
    ),
    r"Most of these lines are our reading of a picture": lambda: (
        (budget.table("card")["origin"] == "modelled").mean() > 0.5
    ),
    r"The language model has the largest line": lambda: (
        budget.by_group(budget.table("card")).set_index("group")["ms"].idxmax() == budget.LLM
    ),
    r"The tail moves most at each step": tail_moves_most,
    r"this stage, 600 ms: the mean still keeps it, and the P95 is at twice as much": mean_in_and_p95_at_twice,
    r"They hardly differ: this run shows no such thing": hardly_differ,
    r"The total of slow turns is the same": spread_is_the_same,
    r"The claim is the first less the ceiling": lambda: (
        published.value("waits.terra_card") - CEILING_MS == published.value("waits.faster")
    ),
    r"as a stage alone it is past the whole limit": lambda: (
        board()[phonebench.TERRA]["ttfat_p95_ms"] > published.value("card.limit")
    ),
    r'Everyone on the list has the same P95, "about" the ceiling': lambda: (
        {board()[name]["ttfat_p95_ms"] for name in fitting(LEFT_MS)} == {CEILING_MS}
        and all(board()[name]["p95_about"] for name in fitting(LEFT_MS))
    ),
}
HARMLESS = (
    r'"95 % of turns are in time"',  # what P95 means
    r"A share, from 0 to",
    r"turns, 5 % of turns slow",  # an exercise's own case
)
