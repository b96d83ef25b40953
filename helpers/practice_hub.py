"""A hub on this machine that speaks the Hugging Face Hub's protocol, and breaks when it is told to.

It serves :mod:`helpers.practice_repository` to the real client: repository info, file tree, ``resolve`` with
its headers, redirects to a store of large files with ranges, and the error codes. Like the real one it keeps
large files at another address than the rest (here: another port), so that a token never travels there. It has
no Xet storage and says so by sending no Xet headers; the client then fetches over plain HTTP.

    with practice_hub.start() as hub:
        snapshot_download(hub.repo, endpoint=hub.endpoint, token=False, cache_dir=...)

It listens on 127.0.0.1 only, in a thread of this process, and so ends with it at the latest.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import pandas as pd
from aiohttp import web

from helpers import hub_client, practice_protocol, practice_repository
from helpers.practice_protocol import FAULTS, IN_STORE, Fault, Served
from helpers.practice_repository import File
from helpers.settings import CourseError

HOST = "127.0.0.1"
PIECE_BYTES = 64 * 1024
TREE_PAGE = 8  # entries a page: the real one sends 1000, but then nobody would ever see a second page


def start() -> PracticeHub:
    """Start a practice hub, with its own ports and an empty log. Stop it with ``stop()`` or a ``with`` block.

    Raises:
        CourseError: huggingface_hub is missing, or no port could be opened.
    """
    hub_client.library()
    return PracticeHub()


class PracticeHub:
    """The running hub. Make one with :func:`start`.

    Attributes:
        endpoint: its address, for the client's ``endpoint=``.
        store: the address of its large files.
        repo: the name of its one repository.
        older, newer: its two commits; ``main`` starts at the older one.
        paused: set while a ``pause`` holds a file back.
    """

    def __init__(self) -> None:
        self.repo = practice_repository.REPO
        self.commits = practice_repository.commits()
        self.older, self.newer = self.commits
        self.refs = {"main": self.older, "v1": self.older}
        self.endpoint = self.store = ""
        self.paused = threading.Event()
        self.log: list[Served] = []
        self._faults: list[Fault] = []
        self._loop = asyncio.new_event_loop()
        self._release = asyncio.Event()
        self._ready = threading.Event()
        self._error: Exception | None = None
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="practice hub", daemon=True)
        self._thread.start()
        self._ready.wait()
        # HF_HUB_OFFLINE is about the network; the client would refuse to talk to this machine too.
        self._offline = hub_client.library().constants.HF_HUB_OFFLINE
        hub_client.library().constants.HF_HUB_OFFLINE = False
        if self._error:
            raise CourseError(
                f"The practice hub could not open a port on {HOST} ({self._error}). Run this cell again."
            ) from self._error

    def __enter__(self) -> Self:
        """Itself, running."""
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop, whatever happened."""
        self.stop()

    def stop(self) -> None:
        """Close both ports and end the thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(timeout=10)
            hub_client.library().constants.HF_HUB_OFFLINE = self._offline

    # --- what a lesson or a test does with it

    def fail(
        self, name: str, *, times: int = 1, after_bytes: int = 0, wait_s: int = 60, file: str | None = None
    ) -> None:
        """Switch a fault on. If it is on already for that file, it begins anew: a cell may be run twice.

        Args:
            name: one of :data:`FAULTS`.
            times: how many requests it spoils; then the hub is well again.
            after_bytes: where in a file ``break``, ``pause`` and ``flip`` strike.
            wait_s: how long a 429 or 503 says to wait.
            file: spoil only requests for this file.

        Raises:
            CourseError: there is no such fault.
        """
        if name not in FAULTS:
            raise CourseError(f"The practice hub has no fault {name!r}. It has: {', '.join(FAULTS)}.")
        others = [fault for fault in self._faults if (fault.name, fault.file) != (name, file)]
        self._faults[:] = others
        self._faults.append(Fault(name, times, after_bytes, wait_s, file))

    def mend(self) -> None:
        """Switch all faults off, and let go what a ``pause`` holds."""
        self._faults.clear()
        self.paused.clear()
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it is just ending
                self._loop.call_soon_threadsafe(self._release.set)

    def move_main(self) -> None:
        """Move the branch ``main`` from the older commit to the newer one, as an author does with a push."""
        self.refs["main"] = self.newer

    def requests(self) -> pd.DataFrame:
        """All requests since the start or the last :meth:`forget`, one row each: see :class:`Served`."""
        return pd.DataFrame([vars(served) for served in self.log], columns=list(Served.__annotations__))

    def sent_bytes(self, path: str | None = None) -> int:
        """Bytes of file contents that were sent: of one file, or of all."""
        wanted = [served for served in self.log if path is None or served.path == path]
        return sum(served.bytes for served in wanted if not served.path.startswith("/api/"))

    def forget(self) -> None:
        """Empty the log."""
        self.log.clear()

    # --- the server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # a port that cannot be opened; start() passes it on
            self._error = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        hub, store = web.Application(), web.Application()
        api = "/api/models/{owner}/{name}"
        for path in (api, api + "/revision/{revision}"):
            hub.router.add_get(path, self._guarded(self._info))
        hub.router.add_get(api + "/refs", self._guarded(self._refs))
        for path in (api + "/tree/{revision}", api + "/tree/{revision}/{folder:.*}"):
            hub.router.add_get(path, self._guarded(self._tree))
        hub.router.add_post(api + "/paths-info/{revision}", self._guarded(self._paths))
        hub.router.add_get("/{owner}/{name}/resolve/{revision}/{path:.*}", self._guarded(self._resolve))
        store.router.add_get("/{sha256}", self._stored)
        runners = [web.AppRunner(app, access_log=None, shutdown_timeout=0.1) for app in (hub, store)]
        try:
            addresses = []
            for runner in runners:
                await runner.setup()
                await web.TCPSite(runner, HOST, 0).start()
                addresses.append(f"http://{HOST}:{runner.addresses[0][1]}")
            self.endpoint, self.store = addresses
            self._ready.set()
            await self._done.wait()
        finally:
            self._release.set()
            for runner in runners:
                await runner.cleanup()

    def _guarded(
        self, answer: Callable[[web.Request, dict[str, File], str], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """What comes before every answer of the hub: faults, name and revision; and after it, the log."""

        async def handle(request: web.Request) -> web.Response:
            response = self._refuse(request) or await answer(request, *self._revision(request))
            path = request.match_info.get("path", request.path)
            sent = 0 if request.method == "HEAD" or response.status != 200 else len(response.body or b"")
            self._note(request, path, response.status, sent, "hub")
            return response

        return handle

    def _note(self, request: web.Request, path: str, status: int, sent: int, at: str) -> None:
        carried = "Authorization" in request.headers
        wanted = request.headers.get("Range", "")
        self.log.append(Served(request.method, path, status, wanted, sent, carried, at))

    def _revision(self, request: web.Request) -> tuple[dict[str, File], str]:
        named = request.match_info.get("revision", "main")
        commit = self.refs.get(named, named)
        return self.commits[commit], commit

    def _refuse(self, request: web.Request) -> web.Response | None:
        """The error that this request gets, if any."""
        match = request.match_info
        fault = self._strikes(match.get("path"), store=False)
        name = fault.name if fault else ""
        if not name and f"{match['owner']}/{match['name']}" != self.repo:
            name = "404 repository"
        revision = match.get("revision", "main")
        if not name and revision not in self.refs and revision not in self.commits:
            name = "404 revision"
        if not name and "path" in match and match["path"] not in self._revision(request)[0]:
            name = "404 file"
        if not name:
            return None
        status, headers, body = practice_protocol.refusal(
            name,
            wait_s=fault.wait_s if fault else 0,
            revision=revision,
            signed_in="Authorization" in request.headers,
        )
        return web.json_response(body, status=status, headers=headers)

    def _strikes(self, path: str | None, *, store: bool) -> Fault | None:
        for fault in self._faults:
            fits = fault.file is None or fault.file == path
            if fault.left > 0 and (fault.name in IN_STORE) == store and fits:
                fault.left -= 1
                return fault
        return None

    async def _info(self, request: web.Request, files: dict[str, File], commit: str) -> web.Response:
        blobs = request.query.get("blobs", "").lower() == "true"
        return web.json_response(practice_protocol.about(self.repo, commit, files, blobs=blobs))

    async def _refs(self, request: web.Request, files: dict[str, File], commit: str) -> web.Response:
        kinds = {"branches": ("main", "heads"), "tags": ("v1", "tags")}
        found = {
            kind: [{"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": self.refs[name]}]
            for kind, (name, folder) in kinds.items()
        }
        return web.json_response(found | {"converts": []})

    async def _tree(self, request: web.Request, files: dict[str, File], commit: str) -> web.Response:
        entries = practice_protocol.tree(
            files,
            commit,
            folder=request.match_info.get("folder", ""),
            recursive=request.query.get("recursive", "").lower() == "true",
        )
        first = int(request.query.get("cursor", 0))
        headers = {}
        if first + TREE_PAGE < len(entries):
            following = request.url.update_query(cursor=str(first + TREE_PAGE))
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response(entries[first : first + TREE_PAGE], headers=headers)

    async def _paths(self, request: web.Request, files: dict[str, File], commit: str) -> web.Response:
        wanted = (await request.post()).getall("paths", [])
        return web.json_response([practice_protocol.entry(files[path]) for path in wanted if path in files])

    async def _resolve(self, request: web.Request, files: dict[str, File], commit: str) -> web.Response:
        file = files[request.match_info["path"]]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
        if not file.sha256:
            return web.Response(body=file.content, headers=headers, content_type="application/octet-stream")
        headers |= {"X-Linked-ETag": f'"{file.etag}"', "X-Linked-Size": str(len(file.content))}
        headers["Location"] = f"{self.store}/{file.sha256}?signed=practice"
        return web.Response(status=302, headers=headers)

    async def _stored(self, request: web.Request) -> web.StreamResponse:
        """A large file, whole or from some byte on."""
        known = {
            file.sha256: file for files in self.commits.values() for file in files.values() if file.sha256
        }
        file = known.get(request.match_info["sha256"])
        if file is None:
            raise web.HTTPNotFound
        size, start = len(file.content), 0
        headers = {"ETag": f'"{file.sha256}"', "Accept-Ranges": "bytes"}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", "")):
            start = int(asked[1])
            size = min(size, int(asked[2]) + 1) if asked[2] else size
            if start >= size:
                self._note(request, file.path, 416, 0, "store")
                return web.Response(status=416, headers={"Content-Range": f"bytes */{len(file.content)}"})
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{len(file.content)}"
        response = web.StreamResponse(status=206 if asked else 200, headers=headers)
        response.content_length = size - start
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        self._note(request, file.path, response.status, 0, "store")
        served = self.log[-1]
        if request.method == "GET":
            with suppress(ConnectionResetError):  # the client has gone, as one that was killed
                await self._send(request, response, file.content[start:size], served)
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, content: bytes, served: Served
    ) -> None:
        fault = self._strikes(served.path, store=True)
        if fault and fault.name == "flip":
            at = min(fault.after_bytes, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        stop_at = fault.after_bytes if fault and fault.name in ("break", "pause") else len(content) + 1
        while served.bytes < len(content):
            if served.bytes >= stop_at and fault and fault.name == "break":
                request.transport.abort()
                return
            if served.bytes >= stop_at:
                self._release.clear()
                self.paused.set()
                await self._release.wait()
                stop_at = len(content) + 1
            end = min(served.bytes + PIECE_BYTES, len(content), max(stop_at, served.bytes + 1))
            await response.write(content[served.bytes : end])
            served.bytes = end
        await response.write_eof()
