"""The figures' colours: readable on their paper, and nothing is said by colour alone.

Colour blindness is simulated with the matrices of Machado, Oliveira and Fernandes, "A Physiologically-based
Model for Simulation of Color Vision Deficiency", IEEE Transactions on Visualization and Computer Graphics 15
(2009), for a severity of 1.0; they act on linear RGB.
"""

from __future__ import annotations

import tomllib
from itertools import combinations

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from helpers import drawing, style
from helpers.origins import ORIGINS
from helpers.settings import CourseError

VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
GREY = np.array([0.2126, 0.7152, 0.0722])
HUES = ("blue", "orange", "green", "purple")
APART = 12.0  # CIE Lab; about five times a just noticeable difference
THEMES = sorted(drawing.THEMES)


def linear(colour: str) -> np.ndarray:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a linear sRGB colour, white point D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / (to_xyz @ np.ones(3))
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one: str, other: str, vision: str) -> float:
    seen = [lab(VISIONS[vision] @ linear(colour)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def looks(theme: str) -> dict[str, style.Look]:
    return {origin: drawing.look(origin, drawing.THEMES[theme]) for origin in ORIGINS}


def test_the_simulation_is_sound():
    """Each kind of blindness keeps greys, and confuses colours that it is known to confuse."""
    for matrix in VISIONS.values():
        np.testing.assert_allclose(matrix @ np.ones(3), np.ones(3), atol=1e-5)
    assert difference("#ff0000", "#00ff00", "normal") > 150
    for vision, one, other in (
        ("deuteranopia", "#b07a00", "#7f8f00"),
        ("protanopia", "#5a5a00", "#a53c00"),
        ("tritanopia", "#0080a0", "#008a70"),
    ):
        assert difference(one, other, vision) < 0.6 * difference(one, other, "normal")


def test_lab_of_known_colours():
    np.testing.assert_allclose(lab(linear("#ffffff")), [100, 0, 0], atol=0.1)
    np.testing.assert_allclose(lab(linear("#ff0000")), [53.2, 80.1, 67.2], atol=0.3)


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_from_paper(theme):
    of = drawing.THEMES[theme]
    assert drawing.contrast(of.ink, of.paper) >= 7
    assert drawing.contrast(of.muted, of.paper) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("hue", HUES)
def test_lines_and_marks_stand_out_from_paper(theme, hue):
    of = drawing.THEMES[theme]
    assert drawing.contrast(getattr(of, hue), of.paper) >= 3  # WCAG 2.2, 1.4.11


def test_contrast_of_known_pairs():
    assert drawing.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert drawing.contrast("#ffffff", "#ffffff") == pytest.approx(1)
    assert drawing.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", THEMES)
def test_the_origins_colours_differ_to_every_eye(theme, vision):
    for (one, a), (other, b) in combinations(looks(theme).items(), 2):
        assert difference(a.colour, b.colour, vision) >= APART, f"{one} and {other}"


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", THEMES)
def test_the_hues_of_series_differ_to_every_eye(theme, vision):
    of = drawing.THEMES[theme]
    for one, other in combinations(HUES, 2):
        assert difference(getattr(of, one), getattr(of, other), vision) >= APART, f"{one} and {other}"


# In black and white


def grey(figure) -> np.ndarray:
    figure.set_dpi(200)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255 @ GREY


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    """How alike two grey patterns are, wherever they begin: 1 for the same, 0 for none in common."""
    if max(one.std(), other.std()) < 0.01:
        return float(1 - abs(one.mean() - other.mean()))
    spectra = [np.abs(np.fft.fftn(part - part.mean())) for part in (one, other)]
    norms = [np.linalg.norm(spectrum) for spectrum in spectra]
    if min(norms) == 0:
        return 0.0
    return float((spectra[0] * spectra[1]).sum() / (norms[0] * norms[1]))


def patterns(theme: str, kind: str) -> dict[str, np.ndarray]:
    """A grey picture of each origin, as a bar, a line or a point."""
    with drawing.canvas(theme, 3.0, layout=None) as (fig, colours):
        ax = fig.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, 7.2), ylim=(0, 4))
        ax.axis("off")
        for y, origin in enumerate(ORIGINS):
            of = drawing.look(origin, colours)
            if kind == "area":
                ax.barh(y + 0.5, 7.0, 0.8, left=0.1, **drawing.area(of, colours))
            elif kind == "line":
                ax.plot([0.1, 7.1], [y + 0.5] * 2, color=colours.ink, ls=of.line, lw=2)
            else:
                ax.plot(3.6, y + 0.5, marker=of.marker, ms=20, color=colours.ink)
        picture = grey(fig)[::-1]  # row 0 is the lowest
    step = picture.shape[0] // 4
    rows = {"area": (0.3, 0.7), "line": (0.49, 0.51), "point": (0.2, 0.8)}[kind]
    cut = (
        slice(100, -100) if kind != "point" else slice(picture.shape[1] // 2 - 50, picture.shape[1] // 2 + 50)
    )
    return {
        origin: picture[int((y + rows[0]) * step) : int((y + rows[1]) * step) + 1, cut]
        for y, origin in enumerate(ORIGINS)
    }


@pytest.mark.parametrize("kind", ["area", "line", "point"])
@pytest.mark.parametrize("theme", THEMES)
def test_the_origins_differ_in_black_and_white(theme, kind):
    drawn = patterns(theme, kind)
    for one, other in combinations(ORIGINS, 2):
        assert likeness(drawn[one], drawn[other]) < 0.93, f"{one} and {other}"


def test_patterns_that_are_the_same_are_found_to_be():
    bars = patterns("light", "area")
    assert likeness(bars["recorded"], np.roll(bars["recorded"], 17, axis=1)) > 0.97


# One file


def test_the_style_is_in_one_file():
    """No figure module names a colour of its own, or a marker's meaning."""
    for path in sorted((style.FILE.parents[1] / "helpers").glob("figures*.py")):
        assert "#" not in "".join(
            line.split("  # ")[0]
            for line in path.read_text().splitlines()
            if not line.lstrip().startswith("#")
        ), f"{path.name}: colours stand in data/{style.FILE.name}"


def test_every_setting_is_one_of_matplotlibs():
    kept = tomllib.loads(style.FILE.read_text(encoding="utf-8"))
    for name in (*kept["matplotlib"], *kept["matplotlib_colours"]):
        assert name in matplotlib.rcParams


def test_every_colour_of_the_file_is_one():
    for theme in drawing.THEMES.values():
        for colour in vars(theme).values():
            to_rgb(colour)


def test_a_size_that_is_none_is_named():
    with pytest.raises(CourseError, match="There is no size 'poster'"), style.sized("poster"):
        pass


def test_a_size_ends_with_its_block():
    with style.sized("slide") as slide:
        assert style.size() == slide
    assert style.size() == style.SIZES["column"]


@pytest.mark.parametrize("theme", THEMES)
def test_letters_on_an_area_are_readable(theme):
    of = drawing.THEMES[theme]
    for hue in (*HUES, "paper"):
        fill = getattr(of, hue)
        assert drawing.contrast(drawing.readable_on(fill, of), fill) >= 4.45
