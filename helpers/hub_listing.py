"""What is in a repository: its files, their lengths and checksums, and who says so.

Asked from the Hub where it can be reached; otherwise what is known of PhoneLLM's repositories, from
``data/hub``. There, lengths that nobody published stay empty.
"""

from __future__ import annotations

import datetime
import math
import queue
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from helpers import hub_client, hub_errors, origins, tables
from helpers.settings import CourseError

REPO = "pipecat-ai/phonellm-alpha-1"
NVFP4 = "pipecat-ai/phonellm-alpha-1-nvfp4"
REVISION = "8e76aaa6e8ce4765ac943ba3fb339494d4d48dca"  # the commit that data/hub describes
COLUMNS = ("file", "files", "bytes", "kind", "algorithm", "checksum", "origin", "source", "date")

Patterns = str | Sequence[str] | None


@dataclass(frozen=True)
class Listing:
    """The files of one repository at one commit.

    Attributes:
        repo: its name.
        revision: the commit (40 digits), or None where it is not known.
        files: one row a file, with :data:`COLUMNS`. In a recorded listing a row may stand for several
            (``files``) and ``bytes`` may be missing. ``algorithm`` and ``checksum``: ``sha256`` of a file
            in LFS, ``git-sha1`` (git's own name) of any other.
        bytes: length of all files together.
        count: how many files there are, or None where it is not known.
        live: asked from the Hub just now, so that it can be downloaded by it.
    """

    repo: str
    revision: str | None
    files: pd.DataFrame
    bytes: int
    count: int | None
    live: bool


def listing(
    repo: str = REPO,
    revision: str | None = REVISION,
    *,
    endpoint: str | None = None,
    token: str | bool | None = None,
    within_s: float = 15.0,
) -> Listing:
    """Ask the Hub what is in a repository.

    Args:
        repo: ``owner/name``.
        revision: a commit, or a branch or tag (None: the branch ``main``), which is resolved to its commit.
        endpoint: address of the hub; without it the real one.
        token: see :func:`hub_client.token_for`.
        within_s: how long the Hub may take to show that it is there at all.

    Raises:
        HubError: the Hub did not answer, or not with a listing.
    """
    library = hub_client.library()
    address = endpoint or hub_client.endpoint()
    token = hub_client.token_for(address, token)
    if not hub_client.is_local(address) and not hub_client.reachable(address, within_s=within_s):
        raise hub_errors.no_network(address)
    api = library.HfApi(endpoint=address, token=token)
    explained = hub_errors.explained(repo, revision, folder=hub_client.cache_folder())
    with hub_client.allowed(address), explained:
        # The first question has a timeout and is not repeated, so that a dead network shows soon.
        try:
            info = api.model_info(repo, revision=revision, timeout=10)
            entries = [
                entry
                for entry in _within(api.list_repo_tree(repo, recursive=True, revision=info.sha))
                if isinstance(entry, library.hf_api.RepoFile)
            ]
            _check(info.sha, entries)
        except library.errors.HFValidationError:
            raise
        except UnicodeError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # a page of HTML, for one
            raise hub_errors.not_a_hub(error) from error
    today = datetime.date.today().isoformat()
    rows = [
        {
            "file": entry.path,
            "files": 1,
            "bytes": entry.lfs.size if entry.lfs else entry.size,
            "kind": kind(entry.path),
            "algorithm": "sha256" if entry.lfs else "git-sha1",
            "checksum": entry.lfs.sha256 if entry.lfs else entry.blob_id,
            "origin": "published",
            "source": f"listing of {repo} by {address}",
            "date": today,
        }
        for entry in sorted(entries, key=lambda entry: entry.path)
    ]
    files = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"files": "Int64", "bytes": "Int64"})
    return Listing(repo, info.sha, files, int(files["bytes"].sum()), len(files), live=True)


def _within(entries: Iterable[Any]) -> Iterator[Any]:
    """The entries of a listing, in a thread that is given up when the Hub falls silent: the client has no
    timeout there, and a list may be cut into pages that never end."""
    got: queue.Queue[tuple[str, Any]] = queue.Queue()
    given_up = threading.Event()

    def ask() -> None:
        try:
            for entry in entries:
                got.put(("entry", entry))
                if given_up.is_set():
                    return
            got.put(("end", None))
        except Exception as error:
            got.put(("error", error))

    threading.Thread(target=ask, daemon=True).start()
    try:
        while True:
            kind, value = got.get(timeout=hub_client.TREE_TIMEOUT_S)
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    except queue.Empty:
        raise hub_errors.NoNetwork(
            f"The Hub fell silent in the middle of its list of files ({hub_client.TREE_TIMEOUT_S:.0f} s).\n"
            "Check the network, then run this cell again."
        ) from None
    finally:
        given_up.set()


def _check(commit: str, entries: Sequence[Any]) -> None:
    """What the names of files and folders on this disk are made of. A hub that is not to be trusted could
    otherwise have a file written, or deleted, anywhere.

    Raises:
        ValueError: a name, a length or a checksum is none.
    """
    if not _is_hash(commit, 40):
        raise ValueError(f"no commit: {commit!r}")
    for entry in entries:
        name, lfs = entry.path, entry.lfs
        parts = PurePosixPath(name).parts
        outside = name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or not parts
        if outside or name != "/".join(parts):
            raise ValueError(f"no name of a file in a repository: {name!r}")
        length = lfs.size if lfs else entry.size
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise ValueError(f"no length: {length!r} of {name}")
        if not (_is_hash(lfs.sha256, 64) if lfs else _is_hash(entry.blob_id, 40)):
            raise ValueError(f"no checksum of {name}")
    if len({entry.path for entry in entries}) < len(entries):
        raise ValueError("a file is listed twice")


def _is_hash(text: object, digits: int) -> bool:
    return isinstance(text, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) is not None


def recorded(repo: str = REPO) -> Listing:
    """What is known of PhoneLLM's repositories without asking, from ``data/hub``.

    Raises:
        CourseError: nothing is recorded about this repository.
    """
    repositories = tables.read("hub/repositories.csv", key="repo", numeric=("files", "bytes"), unitless=True)
    if repo not in repositories.index:
        raise CourseError(
            f"Nothing is recorded about {repo!r}, only about {', '.join(repositories.index)}.\n"
            f'With a network, ask the Hub: hub.listing("{repo}", revision=None)'
        )
    about = repositories.loc[repo]
    counts = ("files", "bytes")
    files = tables.read("hub/files.csv", key=("repo", "file"), numeric=counts, text=("name",), unitless=True)
    files = files.astype(dict.fromkeys(counts, "Int64"))
    files = files[files["repo"] == repo].reset_index(drop=True)
    files["kind"] = files["file"].map(kind)
    files[["algorithm", "checksum"]] = None
    origins.validate(files, required=COLUMNS, numeric=("files", "bytes"), used_by="data/hub/files.csv")
    revision = str(about["revision"]) or None
    count = None if pd.isna(about["files"]) else int(about["files"])
    return Listing(repo, revision, files[[*COLUMNS, "name"]], int(about["bytes"]), count, live=False)


def look(repo: str = REPO, revision: str | None = REVISION) -> Listing:
    """The Hub's own listing where there is one to get, else the recorded one; says which, and why.

    Raises:
        CourseError: the Hub gives none, and nothing is recorded about this repository.
    """
    try:
        found = listing(repo, revision, within_s=hub_client.PROBE_S)
    except hub_errors.HubError as error:
        found = recorded(repo)
        print(f"{repo}: {str(error).splitlines()[0]} So this is what is recorded in data/hub.")
    else:
        print(f"{repo}: listed by {hub_client.endpoint()} just now")
    return found


def select(files: pd.DataFrame, allow: Patterns = None, ignore: Patterns = None) -> pd.DataFrame:
    """The rows whose ``file`` fits the patterns, by the client's own rule.

    Args:
        files: a table with a column ``file``.
        allow: keep what fits one of these; None keeps all. ``*`` stands for any letters, a slash too.
        ignore: then leave out what fits one of these.
    """
    hub_client.library()
    from huggingface_hub.utils import filter_repo_objects

    names = list(files["file"])
    allow, ignore = (list(one) if isinstance(one, tuple) else one for one in (allow, ignore))
    kept = set(filter_repo_objects(names, allow_patterns=allow, ignore_patterns=ignore))
    return files[[name in kept for name in names]]


def kind(file: str) -> str:
    """What a file is for, by its name: ``weights``, ``code``, ``tokenizer and template``, ``config``,
    ``licence and card``, ``pictures`` or ``other``."""
    name = Path(file).name.lower()
    if name.endswith((".safetensors", ".bin", ".gguf")):
        return "weights"
    if name.endswith(".py"):
        return "code"
    if name.startswith(("tokenizer", "special_tokens", "vocab", "merges")) or name.endswith(".jinja"):
        return "tokenizer and template"
    if name.startswith(("license", "notice")) or name.endswith(".md"):
        return "licence and card"
    if name.endswith((".png", ".jpg", ".jpeg", ".svg", ".webp")):
        return "pictures"
    return "config" if name.endswith(".json") else "other"


def by_kind(of: Listing) -> pd.DataFrame:
    """Files and bytes by kind, the largest first: ``kind``, ``files``, ``bytes``, ``origin``, ``source``,
    ``date``. Kinds whose lengths nobody published are one row, ``all the rest``: the difference to the known
    total, which is our computation."""
    frame = of.files
    known = frame.groupby("kind")["bytes"].transform(lambda lengths: lengths.notna().all())
    sums = (
        frame[known]
        .groupby("kind", as_index=False)
        .agg(
            files=("files", "sum"),
            bytes=("bytes", "sum"),
            origin=("origin", "first"),
            source=("source", "first"),
            date=("date", "first"),
        )
    )
    if not known.all():
        files = (of.count or math.nan) - sums["files"].sum()
        rest = {
            "kind": "all the rest",
            "files": files,
            "bytes": of.bytes - sums["bytes"].sum(),
            "origin": "modelled",
            "source": "published total less the weights",
            "date": "",
        }
        sums = pd.concat([sums, pd.DataFrame([rest])], ignore_index=True)
    return sums.sort_values("bytes", ascending=False, ignore_index=True)
