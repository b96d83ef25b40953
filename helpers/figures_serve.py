"""Figures of serving: where the time of a start goes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from helpers import drawing, origins
from helpers.drawing import canvas, look, safe
from helpers.settings import CourseError


def startup_phases(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Where the time of a server's start went: one bar a phase, from its beginning to its end.

    Args:
        frame: one row a phase, in order: ``phase``, ``from_s``, ``to_s``, ``process`` (which of the server's
            processes told its end), ``origin`` and optionally ``server`` and ``n`` (of starts). See
            :func:`helpers.server_log.startup`.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, a phase ends before it begins, or there is nothing to draw.
    """
    frame = drawing.checked(
        frame, "startup_phases", required=("phase", "process"), numeric=("from_s", "to_s")
    )
    for index, row in frame.iterrows():
        if row["to_s"] < row["from_s"]:
            raise CourseError(
                f"Row {index!r}, column 'to_s': {row['to_s']:g} is before 'from_s', {row['from_s']:g}."
            )
    groups = origins.groups(frame)
    end = float(frame["to_s"].max()) or 1.0
    with canvas(theme, 0.8 + 0.16 * len(groups) + 0.29 * len(frame), title) as (fig, colours):
        ax = fig.add_subplot()
        words = []
        for y, (_, row) in enumerate(frame.iterrows()):
            took = row["to_s"] - row["from_s"]
            of = look(row["origin"], colours)
            ax.barh(y, took, left=row["from_s"], height=0.6, **drawing.area(of, colours))
            text = f"{took:.0f} s" if took >= 1 else "under 1 s"
            ax.annotate(
                safe(f"{text}, {row['process']}" if row["process"] else text),
                (row["to_s"], y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                size=8,
            )
            words.append(f"{row['phase']}: {text}")
        ax.set_yticks(range(len(frame)), [safe(phase) for phase in frame["phase"]])
        ax.tick_params(axis="y", length=0)
        ax.set(xlim=(0, end * 1.32), ylim=(len(frame) - 0.4, -0.6), xlabel="seconds since the command")
        ax.grid(axis="x")
        drawing.ms_axis(ax.xaxis)
        drawing.legend(fig, [drawing.area_key(group, colours) for group in groups])
        fig.alt = f"Where the {end:.0f} seconds of a server's start went. " + "; ".join(words) + "."
        fig.note = origins.note(frame)
    return fig
