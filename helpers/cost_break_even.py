"""Renting a GPU or paying an API by the token: where the two bills meet, with the idle hours counted.

Both sides have to be the same calls. A price per minute at an API is a price of a kind of call, and so is the
number of calls that a GPU carries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from helpers.arguments import number
from helpers.cost import MINUTES
from helpers.origins import validate

HOURS = 24
MOST_POINTS = 100_000


@dataclass(frozen=True)
class BreakEven:
    """From where on a rented GPU is cheaper than an API.

    Attributes:
        utilisation: share of the paid capacity that has to carry calls; above 1: never.
        live_calls: calls at once, on average over all paid hours; infinite if never.
        minutes_per_day: call minutes a day; infinite if never.
    """

    utilisation: float
    live_calls: float
    minutes_per_day: float

    @property
    def possible(self) -> bool:
        """Whether a full GPU is as cheap at all."""
        return self.utilisation <= 1


def break_even(
    usd_per_gpu_hour: float, live_calls: float, api_usd_per_minute: float, *, paid_hours: float = HOURS
) -> BreakEven:
    """Where the bill of one GPU, idle hours included, meets the bill of an API.

    Args:
        usd_per_gpu_hour: what an hour costs, region included, whether calls come or not.
        live_calls: how many the GPU carries at once.
        api_usd_per_minute: of a call's minute at the API.
        paid_hours: hours a day for which the GPU is paid.

    Raises:
        CourseError: an argument makes no sense.
    """
    hour = number("usd_per_gpu_hour", usd_per_gpu_hour, least=0)
    most = number("live_calls", live_calls, above=0)
    api = number("api_usd_per_minute", api_usd_per_minute, above=0)
    hours = number("paid_hours", paid_hours, above=0, most=HOURS)
    needed = hour / MINUTES / api
    if needed > most:
        return BreakEven(needed / most, math.inf, math.inf)
    return BreakEven(needed / most, needed, needed * MINUTES * hours)


def gpu_usd_per_day(
    minutes_per_day: float, usd_per_gpu_hour: float, live_calls: float, *, peak_to_mean: float = 1.0
) -> float:
    """What rented GPUs cost for a day of calls: whole GPUs, enough for the busiest hour's mean, paid all day.

    Args:
        minutes_per_day: call minutes.
        usd_per_gpu_hour, live_calls: see :func:`break_even`.
        peak_to_mean: live calls of the busiest hour over the mean of the 24 hours. Lines beyond the busiest
            hour's mean, as Erlang's formula asks for, are left out: see :mod:`helpers.cost_day` for those.

    Raises:
        CourseError: an argument makes no sense.
    """
    minutes = number("minutes_per_day", minutes_per_day, least=0)
    peak = minutes / (HOURS * MINUTES) * number("peak_to_mean", peak_to_mean, least=1)
    most = number("live_calls", live_calls, above=0)
    gpus = max(1, math.ceil(peak / most - 1e-9))
    return gpus * HOURS * number("usd_per_gpu_hour", usd_per_gpu_hour, least=0)


def table(usd_per_gpu_hour: float, gpus: dict[str, float], api: dict[str, float]) -> pd.DataFrame:
    """:func:`break_even` of each GPU with each API.

    Args:
        usd_per_gpu_hour: see :func:`break_even`.
        gpus: name of a case -> live calls that a GPU carries.
        api: name of a model -> USD per minute.

    Returns:
        One row a pair: ``gpu``, ``api``, ``full_usd_per_minute`` (of a GPU that is full all day),
        ``api_usd_per_minute``, ``utilisation_needed`` (above 1: never), ``live_calls``, ``minutes_per_day``
        (infinite: never) and ``origin`` (modelled).

    Raises:
        CourseError: an argument makes no sense.
    """
    rows = []
    for (gpu, most), (name, usd) in ((one, other) for one in gpus.items() for other in api.items()):
        found = break_even(usd_per_gpu_hour, most, usd)
        rows.append(
            {
                "gpu": gpu,
                "api": name,
                "full_usd_per_minute": usd_per_gpu_hour / MINUTES / most,
                "api_usd_per_minute": usd,
                "utilisation_needed": found.utilisation,
                "live_calls": found.live_calls,
                "minutes_per_day": found.minutes_per_day,
            }
        )
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="cost_break_even.table")


def volumes(
    most_minutes: float,
    usd_per_gpu_hour: float,
    gpus: dict[str, float],
    api: dict[str, float],
    *,
    peak_to_mean: float = 1.0,
    points: int = 241,
) -> pd.DataFrame:
    """What a day costs against its call minutes, for :func:`helpers.figures_cost_day.cost_by_volume`.

    Args:
        most_minutes: the largest volume.
        usd_per_gpu_hour, gpus, api: see :func:`table`.
        peak_to_mean: see :func:`gpu_usd_per_day`.
        points: volumes, from 0 on.

    Returns:
        Columns ``series``, ``minutes_per_day``, ``usd_per_day`` and ``origin`` (modelled).

    Raises:
        CourseError: an argument makes no sense.
    """
    top = number("most_minutes", most_minutes, above=0)
    steps = number("points", points, least=2, most=MOST_POINTS, whole=True)
    each = [top * step / (steps - 1) for step in range(steps)]
    rows = [
        (name, volume, volume * number(f"api[{name!r}]", usd, least=0))
        for name, usd in api.items()
        for volume in each
    ]
    rows += [
        (name, volume, gpu_usd_per_day(volume, usd_per_gpu_hour, most, peak_to_mean=peak_to_mean))
        for name, most in gpus.items()
        for volume in each
    ]
    frame = pd.DataFrame(rows, columns=["series", "minutes_per_day", "usd_per_day"])
    return validate(frame.assign(origin="modelled"), used_by="cost_break_even.volumes")
