"""Figures of the clips of lesson 01: their gaps, one of them as a waveform, and ratings of them."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from helpers import drawing, origins, ratings
from helpers.drawing import canvas, look, many, ms, safe
from helpers.figures_course import LIMIT_FROM, LIMIT_MS
from helpers.settings import CourseError

SHOWN_MS = 1000.0  # of the caller and of the agent; what they say longer is cut off
STAGE_ALONE = "one stage alone"


def clip_gaps(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Clips below each other, from the caller's last second to the agent's first: what differs is the gap.

    Args:
        frame: one row a clip, with ``gap_ms``, ``short`` (what the gap stands for), ``whole_path`` (False:
            the number is one stage's alone), ``caller_ms`` and ``agent_ms`` (how long they speak),
            ``origin``, and for published rows ``source`` and ``date``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame,
        "clip_gaps",
        required=("short", "whole_path"),
        numeric=("gap_ms", "caller_ms", "agent_ms"),
    )
    rows = frame.to_dict("records")
    with canvas(theme, 1.15 + 0.4 * len(rows), title) as (fig, colours):
        ax = fig.add_subplot()
        words = []
        speaks = {"facecolor": colours.faint, "edgecolor": colours.muted, "linewidth": 0.8}
        for y, row in enumerate(rows):
            gap, of = row["gap_ms"], look(row["origin"], colours)
            caller, agent = min(row["caller_ms"], SHOWN_MS), min(row["agent_ms"], SHOWN_MS)
            ax.barh(y, caller, 0.62, left=-caller, **speaks)
            ax.barh(y, agent, 0.62, left=gap, **speaks)
            ax.barh(y, gap, 0.5, **drawing.area(of, colours))
            number = {"facecolor": colours.paper, "edgecolor": "none", "pad": 0.8}
            ax.text(gap / 2, y, f"{gap:,.0f}", ha="center", va="center", weight="bold", size=8, bbox=number)
            ax.text(-caller / 2, y, "caller", ha="center", va="center", size=8)
            ax.text(gap + agent / 2, y, "agent", ha="center", va="center", size=8)
            alone = "" if row["whole_path"] else f", {STAGE_ALONE}"
            words.append(f"{ms(gap)}: {row['short']}{alone} ({row['origin']}).")
        names = [f"{safe(row['short'])}{'' if row['whole_path'] else chr(10) + STAGE_ALONE}" for row in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(rows) - 0.5, -0.6)
        ax.axvline(0, color=colours.ink, lw=1.2)
        ax.set_xlim(-SHOWN_MS, float(frame["gap_ms"].max()) + SHOWN_MS)
        ax.set_xlabel("ms since the caller's last sound (both speak longer than is shown)")
        ax.spines["left"].set_visible(False)
        drawing.ms_axis(ax.xaxis)
        drawing.legend(fig, [drawing.area_key(group, colours) for group in origins.groups(frame)])
        fig.alt = f"{many(len(rows), 'clip')} of one exchange with different gaps. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def waveform(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """A clip as a waveform, with the gap that a measurement found in it.

    Args:
        frame: one row a step of time, with ``at_ms``, ``low``, ``high`` (share of the loudest sample),
            ``caller_end_ms`` and ``agent_start_ms`` (the gap, the same in each row) and ``origin``, as
            :func:`helpers.clips.envelope` makes it.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, a row holds something that cannot be drawn, or the gap ends before
            it begins.
    """
    numbers = ("at_ms", "low", "high", "caller_end_ms", "agent_start_ms")
    frame = drawing.checked(frame, "waveform", numeric=numbers)
    caller_end_ms, agent_start_ms = (float(frame[name].iloc[0]) for name in numbers[3:])
    gap = agent_start_ms - caller_end_ms
    if not gap > 0:
        raise CourseError(f"The gap would end ({agent_start_ms} ms) before it begins ({caller_end_ms} ms).")
    [group] = origins.groups(frame.drop(columns="server", errors="ignore"))[:1]
    most = float(frame[["low", "high"]].abs().max().max()) or 1.0
    with canvas(theme, 2.2, title) as (fig, colours):
        ax = fig.add_subplot()
        of = look(group.origin, colours)
        ax.fill_between(frame["at_ms"], frame["low"], frame["high"], color=of.colour, lw=0.6)
        ax.axvspan(caller_end_ms, agent_start_ms, color=colours.faint, alpha=0.6, lw=0, zorder=0)
        for at_ms in (caller_end_ms, agent_start_ms):
            ax.axvline(at_ms, color=colours.ink, lw=1.0)
        centre = (caller_end_ms + agent_start_ms) / 2
        low, high = float(frame["at_ms"].min()), float(frame["at_ms"].max())
        ax.text(centre, most * 1.16, f"gap {ms(gap)}", ha="center", weight="bold")
        ax.text((low + caller_end_ms) / 2, most * 1.16, "caller", ha="center")
        ax.text((agent_start_ms + high) / 2, most * 1.16, "agent", ha="center")
        ax.set(xlim=(low, high), ylim=(-most * 1.1, most * 1.45), yticks=[])
        ax.set_xlabel("ms since the clip began")
        ax.spines["left"].set_visible(False)
        drawing.ms_axis(ax.xaxis)
        fig.alt = (
            f"Waveform of a clip of {ms(high - low)}: the caller speaks until {ms(caller_end_ms)}, the agent "
            f"from {ms(agent_start_ms)}; the gap between is {ms(gap)} (read off the samples)."
        )
        fig.note = f"{group.origin}: read off the samples of the clip"
    return fig


def tolerance(
    frame: pd.DataFrame,
    *,
    limit_ms: float = LIMIT_MS,
    limit_from: str = LIMIT_FROM,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Ratings of clips against their gaps: each rating a mark, a line through the means.

    Args:
        frame: one row a rating, with ``gap_ms``, ``rating`` (1 to 4, see :data:`helpers.ratings.WORDS`),
            ``round`` (which pass through the clips) and ``origin``.
        limit_ms: drawn as a line; the default is the published one.
        limit_from: where the limit comes from, for the legend.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "tolerance", numeric=("gap_ms", "rating", "round"))
    for index, rating in frame["rating"].items():
        if rating not in range(1, len(ratings.WORDS) + 1):
            raise CourseError(f"Row {index!r}, column 'rating': {rating!r} is not 1 to {len(ratings.WORDS)}.")
    with canvas(theme, 3.0, title) as (fig, colours):
        ax = fig.add_subplot()
        keys: list[Artist] = []
        words = []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            means = group.rows.groupby("gap_ms")["rating"].mean()
            first = group.rows["round"].min()
            for one, rows in group.rows.groupby("round"):
                shift = 0.0 if group.rows["round"].nunique() == 1 else -0.09 if one == first else 0.09
                face = of.colour if one == first else colours.paper
                ax.plot(
                    rows["gap_ms"],
                    rows["rating"] + shift,
                    ls="",
                    marker=of.marker,
                    ms=7,
                    mfc=face,
                    mec=of.colour,
                )
            ax.plot(means.index, means, color=of.colour, ls=of.line, lw=1.6)
            keys.append(drawing.line_key(group, colours, marker=True))
            told = ", ".join(f"{ms(gap)} {value:.1f}" for gap, value in means.items())
            words.append(f"{group.phrase}: mean rating {told}.")
        if frame["round"].nunique() > 1:
            keys.append(
                Line2D([], [], ls="", marker="o", mfc=colours.paper, mec=colours.ink, label="second pass")
            )
        ax.axhline(ratings.CONTENT + 0.5, color=colours.muted, lw=0.8)
        ax.axvline(limit_ms, color=colours.ink, lw=1.6)
        ax.set_yticks(range(1, len(ratings.WORDS) + 1), ratings.WORDS)
        ax.set_ylim(0.5, len(ratings.WORDS) + 0.5)
        gaps = sorted(set(frame["gap_ms"]))
        ax.set_xlim(0, max(gaps[-1], limit_ms) * 1.06)
        ax.xaxis.set_major_locator(FixedLocator(gaps))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(axis="x")
        ax.set_xlabel("gap in ms")
        keys.append(Line2D([], [], color=colours.ink, lw=1.6, label=f"limit {ms(limit_ms)}, {limit_from}"))
        keys.append(Line2D([], [], color=colours.muted, lw=0.8, label="content below this line"))
        drawing.legend(fig, keys)
        scale = ", ".join(f"{number} {word}" for number, word in enumerate(ratings.WORDS, start=1))
        fig.alt = f"Ratings of clips against their gaps ({scale}). " + " ".join(words)
        fig.note = f"{origins.note(frame)}; limit, {limit_from}"
    return fig
