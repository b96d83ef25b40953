"""The rating panel as a listener meets it: in JupyterLab, in a real browser, clip by clip.

The lesson needs no server, so this lab runs alone: settings, workspace and lessons in a folder of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from panel_lab import wait

from helpers import clips, telephone
from helpers.settings import REPO

LESSON = "01_why_1500_ms.ipynb"
TOKEN = "a-listener"
FLAGS = ["--no-sandbox", "--disable-gpu", "--mute-audio", "--no-first-run", "--disable-background-networking"]
SHELL = "window.jupyterapp.shell.currentWidget"
GAPS = clips.gaps()["gap_ms"].to_list()
# Numbers that would give a gap away, however they are written.
TOLD = re.compile("|".join(rf"{gap:.0f}|{gap:,.0f}|{gap / 1000:g} s" for gap in GAPS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("lab")
    shutil.copy(REPO / "notebooks" / LESSON, made / LESSON)
    return made


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory) -> Iterator[str]:
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    own = {name: str(tmp_path_factory.mktemp("jupyter")) for name in names}
    own |= {"PHONELLM_WORKSPACE": str(folder / "workspace"), "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.root_dir={folder}"]
    command += ["--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--IdentityProvider.token={TOKEN}"]
    command += [
        "--LabApp.news_url=None",
        "--LabApp.expose_app_in_browser=True",
        "--ServerApp.allow_root=True",
    ]
    lab = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | own, cwd=folder
    )
    runtime = Path(own["JUPYTER_RUNTIME_DIR"])

    def found() -> str | None:
        for path in runtime.glob("jpserver-*.json"):
            about = json.loads(path.read_text() or "{}")
            if about.get("pid") == lab.pid:
                return f"{about['url']}lab/tree/{LESSON}?token={TOKEN}"
        return None

    try:
        yield wait(found, 120, lambda: "the lab did not start")
    finally:
        lab.terminate()
        lab.wait(60)


@pytest.fixture(scope="module")
def page(chromium, address):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1366, "height": 900})
        page.set_default_timeout(90_000)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        kernel = f"{SHELL}?.context.sessionContext.session?.kernel?.status"
        wait(lambda: page.evaluate(kernel) == "idle", 120, lambda: page.evaluate(kernel))
        yield page
        if pictures := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{pictures}/lesson_01.png")
        browser.close()


def index_of(page, cell: str) -> int:
    return page.evaluate(f"id => [...{SHELL}.content.model.cells].findIndex(cell => cell.id == id)", cell)


STATE = """number => { const cell = window.jupyterapp.shell.currentWidget.content.model.cells.get(number);
    const found = [...Array(cell.outputs.length).keys()].map(i => cell.outputs.get(i));
    return { ran: cell.executionCount !== null && cell.executionState != 'running',
             failed: found.filter(out => out.type == 'error').map(out => JSON.stringify(out.toJSON())) }; }"""


def run(page, cell: str) -> None:
    """Run this cell, and wait until it is done without an error."""
    number = index_of(page, cell)
    page.evaluate(
        f"""async number => {{ const notebook = {SHELL}.content; notebook.activeCellIndex = number;
        notebook.deselectAll(); await window.jupyterapp.commands.execute('notebook:run-cell'); }}""",
        number,
    )

    def state() -> dict[str, Any]:
        return page.evaluate(STATE, number)

    wait(lambda: state()["ran"], 120, state)
    assert state()["failed"] == []


def cell_of(page, name: str):
    number = index_of(page, name)
    page.evaluate(f"number => {SHELL}.content.scrollToItem(number, 'start')", number)
    return page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{number}"]').last


def panel_of(page):
    return cell_of(page, "rate")


def shown(panel) -> str:
    return panel.inner_text()


def heard(page, panel) -> dict[str, Any]:
    """Play the clip for a moment, then take its sound out of the page."""
    return panel.locator("audio").first.evaluate(
        """async audio => {
        if (audio.readyState < 1) await new Promise(ready => audio.addEventListener('loadedmetadata', ready));
        await audio.play(); await new Promise(later => setTimeout(later, 300));
        const at = audio.currentTime; audio.pause();
        const bytes = new Uint8Array(await (await fetch(audio.src)).arrayBuffer());
        return {at: at, seconds: audio.duration, controls: audio.controls, bytes: Array.from(bytes)}; }"""
    )


def test_all_clips_are_rated_blind_and_the_verdict_comes_at_the_end(page, folder):
    run(page, "setup")
    run(page, "rate")
    panel = panel_of(page)
    panel.get_by_role("button", name="Begin: each clip once").click()
    lengths, gaps = set(), []
    for number in range(1, len(GAPS) + 1):
        wait(lambda n=number: f"Clip {n} of {len(GAPS)}" in shown(panel), 30, lambda: shown(panel))
        assert not TOLD.search(shown(panel))
        assert panel.locator("img").count() == 0
        clip = heard(page, panel)
        assert clip["at"] > 0
        assert clip["controls"]
        lengths.add(round(clip["seconds"], 3))
        gaps.append(clips.measure(telephone.read_wav(bytes(clip["bytes"]))[0]).gap_ms)
        word = "noticeable" if gaps[-1] < 1400 else "annoying"
        panel.get_by_role("button", name=word, exact=True).click()
    assert len(lengths) == 1
    assert sorted(gaps) == pytest.approx(GAPS, abs=10)
    wait(lambda: "no longer at 1,500 ms" in shown(panel), 60, lambda: shown(panel))
    picture = panel.locator("img").first
    wait(lambda: picture.evaluate("i => i.complete && i.naturalWidth > 100"), 60, lambda: "no figure")
    assert "measured on yourself" in picture.get_attribute("alt")
    [kept] = sorted((folder / "workspace" / "ratings").iterdir())
    entries = [json.loads(line) for line in kept.read_text().split("\n")[1:]]
    assert [entry["gap_ms"] for entry in entries] == pytest.approx(gaps, abs=10)
    assert {entry["rating"] for entry in entries} == {2, 3}
    assert page.complaints == []


def test_opened_again_the_result_is_there_and_a_second_sitting_can_begin(page, folder):
    """The cell run again, as when the notebook is opened another day; then a sitting that is broken off."""
    run(page, "rate")
    panel = panel_of(page)
    wait(lambda: "You were content up to" in shown(panel), 60, lambda: shown(panel))
    assert panel.locator("audio").count() == 0 or not panel.locator("audio").first.is_visible()
    panel.get_by_role("button", name="Begin: each clip twice").click()
    wait(lambda: f"Clip 1 of {2 * len(GAPS)}" in shown(panel), 30, lambda: shown(panel))
    panel.get_by_role("button", name="fine", exact=True).click()
    wait(lambda: f"Clip 2 of {2 * len(GAPS)}" in shown(panel), 30, lambda: shown(panel))
    run(page, "rate")
    wait(lambda: "You have rated 1 of these" in shown(panel_of(page)), 60, lambda: shown(panel_of(page)))
    assert len(list((folder / "workspace" / "ratings").iterdir())) == 2


def test_the_figure_below_takes_the_finished_sitting(page):
    run(page, "own-ratings")
    cell = cell_of(page, "own-ratings")
    wait(lambda: "You were content up to a gap of 1,293 ms" in cell.inner_text(), 60, cell.inner_text)
