"""How long does the engine take from start to first token: eager or compiled, with or without caches? And in
which form should it compute on this processor?

Run as ``python -m benchmarks.starts`` (about eight minutes). Each way of starting runs once in a workspace of
its own, then again with the caches that the start before left. Prints a Markdown table, keeps nothing else.
``python -m benchmarks.starts forms`` compares bfloat16 and float32 alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from helpers import machine, model

# One start in a process of its own, because helpers reads its workspace when it is imported.
CHILD = """
import dataclasses, json, sys, time
from helpers import engine, latency, prompts, recipes, streaming, supervisor
way, form = sys.argv[1:]
flags = recipes.EMBEDDED.flags
if way == "compiled":
    flags = tuple(flag for flag in flags if flag.name != "--enforce-eager")
if form:
    flags = tuple(dataclasses.replace(flag, value=form) if flag.name == "--dtype" else flag for flag in flags)
recipes.EMBEDDED = dataclasses.replace(recipes.EMBEDDED, flags=flags)
begun = time.monotonic()
server = engine.connect(lambda line: None)
ready = time.monotonic() - begun
state = supervisor.read_state(engine.EMBEDDED.folder)
asked = [streaming.chat_request(prompts.conversation(prompts.HELLO), max_tokens=24) for _ in range(8)]
table = latency.table(streaming.ask_many(server, asked, concurrency=1))
engine.stop()
print(json.dumps({
    "start to first token, s": ready,
    "first request, ms": state["birth_ms"][0],
    "TTFT P50, ms": table["ttft_ms"].median(),
    "ITL P50, ms": table["itl_median_ms"].median(),
}))
"""


@dataclasses.dataclass(frozen=True)
class Start:
    """One way of starting, how often in a row, and the form to compute in (empty: the recipe's)."""

    way: str
    times: int
    form: str = ""


WAYS = (Start("eager", 3), Start("compiled", 3))
FORMS = (Start("eager", 1, "bfloat16"), Start("eager", 1, "float32"))


def main(words: list[str]) -> None:
    """Start the engine in each way and print the table."""
    prepared = model.prepare()
    rows = []
    for start in FORMS if words == ["forms"] else (*WAYS, *FORMS):
        with tempfile.TemporaryDirectory(prefix="starts-") as folder:
            link = Path(folder) / "model" / model.NAME
            link.parent.mkdir()
            link.symlink_to(prepared)
            for number in range(start.times):
                caches = "no caches" if number == 0 else "caches of the start before"
                rows.append(
                    {"start": f"{start.way} {start.form}".strip(), "caches": caches}
                    | {"load": os.getloadavg()[0]}
                    | _once(start, folder)
                )
                print(rows[-1], flush=True)
    print(f"\n{machine.processor()}, {os.cpu_count()} cores, {machine.system()}; one value a start\n")
    print(_markdown(pd.DataFrame(rows)))


def _once(start: Start, folder: str) -> dict[str, float]:
    own = {
        "PHONELLM_WORKSPACE": folder,
        "VLLM_CACHE_ROOT": f"{folder}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
    }
    out = subprocess.run(
        [sys.executable, "-c", CHILD, start.way, start.form],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(out.stdout.strip().splitlines()[-1])


def _markdown(frame: pd.DataFrame) -> str:
    lines = [list(frame.columns), ["---"] * len(frame.columns)]
    lines += [
        [f"{value:.1f}" if isinstance(value, float) else str(value) for value in row] for row in frame.values
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
