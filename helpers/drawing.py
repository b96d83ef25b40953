"""What the figures share: a canvas in the course's style, text that always prints, labels that keep apart.

Colours, sizes and the look of each origin come from :mod:`helpers.style`, which reads ``data/style.toml``.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from helpers import published
from helpers.origins import Group, validate
from helpers.settings import CourseError
from helpers.style import (
    FONT,
    LEGEND_PT,
    TEXT_PT,
    THEMES,
    TITLE_PT,
    WIDTH_IN,
    Look,
    Theme,
    look,
    size,
    sized,
    style,
)

__all__ = [
    "FONT",
    "LIMIT_LINE",
    "THEMES",
    "TITLE_IN",
    "WIDTH_IN",
    "CourseFigure",
    "Look",
    "Theme",
    "apart",
    "area",
    "area_key",
    "canvas",
    "checked",
    "contrast",
    "finite",
    "fit",
    "label_levels",
    "legend",
    "legend_in",
    "limit_from",
    "limit_key",
    "limit_or_ceiling",
    "line_key",
    "look",
    "many",
    "ms",
    "ms_axis",
    "readable_on",
    "safe",
    "sized",
    "spread_wide",
    "style",
    "tint",
    "width_in",
    "wrapped",
    "wrapped_in",
]

TITLE_IN = 0.32  # height of a headline
KEY_IN = 0.62  # width of a legend entry beside its words: its mark, and the gap to the next
CEILING = "card.ttfat_ceiling"
LIMITS = (CEILING, "card.limit")
LIMIT_LINE = {"lw": 1.0, "ls": (0, (1, 1.5))}


def area(of: Look, theme: Theme) -> dict[str, Any]:
    """Keyword arguments that give a bar the look of its origin."""
    face = theme.paper if of.hatch else of.colour
    return {"facecolor": face, "edgecolor": of.colour, "hatch": of.hatch, "linewidth": 1.0}


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, from 1 (none) to 21 (black on white).

    Text needs 4.5, anything else that has to be seen 3. Source: W3C, Web Content Accessibility Guidelines
    2.2, "contrast ratio" and "relative luminance" (2023-10-05).
    """

    def luminance(colour: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def readable_on(fill: str, theme: Theme) -> str:
    """Ink or paper, whichever is read better on an area of this colour."""
    return max((theme.ink, theme.paper), key=lambda colour: contrast(colour, fill))


def tint(colour: str, theme: Theme, share: float) -> str:
    """A colour mixed with paper: ``share`` 1 is the colour itself, 0 is paper."""
    mixed = share * np.array(to_rgb(colour)) + (1 - share) * np.array(to_rgb(theme.paper))
    return to_hex(mixed)


class CourseFigure(Figure):
    """A matplotlib Figure that can say in words what it shows.

    Attributes:
        alt: the alternative text.
        note: one line on where its numbers come from.
    """

    alt: str = ""
    note: str = ""


@contextmanager
def canvas(
    theme: str,
    height_in: float,
    title: str = "",
    *,
    layout: str | None = "constrained",
    shrinks: bool = True,
) -> Iterator[tuple[CourseFigure, Theme]]:
    """An empty figure and the theme to draw it with, while :func:`helpers.style.style` is in force.

    Args:
        theme: ``light`` or ``dark``.
        height_in: its height in inches; a headline adds :data:`TITLE_IN`. For a slide
            (:func:`helpers.style.sized`) it may come out less tall, where matplotlib makes the layout.
        title: headline.
        layout: ``constrained`` lets matplotlib make room for labels; None where the caller places everything.
        shrinks: False for a figure that cannot be read any less tall.
    """
    height_in += TITLE_IN if title else 0.0
    if layout and shrinks and (tallest_in := size().tallest_in):
        height_in = min(height_in, tallest_in)
    with style(theme):
        fig = CourseFigure(figsize=(WIDTH_IN, height_in), layout=layout)
        if title:
            place = {} if layout else {"y": 1 - 0.09 / height_in, "va": "top"}
            fig.suptitle(safe(title), x=0.01, ha="left", size=TITLE_PT, weight="bold", **place)
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


def width_in(text: str, size: float = TEXT_PT) -> float:
    """Width of a text in inches, as it is set, letter by letter; it must have gone through :func:`safe`."""
    return sum(map(_advance, text.replace(r"\$", "$").strip())) * size / 72


@lru_cache(maxsize=4096)
def _advance(char: str) -> float:
    """How far a letter moves the next one, in letter sizes."""
    font = get_font(findfont(FONT))
    font.set_size(100, 72)
    return font.load_char(ord(char), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / 100


def fit(text: str, room_in: float, size: float = TEXT_PT) -> str:
    """The text, cut with an ellipsis to fit a width in inches."""
    if len(text) < 400 and width_in(text, size) <= room_in:
        return text
    lengths = range(min(len(text), 400))
    fitting = bisect_right(lengths, room_in, key=lambda length: width_in(text[:length] + "\u2026", size))
    return text[: max(fitting - 1, 0)].rstrip("\\") + "\u2026"


def wrapped(text: object, letters: int) -> str:
    """The text, made safe and broken into at most three lines."""
    return "\n".join(textwrap.wrap(safe(text), letters, max_lines=3, placeholder="\u2026")) or " "


def wrapped_in(text: object, room_in: float, size: float = TEXT_PT) -> str:
    """The text, made safe and broken into at most three lines of a width in inches."""
    lines: list[str] = []
    for word in safe(text).split():
        if lines and width_in(f"{lines[-1]} {word}", size) <= room_in:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    kept = [*lines[:2], " ".join(lines[2:])] if len(lines) > 3 else lines
    return "\n".join(fit(line, room_in, size) for line in kept)


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
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}")
    )


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
    return sum(0.06 + 0.13 * (_legend_words(phrase).count("\n") + 1) for phrase in phrases)


def _legend_words(phrase: object) -> str:
    return wrapped_in(phrase, WIDTH_IN - 0.1 - KEY_IN, LEGEND_PT) or " "


def legend(fig: Figure, keys: Sequence[Any], **where: Any) -> None:
    """Legend below the panels: in as few rows as the words allow."""
    for key in keys:
        key.set_label(_legend_words(key.get_label()))
    widths = [max(width_in(line, LEGEND_PT) for line in key.get_label().split("\n")) + KEY_IN for key in keys]
    # As matplotlib fills them: column by column, each as wide as its widest entry.
    columns = next(
        (
            count
            for count in range(len(keys), 1, -1)
            if sum(max(part) for part in np.array_split(widths, count)) <= WIDTH_IN - 0.2
        ),
        1,
    )
    fig.legend(
        handles=list(keys), ncols=columns, handlelength=3.0, **(where or {"loc": "outside lower left"})
    )


# Limits


def limit_or_ceiling(limit_ms: float | None) -> float:
    """The limit given, or without one the ceiling for TTFAT that the makers of PhoneLLM name."""
    return published.value(CEILING) if limit_ms is None else float(limit_ms)


def limit_from(limit_ms: float) -> str:
    """Where a limit is from: ``limit 600 ms, published: model card, 2026-08``; or that it was chosen."""
    for row in published.table(*LIMITS).to_dict("records"):
        if row["value"] == limit_ms:
            return f"limit {ms(limit_ms)}, {row['origin']}: {row['source']}, {row['date']}"
    return f"limit {ms(limit_ms)}, as it was asked for"


def limit_key(limit_ms: float, theme: Theme, **line: Any) -> Line2D:
    """Legend entry of a limit that is drawn in ink, as :data:`LIMIT_LINE` or as ``line`` says."""
    return Line2D([], [], color=theme.ink, label=limit_from(limit_ms), **(line or LIMIT_LINE))
