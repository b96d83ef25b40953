"""Running a benchmark tool: its folder, its environment variables, its process, and aiperf's file.

:mod:`helpers.tools` (one prompt a request) and :mod:`helpers.load_tools` (whole calls) start theirs here.
Keys go to a tool through the environment of its process, never through a command line, and not into a
file. Whatever happens, none of its processes stays behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from helpers.environments import AIPERF, Say, environment
from helpers.processes import last_lines, stopped_at_the_end
from helpers.settings import CourseError, Server, workspace


def environ(server: Server) -> dict[str, str]:
    """The environment variables of a tool that talks to ``server``."""
    variables = dict(os.environ)
    variables.pop("OPENAI_API_KEY", None)  # somebody's key for another server must not go to this one
    if server.api_key:
        variables["OPENAI_API_KEY"] = server.api_key
    variables["DO_NOT_TRACK"] = "1"
    # A proxy set for the web must not stand between the tool and a server on this machine.
    variables["NO_PROXY"] = ",".join(filter(None, (variables.get("NO_PROXY"), "127.0.0.1", "localhost")))
    variables["no_proxy"] = variables["NO_PROXY"]
    return variables


def run_folder(name: str) -> Path:
    """A new folder for one run of a tool; two runs in the same second get two."""
    start = time.strftime(f"{name}-%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        folder = workspace("runs", "tools", start + suffix)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise CourseError(f"There are too many runs named {start} under {folder.parent}; wait a second.")


def run(
    argv: list[str], folder: Path, variables: Mapping[str, str], timeout_s: float, stdin: str = ""
) -> int:
    """Run a tool with its output in ``output.log``; whatever happens, none of its processes stays behind.

    Raises:
        CourseError: it ran longer than ``timeout_s``.
    """
    asked = folder / "stdin.txt"
    asked.write_text(stdin)
    with (folder / "output.log").open("wb") as log, asked.open("rb") as source:
        child = subprocess.Popen(
            argv,
            stdin=source,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )
        with stopped_at_the_end(child):
            try:
                return child.wait(timeout_s)
            except subprocess.TimeoutExpired as late:
                raise CourseError(
                    f"The benchmark tool was stopped after {timeout_s:.0f} s. Its last words:\n"
                    f"{last_lines(folder / 'output.log')}\nGive it a longer timeout_s or fewer requests."
                ) from late


def no_result(tool: str, folder: Path) -> CourseError:
    """What to say when a tool ended and its file is not there."""
    return CourseError(
        f"{tool} ended without a result. Its last words:\n{last_lines(folder / 'output.log')}\n"
        f"The whole of it is in {folder}. If the server was down, start it and run this again."
    )


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as lines of JSON."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def tokenizer(folder: Path) -> Path:
    """A tokenizer that knows one word, written to ``folder``. The tools want one even where the server counts
    the tokens, and would ask the model hub for it; this one is never used to count."""
    folder.mkdir()
    model = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    about = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(about))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


def aiperf(
    server: Server,
    folder: Path,
    *,
    body: Mapping[str, Any],
    dataset: Mapping[str, Any],
    phase: Mapping[str, Any],
    say: Say,
    timeout_s: float,
) -> list[dict[str, Any]]:
    """Run aiperf in its own environment and read its ``profile_export.jsonl``.

    Args:
        server: where to.
        folder: from :func:`run_folder`.
        body: fields to add to each request.
        dataset: its file of prompts, in aiperf's words.
        phase: the kind of load, in aiperf's words.
        say: for the making of the environment.
        timeout_s: for the whole run.

    Returns:
        A record for each request of the measured phase.

    Raises:
        CourseError: the environment could not be made, or aiperf stopped without a result.
    """
    python = environment(AIPERF, say=say)
    endpoint: dict[str, Any] = {
        "url": server.base_url.removesuffix("/v1"),
        "type": "chat",
        "streaming": True,
        "use_server_token_count": True,
        "extra": dict(body),
    }
    if server.api_key:
        endpoint["api_key"] = "${OPENAI_API_KEY}"  # aiperf fills it in from its environment
    benchmark = {
        "model": server.model,
        "endpoint": endpoint,
        "dataset": {"type": "file", "sampling": "sequential", **dataset},
        "phases": dict(phase),
        "artifacts": {"dir": str(folder)},
        "tokenizer": {"name": str(tokenizer(folder / "tokenizer"))},
        "gpu_telemetry": {"enabled": False},
        "server_metrics": {"enabled": False},
        "runtime": {"ui": "none"},
    }
    config = folder / "config.yaml"
    whole = {"schemaVersion": "2.0", "randomSeed": 1, "benchmark": benchmark}
    config.write_text(json.dumps(whole, indent=1))  # JSON is YAML too
    variables = environ(server)
    # With this variable set, 0.13.0 refuses a tokenizer in a local folder. The folder is all it needs.
    variables.pop("HF_HUB_OFFLINE", None)
    run([str(python), "-m", "aiperf", "profile", "--config", str(config)], folder, variables, timeout_s)
    records = folder / "profile_export.jsonl"
    if not records.is_file():
        raise no_result("aiperf", folder)
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    return [line for line in lines if line["metadata"].get("benchmark_phase") == "profiling"]
