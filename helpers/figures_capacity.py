"""Figures of a GPU that nobody here has: predictions against what was published, and a line of live calls."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers import drawing, origins
from helpers.drawing import canvas, look, ms, safe

GOAL = 0.25  # half-width of the grey band: the median error that the course set out for
PANELS = (
    ("time per token, ms", ("tpot", "stream")),
    ("time to first token, ms", ("ttft",)),
    ("tokens per second", ("tok_s",)),
)
FILLS = ("full", "none", "left")


def predictions(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Every prediction against every published point: on the line is right, below it too optimistic for a
    speed, too pessimistic for a time above it.

    Args:
        frame: as :func:`helpers.calibration.table` gives it: ``id``, ``model``, ``metric``, ``published``,
            ``corrected``, ``error``, ``test`` (counts as a test; the others were used for the factor, or are
            of the same run), ``known`` (``yes``: the conditions are stated), ``origin``. Rows without a
            prediction are counted in the note. A speed of one stream is drawn as time per token.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    drawing.checked(
        frame,
        "predictions",
        required=("id", "model", "metric", "test", "known"),
        numeric=("published", "corrected", "error"),
        gaps=True,
    )
    frame = frame.copy()
    stream = frame["metric"].str.startswith("stream")
    for column in ("published", "corrected"):
        frame.loc[stream, column] = 1000 / frame.loc[stream, column]
    rows = frame.dropna(subset=["published", "corrected"])
    models = list(dict.fromkeys(rows["model"]))
    with canvas(theme, 3.5, title) as (fig, colours):
        series = dict(zip(models, (colours.purple, colours.blue, colours.orange), strict=False))
        panels = fig.subplots(1, len(PANELS))
        words = []
        for ax, (name, starts) in zip(panels, PANELS, strict=True):
            here = rows[rows["metric"].str.startswith(starts)]
            if here.empty:
                ax.set_axis_off()
                continue
            values = here[["published", "corrected"]].to_numpy(dtype=float)
            ends = np.array([values.min() / 1.5, values.max() * 1.5])
            band = {"facecolor": colours.faint, "edgecolor": colours.muted, "lw": 0.6}
            ax.fill_between(ends, ends * (1 - GOAL), ends * (1 + GOAL), **band)
            ax.plot(ends, ends, color=colours.ink, lw=1)
            for number, model in enumerate(models):
                mine = here[here["model"] == model]
                mark = {"marker": look("modelled", colours).marker, "ms": 6, "ls": "", "mew": 1.1}
                mark |= {
                    "color": series[model],
                    "fillstyle": FILLS[number],
                    "markerfacecoloralt": colours.paper,
                }
                sure, unsure = mine[mine["known"] == "yes"], mine[mine["known"] != "yes"]
                ax.plot(sure["published"], sure["corrected"], **mark)
                ax.plot(unsure["published"], unsure["corrected"], **mark | {"ms": 3.5})
                fitted = mine[~mine["test"].astype(bool)]
                ring = {"marker": "o", "ms": 11, "mfc": "none", "mec": colours.muted, "ls": "", "mew": 0.8}
                ax.plot(fitted["published"], fitted["corrected"], **ring)
                tests = mine[mine["test"].astype(bool)]
                if len(tests):
                    worst = tests.loc[tests["error"].idxmax()]
                    words.append(
                        f"{name}, {model}: {len(tests)} points, median error {tests['error'].median():.0%}, "
                        f"worst {worst['error']:.0%} ({worst['id']})."
                    )
            ax.set(xlim=ends, ylim=ends)
            ax.set_title(name, size=9)
            for axis in (ax.xaxis, ax.yaxis):
                drawing.ms_axis(axis, log=True)
                _thinned(axis, ends)
            ax.set_xlabel("published")
        panels[0].set_ylabel("predicted, corrected")
        keys = [
            Line2D([], [], ls="", marker=look("modelled", colours).marker, ms=6, color=series[model],
                   fillstyle=FILLS[number], markerfacecoloralt=colours.paper,
                   label=f"modelled: {safe(model)}")
            for number, model in enumerate(models)
        ]  # fmt: skip
        keys.append(Line2D([], [], ls="", marker="o", ms=9, mfc="none", color=colours.muted,
                           label="in a ring: no test (the run of the factor)"))  # fmt: skip
        keys.append(Patch(**band, label=f"within {GOAL:.0%}"))
        keys.append(Line2D([], [], ls="", marker="", label="small: conditions not fully known"))
        drawing.legend(fig, keys)
        missing = len(frame) - len(rows)
        fig.alt = (
            "Predicted, corrected values against published ones; on the line is right. "
            + " ".join(words)
            + (f" {missing} predictions are missing." if missing else "")
        )
        fig.note = (
            "predictions: modelled; against published figures, sources in data/calibration.csv; errors after "
            f"correction, of the points that are tests; {missing} that no model gives are left out"
        )
    return fig


def _thinned(axis: object, ends: np.ndarray) -> None:
    """Labels at 1, 10, 100 only where an axis spans much."""
    wide = ends[1] / ends[0] > 60
    steps = (1.0,) if wide else (1.0, 3.0)
    decades = range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    axis.set_ticks([tick for tick in ticks if ends[0] <= tick <= ends[1]])


def live_call_curves(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    marks: pd.DataFrame | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """P95 TTFAT (and P50, thin) against the number of live calls, one line a series.

    Args:
        frame: one row a level: ``live_calls``, ``ttfat_p50_ms``, ``ttfat_p95_ms``, ``series`` (named at its
            line's end), ``origin``, and optionally ``max_num_seqs`` (seats: requests that run at once).
        limit_ms: drawn as a line across; without it, the published ceiling for TTFAT.
        marks: loads to mark with a line upright: ``number``, ``load`` (its unit in words), ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    limit_ms = drawing.limit_or_ceiling(limit_ms)
    columns = ("live_calls", "ttfat_p50_ms", "ttfat_p95_ms")
    frame = drawing.checked(frame, "live_call_curves", required=("series",), numeric=columns)
    top = limit_ms * 1.65
    names = list(dict.fromkeys(frame["series"]))
    with canvas(theme, 3.9, title) as (fig, colours):
        ax = fig.add_subplot()
        tints = (colours.blue, colours.orange, colours.green, colours.purple, colours.ink)
        words, ends = [], []
        for number, name in enumerate(names):
            rows = frame[frame["series"] == name].sort_values("live_calls")
            of = look(rows["origin"].iloc[0], colours)
            colour = tints[number % len(tints)]
            line = {"color": colour, "ls": of.line, "clip_on": True}
            ax.plot(rows["live_calls"], rows["ttfat_p50_ms"], lw=0.8, **line)
            ax.plot(rows["live_calls"], rows["ttfat_p95_ms"], lw=1.7, marker=of.marker, ms=4.5, **line)
            x, y = _where_it_leaves(rows, top)
            ends.append((x, y, name))
            values = ", ".join(
                f"{ms(row.ttfat_p95_ms)} at {row.live_calls:,.0f}" for row in rows.itertuples(index=False)
            )
            words.append(f"{name} ({rows['origin'].iloc[0]}), P95: {values}.")
        ax.axhline(limit_ms, color=colours.ink, lw=1.2)
        right = float(frame["live_calls"].max())
        ax.set(ylim=(0, top), xlim=(-0.05 * right, right * 1.04))
        beside = {"textcoords": "offset points", "size": 7.5, "annotation_clip": False, "linespacing": 1.15}
        ax.annotate(f"limit: {ms(limit_ms)}", (right * 1.04, limit_ms), (0, 4), ha="right", **beside)
        for x, y, name in ends:
            # A line that leaves through the top has room to its left; one that stays low, behind its end.
            words_at = drawing.wrapped(name, 15 if y >= top else 40)
            place = {"xytext": (-5, 0), "ha": "right", "va": "top"}
            if y < top:
                place = {"xytext": (5, -6), "ha": "left", "va": "center"}
            paper = {"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6}
            ax.annotate(words_at, (x, min(y, top)), bbox=paper, **place, **beside)
        turned = [] if marks is None else marks.sort_values("number").to_dict("records")
        for number, mark in enumerate(turned):
            of = look(mark["origin"], colours)
            ax.axvline(mark["number"], color=of.colour, ls=of.line, lw=1.1)
            said = f"card: {mark['number']:,.0f} {mark['load']}"
            side = ("right", -3) if number == 0 else ("left", 3)
            ax.annotate(
                drawing.wrapped(said, 18), (mark["number"], limit_ms * 1.03), (side[1], 0), rotation=90,
                ha=side[0], va="bottom", **beside,
            )  # fmt: skip
            words.append(f"Marked ({mark['origin']}): {said}.")
        drawing.ms_axis(ax.xaxis)
        drawing.ms_axis(ax.yaxis)
        seats = sorted(frame["max_num_seqs"].dropna().unique()) if "max_num_seqs" in frame else []
        told = f"{', '.join(f'{count:,.0f}' for count in seats)} seats" if seats else ""
        ax.set(xlabel=f"live calls ({told})" if told else "live calls", ylabel="TTFAT in ms")
        ax.grid(axis="y")
        keys = [drawing.line_key(group, colours, marker=True, colour=colours.ink) for group in
                origins.groups(frame[["origin"]].drop_duplicates())]  # fmt: skip
        if marks is not None:
            groups = origins.groups(marks)
            keys += [drawing.line_key(group, colours) for group in groups]
        keys.append(drawing.limit_key(limit_ms, colours, lw=1.2))
        keys.append(Line2D([], [], color=colours.ink, lw=1.7, label="thick: P95"))
        keys.append(Line2D([], [], color=colours.ink, lw=0.8, label="thin: P50"))
        drawing.legend(fig, keys)
        fig.alt = f"TTFAT against live calls; the limit is {ms(limit_ms)}. " + " ".join(words)
        notes = [origins.note(part) for part in (frame, marks) if part is not None]
        fig.note = "; ".join([*notes, *([told] if told else []), drawing.limit_from(limit_ms)])
    return fig


def _where_it_leaves(rows: pd.DataFrame, top: float) -> tuple[float, float]:
    """Where a rising line passes the panel's upper edge, or its last point."""
    x, y = (rows[column].to_numpy(dtype=float) for column in ("live_calls", "ttfat_p95_ms"))
    for i in range(1, len(x)):
        if y[i - 1] <= top < y[i]:
            return float(np.interp(top, y[i - 1 : i + 1], x[i - 1 : i + 1])), top
    return float(x[-1]), float(min(y[-1], top))


def capacity_cases(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """The largest number of live calls when one thing is changed: one bar a case, grouped by what changed.

    Args:
        frame: one row a case, as :func:`helpers.capacity.sensitivity` gives it: ``what``, ``value``,
            ``live_calls``, ``start`` (the case that all others differ from), ``origin``, and optionally
            ``factor`` (by which the model's times are multiplied) and ``max_num_seqs`` (seats): what all bars
            have is told once, and a bar that has another factor says so.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "capacity_cases", required=("what", "value", "start"), numeric=("live_calls",)
    )
    places, y, before = [], 0.0, None
    for row in frame.to_dict("records"):
        y += 1.0 if row["what"] == before or before is None else 1.45
        before = row["what"]
        places.append((y, row))
    with canvas(theme, 0.75 + 0.19 * (places[-1][0] + 1), title) as (fig, colours):
        ax = fig.add_subplot()
        words = []
        for y, row in places:
            of = look(row["origin"], colours)
            ax.barh(y, row["live_calls"], height=0.72, **drawing.area(of, colours))
            ax.annotate(
                f"{row['live_calls']:,.0f}", (row["live_calls"], y), (4, 0), textcoords="offset points",
                va="center", size=8, bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip
            words.append(f"{_case(row, frame, ' ')}: {row['live_calls']:,.0f} ({row['origin']}).")
        start = frame[frame["start"].astype(bool)]
        if len(start):
            ax.axvline(float(start["live_calls"].iloc[0]), color=colours.ink, lw=1)
        labels = [_case(row, frame, ": ") for _, row in places]
        ax.set_yticks([y for y, _ in places], [drawing.wrapped(label, 46) for label in labels])
        ax.tick_params(axis="y", length=0)
        common = _in_common(frame)
        ax.set(ylim=(places[-1][0] + 0.7, 0.3))
        ax.set_xlabel("live calls under the limit" + (f"\n({common})" if common else ""))
        ax.set_xlim(0, float(frame["live_calls"].max()) * 1.12)
        drawing.ms_axis(ax.xaxis)
        ax.grid(axis="x")
        drawing.legend(fig, [drawing.area_key(group, colours) for group in origins.groups(frame)])
        fig.alt = " ".join(["The largest number of live calls, one thing changed at a time.", *words])
        if common:
            fig.alt += f" All bars: {common}."
        fig.note = "; ".join(part for part in (origins.note(frame), common) if part)
    return fig


def _case(row: dict[str, object], frame: pd.DataFrame, between: str) -> str:
    """What a bar is: what was changed, to which value, and its factor where it is not the others'."""
    label = between.join(part for part in (str(row["what"]), str(row["value"])) if part)
    start = frame.loc[frame["start"].astype(bool)]
    if "factor" in frame and len(start) and not math.isclose(row["factor"], start["factor"].iloc[0]):
        label += f" (times {row['factor']:.2g})"
    return label


def _in_common(frame: pd.DataFrame) -> str:
    """Under what the bars were computed, unless their labels say something else."""
    start = frame.loc[frame["start"].astype(bool)]
    said = []
    if "factor" in frame and len(start):
        said.append(f"times multiplied by {start['factor'].iloc[0]:.2g}")
    if "max_num_seqs" in frame and len(start):
        said.append(f"{start['max_num_seqs'].iloc[0]:,.0f} seats")
    return f"{' and '.join(said)}, unless a label says otherwise" if said else ""
