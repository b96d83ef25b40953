"""Figures of waits: median, mean and P95 of one run; slow turns in a call; a leaderboard of models."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from helpers import drawing, origins
from helpers.drawing import Theme, canvas, look, many, ms, safe
from helpers.origins import Group
from helpers.settings import CourseError
from helpers.stats import percentile


def wait_distribution(
    frame: pd.DataFrame,
    *,
    metric: str = "wait_ms",
    what: str = "wait",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """How the waits of one run are spread, with their median, their mean and their P95.

    Args:
        frame: one row a turn, with the column ``metric`` (ms), ``origin`` (one for all rows) and optionally
            ``server``.
        metric: the column that holds the waits.
        what: what was waited for, for the axis.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, the rows have several origins, or one cannot be drawn.
    """
    frame = drawing.checked(frame, "wait_distribution", numeric=(metric,))
    groups = origins.groups(frame)
    if len(groups) > 1:
        raise CourseError("figures.wait_distribution draws one run; these rows have several origins.")
    waits = frame[metric].to_numpy()
    marks = {
        "median": float(np.median(waits)),
        "mean": float(waits.mean()),
        "P95": percentile(waits, 0.95).value,
    }
    top = float(waits.max())
    with canvas(theme, 2.9, title) as (fig, colours):
        ax = fig.add_subplot()
        of = look(groups[0].origin, colours)
        edges = np.linspace(0, top, 41) if top > 0 else np.array([0.0, 1.0])
        counts, _ = np.histogram(waits, edges)
        ax.bar(edges[:-1], counts, np.diff(edges), align="edge", **drawing.area(of, colours))
        most = float(counts.max())
        styles = {"median": "-", "mean": (0, (5, 2)), "P95": (0, (1, 1.2))}
        for row, (name, value) in enumerate(sorted(marks.items(), key=lambda mark: mark[1])):
            rise = most * (1.42 - 0.14 * row)
            ax.plot([value, value], [0, rise], color=colours.ink, ls=styles[name], lw=1.6)
            left = value > 0.75 * top
            ax.annotate(
                f"{name} {ms(value)}",
                (value, rise),
                xytext=(-4 if left else 4, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="top",
                weight="bold" if name == "P95" else "normal",
                bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6},
            )
        ax.set(xlim=(0, top * 1.03 or 1), ylim=(0, most * 1.5), ylabel="turns")
        ax.set_xlabel(f"{what} in ms")
        drawing.ms_axis(ax.xaxis)
        drawing.legend(fig, [drawing.area_key(groups[0], colours)])
        told = ", ".join(f"{name} {ms(value)}" for name, value in marks.items())
        fig.alt = f"{many(len(waits), 'turn')} by {what}: {told}; the slowest {ms(top)}."
        fig.note = origins.note(frame)
    return fig


def slow_calls(
    frame: pd.DataFrame, *, turns: float | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """Share of calls with at least one slow turn, against the number of turns in a call.

    Args:
        frame: one row a series and number of turns, with ``turns``, ``share`` (0 to 1), ``series``,
            ``origin`` and optionally ``source``, as :func:`helpers.slow_turns.curves` makes it.
        turns: a number of turns to mark, such as your own.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, a share is none, or ``turns`` is not among those of the table.
    """
    frame = drawing.checked(frame, "slow_calls", required=("series",), numeric=("turns", "share"))
    if not frame["share"].between(0, 1).all():
        raise CourseError("figures.slow_calls: a share is a number from 0 to 1. Look at the column 'share'.")
    with canvas(theme, 3.1, title) as (fig, colours):
        ax = fig.add_subplot()
        keys, words, ends, marked = [], [], [], []
        paints = (colours.purple, colours.ink, colours.blue, colours.orange)
        widths = (2.2, 1.3, 1.3, 1.3)
        last = float(frame["turns"].max())
        for number, (name, rows) in enumerate(frame.groupby("series", sort=False)):
            rows = rows.sort_values("turns")
            paint, width = paints[number % 4], widths[number % 4]
            for group in origins.groups(rows):
                of = look(group.origin, colours)
                ax.plot(group.rows["turns"], 100 * group.rows["share"], color=paint, ls=of.line, lw=width)
                label = f"{name} ({group.phrase})"
                keys.append(Line2D([], [], color=paint, ls=of.line, lw=width, label=label))
            ends.append((float(rows["turns"].iloc[-1]), 100 * float(rows["share"].iloc[-1]), str(name)))
            words.append(_told(str(name), rows, turns))
            if turns is not None:
                here = rows[rows["turns"] == turns]
                if here.empty:
                    raise CourseError(
                        f"turns is {turns:g}, and the series {name!r} has no such row. It has "
                        f"{rows['turns'].min():g} to {rows['turns'].max():g}."
                    )
                marked.append((100 * float(here["share"].iloc[0]), paint))
        if turns is not None:
            ax.axvline(turns, color=colours.muted, lw=0.8)
            for share, paint in marked:
                ax.plot(turns, share, marker="^", ms=8, color=paint, mec=colours.paper)
                ax.annotate(
                    f"{share:.0f} %",
                    (turns, share),
                    xytext=(9, -3),
                    textcoords="offset points",
                    va="top",
                    weight="bold",
                    bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6},
                )
        for (x, _, name), y in zip(ends, drawing.apart([y for _, y, _ in ends], 7.0), strict=True):
            ax.annotate(safe(name), (x, y), xytext=(6, 0), textcoords="offset points", va="center", size=8)
        ax.set(xlim=(0, last * 1.3), ylim=(0, 100), xlabel="turns in a call")
        ax.set_ylabel("calls with a slow turn, %")
        ax.xaxis.set_major_locator(FixedLocator(np.arange(0, last + 1, 5 if last <= 60 else 20)))
        ax.grid(axis="y")
        drawing.legend(fig, keys)
        fig.alt = "Share of calls with at least one slow turn, against the turns in a call. " + " ".join(
            words
        )
        fig.note = origins.note(frame)
    return fig


def _told(name: str, rows: pd.DataFrame, turns: float | None) -> str:
    """A series in words: at the marked number of turns and at a few others."""
    wanted = {1, 10, 20, 40, turns}
    told = rows[rows["turns"].isin([count for count in wanted if count is not None])]
    shares = ", ".join(f"{row.turns:g} turns {100 * row.share:.0f} %" for row in told.itertuples())
    return f"{name} ({rows['origin'].iloc[0]}): {shares}."


def leaderboard(
    frame: pd.DataFrame,
    *,
    left_ms: float,
    limit_ms: float,
    bold: str = "",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Models below each other: score, time to the first answer token, price; what is not given is said.

    Args:
        frame: one row a model, with ``model``, ``score``, ``ttfat_p50_ms``, ``ttfat_p95_ms`` (NaN: not
            given), ``p95_about`` (True: only about so much), ``usd_per_minute``, ``origin``, ``source`` and
            ``date``, as :func:`helpers.phonebench.table` has it.
        left_ms: what a budget leaves for the model; a line.
        limit_ms: the whole budget; another line.
        bold: the model whose name is bold.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    numbers = ("score", "ttfat_p50_ms", "ttfat_p95_ms", "usd_per_minute")
    frame = drawing.checked(frame, "leaderboard", required=("model", "p95_about"), numeric=numbers, gaps=True)
    frame = frame.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)
    groups = origins.groups(frame)
    with canvas(theme, 1.35 + 0.27 * len(frame), title) as (fig, colours):
        left, middle, right = fig.subplots(1, 3, sharey=True, gridspec_kw={"width_ratios": [1.0, 2.3, 1.15]})
        left.set_yticks(range(len(frame)), [safe(name) for name in frame["model"]])
        for label, name in zip(left.get_yticklabels(), frame["model"], strict=True):
            label.set_fontweight("bold" if name == bold else "normal")
        left.set_ylim(len(frame) - 0.4, -0.7)
        left.set(xlim=(0, 125), xlabel="score, of 100")
        left.xaxis.set_major_locator(FixedLocator([0, 50, 100]))
        longest = frame[["ttfat_p50_ms", "ttfat_p95_ms"]].max().max()  # NaN if no time is given
        middle.set(xlim=(0, np.nanmax([longest, left_ms, limit_ms]) * 1.24), xlabel="TTFAT, ms")
        middle.xaxis.set_major_locator(FixedLocator([0, 500, 1000, 1500, 2000]))
        middle.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        prices = frame["usd_per_minute"].dropna() if frame["usd_per_minute"].notna().any() else [0.01]
        right.set(xscale="log", xlabel="USD a minute (log)", xlim=(min(prices) / 1.6, max(prices) * 7))
        right.xaxis.set_major_locator(FixedLocator([0.003, 0.02, 0.1]))
        right.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.xaxis.set_minor_locator(NullLocator())
        for y, row in frame.iterrows():
            of = look(row["origin"], colours)
            point = {"ls": "", "marker": of.marker, "ms": 5, "color": of.colour}
            _point(left, row["score"], y, f"{row['score']:.1f}", colours, point)
            _waits(middle, row, y, colours, point)
            _point(right, row["usd_per_minute"], y, f"{row['usd_per_minute']:.4f}", colours, point)
        for at_ms, words in ((left_ms, f"{ms(left_ms)}\nleft"), (limit_ms, f"{ms(limit_ms)}\nlimit")):
            middle.axvline(at_ms, color=colours.ink, lw=1.2)
            middle.text(at_ms, -0.75, words, ha="center", va="bottom", size=7.5)
        for ax in (left, middle, right):
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            ax.grid(axis="y")
        lines = [
            drawing.limit_from(limit_ms),
            f"left {ms(left_ms)}, modelled: the limit less the rest of a path",
        ]
        keys = [Line2D([], [], color=colours.ink, lw=1.2, label="; ".join(lines))]
        drawing.legend(fig, [*_leaderboard_keys(groups, colours), *keys])
        fig.alt = "Models of a leaderboard, best score first. " + " ".join(
            _row_told(row) for _, row in frame.iterrows()
        )
        fig.note = "; ".join([origins.note(frame), *lines])
    return fig


def _say(ax: Axes, place: tuple[float, float], words: str, colours: Theme, *, right_pt: float = 6) -> None:
    ax.annotate(
        words,
        place,
        xytext=(right_pt, 0),
        textcoords="offset points",
        va="center",
        size=7.5,
        bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.4},
    )


def _point(ax: Axes, value: float, y: float, words: str, colours: Theme, point: dict[str, object]) -> None:
    if math.isnan(value):
        return _say(ax, (ax.get_xlim()[0], y), "not given", colours)
    ax.plot(value, y, **point)
    return _say(ax, (value, y), words, colours)


def _waits(ax: Axes, row: pd.Series, y: float, colours: Theme, point: dict[str, object]) -> None:
    """P50 (filled) to P95 (open), with the P95 in numbers; what is missing is said."""
    middle, high = row["ttfat_p50_ms"], row["ttfat_p95_ms"]
    ax.plot([middle, high], [y, y], color=colours.muted, lw=1.0, zorder=1)  # nothing, if one is missing
    ax.plot(middle, y, **point)
    if math.isnan(high):
        place = (0.0 if math.isnan(middle) else middle, y)
        return _say(ax, place, f"{'P50, ' if math.isnan(middle) else ''}P95 not given", colours)
    ax.plot(high, y, **point | {"mfc": colours.paper, "ms": 6})
    return _say(ax, (high, y), f"{'about ' if row['p95_about'] else ''}{high:,.0f}", colours, right_pt=7)


def _leaderboard_keys(groups: list[Group], colours: Theme) -> list[Line2D]:
    keys = []
    for group in groups:
        of = look(group.origin, colours)
        point = {"ls": "", "marker": of.marker, "color": of.colour}
        keys.append(Line2D([], [], ms=5, label=f"score, P50, price ({group.phrase})", **point))
        keys.append(Line2D([], [], ms=6, mfc=colours.paper, label="P95, in numbers", **point))
    return keys


def _row_told(row: pd.Series) -> str:
    def said(value: float, words: str) -> str:
        return "not given" if math.isnan(value) else words

    about = "about " if row["p95_about"] else ""
    return (
        f"{row['model']}: score {said(row['score'], f'{row.score:.1f}')}, TTFAT P50 "
        f"{said(row['ttfat_p50_ms'], ms(row['ttfat_p50_ms']))}, P95 "
        f"{said(row['ttfat_p95_ms'], about + ms(row['ttfat_p95_ms']))}, "
        f"{said(row['usd_per_minute'], f'{row.usd_per_minute:.4f} USD a minute')}."
    )
