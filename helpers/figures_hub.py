"""Figures of a download: how long it takes, and what it has to fetch again after it was broken off."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers import drawing, origins
from helpers.drawing import canvas, look, safe

KEPT = ("whole files kept", "part of a file kept")
AGAIN = "fetched by the second run"


def download_minutes(
    frame: pd.DataFrame, *, here_mbit_per_s: float | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """How long downloads take on lines of different bandwidth: a line for each download, logarithmic axes.

    Args:
        frame: one row a download and bandwidth, with ``label``, ``mbit_per_s``, ``minutes`` and ``origin``.
        here_mbit_per_s: the learner's own bandwidth, to mark; None to mark nothing.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "download_minutes", required=("label",), numeric=("mbit_per_s", "minutes"))
    with canvas(theme, 3.2, title) as (fig, colours):
        ax = fig.add_subplot()
        ax.set(xlabel="bandwidth in Mbit/s (logarithmic)", ylabel="minutes (logarithmic)")
        keys, words = [], []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            for label, rows in group.rows.groupby("label", sort=False):
                rows = rows.sort_values("mbit_per_s")
                ax.plot(
                    rows["mbit_per_s"], rows["minutes"], color=of.colour, ls=of.line, marker=of.marker, ms=4
                )
                last = rows.iloc[-1]
                place = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
                ax.annotate(
                    safe(label), (last["mbit_per_s"], last["minutes"]), annotation_clip=False, **place
                )
                listed = ", ".join(
                    f"{_minutes(minutes)} at {mbit:,.0f} Mbit/s"
                    for mbit, minutes in zip(rows["mbit_per_s"], rows["minutes"], strict=True)
                )
                words.append(f"{label} ({group.phrase}): {listed}.")
            keys.append(drawing.line_key(group, colours, marker=True))
        drawing.ms_axis(ax.xaxis, log=True)
        drawing.ms_axis(ax.yaxis, log=True)
        ax.set_xlim(frame["mbit_per_s"].min() / 1.15, frame["mbit_per_s"].max() * 1.15)
        ax.grid()
        if here_mbit_per_s:
            ax.axvline(here_mbit_per_s, color=colours.ink, lw=1.2)
            label = f"your line: {here_mbit_per_s:,.0f} Mbit/s"
            keys.append(Line2D([], [], color=colours.ink, lw=1.2, label=label))
            words.append(f"An upright line marks {label}.")
        drawing.legend(fig, keys)
        fig.alt = "Minutes to download against bandwidth. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def second_run(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """What a download that was broken off still has, and what its second run fetches: one bar a way.

    Args:
        frame: one row a way and part, with ``way``, ``part`` (``whole files kept``, ``part of a file kept``,
            ``fetched by the second run``), ``bytes`` and ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "second_run", required=("way", "part"), numeric=("bytes",))
    ways = list(dict.fromkeys(frame["way"]))
    origin = origins.note(frame, counted="way")
    with canvas(theme, 1.15 + 0.55 * len(ways), title) as (fig, colours):
        ax = fig.add_subplot()
        faces = {
            KEPT[0]: {"facecolor": colours.faint, "edgecolor": colours.muted},
            KEPT[1]: {"facecolor": colours.paper, "edgecolor": colours.muted, "hatch": "...."},
            AGAIN: {"facecolor": colours.orange, "edgecolor": colours.orange},
        }
        words = []
        for y, way in enumerate(ways):
            left = 0.0
            for part in (*KEPT, AGAIN):
                count = float(frame.loc[(frame["way"] == way) & (frame["part"] == part), "bytes"].sum()) / 1e6
                ax.barh(y, count, height=0.5, left=left, linewidth=1.0, **faces[part])
                left += count
            ax.annotate(
                f"{count:.2f} MB to fetch",
                (left, y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
            )
            words.append(f"{way}: {count:.2f} MB of {left:.2f} MB fetched by the second run.")
        ax.set_yticks(range(len(ways)), [safe(way) for way in ways])
        ax.set(ylim=(len(ways) - 0.5, -0.5), xlim=(0, left * 1.25), xlabel=f"MB of the repository, {origin}")
        ax.tick_params(axis="y", length=0)
        keys = [Patch(linewidth=1.0, label=part, **face) for part, face in faces.items()]
        drawing.legend(fig, keys)
        fig.alt = "What a download that was killed still has, and what it must fetch. " + " ".join(words)
        fig.alt += f" ({origin})"
        fig.note = origin
    return fig


def _minutes(count: float) -> str:
    return f"{count:,.0f} minutes" if count >= 10 else f"{count:.1f} minutes"
