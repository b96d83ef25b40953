"""What can be read in a figure, for the tests of all figures."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.text import Text


def legend_of(figure: Figure) -> str:
    """All words of its legends."""
    return " ".join(text.get_text() for legend in figure.legends for text in legend.get_texts())


def texts_of(figure: Figure) -> list[str]:
    """Every text in it, labels and numbers too."""
    return [text.get_text() for text in figure.findobj(Text)]
