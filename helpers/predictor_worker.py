"""Runs inside the environment of a performance model, not in the course's: JSON in, one JSON line a case out.

``python helpers/predictor_worker.py aiconfigurator|replay`` reads a list of cases from standard input. The
cases are the arguments of the tools' own functions, made by :mod:`helpers.predictors`; nothing of the course
is imported here. A case that a tool cannot do becomes ``{"why": ...}``; the others go on.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

FIRST_WORDS = 160  # of an error message


def main(tool: str) -> None:
    """Answer the cases on standard input, in order."""
    logging.disable(logging.WARNING)
    answer = {"aiconfigurator": _aiconfigurator, "replay": _replay}[tool]()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the tools print themselves goes to standard error
    for case in json.load(sys.stdin):
        out.write(json.dumps(_answered(answer, case)) + "\n")
        out.flush()


def _answered(answer: Callable[[dict[str, Any]], dict[str, Any]], case: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(case)
    except BaseException as error:  # a panic in their compiled part is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        words = " ".join(str(error).split()).split(" at /")[0]
        return {"why": f"{type(error).__name__}: {words[:FIRST_WORDS]}"}


def _aiconfigurator() -> Callable[[dict[str, Any]], dict[str, Any]]:
    from aiconfigurator.cli.api import cli_estimate

    def answer(case: dict[str, Any]) -> dict[str, Any]:
        found = cli_estimate(**case)
        sources = [source for step in (found.per_ops_source or {}).values() for source in step.values()]
        counts = {name: sources.count(name) for name in sorted(set(sources))}
        return {
            "ttft_ms": float(found.ttft),
            "tpot_ms": float(found.tpot),
            "tok_s": float(found.tokens_per_second),
            "tables": f"{found.backend_name} {found.backend_version}",
            "kernels": ", ".join(f"{count} {name}" for name, count in counts.items()),
        }

    return answer


def _replay() -> Callable[[dict[str, Any]], dict[str, Any]]:
    os.environ.setdefault("DYNAMO_SKIP_PYTHON_LOG_INIT", "1")
    from dynamo.llm import MockEngineArgs
    from dynamo.replay import run_synthetic_trace_replay, run_trace_replay

    def answer(case: dict[str, Any]) -> dict[str, Any]:
        case = dict(case)
        engine = MockEngineArgs.from_json(json.dumps(case.pop("engine")))
        run = run_trace_replay if "trace_file" in case else run_synthetic_trace_replay
        report = run(**case, extra_engine_args=engine)
        return {name: value for name, value in report.items() if isinstance(value, int | float)}

    return answer


if __name__ == "__main__":
    main(sys.argv[1])
