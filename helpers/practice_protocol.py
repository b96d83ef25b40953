"""What the practice hub says: the answers of the Hub's protocol, and the faults that it knows.

The shapes are those that ``huggingface_hub`` 2.4.0 reads (``ModelInfo``, ``RepoFile``,
``hf_raise_for_status``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.practice_repository import File, pointer

# What can be switched on, with what it does. "times" says how often; the store's faults need after_bytes.
FAULTS = {
    "break": "the store closes the connection after so many bytes of a file",
    "pause": "the store stops sending after so many bytes of a file, until it is released",
    "flip": "the store sends one wrong byte in a file; its length is right",
    "401 gated": "the repository must be asked for, and the request has no token that was let in",
    "401 token": "the token is not valid",
    "404 repository": "there is no such repository (to a request without a token the answer is 401)",
    "404 revision": "there is no such branch, tag or commit",
    "404 file": "there is no such file in the repository",
    "429": "too many requests: come back in a while",
    "503": "out of service for a moment",
}
IN_STORE = ("break", "pause", "flip")


@dataclass
class Fault:
    """One fault that is switched on.

    Attributes:
        name: one of :data:`FAULTS`.
        left: how many requests it still spoils.
        after_bytes: where in a file the store's faults strike, counted from the first byte sent.
        wait_s: the seconds that a 429 or 503 asks for.
        file: only requests for this file (a file's name), or all that the fault can strike.
    """

    name: str
    left: int
    after_bytes: int
    wait_s: int
    file: str | None


@dataclass
class Served:
    """One request as the hub saw it.

    Attributes:
        method, path: what was asked for; a file of the store by its name in the repository.
        status: the answer.
        range: the ``Range`` header, or an empty text.
        bytes: how much of the body was sent.
        token: whether the request carried one.
        at: ``hub`` or ``store``.
    """

    method: str
    path: str
    status: int
    range: str
    bytes: int
    token: bool
    at: str


def refusal(
    name: str, *, wait_s: int, revision: str, signed_in: bool
) -> tuple[int, dict[str, str], dict[str, str]]:
    """Status, headers and body of an error.

    Args:
        name: one of :data:`FAULTS` that the hub itself can have (not its store).
        wait_s: what a 429 or 503 asks for.
        revision: what was asked for, for the text.
        signed_in: whether the request has a token. Without one, the real Hub answers 401 where there is no
            such repository, so that nobody can find out what exists.
    """
    status = int(name[:3]) if name != "404 repository" or signed_in else 401
    code, said = {
        "401 gated": ("GatedRepo", "Access to this repository is restricted. You must be signed in."),
        "401 token": ("", "Invalid credentials in Authorization header"),
        "404 repository": ("RepoNotFound", "Repository not found"),
        "404 revision": ("RevisionNotFound", f"Invalid rev id: {revision}"),
        "404 file": ("EntryNotFound", "Entry not found"),
        "429": ("", "You have sent too many requests"),
        "503": ("", "Service temporarily unavailable"),
    }[name]
    headers = {"X-Error-Message": said} | ({"X-Error-Code": code} if code else {})
    if status in (429, 503):
        headers["Retry-After"] = str(wait_s)
    if status == 429:
        headers["RateLimit"] = f'"api";r=0;t={wait_s}'
        headers["RateLimit-Policy"] = '"fixed window";"api";q=500;w=300'
    return status, headers, {"error": said}


def about(repo: str, commit: str, files: dict[str, File], *, blobs: bool) -> dict[str, Any]:
    """A repository's info; with ``blobs`` each file has its length and checksums."""
    siblings: list[dict[str, Any]] = []
    for path, file in files.items():
        sibling: dict[str, Any] = {"rfilename": path}
        if blobs:
            listed = entry(file)
            sibling |= {"size": listed["size"], "blobId": listed["oid"]}
            if "lfs" in listed:
                sibling["lfs"] = listed["lfs"] | {"sha256": listed["lfs"]["oid"]}
        siblings.append(sibling)
    return {
        "id": repo,
        "modelId": repo,
        "author": repo.partition("/")[0],
        "sha": commit,
        "private": False,
        "gated": False,
        "disabled": False,
        "tags": ["license:other"],
        "downloads": 0,
        "likes": 0,
        "lastModified": "2026-12-01T00:00:00.000Z",
        "siblings": siblings,
    }


def tree(files: dict[str, File], commit: str, *, folder: str, recursive: bool) -> list[dict[str, Any]]:
    """The files and folders under a folder (an empty text: the whole repository)."""
    start = f"{folder}/" if folder else ""
    inside = [path for path in files if path.startswith(start)]
    folders = sorted({path[: path.rindex("/")] for path in inside if "/" in path} - {folder})
    listed = [path for path in inside if recursive or "/" not in path[len(start) :]]
    return [entry(files[path]) for path in listed] + [
        {"type": "directory", "path": one, "size": 0, "oid": commit} for one in folders
    ]


def entry(file: File) -> dict[str, Any]:
    """A file as the Hub lists it in a tree."""
    made: dict[str, Any] = {
        "type": "file",
        "path": file.path,
        "size": len(file.content),
        "oid": file.git_sha1,
    }
    if file.sha256:
        made["lfs"] = {
            "oid": file.sha256,
            "size": len(file.content),
            "pointerSize": len(pointer(file.content)),
        }
    return made
