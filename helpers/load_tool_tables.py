"""From the files of aiperf and guidellm to the table of requests of our own load maker.

:mod:`helpers.load_tools` runs the tools; here is what they are told of a call (:class:`Plan`), and how their
records are read (:func:`aiperf_table`, :func:`guidellm_table`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from helpers.latency import FLAG_COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS
from helpers.origins import validate
from helpers.settings import CourseError, Server
from helpers.workload import Call, Workload

OURS, AIPERF, GUIDELLM = "our load maker", "aiperf", "guidellm"
LIVE_CALLS, IN_FLIGHT = "live calls", "requests in flight"
WORDS_PER_TOKEN = 0.75  # English, about; only for how long a caller of these tools listens

GOES_ON = {AIPERF: ("finished", "failed"), GUIDELLM: ("finished",)}
"""After which outcomes a tool goes on with the call: aiperf asks on though it got no answer."""

ABOUT = ("made_by", "unit", "run", "call", "turn", "step", "tool", "phase", "outcome")
LEVELS = ("live_calls", "in_flight_limit", "calls_per_minute")
TIMES = ("due_s", "first_answer_s", "ended_s", "due_to_ttfat_ms")
COLUMNS = (*ABOUT, *LEVELS, *TEXT_COLUMNS[:2], *NUMBER_COLUMNS, *TEXT_COLUMNS[2:], *FLAG_COLUMNS, *TIMES)
"""Those of :func:`helpers.latency.table` and of :class:`helpers.load_run.LoadRun`, but for ``call_began_s``
and ``heard_s``, which no tool knows; and ``made_by``, ``unit`` (of the level asked), ``in_flight_limit``."""


@dataclass(frozen=True)
class Step:
    """What a tool is told of one turn: its words, and the pause before them (after the last answer), s."""

    text: str
    pause_s: float


def steps(workload: Workload, call: Call, mark: str, answer_words: float) -> list[Step]:
    """A call as a tool can play it. The pause of the first step is 0: neither tool waits there."""
    found = [Step(call.opening(mark), 0.0)]
    listen_s = workload.listen_s("word " * round(answer_words))
    found += [Step(turn.user, listen_s + turn.think_s + turn.speak_s) for turn in call.turns[1:]]
    return found


@dataclass(frozen=True)
class Plan:
    """What a tool was asked: its calls, what it was told of each, the level, for how many seconds, where."""

    calls: tuple[Call, ...]
    steps: Mapping[str, Sequence[Step]]
    level: Mapping[str, float]
    seconds: float
    server: Server
    mark: str

    @classmethod
    def made(
        cls,
        server: Server,
        workload: Workload,
        calls: int,
        seed: int,
        answer_words: float | None,
        level: Mapping[str, float],
        *,
        seconds: float,
        pauses: bool = True,
    ) -> Plan:
        """The plan for the first ``calls`` calls of a seed.

        Raises:
            CourseError: the level or the number of calls is below 1.
        """
        for name, value in {**level, "calls": calls}.items():
            if value < 1:
                raise CourseError(f"{name}={value} would measure nothing. Give 1 or more.")
        if answer_words is None:
            answer_words = WORDS_PER_TOKEN * workload.value("answer_tokens")
        mark = secrets.token_hex(3)  # new each time: nothing but the system prompt is in a prefix cache
        made = workload.calls(calls, seed=seed)
        told = {call.id: steps(workload, call, mark, answer_words) for call in made}
        if not pauses:
            told = {name: [Step(step.text, 0.0) for step in whole] for name, whole in told.items()}
        return cls(tuple(made), told, level, seconds, server, mark)


def aiperf_table(
    records: Iterable[Mapping[str, Any]], plan: Plan, *, ran_s: float = math.nan, warmup_s: float = 0.0
) -> pd.DataFrame:
    """The table from the lines of aiperf's ``profile_export.jsonl`` (measured phase).

    aiperf writes no line for a request that was unanswered at its end. Left out, the slowest of all would
    make the server look fast; so they are put back as ``cut``, as far as the other lines show that they were
    due.

    Args:
        records: the lines.
        plan: what was asked.
        ran_s: seconds from its first request to its end, if known.
        warmup_s: see :func:`helpers.load_tools.aiperf`.

    Raises:
        CourseError: there is no line at all.
    """
    rows = []
    for record in records:
        about, error = record["metadata"], record.get("error") or {}
        metrics = {name: metric["value"] for name, metric in record.get("metrics", {}).items()}
        gaps = metrics.get("inter_chunk_latency") or []
        cut = about.get("was_cancelled", False)
        rows.append(
            {
                "call": about["conversation_id"],
                "turn": about["turn_index"],
                "outcome": "cut" if cut else "failed" if error else "finished",
                "sent_at_s": about["request_start_ns"] / 1e9,
                "ended_at_s": about["request_end_ns"] / 1e9,
                "connect_ms": metrics.get("http_req_connection_overhead"),
                "ttft_ms": metrics.get("time_to_first_token"),
                "ttfat_ms": metrics.get("time_to_first_output_token"),
                "itl_median_ms": median(gaps) if gaps else None,
                "itl_max_ms": max(gaps, default=None),
                "tpot_ms": metrics.get("inter_token_latency"),
                "e2e_ms": metrics.get("request_latency"),
                "prompt_tokens": metrics.get("usage_prompt_tokens"),
                "cached_tokens": metrics.get("usage_prompt_cache_read_tokens"),
                "completion_tokens": metrics.get("usage_completion_tokens"),
                "reasoning_tokens": metrics.get("usage_reasoning_tokens"),
                "chunks": metrics.get("http_req_chunks_received"),
                "error": str(error.get("type") or error.get("code")) if error else "cut" if cut else None,
                "error_message": error.get("message"),
            }
        )
    first_s = min((row["sent_at_s"] for row in rows), default=math.nan)
    rows += _unrecorded(rows, plan, AIPERF, first_s + ran_s)
    return _table(rows, AIPERF, LIVE_CALLS, plan, warmup_s)


def guidellm_table(report: Mapping[str, Any], plan: Plan, *, warmup_s: float = 0.0) -> pd.DataFrame:
    """The table from guidellm's JSON report of one level. It may end before its last answer and forget that
    one, which is put back as in :func:`aiperf_table`.

    Raises:
        CourseError: there is no request in it.
    """
    outcomes = {"successful": "finished", "errored": "failed", "incomplete": "cut"}
    rows = []
    for kind, outcome in outcomes.items():
        for request in report["benchmarks"][0]["requests"][kind] or []:
            info, whole = request["info"], outcome == "finished"
            at = info["timings"]
            sent_s, ended_s = (
                at["request_start"] or at["resolve_start"],
                at["request_end"] or at["resolve_end"],
            )
            if sent_s is None:  # it never left: the run ended first
                continue
            rows.append(
                {
                    "call": info["conversation_id"],
                    "turn": info["turn_index"],
                    "outcome": outcome,
                    "sent_at_s": sent_s,
                    "ended_at_s": ended_s,
                    "first_chunk_ms": _after_ms(sent_s, at["first_request_iteration"]),
                    "ttft_ms": _after_ms(sent_s, at["first_token_iteration"]),
                    "ttfat_ms": _after_ms(sent_s, at["first_output_token_iteration"]),
                    "tpot_ms": request["inter_token_latency_ms"] if whole else None,
                    "e2e_ms": _after_ms(sent_s, at["request_end"]) if whole else None,
                    "prompt_tokens": request["prompt_tokens"] if whole else None,
                    "cached_tokens": request["cached_tokens"] if whole else None,
                    "completion_tokens": request["output_tokens"] if whole else None,
                    "chunks": at["request_iterations"],
                    "error": None if whole else outcome,
                    "error_message": info["error"],
                }
            )
    rows += _unrecorded(rows, plan, GUIDELLM, report["benchmarks"][0]["end_time"])
    return _table(rows, GUIDELLM, IN_FLIGHT, plan, warmup_s)


def _after_ms(start_s: float, then_s: float | None) -> float | None:
    return None if then_s is None else (then_s - start_s) * 1e3


def _unrecorded(rows: list[dict[str, Any]], plan: Plan, made_by: str, end_s: float) -> list[dict[str, Any]]:
    """Requests that must have been sent, or were due, and are in no record: the next turn of a call whose
    pause was over, and (aiperf takes the calls in order) the first turn of a call before one that began."""
    if not rows:
        return []
    latest_s, first_s = max(row["ended_at_s"] for row in rows), min(row["sent_at_s"] for row in rows)
    end_s = latest_s if math.isnan(end_s) else max(end_s, latest_s)
    by_call: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_call.setdefault(row["call"], []).append(row)
    missing, next_began_s = [], math.nan
    for call in reversed(plan.calls):
        known = sorted(by_call.get(call.id, []), key=lambda row: row["turn"])
        if not known:
            if made_by == AIPERF and not math.isnan(next_began_s):
                missing.append((call.id, 0, next_began_s))
            continue
        next_began_s, last = known[0]["sent_at_s"], known[-1]
        turn = last["turn"] + 1
        if turn == len(call.turns) or last["outcome"] not in GOES_ON[made_by]:
            continue
        due_s = last["ended_at_s"] + plan.steps[call.id][turn].pause_s
        if due_s < min(end_s, first_s + plan.seconds):
            missing.append((call.id, turn, due_s))
    what = {"outcome": "cut", "error": "cut", "ended_at_s": end_s}
    what["error_message"] = f"{made_by} has no record of it: unanswered when it ended. Counts as too slow."
    return [{"call": call, "turn": turn, "sent_at_s": due_s, **what} for call, turn, due_s in missing]


def _table(rows: list[dict[str, Any]], made_by: str, unit: str, plan: Plan, warmup_s: float) -> pd.DataFrame:
    """The rows of a tool as the common frame: what it does not know is NaN (numbers) or None (text)."""
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys((*COLUMNS, "sent_at_s", "ended_at_s"))))
    if frame.empty:
        raise CourseError(
            f"{made_by} has no record of any request: not one was answered before it ended. Does the server "
            "answer at all? Give it more seconds, or fewer calls at a time."
        )
    frame = frame.sort_values("sent_at_s", ignore_index=True)
    start_s = frame["sent_at_s"].min()
    for name in ("sent", "ended"):
        frame[f"{name}_s"] = pd.to_numeric(frame[f"{name}_at_s"]) - start_s
    frame["made_by"], frame["unit"], frame["run"] = made_by, unit, plan.mark
    frame["server"], frame["origin"] = plan.server.name or plan.server.model, plan.server.origin
    frame["step"], frame["tool"], frame["streamed"], frame["answer_in_reasoning"] = 0, False, True, False
    for name in LEVELS:
        frame[name] = plan.level.get(name, math.nan)
    frame["due_s"] = _due_s(frame, plan)
    frame["phase"] = ["warmup" if at_s < warmup_s else "measured" for at_s in frame["due_s"]]
    frame["call"] = [f"{plan.mark}-{name}" for name in frame["call"]]
    frame = frame[list(COLUMNS)].astype(dict.fromkeys((*NUMBER_COLUMNS, *LEVELS, *TIMES), float))
    frame["wait_ms"] = (frame["sent_s"] - frame["due_s"]) * 1e3
    frame["first_answer_s"] = frame["sent_s"] + frame["ttfat_ms"] / 1e3
    frame["due_to_ttfat_ms"] = frame["wait_ms"] + frame["ttfat_ms"]
    for name in ("error", "error_message", "finish_reason"):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    frame = frame.astype({"turn": int, "step": int, "tool": bool, **dict.fromkeys(FLAG_COLUMNS, bool)})
    return validate(frame, used_by="load_tools")


def _due_s(frame: pd.DataFrame, plan: Plan) -> list[float]:
    """When each request should have been sent: the pause after the end of the answer before it. Never after
    it was sent: the tools' clocks tick in whole milliseconds here and there."""
    ended = {(row.call, row.turn): row.ended_s for row in frame.itertuples()}
    due = []
    for row in frame.itertuples():
        before = ended.get((row.call, row.turn - 1))
        pause_s = plan.steps[row.call][row.turn].pause_s
        due.append(row.sent_s if before is None else min(before + pause_s, row.sent_s))
    return due
