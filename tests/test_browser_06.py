"""The panel of lesson 06 as a person meets it: JupyterLab in a real browser, and a slider dragged.

The notebook is made of the lesson's own two cells; they need no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from panel_lab import lab, opened, wait


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory) -> Iterator[Any]:
    with (
        lab(tmp_path_factory.mktemp("lab"), "06") as address,
        opened(chromium, address, "lesson_06_panel.png") as page,
    ):
        yield page


def _drag(page, words: str, by_px: int) -> None:
    """Take the handle of the slider with these words and let it go so many pixels further."""
    row = page.locator(".widget-slider", has=page.locator(f'.widget-label:text-is("{words}")'))
    handle = row.locator(".noUi-handle").first
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by_px / 2, y)
    page.mouse.move(x + by_px, y)
    page.mouse.up()


def _answer(page) -> str:
    """What stands below the widgets: the panel's own answer."""
    return page.locator(".widget-html").last.inner_text()


def _alt(page) -> str:
    images = page.locator(".jp-OutputArea img")
    return images.last.get_attribute("alt") if images.count() else ""


def test_the_static_answer_stands_above_the_widgets(page):
    text = page.locator(".jp-OutputArea-output").first.inner_text()
    assert "kept: P95" in text
    assert "the whole turn" in text
    assert page.locator(".widget-slider").count() == 7
    assert page.locator(".widget-dropdown").count() == 4


def test_a_dragged_slider_turns_the_line_and_the_picture(page):
    _drag(page, "wait for silence, ms", 12)
    wait(lambda: "P95" in _answer(page), 90, lambda: _answer(page))
    wait(lambda: "take longer than" in _alt(page), 90, lambda: _alt(page))
    before = _alt(page)
    _drag(page, "wait for silence, ms", 200)
    wait(lambda: "broken: P95" in _answer(page), 90, lambda: _answer(page))
    wait(lambda: _alt(page) != before, 90, lambda: _alt(page))
    assert page.complaints == []


def test_another_choice_changes_the_answer(page):
    before = _answer(page)
    page.locator(".widget-dropdown", has_text="transcription").locator("select").select_option("AWS")
    wait(lambda: _answer(page) != before and "AWS" in _answer(page), 90, lambda: _answer(page))
