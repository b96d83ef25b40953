"""From the price of a GPU hour to the price of an agent minute: the cost chain, as plain functions.

One thing is divided by another, four times, and each step has its own name and unit::

    USD per GPU-hour            what the provider asks
      x region factor           for a machine in a region of your choice
      / utilisation             idle hours are paid too: only this share of the paid capacity carries calls
      / 60                      USD per minute of a GPU that is full
      / live calls              USD per agent minute: one call, one minute

``live calls`` is the limit of lesson 07: how many the GPU carries with its promise kept. Everything computed
here is ``modelled``: arithmetic, however good its inputs are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from helpers.arguments import number
from helpers.origins import validate
from helpers.settings import CourseError

MINUTES = 60  # in an hour


class Limited(Protocol):
    """A limit in live calls with its interval, such as :func:`helpers.limits.latest` gives."""

    live_calls: float
    low: float
    high: float | None


def effective_hour(
    price_usd_per_hour: float, *, region_factor: float = 1.0, utilisation: float = 1.0
) -> float:
    """USD for an hour of a GPU that is full: what the idle hours cost is laid on the full ones.

    Args:
        price_usd_per_hour: list price of one GPU for an hour.
        region_factor: what a pinned region multiplies it by.
        utilisation: share of the paid capacity that carries calls, above 0 and at most 1.

    Raises:
        CourseError: an argument makes no sense.
    """
    price = number("price_usd_per_hour", price_usd_per_hour, least=0)
    factor = number("region_factor", region_factor, above=0)
    used = number("utilisation", utilisation, above=0, most=1, example="0.7 for 70 %")
    return price * factor / used


def agent_minute(
    price_usd_per_hour: float, live_calls: float, *, region_factor: float = 1.0, utilisation: float = 1.0
) -> float:
    """USD for one minute of one call.

    Args:
        price_usd_per_hour: list price of one GPU for an hour.
        live_calls: calls that the GPU carries at once when it is full.
        region_factor, utilisation: see :func:`effective_hour`.

    Raises:
        CourseError: an argument makes no sense.
    """
    calls = number("live_calls", live_calls, above=0)
    hour = effective_hour(price_usd_per_hour, region_factor=region_factor, utilisation=utilisation)
    return hour / MINUTES / calls


def calls_needed(
    price_usd_per_hour: float, usd_per_minute: float, *, region_factor: float = 1.0, utilisation: float = 1.0
) -> float:
    """Live calls that one GPU would have to carry for a minute to cost so much: the chain backwards.

    Raises:
        CourseError: an argument makes no sense.
    """
    target = number("usd_per_minute", usd_per_minute, above=0)
    hour = effective_hour(price_usd_per_hour, region_factor=region_factor, utilisation=utilisation)
    return hour / MINUTES / target


def hour_needed(usd_per_minute: float, live_calls: float) -> float:
    """USD that an hour of a full GPU would have to cost, region and idle time included, for a minute to cost
    so much.

    Raises:
        CourseError: an argument makes no sense.
    """
    target = number("usd_per_minute", usd_per_minute, least=0)
    return target * MINUTES * number("live_calls", live_calls, above=0)


def saving(usd: float, instead_of_usd: float) -> float:
    """Which share of a price is saved by paying another one: 0.25 is "25 % cheaper"; below 0 is dearer.

    The base is what would have been paid otherwise. Both prices in the same unit.

    Raises:
        CourseError: a price is no price, or the base is 0.
    """
    new = number("usd", usd, least=0)
    return 1 - new / number("instead_of_usd", instead_of_usd, above=0)


def chain(
    price_usd_per_hour: float, live_calls: float, *, region_factor: float = 1.0, utilisation: float = 1.0
) -> pd.DataFrame:
    """The chain step by step.

    Returns:
        Columns ``step``, ``how`` (what was done to the value above), ``value``, ``unit`` and ``origin``
        (modelled).

    Raises:
        CourseError: an argument makes no sense.
    """
    minute = agent_minute(
        price_usd_per_hour, live_calls, region_factor=region_factor, utilisation=utilisation
    )
    pinned = effective_hour(price_usd_per_hour, region_factor=region_factor)
    full = effective_hour(price_usd_per_hour, region_factor=region_factor, utilisation=utilisation)
    rows = [
        ("list price", "", float(price_usd_per_hour), "USD per GPU-hour"),
        ("in a region of your choice", f"x {region_factor:g}", pinned, "USD per GPU-hour"),
        ("idle time paid", f"/ {utilisation:g}", full, "USD per full GPU-hour"),
        ("a minute", "/ 60", full / MINUTES, "USD per full GPU-minute"),
        ("one call of many", f"/ {live_calls:g}", minute, "USD per agent minute"),
    ]
    frame = pd.DataFrame(rows, columns=["step", "how", "value", "unit"])
    return validate(frame.assign(origin="modelled"), used_by="cost.chain")


@dataclass(frozen=True)
class Priced:
    """The price of an agent minute with its interval. Many calls make a low price, so the ends change places:
    ``low`` comes from the highest number of calls.

    Attributes:
        usd_per_minute: at the estimate.
        low: at the highest number of live calls; None if none is known.
        high: at the lowest; infinite if not even one call is sure.
    """

    usd_per_minute: float
    low: float | None
    high: float

    def sentence(self) -> str:
        """The price in words, saying which end is open."""
        said = f"{usd(self.usd_per_minute)} per agent minute"
        most = "no upper bound" if math.isinf(self.high) else f"at most {usd(self.high)}"
        if self.low is None:
            return f"{said}, {most}; no lower bound, because more calls may fit than were tried"
        return f"{said}, between {usd(self.low)} and " + (
            f"{usd(self.high)}" if math.isfinite(self.high) else "no upper bound: not one call is sure"
        )


def from_limit(
    limit: Limited, price_usd_per_hour: float, *, region_factor: float = 1.0, utilisation: float = 1.0
) -> Priced:
    """The price of a minute at a limit that was searched for, with the interval of the limit.

    The interval is that of the limit alone. Price, region and utilisation have their own doubts.

    Args:
        limit: ``live_calls``, and ``low`` and ``high`` around it; ``high`` None if no level failed.
        price_usd_per_hour: of the machine that the limit was found on.
        region_factor, utilisation: see :func:`effective_hour`.

    Raises:
        CourseError: an argument makes no sense, or the ends are not in order.
    """
    estimate = number("limit.live_calls", limit.live_calls, above=0)
    lowest = number("limit.low", limit.low, least=0)
    highest = math.inf if limit.high is None else number("limit.high", limit.high, above=0)
    if not lowest <= estimate <= highest:
        raise CourseError(
            f"The limit's estimate ({estimate:g} live calls) is not between its ends ({lowest:g} and "
            f"{highest:g}). Look at the limit: print(limit)."
        )
    options = {"region_factor": region_factor, "utilisation": utilisation}
    return Priced(
        usd_per_minute=agent_minute(price_usd_per_hour, estimate, **options),
        low=None if limit.high is None else agent_minute(price_usd_per_hour, highest, **options),
        high=agent_minute(price_usd_per_hour, lowest, **options) if lowest else math.inf,
    )


def usd(value: float) -> str:
    """``0.00254 USD``: three digits that count, never as a power of ten; thousands apart from 1000 on."""
    if not math.isfinite(value):
        return "an unbounded price"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f} USD"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(digits, 2)}f} USD"
