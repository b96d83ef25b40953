"""The file of a recorded run: what a run is, and how it is written and read.

A run is one file, ``data/runs/<lesson>.jsonl.gz``: a line of conditions (machine, server, flags, workload),
then each request's timeline and each page that was read, in the order of their times. ``data/runs/README.md``
describes it for readers. :mod:`helpers.recorded` makes such files, :mod:`helpers.replay` plays them.
"""

from __future__ import annotations

import difflib
import gzip
import io
import json
import os
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from helpers.settings import CourseError
from helpers.streaming import Timeline

FORMAT = 1


@dataclass(frozen=True)
class Page:
    """One page that was read from the server, such as ``/metrics``.

    Attributes:
        path: its path.
        text: what the server answered.
        at_ns: when, in nanoseconds after the run began.
    """

    path: str
    text: str
    at_ns: int


@dataclass(frozen=True)
class Run:
    """One recorded run. All times count from its beginning, in whole microseconds given as nanoseconds.

    Attributes:
        conditions: under what it was recorded: ``lesson``, ``date``, ``machine``, ``os``, ``python``,
            ``server``, ``workload``, ``requests``, ``failed``, ``pages``; see ``data/runs/README.md``.
        timelines: the requests, in the order in which they were sent; their ``origin`` is ``recorded``.
        pages: the pages read, in order.
    """

    conditions: dict[str, Any]
    timelines: tuple[Timeline, ...]
    pages: tuple[Page, ...]


def save(run: Run, path: Path) -> None:
    """Write a run's file: whole or not at all, and the same bytes for the same run."""
    entries: list[tuple[int, dict[str, Any]]] = [(t.sent_ns, {"timeline": _pack(t)}) for t in run.timelines]
    before: dict[str, list[str]] = {}
    for page in run.pages:
        lines = page.text.split("\n")
        changes = _changes(before.get(page.path, []), lines)
        entries.append((page.at_ns, {"page": [page.path, _us(page.at_ns), changes]}))
        before[page.path] = lines
    entries.sort(key=lambda entry: entry[0])
    lines = [{"format": FORMAT} | run.conditions, *(entry for _, entry in entries)]
    text = "".join(as_json(line) + "\n" for line in lines)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    write_whole(path, packed.getvalue())


def load(path: Path) -> Run:
    """Read a run's file.

    Raises:
        CourseError: it is missing, damaged, or of a newer format.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            first, *entries = (json.loads(line) for line in file)
        about_run = _check_format(first, path)
        timelines, pages = [], []
        before: dict[str, list[str]] = {}
        for entry in entries:
            if "timeline" in entry:
                timelines.append(_unpack(entry["timeline"]))
            else:
                name, at_us, changes = entry["page"]
                before[name] = _changed(before.get(name, []), changes)
                pages.append(Page(name, "\n".join(before[name]), at_us * 1000))
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise _damaged(path, problem) from problem
    return Run(about_run, tuple(timelines), tuple(pages))


def load_conditions(path: Path) -> dict[str, Any]:
    """The conditions of a run's file, without reading the whole of it.

    Raises:
        CourseError: it is missing, damaged, or of a newer format.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return _check_format(json.loads(file.readline()), path)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as problem:
        raise _damaged(path, problem) from problem


def _check_format(first: dict[str, Any], path: Path) -> dict[str, Any]:
    if first["format"] > FORMAT:
        raise CourseError(f"{path.name} was recorded by a newer version of the course. Type: git pull")
    return {name: value for name, value in first.items() if name != "format"}


def _damaged(path: Path, problem: Exception) -> CourseError:
    return CourseError(
        f"The recorded run {path.name} cannot be read ({type(problem).__name__}: {problem}).\n"
        f"If it came with the repository, type: git checkout -- data/runs/{path.name}"
    )


def as_json(value: Any) -> str:
    """JSON on one line, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _us(ns: int) -> int:
    return round(ns / 1000)


def _pack(timeline: Timeline) -> dict[str, Any]:
    """A timeline as in :meth:`Timeline.to_dict`, made small: times in whole microseconds, and each event as
    ``[microseconds after the one before, payload]`` (the first: after sending). gzip does the rest: what
    chunks have in common it stores once, and an event takes about eight bytes."""
    plain = timeline.to_dict()
    for name in ("sent", "ended", "due", "connect"):
        ns = plain.pop(f"{name}_ns")
        plain[f"{name}_us"] = None if ns is None else _us(ns)
    times_us = [plain["sent_us"], *(_us(event.at_ns) for event in timeline.events)]
    gaps = [after - before for before, after in pairwise(times_us)]
    return plain | {"events": [[gap, event.data] for gap, event in zip(gaps, timeline.events, strict=True)]}


def _unpack(packed: dict[str, Any]) -> Timeline:
    plain = dict(packed)
    for name in ("sent", "ended", "due", "connect"):
        us = plain.pop(f"{name}_us")
        plain[f"{name}_ns"] = None if us is None else us * 1000
    times_us = list(accumulate((gap for gap, _ in packed["events"]), initial=packed["sent_us"]))[1:]
    events = [[at * 1000, data] for at, (_, data) in zip(times_us, packed["events"], strict=True)]
    return Timeline.from_dict(plain | {"events": events})


def _changes(before: list[str], after: list[str]) -> list[list[Any]]:
    """How one page became the next: ``[line number, lines taken out, lines put in]``, last change first, so
    that they can be applied one by one. A metrics page is long, and few of its lines change."""
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [[i, j - i, after[k:m]] for what, i, j, k, m in reversed(steps) if what != "equal"]


def _changed(before: list[str], changes: list[list[Any]]) -> list[str]:
    lines = list(before)
    for row, taken_out, put_in in changes:
        lines[row : row + taken_out] = put_in
    return lines


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
