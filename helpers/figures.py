"""The course's figures: each one a function from a plain table to a matplotlib Figure.

A figure function takes a pandas frame whose columns its docstring lists (``origin`` always among them, see
:mod:`helpers.origins`), draws, and returns a :class:`matplotlib.figure.Figure`. It shows nothing, saves
nothing and leaves matplotlib's settings as they were. Then

- ``show(itl, frame)`` displays it in a notebook, right in a light and in a dark theme;
- ``save(itl, frame, "gaps")`` writes SVG, PNG and the alternative text, the same bytes for the same data;
- ``alt_text(itl(frame))`` is what a reader who cannot see the figure gets.

This module holds those three and is the one to import. The figures are in ``figures_*.py``: one reply, many
requests, the course, the model and its memory, calls, their load and its limit, a GPU nobody here has. What
they share is in :mod:`helpers.drawing`, how they look in ``data/style.toml``. :mod:`helpers.gallery` makes
all of them at once.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from helpers import drawing
from helpers.figures_calls import call_timeline, little_check
from helpers.figures_capacity import capacity_cases, live_call_curves, predictions
from helpers.figures_clips import clip_gaps, tolerance, waveform
from helpers.figures_cost import call_minute, price_by_calls, tornado
from helpers.figures_cost_day import call_day, cost_by_turn, cost_by_volume
from helpers.figures_course import budget_line, course_map
from helpers.figures_hub import download_minutes, second_run
from helpers.figures_limit import percentiles_by_run, search_path
from helpers.figures_load import latency_curve, saturation
from helpers.figures_memory import cache_growth, request_memory, what_fits
from helpers.figures_model import bytes_per_step, distinct_experts, model_layers
from helpers.figures_reply import itl, stream_timeline
from helpers.figures_requests import (
    client_vs_server,
    latency_bars,
    percentile_by_samples,
    tool_comparison,
    ttft_by_prompt_length,
)
from helpers.figures_serve import startup_phases
from helpers.figures_waits import leaderboard, slow_calls, wait_distribution
from helpers.settings import WORKSPACE

__all__ = [
    "alt_text",
    "budget_line",
    "bytes_per_step",
    "cache_growth",
    "call_day",
    "call_minute",
    "call_timeline",
    "capacity_cases",
    "client_vs_server",
    "clip_gaps",
    "cost_by_turn",
    "cost_by_volume",
    "course_map",
    "distinct_experts",
    "download_minutes",
    "itl",
    "latency_bars",
    "latency_curve",
    "leaderboard",
    "little_check",
    "live_call_curves",
    "model_layers",
    "percentile_by_samples",
    "percentiles_by_run",
    "predictions",
    "price_by_calls",
    "render",
    "request_memory",
    "saturation",
    "save",
    "search_path",
    "second_run",
    "show",
    "slow_calls",
    "startup_phases",
    "stream_timeline",
    "tolerance",
    "tool_comparison",
    "tornado",
    "ttft_by_prompt_length",
    "wait_distribution",
    "waveform",
    "what_fits",
]


def alt_text(figure: Figure) -> str:
    """The figure in words, with the numbers it shows: for ``<img alt="...">``."""
    # Half an emoji, as a broken stream can leave one in a label, cannot be written to a file.
    return getattr(figure, "alt", "").encode("utf-8", "backslashreplace").decode("utf-8")


def show(
    figure_function: Callable[..., Figure], frame: pd.DataFrame | None = None, **options: object
) -> None:
    """Display a figure in a notebook so that it looks right in JupyterLab's light and dark theme.

    The image is the light one; a style rule swaps in the dark one where the page says that it is dark
    (JupyterLab, VS Code). Where style rules are dropped (GitHub) or the page says nothing (nbconvert), the
    light one stays.

    Args:
        figure_function: one of this module's figures, such as :func:`itl`.
        frame: its table; none for :func:`course_map`.
        options: passed on to it.
    """
    from IPython.display import display  # here, so that a script can save figures without IPython

    given = () if frame is None else (frame,)
    light = figure_function(*given, theme="light", **options)
    dark = figure_function(*given, theme="dark", **options)
    images = [render(light, "light", "svg"), render(dark, "dark", "svg")]
    light_uri, dark_uri = (
        f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}" for image in images
    )
    # The rule must reach this image only. The name comes from the picture, so it is the same in every run.
    name = f"figure-{zlib.crc32(images[0]):08x}"
    dark_pages = ('body[data-jp-theme-light="false"]', "body.vscode-dark", "body.vscode-high-contrast")
    rule = ", ".join(f"{page} img.{name}" for page in dark_pages)
    page = (
        f'<style>{rule} {{ content: url("{dark_uri}"); }}</style>'
        f'<img class="{name}" alt="{html.escape(alt_text(light))}" src="{light_uri}" '
        f'style="width: 100%; max-width: 860px; height: auto;">'
    )
    display({"text/html": page, "text/plain": alt_text(light)}, raw=True)


def save(
    figure_function: Callable[..., Figure],
    frame: pd.DataFrame | None,
    stem: str | Path,
    *,
    theme: str = "light",
    size: str = "column",
    **options: object,
) -> tuple[Path, Path, Path]:
    """Write ``<stem>.svg``, ``.png`` and ``.alt.txt``, the same bytes each time for the same data.

    Args:
        figure_function: one of this module's figures, such as :func:`itl`.
        frame: its table; None for :func:`course_map`.
        stem: path without an ending. A relative one is taken from ``workspace/figures/``. Files of that name
            are replaced.
        theme: ``light`` or ``dark``.
        size: ``column`` (of a blog) or ``slide``, see :func:`helpers.style.sized`.
        options: passed on to the figure function.

    Returns:
        The three paths. The text file holds the alternative text, an empty line and the origins note.
    """
    with drawing.sized(size):
        figure = figure_function(*(() if frame is None else (frame,)), theme=theme, **options)
    base = WORKSPACE / "figures" / stem  # an absolute stem wins over the folder
    base.parent.mkdir(parents=True, exist_ok=True)
    svg, png, text = (base.with_name(base.name + ending) for ending in (".svg", ".png", ".alt.txt"))
    svg.write_bytes(render(figure, theme, "svg"))
    png.write_bytes(render(figure, theme, "png"))
    words = "\n\n".join(filter(None, (alt_text(figure), getattr(figure, "note", ""))))
    text.write_text(words + "\n", encoding="utf-8", newline="\n")
    return svg, png, text


def render(figure: Figure, theme: str, file_format: str) -> bytes:
    """The bytes of an image file of it, the same each time for the same figure.

    Args:
        figure: what a figure function gave.
        theme: the one it was drawn in.
        file_format: ``svg`` or ``png`` (200 dots per inch).
    """
    # Date and program differ between two runs and two machines; the picture does not.
    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[file_format]
    buffer = BytesIO()
    with drawing.style(theme):
        figure.savefig(buffer, format=file_format, dpi=200, metadata=metadata)
    return buffer.getvalue()
