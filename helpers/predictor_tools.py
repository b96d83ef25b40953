"""Two of the field's models of a GPU that nobody here has, each run in an environment of its own.

What they are, and what the course keeps of them, is in :mod:`helpers.predictors`; this module asks them.
What to know of the two, found by running them:

- aiconfigurator takes TensorRT-LLM unless told otherwise, and a mixture of experts needs ``moe_tp_size``.
  FP8 is asked for as the BF16 model with other kernels, since only that config is inside the package. Its
  TTFT is the mean of a step with a constant for the CPU; nobody waits for a seat.
- dynamo.replay wants all of its sizes for experts and attention, knows one GPU only, and BF16. Its own pool
  of 16,384 blocks is small for a B200, so :func:`engine` sets the memory that is there. Its prefix cache
  hands out blocks of 64 tokens, as for attention; a Mamba model reuses much larger ones. Its option for a
  pause between turns keeps requests in flight, not callers: :func:`write_trace` writes the calls instead.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from helpers import capacity
from helpers.environments import Environment, Say, environment
from helpers.machine_model import machine
from helpers.origins import validate
from helpers.processes import stopped_at_the_end
from helpers.settings import REPO, CourseError, workspace
from helpers.workload import Workload, load

AICONFIGURATOR = Environment(
    "aiconfigurator", REPO / "requirements" / "aiconfigurator.txt", 39, 900, python=((3, 11), (3, 13))
)
DYNAMO = Environment("dynamo", REPO / "requirements" / "dynamo.txt", 80, 1500, python=((3, 11), (3, 13)))
WORKER = REPO / "helpers" / "predictor_worker.py"

SYSTEMS = {"B200": "b200_sxm", "H100": "h100_sxm", "H200": "h200_sxm", "L40S": "l40s"}
SYSTEMS |= {"RTX PRO 6000": "rtx_pro_6000_server", "DGX Spark": "gb10"}
BASE_MODEL = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-{}"
KERNELS = "0.19.0"  # of vLLM, the ones that the pinned dynamo can read

TRACE_BLOCK = 64  # tokens for which one number stands in a trace
LEVELS = (32, 128, 256, 512, 1024, 1280)  # live calls of the recorded line
LINE_S = 300.0  # of which the lines begin in the first minute
SPREAD_S = 60.0


@dataclass(frozen=True)
class Case:
    """One operating point of a benchmark with a fixed number of requests in flight.

    Attributes:
        gpu: label of :func:`helpers.hardware.table`.
        precision: BF16, FP8 or NVFP4.
        gpus: how many share the model.
        engine: ``vLLM`` or ``SGLang``, with or without a version.
        concurrency: requests in flight.
        isl: tokens of each prompt.
        osl: tokens of each answer.
        requests: how many there are in all.
        seats: ``max-num-seqs`` of the server.
    """

    gpu: str
    precision: str
    gpus: int
    engine: str
    concurrency: int
    isl: int
    osl: int
    requests: int = 0
    seats: int = 512


def aiconfigurator(cases: Sequence[Case], *, say: Say = print) -> pd.DataFrame:
    """Ask aiconfigurator for operating points. Makes its environment the first time.

    Returns:
        One row a case, with its fields, ``ttft_ms`` and ``tpot_ms`` (means), ``tok_s`` (of all answers),
        ``tables`` (which measured kernels), ``kernels`` (how many are measured, estimated or a bound),
        ``why`` (it cannot; the numbers are NaN then), ``tool`` and ``origin`` (modelled).

    Raises:
        CourseError: the environment cannot be made here, or the tool does not run.
    """
    asked = []
    for case in cases:
        kernels = {"gemm_quant_mode": "fp8", "moe_quant_mode": "fp8"} if case.precision == "FP8" else {}
        form = "BF16" if case.precision == "FP8" else case.precision
        asked.append(
            {
                "model_path": BASE_MODEL.format(form),
                "system_name": SYSTEMS.get(case.gpu, case.gpu),
                "backend_name": "sglang" if case.engine.lower().startswith("sglang") else "vllm",
                "isl": case.isl,
                "osl": case.osl,
                "batch_size": case.concurrency,
                "tp_size": case.gpus,
                "moe_tp_size": case.gpus,
                "moe_ep_size": 1,
                **kernels,
            }
        )
    found = _ask(AICONFIGURATOR, "aiconfigurator", asked, say)
    columns = ("ttft_ms", "tpot_ms", "tok_s", "tables", "kernels", "why")
    return _rows(cases, found, columns, "aiconfigurator 0.12.0")


def replay(cases: Sequence[Case], *, say: Say = print) -> pd.DataFrame:
    """Let dynamo.replay run benchmarks with all requests at once at the start. Makes its environment the
    first time.

    Returns:
        One row a case, with its fields, ``ttft_ms`` (mean), ``ttft_p50_ms``, ``ttft_p95_ms``,
        ``ttft_p99_ms``, ``tpot_ms`` (mean), ``tpot_p50_ms``, ``tok_s``, ``why``, ``tool`` and ``origin``
        (modelled).

    Raises:
        CourseError: the environment cannot be made here, or the tool does not run.
    """
    able = [case for case in cases if case.precision == "BF16"]
    asked = [
        {
            "input_tokens": case.isl,
            "output_tokens": case.osl,
            "request_count": case.requests or 10 * case.concurrency,
            "replay_concurrency": case.concurrency,
            "engine": engine(case.gpu, case.gpus, seats=case.seats, caching=False),
        }
        for case in able
    ]
    answers = iter(_ask(DYNAMO, "replay", asked, say)) if able else iter(())
    no = {"why": "it can only be asked for BF16"}
    found = [_renamed(next(answers)) if case.precision == "BF16" else no for case in cases]
    columns = (*REPORT.values(), "why")
    return _rows(cases, found, columns, "dynamo.replay 1.1.1")


def line(
    levels: Iterable[int] = LEVELS,
    *,
    workload: Workload | None = None,
    seats: int = 512,
    seed: int = 0,
    say: Say = print,
) -> pd.DataFrame:
    """Let dynamo.replay carry live calls on one B200 in BF16: the workload as a trace. Makes its environment
    the first time.

    Returns:
        One row a level: ``live_calls``, ``max_num_seqs``, ``requests``, ``ttft_p50_ms``, ``ttft_p95_ms``,
        ``ttft_p99_ms``, ``ttft_ms`` (mean), ``tpot_ms``, ``tpot_p50_ms``, ``tok_s``, ``reuse`` (share of the
        prompts' tokens from the prefix cache), ``why``, ``tool`` and ``origin`` (modelled).

    Raises:
        CourseError: the environment cannot be made here, or the tool does not run.
    """
    levels = list(levels)
    with tempfile.TemporaryDirectory(dir=workspace("traces", "x").parent) as folder:
        asked = []
        for level in levels:
            path = Path(folder) / f"{level}.jsonl"
            write_trace(path, level, workload=workload, seed=seed)
            asked.append(
                {
                    "trace_file": str(path),
                    "trace_block_size": TRACE_BLOCK,
                    "engine": engine(seats=seats, caching=True),
                }
            )
        found = [_renamed(report) for report in _ask(DYNAMO, "replay", asked, say)]
    names = {"completed_requests": "requests", "prefix_cache_reused_ratio": "reuse"}
    rows = [
        {"live_calls": level, "max_num_seqs": seats}
        | {new: report.get(old, math.nan) for old, new in names.items()}
        | {column: report.get(column, math.nan) for column in REPORT.values()}
        | {"why": report.get("why", "")}
        for level, report in zip(levels, found, strict=True)
    ]
    frame = pd.DataFrame(rows).assign(tool="dynamo.replay 1.1.1", origin="modelled")
    return validate(frame, used_by="predictors.line")


def write_trace(
    path: Path, live_calls: int, *, workload: Workload | None = None, seconds: float = LINE_S, seed: int = 0
) -> int:
    """Write the calls of a workload as a trace: JSON lines in Mooncake's form with sessions.

    Each line of the phone is one session: its first request has a ``timestamp``, each later one a ``delay``
    after the end of the answer before it (a caller begins to listen at its first token; the difference, the
    time in which an answer streams, makes the traced callers a little slower). A block of the prompt that an
    earlier request had has that one's number, so the simulator's prefix cache can find it: the system prompt
    is the same for all, the rest of a call is its own. A last, unfinished block is new each time.

    Args:
        path: where to write.
        live_calls: people on the phone at once.
        workload: the kind of call; the support call by default.
        seconds: how long each line keeps calling, about.
        seed: of the calls and of when the lines begin.

    Returns:
        How many requests it holds.
    """
    workload = workload or load()
    chance = Random(f"trace {seed}")
    rows: list[dict[str, Any]] = []
    call, fresh = 0, 0
    numbers: dict[tuple[Any, ...], int] = {}
    for name in range(live_calls):
        planned_s, start_ms = 0.0, 1000 * chance.uniform(0, SPREAD_S)
        first = True
        while planned_s < seconds:
            made = capacity.asks(workload, workload.call(call, seed=seed))
            system = made[0].known_tokens
            for ask in made:
                wait_s = ask.listen_s + ask.pause_s
                planned_s += wait_s
                blocks, rest = divmod(ask.prompt_tokens, TRACE_BLOCK)
                keys: list[tuple[Any, ...]] = [
                    (i,) if (i + 1) * TRACE_BLOCK <= system else (call, i) for i in range(blocks)
                ]
                if rest:
                    fresh += 1
                    keys.append(("new", fresh))
                ids = [numbers.setdefault(key, len(numbers)) for key in keys]
                row = {"session_id": f"line-{name}", "input_length": ask.prompt_tokens}
                row |= {"output_length": ask.output_tokens, "hash_ids": ids}
                row |= {"timestamp": start_ms + 1000 * wait_s} if first else {"delay": 1000 * wait_s}
                first = False
                rows.append(row)
            call += 1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


def engine(gpu: str = "B200", gpus: int = 1, *, seats: int = 512, caching: bool = True) -> dict[str, Any]:
    """The simulated engine's arguments, for BF16.

    Its memory is what the GPU has beside the weights, in blocks of 64 tokens. A request's Mamba state takes
    no blocks there, so room for it is kept back.
    """
    limits = machine(gpu, gpus=gpus).limits(max_num_seqs=seats)
    tokens = limits.room_tokens - seats * limits.request_tokens
    return {
        "block_size": TRACE_BLOCK,
        "num_gpu_blocks": max(1, int(tokens // TRACE_BLOCK)),
        "max_num_seqs": seats,
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": caching,
        "aic_backend": "vllm",
        "aic_backend_version": KERNELS,
        "aic_system": SYSTEMS.get(gpu, gpu),
        "aic_model_path": BASE_MODEL.format("BF16"),
        "aic_tp_size": gpus,
        "aic_moe_tp_size": gpus,
        "aic_moe_ep_size": 1,
        "aic_attention_dp_size": 1,
    }


def made(spec: Environment) -> bool:
    """Whether the environment of a tool is there already."""
    return workspace("envs", spec.name, "complete").exists()


# their report -> the course's names; median is P50
REPORT = {
    "mean_ttft_ms": "ttft_ms",
    "median_ttft_ms": "ttft_p50_ms",
    "p95_ttft_ms": "ttft_p95_ms",
    "p99_ttft_ms": "ttft_p99_ms",
    "mean_tpot_ms": "tpot_ms",
    "median_tpot_ms": "tpot_p50_ms",
    "output_throughput_tok_s": "tok_s",
}


def _renamed(report: dict[str, Any]) -> dict[str, Any]:
    return {REPORT.get(name, name): value for name, value in report.items()}


def _rows(
    cases: Sequence[Case], found: Sequence[dict[str, Any]], columns: Sequence[str], tool: str
) -> pd.DataFrame:
    rows = []
    for case, answer in zip(cases, found, strict=True):
        rows.append(
            vars(case) | {name: answer.get(name, "" if name in WORDS else math.nan) for name in columns}
        )
    return validate(pd.DataFrame(rows).assign(tool=tool, origin="modelled"), used_by="predictors")


WORDS = ("tables", "kernels", "why")


def _ask(spec: Environment, tool: str, cases: Sequence[dict[str, Any]], say: Say) -> list[dict[str, Any]]:
    """Give the cases to the worker in the tool's environment; one answer a case, in order."""
    if platform.machine() != "x86_64":
        raise CourseError(
            f"{spec.name} comes for x86-64 processors only and this is {platform.machine()}. "
            f"The lesson goes on with its recorded run: predictors.recorded_points()."
        )
    python = environment(spec, say=say)
    argv = [str(python), "-I", str(WORKER), tool]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            cwd=workspace("envs", "x").parent, start_new_session=True,
        )  # fmt: skip
        answers = []
        with stopped_at_the_end(child):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(list(cases)))
            child.stdin.close()
            for answer in child.stdout:
                answers.append(json.loads(answer))
                if len(answers) % 10 == 0 or len(cases) < 10:
                    say(f"  {tool}: {len(answers)} of {len(cases)} cases")
            child.wait()
        if len(answers) != len(cases):
            errors.seek(0)
            last = "\n".join(errors.read().strip().splitlines()[-8:])
            raise CourseError(
                f"{spec.name} ended after {len(answers)} of {len(cases)} cases. Its last words:\n{last}\n"
                f"The lesson goes on with its recorded run."
            )
    return answers
