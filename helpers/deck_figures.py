"""The course's figures as they stand on a slide: found by the name of their exhibit, drawn without headline.

The slide's own heading takes the place of the figure's. Below the figure stands its origin in a word, for
those who cannot read the legend from where they sit.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from helpers import deck_exhibits, figures, gallery, origins, provenance
from helpers.exhibit import Exhibit
from helpers.run_file import write_whole
from helpers.settings import CourseError
from helpers.style import sized

MARKS = {"measured": "●", "recorded": "■", "published": "◆", "modelled": "▲"}  # as in the figures


@dataclass(frozen=True)
class Drawn:
    """A figure, made for a slide.

    Attributes:
        name: of its exhibit.
        alt: the figure in words.
        note: where its numbers come from, in a line.
        origins: of its numbers, in the order of :data:`helpers.origins.ORIGINS`.
        published: who said what stands in its table, see :func:`helpers.provenance.published_sources`.
        files: the files of the course that it was made from.
        width_pt: its width, in points.
        smallest_pt: its smallest letters, in points, the legend's left out.
        legend_pt: the legend's smallest letters; 0 without one.
    """

    name: str
    alt: str
    note: str
    origins: tuple[str, ...]
    published: tuple[str, ...]
    files: tuple[provenance.Source, ...]
    width_pt: float
    smallest_pt: float
    legend_pt: float

    def markup(self) -> str:
        """The figure on its slide, as HTML without an empty line."""
        badges = " ".join(badge(origin) for origin in self.origins)
        return (
            f'<img class="figure" src="figures/{self.name}.svg" alt="{html.escape(self.alt, quote=True)}" '
            f'data-width-pt="{self.width_pt:g}" data-smallest-pt="{self.smallest_pt:g}" '
            f'data-legend-pt="{self.legend_pt:g}">\n'
            f'<p class="origin">{badges} <span>lesson {self.name[:2]}, figure {self.name[3:]}</span></p>'
        )


def badge(origin: str) -> str:
    """An origin as a word with its mark, as HTML."""
    return f'<b class="{origin}">{MARKS[origin]} {origin}</b>'


def exhibits() -> dict[str, Exhibit]:
    """All exhibits of the course, and those made for slides alone, by name."""
    return {exhibit.name: exhibit for exhibit in (*gallery.exhibits(), *deck_exhibits.EXHIBITS)}


def draw(name: str, known: Mapping[str, Exhibit], folder: Path, theme: str) -> Drawn:
    """Draw a figure into ``folder`` as ``NAME.svg``.

    Args:
        name: of an exhibit.
        known: all there are, by name.
        folder: where it goes; a figure of that name there is replaced.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: there is no such exhibit.
    """
    if name not in known:
        near = [one for one in known if one[:2] == name[:2]] or list(known)
        raise CourseError(f"There is no figure {name!r}. There are: {', '.join(near)}.")
    exhibit = known[name]
    options = {key: value for key, value in exhibit.options.items() if key != "title"}
    with provenance.watching() as read:
        frame = exhibit.frame() if exhibit.frame else None
        with sized("slide"):
            figure = exhibit.draw(*(() if frame is None else (frame,)), theme=theme, **options)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.svg", figures.render(figure, theme, "svg"))
    words, legend = _letters(figure)
    return Drawn(
        name=name,
        alt=figures.alt_text(figure),
        note=getattr(figure, "note", ""),
        origins=_origins(frame, figure),
        published=tuple(provenance.published_sources(frame)),
        files=tuple(provenance.sources(read)),
        width_pt=figure.get_figwidth() * 72,
        smallest_pt=min(words, default=0.0),
        legend_pt=min(legend, default=0.0),
    )


def _letters(figure: Figure) -> tuple[list[float], list[float]]:
    """Sizes of the texts in a drawn figure, in points: outside its legends, and in them."""

    def sizes(texts: list[Text]) -> dict[int, float]:
        shown = (text for text in texts if text.get_visible() and text.get_text().strip())
        return {id(text): float(text.get_fontsize()) for text in shown}

    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    inside: dict[int, float] = {}
    for legend in legends:
        inside |= sizes(legend.findobj(Text))
    every = sizes(figure.findobj(Text))
    return [size for key, size in every.items() if key not in inside], list(inside.values())


def _origins(frame: pd.DataFrame | None, figure: Figure) -> tuple[str, ...]:
    """Which origins a figure shows: those of its table, and those that its note adds, such as a limit's."""
    said = set(re.findall(r"\w+", getattr(figure, "note", "")))
    if frame is not None and "origin" in frame.columns:
        said |= set(frame["origin"])
    return tuple(origin for origin in origins.ORIGINS if origin in said)
