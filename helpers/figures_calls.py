"""Figures of calls and the requests in flight that they make: who talks when, and Little's law."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from helpers import drawing, origins
from helpers.calls import in_flight
from helpers.drawing import canvas, look, many, safe
from helpers.settings import CourseError


def call_timeline(frame: pd.DataFrame, *, calls: int = 6, title: str = "", theme: str = "light") -> Figure:
    """Some live calls over time, and below them how many requests were in flight: when does the model work?

    Args:
        frame: one row a request, with ``call``, ``due_s``, ``sent_s``, ``first_answer_s``, ``ended_s``,
            ``heard_s`` (when the caller had heard the answer; may be missing), ``call_began_s``, ``origin``
            and optionally ``server``.
        calls: how many calls to draw, the first to begin; the requests in flight are those of all.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    times = ("due_s", "sent_s", "first_answer_s", "ended_s", "heard_s", "call_began_s")
    frame = drawing.checked(frame, "call_timeline", required=("call",), numeric=times, gaps=True)
    first = frame.groupby("call", sort=False)["call_began_s"].min().sort_values(kind="stable")
    shown = list(first.index[:calls])
    end_s = float(frame[["ended_s", "heard_s"]].max().max())
    with canvas(theme, 1.9 + 0.3 * len(shown), title) as (fig, colours):
        top, below = fig.subplots(
            2, 1, sharex=True, gridspec_kw={"height_ratios": [max(len(shown), 2) * 0.9, 2.6]}
        )
        talk = {"facecolor": colours.paper, "edgecolor": colours.muted, "linewidth": 0.8}
        kinds = {
            "the caller thinks and speaks": talk,
            "waits for the first token": {"facecolor": colours.orange, "edgecolor": colours.orange},
            "the answer streams": {
                "facecolor": drawing.tint(colours.blue, colours, 0.3),
                "edgecolor": colours.blue,
            },
            "the caller listens on": talk | {"hatch": "////"},
        }
        for y, call in enumerate(shown):
            quiet_s = float(first[call])
            for row in frame[frame["call"] == call].sort_values("due_s").to_dict("records"):
                token_s = (
                    row["first_answer_s"]
                    if row["first_answer_s"] == row["first_answer_s"]
                    else row["ended_s"]
                )
                heard_s = row["heard_s"] if row["heard_s"] == row["heard_s"] else row["ended_s"]
                edges = (quiet_s, row["due_s"], token_s, row["ended_s"], heard_s)
                for (begin, stop), (name, face) in zip(pairwise(edges), kinds.items(), strict=True):
                    height = 0.34 if "caller" in name else 0.6
                    top.barh(y, max(stop - begin, 0), left=begin, height=height, **face)
                quiet_s = heard_s
        top.set_yticks(range(len(shown)), [f"call {number + 1}" for number in range(len(shown))])
        top.set_ylim(len(shown) - 0.4, -0.6)
        top.tick_params(axis="y", length=0)
        keys: list[Any] = [Patch(**face, label=name) for name, face in kinds.items()]
        words = []
        for group in origins.groups(frame):
            steps = in_flight(group.rows.assign(run=""))
            of = look(group.origin, colours)
            below.step(steps["at_s"], steps["in_flight"], where="post", color=of.colour, ls=of.line, lw=1.4)
            keys.append(Line2D([], [], color=of.colour, ls=of.line, lw=1.6, label=group.phrase))
            most = int(steps["in_flight"].max())
            span = float(group.rows["ended_s"].max() - group.rows["sent_s"].min())
            flight = float((group.rows["ended_s"] - group.rows["sent_s"]).sum())
            mean = flight / span if span > 0 else math.nan
            below.axhline(mean, color=colours.muted, lw=0.8)
            below.annotate(
                f"mean {mean:.2f}",
                (0, mean),  # before the first caller has spoken nothing is in flight
                xytext=(3, 3),
                textcoords="offset points",
                bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 1.0},
            )
            words.append(
                f"{group.phrase}: {many(group.rows['call'].nunique(), 'call')} with "
                f"{many(len(group.rows), 'request')}; at most {most} in flight at once, "
                f"{mean:.2f} on average."
            )
        below.set(xlim=(0, end_s), xlabel="seconds since the run began", ylabel="requests\nin flight")
        below.set_ylim(0, None)
        below.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        below.grid(axis="y")
        drawing.legend(fig, keys)
        fig.alt = (
            f"Timeline of {many(len(shown), 'call')}: thinking and speaking, waiting for the first token, "
            "the answer streaming, listening on; below it the requests in flight of all calls. "
            + " ".join(words)
        )
        fig.note = origins.note(frame)
    return fig


def little_check(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Little's law: requests a second times seconds each, against the requests in flight; equal on the line.

    Args:
        frame: one row a run, with ``label``, ``rate_x_time`` and ``in_flight`` (counted, or asked for),
            ``origin``, and for published rows ``source`` and ``date``; optionally ``server``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "little_check", required=("label",), numeric=("rate_x_time", "in_flight"))
    values = frame[["rate_x_time", "in_flight"]].to_numpy(dtype=float)
    if (values <= 0).any():
        raise CourseError("figures.little_check draws on logarithmic axes: leave out runs without requests.")
    low, high = float(values.min()) / 1.7, float(values.max()) * 2.2
    with canvas(theme, 3.6, title) as (fig, colours):
        ax = fig.add_subplot()
        ax.plot([low, high], [low, high], color=colours.muted, lw=1.0, zorder=0)
        keys, words = [], []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            ax.plot(
                group.rows["in_flight"],
                group.rows["rate_x_time"],
                ls="",
                marker=of.marker,
                ms=7,
                color=of.colour,
                mec=colours.paper,
            )
            keys.append(Line2D([], [], ls="", marker=of.marker, ms=7, color=of.colour, label=group.phrase))
            below = 0.0  # where the last text below the line stands
            for row in group.rows.sort_values("in_flight", kind="stable").to_dict("records"):
                crowded = row["in_flight"] < below * 1.35
                below = below if crowded else row["in_flight"]
                ax.annotate(
                    safe(row["label"]),
                    (row["in_flight"], row["rate_x_time"]),
                    xytext=(-8, 3) if crowded else (8, -3),
                    textcoords="offset points",
                    ha="right" if crowded else "left",
                    va="bottom" if crowded else "top",
                    size=8,
                )
                words.append(
                    f"{row['label']} ({group.origin}): {row['rate_x_time']:.2f} by the law, "
                    f"{row['in_flight']:.2f} in flight."
                )
        ax.set(
            xlabel="requests in flight, mean (logarithmic)", ylabel="requests a second \u00d7 seconds each"
        )
        for axis in (ax.xaxis, ax.yaxis):
            drawing.ms_axis(axis, log=True)
        ax.set(xlim=(low, high), ylim=(low, high))
        ax.grid(axis="both")
        drawing.legend(fig, keys)
        fig.alt = "Requests a second times seconds each, against the requests in flight. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig
