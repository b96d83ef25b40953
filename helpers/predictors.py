"""Two of the field's models of a GPU that nobody here has, each in an environment of its own.

``aiconfigurator`` (0.12.0) adds up measured and estimated kernels: mean TTFT, TPOT and tokens in a second of
one operating point. ``dynamo.replay`` (ai-dynamo 1.1.1 with the kernels of aiconfigurator 0.8.0) runs a
scheduler on a clock that only counts, so it queues: a P95 comes out.

Their environments are large (:data:`AICONFIGURATOR`, :data:`DYNAMO`), so nothing here makes one unless it is
asked to: the lesson and its figures read what ``python -m helpers.predictors record`` left in ``data/runs``.
The clock is virtual: the same cases give the same numbers on every machine (``check`` tries that).
:mod:`helpers.predictor_tools` asks them, and says what to know of each.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
import time
from pathlib import Path

import pandas as pd

from helpers import conditions, recorded
from helpers import machine as machines
from helpers.environments import Say
from helpers.origins import validate
from helpers.predictor_tools import (
    AICONFIGURATOR,
    DYNAMO,
    LEVELS,
    LINE_S,
    SPREAD_S,
    WORDS,
    Case,
    aiconfigurator,
    engine,
    line,
    made,
    replay,
    write_trace,
)
from helpers.run_file import write_whole
from helpers.settings import DATA, CourseError
from helpers.workload import load

__all__ = [
    "AICONFIGURATOR",
    "DYNAMO",
    "LEVELS",
    "Case",
    "aiconfigurator",
    "check",
    "engine",
    "grid_cases",
    "line",
    "made",
    "published_cases",
    "record",
    "recorded_line",
    "recorded_points",
    "recorded_replay",
    "replay",
    "write_trace",
]

POINTS_TABLE = "07-b200-points"
REPLAY_TABLE = "07-b200-replay"
LINE_TABLE = "07-b200-line"
RUNS = DATA / "runs"


def recorded_points() -> pd.DataFrame:
    """What aiconfigurator said when it was run for the course: columns as :func:`aiconfigurator`, and
    ``purpose`` (``published point`` or ``grid``)."""
    return _recorded(POINTS_TABLE)


def recorded_replay() -> pd.DataFrame:
    """What dynamo.replay said of the published benchmarks: columns as :func:`replay`."""
    return _recorded(REPLAY_TABLE)


def recorded_line() -> pd.DataFrame:
    """What dynamo.replay said of the phone line: columns as :func:`line`."""
    return _recorded(LINE_TABLE)


def _recorded(name: str) -> pd.DataFrame:
    frame = recorded.load_table(name)
    words = [column for column in WORDS if column in frame]
    frame[words] = frame[words].astype(object).fillna("")
    return frame


def published_cases() -> list[Case]:
    """The operating points of ``data/calibration.csv`` whose hardware is known, each once."""
    frame = pd.read_csv(DATA / "calibration.csv", dtype={"date": str}).dropna(subset=["gpu", "max_num_seqs"])
    frame = frame.astype({"run_requests": int, "max_num_seqs": int})
    keys = ["gpu", "precision", "gpus", "engine", "concurrency", "isl", "osl", "run_requests", "max_num_seqs"]
    return [Case(*row) for row in frame[keys].drop_duplicates().itertuples(index=False)]


def grid_cases() -> list[Case]:
    """One B200 with a phone call's lengths: 1,500 tokens in, 120 out, BF16 and NVFP4, growing batches."""
    return [
        Case("B200", form, 1, "vLLM", batch, 1500, 120)
        for form in ("BF16", "NVFP4")
        for batch in (1, 8, 32, 64, 128, 256, 512)
    ]


def _run_points(say: Say) -> pd.DataFrame:
    published, grid = published_cases(), grid_cases()
    frame = aiconfigurator([*published, *grid], say=say)
    frame["purpose"] = ["published point"] * len(published) + ["grid"] * len(grid)
    return frame


def _run_line(say: Say) -> pd.DataFrame:
    frames = [line(say=say), line((512,), seats=64, say=say), line((512,), seats=32, say=say)]
    return pd.concat(frames, ignore_index=True)


RUNNERS = {
    POINTS_TABLE: (_run_points, AICONFIGURATOR),
    REPLAY_TABLE: (lambda say: replay(published_cases(), say=say), DYNAMO),
    LINE_TABLE: (_run_line, DYNAMO),
}


def record(*names: str, replace: bool = False, folder: Path | None = None, say: Say = print) -> list[Path]:
    """Run everything that the lesson quotes and keep it under ``data/runs``. Needs both environments (made
    if they are not there) and some minutes of a processor.

    Args:
        *names: only these tables.
        replace: replace the tables that are there.
        folder: instead of ``data/runs``.
        say: told what is done.

    Raises:
        CourseError: a table is there already, or a tool does not run.
    """
    written = []
    for name in names or RUNNERS:
        if name not in RUNNERS:
            raise CourseError(f"There is no table {name!r} to record. There are: {', '.join(RUNNERS)}.")
        run, spec = RUNNERS[name]
        target = (folder or RUNS) / f"{name}.csv"
        if target.exists() and not replace:
            raise CourseError(
                f"{target.name} is there already. To replace what is recorded, type: "
                f"python -m helpers.predictors record --replace"
            )
        begun = time.monotonic()
        say(f"{name}: running {spec.name}")
        frame = run(say)
        about = {
            "lesson": name,
            "date": datetime.date.today().isoformat(),
            "machine": {"processor": machines.processor()},
            "os": machines.system(),
            "python": platform.python_version(),
            "tool": str(frame["tool"].iloc[0]),
            "pins": f"requirements/{spec.requirements.name}",
            "command": "python -m helpers.predictors record",
            "workload": _workload(name),
            "took_s": round(time.monotonic() - begun, 1),
            "rows": len(frame),
            "note": "computed, not measured: the clock of these tools only counts",
        }
        clean = conditions.cleaner()
        write_whole(target, clean(frame.to_csv(index=False, lineterminator="\n")).encode())
        text = json.dumps(conditions.cleaned(about, clean), indent=1)
        write_whole(target.with_suffix(".json"), (text + "\n").encode())
        say(f"{name}: {len(frame)} rows, {about['took_s']} s")
        written.append(target)
    return written


def _workload(name: str) -> str:
    """A sentence on what was asked, for the conditions."""
    if name == LINE_TABLE:
        return (
            f"{load().sentence()}; a trace of {LINE_S:.0f} s, in whose first {SPREAD_S:.0f} s the lines begin"
        )
    return "benchmarks with fixed lengths, as in data/calibration.csv; all requests at once at the start"


def check(*names: str, say: Say = print) -> pd.DataFrame:
    """Run everything (or only the tables ``names``) again and compare with what is recorded: the clock is
    virtual, so nothing may differ.

    Returns:
        One row a table: ``table``, ``rows``, ``largest_difference`` (relative, over all numbers), ``same``
        and ``origin`` (modelled).
    """
    rows = []
    for name in names or RUNNERS:
        before, now = _recorded(name), RUNNERS[name][0](say)
        numbers = [column for column in before.select_dtypes("number") if column in now]
        gap = (now[numbers] / before[numbers].where(before[numbers] != 0) - 1).abs().to_numpy(dtype=float)
        largest = float(pd.Series(gap.ravel()).max(skipna=True))
        same = len(before) == len(now) and largest < 1e-6
        rows.append({"table": name, "rows": len(now), "largest_difference": largest, "same": same})
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="predictors.check")


def main(words: list[str]) -> int:
    """``python -m helpers.predictors record [--replace] [TABLE ...] | check [TABLE ...]``; returns the exit
    status."""
    action = words[0] if words else ""
    names = [word for word in words[1:] if not word.startswith("-")]
    try:
        if action == "record":
            record(*names, replace="--replace" in words)
        elif action == "check":
            frame = check(*names)
            print(frame.to_string(index=False))
            return 0 if frame["same"].all() else 1
        else:
            print("python -m helpers.predictors record [--replace] [TABLE ...] | check [TABLE ...]")
            return 2
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
