"""Figures of the budget of a turn: its lines as a waterfall, sums of percentiles, levers, drawn turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from helpers import budget, drawing, origins
from helpers.drawing import WIDTH_IN, Theme, area, canvas, look, ms, safe
from helpers.settings import CourseError

BINS = 70
SMALL = 6.9  # points


def waterfall(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """A budget as a waterfall: each group begins where the one before ends; then what is left to the limit.

    Args:
        frame: one row a line, as :func:`helpers.budget.table` gives it: ``stage``, ``group`` (one of
            ``helpers.budget.GROUPS``), ``ms``, ``origin``; ``number`` if the lines have one; ``server``, or
            ``source`` and ``date`` for published rows. The lines of a group are one bar, and are named below
            it.
        limit_ms: where the limit stands; without it, the published one.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    lines = drawing.checked(frame, "waterfall", required=("stage", "group"), numeric=("ms",))
    rows = budget.by_group(lines)
    keys = origins.groups(lines, counted="stage")
    total, limit = float(rows["end_ms"].iloc[-1]), _limit(limit_ms)
    left, right, top = 2.3, 1.1, 0.42
    tall = [0.5 if "," in parts else 0.34 for parts in rows["parts"]] + [0.34]
    body, foot = (
        sum(tall),
        0.6 + drawing.legend_in([*(group.phrase for group in keys), drawing.limit_from(limit)]),
    )
    with canvas(theme, top + body + foot, title, layout=None) as (fig, colours):
        ax = _placed(fig, (left, right), body, foot)
        span_ms = max(total, limit) * 1.04
        ax.set(xlim=(0, span_ms), ylim=(body, 0), yticks=[])
        room = (
            left + (WIDTH_IN - left - right) * limit / span_ms - 0.2
        )  # the small print ends before the limit
        ax.plot([limit, limit], [-0.12, body], color=colours.ink, lw=2.2, clip_on=False)
        said = f"limit {ms(limit)}"
        ax.text(limit, -0.2, said, ha="right" if limit > total / 2 else "left", weight="bold")
        y, before = 0.0, 0.0
        for row, height in zip(rows.to_dict("records"), tall, strict=False):
            middle, end = y + 0.17, row["end_ms"]
            ax.barh(middle, row["ms"], 0.21, left=before, **area(look(row["origin"], colours), colours))
            ax.plot([end, end], [middle + 0.1, y + height + 0.07], color=colours.muted, lw=0.7)
            _cells(ax, middle, _numbered(row), f"{row['ms']:,.0f}", f"{end:,.0f}", left)
            if "," in row["parts"]:
                ax.annotate(
                    drawing.fit(safe(row["parts"]), room, SMALL),
                    (0, y + 0.4),
                    xytext=(-72 * (left - 0.1), 0),
                    textcoords="offset points",
                    va="center",
                    size=SMALL,
                    color=colours.muted,
                    annotation_clip=False,
                    bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.5},
                )
            y, before = y + height, end
        over = total > limit
        low, high = sorted((total, limit))
        empty = {"facecolor": "none", "edgecolor": colours.orange if over else colours.green, "lw": 1.4}
        ax.barh(y + 0.17, high - low, 0.21, left=low, ls="--", **empty)
        word = "over the limit" if over else "left below the limit"
        _cells(ax, y + 0.17, word, f"{high - low:,.0f}", f"{limit:,.0f}", left, weight="bold")
        head = "group  (lines)" if rows["lines"].any() else ""
        _cells(ax, -0.14, head, "ms", "in all", left, colour=colours.muted)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("ms since the caller's last sound")
        drawing.ms_axis(ax.xaxis)
        marks: list[Artist] = [drawing.area_key(group, colours) for group in keys]
        marks.append(drawing.limit_key(limit, colours, lw=2.2))
        drawing.legend(fig, marks, loc="lower left", bbox_to_anchor=(0, 0))
        listed = "; ".join(
            f"{row['group']} {ms(row['ms'])} ({row['parts']}; {row['origin']}), {ms(row['end_ms'])} in all"
            for row in rows.to_dict("records")
        )
        fig.alt = f"Waterfall of a turn: {listed}. {ms(high - low)} {word} of {ms(limit)}."
        fig.note = f"{origins.note(lines, counted='stage')}; {drawing.limit_from(limit)}"
    return fig


def _limit(limit_ms: float | None) -> float:
    return budget.LIMIT_MS if limit_ms is None else budget.checked_ms(limit_ms, "limit_ms")


def _numbered(row: dict[str, Any]) -> str:
    return f"{row['group']}  ({row['lines']})" if row["lines"] else row["group"]


def _placed(fig: Figure, sides: tuple[float, float], body: float, foot: float) -> Any:
    """Axes so many inches from the sides and the foot."""
    height, (left, right) = fig.get_figheight(), sides
    return fig.add_axes((left / WIDTH_IN, foot / height, (WIDTH_IN - left - right) / WIDTH_IN, body / height))


def _cells(
    ax: Any,
    y: float,
    name: str,
    first: str,
    second: str,
    left: float,
    *,
    weight: str = "normal",
    colour: str = "",
) -> None:
    """The words beside a bar: its name at the left, two numbers at the right."""
    how = {"textcoords": "offset points", "va": "center", "weight": weight, "annotation_clip": False}
    how |= {"color": colour} if colour else {}
    ax.annotate(drawing.fit(safe(name), left - 0.2), (0, y), xytext=(-72 * (left - 0.1), 0), ha="left", **how)
    for text, inches in ((first, 0.42), (second, 1.0)):
        ax.annotate(
            text, (1, y), xycoords=("axes fraction", "data"), xytext=(72 * inches, 0), ha="right", **how
        )


def two_sums(frame: pd.DataFrame, *, name: str = "P95", title: str = "", theme: str = "light") -> Figure:
    """The sum of percentiles against the percentile of the sum, one row a case.

    Args:
        frame: as :func:`helpers.budget_sum.compared` makes it: ``case``, ``added_ms``, ``true_ms``,
            ``low_ms`` and ``high_ms`` (its interval), ``origin``.
        name: the percentile, in words.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("added_ms", "true_ms", "low_ms", "high_ms")
    frame = drawing.checked(frame, "two_sums", required=("case",), numeric=columns)
    groups = origins.groups(frame.drop(columns="n", errors="ignore"))
    with _rows(frame, theme, title, len(groups) + 1) as (fig, ax, colours):
        words = []
        for y, row in enumerate(frame.to_dict("records")):
            added, true = row["added_ms"], row["true_ms"]
            of = look(row["origin"], colours)
            ax.plot([added, true], [y, y], color=colours.muted, lw=1.2, zorder=1)
            ax.plot([row["low_ms"], row["high_ms"]], [y, y], color=of.colour, lw=4.5, zorder=2)
            ax.plot(true, y, marker=of.marker, ms=8, color=of.colour, zorder=3)
            ax.plot(added, y, marker="|", ms=15, mew=2.6, color=colours.ink, zorder=3)
            off = added / true - 1 if true else math.nan
            word = "equal"
            if abs(off) >= 0.005:
                word = f"adding is {100 * abs(off):.0f} % too {'high' if off > 0 else 'low'}"
            _beside(ax, y, f"{added:,.0f}", f"{true:,.0f}", word)
            words.append(
                f"{row['case']}: sum of the {name}s {ms(added)}, {name} of the sum {ms(true)}, {word}."
            )
        _beside(ax, -0.85, "added", "true", "", colour=colours.muted)
        values = frame[list(columns)].to_numpy()
        ax.set(xlim=(float(values.min()) * 0.85, float(values.max()) * 1.04), xlabel="ms")
        keys: list[Artist] = [
            Line2D([], [], ls="", marker="|", ms=13, mew=2.6, color=colours.ink, label=f"sum of the {name}s")
        ]
        keys += [_key(group, colours, f"{name} of the sum: ") for group in groups]
        drawing.legend(fig, keys)
        fig.alt = f"Sum of the {name}s against the {name} of the sum. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def _beside(ax: Any, y: float, *texts: str, colour: str = "") -> None:
    """Words at the right of a row: two numbers, one below the other in each row, and a remark."""
    for text, place, side in zip(texts, (44, 84, 94), ("right", "right", "left"), strict=False):
        ax.annotate(
            text,
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(place, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            size=8,
            annotation_clip=False,
            **({"color": colour} if colour else {}),
        )


def _key(group: origins.Group, colours: Theme, before: str = "") -> Line2D:
    of = look(group.origin, colours)
    return Line2D([], [], ls="", marker=of.marker, ms=8, color=of.colour, label=before + group.phrase)


@contextmanager
def _rows(frame: pd.DataFrame, theme: str, title: str, keys: int) -> Iterator[tuple[Figure, Any, Theme]]:
    """A panel with a row for each row of the table, names (``case``) at the left, the first on top."""
    names = [drawing.wrapped(name, 34) for name in frame["case"]]
    height = 0.36 * len(frame) + 0.16 * sum(name.count("\n") for name in names) + 0.6 + 0.2 * keys
    with canvas(theme, height, title) as (fig, colours):
        ax = fig.add_subplot()
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.45, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        drawing.ms_axis(ax.xaxis)
        yield fig, ax, colours


def levers(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """P50 and P95 of a turn, one row a case, against the limit: what each lever does.

    Args:
        frame: as :func:`helpers.budget_turn.variants` makes it: ``case``, ``p50_ms``, ``p95_ms``, ``low_ms``
            and ``high_ms`` (interval of the P95), ``origin``, optionally ``over_percent``.
        limit_ms: where the limit stands; without it, the published one.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("p50_ms", "p95_ms", "low_ms", "high_ms")
    frame, limit_ms = drawing.checked(frame, "levers", required=("case",), numeric=columns), _limit(limit_ms)
    groups = origins.groups(frame)
    with _rows(frame, theme, title, len(groups) + 2) as (fig, ax, colours):
        words = []
        ax.axvline(limit_ms, color=colours.ink, lw=2.2, zorder=0)
        for y, row in enumerate(frame.to_dict("records")):
            of = look(row["origin"], colours)
            ax.plot([row["p50_ms"], row["p95_ms"]], [y, y], color=of.colour, lw=1.4, zorder=1)
            ax.plot([row["low_ms"], row["high_ms"]], [y, y], color=of.colour, lw=4.5, zorder=2)
            ax.plot(row["p50_ms"], y, marker="o", ms=6, mfc=colours.paper, mec=of.colour, mew=1.4)
            ax.plot(row["p95_ms"], y, marker=of.marker, ms=8, color=of.colour, zorder=3)
            share = f", {row['over_percent']:.1f} % over" if "over_percent" in row else ""
            _beside(ax, y, f"{row['p95_ms']:,.0f}", share.removeprefix(", ").removesuffix(" over"))
            words.append(f"{row['case']}: P50 {ms(row['p50_ms'])}, P95 {ms(row['p95_ms'])}{share}.")
        _beside(ax, -0.85, "P95", "over" if "over_percent" in frame.columns else "", colour=colours.muted)
        furthest = max(float(frame["high_ms"].max()), limit_ms)
        ax.set_xlim(float(frame["p50_ms"].min()) * 0.93, furthest * 1.03)
        ax.set_xlabel("ms from the caller's last sound to the agent's first")
        keys: list[Artist] = [
            Line2D([], [], ls="", marker="o", ms=6, mfc=colours.paper, mec=colours.ink, label="P50")
        ]
        keys += [_key(group, colours, "P95, with the interval of the drawing: ") for group in groups]
        keys.append(drawing.limit_key(limit_ms, colours, lw=2.2))
        drawing.legend(fig, keys)
        fig.alt = f"P50 and P95 of a turn against a limit of {ms(limit_ms)}. " + " ".join(words)
        fig.note = f"{origins.note(frame)}; {drawing.limit_from(limit_ms)}"
    return fig


def turn_times(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """How long drawn turns take: most here, some there, and how many beyond the limit.

    Args:
        frame: one row a turn: ``total_ms``, ``origin`` (one and the same), as
            :func:`helpers.budget_turn.simulate` makes it.
        limit_ms: where the limit stands; without it, the published one.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, a row cannot be drawn, or the turns have more than one origin.
    """
    frame, limit_ms = drawing.checked(frame, "turn_times", numeric=("total_ms",)), _limit(limit_ms)
    if frame["origin"].nunique() > 1:
        raise CourseError(
            "figures.turn_times shows turns of one origin. Draw each origin in a figure of its own."
        )
    total = frame["total_ms"].to_numpy()
    p50, p95 = (float(np.quantile(total, share, method="inverted_cdf")) for share in (0.5, 0.95))
    over = float(np.mean(total > limit_ms))
    low, high = float(total.min()), float(max(np.quantile(total, 0.995), limit_ms * 1.05))
    step = (high - min(low, limit_ms)) / BINS  # counted from the limit: a bar is on one side of it
    steps = np.arange(math.floor((low - limit_ms) / step) - 1, math.ceil((high - limit_ms) / step) + 1)
    edges = limit_ms + step * steps
    beyond = int(np.sum(total > high))
    with canvas(theme, 2.75, title) as (fig, colours):
        ax = fig.add_subplot()
        of = area(look(frame["origin"].iloc[0], colours), colours)
        late = {"facecolor": colours.orange, "edgecolor": colours.orange, "linewidth": 1.0}
        share_per_ms = np.histogram(total, edges)[0] / len(total) / np.diff(edges)
        heights = 1000 * share_per_ms  # in %, per 10 ms
        for height, begin, end in zip(heights, edges, edges[1:], strict=False):
            if height:
                ax.bar(begin, height, end - begin, align="edge", **(late if begin >= limit_ms else of))
        ax.set_xlim(min(edges[0], limit_ms - step), high)
        top = float(heights.max()) * 1.3
        ax.set_ylim(0, top)
        ax.axvline(limit_ms, color=colours.ink, lw=2.2)
        marks = [(p50, f"P50 {ms(p50)}"), (p95, f"P95 {ms(p95)}")]
        for (at, text), rise in zip(marks, (0.94, 0.84), strict=True):
            ax.plot([at, at], [0, rise * top], color=colours.ink, lw=1.1, ls=":")
            side = at > edges[0] + 0.7 * (high - edges[0])
            box = {"facecolor": colours.paper, "edgecolor": "none", "pad": 1}
            place = {
                "xytext": (-4 if side else 4, 0),
                "textcoords": "offset points",
                "va": "center",
                "bbox": box,
            }
            ax.annotate(text, (at, rise * top), ha="right" if side else "left", **place)
        ax.set_xlabel("ms from the caller's last sound to the agent's first")
        ax.set_ylabel("% of the turns, each 10 ms")
        drawing.ms_axis(ax.xaxis)
        ax.set_xticks([at for at in ax.get_xticks() if ax.get_xlim()[0] <= at <= ax.get_xlim()[1]])
        phrase = origins.groups(frame)[0].phrase
        cut = f", {drawing.many(beyond, 'turn')} beyond the picture" if beyond else ""
        keys: Sequence[Artist] = [
            Patch(**of, label=f"{len(total):,} turns, {phrase}{cut}"),
            Patch(**late, label=f"over the limit: {100 * over:.1f} %"),
            drawing.limit_key(limit_ms, colours, lw=2.2),
        ]
        drawing.legend(fig, keys)
        fig.alt = (
            f"Distribution of {len(total):,} turns: P50 {ms(p50)}, P95 {ms(p95)}, {100 * over:.1f} % take "
            f"longer than the limit of {ms(limit_ms)}{cut}."
        )
        fig.note = f"{phrase}; {drawing.limit_from(limit_ms)}"
    return fig
