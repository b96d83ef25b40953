"""vLLM's log, read: a line becomes time, process, level, place in the source, and message.

A line of vLLM's own looks like this (0.27.1)::

    (APIServer pid=5748) INFO 12-01 07:44:22 [model.py:1883] Using max model len 4096

The log holds lines of other kinds too: the web server's (``INFO:     127.0.0.1:43202 - "GET /health …"``),
progress bars, and stack traces. They become rows as well, with fewer columns filled.

:func:`frame` reads, :func:`explained` picks out the lines that mean something and says what,
:func:`startup` says where the time of a start went, :func:`cause` finds why a server ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import pandas as pd

LINE = re.compile(
    r"^(?:\((?P<process>[\w ]+?) pid=(?P<pid>\d+)\) ?)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?: (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<source>[^\]]+)\]|: {3,8}) ?)?"
    r"(?P<message>.*)$"
)
EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception): ")
# Says only that another process failed; why stands above it.
SECOND_HAND = re.compile(r"[Ss]ee (?:root cause|stack trace) (?:\(above\)|above)|Worker failed with error")
USAGE = re.compile(r"^[\w.]+: error: ")  # how the argument parser ends


@dataclass(frozen=True)
class Meaning:
    """One kind of line: a pattern in its message, what it means, and what to look at in it."""

    pattern: str
    meaning: str
    look_at: str


# In the order in which a start shows them.
MEANINGS = (
    Meaning("non-default args", "what was understood of your command", "is every flag there, spelled right?"),
    Meaning("Resolved architecture", "the model's config was read", "is it the model you meant?"),
    Meaning("Using max model len", "prompt plus answer may be so long", "is it what you promised?"),
    Meaning("Initializing a V1 LLM engine", "the second process is up", "the whole configuration is in it"),
    Meaning("Starting to load model", "weights come next", "on a slow disk this is the long part"),
    Meaning("Loading weights took", "weights are in memory", "the seconds: disk or network?"),
    Meaning("for KV cache on node|Available KV cache memory", "memory for the KV cache", "how many GiB?"),
    Meaning("KV cache size", "tokens that fit into the KV cache", "the sum over all callers at once"),
    Meaning("Maximum concurrency", "requests of full length that fit at once", "shorter ones: more of them"),
    Meaning("Graph capturing finished|Capturing CUDA graphs", "on a GPU: steps are recorded", "how long?"),
    Meaning("init engine", "the engine is warm", "the seconds of profiling and warm-up"),
    Meaning("reasoner|reasoning parser", "how thinking is told from the answer", "is it the model's own?"),
    Meaning('"auto" tool choice', "requests may offer tools", "is the parser the model's format?"),
    Meaning(
        "Default vLLM sampling parameters|default sampling param",
        "the model's generation_config.json sets defaults",
        "is a temperature among them?",
    ),
    Meaning("Starting vLLM server on", "the address", "127.0.0.1: only this machine can reach it"),
    Meaning("Application startup complete", "it answers from here on", "only now is it ready"),
    Meaning("Avg prompt throughput", "every ten seconds: load and cache", "Waiting above 0 is a queue"),
    Meaning('" [45][0-9][0-9] ', "a request was refused or failed", "404: wrong model; 400: wrong request"),
    Meaning(
        "engine core exited unexpectedly|EngineDeadError",
        "the process with the model is gone",
        "killed for memory? see the system's log",
    ),
)

# Phase of a start -> the line that ends it.
PHASES = (
    ("import vLLM, read the command", "non-default args"),
    ("read the model's config", "Using max model len"),
    ("start the engine's process (imports again)", "Initializing a V1 LLM engine"),
    ("start the worker (imports again)", "Starting to load model"),
    ("load the weights", "Loading weights took"),
    ("KV cache and warm-up", "init engine"),
    ("open the HTTP server", "Application startup complete"),
)


def frame(text: str) -> pd.DataFrame:
    """A log as a table, a row a line.

    Columns: ``line`` (number, from 1), ``at_s`` (seconds since the first line that has a time; a line
    without one has that of the line before; NaN before the first), ``process`` (``APIServer``,
    ``EngineCore``, ``Worker``; empty if not said), ``pid`` (0 if not said), ``level`` (empty for what is no
    log line), ``source`` (file and line in vLLM) and ``message``.
    """
    rows, first, at_s = [], None, float("nan")
    for number, line in enumerate(text.splitlines(), 1):
        found = LINE.match(line)
        parts = found.groupdict(default="") if found else {"message": line}
        if parts.get("time"):
            # The log leaves out the year. 2000 had a 29 February; a log over New Year goes on after it.
            now = datetime.strptime(f"2000-{parts['time']}", "%Y-%m-%d %H:%M:%S")
            first = first or now
            seconds = (now - first).total_seconds()
            at_s = seconds if seconds > -180 * 86400 else seconds + 366 * 86400
        rows.append(
            {
                "line": number,
                "at_s": at_s,
                "process": parts.get("process", ""),
                "pid": int(parts.get("pid") or 0),
                "level": parts.get("level", ""),
                "source": parts.get("source", ""),
                "message": parts["message"].rstrip(),
            }
        )
    return pd.DataFrame(rows, columns=["line", "at_s", "process", "pid", "level", "source", "message"])


def explained(log: pd.DataFrame, *, width: int = 90) -> pd.DataFrame:
    """The lines of a log that mean something, the first of each kind: ``at_s``, ``process``, ``message``
    (cut to ``width``), ``meaning``, ``look_at``; in the log's order.

    Args:
        log: from :func:`frame`.
        width: letters of the message that are kept.
    """
    rows = []
    for meaning in MEANINGS:
        hits = log[log["message"].str.contains(meaning.pattern, regex=True)]
        if len(hits):
            row = hits.iloc[0]
            rows.append((row["line"], row["at_s"], row["process"], row["message"][:width], meaning))
    rows.sort(key=lambda row: row[0])
    return pd.DataFrame(
        [(at_s, process, said, meaning.meaning, meaning.look_at) for _, at_s, process, said, meaning in rows],
        columns=["at_s", "process", "message", "meaning", "look_at"],
    )


def startup(
    log: pd.DataFrame, *, before_s: float = 0.0, origin: str = "measured", server: str = ""
) -> pd.DataFrame:
    """Where the time of a start went: ``phase``, ``from_s``, ``to_s``, ``process``, ``origin``, ``server``
    and ``n`` (1: it is one start), in order.

    Args:
        log: from :func:`frame`.
        before_s: seconds from the start of the process to the log's first line with a time, if known.
        origin: of the log, for the column.
        server: label of the server whose start it was, for the column.

    A phase whose last line is not in the log is left out; its time is in the next one. The stamps are
    whole seconds.
    """
    rows, begun = [], 0.0
    for phase, mark in PHASES:
        hits = log[log["message"].str.contains(mark, regex=False)]
        at = float(hits["at_s"].iloc[0]) + before_s if len(hits) else float("nan")
        if at == at:
            at = max(at, begun)  # several processes write: a line may come a moment after a later one
            rows.append((phase, begun, at, hits["process"].iloc[0], origin))
            begun = at
    frame = pd.DataFrame(rows, columns=["phase", "from_s", "to_s", "process", "origin"])
    return frame.assign(server=server, n=1)


def cause(text: str) -> str | None:
    """Why a server ended: the first exception in its log that speaks for itself; None if there is none.

    One failure is often told three times: by the process in which it happened, by the one that waited for
    it, and by the one that was asked. Only the first knows why, so the last line of a log often says "see
    above".
    """
    errors = exceptions(text)
    return next((error for error in errors if not SECOND_HAND.search(error)), None) or (
        errors[0] if errors else None
    )


def exceptions(text: str) -> list[str]:
    """Every exception that the log names, in order, without repetitions."""
    found: list[str] = []
    for message in frame(text)["message"]:
        if EXCEPTION.match(message) or USAGE.match(message):
            found.append(message)
        elif found and message.strip().startswith("Value error,"):
            found[-1] = message.strip()  # pydantic puts the reason into the line below its exception
    return list(dict.fromkeys(found))


def end(text: str, lines: int = 3) -> list[str]:
    """The last lines of a log that are not empty, without the warnings that Python's clean-up adds."""
    kept = [
        line
        for line in text.splitlines()
        if LINE.match(line)["message"].strip() and not re.search(r"resource_tracker|warnings\.warn\(", line)
    ]
    return kept[-lines:]
