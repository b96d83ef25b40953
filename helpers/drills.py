"""Failure drills: break a server of one's own on purpose, read its log, mend it.

Where a second server can run, each drill is real: :func:`run` starts one that is meant to fail
(:mod:`helpers.child`), :func:`session` one that works, to be asked, watched and killed. Elsewhere (no vLLM, a
server at an address, too little memory) both give what we recorded when we did the same, and say so.

What a lesson's drills brought is kept in ``workspace/drills/last.json``; ``python -m helpers.drills keep``
makes the recorded drills, ``data/runs/04-drills.json``, of it.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import openai
import psutil

from helpers import child, engine, recorded, sdk, server_log, streaming, supervisor
from helpers.conditions import cleaned, cleaner, conditions
from helpers.run_file import write_whole
from helpers.settings import CourseError, Server, workspace
from helpers.streaming import Request, Timeline

KEPT = recorded.RUNS / "04-drills.json"
KILL_AFTER_CHUNKS = 10


@dataclass(frozen=True)
class Outcome:
    """What came of one start that was meant to fail.

    Attributes:
        drill: its name.
        changes: flags and variables that differed from the embedded recipe.
        exit_code: of the server; None if it did start.
        seconds: until it had ended.
        log: all it wrote.
        origin: ``measured`` or ``recorded``.
    """

    drill: str
    changes: dict[str, Any]
    exit_code: int | None
    seconds: float
    log: str = field(repr=False)
    origin: str = "measured"

    def tail(self, lines: int = 3, width: int = 150) -> str:
        """The last lines of the log, cut to a width."""
        return "\n".join(line[:width] for line in server_log.end(self.log, lines))


@dataclass(frozen=True)
class Broken:
    """A stream whose server was killed while it ran.

    Attributes:
        text: what had come until then.
        chunks: in so many chunks.
        status: the HTTP status with which the stream had begun.
        error: what the client raised.
        next_error: what the very next request got.
        exit_code: of the server, which then ended.
    """

    text: str
    chunks: int
    status: int
    error: str
    next_error: str
    exit_code: int | None


# --- can it be done here? ---------------------------------------------------------------------------------


def why_not(server: Server) -> str | None:
    """Why no second server is started here, in a few words; None if it can be."""
    if server.origin == "recorded":
        return "no vLLM runs here"
    if not _ours(server):
        return "this server is not one that the course started, so it is left in peace"
    free = psutil.virtual_memory().available / 2**30
    if free < child.MEMORY_NEEDED_GIB:
        return f"{free:.1f} GiB of memory are free, and a second server needs {child.MEMORY_NEEDED_GIB:.0f}"
    return engine.why_not_embedded()


def _ours(server: Server) -> bool:
    state = supervisor.read_state(engine.EMBEDDED.folder) or {}
    return state.get("base_url") == server.base_url


def port_of(server: Server) -> str:
    """The port that a server has taken."""
    return server.base_url.removesuffix("/v1").rpartition(":")[2]


# --- starts that fail -------------------------------------------------------------------------------------


def run(name: str, changes: Mapping[str, Any], server: Server) -> Outcome:
    """Start a server with these changes, wait until it has ended (or answers, then it is stopped), and say
    what came of it.

    Args:
        name: of the drill: ``parser``, ``port``, ``memory`` are recorded.
        changes: see :func:`helpers.child.recipe`.
        server: the one that the lesson talks to.

    Raises:
        CourseError: it did neither in time, or nothing of this name is recorded.
    """
    reason = why_not(server)
    if reason:
        outcome = recorded_start(name)
        print(_says_recorded(reason))
    else:
        print("starting a second server; it will take 10 to 30 seconds to fail, longer where much runs ...")
        begun = time.monotonic()
        started = child.start(name, changes)
        try:
            code = started.wait()
            seconds = time.monotonic() - begun
            outcome = Outcome(name, dict(changes), code, round(seconds, 1), started.log())
        finally:
            started.stop()
        _note("starts", {name: _plain_outcome(outcome)})
    ended = "it runs: nothing failed" if outcome.exit_code is None else f"exit code {outcome.exit_code}"
    lines = len(outcome.log.splitlines())
    print(f"{ended} after {outcome.seconds:.1f} s; {lines} lines of log ({outcome.origin})")
    return outcome


def recorded_start(name: str) -> Outcome:
    """A failing start as we recorded it.

    Raises:
        CourseError: none of this name is recorded.
    """
    starts = _recorded()["starts"]
    if name not in starts:
        raise CourseError(f"There is no recorded start named {name!r}. There are: {', '.join(starts)}.")
    plain = starts[name]
    return Outcome(**(plain | {"log": "\n".join(plain["log"]), "origin": "recorded"}))


# --- one that works, to be asked and killed ---------------------------------------------------------------


class Session:
    """A second server of the learner's own, or the record of ours. Made by :func:`session`.

    Attributes:
        origin: ``measured`` or ``recorded``.
        changes: flags and variables that differ from the embedded recipe.
    """

    def __init__(self, changes: Mapping[str, Any], server: Server) -> None:
        reason = why_not(server)
        self.changes = dict(changes)
        self.origin = "recorded" if reason else "measured"
        self._child = None if reason else child.start("session", changes)
        self._begun = time.monotonic()
        self._kept: dict[str, Any] = {"changes": self.changes, "timelines": {}}
        self._asked: dict[str, int] = {}
        self._looked = 0
        self._server = self._child.as_server() if self._child else server
        if reason:
            print(_says_recorded(reason))

    def ready(self) -> bool:
        """Whether it answers now.

        Raises:
            ConnectionError: nobody listens at its port yet.
            CourseError: it has ended.
        """
        if self._child is None:
            self._looked += 1
            if self._looked < 3:  # ours was refused, too; the wait itself is not replayed
                raise ConnectionRefusedError(_recorded()["session"]["refused"])
            return True
        if not self._child.lives():
            raise CourseError(
                f"The second server has ended. Its log: {self._child.folder / 'server.log'}\n"
                "Run the cell that starts it, the one that waits for it, and then this one again."
            )
        try:
            now = self._child.answers()
        except ConnectionError as error:
            self._kept.setdefault("refused", str(error))
            raise
        if now:
            self._kept.setdefault("ready_s", round(time.monotonic() - self._begun, 1))
        return now

    @property
    def ready_s(self) -> float | None:
        """Seconds from its start to the first time that it was found ready; None before."""
        kept = _recorded()["session"] if self._child is None else self._kept
        return kept.get("ready_s")

    def ask(self, name: str, request: Request) -> Timeline:
        """Send one request.

        Args:
            name: under which the answer is kept; the same again gives the next of that name.
            request: see :func:`helpers.streaming.chat_request`.

        Raises:
            CourseError: no good answer came.
        """
        number = self._asked[name] = self._asked.get(name, 0) + 1
        if self._child is None:
            kept = recorded_replies(name)
            return kept[(number - 1) % len(kept)]
        reply = streaming.ask(self._server, request)
        if reply.error is not None:
            with contextlib.suppress(ConnectionError):
                self.ready()  # says so if it has ended
            raise CourseError(
                f"The second server gave no answer. {reply.error.message}\n"
                "If it is not ready yet: run the cell that waits for it, then this one again."
            )
        self._kept["timelines"].setdefault(name, []).append(reply.to_dict())
        return reply

    def kill_in_midstream(self, request: Request) -> Broken:
        """Ask for a long answer and, when some of it is there, end the process that holds the model.

        Raises:
            CourseError: it is not ready, or has ended.
        """
        if self._child is None:
            return Broken(**_recorded()["session"]["broken"])
        ready = False
        with contextlib.suppress(ConnectionError):
            ready = self.ready()
        if not ready:
            raise CourseError(
                "The second server is not ready yet.\nRun the cell that waits for it, then this one again."
            )
        text, chunks, error, status = [], 0, "none", 0
        client = sdk.client(self._server)
        create = client.chat.completions.with_raw_response.create
        answer = create(**sdk.arguments(self._server, request))
        status = answer.http_response.status_code
        try:
            for chunk in answer.parse():
                chunks += 1
                text += [choice.delta.content or "" for choice in chunk.choices]
                if chunks == KILL_AFTER_CHUNKS:
                    self._child.kill_engine()
        except openai.OpenAIError as problem:
            error = f"{type(problem).__name__}: {problem}"
        after = streaming.ask(self._server, request).error
        next_error = after.message if after else "none"
        code = self._child.wait(60, ready=False)  # it may answer /health until the very end
        broken = Broken("".join(text), chunks, status, error, next_error, code)
        self._kept["broken"] = vars(broken)
        return broken

    def log(self) -> str:
        """All that it has written so far."""
        if self._child is None:
            return "\n".join(_recorded()["session"]["log"])
        return self._child.log()

    def stop(self) -> None:
        """End it if it runs, and keep what it brought."""
        if self._child is not None:
            self._child.stop()
            _note("session", self._kept | {"log": self._child.log().splitlines()})


def recorded_replies(name: str) -> list[Timeline]:
    """What a session of ours answered to the request of this name (see :meth:`Session.ask`), as recorded."""
    return [Timeline.from_dict(plain) for plain in _recorded()["session"]["timelines"][name]]


def session(changes: Mapping[str, Any], server: Server) -> Session:
    """Start a second server with these changes (see :func:`helpers.child.recipe`); at once back, long before
    it is ready. Where none can run: the record of ours. The one before, if it still runs, is stopped."""
    while _open:
        _open.pop().stop()
    _open.append(Session(changes, server))
    return _open[-1]


_open: list[Session] = []


# --- the log of the shared engine -------------------------------------------------------------------------


@dataclass(frozen=True)
class StartLog:
    """The log of an engine's start: its ``text``, the seconds before its first stamp (``before_s``), its
    ``origin`` and which ``server`` it is of, for legends."""

    text: str = field(repr=False)
    before_s: float
    origin: str
    server: str


def engine_log(server: Server) -> StartLog:
    """The log of the server that the lesson talks to, if the course started it; else a recorded one."""
    text = None
    if server.origin != "recorded" and _ours(server):
        with contextlib.suppress(OSError):
            text = engine.log_path().read_text(encoding="utf-8", errors="replace")
    if text is None:
        print(_says_recorded("this server's log is not on this machine"))
        return recorded_log()
    state = supervisor.read_state(engine.EMBEDDED.folder) or {}
    before_s = _before(text, state.get("started"))
    _note("engine", {"log": text.splitlines(), "before_s": before_s})
    return StartLog(text, before_s, "measured", server.name)


def recorded_log() -> StartLog:
    """The log of an engine's start as we recorded it."""
    plain, whose = _recorded()["engine"], _recorded()["conditions"]["server"]["name"]
    return StartLog("\n".join(plain["log"]), plain["before_s"], "recorded", whose)


def _before(text: str, started: float | None) -> float:
    """Seconds from the start of the process to the log's first stamp."""
    stamp = next(
        (m["time"] for line in text.splitlines() if (m := server_log.LINE.match(line))["time"]), None
    )
    if stamp is None or started is None:
        return 0.0
    begun = datetime.datetime.fromtimestamp(started)
    first = datetime.datetime.strptime(f"{begun.year}-{stamp}", "%Y-%m-%d %H:%M:%S")
    return round(max(0.0, (first - begun).total_seconds()), 1)


# --- what was recorded ------------------------------------------------------------------------------------


@cache
def _recorded() -> dict[str, Any]:
    try:
        return json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CourseError(
            f"The recorded drills cannot be read ({error}).\nType: git checkout -- data/runs/{KEPT.name}"
        ) from error


def _says_recorded(reason: str) -> str:
    about = _recorded()["conditions"]
    return f"recorded on {about['server']['name']}, {about['date']}: {reason}."


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    return {**vars(outcome), "log": outcome.log.splitlines()}


def _note(part: str, found: dict[str, Any]) -> None:
    """Add to what this workspace's last drills brought, if it can be. Starts are kept side by side, by
    name."""
    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, CourseError):
        kept = _last()
    kept[part] = kept.get(part, {}) | found if part == "starts" else found
    with contextlib.suppress(OSError, CourseError):  # it is for recording; a lesson goes on without
        write_whole(workspace("drills", "last.json"), (json.dumps(kept, indent=1) + "\n").encode())


def _last() -> dict[str, Any]:
    """What the last drills brought, part by part. Raises OSError or ValueError if there is none to read."""
    kept = json.loads(workspace("drills", "last.json").read_text(encoding="utf-8"))
    if not (isinstance(kept, dict) and all(isinstance(part, dict) for part in kept.values())):
        raise ValueError("last.json is not what the drills write")
    return kept


def keep() -> list[str]:
    """Make the recorded drills of the last ones in this workspace; says what was done, a line each.

    Raises:
        CourseError: a part is missing: the lesson was not run to its end.
    """
    path = workspace("drills", "last.json")
    try:
        kept = _last()
    except (OSError, ValueError) as error:
        raise CourseError(f"There are no drills to keep ({error}). Run lesson 04 first.") from error
    missing = [part for part in ("engine", "starts", "session") if part not in kept]
    missing += [name for name in ("broken", "ready_s", "refused") if name not in kept.get("session", {})]
    if missing:
        raise CourseError(f"{path} lacks {', '.join(missing)}. Run lesson 04 from top to bottom first.")
    server = engine.connect(lambda line: None)
    clean = cleaner(server)
    lines = kept["engine"]["log"]  # what came after the start tells of other lessons
    started = next((n for n, line in enumerate(lines) if "HTTP server started" in line), len(lines))
    kept["engine"]["log"] = lines[: started + 1]
    for timelines in kept["session"]["timelines"].values():
        for timeline in timelines:
            timeline["origin"] = "recorded"
    whole = {"conditions": conditions(server, "04-drills"), **kept}
    write_whole(KEPT, (json.dumps(cleaned(whole, clean), indent=1, ensure_ascii=False) + "\n").encode())
    return [f"wrote {KEPT} ({KEPT.stat().st_size:,} bytes)"]


def main(words: Iterable[str]) -> int:
    """``python -m helpers.drills keep``; returns the exit status."""
    try:
        if list(words) != ["keep"]:
            raise CourseError("Type: python -m helpers.drills keep   (after lesson 04 has run)")
        print("\n".join(keep()))
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
