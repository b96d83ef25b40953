"""The panel of lesson 08 as a person meets it: JupyterLab in a real browser, prices typed and chosen.

The notebook is made of two of the lesson's own cells; they need no engine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import sources
from helpers.settings import REPO

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
KERNEL = "window.jupyterapp.shell.currentWidget?.context.sessionContext.session?.kernel?.status"
TOKEN = "lesson-08"


def wait(ready: Callable[[], Any], seconds: float, otherwise: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.25)
    raise AssertionError(f"not within {seconds} s: {otherwise()}")


def write_notebook(path: Path) -> None:
    """The lesson's setup and its panel."""
    [lesson] = [source for source in sources.paths() if source.stem.startswith("08_")]
    code = {cell.name: cell.source for cell in sources.read(lesson)}
    rest = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{"id": name, "source": code[name]} | rest for name in ("setup", "panel")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}))


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """A JupyterLab of its own."""
    folder = tmp_path_factory.mktemp("lab")
    write_notebook(folder / "panel.ipynb")
    own = {"JUPYTER_CONFIG_DIR": str(folder / "config"), "PYTHONPATH": str(REPO)}
    own |= {"PHONELLM_WORKSPACE": str(folder / "workspace")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--allow-root"]
    command += ["--LabApp.expose_app_in_browser=True", f"--IdentityProvider.token={TOKEN}"]
    command += [f"--ServerApp.root_dir={folder}"]
    lab = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | own, cwd=folder
    )
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(iter(lab.stdout.readline, "")), daemon=True).start()
    place = re.compile(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab")
    try:
        found = wait(lambda: place.search("".join(said)), 120, lambda: "".join(said))
        yield f"http://127.0.0.1:{found.group(1)}/lab/tree/panel.ipynb?token={TOKEN}"
    finally:
        lab.terminate()
        lab.wait(60)


@pytest.fixture(scope="module")
def page(chromium, address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 1500})
        page.set_default_timeout(90_000)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        wait(lambda: page.evaluate(KERNEL) == "idle", 120, lambda: page.evaluate(KERNEL))
        page.click('.lm-MenuBar-itemLabel:text-is("Run")')
        page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        page.wait_for_selector(".widget-slider .noUi-handle", timeout=180_000)
        yield page
        if pictures := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{pictures}/lesson_08_panel.png")
        browser.close()


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
