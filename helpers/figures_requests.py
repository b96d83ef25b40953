"""Figures of many requests: what TTFT depends on, what a percentile is worth, and whose clock says so."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from helpers import drawing, origins
from helpers.drawing import canvas, look, many, ms, safe
from helpers.settings import CourseError
from helpers.stats import percentile


def ttft_by_prompt_length(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """TTFT against the length of the prompt: each request a point, a line through the medians.

    Args:
        frame: one row a request, with ``prompt_tokens``, ``ttft_ms``, ``cache`` (``cold``: the server
            computed the whole prompt; ``cached``: it had the prefix in its cache), ``origin`` and optionally
            ``server``. Rows without a TTFT are left out.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "ttft_by_prompt_length", required=("cache",), numeric=("prompt_tokens", "ttft_ms")
    )
    for index, cache in frame["cache"].items():
        if cache not in ("cold", "cached"):
            raise CourseError(f"Row {index!r}, column 'cache': {cache!r} is neither 'cold' nor 'cached'.")
    with canvas(theme, 3.5, title) as (fig, colours):
        ax = fig.add_subplot()
        keys, words, ends = [], [], []
        for cache, colour in (("cold", colours.blue), ("cached", colours.orange)):
            for group in origins.groups(frame[frame["cache"] == cache]):
                of = look(group.origin, colours)
                medians = group.rows.groupby("prompt_tokens")["ttft_ms"].median()
                point = {
                    "marker": of.marker,
                    "mec": colour,
                    "mfc": colour if cache == "cold" else colours.paper,
                }
                ax.plot(
                    group.rows["prompt_tokens"],
                    group.rows["ttft_ms"],
                    ls="",
                    ms=4,
                    mew=0.8,
                    alpha=0.55,
                    **point,
                )
                ax.plot(medians.index, medians, color=colour, ls=of.line, lw=1.6, ms=6.5, mew=1.4, **point)
                keys.append(
                    Line2D([], [], color=colour, ls=of.line, **point, label=f"{cache}, {group.phrase}")
                )
                ends.append((float(medians.index[-1]), float(medians.iloc[-1]), cache))
                values = ", ".join(
                    f"{ms(value)} at {int(length):,} tokens" for length, value in medians.items()
                )
                words.append(f"{cache} ({group.phrase}): {values}.")
        ax.set(xlabel="prompt length in tokens", ylabel="TTFT in ms (line: medians)", ylim=(0, None))
        ax.set_xlim(0, float(frame["prompt_tokens"].max()) * 1.1)
        ax.grid(axis="y")
        drawing.ms_axis(ax.xaxis)
        drawing.ms_axis(ax.yaxis)
        heights = drawing.apart([y for _, y, _ in ends], 0.06 * ax.get_ylim()[1])
        for (x, _, cache), y in zip(ends, heights, strict=True):
            ax.annotate(cache, (x, y), xytext=(8, 0), textcoords="offset points", va="center")
        drawing.legend(fig, keys)
        fig.alt = "TTFT against prompt length, median of each length. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def latency_bars(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Time to the first token (inner mark) and to the first answer token (end of the bar), one bar a label.

    Args:
        frame: one row a request, with ``label`` (such as ``thinking on, budget 20``), ``ttft_ms``,
            ``ttfat_ms``, ``origin`` and optionally ``server``. Rows with the same label and origin are
            samples: the bar shows their medians. A missing ``ttfat_ms`` means that no answer token came; an
            infinite value, a request that never got there, ends at the right edge.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame,
        "latency_bars",
        required=("label",),
        numeric=(times := ("ttft_ms", "ttfat_ms")),
        gaps=True,
        infinite=times,
    )
    groups = origins.groups(frame)
    bars = [
        (
            str(label),
            group.origin,
            float(rows["ttft_ms"].median()),
            float(rows["ttfat_ms"].median()),
            _never(rows[[*times]]),
        )
        for label in frame["label"].unique()
        for group in groups
        if len(rows := group.rows[group.rows["label"] == label])
    ]
    longest = max([value for bar in bars for value in bar[2:4] if math.isfinite(value)], default=0.0) or 1.0
    edge = longest * 1.3
    with canvas(theme, 0.75 + 0.2 * len(groups) + 0.56 * len(bars), title) as (fig, colours):
        ax = fig.add_subplot()
        words = []
        for y, (label, origin, ttft, ttfat, never) in enumerate(bars):
            end = ttft if math.isnan(ttfat) else ttfat
            text = f"TTFAT {ms(ttfat)}"
            if math.isnan(end):
                end, text = 0.0, "no token came"
            elif math.isnan(ttfat):
                text = f"TTFT {ms(ttft)}, no answer token"
            elif ms(ttft) == ms(ttfat):
                text = f"TTFT = {text}"
            elif not math.isnan(ttft):
                side = "left" if ttft < longest / 8 else "center"
                ax.annotate(
                    f"TTFT {ms(ttft)}",
                    (min(ttft, edge), y - 0.27),
                    xytext=(-1, 1),
                    textcoords="offset points",
                    ha=side,
                )
            before = "" if "TTFT" in text or math.isnan(ttft) else f"TTFT {ms(ttft)}, "
            ttft, end, lost = min(ttft, edge), min(end, edge), math.isinf(end)
            ax.barh(y, end, height=0.32, **drawing.area(look(origin, colours), colours))
            ax.plot([ttft, ttft], [y - 0.27, y + 0.27], color=colours.paper, lw=4.5, solid_capstyle="butt")
            ax.plot([ttft, ttft], [y - 0.27, y + 0.27], color=colours.ink, lw=2.2, solid_capstyle="butt")
            place = {"xytext": (-6 if lost else 6, 0), "ha": "right" if lost else "left", "va": "center"}
            paper = {"facecolor": colours.paper, "edgecolor": "none", "pad": 1.5} if lost else None
            ax.annotate(text, (end, y), textcoords="offset points", bbox=paper, **place)
            words.append(f"{label} ({origin}): {before}{text}.{never}")
        ax.set_yticks(range(len(bars)), [drawing.wrapped(bar[0], 24) for bar in bars])
        ax.set(ylim=(len(bars) - 0.55, -0.7), xlim=(0, edge), xlabel="ms since the request was sent")
        ax.tick_params(axis="y", length=0)
        drawing.ms_axis(ax.xaxis)
        mark = Line2D([], [], ls="", marker="|", ms=10, mew=2.2, color=colours.ink, label="inner mark: TTFT")
        drawing.legend(fig, [*(drawing.area_key(group, colours) for group in groups), mark])
        fig.alt = (
            "Bars from sending the request to the first answer token (TTFAT), with a mark at the first token "
            "(TTFT); medians. " + " ".join(words)
        )
        fig.note = origins.note(frame)
    return fig


def _never(times: pd.DataFrame) -> str:
    """A sentence about the requests (rows) that have an infinite time; empty if there is none."""
    count = int(np.isinf(times.to_numpy(dtype=float)).any(axis=1).sum())
    return f" {many(count, 'request')} never got there." if count else ""


def percentile_by_samples(
    frame: pd.DataFrame, *, name: str = "P95 of TTFT", title: str = "", theme: str = "light"
) -> Figure:
    """What a percentile is worth as samples come in: the estimate and its interval for each sample count.

    Args:
        frame: one row a sample count, with ``n``, ``value``, ``low``, ``high`` (all but ``n`` in ms; ``high``
            infinite where the samples say nothing about the upper end), ``origin`` and optionally ``server``.
            Where the counts lie close, only some intervals are drawn; a thin line joins all the values.
        name: what the value is.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("n", "value", "low", "high")
    frame = drawing.checked(
        frame, "percentile_by_samples", numeric=columns, infinite=("value", "high"), unbounded=("low",)
    ).sort_values("n", kind="stable")
    values = frame[["value", "low", "high"]].to_numpy(dtype=float)
    room = 1.15 if np.isfinite(frame["high"]).all() else 1.5  # for an arrow and its word
    top = float(values[np.isfinite(values)].max(initial=1.0)) * room
    counts = np.unique(frame["n"].to_numpy(dtype=float))
    log = bool(counts[-1] > 4 * counts[0])
    ends = (counts[0] / 1.25, counts[-1] * 1.15) if log else (0.0, counts[-1] * 1.1)
    shown = _spaced(counts, ends, log=log, room=0.05)
    with canvas(theme, 3.3, title) as (fig, colours):
        ax = fig.add_subplot()
        ax.set(xlabel=f"samples{' (logarithmic)' if log else ''}", ylabel=f"{name} in ms", ylim=(0, top))
        ax.set_xscale("log" if log else "linear")
        ax.set_xlim(*ends)
        words, keys = [], []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            ax.plot(group.rows["n"], group.rows["value"].clip(upper=top), color=of.colour, lw=0.6, zorder=1)
            for row in group.rows[group.rows["n"].isin(shown)].to_dict("records"):
                n, low = row["n"], min(max(row["low"], 0.0), top)
                high, value = min(row["high"], top), min(row["value"], top)
                unbounded = math.isinf(row["high"])
                end = {"color": of.colour, "ms": 9, "mew": 1.6, "clip_on": False}
                ax.plot([n, n], [low, high], color=of.colour, ls=of.line, lw=1.6)
                ax.plot(n, low, marker="_", **end)
                ax.plot(n, high, marker="^" if unbounded else "_", **end)
                ax.plot(n, value, marker=of.marker, ms=7, color=of.colour, mec=colours.paper, clip_on=False)
                if unbounded:
                    place = {"xytext": (-5, -8), "textcoords": "offset points", "ha": "right", "va": "top"}
                    ax.annotate("unbounded", (n, top), rotation=90, size=8, **place)
                interval = f"{ms(low)} to {ms(row['high'])}"
                words.append(f"n = {n:,.0f}: {ms(row['value'])}, interval {interval} ({group.origin}).")
            keys.append(drawing.line_key(group, colours, marker=True))
        ax.xaxis.set_major_locator(FixedLocator(shown))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(axis="y")
        drawing.ms_axis(ax.yaxis)
        drawing.legend(fig, keys)
        fig.alt = f"{name} with its interval for growing sample counts. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def _spaced(values: np.ndarray, ends: tuple[float, float], *, log: bool, room: float) -> list[float]:
    """Those of the sorted values that lie at least ``room`` (a share of the axis) after the one before."""
    scale = np.log if log else np.array
    places = scale(values) / float(np.ptp(scale(ends)))
    kept: list[int] = []
    for i, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= room:
            kept.append(i)
    return [float(values[i]) for i in kept]


def tool_comparison(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """The same server timed by several tools: median and slowest request of each metric, one row a tool.

    The slowest and not a P95: such comparisons have too few requests for one.

    Args:
        frame: one row a tool and metric, with ``tool``, ``metric`` (``TTFT``, ``TTFAT``, ...), ``p50_ms``,
            ``max_ms``, ``n``, ``origin`` and optionally ``server``. A missing row or value is shown as
            "not reported", a row with ``n`` 0 as "no request succeeded"; an infinite value (some request
            never got there) is drawn at the right edge. Up to three metrics are readable.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame,
        "tool_comparison",
        required=("tool", "metric"),
        numeric=("p50_ms", "max_ms", "n"),
        gaps=True,
        infinite=("p50_ms", "max_ms"),
    )
    groups = origins.groups(frame)
    metrics = list(frame["metric"].unique())
    rows = [
        (tool, group)
        for tool in frame["tool"].unique()
        for group in groups
        if (group.rows["tool"] == tool).any()
    ]
    known = frame.replace({"p50_ms": math.inf, "max_ms": math.inf}, math.nan)
    by_metric = known.groupby("metric", sort=False)[["p50_ms", "max_ms"]].max().max(axis=1)
    with canvas(theme, 0.95 + 0.2 * (len(groups) + 1) + 0.42 * len(rows), title) as (fig, colours):
        panels = fig.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        words = []
        for ax, metric in zip(panels, metrics, strict=True):
            ax.set_title(safe(metric), size=9)
            # Metrics of one size share a scale; beside an end-to-end time all TTFTs would look alike.
            longest = float(by_metric[by_metric < 5 * by_metric[metric]].max())
            edge = longest * (1.2 + 0.2 * len(metrics)) if longest > 0 else 1.0
            for y, (tool, group) in enumerate(rows):
                found = group.rows[(group.rows["tool"] == tool) & (group.rows["metric"] == metric)]
                p50, most = (float(found[column].median()) for column in ("p50_ms", "max_ms"))
                none = len(found) > 0 and bool((found["n"] == 0).all())
                if none or (math.isnan(p50) and math.isnan(most)):
                    text = "no request succeeded" if none else "not reported"
                    place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
                    ax.annotate(text, (0, y), color=colours.muted, **place)
                    words.append(
                        f"{tool}, {metric}: {text}." if none else f"{tool} does not report {metric}."
                    )
                    continue
                of = look(group.origin, colours)
                point = {"marker": of.marker, "mec": of.colour, "mew": 1.4, "ls": "", "clip_on": False}
                ends = (min(p50, edge), min(most, edge))
                ax.plot(ends, [y, y], color=of.colour, ls=of.line, lw=1.4)
                ax.plot(ends[1], y, ms=6, mfc=colours.paper, **point)
                ax.plot(ends[0], y, ms=7.5, mfc=of.colour, **point)
                numbers = " / ".join(
                    ms(value).removesuffix(" ms") for value in (p50, most) if not math.isnan(value)
                )
                lost = math.isinf(p50) or math.isinf(
                    most
                )  # its words stand above the line, not past the edge
                place = {"xytext": (-7, 8), "ha": "right"} if lost else {"xytext": (7, 0), "ha": "left"}
                ax.annotate(numbers, (np.nanmax(ends), y), textcoords="offset points", va="center", **place)
                never = " At least 1 request never got there." if lost else ""
                words.append(f"{tool}, {metric}: P50 {ms(p50)}, slowest {ms(most)} ({group.phrase}).{never}")
            ax.set(xlim=(0, edge), xlabel="ms")
            ax.grid(axis="x")
            ax.tick_params(axis="y", length=0)
            drawing.ms_axis(ax.xaxis)
            ax.xaxis.get_major_locator().set_params(nbins=6 // len(metrics) + 1)
        panels[0].set_yticks(range(len(rows)), [drawing.wrapped(tool, 22) for tool, _ in rows])
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        keys = [drawing.line_key(group, colours, marker=True) for group in groups]
        for label, face in (("filled: P50", colours.ink), ("open: the slowest", colours.paper)):
            keys.append(
                Line2D([], [], ls="", marker="o", ms=6.5, mfc=face, mec=colours.ink, mew=1.4, label=label)
            )
        drawing.legend(fig, keys)
        fig.alt = "The same server timed by several tools. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def client_vs_server(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """TTFT as the client timed it against the server's own histogram, as shares of requests up to a time.

    A histogram knows how many requests fell between two bucket edges, not where: between its edges the
    server's line may run anywhere inside the shaded boxes.

    Args:
        frame: ``side`` (``client`` or ``server``) and ``origin``, optionally ``server``. A client row is one
            request with ``ttft_ms`` (infinite for one that never got there). A server row is one bucket with
            ``le_s`` (upper edge in seconds, infinite for the last) and ``count`` (requests in this bucket
            alone: the difference of two of the server's running totals).
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame,
        "client_vs_server",
        required=("side",),
        numeric=("ttft_ms", "le_s", "count"),
        gaps=True,
        infinite=("ttft_ms", "le_s"),
    )
    for index, side in frame["side"].items():
        if side not in ("client", "server"):
            raise CourseError(f"Row {index!r}, column 'side': {side!r} is neither 'client' nor 'server'.")
    client = frame[(frame["side"] == "client") & frame["ttft_ms"].notna()]
    buckets = frame[(frame["side"] == "server") & frame["le_s"].notna()].sort_values("le_s", kind="stable")
    counts = buckets["count"].to_numpy(dtype=float)
    if client.empty or not counts.sum() > 0:
        missing = "client request with a TTFT" if client.empty else "request in the server's buckets"
        raise CourseError(
            f"figures.client_vs_server needs both sides, and there is no {missing}. Send a few requests, "
            f"read the server's /metrics before and after them, and put both into the table."
        )
    samples = np.sort(client["ttft_ms"].to_numpy(dtype=float))
    edges = np.concatenate([[0.0], 1000 * buckets["le_s"].to_numpy(dtype=float)])
    shares = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
    last = int(np.argmax(shares >= 1 - 1e-9))  # the first edge by which every request has its token
    end = float(edges[last]) if math.isfinite(edges[last]) else float(edges[last - 1]) * 1.25
    first = int(np.flatnonzero(shares <= 0)[-1])  # the last edge before which no request has it
    right = float(samples[np.isfinite(samples)].max(initial=end)) * 1.06
    with canvas(theme, 3.4, title) as (fig, colours):
        ax = fig.add_subplot()
        words, keys = [], []
        box = {"facecolor": colours.faint, "edgecolor": colours.muted, "hatch": "///", "lw": 0.8}
        for i, j in pairwise(range(first, last + 1)):
            width = min(float(edges[j]), right * 1.1) - edges[i]
            ax.add_patch(Rectangle((edges[i], shares[i]), width, shares[j] - shares[i], **box))
            if shares[j] > shares[i]:
                upper = ms(edges[j]) if math.isfinite(edges[j]) else "no upper edge"
                share = f"{shares[j] - shares[i]:.0%}"
                words.append(f"{share} of the server's requests lie between {ms(edges[i])} and {upper}.")
        known = [i for i in range(first, last + 1) if math.isfinite(edges[i])]
        point = {"marker": "D", "ms": 5, "mfc": colours.paper, "mec": colours.ink, "clip_on": False}
        ax.plot(edges[known], shares[known], ls="", zorder=3, **point)
        for group in origins.groups(client):
            of = look(group.origin, colours)
            times = np.sort(group.rows["ttft_ms"].to_numpy(dtype=float))
            came = times[np.isfinite(times)]  # the others keep the line below 100 % up to the right edge
            rise = np.arange(len(came) + 1) / len(times)
            steps = [*(came[:1] if len(came) else [0.0]), *came, right]
            ax.step(steps, [*rise, rise[-1]], where="post", color=of.colour, ls=of.line, lw=2.0)
            keys.append(Line2D([], [], color=of.colour, ls=of.line, lw=2.0, label=f"client: {group.phrase}"))
        # A server's samples are its requests, not the rows of its histogram.
        server = origins.groups(buckets.assign(n=int(counts.sum())))
        for group in server:
            keys.append(Patch(**box, label=f"server: {group.phrase}"))
        ax.set(xlim=(0, right), ylim=(0, 1.02), xlabel="TTFT in ms", ylabel="share of requests up to here")
        ax.set_yticks([0, 0.25, 0.5, 0.75, 0.95], ["0", "25 %", "50 %", "75 %", "95 %"])
        drawing.ms_axis(ax.xaxis)
        drawing.legend(fig, keys)
        p50, p95 = (percentile(samples, q).value for q in (0.5, 0.95))
        fig.alt = (
            f"TTFT on both sides of the wire. The client timed P50 {ms(p50)} and P95 {ms(p95)}."
            f"{_never(client[['ttft_ms']])} " + " ".join(words)
        )
        fig.note = "; ".join(key.get_label().replace("\n", " ") for key in keys)
    return fig
