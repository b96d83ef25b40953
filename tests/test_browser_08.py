"""The panel of lesson 08 as a person meets it: JupyterLab in a real browser, prices typed and chosen.

The notebook is made of two of the lesson's own cells; they need no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from panel_lab import lab, opened, wait


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory) -> Iterator[Any]:
    with (
        lab(tmp_path_factory.mktemp("lab"), "08") as address,
        opened(chromium, address, "lesson_08_panel.png") as page,
    ):
        yield page


def answer(page) -> str:
    """The panel's own answer, below the widgets."""
    return page.locator(".widget-html").last.inner_text()


def alt(page) -> str:
    images = page.locator(".jp-OutputArea img")
    return images.last.get_attribute("alt") if images.count() else ""


def fill(page, words: str, value: str) -> None:
    field = page.locator(".widget-text", has=page.locator(f'.widget-label:text-is("{words}")')).locator(
        "input"
    )
    field.fill(value)
    field.press("Enter")


def says(page, words: str) -> None:
    wait(lambda: words in answer(page), 90, lambda: answer(page))


def test_the_static_answer_stands_above_the_widgets(page):
    text = page.locator(".jp-OutputArea-output").first.inner_text()
    assert "88 live calls, modelled" in text
    assert "0.00254 USD" in text
    assert page.locator(".widget-slider").count() == 2
    assert page.locator(".widget-dropdown").count() == 5


def test_typed_numbers_change_the_answer_and_the_picture(page):
    fill(page, "live calls on one GPU", "44")
    says(page, "0.00507 USD")
    wait(lambda: "your model: 0.0309 USD" in alt(page), 90, lambda: alt(page))
    fill(page, "region factor", "1")
    says(page, "0.00338 USD")
    assert page.complaints == []


def test_another_gpu_and_another_voice_are_chosen(page):
    page.locator(".widget-dropdown", has_text="begin with").locator("select").select_option(
        label="L40S, Modal, serverless, 1.95 USD"
    )
    says(page, "0.00106 USD")
    before = answer(page)
    voices = page.locator(".widget-dropdown", has_text="text to speech").locator("select")
    voices.select_option(label="ElevenLabs Flash v2.5, 50 USD per million characters")
    wait(lambda: answer(page) != before, 90, lambda: answer(page))
    wait(lambda: "text to speech 0.01800" in alt(page), 90, lambda: alt(page))


def test_what_makes_no_sense_is_said_in_the_panel_and_goes_away(page):
    fill(page, "live calls on one GPU", "0")
    says(page, "live_calls=0.0")
    fill(page, "live calls on one GPU", "88")
    wait(lambda: "live_calls" not in answer(page), 90, lambda: answer(page))
    assert page.complaints == []
