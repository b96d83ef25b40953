"""One B200 in live calls: what the model says with and without its correction, beside what the card says.

Nobody here has a B200. Everything this module computes is modelled: the curve of TTFAT against live calls,
the largest number of them under the limit, and how that moves. It takes a minute, so the lesson reads what
``python -m helpers.b200 record`` left in ``data/runs`` and computes a point or two itself.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from helpers import calibration, capacity, predictors, published, recorded
from helpers.environments import Say
from helpers.machine_model import Machine, machine
from helpers.origins import validate
from helpers.run_file import write_whole
from helpers.settings import DATA, CourseError
from helpers.workload import load

RUNS = DATA / "runs"
CURVES, ANSWERS, CASES = "07-b200-curves", "07-b200-answers", "07-b200-cases"
FORMATS = ("BF16", "NVFP4")
LEVELS = (8, 88, 192, 320, 448, 576, 704, 960, 1280, 1600, 1920, 2240, 2560, 2880, 3200, 3600)
SEATS = 512  # so that the line and not the number of seats is what ends the curve


def machines() -> dict[str, Machine]:
    """The machines of the curves: each format as modelled, and corrected by the factor that published
    measurements ask for (:func:`helpers.calibration.factor`)."""
    found = {}
    for fmt in FORMATS:
        plain = machine("B200", fmt)
        factor = calibration.factor("B200", fmt)
        found[f"{fmt}, uncorrected"] = plain
        found[f"{fmt}, corrected (times {factor:.2g})"] = plain.slower(factor)
    return found


def curves(*, say: Say = print) -> pd.DataFrame:
    """TTFAT against live calls: the columns of :func:`helpers.capacity.curve` and ``series``. The rows of
    dynamo.replay (BF16, uncorrected; prefix cache in blocks of 64 tokens) have its P50 and P95 only."""
    frames = []
    for series, where in machines().items():
        frame = capacity.curve(where, LEVELS, max_num_seqs=SEATS).assign(series=series)
        frames.append(_up_to_limit(frame))
        say(f"curve: {series}")
    line = predictors.recorded_line()
    line = line[line["max_num_seqs"] == SEATS]
    replayed = pd.DataFrame(
        {
            "live_calls": line["live_calls"],
            "ttfat_p50_ms": line["ttft_p50_ms"],
            "ttfat_p95_ms": line["ttft_p95_ms"],
            "requests": line["requests"],
            "tpot_p50_ms": line["tpot_p50_ms"],
            "cached_share": line["reuse"],
            "gpu": "B200",
            "format": "BF16",
            "factor": 1.0,
            "max_num_seqs": SEATS,
            "series": "BF16, dynamo.replay",
        }
    )
    frame = pd.concat([*frames, replayed.assign(origin="modelled")], ignore_index=True)
    return validate(frame, used_by="b200.curves")


def _up_to_limit(frame: pd.DataFrame) -> pd.DataFrame:
    """Levels up to the first above the limit: beyond that a curve only says that it is too much."""
    above = (frame["ttfat_p95_ms"] > capacity.LIMIT_MS).cumsum()
    return frame[above <= 1]


def answers(*, say: Say = print) -> pd.DataFrame:
    """The largest load under the limit, in both units, for each machine; the card's figures below.

    Returns:
        One row an answer: ``who``, ``load`` (``live calls``: they speak, listen and think;
        ``requests in flight``: each line asks again at once; ``simulated processes`` and ``agents``: the
        card's words), ``number``, ``factor`` (by which the model's times were multiplied) and
        ``max_num_seqs`` (requests that run at once), ``in_flight``, ``duty_cycle``, ``ttfat_p50_ms``,
        ``ttfat_p95_ms``, ``source``, ``date`` and ``origin``.
    """
    rows = []
    for series, where in machines().items():
        for unit, pauses in (("live calls", True), ("requests in flight", False)):
            found = capacity.limit(where, pauses=pauses, max_num_seqs=SEATS)
            columns = ("in_flight", "duty_cycle", "ttfat_p50_ms", "ttfat_p95_ms")
            row = {"who": series, "load": unit, "number": found["live_calls"]}
            row |= {"factor": where.factor, "max_num_seqs": SEATS}
            rows.append(row | {name: found.get(name) for name in columns} | {"origin": "modelled"})
            say(f"limit: {series}, {row['number']:.0f} {unit}")
    for name in ("b200.card_processes", "b200.card_agents"):
        known = published.table(name).iloc[0]
        rows.append(
            {
                "who": "the model's card",
                "load": known["unit"],
                "number": known["value"],
                "ttfat_p50_ms": published.value("chart.ttfat_p50"),
                "ttfat_p95_ms": published.value("card.ttfat_ceiling"),
                "source": known["source"],
                "date": known["date"],
                "origin": "published",
            }
        )
    return validate(pd.DataFrame(rows), used_by="b200.answers")


def cases(*, say: Say = print) -> pd.DataFrame:
    """How the answer for BF16, corrected, moves when one thing is changed: see
    :func:`helpers.capacity.sensitivity`. Another format is tried with the correction of BF16, so that only
    the format differs, and NVFP4 with its own, too."""
    where = machine("B200", "BF16").slower(calibration.factor("B200", "BF16"))
    own = {"NVFP4": calibration.factor("B200", "NVFP4")}
    return capacity.sensitivity(where, own_factors=own, say=say)


def recorded_curves() -> pd.DataFrame:
    """The curves as they were computed for the course, see :func:`curves`."""
    return recorded.load_table(CURVES)


def recorded_answers() -> pd.DataFrame:
    """The answers as they were computed for the course, see :func:`answers`."""
    return recorded.load_table(ANSWERS)


def recorded_cases() -> pd.DataFrame:
    """The cases as they were computed for the course, see :func:`cases`."""
    frame = recorded.load_table(CASES)
    frame["value"] = frame["value"].astype(object).fillna("")
    return frame


def sentences(found: pd.DataFrame | None = None) -> str:
    """What lies between the model's answers and the card's, in words with the numbers of ``found``
    (:func:`recorded_answers` by default)."""
    found = recorded_answers() if found is None else found

    def number(who: str, load: str) -> float:
        row = found[found["who"].str.startswith(who) & (found["load"] == load)]
        return float(row["number"].iloc[0])

    live = [number(f"BF16, {which}", "live calls") for which in ("corrected", "uncorrected")]
    flying = [number(f"BF16, {which}", "requests in flight") for which in ("corrected", "uncorrected")]
    processes = number("the model's card", "simulated processes")
    agents = number("the model's card", "agents")
    p95 = published.value("card.ttfat_ceiling")
    return (
        f"Modelled: one B200 in BF16 keeps P95 TTFAT under {p95:.0f} ms up to {live[0]:.0f} live calls "
        f"with the correction and {live[1]:.0f} without; or {flying[0]:.0f} and {flying[1]:.0f} requests in "
        f"flight, if nobody speaks, listens or thinks. The card says {processes:.0f} simulated processes and "
        f"{agents:.0f} agents. If one of its processes always has a request in flight, the corrected model "
        f"says {flying[0] / processes:.1f} times as many and the uncorrected one "
        f"{flying[1] / processes:.1f} times, which is no surprise: they have no network, one short "
        f"constant for tokenizer and API server, no thinking, few and short tool calls, and prompts of our "
        f"choice, while the card does not say how long its are. In live calls the gap is "
        f"{live[0] / agents:.0f}-fold, because our callers leave the model idle most of the time and the "
        f"card counts an agent as half a process. The correction itself rests on one published run, of "
        f"another engine, that no model explains. None of this is a measurement: take the lower numbers, and "
        f"measure."
    )


RUNNERS: dict[str, Callable[..., pd.DataFrame]] = {CURVES: curves, ANSWERS: answers, CASES: cases}


def record(*names: str, replace: bool = False, folder: Path | None = None, say: Say = print) -> list[Path]:
    """Compute all three tables, or only those named, and keep them. Needs nothing but the course, and two to
    four minutes of a processor.

    Raises:
        CourseError: there is no such table, or one is kept already and ``replace`` is not given.
    """
    written = []
    for name in names or RUNNERS:
        if name not in RUNNERS:
            raise CourseError(f"There is no table {name!r} to record. There are: {', '.join(RUNNERS)}.")
        run = RUNNERS[name]
        target = (folder or RUNS) / f"{name}.csv"
        if target.exists() and not replace:
            raise CourseError(
                f"{target.name} is there already. To replace it, type: "
                f"python -m helpers.b200 record --replace"
            )
        begun = time.monotonic()
        frame = run(say=say)
        about = {
            "lesson": name,
            "date": datetime.date.today().isoformat(),
            "tool": "helpers.capacity",
            "command": "python -m helpers.b200 record",
            "workload": load().sentence(),
            "constants": {row.parameter: row.value for row in capacity.parameter_table().itertuples()},
            "took_s": round(time.monotonic() - begun, 1),
            "rows": len(frame),
            "note": "computed, not measured: a model's clock only counts",
        }
        write_whole(target, frame.to_csv(index=False, lineterminator="\n").encode())
        write_whole(target.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())
        written.append(target)
    return written


def main(words: list[str]) -> int:
    """``python -m helpers.b200 record [--replace] [TABLE ...]``; returns the exit status."""
    if not words or words[0] != "record":
        print("python -m helpers.b200 record [--replace] [TABLE ...]")
        return 2
    try:
        record(*(word for word in words[1:] if not word.startswith("-")), replace="--replace" in words)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
