"""Does the course run well on this machine, and if not, what then?"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import pandas as pd
import psutil

from helpers import engine, machine
from helpers.settings import BASE_URL_VARIABLE, WORKSPACE


def check() -> pd.DataFrame:
    """The machine, line by line: columns ``what``, ``found``, ``enough`` (yes or no) and ``if not``."""
    cores, fast = os.cpu_count() or 1, machine.fast_bfloat16()
    busy = psutil.cpu_percent(interval=0.5)
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(WORKSPACE if WORKSPACE.exists() else Path.home())
    elsewhere = bool(os.environ.get(BASE_URL_VARIABLE, "").strip())
    chosen = os.environ.get(engine.ENGINE_VARIABLE) == "recorded"
    why_not = None if elsewhere else engine.why_not_embedded()
    if chosen and not elsewhere:
        why_not = f"{engine.ENGINE_VARIABLE}=recorded asks for recorded runs"
    rows = [
        ("Python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer"),
        (
            "processor",
            f"{machine.processor()}, {cores} cores" + ("" if fast else ", no fast bfloat16"),
            cores >= 2 and fast,
            "expect every time to be longer" + ("" if fast else "; the engine computes in float32"),
        ),
        ("in use now", f"{busy:.0f} % of the cores", busy < 50, "close what keeps it busy: it bends timings"),
        (
            "memory",
            f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB free",
            elsewhere or memory.available / 2**30 >= engine.MEMORY_NEEDED_GIB,
            f"the engine needs {engine.MEMORY_NEEDED_GIB:.0f} GiB; close some programs",
        ),
        ("disk", f"{disk.free / 1e9:.0f} GB free", disk.free > 2e9, "make some room"),
        (
            "server",
            f"at {BASE_URL_VARIABLE}"
            if elsewhere
            else "recorded runs"
            if why_not
            else "vLLM on this machine",
            not why_not,
            f"{why_not}; every number will say that it was recorded" if why_not else "",
        ),
    ]
    frame = pd.DataFrame(rows, columns=["what", "found", "enough", "if not"])
    frame["if not"] = frame["if not"].where(~frame["enough"].astype(bool), "")
    frame["enough"] = frame["enough"].map({True: "yes", False: "no"})
    return frame
