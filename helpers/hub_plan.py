"""What a download will take, before a byte of it is fetched: bytes, disk, minutes."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers import hub_cache, hub_client, hub_errors, hub_fetch
from helpers.hub_listing import Listing, Patterns, select
from helpers.settings import CourseError

SPARE_BYTES = 10**9  # what a download leaves free on the disk
SAMPLE_BYTES = 4 * 10**6  # what measuring the bandwidth fetches


def minutes(total_bytes: float, mbit_per_s: float) -> float:
    """Minutes to fetch so many bytes over a line of so many megabits (1,000,000 bits) a second.

    Raises:
        CourseError: the bandwidth is not above zero.
    """
    if not mbit_per_s > 0:
        raise CourseError(f"A bandwidth is more than zero, and this is {mbit_per_s}. Type it in Mbit/s.")
    return total_bytes * 8 / (mbit_per_s * 1e6) / 60


@dataclass(frozen=True)
class Plan:
    """What a download will take, before a byte of it is fetched.

    Attributes:
        of: the repository.
        files: its files that fit the patterns: the listing's columns, and with a live listing ``have_bytes``
            (on the disk already, also of unfinished files) and ``missing_bytes``.
        total_bytes, have_bytes, missing_bytes: their sums.
        unknown: how many files have no known length and are not in the sums.
        free_bytes: free space on the disk where the cache lies.
        cache: the cache folder.
        mbit_per_s: the bandwidth, or None.
        bandwidth_origin: where the bandwidth comes from: ``measured`` or ``typed in``.
    """

    of: Listing
    files: pd.DataFrame
    total_bytes: int
    have_bytes: int
    missing_bytes: int
    unknown: int
    free_bytes: int
    cache: Path
    mbit_per_s: float | None
    bandwidth_origin: str

    @property
    def fits(self) -> bool:
        """Whether the disk has room for it, with a gigabyte to spare."""
        return self.missing_bytes + SPARE_BYTES <= self.free_bytes

    @property
    def minutes(self) -> float | None:
        """Minutes at the bandwidth, if that is known."""
        return minutes(self.missing_bytes, self.mbit_per_s) if self.mbit_per_s else None

    def table(self) -> pd.DataFrame:
        """The plan as a table: ``what``, ``value``, ``origin`` of the value (``typed in`` for a
        bandwidth that nobody measured)."""
        who = "published"  # by the Hub just now, or earlier by others and kept in data/hub
        listed = "listed by the Hub" if self.of.live else "recorded in data/hub"
        count = len(self.files) if self.of.live else self.of.count
        rows = [
            (f"repository, {listed}", self.of.repo, ""),
            ("revision", self.of.revision or "not known", who),
            ("files", f"{count}" if count else "not known", who),
            ("together", size(self.total_bytes), who),
        ]
        if self.unknown:
            rows.append(("files without a known length, not counted", f"{self.unknown}", who))
        rows += [
            ("on this disk already", size(self.have_bytes), "measured"),
            ("still to fetch", size(self.missing_bytes), "modelled"),
            ("free on the disk", size(self.free_bytes), "measured"),
            ("fits, with 1 GB to spare", "yes" if self.fits else "no", "modelled"),
        ]
        if self.mbit_per_s:
            rows.append(("bandwidth", f"{self.mbit_per_s:,.0f} Mbit/s", self.bandwidth_origin))
            rows.append(("minutes at that bandwidth", f"{self.minutes:,.1f}", "modelled"))
        return pd.DataFrame(rows, columns=["what", "value", "origin"])


def size(count: float) -> str:
    """Bytes for people, in powers of ten as the Hub and disks count them: ``63.17 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:,.2f} {unit}"
    return f"{count:,.0f} bytes"


def plan(
    of: Listing,
    *,
    allow: Patterns = None,
    ignore: Patterns = None,
    mbit_per_s: float | None = None,
    measured: bool = False,
    cache: Path | None = None,
) -> Plan:
    """What fetching a repository will take: files, bytes, disk, minutes. Fetches nothing.

    Args:
        of: the repository, from :func:`listing`, :func:`look` or :func:`recorded`.
        allow, ignore: patterns of file names, see :func:`select`.
        mbit_per_s: bandwidth in megabits a second.
        measured: the bandwidth was measured, not typed in.
        cache: the cache folder; without it :func:`hub_client.cache_folder`.

    Raises:
        CourseError: no file fits the patterns.
    """
    cache = cache or hub_client.cache_folder()
    files = select(of.files, allow, ignore).reset_index(drop=True)
    if files.empty:
        raise CourseError(
            f"No file of {of.repo} fits these patterns (allow {allow!r}, ignore {ignore!r}).\n"
            'Look at the names: listing.files["file"]'
        )
    whole = len(files) == len(of.files)
    total = of.bytes if whole else int(files["bytes"].sum())
    unknown = 0 if whole else int(files.loc[files["bytes"].isna(), "files"].sum())
    have = 0
    if of.live:
        files["have_bytes"] = [_have(of, row, cache) for row in files.to_dict("records")]
        files["missing_bytes"] = files["bytes"] - files["have_bytes"]
        have = int(files["have_bytes"].sum())
    elif of.revision and hub_cache.local(of.repo, of.revision, cache):
        have = total
    origin = "" if mbit_per_s is None else "measured" if measured else "typed in"
    free = _free_bytes(cache)
    return Plan(of, files, total, have, total - have, unknown, free, cache, mbit_per_s, origin)


def _have(of: Listing, row: dict, cache: Path) -> int:
    """Bytes of a file that are on the disk, whether it is finished or not."""
    length = int(row["bytes"])
    if hub_cache.is_there(of, row, cache):
        return length
    blobs = hub_cache.repo_folder(of.repo, cache) / "blobs"
    return min(hub_fetch.part_bytes(blobs, row["checksum"], length), length)


def _free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder that may not be there yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def measure_mbit_per_s(
    of: Listing, *, endpoint: str | None = None, token: str | bool | None = None
) -> float | None:
    """Megabits a second at which this machine gets the beginning of the repository's largest file: at most
    :data:`SAMPLE_BYTES`, kept nowhere. A new connection starts slowly, so a long download is rather faster.
    None for a recorded listing, and where the Hub does not answer well.
    """
    if not of.live:
        return None
    library = hub_client.library()
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    address = endpoint or hub_client.endpoint()
    largest = of.files.loc[of.files["bytes"].idxmax(), "file"]
    url = library.hf_hub_url(of.repo, largest, revision=of.revision, endpoint=address)
    headers = build_hf_headers(token=hub_client.token_for(address, token))
    headers |= {"Range": f"bytes=0-{SAMPLE_BYTES - 1}", "Accept-Encoding": "identity"}
    came = 0
    try:
        with (
            hub_client.allowed(address),
            hub_errors.explained(of.repo, of.revision, folder=hub_client.cache_folder()),
            get_session().stream("GET", url, headers=headers, timeout=10) as response,
        ):
            hf_raise_for_status(response)
            begun = time.perf_counter()
            for piece in response.iter_raw():
                came += len(piece)
                if came >= SAMPLE_BYTES:
                    break
    except hub_errors.HubError:
        return None
    return came * 8 / 1e6 / (time.perf_counter() - begun) if came else None
