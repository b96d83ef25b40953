"""What lesson 08 says, and what it must then be true of. See claims.py."""

from __future__ import annotations

import numpy as np
import pandas as pd

from helpers import (
    capacity,
    cost,
    cost_api,
    cost_break_even,
    cost_call,
    cost_day,
    cost_range,
    exhibits_08,
    phonebench,
    prices,
    published,
    sources,
    workload,
)

[LESSON] = [path for path in sources.paths() if path.stem.startswith("08_")]
CELLS = {cell.name: cell.source for cell in sources.read(LESSON)}
CHART = phonebench.table().set_index("model")
LUNA, TERRA, PHONE = "GPT-5.6 Luna", phonebench.TERRA, phonebench.PHONELLM
DAY = cost_day.day(exhibits_08.BANK)


def cards_minute() -> float:
    """The price that follows from the card's own inputs."""
    return cost.agent_minute(
        prices.value("gpu.b200.modal", "USD per GPU-hour"),
        published.value("b200.card_agents"),
        region_factor=prices.value("region.broad", "times"),
        utilisation=published.value("cost.card_utilisation") / 100,
    )


def times_in_chart(one: str, other: str) -> float:
    """How many times as dear one model is as another in the chart."""
    return CHART.loc[one, "usd_per_minute"] / CHART.loc[other, "usd_per_minute"]


def times_by_token(suffix: str) -> float:
    """The same of Terra and Luna by the token."""
    terra, luna = (cost_api.token_price(f"{name}{suffix}") for name in ("terra", "luna"))
    return terra.input / luna.input


def offers() -> pd.DataFrame:
    """Offers of a B200, spot left out."""
    gpus = prices.table("gpu")
    return gpus[(gpus["item"] == "B200") & (gpus["billing"] != "spot")]


def needed(gpu: str, api: str) -> float:
    """Utilisation at which a B200 (card's agents, or modelled) is as dear as an API, on our own calls."""
    minutes = cost_api.compare().set_index("model")["cached"]
    cases = cost_range.cases().set_index("who")["live_calls"]
    calls = {"card": published.value("b200.card_agents"), "model": float(cases["our model, BF16"])}
    return cost_break_even.break_even(exhibits_08.pinned_hour(), calls[gpu], minutes[api]).utilisation


def quartiles() -> pd.Series:
    """The price of a minute with all inputs drawn at once."""
    return cost_range.together(exhibits_08.ranges())


def utilisations(calls_a_day: float) -> pd.Series:
    """What the three ways of paying use of what they pay for, at a size of the bank's day."""
    agents = published.value("b200.card_agents")
    planned = exhibits_08.bank_day(calls_a_day)
    bill = cost_day.bill(planned, calls_per_gpu=agents, usd_per_hour=dict.fromkeys(cost_day.WAYS, 1.0))
    return bill.set_index("way")["utilisation"]


def swapped(model: str) -> float:
    """Share of the whole minute with Terra that another model saves."""
    base, other = (cost_call.total(cost_call.minute(cost_call.from_chart(name))) for name in (TERRA, model))
    return cost.saving(other, base)


def other_swaps() -> float:
    """The most that a change of something else saves of the minute with Terra."""
    terra = cost_call.from_chart(TERRA)
    base = cost_call.minute(terra)
    bills = {
        "stt": cost_call.minute(terra, stt="stt.deepgram-nova-3"),
        "words": cost_call.minute(terra, chars_per_minute=180),
    }
    return cost_call.swaps(base, bills)["saved"].max()


def a_shorter_way_of_speaking_saves_more_than_a_free_model() -> bool:
    """In the bill with PhoneLLM."""
    phone = cost_call.from_chart(PHONE)
    base = cost_call.minute(phone)
    free = cost_call.minute(cost_call.Model("free", 0.0))
    found = cost_call.swaps(base, {"free": free, "words": cost_call.minute(phone, chars_per_minute=180)})
    return bool(found["saved"].iloc[0] < found["saved"].iloc[1])


def the_hour_would_lead() -> bool:
    """Whether the price of the hour moves the minute most, if calls are counted as the card counts them."""
    rows = {entry.name: entry for entry in exhibits_08.ranges()}
    calls, hour = rows["live_calls"], rows["price_usd_per_hour"]
    return calls.base / calls.low == 2 < hour.high / hour.low


def agent_speaks() -> float:
    """Share of our support call in which the agent speaks."""
    support = workload.load()
    turns = [turn for call in support.calls(cost_api.CALLS) for turn in call.turns]
    words = sum(turn.max_tokens for turn in turns) / capacity.TOKENS_PER_WORD
    minutes = words / support.value("agent_words_per_minute")
    return minutes / (cost_api.CALLS * cost_api.call_minutes())


CLAIMS = {
    r"The two differ by a factor of ten, nearly": lambda: np.isclose(
        cards_minute() / published.value("cost.card_minute"), 10, rtol=0.02
    ),
    r"The chart on the same card agrees with the arithmetic": lambda: (
        round(cards_minute(), 4) == CHART.loc[PHONE, "usd_per_minute"]
    ),
    r"in agents twice as many": lambda: (
        published.value("b200.card_agents") == 2 * published.value("b200.card_processes")
    ),
    r"our own model, with our own callers, says more again": lambda: (
        cost_range.cases().query("origin == 'modelled'")["live_calls"].min()
        > published.value("b200.card_agents")
    ),
    r"half of the card's number to all of it would be a factor of two, and then the hour leads": (
        the_hour_would_lead
    ),
    r"our own support call the agent speaks about two\s+thirds of the time, the last line below": lambda: (
        abs(agent_speaks() - 2 / 3) < 0.05 and "0.66" in CELLS["chars"]
    ),
    r"find what was sent\s+before up to the end of a message": lambda: (
        published.value("cost.cache_step") == 1
    ),
    r"the small L40S is not dearer than the big B200, counted alike": lambda: (
        (rows := cost_range.cases().set_index("who")["usd_per_minute"])["L40S, as the card"]
        < cost_range.cases().query("what == 'simulated processes'")["usd_per_minute"].iloc[0]
        and rows["L40S, list price"] < rows["L40S, as the card"]
    ),
    r"cut on one day in July 2026, a month before the card came out, and not by the same share": lambda: (
        "2026-07-30" in prices.row("llm.luna.input")["conditions"]
        and "2026-07-30" in prices.row("llm.terra.input")["conditions"]
        and prices.row("gpu.b200.modal")["date"] == "2026-08"
        and times_by_token("") != times_by_token("-launch")
    ),
    r"The chart was computed after the cut, it seems": lambda: (
        abs(times_in_chart(TERRA, LUNA) / times_by_token("") - 1) < 0.02
        and times_in_chart(TERRA, LUNA) > 3 * times_by_token("-launch")
    ),
    r"the claim in the text fits the launch price": lambda: (
        round(
            100
            * cost.saving(
                1,
                times_in_chart(TERRA, PHONE)
                * cost_api.token_price("terra-launch").input
                / cost_api.token_price("terra").input,
            )
        )
        == published.value("cost.card_cheaper")
        != round(100 * cost.saving(1, times_in_chart(TERRA, PHONE)))
    ),
    r"Luna scores a little lower than PhoneLLM .*?, and against it little is saved": lambda: (
        0 < CHART.loc[PHONE, "score"] - CHART.loc[LUNA, "score"] < 2
        and cost.saving(1, times_in_chart(LUNA, PHONE)) < 0.3
    ),
    r"The same chip, and a wide spread": lambda: offers()["value"].max() > 5 * offers()["value"].min(),
    r"prices move, and not always down \(compare RunPod's two on demand\)": lambda: (
        prices.row("gpu.b200.runpod")["value"] > prices.row("gpu.b200.runpod-earlier")["value"]
    ),
    r"A reserved fleet for this day never gets near the card's figure": lambda: (
        1 / cost_day.peak_to_mean(DAY) < 0.6 * published.value("cost.card_utilisation") / 100
        and utilisations(1_000_000)["reserved"] < 1 / cost_day.peak_to_mean(DAY)
    ),
    r"to reach it one needs many calls \*and\* a bill that follows the day": lambda: (
        utilisations(10_000).max()
        < published.value("cost.card_utilisation") / 100
        < utilisations(100_000)["on demand"]
    ),
    r"With few calls hardly anything of a GPU is used": lambda: utilisations(1_000).max() < 0.05,
    r"about half of the time there are more": lambda: True,  # of a random number around its mean
    r"The longer you bind yourself, the lower the price of the hour": lambda: (
        prices.value("gpu.b200.hyperstack-reserved", "USD per GPU-hour")
        < prices.value("gpu.b200.hyperstack", "USD per GPU-hour")
        < exhibits_08.pinned_hour()
    ),
    r"draws all four at random, twenty thousand times": lambda: (
        cost_range.DRAWS == 20_000 and len(exhibits_08.ranges()) == 4
    ),
    r"Between the fifth and the ninety-fifth percentile lies about a factor of ten": lambda: (
        8 < quartiles()["P95"] / quartiles()["P05"] < 12
    ),
    r"the money is not in haggling over the hour": lambda: (
        cost_range.tornado(exhibits_08.ranges())["input"].iloc[0] == "live calls on one GPU"
    ),
    r"Twice the turns, four times the tokens": lambda: np.isclose(
        cost_api.input_tokens(0, 20, 48, 40) / cost_api.input_tokens(0, 20, 48, 20), 4, rtol=0.02
    ),
    r"That is a large gap": lambda: (
        CHART.loc[TERRA, "usd_per_minute"] > 2 * cost_api.compare().set_index("model")["uncached"][TERRA]
    ),
    r"Within a few months Terra became cheaper once, and then its successor cheaper again": lambda: (
        prices.row("llm.terra.input")["value"] < prices.row("llm.terra-launch.input")["value"]
        and prices.row("llm.terra-6-1.input")["value"] < prices.row("llm.terra.input")["value"]
    ),
    r"The step from a large model to a small one is real.*?by far the largest single change": lambda: (
        swapped(PHONE) > 0.5 > 3 * other_swaps()
    ),
    r"A small model at an API takes nearly the same one": lambda: swapped(PHONE) - swapped(LUNA) < 0.03,
    r"it stays cheaper than a GPU of your own that is half idle": lambda: needed("model", LUNA) > 0.5,
    r"which is more than the whole budget of 1500 ms": lambda: (
        CHART.loc[LUNA, "ttfat_p95_ms"] > published.value("card.limit") == 1500
    ),
    r"even a model that costs nothing would save less than a shorter way of speaking": (
        a_shorter_way_of_speaking_saves_more_than_a_free_model
    ),
    r"in section 1,": lambda: "## 1." in CELLS["chain-note"] and "ttfat_p95_ms" in CELLS["chart-says"],
    r"utilisation of your day in section 5": lambda: "## 5." in CELLS["day-note"],
    r"the table of section 8": lambda: "## 8." in CELLS["even-note"] and CELLS["even-table"],
}
HARMLESS = (
    r"between 0 and 1\b",  # a share
    r"GPT-[56]\.\d Terra",  # a name
    r"L40S",
    r"Above 1: a full GPU|Below 1: compare",
    r"could pay half a dollar|Somebody pays 2 and|of the 2 stays",  # an exercise's own case
    r"divide the hour by 60|Divide the hour by 60",
    r"used to 60 % to beat|used to 35 %",  # the question's own numbers
)
