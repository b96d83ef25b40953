"""What can be wrong with a figure to the eye, found by a program: clipped, colliding, small or pale text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from helpers import drawing

TEXT_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
DPI = 100


@dataclass(frozen=True)
class Word:
    """A text as it stands in a drawn figure: what it says, its size, place in px, colour and ground."""

    says: str
    points: float
    box: Bbox
    colour: str
    ground: str

    @property
    def contrast(self) -> float:
        return drawing.contrast(self.colour, self.ground)


def words(figure: Figure, theme: str) -> list[Word]:
    """Every visible text of a figure. What lies behind it is looked up in the picture without the texts."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    with drawing.style(theme):
        canvas.draw()
        renderer = canvas.get_renderer()
        left_out = _ticks_out_of_view(figure)
        shown = [text for text in figure.findobj(Text) if text not in left_out and _shows(text)]
        boxes = [text.get_window_extent(renderer) for text in shown]
        figure.set_layout_engine("none")
        for text in shown:
            text.set_visible(False)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        for text in shown:
            text.set_visible(True)
    return [
        Word(
            text.get_text(),
            float(text.get_fontsize()),
            box,
            to_hex(text.get_color()),
            _ground(text, box, pixels),
        )
        for text, box in zip(shown, boxes, strict=True)
    ]


def _ticks_out_of_view(figure: Figure) -> set[Text]:
    """Labels that matplotlib keeps and does not draw."""
    found: set[Text] = set()
    for axes in figure.findobj(lambda artist: hasattr(artist, "get_xaxis")):  # secondary axes, too
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            room = 1e-9 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - room <= tick.get_loc() <= high + room:
                    found |= {tick.label1, tick.label2}
    return found


def _shows(text: Text) -> bool:
    if not text.get_text().strip() or not text.get_visible():
        return False
    parts = [text.axes, *([] if text.axes is None else [text.axes.xaxis, text.axes.yaxis])]
    if any(part is not None and not part.get_visible() for part in parts):
        return False
    return text.axes is None or text.axes.axison or text in text.axes.texts


def _ground(text: Text, box: Bbox, pixels: np.ndarray) -> str:
    patch = text.get_bbox_patch()
    if patch is not None and to_rgba(patch.get_facecolor())[3] > 0.99:
        return to_hex(patch.get_facecolor())
    high = pixels.shape[0]
    part = pixels[
        max(int(high - box.y1), 0) : int(high - box.y0) + 1, max(int(box.x0), 0) : int(box.x1) + 1
    ].reshape(-1, 3)
    if not len(part):
        return to_hex(text.figure.get_facecolor())
    found, counts = np.unique(part, axis=0, return_counts=True)
    return to_hex(found[counts.argmax()] / 255)


def clipped(found: list[Word], figure: Figure) -> list[str]:
    """Texts that stick out of the picture by more than a pixel."""
    wide, high = figure.get_size_inches() * DPI
    return [
        one.says
        for one in found
        if one.box.x0 < -1 or one.box.y0 < -1 or one.box.x1 > wide + 1 or one.box.y1 > high + 1
    ]


def colliding(found: list[Word]) -> list[tuple[str, str]]:
    """Pairs of texts of which one covers an eighth of the other, or more."""
    pairs = []
    for one, other in combinations(found, 2):
        both = Bbox.intersection(one.box, other.box)
        if both is None:
            continue
        smaller = min(box.width * box.height for box in (one.box, other.box))
        if smaller > 0 and both.width * both.height > smaller / 8:
            pairs.append((one.says, other.says))
    return pairs


def pale(found: list[Word]) -> list[tuple[str, float]]:
    """Texts that stand out too little from what is behind them, with their contrast."""
    return [(one.says, round(one.contrast, 2)) for one in found if one.contrast < TEXT_CONTRAST]
