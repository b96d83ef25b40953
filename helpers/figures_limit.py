"""Figures of a limit: what a search spent, and what a trap does to a percentile."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from helpers import drawing, origins
from helpers.drawing import WIDTH_IN, canvas, look, ms, safe
from helpers.settings import CourseError

VERDICTS = ("holds", "open", "fails")


def search_path(
    frame: pd.DataFrame,
    *,
    answer: int | None = None,
    unit: str = "live calls",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Where a search spent its calls: each measurement a mark at its level, the verdict written beside it.

    A search that measured nothing has no row; the figure then says so.

    Args:
        frame: one row a measurement, as ``Found.probes`` has it: ``live_calls``, ``calls``, ``share`` (within
            the limit), ``purpose`` (``search`` or ``confirm``), ``verdict`` (``holds``, ``open``, ``fails``),
            ``origin``.
        answer: the level that was found; a line.
        unit: of ``live_calls``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    needed, numbers = ("purpose", "verdict"), ("live_calls", "calls", "share")
    if origins.validate(frame, required=(*needed, *numbers), used_by="figures.search_path").empty:
        return _nothing_measured(title, theme)
    frame = drawing.checked(frame, "search_path", required=needed, numeric=numbers)
    for index, verdict in frame["verdict"].items():
        if verdict not in VERDICTS:
            raise CourseError(
                f"Row {index!r}, column 'verdict': {verdict!r} is none of {', '.join(VERDICTS)}."
            )
    ends, most = frame["calls"].cumsum(), float(frame["live_calls"].max())
    with canvas(theme, 3.4, title) as (fig, colours):
        ax = fig.add_subplot()
        faces = {"holds": colours.green, "open": colours.paper, "fails": colours.orange}
        words = []
        ax.plot(ends - frame["calls"] / 2, frame["live_calls"], color=colours.faint, lw=1.0, zorder=1)
        rows = frame.assign(stop=ends).to_dict("records")
        for row in rows:
            level, begin, stop = row["live_calls"], row["stop"] - row["calls"], row["stop"]
            width = 3.0 if row["purpose"] == "confirm" else 1.2
            ax.plot([begin, stop], [level, level], color=colours.ink, lw=width, solid_capstyle="butt")
            point = {"marker": look(row["origin"], colours).marker, "ms": 9, "mec": colours.ink, "mew": 1.2}
            ax.plot((begin + stop) / 2, level, mfc=faces[row["verdict"]], **point)
            words.append(
                f"{level:g} {unit}, {row['calls']:g} calls ({row['purpose']}): {_share(row['share'])} within "
                f"the limit, {row['verdict']}."
            )
        inch = float(ends.iloc[-1]) * 1.03 / (WIDTH_IN - 0.7)  # calls an inch of the axis stands for
        above: list[tuple[float, float]] = []  # place and level of the texts above their marks
        # Measurements that follow each other at one level share a text: the last has the last word.
        for (level, purpose), group in groupby(rows, key=lambda row: (row["live_calls"], row["purpose"])):
            part = list(group)
            place = (part[0]["stop"] - part[0]["calls"] + part[-1]["stop"]) / 2
            share = sum(row["share"] * row["calls"] for row in part) / sum(row["calls"] for row in part)
            lines = [part[-1]["verdict"], _share(share)] + ["fresh run"] * (purpose == "confirm")
            crowded = any(place - x < 0.6 * inch and abs(level - y) < 0.3 * most for x, y in above[-1:])
            if not crowded:
                above.append((place, level))
            ax.annotate(
                "\n".join(lines),
                (place, level),
                xytext=(0, -8 if crowded else 8),
                textcoords="offset points",
                ha="center",
                va="top" if crowded else "bottom",
                size=8,
            )
        if answer is not None:
            ax.axhline(answer, color=colours.green, lw=1.0, ls="--", zorder=0)
        ax.set(xlim=(0, float(ends.iloc[-1]) * 1.03), ylim=(-0.12 * most, most * 1.35 + 0.5), ylabel=unit)
        ax.set_xlabel("calls spent so far (the length of a line: the calls of that measurement)")
        ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.grid(axis="y")
        marks = [
            Line2D([], [], ls="", marker="o", ms=7, mfc=face, mec=colours.ink, label=name)
            for name, face in faces.items()
            if name in set(frame["verdict"])
        ]
        if answer is not None:
            marks.append(Line2D([], [], color=colours.green, lw=1.0, ls="--", label="what it found"))
        keys = [
            Line2D(
                [],
                [],
                ls="",
                marker=look(group.origin, colours).marker,
                ms=7,
                mfc=colours.paper,
                mec=colours.ink,
                label=group.phrase,
            )
            for group in origins.groups(frame.drop(columns="n", errors="ignore"))
        ]
        drawing.legend(fig, [*marks, *keys])
        found = "" if answer is None else f" Found: {answer} {unit}."
        fig.alt = f"The measurements of a search, in order.{found} " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def _nothing_measured(title: str, theme: str) -> Figure:
    """The picture of a search without a measurement."""
    said = "Nothing was measured: the search ended before its first measurement was over."
    with canvas(theme, 1.0, title) as (fig, _):
        ax = fig.add_subplot()
        ax.set_axis_off()
        ax.annotate(said, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center")
        fig.alt = said
        fig.note = "no measurement"
    return fig


def percentiles_by_run(
    frame: pd.DataFrame, *, limit_ms: float | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """P50, P95 and P99 of some runs, one row a run: what a trap does to them.

    Args:
        frame: one row a run, with ``run``, ``p50_ms``, ``p95_ms``, ``p99_ms``, ``origin`` and optionally
            ``server``, ``n`` (requests of a run), and ``clock`` where the same run is timed in two ways
            (``from sending``, ``from when due``). As :func:`helpers.showcases.summary` makes it.
        limit_ms: drawn as a line, if given.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("p50_ms", "p95_ms", "p99_ms")
    frame = drawing.checked(frame, "percentiles_by_run", required=("run",), numeric=columns, infinite=columns)
    values = frame[list(columns)].to_numpy(dtype=float)
    shown = values if limit_ms is None else np.append(values, limit_ms)  # the limit is in the picture, too
    finite = shown[np.isfinite(shown) & (shown > 0)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 1.0)
    lowest = float(values[np.isfinite(values)].min(initial=0.0))  # a difference of clocks may be below 0
    log = high > 12 * low and lowest >= 0
    edge, start = high * (2.2 if log else 1.2), low / 1.6 if log else 1.1 * lowest
    clocks = "clock" in frame.columns
    groups = origins.groups(frame)
    with canvas(theme, max(0.7 + 0.2 * len(groups) + 0.46 * len(frame), 2.0), title) as (fig, colours):
        ax = fig.add_subplot()
        words = []
        for y, row in enumerate(frame.to_dict("records")):
            of = look(row["origin"], colours)
            ends = [min(row[name], edge) for name in columns]
            ax.plot([ends[0], ends[-1]], [y, y], color=of.colour, ls=of.line, lw=1.4, zorder=1)
            faces = (of.colour, colours.paper, colours.paper)
            for place, face, size in zip(ends, faces, (7, 7, 4.5), strict=True):
                ax.plot(place, y, marker=of.marker, ms=size, mfc=face, mec=of.colour, mew=1.4, clip_on=False)
            right = (ends[0] / start) ** 2 > edge / start if log else ends[0] > edge / 2
            numbers = " / ".join(ms(row[name]).removesuffix(" ms") for name in columns)
            ax.annotate(
                f"{numbers} ms",
                (ends[-1] if right else ends[0], y),
                xytext=(4 if right else -4, 7),
                textcoords="offset points",
                ha="right" if right else "left",
                size=8,
            )
            told = ", ".join(f"{name[:3].upper()} {ms(row[name])}" for name in columns)
            words.append(f"{row['run']}{', ' + row['clock'] if clocks else ''} ({row['origin']}): {told}.")
        if limit_ms is not None:
            ax.axvline(limit_ms, color=colours.ink, **drawing.LIMIT_LINE)
            ax.annotate(
                f"limit {ms(limit_ms)}",
                (limit_ms, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -2),
                textcoords="offset points",
                va="top",
                size=8,
            )
        names = [
            f"{row['run']}\n{row['clock']}" if clocks else drawing.wrapped(row["run"], 24)
            for row in frame.to_dict("records")
        ]
        ax.set_yticks(range(len(frame)), [safe(name).replace("\u21b5", "\n") for name in names])
        ax.set_ylim(len(frame) - 0.4, -0.75)
        ax.tick_params(axis="y", length=0)
        if log:
            drawing.ms_axis(ax.xaxis, log=True)
        ax.set_xlim(start, edge)
        if not log:
            drawing.ms_axis(ax.xaxis)
        ax.set_xlabel(f"ms{' (logarithmic)' if log else ''}")
        ax.grid(axis="x")
        keys = [drawing.line_key(group, colours, marker=True) for group in groups]
        if limit_ms is not None:
            keys.append(drawing.limit_key(limit_ms, colours))
        point = {"ls": "", "marker": "o", "mec": colours.ink, "mew": 1.4}
        for label, face, size in (
            ("P50", colours.ink, 7),
            ("P95", colours.paper, 7),
            ("P99 (the numbers: P50 / P95 / P99)", colours.paper, 4.5),
        ):
            keys.append(Line2D([], [], mfc=face, ms=size, label=label, **point))
        drawing.legend(fig, keys)
        fig.alt = "P50, P95 and P99 of several runs. " + " ".join(words)
        fig.note = "; ".join(
            [origins.note(frame), *([] if limit_ms is None else [drawing.limit_from(limit_ms)])]
        )
    return fig


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"
