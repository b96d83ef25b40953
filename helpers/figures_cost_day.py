"""Figures of cost over time: a day of calls on whole GPUs, a call turn by turn, a bill by its minutes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers import drawing, origins
from helpers.drawing import canvas, look, safe
from helpers.figures_cost import ticks_inside


def call_day(frame: pd.DataFrame, *, calls_per_gpu: float, title: str = "", theme: str = "light") -> Figure:
    """The hours of a day: live calls as bars, and above them what the GPUs that are paid for could carry.

    Args:
        frame: one row an hour, as :func:`helpers.cost_day.plan` gives it: ``hour``, ``live_calls``, ``gpus``,
            ``origin``.
        calls_per_gpu: live calls that one GPU carries.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "call_day", numeric=("hour", "live_calls", "gpus")).sort_values("hour")
    paid = frame["gpus"] * calls_per_gpu
    most = float(paid.max())
    with canvas(theme, 3.1, title) as (fig, colours):
        ax = fig.add_subplot()
        for origin, rows in frame.groupby("origin", sort=False):
            ax.bar(
                rows["hour"] + 0.5, rows["live_calls"], 0.86, **drawing.area(look(origin, colours), colours)
            )
        edges = np.append(frame["hour"], frame["hour"].iloc[-1] + 1)
        ax.stairs(paid, edges, color=colours.blue, lw=1.8, baseline=None)
        ax.plot([edges[0], edges[-1]], [most, most], color=colours.orange, lw=2.2, ls="--")
        mean = float(frame["live_calls"].mean())
        ax.plot([edges[0], edges[-1]], [mean, mean], color=colours.ink, lw=0.9, ls=":")
        ax.annotate(
            f"mean {mean:,.0f}", (edges[0], mean), (3, 3), textcoords="offset points", size=8,
            bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.4},
        )  # fmt: skip
        ax.set(xlim=(edges[0], edges[-1]), ylim=(0, most * 1.1 or 1))
        ax.set(xlabel="hour of the day", ylabel="live calls")
        ax.set_xticks(range(int(edges[0]), int(edges[-1]) + 1, 3))
        drawing.ms_axis(ax.yaxis)
        ticks_inside(ax.yaxis)
        keys = [
            Patch(**drawing.area(look(group.origin, colours), colours), label=f"live calls, {group.phrase}")
            for group in origins.groups(frame[["origin"]].drop_duplicates())
        ]
        by_hour, reserved = mean / float(paid.mean() or 1), mean / (most or 1)
        keys.append(Line2D([], [], color=colours.blue, lw=1.8,
                           label=f"paid by the hour: {by_hour:.0%} carry calls"))  # fmt: skip
        keys.append(Line2D([], [], color=colours.orange, lw=2.2, ls="--",
                           label=f"reserved for the peak: {reserved:.0%} carry calls"))  # fmt: skip
        drawing.legend(fig, keys)
        hours = ", ".join(
            f"{row['hour']:.0f} h {row['live_calls']:,.0f} on {row['gpus']:.0f} GPUs"
            for row in frame.to_dict("records")
        )
        fig.alt = (
            f"Live calls over a day: {hours}. GPUs paid by the hour are used to {by_hour:.0%}, GPUs reserved "
            f"for the peak to {reserved:.0%}."
        )
        fig.note = origins.note(frame)
    return fig


def cost_by_turn(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """What each turn of a call costs at an API: one line a way of billing, named at its end.

    Args:
        frame: one row a turn and series: ``series``, ``turn`` (from 1), ``usd`` (of that turn), ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "cost_by_turn", required=("series",), numeric=("turn", "usd"))
    cents = frame.assign(y=frame["usd"] * 100, x=frame["turn"])
    return _named_lines(
        cents, "turn of the call", "US cents for this turn", "Cost of each turn.", title, theme
    )


def cost_by_volume(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """What a day costs against the minutes of calls in it: one line a way, named at its end.

    Args:
        frame: one row a volume and series: ``series``, ``minutes_per_day``, ``usd_per_day``, ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "cost_by_volume", required=("series",), numeric=("minutes_per_day", "usd_per_day")
    )
    lines = frame.assign(x=frame["minutes_per_day"], y=frame["usd_per_day"])
    return _named_lines(lines, "minutes of calls in a day", "USD per day", "Cost of a day.", title, theme)


def _named_lines(frame: pd.DataFrame, xlabel: str, ylabel: str, alt: str, title: str, theme: str) -> Figure:
    """Lines over ``x`` and ``y``, each with its ``series`` written behind its end."""
    names = list(dict.fromkeys(frame["series"]))
    top, right = float(frame["y"].max()) * 1.08 or 1.0, float(frame["x"].max())
    height_in = 3.4
    with canvas(theme, height_in, title) as (fig, colours):
        ax = fig.add_subplot()
        tints = (colours.blue, colours.orange, colours.green, colours.purple, colours.ink)
        ends, words = [], []
        for number, name in enumerate(names):
            rows = frame[frame["series"] == name].sort_values("x", kind="stable")
            of, tint = look(rows["origin"].iloc[0], colours), tints[number % len(tints)]
            few = len(rows) <= 24
            ax.plot(
                rows["x"], rows["y"], color=tint, ls=of.line, lw=1.7, marker=of.marker if few else "", ms=4
            )
            ends.append((float(rows["y"].iloc[-1]), name))
            first, last = rows.iloc[0], rows.iloc[-1]
            words.append(
                f"{name} ({rows['origin'].iloc[0]}): {first['y']:,.3g} at {first['x']:,.0f}, "
                f"{last['y']:,.3g} at {last['x']:,.0f}."
            )
        labels = [drawing.wrapped(name, 24) for _, name in ends]
        lines = max(label.count("\n") + 1 for label in labels)
        places = drawing.apart([y for y, _ in ends], 0.075 * lines * top)
        over = max(max(places) - top * 0.97, 0.0)
        for (y, _), label, place in zip(ends, labels, places, strict=True):
            ax.annotate(
                label, (right, y), (right * 1.03, place - over), textcoords="data", size=8,
                va="center", ha="left", linespacing=1.1, annotation_clip=False,
            )  # fmt: skip
        ax.set(xlim=(0, right * 1.34), ylim=(0, top), xlabel=safe(xlabel), ylabel=safe(ylabel))
        ax.spines["bottom"].set_bounds(0, right)
        drawing.ms_axis(ax.xaxis)
        drawing.ms_axis(ax.yaxis)
        ticks_inside(ax.yaxis)
        ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= right])
        ax.grid(axis="y")
        keys = [
            drawing.line_key(group, colours, colour=colours.ink)
            for group in origins.groups(frame[["origin"]].drop_duplicates())
        ]
        drawing.legend(fig, keys)
        fig.alt = f"{alt} " + " ".join(words)
        fig.note = origins.note(frame)
    return fig
