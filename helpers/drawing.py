"""What the figures share: colours and shapes, text that always prints, labels that keep apart.

What a mark means, everywhere: its *origin* is the shape of a point, the style of a line, the pattern of an
area; a *series* (cold or cached, one reply or another) has its name written next to it. Colour repeats one of
the two and never stands alone, so that a black-and-white print says the same.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from helpers.origins import Group, validate
from helpers.settings import CourseError

WIDTH_IN = 7.2  # the text column of a blog; JupyterLab shows the same picture a little larger
LEGEND_LETTERS = 105  # longer entries are broken into lines
TITLE_IN = 0.32  # height of a headline
FONT = "DejaVu Sans"  # comes with matplotlib, so a figure has the same letters on every machine


@dataclass(frozen=True)
class Theme:
    """Colours of one theme.

    The hues are Okabe and Ito's (https://jfly.uni-koeln.de/color/), chosen so that people with any common
    colour blindness can tell them apart; on dark paper their lighter members are used.
    """

    paper: str
    ink: str
    muted: str
    faint: str
    blue: str
    orange: str
    green: str
    purple: str


THEMES = {
    "light": Theme("#ffffff", "#1a1a1a", "#5a5a5a", "#d4d4d4", "#0072B2", "#D55E00", "#009E73", "#AA4F86"),
    "dark": Theme("#111111", "#ececec", "#b4b4b4", "#444444", "#56B4E9", "#F0A030", "#2CC79A", "#E2A0C6"),
}


@dataclass(frozen=True)
class Look:
    """How one origin is drawn: shape of its points, style of its lines, pattern of its areas."""

    colour: str
    marker: str
    line: str
    hatch: str | None


def look(origin: str, theme: Theme) -> Look:
    """The look of an origin, the same in every figure."""
    return {
        "measured": Look(theme.blue, "o", "-", None),
        "recorded": Look(theme.orange, "s", "--", "////"),
        "published": Look(theme.ink, "D", ":", "..."),
        "modelled": Look(theme.purple, "^", "-.", "xxxx"),
    }[origin]


def area(of: Look, theme: Theme) -> dict[str, Any]:
    """Keyword arguments that give a bar the look of its origin."""
    face = theme.paper if of.hatch else of.colour
    return {"facecolor": face, "edgecolor": of.colour, "hatch": of.hatch, "linewidth": 1.0}


class CourseFigure(Figure):
    """A matplotlib Figure that can say in words what it shows.

    Attributes:
        alt: the alternative text.
        note: one line on where its numbers come from.
    """

    alt: str = ""
    note: str = ""


def style(theme: str) -> AbstractContextManager[None]:
    """A ``with`` block in which matplotlib draws in this theme, whatever the user's own settings are.

    Raises:
        CourseError: there is no such theme.
    """
    if theme not in THEMES:
        raise CourseError(f"There is no theme {theme!r}. Type theme='light' or theme='dark'.")
    of = THEMES[theme]
    settings = {
        "font.family": FONT,
        "font.size": 8.5,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 8.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.edgecolor": of.muted,
        "axes.labelcolor": of.ink,
        "axes.facecolor": of.paper,
        "figure.facecolor": of.paper,
        "savefig.facecolor": of.paper,
        "grid.color": of.faint,
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.dash_capstyle": "butt",
        "text.color": of.ink,
        "xtick.color": of.muted,
        "ytick.color": of.muted,
        "xtick.labelcolor": of.ink,
        "ytick.labelcolor": of.ink,
        "svg.fonttype": "path",  # letters as shapes: the reader needs no font
        "svg.hashsalt": "1500 milliseconds",  # names inside the file are random without it
    }
    return matplotlib.style.context(settings, after_reset=True)


@contextmanager
def canvas(
    theme: str, height_in: float, title: str = "", *, layout: str | None = "constrained"
) -> Iterator[tuple[CourseFigure, Theme]]:
    """An empty figure of blog width and the theme to draw it with, while :func:`style` is in force.

    Args:
        theme: ``light`` or ``dark``.
        height_in: its height in inches; a headline adds :data:`TITLE_IN`.
        title: headline.
        layout: ``constrained`` lets matplotlib make room for labels; None where the caller places everything.
    """
    height_in += TITLE_IN if title else 0.0
    with style(theme):
        fig = CourseFigure(figsize=(WIDTH_IN, height_in), layout=layout)
        if title:
            place = {} if layout else {"y": 1 - 0.09 / height_in, "va": "top"}
            fig.suptitle(safe(title), x=0.01, ha="left", size=10, weight="bold", **place)
        yield fig, THEMES[theme]


def checked(
    frame: pd.DataFrame,
    figure: str,
    *,
    required: Sequence[str] = (),
    numeric: Sequence[str] = (),
    gaps: bool = False,
    infinite: Sequence[str] = (),
    unbounded: Sequence[str] = (),
) -> pd.DataFrame:
    """The table as a figure can draw it: valid, not empty, and with plain numbers and none missing.

    Args:
        frame: the table.
        figure: name of the figure function, for the error.
        required: columns that must be there.
        numeric: columns that must be there and hold numbers.
        gaps: keep rows that lack a number; the figure says so itself.
        infinite: those numeric columns that may hold infinity (what never came); the figure says so itself.
        unbounded: those that may hold minus infinity too.

    Raises:
        CourseError: what is wrong, in which row and column.
    """
    validate(frame, required=required, numeric=numeric, used_by=f"figures.{figure}")
    rows = frame.assign(**{column: pd.to_numeric(frame[column]).astype("float64") for column in numeric})
    for column in numeric:
        if column not in unbounded:
            finite(rows, column, figure, never=column in infinite)
    if not gaps:
        rows = rows.dropna(subset=list(numeric))
    if rows.empty:
        raise CourseError(
            f"figures.{figure} got no row with a value to draw. Look at the table: print(frame). If requests "
            f"failed, their timelines say why: [timeline.error for timeline in timelines]."
        )
    return rows


def finite(frame: pd.DataFrame, column: str, figure: str, *, never: bool = False) -> None:
    """Raise CourseError, which names the row, if a column of numbers holds an infinite one.

    Args:
        frame: the table.
        column: the column.
        figure: name of the figure function, for the error.
        never: allow plus infinity.
    """
    for index, value in pd.to_numeric(frame[column]).items():
        if value == -math.inf or (value == math.inf and not never):
            raise CourseError(
                f"Row {index!r}, column {column!r}: {value} has no place in figures.{figure}. "
                f"Correct it, or leave the row out: frame = frame.drop(index={index!r})."
            )


# Text


def safe(text: object) -> str:
    """The text, with what the font cannot draw spelled out.

    An emoji becomes its Unicode name in brackets, another missing character its number, a line break ``↵``.
    A dollar sign stays one (matplotlib would begin a formula).
    """
    return "".join(_drawable(char) for char in str(text)).replace("$", r"\$")


def _drawable(char: str) -> str:
    if char in "\n\r":
        return "" if char == "\r" else "\u21b5"
    if char == "\t":
        return " "
    if char in "\u200d\ufe0e\ufe0f" or "\U0001f3fb" <= char <= "\U0001f3ff":  # they only change an emoji
        return ""
    if ord(char) in _characters() and unicodedata.category(char)[0] != "C":
        return char
    name = unicodedata.name(char, "").lower()
    if name and unicodedata.category(char) in ("So", "Sk"):
        return f"[{name}]"
    return f"\\u{ord(char):04x}"


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


def width_in(text: str, size: float = 8.5) -> float:
    """Width of a text in inches; it must have gone through :func:`safe`."""
    if not text.strip():
        return 0.0
    return TextPath((0, 0), text, size=size, prop=FontProperties(family=FONT)).get_extents().width / 72


def fit(text: str, room_in: float, size: float = 8.5) -> str:
    """The text, cut with an ellipsis to fit a width in inches."""
    if len(text) < 400 and width_in(text, size) <= room_in:
        return text
    lengths = range(min(len(text), 400))
    fitting = bisect_right(lengths, room_in, key=lambda length: width_in(text[:length] + "\u2026", size))
    return text[: max(fitting - 1, 0)].rstrip("\\") + "\u2026"


def wrapped(text: object, letters: int) -> str:
    """The text, made safe and broken into at most three lines."""
    return "\n".join(textwrap.wrap(safe(text), letters, max_lines=3, placeholder="\u2026")) or " "


def ms(value: float) -> str:
    """``205 ms``: one decimal below 10, thousands apart."""
    if math.isinf(value):
        return "unbounded"
    return f"{value:.1f} ms" if 0 < abs(value) < 9.95 else f"{value:,.0f} ms"


def many(count: int, one: str, more: str = "") -> str:
    """``1 chunk``, ``3 chunks``."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


# Labels that do not collide


def label_levels(
    labels: Sequence[tuple[float, float]], room_in: float, *, turned: Sequence[int] = ()
) -> list[tuple[int, bool]]:
    """Rows for labels that hang on upright lines, so that none covers another.

    Args:
        labels: (place of the line, width of its text), in inches.
        room_in: width of the panel; a text that would stick out goes to the left of its line.
        turned: numbers of labels that go to the left anyway, where there is room.

    Returns:
        For each label its row (0 is nearest to the panel) and whether its text goes to the left.
    """
    sides = [
        place + width > room_in or (i in turned and place >= width) for i, (place, width) in enumerate(labels)
    ]
    spans = [
        (place - width, place) if left else (place, place + width)
        for (place, width), left in zip(labels, sides, strict=True)
    ]
    # From right to left, so that a text passes over the lines to its right only where they are shorter. The
    # labels at the right edge, whose texts go the other way, come last or first: whichever crosses less.
    plain = sorted((i for i, left in enumerate(sides) if not left), key=lambda i: -labels[i][0])
    others = sorted((i for i, left in enumerate(sides) if left), key=lambda i: labels[i][0])
    places = [place for place, _ in labels]
    tried = [_levels(order, spans, places) for order in (plain + others, others + plain)]
    best = min(tried, key=lambda levels: (_crossed(levels, spans, places), max(levels.values(), default=0)))
    return [(best[i], left) for i, left in enumerate(sides)]


def _levels(order: list[int], spans: list[tuple[float, float]], places: list[float]) -> dict[int, int]:
    """The lowest free row for each label, in this order."""
    levels: dict[int, int] = {}
    for i in order:
        low, high = spans[i]
        level = 0
        for other, taken in sorted(levels.items(), key=lambda item: item[1]):
            covers = low < spans[other][1] and spans[other][0] < high
            if taken >= level and (covers or low < places[other] < high):
                level = taken + 1
        levels[i] = level
    return levels


def _crossed(levels: dict[int, int], spans: list[tuple[float, float]], places: list[float]) -> int:
    """How many texts have another label's line behind them."""
    return sum(
        levels[line] >= levels[text] and spans[text][0] < places[line] < spans[text][1]
        for text in levels
        for line in levels
    )


def apart(values: Sequence[float], gap: float) -> list[float]:
    """The values, moved as little as needed to be at least ``gap`` apart; their order stays."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    moved = list(values)
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


# Axes and legends


def spread_wide(values: Iterable[float]) -> bool:
    """Whether latencies differ so much that only a logarithmic axis shows them all."""
    known = np.array([value for value in values if math.isfinite(value)])
    return bool(len(known)) and bool(known.max() > 25 * max(float(np.median(known)), 0.1))


def ms_axis(axis: Any, *, log: bool = False) -> None:
    """Plain numbers on a matplotlib axis (``ax.xaxis`` or ``ax.yaxis``), linear or logarithmic."""
    if log:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=99))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def line_key(group: Group, theme: Theme, *, marker: bool = False, colour: str = "") -> Line2D:
    """Legend entry of an origin that is drawn as a line (or as points on a line)."""
    of = look(group.origin, theme)
    shape = of.marker if marker else ""
    return Line2D([], [], color=colour or of.colour, ls=of.line, marker=shape, ms=6, label=group.phrase)


def area_key(group: Group, theme: Theme) -> Patch:
    """Legend entry of an origin that is drawn as an area."""
    return Patch(**area(look(group.origin, theme), theme), label=group.phrase)


def legend_in(phrases: Iterable[str]) -> float:
    """Height in inches of a legend with one entry a phrase, for figures that place everything themselves."""
    return sum(0.06 + 0.13 * (wrapped(phrase, LEGEND_LETTERS).count("\n") + 1) for phrase in phrases)


def legend(fig: Figure, keys: Sequence[Any], **where: Any) -> None:
    """Legend below the panels: beside each other where the words fit, else one a line."""
    for key in keys:
        key.set_label(wrapped(key.get_label(), LEGEND_LETTERS))
    widest = max(max(width_in(line, 8) for line in key.get_label().split("\n")) for key in keys)
    columns = max(1, min(len(keys), int((WIDTH_IN - 0.2) // (widest + 0.6))))
    fig.legend(
        handles=list(keys), ncols=columns, handlelength=3.0, **(where or {"loc": "outside lower left"})
    )
