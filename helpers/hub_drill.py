"""A download that is killed in the middle, on purpose, and what the next run has to fetch.

The download runs in a process of its own, from the practice hub, which holds back the rest of one file. Then
the process is killed outright (SIGKILL: like a power cut, or a memory that is full; no program can prepare
for it).
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from helpers import (
    hub,
    hub_cache,
    hub_client,
    hub_fetch,
    machine,
    practice_hub,
    practice_repository,
    recorded,
)
from helpers.hub_listing import Listing
from helpers.practice_hub import PracticeHub
from helpers.run_file import write_whole
from helpers.settings import REPO, CourseError

COURSE = "hub.download"
CLIENT = "snapshot_download"
RECORDED = "02-second-run"
WITHIN_S = 60.0  # starting Python and importing takes a few seconds; a busy machine needs more


@dataclass(frozen=True)
class Broken:
    """What a killed download left behind.

    Attributes:
        way: :data:`COURSE` or :data:`CLIENT`.
        sent_bytes: what the hub had sent it.
        whole_bytes: of that, in files that are whole.
        part_bytes: of that, in files that are not.
    """

    way: str
    sent_bytes: int
    whole_bytes: int
    part_bytes: int


def break_off(
    practice: PracticeHub,
    cache: Path,
    *,
    way: str = COURSE,
    file: str = practice_repository.SHARDS[-1],
    after_bytes: int = 2_000_000,
) -> Broken:
    """Begin a download of the practice repository, and kill it in the middle of a file.

    What an earlier run left of that repository in the folder is deleted first, so a cell can be run again.

    Args:
        practice: the hub.
        cache: a cache folder.
        way: who downloads: :data:`COURSE` or :data:`CLIENT`.
        file: the file in whose middle it is killed; all others are whole by then.
        after_bytes: how much of it has come.

    Raises:
        CourseError: the download ended or hung before it got there.
    """
    of = hub.listing(practice.repo, None, endpoint=practice.endpoint)
    shutil.rmtree(hub_cache.repo_folder(of.repo, cache), ignore_errors=True)
    practice.forget()
    practice.fail("pause", file=file, after_bytes=after_bytes)
    environment = {
        name: value for name, value in os.environ.items() if name not in hub_client.OFFLINE_VARIABLES
    }
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "helpers.hub_drill", way, practice.endpoint, str(cache)],
        cwd=REPO,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wanted = after_bytes if way == COURSE else 0  # the client keeps its first 10 MiB in memory
        came = _comes_to_it(child, of, cache, file, wanted, practice)
    finally:
        child.kill()
        said = (child.communicate()[1] or "").strip().splitlines()
        practice.mend()
    if not came:
        raise CourseError(
            "The practice download ended before it could be broken off"
            f" ({said[-1] if said else 'it said nothing'}).\nRun this cell again."
        )
    whole = sum(row["bytes"] for row in of.files.to_dict("records") if hub_cache.is_there(of, row, cache))
    part = int(hub_cache.unfinished(of.repo, cache)["bytes"].sum())
    return Broken(way, practice.sent_bytes(), whole, part)


def _comes_to_it(
    child: subprocess.Popen, of: Listing, cache: Path, file: str, wanted: int, practice: PracticeHub
) -> bool:
    """Wait until the file is held back, what was sent of it is on the disk, and all others are whole."""
    deadline = time.monotonic() + WITHIN_S
    rows = of.files.set_index("file", drop=False)
    others = rows.drop(index=file).to_dict("records")
    blobs = hub_cache.repo_folder(of.repo, cache) / "blobs"
    while time.monotonic() < deadline and child.poll() is None:
        have = hub_fetch.part_bytes(blobs, rows.loc[file, "checksum"], int(rows.loc[file, "bytes"]))
        held = practice.paused.wait(0.02) and have >= wanted
        if held and all(hub_cache.is_there(of, row, cache) for row in others):
            return True
        time.sleep(0.02)  # a foreign process's files tell nobody when they change
    return False


def second_run(practice: PracticeHub, cache: Path, way: str = COURSE) -> int:
    """Run the download again, in this process, and return how many bytes the hub sent for it."""
    practice.forget()
    run(way, practice.endpoint, cache)
    return practice.sent_bytes()


def run(way: str, endpoint: str, cache: Path) -> None:
    """Download the practice repository in one of the two ways."""
    if way == COURSE:
        hub.download(
            practice_repository.REPO,
            None,
            yes=True,
            endpoint=endpoint,
            cache=cache,
            progress=lambda done, total: None,
        )
        return
    with hub_client.allowed(endpoint):
        hub_client.library().snapshot_download(
            practice_repository.REPO,
            endpoint=endpoint,
            token=False,
            cache_dir=cache,
            tqdm_class=hub_client.quiet_bar(),
        )


def compare(practice: PracticeHub, folder: Path) -> pd.DataFrame:
    """Break both ways off at the same place and let both finish.

    Args:
        practice: the hub.
        folder: a folder for two caches.

    Returns:
        One row a way and part: ``way``; ``part``: ``whole files kept``, ``part of a file kept``, ``fetched by
        the second run``; ``bytes``; ``origin``; ``n``, the number of runs.
    """
    rows = []
    for way in (CLIENT, COURSE):
        cache = folder / way
        total = hub.listing(practice.repo, None, endpoint=practice.endpoint).bytes
        broken = break_off(practice, cache, way=way)
        fetched = second_run(practice, cache, way)
        kept = {
            "whole files kept": broken.whole_bytes,
            "part of a file kept": total - broken.whole_bytes - fetched,
            "fetched by the second run": fetched,
        }
        rows += [(way, part, count, "measured", 1) for part, count in kept.items()]
    return pd.DataFrame(rows, columns=["way", "part", "bytes", "origin", "n"])


def recorded_run() -> pd.DataFrame:
    """What :func:`compare` gave when we recorded it, and which ``server`` sent."""
    frame = recorded.load_table(RECORDED)
    about = frame.attrs["conditions"]
    return frame.assign(server=f"a practice hub, {about['date']}")


def record(path: Path = recorded.RUNS / f"{RECORDED}.csv") -> None:
    """Run :func:`compare` and keep its table, with its conditions beside it."""
    with tempfile.TemporaryDirectory() as folder:
        practice = practice_hub.start()
        frame = compare(practice, Path(folder)).assign(origin="recorded")
    about = {
        "lesson": RECORDED,
        "date": datetime.date.today().isoformat(),
        "machine": {"processor": machine.processor(), "cores": os.cpu_count()},
        "os": machine.system(),
        "python": platform.python_version(),
        "versions": {"huggingface_hub": version("huggingface_hub")},
        "workload": "a practice repository from a hub on the same machine; the download is killed in its "
        "last file and run once more, in two ways",
        "rows": len(frame),
    }
    write_whole(path, frame.to_csv(index=False, lineterminator="\n").encode())
    write_whole(path.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    else:
        run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
