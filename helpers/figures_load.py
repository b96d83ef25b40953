"""Figures of a load: what callers wait for at each level, and what fills up meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from helpers import drawing, origins
from helpers.drawing import Theme, canvas, look, many, ms
from helpers.settings import CourseError


def latency_curve(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    unit: str = "live calls",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """What a caller waits for against the number of callers: P50, P95 with its interval, and the goodput.

    Args:
        frame: one row a level, as :func:`helpers.sweeps.curve` makes it: ``live_calls``, ``p50_ms``,
            ``p95_ms``, ``low_ms``, ``high_ms`` (ends of the P95's interval; infinite: unbounded),
            ``requests_per_s``, ``goodput_per_s`` (requests within the limit a second), ``n`` (calls),
            ``origin``, and optionally ``server`` and ``trusted``.
        limit_ms: drawn as a line; without it, the published ceiling for TTFAT.
        unit: what is counted.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    limit_ms = drawing.limit_or_ceiling(limit_ms)
    frame = drawing.checked(
        frame,
        "latency_curve",
        numeric=(
            "live_calls",
            "p50_ms",
            "p95_ms",
            "low_ms",
            "high_ms",
            "requests_per_s",
            "goodput_per_s",
            "n",
        ),
        infinite=("p50_ms", "p95_ms", "low_ms", "high_ms"),
    ).sort_values("live_calls", kind="stable")
    known = frame[["p50_ms", "p95_ms"]].to_numpy(dtype=float)
    largest = float(known[np.isfinite(known)].max(initial=limit_ms))
    log = largest > 6 * limit_ms
    top = max(largest * (2.0 if log else 1.25), 1.5 * limit_ms)
    bottom = max(float(known[np.isfinite(known)].min(initial=limit_ms)) / 2, 1.0) if log else 0.0
    with canvas(theme, 4.6, title) as (fig, colours):
        upper, lower = fig.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [2.4, 1]})
        words, keys = [], []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            rows = group.rows
            x = rows["live_calls"].to_numpy(dtype=float)
            p50, p95 = (rows[name].clip(upper=top) for name in ("p50_ms", "p95_ms"))
            upper.plot(x, p50, color=of.colour, ls=of.line, marker=of.marker, ms=5, mfc=colours.paper, lw=1.2)
            upper.plot(x, p95, color=of.colour, ls=of.line, marker=of.marker, ms=6.5, lw=1.8)
            for row in rows.to_dict("records"):
                _interval(upper, row, (bottom, top), of.colour)
                doubt = "" if row.get("trusted", True) else ", not to be trusted"
                words.append(
                    f"{row['live_calls']:g} {unit} ({group.origin}, {many(int(row['n']), 'call')}{doubt}): "
                    f"P50 {ms(row['p50_ms'])}, P95 {ms(row['p95_ms'])}, interval {ms(row['low_ms'])} to "
                    f"{ms(row['high_ms'])}; {row['goodput_per_s']:.1f} of {row['requests_per_s']:.1f} "
                    "requests a second within the limit."
                )
                if doubt:
                    upper.annotate(
                        "?",
                        (row["live_calls"], min(row["p95_ms"], top)),
                        xytext=(5, 3),
                        size=11,
                        textcoords="offset points",
                        weight="bold",
                    )
            lower.plot(
                x,
                rows["requests_per_s"],
                color=colours.muted,
                ls=of.line,
                marker=of.marker,
                ms=4,
                mfc=colours.paper,
                lw=1.0,
            )
            lower.plot(
                x, rows["goodput_per_s"], color=of.colour, ls=of.line, marker=of.marker, ms=5.5, lw=1.8
            )
            keys.append(drawing.line_key(group, colours, marker=True))
        upper.axhline(limit_ms, color=colours.ink, **drawing.LIMIT_LINE)
        if log:
            drawing.ms_axis(upper.yaxis, log=True)
        upper.set_ylim(bottom, top)
        if not log:
            drawing.ms_axis(upper.yaxis)
        last = frame.iloc[-1]
        ends = [min(float(last[name]), top) for name in ("p50_ms", "p95_ms")]
        limit = f"limit {ms(limit_ms)}"
        _name_ends(upper, float(last["live_calls"]), [*ends, limit_ms], ("P50", "P95", limit), colours)
        done = [float(last["goodput_per_s"]), float(last["requests_per_s"])]
        lower.set_ylim(0, max(float(frame["requests_per_s"].max()) * 1.25, 0.1))
        _name_ends(lower, float(last["live_calls"]), done, ("in time", "all"), colours)
        upper.set_ylabel(f"TTFAT in ms{' (logarithmic)' if log else ''}")
        lower.set(xlabel=unit, ylabel="requests\na second")
        levels = sorted(set(frame["live_calls"]))
        lower.set_xlim(0, levels[-1] * 1.2)
        lower.set_xticks(_spaced(levels, levels[-1] * 0.045), minor=False)
        lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for ax in (upper, lower):
            ax.grid(axis="y")
        keys.append(drawing.limit_key(limit_ms, colours))
        if "trusted" in frame and not frame["trusted"].all():
            keys.append(
                Line2D(
                    [], [], ls="", marker="$?$", ms=7, color=colours.ink, label="?: the client was too slow"
                )
            )
        drawing.legend(fig, keys)
        fig.alt = (
            f"TTFAT against the number of {unit}, with a limit of {ms(limit_ms)}; below it the requests a "
            "second and those within the limit. " + " ".join(words)
        )
        fig.note = f"{origins.note(frame)}; {drawing.limit_from(limit_ms)}"
    return fig


def saturation(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    unit: str = "live calls",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """What the callers wait for, and what the server says of itself, on one axis of time.

    Args:
        frame: one row a value, as :func:`helpers.sweeps.over_time` makes it: ``at_s``, ``series`` (``TTFAT``
            in ms; ``in flight``, ``running``, ``waiting`` requests; ``tokens per step``; ``prefix hits`` as a
            share), ``value`` (a TTFAT may be infinite: no answer came), ``live_calls``, ``origin``,
            optionally ``server``.
        limit_ms: drawn as a line among the waits; without it, the published ceiling for TTFAT.
        unit: of ``live_calls``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    limit_ms = drawing.limit_or_ceiling(limit_ms)
    frame = drawing.checked(
        frame,
        "saturation",
        required=("series",),
        numeric=("at_s", "value", "live_calls"),
        infinite=("value",),
    ).sort_values("at_s", kind="stable")
    panels = {
        "TTFAT": ("TTFAT\nin ms", ("TTFAT",)),
        "requests": ("requests", ("in flight", "running", "waiting")),
        "tokens per step": ("tokens\nper step", ("tokens per step",)),
        "prefix hits": ("of the prompt\nin cache", ("prefix hits",)),
    }
    there = {
        name: (label, [one for one in series if (frame["series"] == one).any()])
        for name, (label, series) in panels.items()
    }
    there = {name: (label, series) for name, (label, series) in there.items() if series}
    if not there:
        raise CourseError(
            f"figures.saturation knows none of the series in this table: {sorted(set(frame['series']))}. "
            "Make the table with sweeps.over_time(sweep)."
        )
    spans = frame.groupby("live_calls")["at_s"].agg(["min", "max"]).sort_values("min")
    with canvas(theme, 0.75 + 1.12 * len(there), title, shrinks=False) as (fig, colours):
        axes = fig.subplots(
            len(there),
            1,
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": [1.5 if name == "TTFAT" else 1 for name in there]},
        )[:, 0]
        queue = drawing.tint(colours.orange, colours, 0.4)
        styles = {
            "in flight": (colours.muted, 0.8),
            "running": (colours.blue, 1.6),
            "waiting": (colours.orange, 1.8),
        }
        keys: list[Any] = []
        for ax, (name, (label, series)) in zip(axes, there.items(), strict=True):
            for one in series:
                rows = frame[frame["series"] == one]
                colour, width = styles.get(one, (colours.blue, 1.4))
                for _, level in rows.groupby("live_calls", sort=False):
                    of = look(level["origin"].iloc[0], colours)
                    if name == "TTFAT":
                        _waits(ax, level, limit_ms, of.marker, colours)
                    else:
                        step = "steps-post" if one == "in flight" else "default"
                        ax.plot(
                            level["at_s"], level["value"], color=colour, lw=width, ls=of.line, drawstyle=step
                        )
                    if one == "waiting":  # an area, so that it is told from the others without colour
                        ax.fill_between(level["at_s"], level["value"], lw=0, facecolor=queue)
            ax.set_ylabel(label)
            ax.grid(axis="y")
            for begin in spans["min"][1:]:
                ax.axvline(begin, color=colours.faint, lw=1.0, zorder=0)
            if name == "TTFAT":
                _waits_axis(ax, frame, limit_ms, colours)
                if ax.get_yscale() == "linear":
                    ax.yaxis.get_major_locator().set_params(nbins=4)
            else:
                ax.set_ylim(0, 1.05 if name == "prefix hits" else None)
                ax.yaxis.set_major_locator(MaxNLocator(3, integer=name == "requests"))
            if name == "prefix hits":
                ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
            if name == "requests":
                names = {"in flight": "in flight, by the client", "running": "running", "waiting": "waiting"}
                keys += [
                    Patch(facecolor=queue, edgecolor=styles[one][0], label=names[one])
                    if one == "waiting"
                    else Line2D([], [], color=styles[one][0], lw=styles[one][1], label=names[one])
                    for one in series
                ]
        for level, (begin, stop) in zip(spans.index, spans.to_numpy(), strict=True):
            axes[0].annotate(
                f"{level:g}",
                ((begin + stop) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                weight="bold",
            )
        axes[0].annotate(
            f"{unit}:",
            (0, 1.0),
            xycoords="axes fraction",
            xytext=(-4, 2),
            textcoords="offset points",
            ha="right",
        )
        axes[-1].set(xlabel="seconds", xlim=(0, float(frame["at_s"].max()) * 1.01))
        groups = origins.groups(frame[frame["series"] == there[next(iter(there))][1][0]])
        keys += [drawing.line_key(group, colours, marker=True, colour=colours.ink) for group in groups]
        keys.append(drawing.limit_key(limit_ms, colours))
        drawing.legend(fig, keys)
        fig.alt = (
            f"The callers' waits and the server's own numbers over time, level by level ({unit}). "
            + " ".join(_level_words(frame, level, unit, limit_ms) for level in spans.index)
        )
        phrases = [group.phrase for group in groups]  # of the requests, not of every value drawn
        fig.note = "; ".join([*phrases, drawing.limit_from(limit_ms)])
    return fig


# --- parts of these ------------------------------------------------------------------------------------


def _interval(ax: Any, row: dict[str, Any], ends: tuple[float, float], colour: str) -> None:
    low, high = (min(max(row[name], ends[0]), ends[1]) for name in ("low_ms", "high_ms"))
    if math.isnan(low) or math.isnan(high):
        return
    ax.plot([row["live_calls"]] * 2, [low, high], color=colour, lw=1.1, zorder=1)
    cap = {"color": colour, "ms": 8, "mew": 1.4, "clip_on": False, "ls": ""}
    ax.plot(row["live_calls"], low, marker="_", **cap)
    # An arrow head: this end is unbounded, or beyond the axis.
    ax.plot(row["live_calls"], high, marker="_" if row["high_ms"] <= ends[1] else "^", **cap)


def _name_ends(ax: Any, x: float, ys: Sequence[float], names: Sequence[str], colours: Theme) -> None:
    """Names of lines at their right ends, moved apart."""
    low, high = ax.get_ylim()
    gap = (0.5 if high - low < 50 else 0.34) / ax.figure.get_figheight()  # the height of a name, as a share
    if ax.get_yscale() == "log":
        places = drawing.apart([math.log(max(y, low)) for y in ys], gap * math.log(high / low))
        places = [math.exp(place) for place in places]
    else:
        places = drawing.apart(list(ys), gap * (high - low))
    paper = {"facecolor": colours.paper, "edgecolor": "none", "pad": 1.0}
    for name, y in zip(names, places, strict=True):
        place = {"xytext": (9, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(name, (x, y), color=colours.ink, bbox=paper, **place)


def _spaced(values: Sequence[float], gap: float) -> list[float]:
    kept: list[float] = []
    for value in values:
        if not kept or value - kept[-1] >= gap:
            kept.append(value)
    return kept


def _waits(ax: Any, rows: pd.DataFrame, limit_ms: float, marker: str, colours: Theme) -> None:
    """The waits of one level: above the limit filled, so that they are seen without colour."""
    late = rows["value"] > limit_ms
    for which, face, edge in ((~late, colours.paper, colours.blue), (late, colours.orange, colours.orange)):
        some = rows[which & np.isfinite(rows["value"])]
        ax.plot(some["at_s"], some["value"], ls="", marker=marker, ms=3.6, mfc=face, mec=edge, mew=0.8)
    for at_s in rows.loc[np.isinf(rows["value"]), "at_s"]:
        ax.plot(
            at_s,
            0.97,
            marker="x",
            ms=5,
            color=colours.orange,
            transform=ax.get_xaxis_transform(),
            clip_on=False,
        )


def _waits_axis(ax: Any, frame: pd.DataFrame, limit_ms: float, colours: Theme) -> None:
    waits = frame.loc[(frame["series"] == "TTFAT") & np.isfinite(frame["value"]), "value"]
    log = drawing.spread_wide(waits)
    drawing.ms_axis(ax.yaxis, log=log)
    if not log:
        ax.set_ylim(0, max(float(waits.max()) if len(waits) else 0.0, limit_ms) * 1.1)
    ax.axhline(limit_ms, color=colours.ink, **drawing.LIMIT_LINE)


def _level_words(frame: pd.DataFrame, level: float, unit: str, limit_ms: float) -> str:
    rows = frame[frame["live_calls"] == level]

    def of(series: str) -> pd.Series:
        return rows.loc[rows["series"] == series, "value"]

    waits = of("TTFAT")
    said = [f"{many(len(waits), 'request')}, {int((waits > limit_ms).sum())} over {ms(limit_ms)}"]
    for series in ("in flight", "running", "waiting", "tokens per step"):
        if len(of(series)):
            said.append(f"{series} up to {of(series).max():.0f}")
    if len(of("prefix hits")):
        said.append(f"{100 * of('prefix hits').mean():.0f} % of the prompts in the cache")
    return f"{level:g} {unit}: {'; '.join(said)}."
