"""A panel of a lesson in JupyterLab, in a real browser: what the browser tests of the panels share.

The notebook is made of some of the lesson's own cells, which need no engine; the lab has settings and a
workspace of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers import sources
from helpers.settings import REPO

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
KERNEL = "window.jupyterapp.shell.currentWidget?.context.sessionContext.session?.kernel?.status"
TOKEN = "a-panel"
PLACE = re.compile(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab")


def wait(ready: Callable[[], Any], seconds: float, otherwise: Callable[[], Any]) -> Any:
    """What ``ready`` gives as soon as it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.25)
    raise AssertionError(f"not within {seconds} s: {otherwise()}")


def _write_notebook(path: Path, lesson: str, names: Sequence[str]) -> None:
    [source] = [source for source in sources.paths() if source.stem.startswith(f"{lesson}_")]
    code = {cell.name: cell.source for cell in sources.read(source)}
    rest = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{"id": name, "source": code[name]} | rest for name in names]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}))


@contextmanager
def lab(folder: Path, lesson: str, names: Sequence[str] = ("setup", "panel")) -> Iterator[str]:
    """A JupyterLab whose only notebook has these cells of a lesson; gives the notebook's address."""
    _write_notebook(folder / "panel.ipynb", lesson, names)
    own = {"JUPYTER_CONFIG_DIR": str(folder / "config"), "PYTHONPATH": str(REPO)}
    own |= {"PHONELLM_WORKSPACE": str(folder / "workspace")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--port=0", "--allow-root"]
    command += ["--LabApp.expose_app_in_browser=True", f"--IdentityProvider.token={TOKEN}"]
    command += [f"--ServerApp.root_dir={folder}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | own, cwd=folder
    )
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(iter(process.stdout.readline, "")), daemon=True).start()
    try:
        found = wait(lambda: PLACE.search("".join(said)), 120, lambda: "".join(said))
        yield f"http://127.0.0.1:{found.group(1)}/lab/tree/panel.ipynb?token={TOKEN}"
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def opened(chromium: str, address: str, picture: str) -> Iterator[Any]:
    """The notebook in a browser, all cells run and the panel there. ``page.complaints`` are its errors.

    ``picture``: file name of a screenshot, taken at the end where the variable SCREENSHOTS names a folder.
    """
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
            page.screenshot(path=f"{pictures}/{picture}")
        browser.close()
