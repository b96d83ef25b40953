"""Runs recorded earlier: how a run is recorded, kept, and read back.

Where no vLLM can run, the lessons use runs that we recorded where one did (:mod:`helpers.replay` plays them).
A run is one file, ``data/runs/<lesson>.jsonl.gz`` (:mod:`helpers.run_file` writes and reads it), and begins
with the conditions of its recording (:mod:`helpers.conditions`, which also keeps out what is private).

Recording has two steps, so that a crash loses nothing and an old run is never overwritten by accident::

    PHONELLM_RECORD=05_measure_ttft  ... run the lesson ...     # appends to workspace/runs/05_measure_ttft/
    python -m helpers.recorded finish 05_measure_ttft           # makes data/runs/05_measure_ttft.jsonl.gz
    python -m helpers.recorded                                  # lists what there is

Results of benchmark tools are kept beside the runs, as tables with their conditions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import api, streaming
from helpers.conditions import cleaned, cleaner, conditions
from helpers.origins import validate
from helpers.run_file import Page, Run, as_json, load, load_conditions, save, write_whole
from helpers.settings import DATA, WORKSPACE, CourseError, Server
from helpers.stream_errors import shown
from helpers.streaming import Timeline

__all__ = [
    "RECORD_VARIABLE",
    "RUNS",
    "about",
    "finish",
    "load",
    "load_table",
    "main",
    "no_runs",
    "read_unfinished",
    "recording",
    "runs",
    "save_table",
    "start_if_asked",
    "thinks",
]

RECORD_VARIABLE = "PHONELLM_RECORD"
RUNS = DATA / "runs"


# --- recording --------------------------------------------------------------------------------------------


class _Recorder:
    """Appends what happens to one file, a line each, so that a crash loses at most half a line."""

    def __init__(self, path: Path, lesson: str, server: Server) -> None:
        about = conditions(server, lesson)
        self.path, self.clean, self.server = path, cleaner(server), server
        self.label = server.name or shown(server.base_url)  # as streaming labels its timelines
        self.start_ns = time.perf_counter_ns()
        self.lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("x", encoding="utf-8", buffering=1)  # 1: to the disk with every line
        self.write({"conditions": about})

    def write(self, entry: dict[str, Any]) -> None:
        with self.lock:
            self.file.write(as_json(cleaned(entry, self.clean)) + "\n")

    def timeline(self, timeline: Timeline) -> None:
        # A replayed answer is no new measurement; and what another server answered is not this run's.
        if timeline.origin == "measured" and timeline.server == self.label:
            self.write({"timeline": _moved(timeline, -self.start_ns).to_dict()})

    def page(self, server: Server, path: str, text: str) -> None:
        if server.origin == "measured" and server.base_url == self.server.base_url:
            self.write({"page": [path, text, time.perf_counter_ns() - self.start_ns]})

    def listen(self) -> None:
        streaming.on_timeline.append(self.timeline)
        api.on_page.append(self.page)

    def close(self) -> None:
        streaming.on_timeline.remove(self.timeline)
        api.on_page.remove(self.page)
        self.file.close()


_started: _Recorder | None = None


def start_if_asked(server: Server) -> Path | None:
    """Record this process's requests from now on, if ``PHONELLM_RECORD`` says so.

    The variable names the lesson, such as ``05_measure_ttft``, and the file is made in
    ``workspace/runs/<lesson>/``; or it is a path ending in the lesson, for another folder. Called by
    :func:`helpers.engine.connect`; a second call in the same process changes nothing.

    Returns:
        The file that is written to, or None if nothing is recorded.

    Raises:
        CourseError: a replayed run cannot be recorded again.
    """
    global _started
    asked = os.environ.get(RECORD_VARIABLE, "").strip()
    if asked and _started is None:
        _started = _Recorder(_new_path(asked), Path(asked).name, _live(server))
        _started.listen()
    return _started.path if _started else None


@contextmanager
def recording(lesson: str, server: Server) -> Iterator[Path]:
    """Record what the block asks of the server; gives the file that is written to.

    Args:
        lesson: name of the run, or a path that ends in it, as in ``PHONELLM_RECORD``.
        server: a live server.

    Raises:
        CourseError: a replayed run cannot be recorded again.
    """
    recorder = _Recorder(_new_path(lesson), Path(lesson).name, _live(server))
    recorder.listen()
    try:
        yield recorder.path
    finally:
        recorder.close()


def _live(server: Server) -> Server:
    if server.origin != "measured":
        raise CourseError(
            "This server replays runs that were recorded earlier; what it says cannot be recorded again.\n"
            f"Use a live server, or type: unset {RECORD_VARIABLE}   and restart the kernel."
        )
    return server


def _folder(lesson: str) -> Path:
    """Where the unfinished runs of a lesson are."""
    _checked_name(Path(lesson).name)
    return Path(lesson).expanduser() if Path(lesson).name != lesson else WORKSPACE / "runs" / lesson


def _new_path(lesson: str) -> Path:
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    stem = f"{now}-{os.getpid()}"
    names = (f"{stem}{more}.jsonl" for more in ("", *(f"-{i}" for i in range(2, 100))))
    return next(path for name in names if not (path := _folder(lesson) / name).exists())


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise CourseError(
            f"{name!r} cannot be a file's name. Use letters, digits, _ and -, as in 05_measure."
        )
    return name


def _moved(timeline: Timeline, by_ns: int) -> Timeline:
    """The same timeline on another clock."""
    return replace(
        timeline,
        sent_ns=timeline.sent_ns + by_ns,
        ended_ns=timeline.ended_ns + by_ns,
        due_ns=None if timeline.due_ns is None else timeline.due_ns + by_ns,
        events=tuple(replace(event, at_ns=event.at_ns + by_ns) for event in timeline.events),
        origin="recorded",
    )


# --- the runs there are -----------------------------------------------------------------------------------


def runs(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """The conditions of each finished run, by lesson, without reading the whole files.

    Raises:
        CourseError: a file is damaged or of a newer format.
    """
    paths = sorted((folder or RUNS).glob("*.jsonl.gz"))
    return {path.name.removesuffix(".jsonl.gz"): load_conditions(path) for path in paths}


def about(folder: Path | None = None) -> dict[str, Any]:
    """What the recorded runs are runs of: ``model``, ``name`` (a label for legends, with the date) and
    ``birth_ms`` (see :func:`helpers.engine.birth`). Of runs of several servers, all are named.

    Raises:
        CourseError: there are no recorded runs.
    """
    found = sorted(runs(folder).values(), key=lambda run: run["date"])
    if not found:
        raise no_runs(folder)
    names = dict.fromkeys(run["server"]["name"] for run in found)
    dates = dict.fromkeys((found[0]["date"], found[-1]["date"]))
    births = [run["server"].get("birth_ms", []) for run in reversed(found)]
    return {
        "model": found[-1]["server"]["model"],
        "name": f"{' and '.join(names)}, {' to '.join(dates)}",
        "birth_ms": next((birth for birth in births if birth), []),
    }


def no_runs(folder: Path | None = None) -> CourseError:
    """The error to raise where a recorded run is needed and there is none."""
    place = (folder or RUNS).name
    return CourseError(
        f"There are no recorded runs in data/{place}/, so there is nothing to replay.\n"
        "They come with the repository; type: git status   to see whether they were deleted. Or use a live "
        "server: export PHONELLM_BASE_URL=http://HOST:8000/v1"
    )


# --- from what was appended to a finished run -------------------------------------------------------------


def read_unfinished(path: Path) -> Run:
    """Read a file that a recorder appended to; half a last line, left by a crash, is dropped.

    Raises:
        CourseError: there is no timed request in it.
    """
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    timelines = [Timeline.from_dict(entry["timeline"]) for entry in entries if "timeline" in entry]
    pages = [Page(*entry["page"]) for entry in entries if "page" in entry]
    if not timelines:
        raise CourseError(f"{path} holds no timed request. Run the lesson with {RECORD_VARIABLE} set.")
    timelines.sort(key=lambda timeline: timeline.sent_ns)
    return Run(entries[0]["conditions"], tuple(timelines), tuple(pages))


def finish(
    lesson: str,
    *,
    replace_old: bool = False,
    workload: str | None = None,
    source: Path | None = None,
    folder: Path | None = None,
) -> list[str]:
    """Make the file under ``data/runs/`` from what was recorded; returns what was done, a line each.

    Args:
        lesson: as in ``PHONELLM_RECORD``.
        replace_old: replace a finished run that is there already; a copy of it goes to ``workspace/runs/``.
        workload: a sentence on what was asked; by default it is made from the requests.
        source: the recorded file; by default the newest one.
        folder: instead of ``data/runs/``.

    Raises:
        CourseError: nothing was recorded, or there is a finished run and ``replace_old`` is not set.
    """
    recordings = sorted(_folder(lesson).glob("*.jsonl"))
    if not recordings and source is None:
        raise CourseError(
            f"Nothing was recorded for {lesson} ({_folder(lesson)} has no .jsonl file).\n"
            f"Set {RECORD_VARIABLE}={lesson}, run the lesson on a live server, then type this again."
        )
    source = source or recordings[-1]
    run = read_unfinished(source)
    failed = sum(timeline.error is not None for timeline in run.timelines)
    counts = {"requests": len(run.timelines), "failed": failed, "pages": len(run.pages)}
    about_it = {"workload": cleaner()(workload) if workload else _workload(run)} | counts
    run = replace(run, conditions=run.conditions | about_it)
    name = Path(lesson).name
    target = (folder or RUNS) / f"{name}.jsonl.gz"
    said = [f"from {source.name}, the newest of {len(recordings)}: {_summary(run.conditions)}"]
    if target.exists():
        old = target.read_bytes()
        was = f"{target.name} as it is: {_summary(runs(target.parent)[name])}, {len(old):,} bytes"
        if not replace_old:
            raise CourseError(
                "\n".join([*said, was]) + "\nNothing was changed. To replace it type: "
                f"python -m helpers.recorded finish {lesson} --replace"
            )
        kept = _folder(lesson) / f"replaced-{datetime.datetime.now():%Y%m%d-%H%M%S}.jsonl.gz"
        write_whole(kept, old)
        said += [was, f"that one was replaced; a copy is {kept}"]
    save(run, target)
    return [*said, f"wrote {target}, {target.stat().st_size:,} bytes"]


def _summary(about_run: dict[str, Any]) -> str:
    asked = f"{about_run['requests']} requests ({about_run['failed']} failed), {about_run['pages']} pages"
    return f"{asked}, {about_run['server']['name']}, {about_run['date']}"


def _workload(run: Run) -> str:
    asked = [timeline.request for timeline in run.timelines]
    limits = [request["max_tokens"] for request in asked if "max_tokens" in request]
    sizes = [len(as_json(request.get("messages", []))) for request in asked]
    edges = [(t.sent_ns, 1) for t in run.timelines] + [(t.ended_ns, -1) for t in run.timelines]
    at_once = max(accumulate(step for _, step in sorted(edges)))
    return (
        f"{len(asked)} chat requests, at most {at_once} at once; messages of {_span(sizes)} characters as "
        f"JSON, max_tokens {_span(limits)}; {sum(thinks(request) for request in asked)} with thinking, "
        f"{sum(bool(request.get('tools')) for request in asked)} with tools"
    )


def _span(values: Iterable[int]) -> str:
    low, high = min(values := list(values), default=0), max(values, default=0)
    return f"{low}" if low == high else f"{low} to {high}"


def thinks(request: dict[str, Any]) -> bool:
    """Whether a request has thinking on; it is, unless switched off."""
    return (request.get("chat_template_kwargs") or {}).get("enable_thinking", True) is not False


# --- tables -----------------------------------------------------------------------------------------------


def save_table(
    name: str,
    frame: pd.DataFrame,
    *,
    server: Server,
    workload: str,
    replace_old: bool = False,
    folder: Path | None = None,
) -> Path:
    """Keep a table of results, such as those of a benchmark tool, as ``data/runs/<name>.csv`` with its
    conditions beside it in ``<name>.json``. Returns the path of the CSV file.

    Args:
        name: file name without ending.
        frame: a table that passes :func:`helpers.origins.validate`; ``measured`` becomes ``recorded``.
        server: what was measured, for the conditions.
        workload: a sentence on what was asked of it.
        replace_old: replace a table that is there already.
        folder: instead of ``data/runs/``.

    Raises:
        CourseError: the table does not say where its rows come from, there is one of this name already, or
            the server only replays.
    """
    target = (folder or RUNS) / f"{_checked_name(name)}.csv"
    if target.exists() and not replace_old:
        raise CourseError(f"{target} is there already. To replace it pass replace_old=True.")
    kept = validate(frame, used_by="recorded.save_table").copy()
    kept["origin"] = kept["origin"].replace("measured", "recorded")
    clean = cleaner(server)
    about_it = conditions(_live(server), name) | {"workload": clean(workload), "rows": len(kept)}
    text = clean(kept.to_csv(index=False, lineterminator="\n"))
    write_whole(target, text.encode())
    write_whole(target.with_suffix(".json"), (json.dumps(about_it, indent=1) + "\n").encode())
    return target


def load_table(name: str, *, folder: Path | None = None) -> pd.DataFrame:
    """A table kept by :func:`save_table`, with its conditions in ``frame.attrs["conditions"]``. What was not
    observed is NaN, in columns of text too.

    Raises:
        CourseError: there is no such table, or it does not say where its rows come from.
    """
    path = (folder or RUNS) / f"{_checked_name(name)}.csv"
    try:
        frame = validate(pd.read_csv(path, encoding="utf-8"), used_by="recorded.load_table")
        frame.attrs["conditions"] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        there = ", ".join(sorted(found.stem for found in path.parent.glob("*.csv"))) or "none"
        raise CourseError(
            f"The recorded table {name} cannot be read: {problem}\nThere are: {there}."
        ) from problem
    return frame


def main(words: list[str]) -> int:
    """``python -m helpers.recorded [finish LESSON ...]``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.recorded", description="Recorded runs.")
    actions = parser.add_subparsers(dest="action")
    actions.add_parser("list", help="the runs there are")
    make = actions.add_parser("finish", help=f"make a run's file from what {RECORD_VARIABLE} recorded")
    make.add_argument("lesson")
    make.add_argument("--replace", action="store_true", help="replace the finished run that is there")
    make.add_argument("--workload", help="a sentence on what was asked")
    make.add_argument("--from", dest="source", type=Path, help="the recorded file; by default the newest")
    options = parser.parse_args(words)
    try:
        if options.action == "finish":
            said = finish(
                options.lesson,
                replace_old=options.replace,
                workload=options.workload,
                source=options.source,
            )
        else:
            said = [f"{lesson}: {_summary(run)}" for lesson, run in runs().items()] or ["no recorded runs"]
            waiting = sorted((WORKSPACE / "runs").glob("*/*.jsonl"))
            said += [f"recorded, maybe not finished: {path.relative_to(WORKSPACE)}" for path in waiting]
        print("\n".join(said))
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
