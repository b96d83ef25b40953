"""Which input matters most: each input of the cost chain over its plausible range, alone and together.

A range comes from the data wherever there is one: the lowest and the highest price on the list, the factors
of the provider, the calls that somebody measured or a model computed. What is our own judgement says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers import b200, cost, prices, published
from helpers.arguments import number
from helpers.origins import validate
from helpers.settings import CourseError

DRAWS = 20_000
MOST_DRAWS = 2_000_000
ARGUMENTS = ("price_usd_per_hour", "region_factor", "utilisation", "live_calls")


@dataclass(frozen=True)
class Range:
    """An input and how far it may plausibly go.

    Attributes:
        name: argument of :func:`helpers.cost.agent_minute`.
        words: the same for a reader, with its unit.
        low, base, high: smallest, starting and largest value.
        why: where the two ends come from.
        origin: of the ends; ``modelled`` if one of them is computed or our judgement.
    """

    name: str
    words: str
    low: float
    base: float
    high: float
    why: str
    origin: str


def card_ranges(*, idle_utilisation: float) -> tuple[Range, ...]:
    """The inputs of the card's price, and how far each may go.

    Args:
        idle_utilisation: the lowest utilisation to reckon with, such as that of a day of calls on GPUs that
            are reserved for its busiest hour (:mod:`helpers.cost_day`).

    Raises:
        CourseError: the utilisation is none, or is above the card's.
    """
    gpus = prices.table("gpu")
    offers = gpus[(gpus["item"] == "B200") & (gpus["billing"] != "spot")]
    low, high = offers["value"].idxmin(), offers["value"].idxmax()
    agents = published.value("b200.card_agents")
    modelled = b200.recorded_answers()
    ours = modelled[modelled["who"].str.startswith("BF16, corrected") & (modelled["load"] == "live calls")]
    used = published.value("cost.card_utilisation") / 100
    number("idle_utilisation", idle_utilisation, above=0, most=used)
    return (
        Range(
            "live_calls",
            "live calls on one GPU",
            agents / published.value("cost.card_tuning"),
            agents,
            float(ours["number"].iloc[0]),
            "half of the card's (its server was tuned, which about doubled it) to what our model of a B200 "
            "says of our own support call",
            "modelled",
        ),
        Range(
            "price_usd_per_hour",
            "USD per GPU-hour",
            float(offers.loc[low, "value"]),
            prices.value("gpu.b200.modal", prices.UNITS["gpu"]),
            float(offers.loc[high, "value"]),
            f"lowest and highest offer of a B200 on the list, spot left out ({offers.loc[low, 'date']} and "
            f"{offers.loc[high, 'date']})",
            "published",
        ),
        Range(
            "utilisation",
            "utilisation",
            idle_utilisation,
            used,
            0.9,
            "the day of a call centre on GPUs reserved for its peak, to nine tenths (our judgement)",
            "modelled",
        ),
        Range(
            "region_factor",
            "region factor",
            prices.value("region.none", "times"),
            prices.value("region.broad", "times"),
            prices.value("region.narrow", "times"),
            "no region asked for, to a narrow one",
            "published",
        ),
    )


def tornado(ranges: tuple[Range, ...]) -> pd.DataFrame:
    """The price of a minute with one input at either end of its range, all others where they start.

    Returns:
        One row an input, the widest first: ``input``, ``low_value``, ``base_value``, ``high_value``,
        ``at_low`` and ``at_high`` (USD per agent minute with the input at its low and high end), ``base``
        (the price with none changed), ``times`` (the larger of the two by the smaller), ``why`` and
        ``origin`` (modelled: arithmetic on the ends).

    Raises:
        CourseError: an input is missing, or a value makes no sense.
    """
    base = _base(ranges)
    start = cost.agent_minute(**base)
    rows = []
    for entry in ranges:
        ends = [cost.agent_minute(**base | {entry.name: value}) for value in (entry.low, entry.high)]
        rows.append(
            {
                "input": entry.words,
                "low_value": entry.low,
                "base_value": entry.base,
                "high_value": entry.high,
                "at_low": ends[0],
                "at_high": ends[1],
                "base": start,
                "times": max(ends) / min(ends),
                "why": entry.why,
                "origin": "modelled",
            }
        )
    frame = pd.DataFrame(rows).sort_values("times", ascending=False, ignore_index=True)
    return validate(frame, used_by="cost_range.tornado")


def together(ranges: tuple[Range, ...], *, draws: int = DRAWS, seed: int = 0) -> pd.Series:
    """All inputs drawn at random at once: the price of a minute, as quantiles.

    Each is drawn from a triangle on the logarithmic scale, with its tip at the starting value and its feet at
    the two ends, independent of the others. That shape is our assumption; the ends are those of the ranges.

    Returns:
        ``P05``, ``P25``, ``P50``, ``P75``, ``P95`` in USD per agent minute, the same for the same seed.

    Raises:
        CourseError: an input is missing, or a value makes no sense.
    """
    _base(ranges)
    draws = number("draws", draws, least=100, most=MOST_DRAWS, whole=True)
    chance = np.random.default_rng(number("seed", seed, least=0, whole=True))
    drawn = {}
    for entry in ranges:
        low, base, high = np.log([entry.low, entry.base, entry.high])
        drawn[entry.name] = np.exp(chance.triangular(low, base, high, draws)) if low < high else entry.base
    price = drawn["price_usd_per_hour"] * drawn["region_factor"]
    minute = price / drawn["utilisation"] / cost.MINUTES / drawn["live_calls"]
    marks = (5, 25, 50, 75, 95)
    return pd.Series(np.percentile(minute, marks), index=[f"P{mark:02d}" for mark in marks])


def _base(ranges: tuple[Range, ...]) -> Mapping[str, float]:
    """The starting values by argument, after a look at the ranges."""
    base = {entry.name: entry.base for entry in ranges}
    if sorted(base) != sorted(ARGUMENTS) or len(base) != len(ranges):
        raise CourseError(f"Give one range for each of {', '.join(ARGUMENTS)}; these are {', '.join(base)}.")
    for entry in ranges:
        if not 0 < entry.low <= entry.base <= entry.high:
            raise CourseError(
                f"The range of {entry.name} is {entry.low} to {entry.high} around {entry.base}: "
                f"it has to be above 0 and in order."
            )
    return base


def cases() -> pd.DataFrame:
    """Prices of a minute for each number of calls that somebody has claimed, measured or modelled (of our
    model of a B200 the corrected answers only, which are the lower ones).

    Returns:
        One row a case: ``who``, ``what`` is counted, ``gpu``, ``live_calls``, ``usd_per_hour`` (list price),
        ``region_factor``, ``utilisation``, ``usd_per_minute`` and ``origin`` (of the number of calls; the
        price computed from it is no better than that), ``source`` and ``date`` of the number.
    """
    card = {
        "gpu": "B200",
        "usd_per_hour": prices.value("gpu.b200.modal", prices.UNITS["gpu"]),
        "region_factor": prices.value("region.broad", "times"),
        "utilisation": published.value("cost.card_utilisation") / 100,
    }
    small = {"gpu": "L40S", "usd_per_hour": prices.value("gpu.l40s.modal", prices.UNITS["gpu"])}
    rows = []
    answers = b200.recorded_answers()
    own = answers[(answers["load"] == "live calls") & answers["who"].str.contains(", corrected")]
    for answer in own.to_dict("records"):
        who = f"our model, {answer['who'].partition(',')[0]}"
        rows.append(card | {"who": who, "what": "live calls, our support call",
                            "live_calls": answer["number"], "origin": "modelled",
                            "source": "this course's model", "date": ""})  # fmt: skip
    for name, what in (("b200.card_processes", "simulated processes"), ("b200.card_agents", "agents")):
        rows.append(card | {"who": "the model's card", "what": what} | _published(name))
    whole = (
        ("L40S, list price", 1.0, 1.0),
        ("L40S, as the card", card["region_factor"], card["utilisation"]),
    )
    for who, factor, used in whole:
        rows.append(small | {"who": who, "what": "requests in flight", "region_factor": factor,
                             "utilisation": used} | _published("cost.l40s_calls"))  # fmt: skip
    frame = pd.DataFrame(rows)
    frame["usd_per_minute"] = [
        cost.agent_minute(
            row["usd_per_hour"],
            row["live_calls"],
            region_factor=row["region_factor"],
            utilisation=row["utilisation"],
        )
        for row in rows
    ]
    first = ["who", "what", "gpu", "live_calls", "usd_per_hour", "region_factor", "utilisation"]
    return validate(frame[[*first, "usd_per_minute", "origin", "source", "date"]], used_by="cost_range.cases")


def _published(name: str) -> dict[str, object]:
    row = published.table(name).iloc[0]
    return {"live_calls": row["value"], **{key: row[key] for key in ("origin", "source", "date")}}
