"""Figures of one streamed reply, or of a few: its chunks in time, and the gaps between its tokens."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers import drawing, origins
from helpers.drawing import Theme, canvas, look, many, ms, safe
from helpers.latency import ANSWER_KINDS, KINDS, TOKEN_KINDS
from helpers.settings import CourseError
from helpers.stats import percentile


def stream_timeline(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Every chunk of one streamed reply, or of several one below the other, at the moment it arrived.

    One row a kind of chunk; upright lines mark the first chunk of any kind (all that a naive timer sees),
    TTFT, TTFAT and the last chunk. Below the markers the text of the first chunks, a bar between two chunks.

    Args:
        frame: one row a chunk, with ``at_ms`` (ms since the request was sent), ``kind`` (one of
            :data:`helpers.latency.KINDS`), ``text`` (may be empty), ``origin``, and optionally ``server``,
            ``reply`` (name of the reply the chunk belongs to; one panel each, in order of appearance),
            ``ttft_ms`` and ``ttfat_ms`` (the reply's values from :func:`helpers.latency.measure`, the same in
            each of its rows). Without these two the lines stand at the reply's first chunk of a kind that
            :mod:`helpers.latency` counts for each.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "stream_timeline", required=("kind", "text"), numeric=("at_ms",))
    for column in {"ttft_ms", "ttfat_ms"} & set(frame.columns):
        drawing.finite(frame, column, "stream_timeline")
    for index, kind in frame["kind"].items():
        if kind not in KINDS:
            raise CourseError(
                f"Row {index!r}, column 'kind': {kind!r} is not a kind of chunk. "
                f"It may be {', '.join(KINDS)}."
            )
    frame = frame.assign(reply=frame["reply"].astype(str) if "reply" in frame.columns else "")
    replies = [
        (name, rows.sort_values("at_ms", kind="stable")) for name, rows in frame.groupby("reply", sort=False)
    ]
    kinds = [kind for kind in KINDS if (frame["kind"] == kind).any()]
    groups = origins.groups(frame, counted="reply")
    left, right, span_ms = 1.2, 0.2, float(frame["at_ms"].max()) * 1.02 or 1.0
    panel_in = drawing.WIDTH_IN - left - right

    # Heights are in inches, from the top down, because text has its size in inches.
    lanes = {kind: 0.44 if kind in TOKEN_KINDS else 0.27 for kind in kinds}
    body = sum(lanes.values())
    marks = [_moments(rows) for _, rows in replies]
    labels = [
        drawing.label_levels(
            [(at / span_ms * panel_in, drawing.width_in(text) + 0.12) for at, text in of], panel_in + right
        )
        for of in marks
    ]
    heads = [0.18 * (max(row for row, _ in rows) + 1) + 0.08 for rows in labels]
    captions = [0.24 if name else 0.0 for name, _ in replies]
    foot = 0.5 + drawing.legend_in(group.phrase for group in groups)
    head = 0.06 + (drawing.TITLE_IN if title else 0.0)
    height = 0.06 + sum(heads) + sum(captions) + (body + 0.14) * len(replies) + foot
    with canvas(theme, height, title, layout=None) as (fig, colours):
        height = fig.get_figheight()
        top, words = height - head, []
        for number, ((name, rows), of) in enumerate(zip(replies, marks, strict=True)):
            if name:
                caption = drawing.fit(safe(name), 0.85 * drawing.WIDTH_IN)
                fig.text(0.01, (top - 0.12) / height, caption, weight="bold", va="center")
            bottom = top - captions[number] - heads[number] - body
            place = (left, bottom, panel_in, body)
            ax = fig.add_axes(
                [inches / size for inches, size in zip(place, (drawing.WIDTH_IN, height) * 2, strict=True)]
            )
            ax.set(xlim=(0, span_ms), ylim=(body, 0))
            _draw_moments(ax, of, labels[number], colours)
            _draw_chunks(ax, rows, lanes, colours, panel_in)
            drawing.ms_axis(ax.xaxis)
            if number < len(replies) - 1:
                ax.tick_params(axis="x", labelbottom=False)
            else:
                ax.set_xlabel("ms since the request was sent")
            top = bottom - 0.14
            counts = [
                f"{(rows['kind'] == kind).sum()} {kind.replace('_', ' ')}" for kind in rows["kind"].unique()
            ]
            words.append(
                f"{name}{': ' if name else ''}{many(len(rows), 'chunk')} ({', '.join(counts)}); "
                f"{', '.join(text for _, text in of)}."
            )
        keys = [drawing.line_key(group, colours) for group in groups]
        drawing.legend(fig, keys, loc="lower left", bbox_to_anchor=(0, 0))
        count = many(len(replies), "streamed reply", "streamed replies")
        fig.alt = f"Timeline of {count}. {' '.join(words)}"
        fig.note = origins.note(frame, counted="reply")
    return fig


def _moments(rows: pd.DataFrame) -> list[tuple[float, str]]:
    """(ms, label) of the moments worth a line; moments that coincide share one."""

    def first(column: str, kinds: tuple[str, ...]) -> float:
        given = (
            rows[column].iloc[0]
            if column in rows.columns
            else rows.loc[rows["kind"].isin(kinds), "at_ms"].min()
        )
        return float("nan") if pd.isna(given) else float(given)

    moments = {
        "first chunk": float(rows["at_ms"].min()),
        "TTFT": first("ttft_ms", TOKEN_KINDS),
        "TTFAT": first("ttfat_ms", ANSWER_KINDS),
        "end": float(rows["at_ms"].max()),
    }
    names: dict[float, list[str]] = {}
    for name, at in moments.items():
        if not math.isnan(at):
            names.setdefault(at, []).append(name)
    return [(at, f"{' = '.join(same)} {ms(at)}") for at, same in names.items()]


def _draw_moments(
    ax: Axes, moments: list[tuple[float, str]], labels: list[tuple[int, bool]], colours: Theme
) -> None:
    bottom = ax.get_ylim()[0]
    for (at, text), (row, to_left) in zip(moments, labels, strict=True):
        line = "-" if "TTFAT" in text else "--" if "TTFT" in text else ":"
        rise = -0.05 - 0.18 * row
        ax.plot([at, at], [bottom, rise - 0.1], color=colours.ink, lw=0.9, ls=line, zorder=1, clip_on=False)
        ax.annotate(
            text,
            (at, rise),
            xytext=(-3 if to_left else 3, 0),
            textcoords="offset points",
            ha="right" if to_left else "left",
            annotation_clip=False,
            bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.4},
        )


def _draw_chunks(
    ax: Axes, rows: pd.DataFrame, lanes: dict[str, float], colours: Theme, panel_in: float
) -> None:
    shapes = {
        "role": ("o", colours.muted, False),
        "empty": ("x", colours.muted, False),
        "reasoning": ("^", colours.orange, True),
        "answer": ("o", colours.blue, True),
        "tool_call": ("s", colours.green, True),
        "finish": ("|", colours.ink, False),
        "usage": ("D", colours.muted, False),
        "error": ("X", colours.ink, True),
    }
    inches_per_ms = panel_in / ax.get_xlim()[1]
    origin = look(rows["origin"].iloc[0], colours)
    top, heights, names = 0.0, [], []
    for kind, height in lanes.items():
        chunks = rows[rows["kind"] == kind]
        y = top + 0.135
        top += height
        heights.append(y)
        names.append(f"{kind.replace('_', ' ')} \u00d7 {len(chunks)}")
        if chunks.empty:
            continue
        at = chunks["at_ms"].to_numpy(dtype=float)
        ax.plot([0, at[-1]], [y, y], color=origin.colour, ls=origin.line, lw=1.0, zorder=1.5)
        marker, colour, filled = shapes[kind]
        apart_in = float(np.median(np.diff(at))) * inches_per_ms if len(at) > 1 else 1.0
        ax.plot(
            at,
            [y] * len(at),
            ls="",
            marker=marker,
            ms=float(np.clip(72 * apart_in, 3.5, 6.5)) if marker != "|" else 9,
            mfc=colour if filled else colours.paper,
            mec=colours.paper if filled else colour,
            mew=0.5 if filled else 1.4,
            zorder=3,
            clip_on=False,
        )
        if height > 0.3:
            _draw_text(ax, chunks, y + 0.19, colours, at[0] * inches_per_ms, panel_in)
    ax.set_yticks(heights, names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw_text(
    ax: Axes, chunks: pd.DataFrame, y: float, colours: Theme, start_in: float, panel_in: float
) -> None:
    """The text of a row's first chunks under their markers, cut where the panel ends."""
    to_left = (
        panel_in - start_in < 1.5 and start_in > 1.5
    )  # little room: end under the marker, not begin there
    room_in = start_in if to_left else panel_in - start_in + 0.1
    texts = [safe(text) if isinstance(text, str) else "" for text in chunks["text"].head(80)]
    if not any(texts):
        return
    line = "|".join(texts) + ("|\u2026" if len(chunks) > len(texts) else "")
    ax.annotate(
        drawing.fit(line, room_in, 7.5),
        (chunks["at_ms"].iloc[0], y),
        size=7.5,
        va="center",
        ha="right" if to_left else "left",
        zorder=2,
        annotation_clip=False,
        bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.3},
    )


def itl(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Gaps between tokens (ITL): the share of gaps up to each length, and below it every gap as a tick.

    A reply is a step line with a marker at its P50 and its P95 (the smallest gap that at least that share of
    the gaps does not exceed). Where the axis is logarithmic, gaps under 0.1 ms are drawn at 0.1 ms.

    Args:
        frame: one row a gap, with ``gap_ms``, ``origin`` and optionally ``server`` and ``reply`` (name of the
            reply or of the set of replies; up to six are readable).
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "itl", numeric=("gap_ms",))
    frame = frame.assign(reply=frame["reply"].astype(str) if "reply" in frame.columns else "all gaps")
    groups = origins.groups(frame)
    series = [
        (name, group.origin, np.sort(rows["gap_ms"].to_numpy(dtype=float)))
        for group in groups
        for name, rows in group.rows.groupby("reply", sort=False)
    ]
    log = drawing.spread_wide(frame["gap_ms"])
    with canvas(theme, 2.7 + 0.36 * len(series), title) as (fig, colours):
        ratios = [2.0, 0.1 + 0.33 * len(series)]
        shares, strip = fig.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": ratios})
        paints = (colours.blue, colours.orange, colours.green, colours.purple, colours.ink, colours.muted)
        words, names = [], []
        for y, (name, origin, gaps) in enumerate(series):
            colour, marker = paints[y % 6], "osD^vP"[y % 6]
            point = {"marker": marker, "color": colour, "ms": 6.5, "mec": colours.paper, "clip_on": False}
            drawn = np.maximum(gaps, 0.1) if log else gaps
            rise = np.arange(len(gaps) + 1) / len(gaps)
            shares.step(
                [drawn[0], *drawn], rise, where="post", color=colour, ls=look(origin, colours).line, lw=1.5
            )
            p50, p95 = (percentile(gaps, q).value for q in (0.5, 0.95))
            shares.plot([max(p50, 0.1 * log), max(p95, 0.1 * log)], [0.5, 0.95], ls="", zorder=3, **point)
            strip.plot(drawn, [y] * len(drawn), ls="", marker="|", ms=9, mew=0.9, color=colour, alpha=0.7)
            strip.plot(-0.015, y, transform=strip.get_yaxis_transform(), **point)
            names.append(f"{drawing.fit(safe(name), 1.7, 8)}\nP50 {ms(p50)}, P95 {ms(p95)}")
            words.append(
                f"{name} ({origin}): {many(len(gaps), 'gap')}, P50 {ms(p50)}, P95 {ms(p95)}, "
                f"longest {ms(gaps[-1])}."
            )
        for q in (0.5, 0.95):
            shares.axhline(q, color=colours.muted, lw=0.7, ls=(0, (1, 3)), zorder=0.5)
        shares.set_yticks([0, 0.5, 0.95], ["0", "P50", "P95"])
        shares.set(ylim=(0, 1.02), ylabel="share of gaps up to here")
        strip.set_yticks(range(len(series)), names, size=8)
        strip.tick_params(axis="y", length=0, pad=14)
        strip.spines["left"].set_visible(False)
        strip.set(ylim=(len(series) - 0.4, -0.6), xlabel="gap between two chunks in ms")
        if not log:
            strip.set_xlim(0, float(frame["gap_ms"].max()) * 1.04 or 1.0)
        drawing.ms_axis(strip.xaxis, log=log)
        if log:
            strip.set_xlabel("gap between two chunks in ms (logarithmic; 0.1 stands for 0.1 or less)")
        drawing.legend(fig, [drawing.line_key(group, colours, colour=colours.ink) for group in groups])
        fig.alt = "Gaps between chunks, as the share of gaps up to each length. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig
