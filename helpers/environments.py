"""Environments of their own, for programs whose packages must not mix with the course's: made on first use.

An :class:`Environment` says what goes in, pinned with hashes; :func:`environment` makes it under
``workspace/envs/`` and gives its Python.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from helpers.bootstrap import TORCH_CPU_INDEX, TORCH_PIN
from helpers.processes import last_lines, stopped_at_the_end
from helpers.settings import REPO, CourseError, workspace

Say = Callable[[str], None]
TORCH = REPO / "requirements" / TORCH_PIN


@dataclass(frozen=True)
class Environment:
    """What an environment is made from.

    Attributes:
        name: its folder under ``workspace/envs/``.
        requirements: pinned file with hashes; every package in it and nothing else is installed.
        packages: how many that is on this kind of machine, about; for the progress line.
        disk_mb: room it takes when done, about, MB.
        python: oldest and newest Python (major, minor) its packages support.
        systems: values of ``sys.platform`` it is pinned for.
        torch: PyTorch's CPU build goes in first, by the course's own pin; the package index has the one with
            CUDA only, which is several GB.
    """

    name: str
    requirements: Path
    packages: int
    disk_mb: int
    python: tuple[tuple[int, int], tuple[int, int]] = ((3, 11), (3, 14))
    systems: tuple[str, ...] = ("linux",)
    torch: bool = False


AIPERF = Environment("aiperf", REPO / "requirements" / "aiperf.txt", 140, 900, python=((3, 11), (3, 13)))
GUIDELLM = Environment("guidellm", REPO / "requirements" / "guidellm.txt", 79, 1500, torch=True)


def environment(spec: Environment, *, say: Say = print) -> Path:
    """The Python of an environment, made first where it is not there or was made from another pinned file.

    Two callers at the same moment make it once: the second waits for the first. An environment counts only
    once its stamp is written, as the last step, so one that was broken off is thrown away and made again.

    Returns:
        Path of its Python; start its programs with ``python -m``.

    Raises:
        CourseError: this Python or system has no packages for it, the disk is too full, or an install failed
            (with the last lines of pip).
    """
    _supported(spec)
    folder = workspace("envs", spec.name)
    python, stamp = folder / "bin" / "python", folder / "complete"
    wanted = _fingerprint(spec)
    if _reads(stamp) == wanted:
        return python
    with _locked(folder.with_suffix(".lock"), spec.name, say):
        if _reads(stamp) == wanted:  # somebody else has made it while we waited
            return python
        free_mb = shutil.disk_usage(folder.parent).free / 1e6
        if free_mb < spec.disk_mb + 200:
            raise CourseError(
                f"The environment for {spec.name} takes about {spec.disk_mb} MB and {folder.parent} has "
                f"{free_mb:.0f} MB free. Make room there, then run this again."
            )
        if folder.exists():
            shutil.rmtree(folder)
        say(f"Making an environment for {spec.name} in {folder}: {spec.packages} packages, about a minute.")
        _install(spec, folder, python, say)
        stamp.write_text(wanted)
        say(f"The environment for {spec.name} is ready.")
    return python


def _supported(spec: Environment) -> None:
    if sys.platform not in spec.systems:
        raise CourseError(
            f"{spec.name} is pinned for {', '.join(spec.systems)} and this is {sys.platform}. "
            f"The lesson goes on with the recorded run of it."
        )
    oldest, newest = spec.python
    if not oldest <= sys.version_info[:2] <= newest:
        span = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        raise CourseError(
            f"{spec.name} needs Python {span} and this is {sys.version_info[0]}.{sys.version_info[1]}. "
            f"The lesson goes on with the recorded run of it."
        )


def _fingerprint(spec: Environment) -> str:
    files = (spec.requirements, TORCH) if spec.torch else (spec.requirements,)
    pins = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return f"{pins} python {sys.version_info[0]}.{sys.version_info[1]}"


def _reads(stamp: Path) -> str:
    return stamp.read_text() if stamp.is_file() else ""


@contextmanager
def _locked(path: Path, name: str, say: Say) -> Iterator[None]:
    """Hold the lock file at ``path``. The system lets go of it when a process ends, however it ends."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"The environment for {name} is being made by another process; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _install(spec: Environment, folder: Path, python: Path, say: Say) -> None:
    log = folder.with_suffix(".log")
    quiet = ("--no-input", "--disable-pip-version-check", "--progress-bar", "off")
    pip = (str(python), "-m", "pip", "install", "--require-hashes", "--no-deps", *quiet)
    steps: list[tuple[tuple[str, ...], ...]] = [((sys.executable, "-m", "venv", str(folder)),)]
    if spec.torch:  # as the course's own: from where pip looks, or else from PyTorch's index
        elsewhere = ("--index-url", TORCH_CPU_INDEX, "--retries", "1", "--timeout", "30")
        steps.append(((*pip, "-r", str(TORCH)), (*pip, *elsewhere, "-r", str(TORCH))))
    steps.append(((*pip, "-r", str(spec.requirements)),))
    with log.open("w") as file:
        for ways in steps:
            if not any(_done(argv, file, spec, say) for argv in ways):
                raise CourseError(
                    f"The environment for {spec.name} could not be made. pip's last words:\n"
                    f"{last_lines(log)}\nThe whole of it is in {log}. "
                    f"If it could not reach the network, run this again when it can."
                )


def _done(argv: tuple[str, ...], log: Any, spec: Environment, say: Say) -> bool:
    child = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    with stopped_at_the_end(child):
        return _follow(child, log, spec, say) == 0


def _follow(child: subprocess.Popen[str], log: Any, spec: Environment, say: Say) -> int:
    assert child.stdout is not None
    collected = 0
    for line in child.stdout:
        log.write(line)
        log.flush()
        if line.startswith("Collecting "):
            collected += 1
            if collected % 35 == 0:
                say(f"  {collected} of about {spec.packages} packages fetched")
        elif line.startswith("Installing collected"):
            say("  all fetched; unpacking them")
    return child.wait()
