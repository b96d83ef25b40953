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
from helpers.settings import WORKSPACE, CourseError, Server, cannot_write, workspace


def save(name: str, frame: pd.DataFrame, server: Server, workload: str) -> str:
    """Write a run and return its name, such as ``05-ttft-20261201-101500``.

    Args:
        name: what it is, such as ``05-ttft``.
        frame: one row a request, with an ``origin`` column (:func:`helpers.latency.table` makes it).
        server: the server that was timed.
        workload: one sentence: what was sent, how often, how many at a time.

    Raises:
        CourseError: the table has no origins, or the folder is full or cannot be written in. No half of a
            run is left behind then.
    """
    validate(frame, used_by="runs.save")
    stem = f"{name}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}"
    about = conditions(server, name) | {"workload": workload, "requests": len(frame)}
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        path = workspace("runs", f"{stem}{suffix}.csv")
        if path.with_suffix(".json").exists():
            continue
        try:
            file = path.open("x", newline="")  # "x": never onto an existing file
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(error) from error
        try:
            with file:
                frame.to_csv(file, index=False)
            path.with_suffix(".json").write_text(json.dumps(about | {"origin": server.origin}, indent=1))
        except BaseException as error:
            path.with_suffix(".json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise cannot_write(error) from error
            raise
        return path.stem
    raise CourseError("Too many runs were saved within one second; wait a moment and save again.")


def names(name: str = "") -> list[str]:
    """Names of the saved runs that begin with ``name``, oldest first."""
    return sorted(path.stem for path in (WORKSPACE / "runs").glob(f"{name}*.csv"))


def load(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A saved run's table and its conditions.

    Raises:
        CourseError: there is no such run, or its files are damaged.
    """
    path = WORKSPACE / "runs" / f"{name}.csv"
    try:
        table, about = pd.read_csv(path), json.loads(path.with_suffix(".json").read_text())
        if not isinstance(about, dict):
            raise ValueError("its conditions are not an object")
        return table, about
    except OSError as error:
        listed = ", ".join(names()) or "none yet"
        raise CourseError(f"There is no run named {name!r}. Saved runs: {listed}.") from error
    except ValueError as error:  # pandas' own errors are of this kind too
        raise CourseError(
            f"The run {name!r} is damaged and cannot be read ({error}).\n"
            f"Move {path} and the .json beside it away, then measure and save again."
        ) from error
