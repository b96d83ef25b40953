"""Figures of what a minute costs: its price against the calls on a GPU, its inputs, the whole bill."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from helpers import cost, drawing, origins
from helpers.drawing import Theme, canvas, look, safe

BAR_IN = 0.48


def price_by_calls(
    frame: pd.DataFrame, *, claims: pd.DataFrame | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """The price of an agent minute against the live calls on one GPU: each case a point on its GPU's line.

    Both axes are logarithmic, so a price per hour is a falling straight line, and a factor is a distance.

    Args:
        frame: one row a case, as :func:`helpers.cost_range.cases` gives it: ``who``, ``what``, ``gpu``,
            ``live_calls``, ``usd_per_minute``, ``origin`` (of the number of calls).
        claims: prices to draw as lines across: ``name``, ``usd_per_minute``, ``origin``; where one crosses
            the line of the first GPU the calls that it would take are written.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "price_by_calls", required=("who", "what", "gpu"), numeric=("live_calls", "usd_per_minute")
    )
    frame = frame.assign(full=frame["live_calls"] * frame["usd_per_minute"])  # USD for a minute of a full GPU
    lines = [] if claims is None else claims.to_dict("records")
    full = float(frame["full"].iloc[0])
    takes = [full / row["usd_per_minute"] for row in lines]
    span = np.array(
        [float(frame["live_calls"].min()) / 5, max(float(frame["live_calls"].max()), *takes, 0.0) * 9]
    )
    with canvas(theme, 4.4, title) as (fig, colours):
        ax = fig.add_subplot()
        ax.set(xscale="log", yscale="log", xlim=span)
        words = []
        for price in dict.fromkeys(frame["full"].round(9)):
            ax.plot(span, price / span, color=colours.muted, lw=0.9, zorder=1)
        for row, needed in zip(lines, takes, strict=True):
            words.append(_claim(ax, row, needed, frame, span, colours))
        for row in frame.to_dict("records"):
            of = look(row["origin"], colours)
            ax.plot(
                row["live_calls"], row["usd_per_minute"], marker=of.marker, ms=7, color=of.colour, zorder=3
            )
            said = f"{row['who']}: {row['live_calls']:,.0f} {row['what']}"
            left = (
                row["full"] < 0.99 * full
            )  # a cheaper GPU lies below the others, so its words go to the left
            ax.annotate(
                drawing.wrapped(said, 18 if left else 27), (row["live_calls"], row["usd_per_minute"]),
                (-7, -3) if left else (7, 4), textcoords="offset points", size=7.5, linespacing=1.1,
                ha="right" if left else "left", va="center" if left else "bottom", zorder=2,
                bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.3, "alpha": 0.85},
            )  # fmt: skip
            words.append(f"{said} on a {row['gpu']} ({row['origin']}): {cost.usd(row['usd_per_minute'])}.")
        low = min([float(frame["usd_per_minute"].min()), *(row["usd_per_minute"] for row in lines)])
        ax.set_ylim(low / 2.2, float(frame["usd_per_minute"].max()) * 2.2)
        ax.set(xlabel="calls on one GPU at once", ylabel="USD per agent minute")
        _log_axis(ax.xaxis)
        _log_axis(ax.yaxis)
        ax.grid(alpha=0.6)
        keys: list[Artist] = [
            Line2D([], [], ls="", marker=look(group, colours).marker, color=look(group, colours).colour, ms=7,
                   label=f"{group} number of calls")
            for group in dict.fromkeys(frame["origin"])
        ]  # fmt: skip
        keys.append(Line2D([], [], color=colours.muted, lw=0.9, label="one price of a full GPU-minute"))
        if lines:
            keys.append(Line2D([], [], ls="", marker="x", mew=2, ms=8, color=colours.orange,
                               label="calls that a claimed price would take"))  # fmt: skip
        drawing.legend(fig, keys)
        fig.alt = "Price of an agent minute against calls on one GPU. " + " ".join(words)
        fig.note = origins.note(frame.drop(columns=["n"], errors="ignore"))
    return fig


def _claim(
    ax: Axes, row: dict[str, Any], needed: float, frame: pd.DataFrame, span: np.ndarray, colours: Theme
) -> str:
    """A claimed price as a line across, and the calls that it would take, unless a case says the same."""
    of = look(row["origin"], colours)
    ax.axhline(row["usd_per_minute"], color=of.colour, ls=of.line, lw=1.2, zorder=1)
    ax.annotate(
        safe(f"{row['name']}: {cost.usd(row['usd_per_minute'])}"), (span[1], row["usd_per_minute"]),
        (-3, 3), textcoords="offset points", size=8, weight="bold", ha="right",
    )  # fmt: skip
    if not np.isclose(frame["live_calls"], needed, rtol=0.1).any():
        ax.plot(needed, row["usd_per_minute"], marker="x", ms=8, mew=2, color=colours.orange, zorder=4)
        ax.annotate(
            f"would take {needed:,.0f}", (needed, row["usd_per_minute"]), (-7, -12),
            textcoords="offset points", size=8, ha="right",
            bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.3, "alpha": 0.85},
        )  # fmt: skip
    said = f"{row['name']} ({row['origin']}): {cost.usd(row['usd_per_minute'])}"
    return f"{said}, which would take {needed:,.0f} calls on the first GPU."


def ticks_inside(axis: Any) -> None:
    """Keep those ticks of an axis that lie within its limits; the others' labels stand beside the picture."""
    low, high = sorted(axis.get_view_interval())
    axis.set_ticks([tick for tick in axis.get_majorticklocs() if low <= tick <= high])


def _log_axis(axis: Any) -> None:
    """Plain decimal numbers at 1, 2 and 5 on a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=99))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    ticks_inside(axis)


def _plain(value: float) -> str:
    """A number without an exponent, thousands apart."""
    return f"{value:,.0f}" if value >= 1000 else np.format_float_positional(value, trim="-")


def tornado(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """What one input alone does to the price: one bar an input, from its one end to its other.

    The axis is logarithmic, so bars of the same length mean the same factor.

    Args:
        frame: one row an input, as :func:`helpers.cost_range.tornado` gives it: ``input``, ``low_value``,
            ``high_value``, ``at_low``, ``at_high``, ``base``, ``times``, ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    numbers = ("low_value", "high_value", "at_low", "at_high", "base", "times")
    frame = drawing.checked(frame, "tornado", required=("input",), numeric=numbers)
    base = float(frame["base"].iloc[0])
    ends = frame[["at_low", "at_high"]].to_numpy(dtype=float)
    with canvas(theme, 1.0 + 0.52 * len(frame), title) as (fig, colours):
        ax = fig.add_subplot()
        ax.set_xscale("log")
        words = []
        for y, row in enumerate(frame.to_dict("records")):
            left, right = sorted((row["at_low"], row["at_high"]))
            names = [row["low_value"], row["high_value"]]
            if row["at_low"] > row["at_high"]:
                names.reverse()
            ax.barh(y, right - left, 0.5, left=left, **drawing.area(look(row["origin"], colours), colours))
            for at, name, offset, side in ((left, names[0], -4, "right"), (right, names[1], 4, "left")):
                ax.annotate(
                    f"{name:,.{3 if name < 1 else 4}g}", (at, y), (offset, 0), textcoords="offset points",
                    ha=side, va="center",
                    size=8, bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6},
                )  # fmt: skip
            words.append(
                f"{row['input']}, {names[0]:,.4g} to {names[1]:,.4g}: {cost.usd(left)} to {cost.usd(right)}, "
                f"a factor of {row['times']:.1f} ({row['origin']})."
            )
        ax.axvline(base, color=colours.ink, lw=1.4)
        ax.annotate(
            f"unchanged: {base:.5f}", (base, -0.55), (4, 0), textcoords="offset points", size=8, va="center",
            annotation_clip=False,
        )  # fmt: skip
        labels = [
            f"{safe(row['input'])}\ntimes {row['times']:.1f} from end to end"
            for row in frame.to_dict("records")
        ]
        ax.set_yticks(range(len(frame)), labels)
        ax.set_ylim(len(frame) - 0.5, -0.85)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(ends.min() / 1.5, ends.max() * 1.5)
        _log_axis(ax.xaxis)
        ax.set_xlabel("USD per agent minute (logarithmic); beside the bars: the input's two ends")
        ax.grid(axis="x")
        drawing.legend(fig, [drawing.area_key(group, colours) for group in origins.groups(frame[["origin"]])])
        fig.alt = f"The price of an agent minute, {cost.usd(base)}, one input changed at a time. " + " ".join(
            words
        )
        fig.note = origins.note(frame)
    return fig


def call_minute(
    frame: pd.DataFrame, *, marked: str = "language model", title: str = "", theme: str = "light"
) -> Figure:
    """The bill of one minute, one bar a scenario, one piece a part; one part is set off.

    Args:
        frame: bills below each other, as :func:`helpers.cost_call.minute` gives them: ``scenario``, ``part``,
            ``usd_per_minute``, ``share``, ``origin``.
        marked: the part to set off and to name with its share.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "call_minute", required=("scenario", "part"), numeric=("usd_per_minute", "share")
    )
    bills = {name: frame[frame["scenario"] == name] for name in dict.fromkeys(frame["scenario"])}
    widest = max(float(bill["usd_per_minute"].sum()) for bill in bills.values()) or 1.0
    row_in, left = 1.08, 0.15
    panel_in = drawing.WIDTH_IN - 2 * left - 0.95
    inch = panel_in / widest
    groups = origins.groups(frame[["origin"]].drop_duplicates())
    foot = 0.5 + drawing.legend_in([group.phrase for group in groups])
    with canvas(theme, row_in * len(bills) + foot, title, layout=None) as (fig, colours):
        height = fig.get_figheight()
        ax = fig.add_axes(
            (
                left / drawing.WIDTH_IN,
                foot / height,
                1 - 2 * left / drawing.WIDTH_IN,
                row_in * len(bills) / height,
            )
        )
        ax.set(xlim=(0, (drawing.WIDTH_IN - 2 * left) / inch), ylim=(row_in * len(bills), 0), yticks=[])
        ax.spines["left"].set_visible(False)
        words = []
        for number, (name, bill) in enumerate(bills.items()):
            at, middle = 0.0, row_in * number + 0.74
            ax.text(0, row_in * number + 0.18, safe(name), weight="bold", va="center")
            for row in bill.to_dict("records"):
                _piece(ax, row, at, middle, inch, row["part"] == marked, colours)
                at += row["usd_per_minute"]
            ax.text(at + 0.06 / inch, middle, f"{at:.4f} USD", va="center", weight="bold", size=8.5)
            parts = ", ".join(
                f"{row['part']} {row['usd_per_minute']:.5f} ({row['share']:.0%}, {row['origin']})"
                for row in bill.to_dict("records")
            )
            words.append(f"{name}: {at:.4f} USD; {parts}.")
        ax.set_xlabel("USD per minute of a call")
        drawing.ms_axis(ax.xaxis)
        ticks_inside(ax.xaxis)
        drawing.legend(
            fig,
            [drawing.area_key(group, colours) for group in groups],
            loc="lower left",
            bbox_to_anchor=(0, 0),
        )
        fig.alt = "The bill of one minute of a call. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def _piece(
    ax: Axes, row: dict[str, Any], at: float, middle: float, inch: float, marked: bool, colours: Theme
) -> None:
    """One part of a bill: a piece of its bar, its words inside where they fit; above it if it is set off."""
    width = row["usd_per_minute"]
    ax.barh(middle, width, BAR_IN, left=at, **drawing.area(look(row["origin"], colours), colours))
    if marked:
        frame = {"facecolor": "none", "edgecolor": colours.orange, "lw": 2.6, "zorder": 4}
        ax.barh(middle, width, BAR_IN, left=at, **frame)
        said = f"{row['part']} {width:.5f}".rstrip("0") + f", {row['share']:.0%}"
        ax.annotate(
            safe(said), (at + width / 2, middle - BAR_IN / 2), (0, 3), textcoords="offset points",
            ha="center", va="bottom", size=8, weight="bold",
        )  # fmt: skip
        return
    inside = f"{drawing.wrapped(row['part'], 14 if width * inch > 0.95 else 9)}\n{width:.4f}"
    if max(drawing.width_in(line, 7.5) for line in inside.split("\n")) + 0.1 < width * inch:
        ax.text(
            at + width / 2, middle, inside, ha="center", va="center", size=7.5, linespacing=1.1,
            bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
