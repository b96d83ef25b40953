"""One large file from the Hub into the client's cache, resumed to the byte, and checked before it counts.

Why not leave this to the client? Within one run it resumes by itself. But each run writes to a new temporary
file (``<etag>.<random>.incomplete``): when the process ends in the middle, the next one begins every
unfinished file at its first byte (huggingface_hub 2.4.0, ``_download_to_tmp_and_move``). A shard here has
almost 5 GB, and the client fetches up to eight at once. And over plain HTTP the client compares lengths, not
checksums.

So the course writes to one file that keeps its name, ``<etag>.course.incomplete`` beside the client's blobs,
asks for the rest with a ``Range`` header, and moves it to its place only after its SHA-256 is right. The rest
is the client's: address, headers, token, cache layout.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from helpers import hub_client, hub_errors
from helpers.settings import CourseError

PART = ".course.incomplete"
ATTEMPTS = 5  # without a single new byte, one after the other
LONGEST_WAIT_S = 30  # a hub that asks for a longer wait gets the learner's attention instead


@dataclass(frozen=True)
class Wanted:
    """A large file to fetch.

    Attributes:
        file: its name in the repository.
        bytes: its length.
        sha256: its SHA-256, as the repository lists it.
        url: where the Hub has it (``.../resolve/...``).
    """

    file: str
    bytes: int
    sha256: str
    url: str


class NotTheFile(hub_errors.HubError):
    """The store sent something, and it is not the file or not the rest of it."""


class Stopped(Exception):
    """The download was told to stop; what has come stays."""


def part_path(blobs: Path, sha256: str) -> Path:
    """Where the unfinished file lies."""
    return blobs / f"{sha256}{PART}"


def part_bytes(blobs: Path, sha256: str, length: int) -> int:
    """How much of a file has come so far, whether finished or not."""
    if (blobs / sha256).exists():
        return length
    try:
        return part_path(blobs, sha256).stat().st_size
    except FileNotFoundError:
        return 0


def fetch(
    wanted: Wanted,
    blobs: Path,
    lock: Path,
    *,
    headers: dict[str, str],
    came: Callable[[int], None],
    stop: threading.Event,
    wait_s: float = 1.0,
) -> Path:
    """Fetch what is missing of a file and put it among the blobs.

    Args:
        wanted: the file.
        blobs: the repository's ``blobs`` folder in the client's cache.
        lock: the client's lock file for this blob, so that it and we do not fetch it at the same time. A
            process that was killed does not hold it.
        headers: the client's headers, with the token if there is one.
        came: called with the number of new bytes on the disk; negative when something was thrown away.
        stop: stop soon once it is set.
        wait_s: the first pause after a failure; it doubles each time.

    Returns:
        The blob's path.

    Raises:
        Stopped: ``stop`` was set.
        hub_errors.WrongChecksum: it came wrong twice. The broken part is deleted, nothing else.
        NotTheFile: the store keeps sending something else, such as the page of a network that wants a login.
            The part stays as it is.
        hub_errors.TooManyRequests: the hub asks for a longer wait than :data:`LONGEST_WAIT_S`.
        CourseError: another process is fetching the same file.
        Exception: what the client raises; see :mod:`helpers.hub_errors`.
    """
    blob, part = blobs / wanted.sha256, part_path(blobs, wanted.sha256)
    for folder in (blobs, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=1):
            for last in (False, True):
                if blob.exists():
                    return blob
                _fill(wanted, part, headers, came, stop, wait_s)
                if sha256_of(part, stop) == wanted.sha256:
                    os.replace(part, blob)
                    return blob
                part.unlink()
                came(-wanted.bytes)
                if last:
                    raise hub_errors.WrongChecksum(
                        f"{wanted.file} came twice with the right length and the wrong content: its "
                        f"SHA-256 is not {wanted.sha256[:12]}…, which the repository lists.\nThe broken file "
                        "was deleted, and only it. Something on the way changes what you get (a proxy, a "
                        "faulty disk or memory): try another network, then run this cell again."
                    )
    except Timeout as error:
        raise CourseError(
            f"Another program is fetching {wanted.file} into the same folder at this moment.\nWait until "
            "it is done (or stop it), then run this cell again."
        ) from error
    raise AssertionError("unreachable")


def sha256_of(path: Path, stop: threading.Event | None = None) -> str:
    """SHA-256 of a file's content, in pieces of 8 MiB.

    Raises:
        Stopped: ``stop`` was set meanwhile.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(8 * 2**20):
            digest.update(piece)
            if stop is not None and stop.is_set():
                raise Stopped
    return digest.hexdigest()


def _fill(
    wanted: Wanted,
    part: Path,
    headers: dict[str, str],
    came: Callable[[int], None],
    stop: threading.Event,
    wait_s: float,
) -> None:
    """Append to the part until it has its length, whatever the connection does meanwhile."""
    http = hub_client.http()
    errors = hub_client.library().errors
    failures = 0
    # Unbuffered, so that what has come is on its way to the disk when the process is killed.
    with open(part, "ab", buffering=0) as file:
        if _length(file) > wanted.bytes:  # nothing that we wrote: it counted as whole and is worth nothing
            file.truncate(0)
            came(-wanted.bytes)
        while (have := _length(file)) < wanted.bytes:
            try:
                _get_rest(wanted, file, have, headers, came, stop)
                failures = 0
            except (http.TransportError, errors.HfHubHTTPError, NotTheFile) as error:
                failures = 1 if _length(file) > have else failures + 1
                pause_s = wait_s * 2 ** (failures - 1)
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status is not None and status not in (408, 429) and status < 500:
                    raise
                if status is not None:
                    pause_s = max(pause_s, hub_errors.wait_asked_s(error.response.headers) or 0)
                if failures >= ATTEMPTS or pause_s > LONGEST_WAIT_S:
                    raise
                if stop.wait(pause_s):
                    raise Stopped from error


def _get_rest(
    wanted: Wanted,
    file: BinaryIO,
    have: int,
    headers: dict[str, str],
    came: Callable[[int], None],
    stop: threading.Event,
) -> None:
    """One request for what is missing. The address is asked for anew each time: where it redirects to is
    signed and ends after a while."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    ask = headers | {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with get_session().stream("GET", wanted.url, headers=ask, timeout=10) as response:
        hf_raise_for_status(response)
        _check_answer(wanted, have, response.status_code, response.headers)
        if have and response.status_code != 206:  # the server sends all of it anyway
            file.truncate(0)
            came(-have)
        for piece in response.iter_raw():
            if (length := _length(file)) + len(piece) > wanted.bytes:
                begun_at = have if response.status_code == 206 else 0
                file.truncate(
                    begun_at
                )  # what came before the end of the file is as doubtful as what came after
                came(begun_at - length)
                raise _something_else(wanted, f"more than {wanted.bytes:,} bytes")
            _write(file, piece)
            came(len(piece))
            if stop.is_set():
                raise Stopped
    if (length := _length(file)) < wanted.bytes:  # an end, and no error: it never said how much it would send
        raise _something_else(wanted, f"an end after {length:,} of {wanted.bytes:,} bytes")


def _check_answer(wanted: Wanted, have: int, status: int, headers: Mapping[str, str]) -> None:
    """Before a byte is written, and before the part is touched: can this answer be the file, or the rest?"""
    kind = headers.get("Content-Type", "no type")
    if status not in (200, 206):
        raise _something_else(wanted, f"the status {status}")
    due = wanted.bytes - (have if status == 206 else 0)
    length = headers.get("Content-Length", "")
    if length.isdecimal() and int(length) != due:
        raise _something_else(wanted, f"{int(length):,} bytes ({kind}) in place of {due:,}")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise _something_else(wanted, f"a packed file ({headers['Content-Encoding']})")
    if status == 206 and not headers.get("Content-Range", f"bytes {have}-").startswith(f"bytes {have}-"):
        raise _something_else(wanted, f"another piece ({headers['Content-Range']})")


def _something_else(wanted: Wanted, what: str) -> NotTheFile:
    return NotTheFile(
        f"What came for {wanted.file} is not that file: {what}.\n{hub_errors.LOGIN_PAGE} {hub_errors.AGAIN}"
    )


def _length(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _write(file: BinaryIO, piece: bytes) -> None:
    """All of it: an unbuffered write may take less, as when the disk is just about full."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]
