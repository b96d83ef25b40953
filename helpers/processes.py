"""Programs that we start and that must not outlive their caller."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def stopped_at_the_end(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Stop the child's whole process group on the way out, also after an error or an interrupt.

    Args:
        child: started with ``start_new_session=True``, so that the group is its own.
    """
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and _group_lives(child):
                time.sleep(0.05)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _group_lives(child: subprocess.Popen[Any]) -> bool:
    child.poll()  # collects the child itself, which would count as a member until then
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def last_lines(log: Path, lines: int = 12) -> str:
    """The end of a log, indented: a program's last words, for an error message."""
    with log.open(errors="replace") as file:
        return "".join("  " + line for line in deque(file, lines)).rstrip()
