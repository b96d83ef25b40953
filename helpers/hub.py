"""Download a model: plan first, fetch on an explicit yes, check before it counts.

:func:`plan` says what it will take; :func:`download` does it, with ``huggingface_hub`` and into its cache
layout. It can be stopped at any time, even killed, and goes on at the same byte. :func:`local` and
:func:`find` tell what is on this disk, whole, without a network.

The pieces: :mod:`helpers.hub_listing` (what is in the repository), :mod:`helpers.hub_plan` (what it takes),
:mod:`helpers.hub_cache` (what is on the disk), :mod:`helpers.hub_fetch` (one large file),
:mod:`helpers.hub_errors` (what went wrong, in words), :mod:`helpers.hub_client` (the client itself).
"""

from __future__ import annotations

import glob
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers import hub_cache, hub_client, hub_errors, hub_fetch
from helpers.hub_cache import find, layout, local, unfinished
from helpers.hub_client import cache_folder, reachable
from helpers.hub_listing import (
    NVFP4,
    REPO,
    REVISION,
    Listing,
    Patterns,
    by_kind,
    listing,
    look,
    recorded,
    select,
)
from helpers.hub_plan import SPARE_BYTES, Plan, measure_mbit_per_s, minutes, plan, size

__all__ = [
    "NVFP4",
    "REPO",
    "REVISION",
    "Listing",
    "Plan",
    "by_kind",
    "cache_folder",
    "download",
    "find",
    "layout",
    "listing",
    "local",
    "look",
    "measure_mbit_per_s",
    "minutes",
    "plan",
    "reachable",
    "recorded",
    "select",
    "unfinished",
    "verify",
]

WORKERS = 4  # files at a time


def verify(
    of: Listing, *, allow: Patterns = None, ignore: Patterns = None, cache: Path | None = None
) -> pd.DataFrame:
    """Compare the disk with the checksums that the repository lists; see :func:`hub_cache.check`."""
    return hub_cache.check(of, select(of.files, allow, ignore), cache)


def download(
    repo: str = REPO,
    revision: str | None = REVISION,
    *,
    yes: bool = False,
    allow: Patterns = None,
    ignore: Patterns = None,
    mbit_per_s: float | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache: Path | None = None,
    resume: bool = True,
    progress: Callable[[int, int], None] | None = None,
    wait_s: float = 1.0,
) -> Path | None:
    """Fetch a repository, or a part of it, and check every file. Without ``yes=True`` it shows the plan and
    what to type, and fetches nothing.

    Stop it when you like (the stop button, Ctrl-C, a power cut): the same call goes on where it stopped.

    Args:
        repo: ``owner/name``.
        revision: a commit; a branch or tag is resolved to its commit first. None for the branch ``main``.
        yes: really fetch.
        allow, ignore: patterns of file names, see :func:`select`.
        mbit_per_s: bandwidth, for the plan's minutes.
        endpoint, token: where to ask, and as whom; see :func:`listing`.
        cache: the cache folder; without it :func:`cache_folder`.
        resume: fetch large files over plain HTTP, resumed to the byte. False leaves them to the client, which
            uses Xet where it can: on a fast line that is quicker, and an interrupted file starts anew.
        progress: called with bytes that are on the disk and bytes in all; without it a progress bar.
        wait_s: first pause after a failure.

    Returns:
        The folder with the files, every one checked; None without ``yes``.

    Raises:
        HubError: what happened, why, and what to type. Whatever has come stays, save a file whose checksum is
            wrong.
        CourseError: no room on the disk, or another program fetches the same file.
    """
    of = listing(repo, revision, endpoint=endpoint, token=token)
    folder = Path(cache) if cache else cache_folder()
    with hub_errors.explained(of.repo, of.revision, folder=folder):
        planned = plan(of, allow=allow, ignore=ignore, mbit_per_s=mbit_per_s, cache=folder)
    if not yes:
        _show(planned, allow, ignore)
        return None
    if not planned.fits:
        need = planned.missing_bytes + SPARE_BYTES - planned.free_bytes
        raise hub_errors.DiskFull(
            f"{size(planned.missing_bytes)} are still to fetch, and only {size(planned.free_bytes)} are free "
            f"where they would go: {planned.cache}.\nFree at least {size(need)} there, or set HF_HOME to a "
            "folder on a larger disk and restart the kernel. Nothing was fetched."
        )
    address = endpoint or hub_client.endpoint()
    job = _Job(of, planned, address, hub_client.token_for(address, token), resume, wait_s)
    folder = hub_cache.snapshot(of.repo, of.revision or "", planned.cache)
    explained = hub_errors.explained(
        of.repo, of.revision, folder=planned.cache, missing_bytes=planned.missing_bytes
    )
    with hub_client.allowed(address), explained:
        fresh = set(planned.files["file"]) - hub_cache.checked_files(
            of.repo, of.revision or "", planned.cache
        )
        if fresh:
            with _bar(planned, progress) as came:
                checked = job.fetch(came)
            hub_cache.write_stamp(of, checked, planned.cache)
            _check(job, planned.files[planned.files["file"].isin(fresh - checked)])
    return folder


@dataclass(frozen=True)
class _Job:
    """One download: what, from where, and how."""

    of: Listing
    plan: Plan
    address: str
    token: str | bool | None
    resume: bool
    wait_s: float

    def fetch(self, came: Callable[[int], None]) -> set[str]:
        """Everything that is missing: small files by the client, large ones to the byte; then the links.
        Returns the names of those that have passed their check on the way."""
        from huggingface_hub.file_download import are_symlinks_supported

        files = self.plan.files
        # A part may have its full length and wait for its check only: it is not finished either.
        open_ = [not hub_cache.is_there(self.of, row, self.plan.cache) for row in files.to_dict("records")]
        # Where the cache can make no links, the client moves what it has fetched; ours it would copy.
        ours = self.resume and are_symlinks_supported(self.plan.cache)
        large = (files["algorithm"] == "sha256") & pd.Series(open_, index=files.index) & ours
        self.by_client(list(files.loc[~large, "file"]))
        came(int(files.loc[~large, "missing_bytes"].sum()))
        if large.any():
            self._large(files[large], came)
            self.by_client(list(files.loc[large, "file"]))
        return set(files.loc[large, "file"])

    def by_client(self, names: list[str]) -> None:
        """Let the client fetch these files. A blob that is there already it only links."""
        if names:
            hub_client.library().snapshot_download(
                self.of.repo,
                revision=self.of.revision,
                endpoint=self.address,
                token=self.token,
                cache_dir=self.plan.cache,
                allow_patterns=[glob.escape(name) for name in names],
                tqdm_class=hub_client.quiet_bar(),
                max_workers=WORKERS,
            )

    def _large(self, files: pd.DataFrame, came: Callable[[int], None]) -> None:
        library = hub_client.library()
        from huggingface_hub.utils import build_hf_headers

        headers = build_hf_headers(token=self.token)
        stop = threading.Event()
        blobs = hub_cache.repo_folder(self.of.repo, self.plan.cache) / "blobs"

        def one(row: dict) -> None:
            url = library.hf_hub_url(
                self.of.repo, row["file"], revision=self.of.revision, endpoint=self.address
            )
            wanted = hub_fetch.Wanted(row["file"], int(row["bytes"]), row["checksum"], url)
            lock = hub_cache.lock_path(self.of.repo, row["checksum"], self.plan.cache)
            hub_fetch.fetch(wanted, blobs, lock, headers=headers, came=came, stop=stop, wait_s=self.wait_s)

        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                jobs = [pool.submit(one, row) for row in files.to_dict("records")]
                wait(jobs, return_when=FIRST_EXCEPTION)
            finally:  # one failed, or the learner pressed stop: the others keep what they have and end soon
                stop.set()
                for job in jobs:
                    job.cancel()
        failed = [error for job in jobs if not job.cancelled() and (error := job.exception())]
        for error in sorted(failed, key=lambda error: isinstance(error, hub_fetch.Stopped)):
            raise error


def _check(job: _Job, rows: pd.DataFrame) -> None:
    """Check files; fetch a broken one again, once; then write the stamp."""
    cache = job.plan.cache
    if rows.empty:
        return
    for last in (False, True):
        found = hub_cache.check(job.of, rows, cache)
        hub_cache.write_stamp(job.of, found.loc[found["right"], "file"], cache)
        wrong = list(found.loc[~found["right"], "file"])
        if not wrong:
            return
        for name in wrong:
            hub_cache.remove_broken(job.of, name, cache)
        if last:
            raise hub_errors.WrongChecksum(
                f"The checksum of {', '.join(wrong)} is wrong, also after fetching again.\nThe broken "
                f"copy was deleted, and only that. {hub_errors.AGAIN}"
            )
        job.by_client(wrong)
        rows = rows[rows["file"].isin(wrong)]


@contextmanager
def _bar(planned: Plan, progress: Callable[[int, int], None] | None) -> Iterator[Callable[[int], None]]:
    """A function that is told of new bytes, from several threads, and passes the sum on or shows it."""
    from tqdm.auto import tqdm

    lock = threading.Lock()
    done = planned.have_bytes
    with tqdm(
        total=planned.total_bytes,
        initial=planned.have_bytes,
        unit="B",
        unit_scale=True,
        desc=planned.of.repo.rpartition("/")[2],
        disable=progress is not None,
    ) as bar:

        def came(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                bar.update(count)
                if progress:
                    progress(done, planned.total_bytes)

        yield came


def _show(planned: Plan, allow: Patterns, ignore: Patterns) -> None:
    """The plan, and the line that carries it out."""
    print(planned.table().to_string(index=False))
    words = [repr(planned.of.repo), repr(planned.of.revision)]
    words += [
        f"{name}={value!r}" for name, value in (("allow", allow), ("ignore", ignore)) if value is not None
    ]
    print("\nNothing was fetched. To fetch it, type:")
    print(f"  hub.download({', '.join(words)}, yes=True)")
