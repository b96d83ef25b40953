"""The panel of lesson 06 as a person meets it: JupyterLab in a real browser, and a slider dragged.

The notebook is made of the lesson's own two cells; they need no engine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from helpers import sources
from helpers.settings import REPO

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
KERNEL = "window.jupyterapp.shell.currentWidget?.context.sessionContext.session?.kernel?.status"
TOKEN = "lesson-06"
CELLS = ("setup", "panel")


def _wait(ready, seconds: float, otherwise):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.25)
    raise AssertionError(f"not within {seconds} s: {otherwise()}")


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """A JupyterLab of its own, with the two cells in a notebook."""
    folder = tmp_path_factory.mktemp("lab")
    [path] = [path for path in sources.paths() if path.stem.startswith("06_")]
    code = {cell.name: cell.source for cell in sources.read(path)}
    cells = [
        {
            "cell_type": "code",
            "id": name,
            "metadata": {},
            "source": code[name],
            "outputs": [],
            "execution_count": None,
        }
        for name in CELLS
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}
    (folder / "panel.ipynb").write_text(json.dumps(notebook))
    own = {"JUPYTER_CONFIG_DIR": str(folder / "config"), "PYTHONPATH": str(REPO)}
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--port=0",
        "--LabApp.expose_app_in_browser=True",
    ]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}", "--allow-root"]
    lab = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | own, cwd=folder
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(iter(lab.stdout.readline, "")), daemon=True)
    reader.start()
    try:
        found = _wait(
            lambda: re.search(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab", "".join(said)),
            120,
            lambda: "".join(said),
        )
        yield f"http://127.0.0.1:{found.group(1)}/lab/tree/panel.ipynb?token={TOKEN}"
    finally:
        lab.terminate()
        lab.wait(60)


@pytest.fixture(scope="module")
def page(chromium, address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 1400})
        page.set_default_timeout(90_000)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        _wait(lambda: page.evaluate(KERNEL) == "idle", 120, lambda: page.evaluate(KERNEL))
        page.click('.lm-MenuBar-itemLabel:text-is("Run")')
        page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        page.wait_for_selector(".widget-slider .noUi-handle", timeout=180_000)
        yield page
        if pictures := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{pictures}/lesson_06_panel.png")
        browser.close()


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
    _wait(lambda: "P95" in _answer(page), 90, lambda: _answer(page))
    _wait(lambda: "take longer than" in _alt(page), 90, lambda: _alt(page))
    before = _alt(page)
    _drag(page, "wait for silence, ms", 200)
    _wait(lambda: "broken: P95" in _answer(page), 90, lambda: _answer(page))
    _wait(lambda: _alt(page) != before, 90, lambda: _alt(page))
    assert page.complaints == []


def test_another_choice_changes_the_answer(page):
    before = _answer(page)
    page.locator(".widget-dropdown", has_text="transcription").locator("select").select_option("AWS")
    _wait(lambda: _answer(page) != before and "AWS" in _answer(page), 90, lambda: _answer(page))
