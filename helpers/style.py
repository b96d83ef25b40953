"""The style of all figures, read from one file: ``data/style.toml``.

Colours of two themes, sizes, and how each origin is drawn. What a mark means, everywhere: its *origin* is the
shape of a point, the style of a line, the pattern of an area; a *series* (cold or cached, one reply or
another) has its name written next to it. Colour repeats one of the two and never stands alone, so that a
black-and-white print says the same.

To draw a figure of your own in it::

    with style.style("light"):
        ...                       # plain matplotlib
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import matplotlib.style

from helpers.origins import ORIGINS
from helpers.settings import DATA, CourseError

FILE = DATA / "style.toml"


@dataclass(frozen=True)
class Theme:
    """Colours of one theme: ``paper`` to draw on, ``ink``, ``muted`` and ``faint`` for what is no data, and
    four hues."""

    paper: str
    ink: str
    muted: str
    faint: str
    blue: str
    orange: str
    green: str
    purple: str


@dataclass(frozen=True)
class Look:
    """How one origin is drawn: shape of its points, style of its lines, pattern of its areas."""

    colour: str
    marker: str
    line: str
    hatch: str | None


@dataclass(frozen=True)
class Size:
    """How large a figure is drawn: its width, and how tall it may be (None: as tall as it needs)."""

    width_in: float
    tallest_in: float | None = None


def _read() -> dict[str, Any]:
    try:
        with FILE.open("rb") as file:
            found = tomllib.load(file)
        missing = [name for name in ORIGINS if name not in found["origins"]]
        if missing:
            raise ValueError(f"it has no [origins.{missing[0]}]")
        return found
    except (OSError, ValueError, KeyError) as error:
        raise CourseError(
            f"The style of the figures cannot be read ({error}).\nType: git checkout -- data/{FILE.name}"
        ) from error


_STYLE = _read()
_TEXT = _STYLE["text"]
THEMES = {name: Theme(**colours) for name, colours in _STYLE["themes"].items()}
SIZES = {name: Size(**of) for name, of in _STYLE["sizes"].items()}
WIDTH_IN = SIZES["column"].width_in
FONT: str = _TEXT["font"]
TEXT_PT: float = _TEXT["size_pt"]
TITLE_PT: float = _TEXT["title_pt"]
LEGEND_PT: float = _TEXT["legend_pt"]

_size: ContextVar[str] = ContextVar("size", default="column")


def theme(name: str) -> Theme:
    """The colours of a theme.

    Raises:
        CourseError: there is no such theme.
    """
    if name not in THEMES:
        listed = " or ".join(f"theme={known!r}" for known in THEMES)
        raise CourseError(f"There is no theme {name!r}. Type {listed}.")
    return THEMES[name]


def look(origin: str, of: Theme) -> Look:
    """The look of an origin, the same in every figure."""
    drawn = _STYLE["origins"][origin]
    return Look(getattr(of, drawn["colour"]), drawn["marker"], drawn["line"], drawn["hatch"] or None)


def style(name: str) -> AbstractContextManager[None]:
    """A ``with`` block in which matplotlib draws in this theme, whatever the user's own settings are.

    Raises:
        CourseError: there is no such theme.
    """
    of = theme(name)
    settings = {
        "font.family": FONT,
        "font.size": TEXT_PT,
        "axes.titlesize": TITLE_PT,
        "axes.labelsize": TEXT_PT,
        "legend.fontsize": LEGEND_PT,
        **_STYLE["matplotlib"],
        **{key: getattr(of, colour) for key, colour in _STYLE["matplotlib_colours"].items()},
    }
    return matplotlib.style.context(settings, after_reset=True)


@contextmanager
def sized(name: str) -> Iterator[Size]:
    """A ``with`` block in which figures are drawn for this size: ``column`` (the default) or ``slide``.

    Raises:
        CourseError: there is no such size.
    """
    if name not in SIZES:
        raise CourseError(f"There is no size {name!r}. There are: {', '.join(SIZES)}.")
    before = _size.set(name)
    try:
        yield SIZES[name]
    finally:
        _size.reset(before)


def size() -> Size:
    """The size that figures are drawn for now, see :func:`sized`."""
    return SIZES[_size.get()]
