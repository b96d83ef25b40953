"""Keeps what a learner measured, for later lessons and for the report.

A run is a table with an ``origin`` column and the conditions under which it was made, written as two files
under ``workspace/runs/``. Saving never overwrites: each run has its own name, from its lesson and its time.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pandas as pd

from helpers.conditions import conditions
from helpers.origins import validate
from helpers.settings import WORKSPACE, CourseError, Server, workspace


def save(name: str, frame: pd.DataFrame, server: Server, workload: str) -> str:
    """Write a run and return its name, such as ``05-ttft-20261201-101500``.

    Args:
        name: what it is, such as ``05-ttft``.
        frame: one row a request, with an ``origin`` column (:func:`helpers.latency.table` makes it).
        server: the server that was timed.
        workload: one sentence: what was sent, how often, how many at a time.
    """
    validate(frame, used_by="runs.save")
    stem = f"{name}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        path = workspace("runs", f"{stem}{suffix}.json")
        try:
            with path.open("x") as file:  # "x": never onto an existing file
                about = conditions(server, name) | {"workload": workload, "requests": len(frame)}
                json.dump(about | {"origin": server.origin}, file, indent=1)
        except FileExistsError:
            continue
        frame.to_csv(path.with_suffix(".csv"), index=False)
        return path.stem
    raise CourseError("Too many runs were saved within one second; wait a moment and save again.")


def names(name: str = "") -> list[str]:
    """Names of the saved runs that begin with ``name``, oldest first."""
    return sorted(path.stem for path in (WORKSPACE / "runs").glob(f"{name}*.csv"))


def load(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A saved run's table and its conditions.

    Raises:
        CourseError: there is no such run.
    """
    path = WORKSPACE / "runs" / f"{name}.csv"
    try:
        return pd.read_csv(path), json.loads(path.with_suffix(".json").read_text())
    except OSError as error:
        listed = ", ".join(names()) or "none yet"
        raise CourseError(f"There is no run named {name!r}. Saved runs: {listed}.") from error
