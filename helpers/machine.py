"""What this machine is: the part of a measurement's conditions that does not change between two runs."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def system() -> str:
    """Name and version of the operating system, and the kind of processor."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"
