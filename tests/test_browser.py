"""Lesson 00 as a person meets it: JupyterLab in a real browser, Run All, look for the figure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The open notebook, as JupyterLab itself knows it: cells, cells not run yet, names of cells with an error.
STATE = """(() => {
  const cells = [...window.jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type == 'code');
  const failed = c => [...Array(c.outputs.length).keys()].some(i => c.outputs.get(i).type == 'error');
  return {
    cells: cells.length,
    open: cells.filter(c => c.executionCount === null || c.executionState == 'running').length,
    failed: cells.filter(failed).map(c => c.id),
  };
})()"""
KERNEL = "window.jupyterapp.shell.currentWidget?.context.sessionContext.session?.kernel?.status"


@pytest.fixture(scope="module")
def lab_address(live_server, tmp_path_factory) -> Iterator[str]:
    """``make lab`` without its browser, on the engine of this test run, with settings of its own: a theme
    that the test picks must not become the learner's."""
    command = [sys.executable, "-m", "helpers.lab", "--no-browser", "--LabApp.expose_app_in_browser=True"]
    own = {"JUPYTER_CONFIG_DIR": str(tmp_path_factory.mktemp("jupyter"))}
    lab = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | own
    )
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(iter(lab.stdout.readline, "")), daemon=True)
    reader.start()
    try:
        yield _wait(
            lambda: re.search(r"the lab is at (\S+)", "".join(said)), 90, lambda: "".join(said)
        ).group(1)
    finally:
        lab.terminate()
        lab.wait(60)


@pytest.fixture(scope="module")
def page(chromium, lab_address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.set_default_timeout(60_000)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(lab_address)
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        _wait(lambda: page.evaluate(KERNEL) == "idle", 90, lambda: page.evaluate(KERNEL))
        page.click('.lm-MenuBar-itemLabel:text-is("Run")')
        page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        yield page
        if pictures := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{pictures}/lesson_00.png")
        browser.close()


def _wait(ready, seconds: float, otherwise):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.25)
    raise AssertionError(f"not within {seconds} s: {otherwise()}")


def test_run_all_reaches_the_end_without_an_error(page):
    def done():
        state = page.evaluate(STATE)
        return state if state["failed"] or not state["open"] else None

    state = _wait(done, 240, lambda: page.evaluate(STATE))
    assert state["failed"] == []
    assert state["cells"] > 10
    assert page.complaints == []


def test_the_figure_is_there_and_says_what_it_shows(page):
    image = _scroll_to(page, "figure-timeline").locator("img").first
    assert image.evaluate("i => i.complete && i.naturalWidth > 100")
    assert re.search(r"TTFT.* \d+ ms", image.get_attribute("alt"))
    assert image.bounding_box()["width"] > 500


def test_the_figure_follows_the_theme(page):
    replaced = "i => getComputedStyle(i).content.startsWith('url(')"
    image = _scroll_to(page, "figure-timeline").locator("img").first
    assert not image.evaluate(replaced)
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    _wait(lambda: image.evaluate(replaced), 20, lambda: "the light picture is still shown")


def test_a_hint_opens_and_a_quiz_says_why(page):
    check = _scroll_to(page, "ex-1-check")
    check.locator("summary").first.click()
    assert check.locator("details[open]").count() == 1
    question = _scroll_to(page, "question-1")
    question.locator("input[type=radio]").nth(1).click()
    _wait(lambda: "same tokens are made" in question.inner_text(), 20, question.inner_text)


def _scroll_to(page, cell: str):
    """Cells far away are not in the page until the notebook is scrolled to them."""
    page.evaluate(
        """id => { const notebook = window.jupyterapp.shell.currentWidget.content;
        const index = [...notebook.model.cells].findIndex(cell => cell.id == id);
        notebook.activeCellIndex = index; return notebook.scrollToItem(index, 'center'); }""",
        cell,
    )
    index = page.evaluate(
        "id => [...window.jupyterapp.shell.currentWidget.content.model.cells].findIndex(c => c.id == id)",
        cell,
    )
    return page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]').last
