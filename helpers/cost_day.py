"""A day of calls: when they come, how many GPUs that takes in each hour, and what share of them is idle.

Nobody chooses a utilisation. It falls out of three things: the shape of the day, how many calls one GPU
carries, and how the GPUs are paid for. The shape is that of a real call centre (``data/call_day.csv``).

Calls that come at random with a mean of a minutes of talk a minute are a calls at once, on average; that is
Little's law. How many lines it takes so that hardly a caller finds all of them busy is Erlang's loss formula
(A. K. Erlang, 1917): :func:`erlang_b`. Lines come in whole GPUs.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from helpers import published, tables
from helpers.arguments import number
from helpers.origins import validate
from helpers.settings import CourseError

HOURS = 24
BLOCKED = published.value("cost.blocked") / 100
START_MINUTES = published.value("cost.start_minutes")
COLD_START_S = published.value("cost.cold_start")
KEEP_S = published.value("cost.keep_warm")
TICK_S = 10
WAYS = ("reserved", "on demand", "serverless")
MOST_LINES = 100_000  # beyond it the recursion takes too long to wait for
MOST_CALLS = 20_000_000  # and so does a random day


def names() -> list[str]:
    """The shapes of a day there are."""
    return list(dict.fromkeys(_read()["day"]))


def day(name: str) -> pd.DataFrame:
    """One shape of a day.

    Returns:
        24 rows: ``hour`` (0 is from midnight to one), ``share`` of the day's calls (they add up to 1), and
        ``source``, ``date``, ``origin``.

    Raises:
        CourseError: there is no such day, or it has not 24 hours.
    """
    rows = _read()
    rows = rows[rows["day"] == name].sort_values("hour")
    if rows.empty:
        raise CourseError(f"There is no day {name!r}. There are: {', '.join(names())}.")
    if list(rows["hour"]) != list(range(HOURS)) or not (rows["value"] >= 0).all() or not rows["value"].sum():
        raise CourseError(f"The day {name!r} in data/call_day.csv needs a number for each hour from 0 to 23.")
    frame = rows.assign(share=rows["value"] / rows["value"].sum())
    frame["hour"] = frame["hour"].astype(int)
    columns = ["hour", "share", "source", "date", "origin"]
    return validate(frame[columns].reset_index(drop=True), numeric=("hour", "share"))


def peak_to_mean(shape: pd.DataFrame) -> float:
    """Calls of the busiest hour over the mean of all 24."""
    return float(shape["share"].max() * HOURS)


def erlang_b(lines: int, offered: float) -> float:
    """Share of the callers who find all lines busy, and give up.

    Args:
        lines: calls that can be live at once.
        offered: calls that would be live at once on average if nobody were turned away (in Erlang).

    Raises:
        CourseError: an argument makes no sense.
    """
    number("lines", lines, least=0, most=MOST_LINES)
    load = number("offered", offered, least=0)
    blocked = 1.0
    for line in range(1, int(lines) + 1):
        blocked = load * blocked / (line + load * blocked)
    return blocked if load else float(lines == 0)


def lines_for(offered: float, *, blocked: float = BLOCKED) -> int:
    """Fewest lines so that at most this share of the callers finds them all busy.

    Raises:
        CourseError: an argument makes no sense, or it takes more than :data:`MOST_LINES`.
    """
    load = number("offered", offered, least=0)
    share = number("blocked", blocked, above=0, most=1)
    if not load:
        return 0
    now = 1.0
    for line in range(1, MOST_LINES + 1):
        now = load * now / (line + load * now)
        if now <= share:
            return line
    raise CourseError(f"{load:,.0f} calls at once take more than {MOST_LINES:,} lines. Plan a part of them.")


def plan(
    shape: pd.DataFrame,
    *,
    calls_per_day: float,
    minutes_per_call: float,
    calls_per_gpu: float,
    blocked: float = BLOCKED,
    keep_s: float = KEEP_S,
    seed: int = 0,
) -> pd.DataFrame:
    """What each hour of the day needs.

    Args:
        shape: see :func:`day`.
        calls_per_day: calls that begin in a day.
        minutes_per_call: their mean length.
        calls_per_gpu: live calls that one GPU carries with its promise kept.
        blocked: share of callers who may find no line.
        keep_s: how long a serverless GPU is kept after it was last needed.
        seed: of the random day on which serverless GPUs come and go.

    Returns:
        24 rows: ``hour``, ``calls`` (that begin), ``live_calls`` (mean), ``lines`` (by Erlang's formula),
        ``gpus`` (whole ones, enough for the lines); of a random day with serverless GPUs ``warm_gpus`` (mean
        number that run) and ``starts`` (of a stopped one, each for a call); and ``origin`` (modelled).

    Raises:
        CourseError: an argument makes no sense.
    """
    calls = number("calls_per_day", calls_per_day, least=0, most=MOST_CALLS)
    minutes = number("minutes_per_call", minutes_per_call, above=0)
    most = int(number("calls_per_gpu", calls_per_gpu, least=1))
    frame = validate(shape, numeric=("hour", "share"), used_by="cost_day.plan")[["hour", "share"]]
    if list(frame["hour"]) != list(range(HOURS)) or not (frame["share"] >= 0).all():
        raise CourseError(
            "A day has 24 rows, for the hours 0 to 23 in order, each with a share of its calls (0 or more). "
            "Begin with cost_day.day(...)."
        )
    frame = frame.assign(calls=calls * frame["share"], hour=frame["hour"].astype(int))
    frame["live_calls"] = frame["calls"] * minutes / 60
    frame["lines"] = [lines_for(live, blocked=blocked) for live in frame["live_calls"]]
    frame["gpus"] = [math.ceil(lines / most) for lines in frame["lines"]]
    live = _random_day(frame["calls"].to_numpy(), minutes, seed)
    needed = pd.Series(np.ceil(live / most))
    keep = int(number("keep_s", keep_s, least=0, most=HOURS * 3600)) // TICK_S + 1
    warm = needed.rolling(keep, min_periods=1).max().to_numpy()
    began = np.maximum(np.diff(warm, prepend=warm[-1]), 0)
    frame["warm_gpus"] = warm.reshape(HOURS, -1).mean(axis=1)
    frame["starts"] = began.reshape(HOURS, -1).sum(axis=1)
    return validate(frame.drop(columns="share").assign(origin="modelled"), used_by="cost_day.plan")


def _random_day(calls: np.ndarray, minutes: float, seed: int) -> np.ndarray:
    """Live calls in steps of :data:`TICK_S` over a day: calls begin at random within each hour and last a
    random (exponential) time; those of the night before are taken from the same day's end."""
    chance = np.random.default_rng(number("seed", seed, least=0, whole=True))
    counts = chance.poisson(calls)
    hours = np.repeat(np.arange(HOURS), counts)
    begins = (hours + chance.random(len(hours))) * 3600 / TICK_S
    lasts = chance.exponential(60 * minutes / TICK_S, len(hours))
    ticks = HOURS * 3600 // TICK_S
    ends = begins + np.minimum(lasts, ticks)
    change = np.bincount(begins.astype(int), minlength=2 * ticks + 1).astype(float)
    change -= np.bincount(ends.astype(int), minlength=2 * ticks + 1)
    live = np.cumsum(change)[: 2 * ticks]
    return live[:ticks] + live[ticks:]


def bill(
    planned: pd.DataFrame,
    *,
    calls_per_gpu: float,
    usd_per_hour: dict[str, float],
    start_minutes: float = START_MINUTES,
    cold_start_s: float = COLD_START_S,
) -> pd.DataFrame:
    """The same day, paid for in three ways.

    - ``reserved``: as many GPUs as the busiest hour takes, all 24 hours.
    - ``on demand``: in each hour as many as it takes; each that is added is paid before it serves, too.
    - ``serverless``: by the second, as many as the live calls of the moment need, each kept for a while after
      that; each start is paid, and the caller for whom it happens waits for it.

    Args:
        planned: see :func:`plan`.
        calls_per_gpu: as it was given there.
        usd_per_hour: price of a GPU-hour for each of the three, region included.
        start_minutes: paid before a GPU on demand takes calls.
        cold_start_s: seconds of a start of a serverless GPU.

    Returns:
        One row a way: ``way``, ``usd_per_hour``, ``gpu_hours``, ``usd_per_day``, ``utilisation`` (call
        minutes by paid minutes times ``calls_per_gpu``), ``usd_per_minute`` (of a call), ``cold_calls``
        (share of the calls that wait for a start) and ``origin`` (modelled).

    Raises:
        CourseError: a price is missing, or an argument makes no sense; or no call comes all day.
    """
    most = int(number("calls_per_gpu", calls_per_gpu, least=1))
    columns = ("live_calls", "gpus", "warm_gpus", "starts", "calls")
    validate(planned, numeric=columns, used_by="cost_day.plan")
    call_hours = float(planned["live_calls"].sum())
    if not call_hours:
        raise CourseError("No call comes all day, so a minute of one has no price. Give calls_per_day.")
    gpus = planned["gpus"].to_numpy()
    added = np.maximum(np.diff(gpus, prepend=gpus[-1]), 0).sum()  # the day before was the same
    starts = float(planned["starts"].sum())
    hours = {
        "reserved": float(HOURS * gpus.max()),
        "on demand": float(gpus.sum() + added * number("start_minutes", start_minutes, least=0) / 60),
        "serverless": float(
            planned["warm_gpus"].sum() + starts * number("cold_start_s", cold_start_s, least=0) / 3600
        ),
    }
    rows = []
    for way in WAYS:
        if way not in usd_per_hour:
            raise CourseError(f"usd_per_hour has no price for {way!r}; it has {', '.join(usd_per_hour)}.")
        price = number(f"usd_per_hour[{way!r}]", usd_per_hour[way], least=0)
        rows.append(
            {
                "way": way,
                "usd_per_hour": price,
                "gpu_hours": hours[way],
                "usd_per_day": price * hours[way],
                "utilisation": call_hours / (hours[way] * most),
                "usd_per_minute": price * hours[way] / (call_hours * 60),
            }
        )
    cold = starts / float(planned["calls"].sum())
    frame = pd.DataFrame(rows).assign(origin="modelled")
    frame["cold_calls"] = np.where(frame["way"] == "serverless", min(cold, 1.0), 0.0)
    return validate(frame, used_by="cost_day.bill")


def _read() -> pd.DataFrame:
    return tables.read("call_day.csv", key=("day", "hour"), numeric=("hour", "value"))
