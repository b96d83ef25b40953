"""Lesson 08's figures for the gallery: what a minute costs. All from ``data/``: the learner's own prices do
not count here."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from helpers import (
    cost,
    cost_api,
    cost_break_even,
    cost_call,
    cost_day,
    cost_range,
    phonebench,
    prices,
    published,
)
from helpers.exhibit import Exhibit, Lazily
from helpers.figures_cost import call_minute, price_by_calls, tornado
from helpers.figures_cost_day import call_day, cost_by_turn, cost_by_volume

BANK = "bank, weekday"
CALLS_PER_DAY = 100_000
# A call in round numbers, for the turn-by-turn figure: our support call, a little longer.
EVEN = {"system_tokens": 1100, "caller_tokens": 20, "answer_tokens": 48, "turns": 24}


def claims() -> pd.DataFrame:
    """The two prices of PhoneLLM's minute that the card gives: its text's and its chart's."""
    text = published.table("cost.card_minute").iloc[0]
    chart = cost_call.from_chart(phonebench.PHONELLM)
    rows = [
        {"name": "the card's text", "usd_per_minute": text["value"], "origin": text["origin"],
         "source": text["source"], "date": text["date"]},
        {"name": "the card's chart", "usd_per_minute": chart.usd_per_minute, "origin": chart.origin,
         "source": chart.source, "date": chart.date},
    ]  # fmt: skip
    return pd.DataFrame(rows)


def bank_day(calls_per_day: float = CALLS_PER_DAY, calls_per_gpu: float | None = None) -> pd.DataFrame:
    """The bank's day on GPUs that carry as many calls as the card says (or as many as given)."""
    return cost_day.plan(
        cost_day.day(BANK),
        calls_per_day=calls_per_day,
        minutes_per_call=cost_api.call_minutes(),
        calls_per_gpu=calls_per_gpu or published.value("b200.card_agents"),
    )


def reserved_utilisation(planned: pd.DataFrame) -> float:
    """Share of the calls that GPUs reserved for the peak of a day could carry that do come: 24-hour mean."""
    agents = published.value("b200.card_agents")
    return float(planned["live_calls"].mean() / (planned["gpus"].max() * agents))


def ranges() -> tuple[cost_range.Range, ...]:
    """The inputs of the card's price with their ranges; the lowest utilisation is the bank's."""
    return cost_range.card_ranges(idle_utilisation=reserved_utilisation(bank_day()))


def bills() -> pd.DataFrame:
    """The whole minute with PhoneLLM, with its price slipped by a digit, and with GPT-5.6 Terra."""
    models = (
        cost_call.from_chart(phonebench.PHONELLM),
        cost_call.the_slip(),
        cost_call.from_chart(phonebench.TERRA),
    )
    return pd.concat([cost_call.minute(model) for model in models], ignore_index=True)


def turns(model: str = "terra") -> pd.DataFrame:
    """Each turn of a long, even call at an API: without a cache, and with one."""
    price, asked = cost_api.token_price(model), cost_api.even_calls(**EVEN)
    frames = []
    for name, caching in (("without a cache", None), ("with a cache", cost_api.Caching())):
        frame = cost_api.priced(asked, price, caching)
        frames.append(frame.assign(series=name, turn=frame["turn"] + 1)[["series", "turn", "usd", "origin"]])
    return pd.concat(frames, ignore_index=True)


def pinned_hour() -> float:
    """USD of the card's B200 for an hour, in a region of one's choice."""
    return cost.effective_hour(
        prices.value("gpu.b200.modal", prices.UNITS["gpu"]),
        region_factor=prices.value("region.broad", "times"),
    )


def volumes() -> pd.DataFrame:
    """A day's bill against its minutes: our support call at the APIs, on a modelled B200, and the card's."""
    api = cost_api.compare().set_index("model")["cached"]
    cases = cost_range.cases().set_index("who")["live_calls"]
    modelled = float(cases["our model, BF16"])
    return cost_break_even.volumes(
        120_000,
        pinned_hour(),
        {"B200, card's 88": published.value("b200.card_agents"), "B200, our model": modelled},
        {name: float(api[name]) for name in ("GPT-5.6 Terra", "GPT-6.1 Terra", "GPT-5.6 Luna")},
        peak_to_mean=cost_day.peak_to_mean(cost_day.day(BANK)),
    )


def _shipped(make: Callable[[], pd.DataFrame]) -> Callable[[], pd.DataFrame]:
    """The same table, from the course's own prices."""

    def made() -> pd.DataFrame:
        with prices.shipped_only():
            return make()

    return made


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "08-price-by-calls",
        price_by_calls,
        _shipped(cost_range.cases),
        "The card's inputs give the chart's price; its text would take ten times the calls.",
        Lazily(lambda: {"claims": claims(), "title": "What a minute costs hangs on what counts as a call"}),
    ),
    Exhibit(
        "08-call-day",
        call_day,
        _shipped(bank_day),
        "A bank's day: GPUs reserved for the peak stand idle most of the time.",
        Lazily(
            lambda: {
                "calls_per_gpu": published.value("b200.card_agents"),
                "title": "A day of calls, and what is paid for it",
            }
        ),
    ),
    Exhibit(
        "08-tornado",
        tornado,
        _shipped(lambda: cost_range.tornado(ranges())),
        "Calls on one GPU move the price most, the region least.",
        {"title": "Which input matters most"},
    ),
    Exhibit(
        "08-cost-by-turn",
        cost_by_turn,
        _shipped(turns),
        "Without a cache each turn costs more than the one before.",
        {"title": "A long call at an API, turn by turn (GPT-5.6 Terra)"},
    ),
    Exhibit(
        "08-cost-by-volume",
        cost_by_volume,
        _shipped(volumes),
        "Where a rented GPU becomes cheaper than an API, if it does.",
        {"title": "Rent a GPU or pay by the token: our support call"},
    ),
    Exhibit(
        "08-call-minute",
        call_minute,
        _shipped(bills),
        "The model's share of a whole minute: small with PhoneLLM, more than half with Terra.",
        {"title": "The whole minute of a call"},
    ),
)
