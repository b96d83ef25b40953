"""What lesson 04 says, and what it must then be true of. See claims.py."""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from helpers import drills, known_problems, published, recipes, server_log, sources

[LESSON] = [path for path in sources.paths() if path.stem.startswith("04_")]
CELLS = {cell.name: cell.source for cell in sources.read(LESSON)}


def recorded() -> dict:
    """The recorded drills."""
    return json.loads(drills.KEPT.read_text(encoding="utf-8"))


def broken() -> dict:
    """What came of the stream that was killed."""
    return recorded()["session"]["broken"]


def in_section(number: int, words: str) -> bool:
    """Whether these words stand in this section of the lesson."""
    parts = re.split(r"^## (?:(\d+)\. )?", "\n".join(CELLS.values()), flags=re.MULTILINE)
    return words in parts[parts.index(str(number)) + 1]


def tested() -> float:
    """The share of the known problems that one of the course's own tests looks for."""
    return known_problems.table()["how_to_test"].str.contains(r"known_problems\.\w+\(server\)").mean()


CLAIMS = {
    r"More than half of them can be tested": lambda: 0.5 < tested() < 0.75,
    r"Status 200 and an empty page": lambda: HTTPStatus(200).phrase == "OK",
    r"a 400 is the request's fault": lambda: HTTPStatus(400).phrase == "Bad Request",
    r"answers 503 instead": lambda: "503" in known_problems.table().loc["example-order", "problem"],
    r"begun with status 200|began with 200": lambda: broken()["status"] == 200,
    r"next request gets a 500": lambda: "answered HTTP 500" in broken()["next_error"],
    r"exit code: it is that of an orderly end": lambda: broken()["exit_code"] == 0,
    r"most of its weights in four bits each \(NVFP4\)": lambda: recipes.load("b200-nvfp4").form == "NVFP4",
    r"A cache in eight bits costs far more quality": lambda: (
        10 * published.value("serve.nvfp4_kv_bf16_delta") > published.value("serve.nvfp4_kv_fp8_delta")
    ),
    r"more requests came than the server lets in at once": lambda: (
        "more requests than the server lets in" in published.table("serve.queue_ttft_p50")["what"].iloc[0]
    ),
    r"has \*\*three\*\* mistakes": lambda: list(recorded()["starts"]) == ["parser", "port", "memory"],
    r"the last line is no help": lambda: server_log.SECOND_HAND.search(
        server_log.end(drills.recorded_start("memory").log, 1)[0]
    ),
    r"and has three flags changed on purpose|it has three flags changed": lambda: (
        len(recorded()["session"]["changes"]) == 3
    ),
    r"think for ten tokens": lambda: "thinking_token_budget=10)" in CELLS["parser-off"],
    r"Section 8 shows that flag": lambda: in_section(8, "--override-generation-config"),
    r"request of section 4 that sends none": lambda: in_section(4, 'del silent["temperature"]'),
    r"\(section 10\)": lambda: in_section(10, "MoE back end"),
}
HARMLESS = (
    r'And order 77\?|\{"order": "0077"\}',  # made up for an exercise's own case
    r"Errno 24",  # in a line of a log, in an exercise's own case
    r"200 at once|Yes: 200 means|No: 200 is|200 is the good one",  # HTTP's word for "good"
)
