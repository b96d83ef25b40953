"""The programs that make slides from Markdown: Marp, which runs on Node.js, and Chromium for the PDF.

Marp is pinned by ``slides/package.json`` and ``slides/package-lock.json`` (each package with its hash) and
goes into ``workspace/envs/marp/`` on first use. No script of a package is run, and no browser is fetched: the
system's own makes the PDF.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from helpers.processes import last_lines, stopped_at_the_end
from helpers.settings import REPO, CourseError, workspace

Say = Callable[[str], None]
SLIDES = REPO / "slides"
PINS = ("package.json", "package-lock.json", ".npmrc")
NODE_NEEDED = 18
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_VARIABLE = "CHROMIUM"
LIMIT_SECONDS = 300.0


def node() -> Path:
    """Node.js.

    Raises:
        CourseError: there is none, it is too old, or npm is missing.
    """
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        what = "Node.js" if found is None else "npm"
        raise CourseError(
            f"The slides need {what}, and there is none here. Type: sudo apt install nodejs npm"
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
    version = re.match(r"v(\d+)\.", said)
    if not version or int(version.group(1)) < NODE_NEEDED:
        raise CourseError(
            f"The slides need Node.js {NODE_NEEDED} or newer, and {found} is {said.strip() or 'none'}. "
            f"Install a newer one (nodejs.org) and put it first on the PATH."
        )
    return Path(found)


def browser() -> Path:
    """A Chromium or Chrome: the one that ``CHROMIUM`` names, else the first on the PATH.

    Raises:
        CourseError: there is none.
    """
    for name in (os.environ.get(BROWSER_VARIABLE, ""), *BROWSERS):
        if name and (found := shutil.which(name)):
            return Path(found)
    raise CourseError("The PDF needs Chromium, and there is none here. Type: sudo apt install chromium")


def marp(*, say: Say = print) -> list[str]:
    """The words that start Marp; installs it first where it is not there or is not the one that is pinned.

    Raises:
        CourseError: Node.js is missing, or the installation failed (with npm's last words).
    """
    program = node()
    folder = workspace("envs", "marp")
    stamp = folder / "complete"
    wanted = hashlib.sha256(b"".join((SLIDES / name).read_bytes() for name in PINS)).hexdigest()
    with FileLock(folder.with_suffix(".lock")):
        if not stamp.is_file() or stamp.read_text() != wanted:
            say("Installing Marp, which makes slides from Markdown: once, less than a minute.")
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            for name in PINS:
                shutil.copy(SLIDES / name, folder / name)
            run(["npm", "ci", "--ignore-scripts"], folder, folder.with_suffix(".log"), "Marp's installation")
            stamp.write_text(wanted)
    return [str(program), str(folder / "node_modules" / "@marp-team" / "marp-cli" / "marp-cli.js")]


def convert(words: Sequence[str], source: Path, target: Path, *, log: Path, pdf: bool = False) -> None:
    """Have Marp make HTML, or a PDF, of a deck. Figures are found beside the deck.

    Args:
        words: what starts Marp, see :func:`marp`.
        source: the deck, filled.
        target: the file to make.
        log: where its words go.
        pdf: make a PDF.

    Raises:
        CourseError: there is no browser for the PDF, or Marp failed (with its last words).
    """
    options = ["--no-stdin", "--config-file", str(SLIDES / ".marprc.json"), "--output", str(target)]
    if pdf:
        # The deck is ours, and so are the pictures beside it: that is what "local files" are here.
        options += ["--pdf", "--allow-local-files", "--browser", "chrome", "--browser-path", str(browser())]
    target.unlink(missing_ok=True)
    run([*words, *options, str(source)], source.parent, log, "Marp")
    if not target.is_file():
        raise CourseError(f"Marp made no {target.name}. Its last words:\n{last_lines(log)}")


def run(words: Sequence[str], folder: Path, log: Path, what: str) -> None:
    """Run a program to its end, its words in a log.

    Raises:
        CourseError: it failed, or took too long. What it had started is stopped.
    """
    environment = dict(os.environ)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        environment["CHROME_NO_SANDBOX"] = "1"  # Chromium refuses to start for root with its sandbox
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(
            list(words),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with stopped_at_the_end(child):
            try:
                code = child.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
    if code != 0:
        how = f"did not end within {LIMIT_SECONDS:.0f} s" if code is None else "failed"
        raise CourseError(
            f"{what} {how}. Its last words:\n{last_lines(log)}\nThe whole of it is in {log}. "
            f"If it could not reach the network, run this again when it can."
        )
