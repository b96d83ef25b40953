"""Where a figure comes from, found out by looking: which files of ``data/`` were read while it was made.

:func:`watching` notes every file that Python opens below ``data/`` (an audit hook, as in PEP 578); so what a
figure's note says of its files and runs is what happened, and nobody has to keep it up to date. The caches of
the course's own modules are emptied first: what was read earlier would otherwise be used unseen.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.run_file import load_conditions
from helpers.settings import DATA, REPO, CourseError

RUNS = DATA / "runs"
_watchers: list[set[Path]] = []
_hooked: list[bool] = []


@dataclass(frozen=True)
class Source:
    """One file of the repository that a figure was made from.

    Attributes:
        file: its path in the repository.
        sha256: of its bytes.
        says: what is in it, with its dates; of a run: machine, server, date and sample count.
    """

    file: str
    sha256: str
    says: str


@contextmanager
def watching() -> Iterator[set[Path]]:
    """A ``with`` block that gives a set, to which the files are added that are read below ``data/``."""
    if not _hooked:
        sys.addaudithook(_note)  # such a hook stays until the process ends
        _hooked.append(True)
    _forget()
    seen: set[Path] = set()
    _watchers.append(seen)
    try:
        yield seen
    finally:
        _watchers.remove(seen)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watchers and isinstance(arguments[0], str | Path):
        path = Path(arguments[0])
        if path.is_relative_to(DATA):
            for seen in _watchers:
                seen.add(path)


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("helpers."):
            for value in list(vars(module).values()):
                if callable(value) and hasattr(value, "cache_clear"):
                    value.cache_clear()


def sources(paths: set[Path]) -> list[Source]:
    """What is in each of these files, sorted by path. A table of a run and its conditions are one entry."""
    found = []
    for path in sorted(path for path in paths if path.is_file()):
        if path.suffix == ".json" and path.with_suffix(".csv") in paths:
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found.append(Source(path.relative_to(REPO).as_posix(), digest, _says(path)))
    return found


def _says(path: Path) -> str:
    if path.parent == RUNS:
        return run_sentence(_conditions(path))
    if path.suffix == ".csv":
        return _rows(path)
    if (beside := path.with_name("origins.csv")).exists():
        for row in _table(beside):
            if path.stem in row.values():
                return ", ".join(row[name] for name in ("source", "date") if row.get(name))
    return "no date of its own"


def _conditions(path: Path) -> dict[str, Any]:
    try:
        if path.name.endswith(".jsonl.gz"):
            return load_conditions(path)
        kept = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if not isinstance(kept, dict):
            raise ValueError("its conditions are no object")
    except (OSError, ValueError) as error:
        raise CourseError(f"The conditions of the run {path.name} cannot be read ({error}).") from error
    about = kept.get("conditions", {})
    return {name: value for name, value in (kept | about).items() if name != "conditions"}


def run_sentence(about: dict[str, Any]) -> str:
    """A run's conditions in a line: date, server or tool, machine, sample count, and what was asked.

    Args:
        about: as :func:`helpers.conditions.conditions` makes them, or as the tables ``07-b200-*`` keep them.
    """
    server, machine = about.get("server") or {}, about.get("machine") or {}
    tool = about.get("tool") or ", ".join(f"{name} {of}" for name, of in about.get("versions", {}).items())
    parts = [f"run of {about['date']}" if about.get("date") else "run of an unknown date"]
    parts += [f"on {server['name']}"] if server.get("name") else [f"by {tool}"] if tool else []
    units = (("processor", ""), ("cores", " cores"), ("memory_gib", " GiB"))
    where = [f"{machine[name]}{unit}" for name, unit in units if machine.get(name)]
    parts += [*where, about["os"]] if about.get("os") else where
    for name in ("requests", "failed", "rows"):
        if isinstance(about.get(name), int):
            parts.append(f"{about[name]:,} {name}")
    said = ", ".join(parts)
    for name in ("workload", "note"):
        said += f"; {about[name]}" if about.get(name) else ""
    return said


def _rows(path: Path) -> str:
    rows = _table(path)
    dates = sorted({row["date"] for row in rows if row.get("date")})
    count = f"{len(rows):,} rows"
    if not dates:
        return f"{count}, without dates"
    return f"{count}, dated {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published_sources(frame: pd.DataFrame | None) -> list[str]:
    """Who said what stands in a figure's table, and when: ``published: model card, 2026-11-20``, each once.

    Rows of another origin that name a source (what a modelled one was computed from) are listed with theirs.
    """
    if frame is None or "source" not in frame.columns or "origin" not in frame.columns:
        return []
    named = frame[frame["source"].notna() & (frame["source"].astype(str).str.strip() != "")]
    dates = named["date"] if "date" in named.columns else pd.Series("", index=named.index)
    lines = [
        f"{origin}: {source}" + (f", {date}" if isinstance(date, str) and date else "")
        for origin, source, date in zip(named["origin"], named["source"], dates, strict=True)
    ]
    return list(dict.fromkeys(lines))
