"""What a load leaves behind: one row a request, the client's own lag, the server's pages; kept in files.

:mod:`helpers.load` makes a :class:`LoadRun`. It can be saved with everything it was made under, loaded again
and compared; saving never overwrites.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from helpers import calls, latency, runs
from helpers.settings import WORKSPACE, CourseError, Server, cannot_write, workspace
from helpers.stats import percentile
from helpers.stream_errors import StreamError
from helpers.streaming import Timeline

LAG_COLUMNS = ("at_s", "lag_ms")
LAG_LIMIT_MS = 30.0
"""A client that is later than this in more than one moment of twenty is too slow to be trusted. The question
is a P95, which leaves one request of twenty above itself, and this is 5 % of the 600 ms of the promise."""

EXTRA_COLUMNS = (
    "run",
    "call",
    "turn",
    "step",
    "tool",
    "phase",
    "outcome",
    "live_calls",
    "calls_per_minute",
    "due_s",
    "first_answer_s",
    "ended_s",
    "call_began_s",
    "heard_s",
    "due_to_ttfat_ms",
)
OUTCOMES = ("finished", "failed", "cut")
COMPARED = (
    "run",
    "server",
    "date",
    "workload",
    "level",
    "requests",
    *OUTCOMES,
    "ttfat_p50_ms",
    "ttfat_p95_ms",
    "in_flight",
    "duty_cycle",
    "trusted",
    "ended",
    "origin",
)


@dataclass
class Asked:
    """One request of a caller while a run runs. Times in ``perf_counter_ns``; 0 or None: not yet.

    Attributes:
        call: id of the call.
        turn: which turn of it, from 0.
        step: 0, or 1 for the answer after a tool's result.
        tool: it was to end in the call of a tool.
        due_ns: when the caller had said the last word.
        began_ns: when the call began.
        sent_ns, ended_ns: when it was sent, and answered or given up.
        heard_ns: when the caller had heard the answer.
        timeline: what came.
        cut: it was unanswered when the run ended.
    """

    call: str
    turn: int
    step: int
    tool: bool
    due_ns: int
    began_ns: int
    sent_ns: int = 0
    ended_ns: int = 0
    heard_ns: int | None = None
    timeline: Timeline | None = None
    cut: bool = False

    def listened(self, reply: latency.Latency, listen_s: float) -> int:
        """When the agent's voice is through with the answer: it begins with the first token of it, and cannot
        end before the last has come."""
        first_ms = reply.ttfat_ms if reply.ttfat_ms is not None else reply.e2e_ms or 0
        return max(self.sent_ns + round(first_ms * 1e6 + listen_s * 1e9), self.ended_ns)


@dataclass
class LoadRun:
    """A load that was made, and what came of it.

    Attributes:
        requests: one row a request that was sent, in order of sending: the columns of
            :func:`helpers.latency.table`, where ``sent_s`` counts from the start of the run, and
            :data:`EXTRA_COLUMNS`: ``run`` (a mark, different for each run), ``call``, ``turn`` (from 0),
            ``step`` (1: the answer after a tool's result), ``tool`` (the request was to end in the call of a
            tool), ``phase`` (``warmup`` or ``measured``, by when it was due), ``outcome`` (``finished``,
            ``failed``, or ``cut``: unanswered when the run ended), ``live_calls`` or ``calls_per_minute``
            (what was asked for; the other is NaN), times in seconds since the start (``due_s``,
            ``first_answer_s``, ``ended_s``, ``call_began_s``, ``heard_s``: when the caller had heard the
            answer), and ``due_to_ttfat_ms``: from when the request was due, our own lateness (``wait_ms``)
            included. A limit is about this one.
        lag: ``at_s``, ``lag_ms``: how late the client itself was, every 20 ms.
        pages: the server's own numbers over time, see :func:`helpers.watch.table`, with ``run`` and the level
            asked for; empty if it shows none.
        about: all conditions of the run.
        trusted: False if the numbers are not to be trusted; ``why_not`` says why.
        why_not: a sentence, empty if trusted.
        ended: ``time``, ``requests``, ``done`` (enough calls), ``stopped by you`` or ``server gone: ...``.
        server: whom it was about; None for a loaded run.
    """

    requests: pd.DataFrame
    lag: pd.DataFrame
    pages: pd.DataFrame
    about: dict[str, Any]
    trusted: bool
    why_not: str
    ended: str
    server: Server | None = field(default=None, repr=False)

    @property
    def measured(self) -> pd.DataFrame:
        """The requests without those of the warm-up."""
        return self.requests[self.requests["phase"] == "measured"].reset_index(drop=True)

    def level(self) -> str:
        """What was asked for, with its unit: ``8 live calls`` or ``20 calls a minute``."""
        if self.about.get("live_calls") is not None:
            return f"{self.about['live_calls']} live calls"
        return f"{self.about['calls_per_minute']:g} calls a minute"

    def sentence(self) -> str:
        """What was done, what came of it, and whether to believe it."""
        count = self.measured["outcome"].value_counts()
        said = [
            f"{self.level()}, {len(self.measured)} measured requests: {count.get('finished', 0)} finished"
        ]
        said += [f"{count[kind]} {kind}" for kind in ("failed", "cut") if count.get(kind, 0)]
        text = f"{', '.join(said)}. Ended: {self.ended}."
        return text if self.trusted else f"{text} Not to be trusted: {self.why_not}"

    def save(self, name: str) -> str:
        """Keep the run under ``workspace/runs/`` and return its name, such as
        ``07-eight-20261201-101500``. Never overwrites.

        Raises:
            CourseError: the run was loaded, not made; or the folder cannot be written in.
        """
        if self.server is None:
            raise CourseError(
                "This run was loaded, so it is saved already. load.names() lists what there is."
            )
        saved = runs.save(name, self.requests, self.server, self.about["what"])
        more = {
            "about": self.about,
            "trusted": self.trusted,
            "why_not": self.why_not,
            "ended": self.ended,
            "lag": _plain(self.lag),
            "pages": _plain(self.pages),
        }
        try:
            with workspace("runs", f"{saved}.load.json").open("x", encoding="utf-8") as file:
                json.dump(more, file, indent=1)
        except OSError as error:
            raise cannot_write(error) from error
        return saved


def table(
    asked: list[Asked],
    *,
    start_ns: int,
    server: Server,
    mark: str,
    warmup_s: float,
    live_calls: int | None,
    calls_per_minute: float | None,
) -> pd.DataFrame:
    """The requests of a run as a frame, see :class:`LoadRun`."""
    asked = sorted(asked, key=lambda one: one.sent_ns or one.ended_ns)
    timelines = [_timeline(one, server) for one in asked]

    def seconds(at_ns: int | None) -> float:
        return math.nan if at_ns is None else (at_ns - start_ns) / 1e9

    due = [seconds(one.due_ns) for one in asked]
    frame = latency.table(
        timelines,
        run=[mark] * len(asked),
        call=[f"{mark}-{one.call}" for one in asked],
        turn=[one.turn for one in asked],
        step=[one.step for one in asked],
        tool=[one.tool for one in asked],
        phase=["warmup" if at_s < warmup_s else "measured" for at_s in due],
        outcome=[_outcome(one) for one in asked],
        live_calls=[math.nan if live_calls is None else float(live_calls)] * len(asked),
        calls_per_minute=[math.nan if calls_per_minute is None else float(calls_per_minute)] * len(asked),
        due_s=due,
        first_answer_s=[math.nan] * len(asked),
        ended_s=[seconds(line.ended_ns) for line in timelines],
        call_began_s=[seconds(one.began_ns) for one in asked],
        heard_s=[seconds(one.heard_ns) for one in asked],
        due_to_ttfat_ms=[math.nan] * len(asked),
    )
    frame["sent_s"] = [seconds(line.sent_ns) for line in timelines]
    frame["first_answer_s"] = frame["sent_s"] + frame["ttfat_ms"] / 1000
    frame["due_to_ttfat_ms"] = frame["wait_ms"] + frame["ttfat_ms"]
    return frame.astype({"turn": int, "step": int, "tool": bool})


def _outcome(one: Asked) -> str:
    if one.cut or one.timeline is None:
        return "cut"
    return "failed" if one.timeline.error else "finished"


def _timeline(one: Asked, server: Server) -> Timeline:
    """What came of a request, or that nothing did."""
    waited_s = (one.ended_ns - one.due_ns) / 1e9
    cut = StreamError(
        "cut", f"Not finished when the run ended, {waited_s:.1f} s after it was due. Counts as too slow."
    )
    if one.timeline is not None:
        return replace(one.timeline, error=cut) if one.cut else one.timeline
    return Timeline(
        request={},
        sent_ns=one.sent_ns or one.ended_ns,
        events=(),
        ended_ns=one.ended_ns,
        status=None,
        streamed=False,
        error=cut,
        server=server.name or server.base_url,
        origin=server.origin,
        due_ns=one.due_ns,
    )


def lag_table(lag: list[tuple[float, float]]) -> pd.DataFrame:
    """``at_s`` and ``lag_ms`` of the client's ticks."""
    return pd.DataFrame(lag, columns=list(LAG_COLUMNS), dtype=float)


def late(lag: pd.DataFrame) -> dict[str, float]:
    """How late the client was, in ms: ``p50``, ``p95``, ``p99`` and ``max`` of its ticks."""
    if lag.empty:
        return {}
    found = {f"p{q * 100:g}": percentile(lag["lag_ms"], q).value for q in (0.5, 0.95, 0.99)}
    return {name: round(ms, 1) for name, ms in (found | {"max": lag["lag_ms"].max()}).items()}


def doubt(requests: pd.DataFrame, lag: pd.DataFrame, server: Server, *, capped: bool = False) -> str:
    """Why the numbers of a run are not to be trusted, in a sentence; empty if they are.

    Judged over the measured phase: the client's ticks and its sends, each by its P95, against
    :data:`LAG_LIMIT_MS`. Sends are late on purpose where they are ``capped``.
    """
    if server.origin != "measured":
        return "This server replays recorded answers at their recorded times, so nothing can queue in it."
    measured = requests[requests["phase"] == "measured"]
    if measured.empty:
        return "No request was measured."
    since_s = measured["due_s"].min()
    late = {
        "was late by": lag.loc[lag["at_s"] >= since_s, "lag_ms"],
        "sent requests late by": measured["wait_ms"] if not capped else [],
    }
    for what, times in late.items():
        if len(times) and (worst := percentile(times, 0.95).value) > LAG_LIMIT_MS:
            return (
                f"This client itself {what} {worst:.0f} ms (P95), more than {LAG_LIMIT_MS:.0f} ms: some of "
                "the time is its own. Close what else runs here, ask for fewer calls, or send from another "
                "machine."
            )
    return ""


def names(name: str = "") -> list[str]:
    """Names of the saved loads that begin with ``name``, oldest first."""
    return [found for found in runs.names(name) if (WORKSPACE / "runs" / f"{found}.load.json").exists()]


def load(name: str) -> LoadRun:
    """A saved load.

    Raises:
        CourseError: there is none of this name, or its files are damaged.
    """
    requests, conditions = runs.load(name)
    path = WORKSPACE / "runs" / f"{name}.load.json"
    try:
        more = json.loads(path.read_text(encoding="utf-8"))
        return LoadRun(
            requests=requests.astype({"error": object, "error_message": object}),
            lag=pd.DataFrame(**more["lag"]),
            pages=pd.DataFrame(**more["pages"]),
            about=more["about"] | {"conditions": conditions},
            trusted=more["trusted"],
            why_not=more["why_not"],
            ended=more["ended"],
        )
    except OSError as error:
        listed = ", ".join(names()) or "none yet"
        raise CourseError(f"{name!r} is a run, but no load. Saved loads: {listed}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CourseError(
            f"The load {name!r} is damaged and cannot be read ({error!r}).\n"
            f"Move {path} away, then measure and save again."
        ) from error


def compare(*names_: str) -> pd.DataFrame:
    """Saved loads side by side, one row each, all of them without arguments: the level asked for, measured
    requests by outcome, P50 and P95 of ``due_to_ttfat_ms`` (a request without an answer counts as infinitely
    slow), mean requests in flight, the share of a call in which the server works, how it ended. Without any
    saved load it has its columns and no row, and a line says how to save one.

    Columns: :data:`COMPARED`.

    Raises:
        CourseError: one of the names has no load, or a damaged one.
    """
    rows = []
    for name in names_ or names():
        try:
            run = load(name)
        except CourseError as damaged:
            if names_:
                raise
            warnings.warn(f"{damaged}", stacklevel=2)  # one that is damaged does not hide the others
            continue
        measured = run.measured
        count = measured["outcome"].value_counts()
        # A request without an answer is slower than any.
        times = measured["due_to_ttfat_ms"].fillna(math.inf)
        rows.append(
            {
                "run": name,
                "server": run.about["conditions"]["server"]["name"],
                "date": run.about["conditions"]["date"],
                "workload": run.about["workload"],
                "level": run.level(),
                "requests": len(measured),
                **{outcome: int(count.get(outcome, 0)) for outcome in OUTCOMES},
                "ttfat_p50_ms": percentile(times, 0.5).value if len(times) else math.nan,
                "ttfat_p95_ms": percentile(times, 0.95).value if len(times) else math.nan,
                "in_flight": calls.mean_in_flight(measured),
                "duty_cycle": calls.duty_cycle(run.requests),
                "trusted": run.trusted,
                "ended": run.ended,
                "origin": run.about["conditions"]["origin"],
            }
        )
    if not rows:
        print("No load is saved yet. After first = load.run(...), first.save('07-first') keeps that one.")
    return pd.DataFrame(rows, columns=list(COMPARED))


def _plain(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """A frame for JSON, which has no NaN."""
    rows = frame.round(6).astype(object).to_numpy().tolist()
    plain = [[None if value != value else value for value in row] for row in rows]
    return {"data": plain, "columns": list(frame.columns)}
