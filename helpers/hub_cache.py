"""The client's cache on the disk: where files lie, which are whole, and what they hash to.

    models--owner--name/
        blobs/<hash>             each file once, named by its own checksum
        snapshots/<commit>/...   the repository as it looked at that commit: links to the blobs
        refs/main                which commit a branch stood at when it was last asked
        .course/<commit>.json    ours: the stamp, written when every file has been checked

The name of a blob is what the Hub sends as its ETag: SHA-256 for a file in LFS, git's SHA-1 for any other. So
a file in this cache can be checked with no network at all. A file counts as fetched once it has passed that
check; a repository counts as complete once it has its stamp.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pandas as pd

from helpers import hub_client, hub_fetch
from helpers.hub_listing import REPO, REVISION, Listing

SMALL_BYTES = 64 * 2**20  # up to here a file is hashed each time it is looked for
ALGORITHMS = {40: "git-sha1", 64: "sha256"}  # by the number of digits


def repo_folder(repo: str, cache: Path | None = None) -> Path:
    """The folder of one repository in the cache."""
    return (cache or hub_client.cache_folder()) / f"models--{repo.replace('/', '--')}"


def snapshot(repo: str, commit: str, cache: Path | None = None) -> Path:
    """The folder that shows a repository as it was at a commit; it need not be there, or not all of it."""
    return repo_folder(repo, cache) / "snapshots" / commit


def lock_path(repo: str, etag: str, cache: Path | None = None) -> Path:
    """The client's lock file for one blob."""
    folder = repo_folder(repo, cache)
    return folder.parent / ".locks" / folder.name / f"{etag}.lock"


def checksum(path: Path, algorithm: str) -> str:
    """A file's checksum: ``sha256`` of its content, or ``git-sha1``, git's name for it."""
    if algorithm == "sha256":
        return hub_fetch.sha256_of(path)
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def is_there(of: Listing, row: dict, cache: Path | None = None) -> bool:
    """Whether a file of a listing (a row of its ``files``) is in its place, with or without its link; says
    nothing about its content."""
    blob = repo_folder(of.repo, cache) / "blobs" / row["checksum"]
    return blob.exists() or (snapshot(of.repo, of.revision or "", cache) / row["file"]).is_file()


def check(of: Listing, rows: pd.DataFrame, cache: Path | None = None) -> pd.DataFrame:
    """Compare files on the disk with a listing.

    Args:
        of: where they come from.
        rows: those of its ``files`` to check.
        cache: the cache folder.

    Returns:
        One row a file: ``file``, ``bytes`` (as listed), ``algorithm``, ``expected``, ``found`` (the checksum,
        or ``missing``), ``right``.
    """
    folder = snapshot(of.repo, of.revision or "", cache)
    found = []
    for row in rows.to_dict("records"):
        path = folder / row["file"]
        actual = checksum(path, row["algorithm"]) if path.is_file() else "missing"
        listed = (row["file"], row["bytes"], row["algorithm"], row["checksum"])
        found.append((*listed, actual, actual == row["checksum"]))
    return pd.DataFrame(found, columns=["file", "bytes", "algorithm", "expected", "found", "right"])


def remove_broken(of: Listing, file: str, cache: Path | None = None) -> None:
    """Delete one file whose checksum is wrong: its link, and the blob behind it. Nothing else.

    A blob that lies outside this repository's folder (a cache that shares blobs) is left alone.
    """
    link = snapshot(of.repo, of.revision or "", cache) / file
    blob = link.resolve()
    link.unlink(missing_ok=True)
    if blob.parent == (repo_folder(of.repo, cache) / "blobs").resolve():
        blob.unlink(missing_ok=True)


# --- the stamp ---------------------------------------------------------------------------------------------


def _stamp_path(repo: str, commit: str, cache: Path | None) -> Path:
    return repo_folder(repo, cache) / ".course" / f"{commit}.json"


def read_stamp(repo: str, commit: str, cache: Path | None = None) -> dict:
    """The stamp of a commit: ``files`` (name -> length, time of last change, checksum) and ``missing`` (names
    that were left out). Empty if there is none, or none that can be read."""
    try:
        stamp = json.loads(_stamp_path(repo, commit, cache).read_text(encoding="utf-8"))
        return stamp if isinstance(stamp.get("files"), dict) else {}
    except (OSError, ValueError, AttributeError):
        return {}


def write_stamp(of: Listing, files: Iterable[str], cache: Path | None = None) -> None:
    """Note that these files of a listing are on the disk and have passed their check, beside those that were
    noted before. The note appears whole or not at all."""
    commit = of.revision or ""
    noted = {
        name: about
        for name, about in read_stamp(of.repo, commit, cache).get("files", {}).items()
        if _unchanged(snapshot(of.repo, commit, cache) / name, about)
    }
    hashes = dict(zip(of.files["file"], of.files["checksum"], strict=True))
    for name in files:
        status = (snapshot(of.repo, commit, cache) / name).stat()
        noted[name] = {"bytes": status.st_size, "changed_ns": status.st_mtime_ns, "hash": hashes[name]}
    stamp = {
        "repo": of.repo,
        "revision": commit,
        "checked": "every file below, against the checksum that the repository lists",
        "files": dict(sorted(noted.items())),
        "missing": sorted(set(of.files["file"]) - set(noted)),
    }
    path = _stamp_path(of.repo, commit, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)


def _unchanged(path: Path, about: dict) -> bool:
    """Whether a file is as it was when it passed its check, by length and time of last change."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_size == about.get("bytes") and status.st_mtime_ns == about.get("changed_ns")


def checked_files(repo: str, commit: str, cache: Path | None = None) -> set[str]:
    """Names of the files that passed their check and have not changed since."""
    folder = snapshot(repo, commit, cache)
    noted = read_stamp(repo, commit, cache).get("files", {})
    return {name for name, about in noted.items() if _unchanged(folder / name, about)}


def local(repo: str = REPO, revision: str = REVISION, cache: Path | None = None) -> Path | None:
    """The folder with a complete copy of a repository at a commit, or None.

    Complete means: every file of the repository is there, has passed its checksum, and has not changed since.
    Asks no network. A copy that the client fetched by itself has no stamp; ``hub.download`` checks it and
    gives it one, and fetches only what is missing.
    """
    stamp = read_stamp(repo, revision, cache)
    whole = stamp and not stamp.get("missing") and checked_files(repo, revision, cache) == set(stamp["files"])
    return snapshot(repo, revision, cache) if whole else None


def find(repo: str, filename: str, revision: str | None = None, cache: Path | None = None) -> Path | None:
    """One file of a repository on this disk, if it is there whole; None if not. Asks no network.

    Args:
        repo: ``owner/name``.
        filename: its name in the repository.
        revision: a commit; without it PhoneLLM's pinned one, or else the one that ``main`` stood at, or else
            any that is on the disk, the newest first.
        cache: the cache folder; without it the course's and then the client's usual one.
    """
    folders = (
        [cache] if cache else [hub_client.cache_folder(), Path.home() / ".cache" / "huggingface" / "hub"]
    )
    for folder in dict.fromkeys(folders):
        with suppress(OSError, ValueError):  # a folder that may not be looked into, a name that is none
            for commit in _commits(repo, revision, folder):
                path = snapshot(repo, commit, folder) / filename
                if path.is_file() and _whole(path, repo, commit, filename, folder):
                    return path
    return None


def _commits(repo: str, revision: str | None, cache: Path) -> list[str]:
    if revision:
        return [revision]
    pinned = [REVISION] if repo == REPO else []
    folder = repo_folder(repo, cache)
    with suppress(OSError):  # no branch was ever asked for
        pinned.append((folder / "refs" / "main").read_text(encoding="utf-8").strip())
    here = sorted((folder / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    return list(dict.fromkeys([*pinned, *(path.name for path in here)]))


def _whole(path: Path, repo: str, commit: str, filename: str, cache: Path) -> bool:
    if filename in checked_files(repo, commit, cache):
        return True
    name = path.resolve().name  # the blob's name is its checksum, where the cache can make links
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name) or path.stat().st_size > SMALL_BYTES:
        return False
    return checksum(path, ALGORITHMS[len(name)]) == name


# --- for looking at ----------------------------------------------------------------------------------------


def unfinished(repo: str, cache: Path | None = None) -> pd.DataFrame:
    """Files in the cache that are not finished: ``file`` (name on the disk), ``bytes``, and ``whose``: the
    course's, which go on where they stopped, or the client's, which it never takes up again."""
    rows = []
    for path in sorted((repo_folder(repo, cache) / "blobs").glob("*.incomplete")):
        whose = "the course's" if path.name.endswith(hub_fetch.PART) else "the client's"
        rows.append((path.name, path.stat().st_size, whose))
    return pd.DataFrame(rows, columns=["file", "bytes", "whose"])


def layout(repo: str, cache: Path | None = None) -> str:
    """The repository's folder in the cache as a text tree, with lengths and where links point to."""
    top = repo_folder(repo, cache)
    lines = [f"{top.name}/"]
    for path in sorted(top.rglob("*")):
        if path.is_dir():
            continue
        name = path.relative_to(top).as_posix()
        if path.is_symlink():
            lines.append(f"  {_short(name)} -> {_short(os.readlink(path))}")
        else:
            lines.append(f"  {_short(name)}  {path.stat().st_size:,} bytes")
    return "\n".join(lines)


def _short(name: str) -> str:
    """Long checksums cut to their first digits."""
    return re.sub(r"[0-9a-f]{40,64}", lambda match: match.group()[:8] + "…", name)
