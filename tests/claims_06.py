"""What lesson 06 says, and what it must then be true of. See claims.py."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from helpers import budget, budget_stages, budget_sum, budget_turn, exhibits_06, published, sources
from helpers.budget_turn import Turn

[LESSON] = [path for path in sources.paths() if path.stem.startswith("06_")]
CELLS = {cell.name: cell.source for cell in sources.read(LESSON)}
LIMIT, TARGET = published.value("card.limit"), published.value("card.llm_line")


@cache
def compared() -> pd.DataFrame:
    """The cases in which the lesson adds percentiles."""
    return budget_sum.compared(exhibits_06.adding_cases()).set_index("case")


@cache
def lever(name: str) -> pd.Series:
    """One change of a turn, and what it does to its P95."""
    cases = {"as it is": {}, name: budget_turn.LEVERS[name]}
    return budget_turn.variants(cases).set_index("case").loc[name]


@cache
def p95(**change: object) -> float:
    """P95 of a turn."""
    return budget_turn.verdict(budget_turn.simulate(Turn(**change))).p95.value


@cache
def left_for_the_model(path: str, share: float) -> float:
    """The limit less the rest's percentiles."""
    turns = budget_turn.simulate(Turn(path=path)).drop(columns=[budget.LLM, "total_ms", "origin"])
    return LIMIT - float(turns.quantile(share).sum())


def second_request_is_more_than_the_slack() -> bool:
    """Whether the P50 of one more request alone is more than a plain turn's P95 leaves."""
    slack = LIMIT - p95()
    return 0 < slack < budget_stages.stage("llm", Turn().llm).at(0.5)


def searched(path: str) -> float:
    """The largest P95 of the model in a turn over this path."""
    return budget_turn.largest_llm_p95_ms(Turn(path=path))


def each_voice_is_slower_than_its_line() -> bool:
    line = budget.by_group(budget.table("card")).set_index("group").loc["speech synthesis", "ms"]
    return bool((budget_stages.table("tts")["p50_ms"] > line).all())


def real(percentile: str, column: str) -> float:
    return float(budget_stages.stack_check().set_index("percentile").loc[percentile, column])


def most_fits_are_close_and_some_are_not() -> bool:
    fits = budget_stages.fit_check()
    return fits["close"].mean() > 0.5 and fits.loc[~fits["close"], "off_percent"].max() < -15


CLAIMS = {
    r"sixteen lines": lambda: len(budget.table("primer")) == len(budget.table("card")) == 16,
    r"650 ms|650(?=\.| is a target)": lambda: TARGET == 650,
    r"comes out, to the\s+millisecond": lambda: (
        budget.total_ms(budget.table("card")) == published.value("budget.card_total")
    ),
    r"some lines of the table have the same name": lambda: budget.table("card")["stage"].duplicated().any(),
    r"650 ms is not what subtraction gives": lambda: budget.left_for_ms(budget.table("card")) > TARGET,
    r"waits 200 ms for silence, and that wait is \*\*inside\*\*": lambda: (
        budget_turn.TTFS_WAIT_MS == 200
        and budget_stages.table("stt")["conditions"].str.contains("VAD wait of 200 ms in it").all()
    ),
    r"within a few percent\. For some it fails badly": most_fits_are_close_and_some_are_not,
    r"Each of these voices is slower than the line": each_voice_is_slower_than_its_line,
    r"sum is a quarter of the truth": lambda: np.isclose(4 * 300, 1200),
    r"one turn in seven or so": lambda: round(1 / (1 - 0.95**3)) == 7,
    r"wrong \*\*in both directions\*\*": lambda: (
        compared()["off_percent"].iloc[0] > 5 and compared()["off_percent"].iloc[-1] < -5
    ),
    r"At 1 the two are equal: then P95s add": lambda: (
        abs(compared().loc["the same, all slow at once", "off_percent"]) < 1
    ),
    r"0 means that they know nothing of each other, 1 that the slowest": lambda: (
        budget_sum._shares(["a", "b"], 9, 1, 0)["a"] == budget_sum._shares(["a", "b"], 9, 1, 0)["b"]
    ).all(),
    r"the second request alone costs more than the slack": second_request_is_more_than_the_slack,
    r"A plain\s+turn has room\. A turn with a tool has none left": lambda: (
        p95() < LIMIT and budget_turn.verdict(budget_turn.simulate(Turn(tool=True))).p95.low > LIMIT
    ),
    r"Each millisecond of `stop_secs` \(Pipecat's name for that wait\) is one": lambda: np.isclose(
        lever("wait 500 ms for silence")["more_ms"], 300
    ),
    r"a maximum in place of a sum": lambda: 0 < lever("end-of-turn model after the STT")["more_ms"] <= 65,
    r"can still move the turn": lambda: lever("STT with rare spikes (ink-2)")["more_ms"] > 2 * 30,
    r"added a fraction of what it takes alone": lambda: (
        budget_stages.ms("trial.turn") < budget_stages.ms("turn.smart_trial") / 5
    ),
    r"takes longer for a longer one": lambda: (
        budget_stages.ms("voice.piper_long") > 2 * budget_stages.ms("voice.piper_short")
        and budget_stages.ms("voice.hibari_long") > 2 * budget_stages.ms("voice.hibari_short")
    ),
    r"It stays within what the ITU expects of a call on a short route": lambda: (
        max(way.at(0.95) for way in budget_stages.ways("phone network"))
        <= published.value("budget.g114_short_route") + 1e-6
    ),
    r"Less than you expected\?": lambda: 0 < lever("over the phone network")["more_ms"] < 50,
    r"The search lies\s+between them": lambda: (
        left_for_the_model("WebRTC", 0.95) < searched("WebRTC") < left_for_the_model("WebRTC", 0.5)
    ),
    r"on the safe side of the search, with these services and\s+either way to the caller": lambda: (
        min(searched("WebRTC"), searched("phone network")) > TARGET
    ),
    r"With slower ones, or with tool calls": lambda: (
        p95(stt="OpenAI gpt-4o-transcribe") > LIMIT and p95(tool=True) > LIMIT
    ),
    r"The medians add up to within a few percent": lambda: (
        0 < real("P50", "difference_ms") / real("P50", "measured_ms") < 0.05
    ),
    r"\*\*lower\*\* than the whole, by three times as much": lambda: (
        round(real("P90", "difference_ms") / real("P50", "difference_ms")) == 3
    ),
    r"more than one turn in twenty|fewer than one turn in twenty": lambda: np.isclose(1 - 0.95, 1 / 20),
    r"more than twice as\s+often": lambda: (1 - 0.96**3) / 0.04 > 2,
}
HARMLESS = (
    r"Back to 650",
    r"factor of 1 below|And at 2\?",  # tries of a search
)
