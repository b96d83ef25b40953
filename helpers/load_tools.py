"""The field's load tools on the calls of a workload: aiperf and guidellm, beside our own load maker.

Both run in environments of their own (:mod:`helpers.environments`) and get the same calls as
:func:`helpers.load.run`: same system prompt, same words, same pauses, the real answers fed back. Each answer
becomes one row of the table of requests. What they count as load is not the same:

================ ================== ==================================================================
:func:`aiperf`   live calls         a session keeps its place while its caller pauses
:func:`guidellm` requests in flight a caller who pauses gives the place away: more calls live than asked
================ ================== ==================================================================

The column ``unit`` says which. Other differences, read in the source of aiperf 0.13.0 and guidellm 0.8.1 and
seen here (``benchmarks/README.md``):

* Neither has a voice, so the time in which the caller listens is a fixed pause, for an answer of
  ``answer_words`` words, from the answer's end on. Our callers listen to the real answer, from its start.
* Neither calls a tool here: a turn that would is a plain turn. The tools stand in the prompt all the same.
* Neither pauses before a call's first words; aiperf can begin the calls spread over ``ramp_s``.
* Both wait for the answer before the next turn, so a late answer makes the next question late. When a
  request was due follows from the end of the answer before; ``wait_ms`` is how much later it was sent. In
  guidellm that holds the wait for a place, which its own TTFT leaves out.
* guidellm stamps with the wall clock: if the system sets its clock in a run, a time is wrong by as much.
* guidellm adds ``ignore_eos`` to a request whose number of tokens comes with the data: answers would then
  always be as long as allowed. So the limit goes to its backend, the same for all turns.
* After a failed request our caller and guidellm's hang up; aiperf's asks the next question.
* Of a request that is unanswered at the end, aiperf writes no line, and guidellm forgets one now and then.
  They are put back as ``cut``: left out, the slowest would make the server look fast.
* aiperf's search for a limit puts 60 s of warm-up before each level, whatever it was told, and takes the mean
  of several runs' percentiles for the percentile. So its search is not used here: its requests are, with
  :mod:`helpers.slo`.

Both get a tokenizer of one word (:func:`helpers.tool_process.tokenizer`), or they would ask the model hub for
one; the server counts the tokens. Keys go to them through the environment of their process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import calls as counting
from helpers import environments, recorded, stats, tool_process
from helpers.environments import Say, environment
from helpers.load_tool_tables import (
    AIPERF,
    COLUMNS,
    GUIDELLM,
    IN_FLIGHT,
    LIVE_CALLS,
    OURS,
    Plan,
    Step,
    aiperf_table,
    guidellm_table,
)
from helpers.origins import validate
from helpers.prompts import ORDER_TOOL
from helpers.settings import Server
from helpers.workload import Call, Workload

__all__ = [
    "AIPERF",
    "COLUMNS",
    "GUIDELLM",
    "IN_FLIGHT",
    "LIVE_CALLS",
    "OURS",
    "agreement",
    "aiperf",
    "guidellm",
    "meanings",
    "ours",
    "summary",
    "units",
]

GRACE_S = 10.0  # answers in flight at the end are waited for so long, as in helpers.load
GIVE_UP = (
    20  # failed requests (or calls, if fewer) after which guidellm ends: it waits for the turns they lack
)
START_S = 120.0  # for the tool's own start and end, before a run counts as stuck
RECORDED_TABLE = "07-tools"


# --- aiperf -----------------------------------------------------------------------------------------------


def aiperf(
    server: Server,
    workload: Workload,
    *,
    live_calls: int,
    calls: int,
    seconds: float = 300.0,
    warmup_s: float = 0.0,
    ramp_s: float | None = None,
    answer_words: float | None = None,
    seed: int = 0,
    thinking: bool = False,
    say: Say = print,
) -> pd.DataFrame:
    """Let aiperf keep so many calls live, and return its requests as a table with :data:`COLUMNS`.

    Args:
        server: where to.
        workload: the kind of call.
        live_calls: lines with a caller on each; when a call ends, its line takes the next one.
        calls: how many calls in all. Towards the end lines fall empty.
        seconds: the longest it may take; what is unanswered then is given up.
        warmup_s: requests due in these first seconds have the ``phase`` ``warmup``.
        ramp_s: the lines begin spread over so many seconds; by default half of the warm-up, as in
            :func:`helpers.load.run`. 0: all at once.
        answer_words: words of an answer, for how long a caller listens; by default three quarters of the
            longest answer in tokens.
        seed: which callers; the same as in :func:`helpers.load.run`.
        thinking: let the model think first.
        say: called with lines of progress.

    Raises:
        CourseError: the environment could not be made, or aiperf ended without a result.
    """
    plan = Plan.made(server, workload, calls, seed, answer_words, {"live_calls": live_calls}, seconds=seconds)
    folder = tool_process.run_folder("aiperf-calls")
    rows = (_aiperf_session(workload, call, plan.steps[call.id]) for call in plan.calls)
    tool_process.write_lines(folder / "calls.jsonl", rows)
    phase: dict[str, Any] = {"type": "concurrency", "concurrency": live_calls, "sessions": calls}
    phase |= {"duration": seconds, "grace_period": GRACE_S}
    if ramp := (warmup_s / 2 if ramp_s is None else ramp_s):
        phase["concurrency_ramp"] = ramp
    say(f"aiperf: {calls} calls, {live_calls} live, after some seconds to start its processes.")
    records = tool_process.aiperf(
        server,
        folder,
        body=_body(workload, thinking),
        dataset={"path": str(folder / "calls.jsonl"), "format": "multi_turn"},
        phase=phase,
        say=say,
        timeout_s=seconds + GRACE_S + START_S,
    )
    table = aiperf_table(records, plan, ran_s=_ran_s(folder), warmup_s=warmup_s)
    say(f"aiperf: {len(table)} requests; its own files are in {folder}")
    return table


def _ran_s(folder: Path) -> float:
    """How long aiperf ran, by its summary; NaN where it has none."""
    try:
        about = json.loads((folder / "profile_export_aiperf.json").read_text())
        begin, end = (datetime.fromisoformat(about[name]) for name in ("start_time", "end_time"))
    except (OSError, ValueError, KeyError):
        return math.nan
    return (end - begin).total_seconds()


def _aiperf_session(workload: Workload, call: Call, told: Sequence[Step]) -> dict[str, Any]:
    turns: list[dict[str, Any]] = [{"role": "system", "text": call.system}]
    for step, turn in zip(told, call.turns, strict=True):
        turns.append({"text": step.text, "delay": step.pause_s * 1e3, "output_length": turn.max_tokens})
    del turns[1]["delay"]
    return {"session_id": call.id, "turns": turns}


# --- guidellm ---------------------------------------------------------------------------------------------


def guidellm(
    server: Server,
    workload: Workload,
    *,
    in_flight: int,
    calls: int,
    seconds: float = 300.0,
    warmup_s: float = 0.0,
    pauses: bool = True,
    answer_words: float | None = None,
    seed: int = 0,
    thinking: bool = False,
    say: Say = print,
) -> pd.DataFrame:
    """Let guidellm keep up to so many requests in flight, and return them as a table with :data:`COLUMNS`.

    While one caller pauses, guidellm gives the place to another call. So with pauses the number of live calls
    is not what was asked for; it is at most ``calls``. With ``calls=in_flight`` it is about that many, until
    the first of them ends. Arguments as in :func:`aiperf`, and:

    Args:
        in_flight: requests in flight at most.
        pauses: with the pauses between turns; without, ``in_flight`` callers who never pause.

    Raises:
        CourseError: the environment could not be made, or guidellm ended without a result.
    """
    plan = Plan.made(
        server,
        workload,
        calls,
        seed,
        answer_words,
        {"in_flight_limit": in_flight},
        seconds=seconds,
        pauses=pauses,
    )
    python = environment(environments.GUIDELLM, say=say)
    folder = tool_process.run_folder("guidellm-calls")
    rows = (_guidellm_graph(call, plan.steps[call.id]) for call in plan.calls)
    tool_process.write_lines(folder / "calls.jsonl", rows)
    scenario = folder / "scenario.json"
    scenario.write_text(
        json.dumps(_guidellm_scenario(server, workload, folder, in_flight, calls, seconds, thinking))
    )
    variables = tool_process.environ(server)
    key = variables.pop("OPENAI_API_KEY", None)
    # Its own name for the key. What it keeps in the folder of the model hub stays with the run.
    variables |= {"GUIDELLM__SPEC__BACKEND__API_KEY": key} if key else {}
    variables |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    say(f"guidellm: {calls} calls, {in_flight} requests in flight, after some seconds to start.")
    argv = [str(python), "-m", "guidellm", "run", "--config", str(scenario)]
    tool_process.run([*argv, "--disable-console-interactive"], folder, variables, seconds + GRACE_S + START_S)
    result = folder / "result.json"
    if not result.is_file():
        raise tool_process.no_result("guidellm", folder)
    report = json.loads(result.read_text())
    table = guidellm_table(report, plan, warmup_s=warmup_s)
    say(f"guidellm: {len(table)} requests; its own files are in {folder}")
    return table


def _guidellm_graph(call: Call, told: Sequence[Step]) -> dict[str, str]:
    turns: list[dict[str, Any]] = []
    for number, step in enumerate(told):
        parents = [{"parent_node_id": f"turn_{number - 1}", "history_context": "full"}] if number else []
        # The pause belongs to the turn that ends before it.
        after_s = told[number + 1].pause_s if number + 1 < len(told) else 0.0
        turn: dict[str, Any] = {"node_id": f"turn_{number}", "parents": parents}
        turn["columns"] = {"text_column": [step.text]} | ({} if number else {"prefix_column": [call.system]})
        turn["settings"] = {"requeue_delay": after_s} if after_s > 0 else None
        turns.append(turn)
    return {"conversation_turns": json.dumps({"graph_id": call.id, "turns": turns})}


def _guidellm_scenario(
    server: Server,
    workload: Workload,
    folder: Path,
    in_flight: int,
    calls: int,
    seconds: float,
    thinking: bool,
) -> dict[str, Any]:
    backend = {
        "kind": "openai_http",
        "target": server.base_url,
        "model": server.model,
        "request_format": "/v1/chat/completions",
        "max_tokens": int(workload.value("answer_tokens")),
        "extras": {"body": _body(workload, thinking)},
    }
    spec = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": [in_flight]},
        "constraints": [
            {"kind": "max_duration", "seconds": seconds},
            {"kind": "max_errors", "count": min(GIVE_UP, calls)},
        ],
        "tokenizer": {
            "kind": "huggingface_auto",
            "model": str(tool_process.tokenizer(folder / "tokenizer")),
        },
        "data": [{"kind": "json_file", "path": str(folder / "calls.jsonl")}],
        "outputs": [{"kind": "json", "path": str(folder / "result.json")}],
    }
    return {"spec": spec}


def _body(workload: Workload, thinking: bool) -> dict[str, Any]:
    """The fields that our load maker's requests have too."""
    body = {"temperature": 0, "chat_template_kwargs": {"enable_thinking": thinking}}
    tools = {"tools": [ORDER_TOOL], "tool_choice": "none"} if workload.value("tool_share") else {}
    return body | tools


def ours(requests: pd.DataFrame) -> pd.DataFrame:
    """``LoadRun.requests`` with the columns ``made_by`` and ``unit``, to stand beside a tool's table."""
    return requests.assign(made_by=OURS, unit=LIVE_CALLS, in_flight_limit=math.nan)


def summary(*tables: pd.DataFrame) -> pd.DataFrame:
    """One row a tool: what was asked and in which unit, and what came of it.

    Args:
        *tables: from :func:`ours`, :func:`aiperf` and :func:`guidellm`.

    Returns:
        Columns ``made_by``, ``asked``, ``unit``, ``calls``, ``requests`` (measured), ``failed`` (or cut),
        ``mean_in_flight``, ``duty_cycle``, ``ttft_p50_ms``, ``ttfat_p50_ms``, ``ttfat_p95_ms``,
        ``due_to_ttfat_p95_ms``, ``origin``, ``server``. Percentiles are of requests with the number.
    """
    rows = []
    for table in tables:
        measured = table[table["phase"] == "measured"]
        first = table.iloc[0]
        asked = first["live_calls"] if first["unit"] == LIVE_CALLS else first["in_flight_limit"]
        rows.append(
            {
                "made_by": first["made_by"],
                "asked": asked,
                "unit": first["unit"],
                "calls": measured["call"].nunique(),
                "requests": len(measured),
                "failed": int((measured["outcome"] != "finished").sum()),
                "mean_in_flight": counting.mean_in_flight(measured),
                "duty_cycle": counting.duty_cycle(table),
                "ttft_p50_ms": _percentile(measured["ttft_ms"], 0.5),
                "ttfat_p50_ms": _percentile(measured["ttfat_ms"], 0.5),
                "ttfat_p95_ms": _percentile(measured["ttfat_ms"], 0.95),
                "due_to_ttfat_p95_ms": _percentile(measured["due_to_ttfat_ms"], 0.95),
                "origin": first["origin"],
                "server": first["server"],
            }
        )
    return pd.DataFrame(rows)


def _percentile(values: pd.Series, q: float) -> float:
    known = values.dropna()
    return stats.percentile(known, q).value if len(known) else math.nan


def meanings() -> pd.DataFrame:
    """What each tool calls the first token, on streams that begin in different ways; recorded.

    From ``python -m benchmarks.load_tools --record``: a server of known delays, all tools in one run.

    Returns:
        One row a stream, tool and metric: ``stream`` (what the server sends), ``tool``, ``metric`` (the
        tool's own name), ``common`` (ours for it: TTFT or TTFAT), ``n`` requests, ``p50_ms``, ``fires_on``
        (the event whose time it is: ``role-only chunk``, ``first token``, ``first answer token`` or ``not
        reported``), ``off_by_ms`` (median distance to the event that ``common`` means, by the server's log),
        ``agrees`` (it means what ours means), ``origin``, ``server``. The conditions are in
        ``.attrs["conditions"]``.
    """
    return recorded.load_table(RECORDED_TABLE)


def agreement() -> pd.DataFrame:
    """What three load makers say of the same requests; recorded in the same run as :func:`meanings`.

    Returns:
        One row a number (``TTFT``, ``TTFAT``, ``end to end``) and ``tool``: ``n`` requests, ``p50_ms``,
        ``p95_ms``, ``log_p50_ms`` (the same by the server's own log), ``error_p50_ms`` and ``error_p95_ms``
        (request by request, against the log), ``from_ours_ms`` (its median less ours), ``paired_ms``
        (median of the differences from ours, request by request), ``spread_ms`` (largest distance between
        two tools' medians), ``origin``.
    """
    return _of_report("agreement")


def units() -> pd.DataFrame:
    """:func:`summary` of each tool and ``repetition`` of the same run: one number asked for, in two units.
    ``load`` is that of the machine."""
    return _of_report("units")


def _of_report(part: str) -> pd.DataFrame:
    conditions = meanings().attrs["conditions"]
    frame = pd.DataFrame(conditions["report"][part]).assign(origin="recorded")
    frame.attrs["conditions"] = conditions
    return validate(frame, used_by=f"load_tools.{part}")
