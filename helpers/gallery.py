"""Makes the figures that stand in the repository, from recorded runs: the same bytes each time.

``python -m helpers.gallery`` writes them anew; a test compares.
"""

from __future__ import annotations

from pathlib import Path

from helpers import figures, latency, recorded
from helpers.settings import REPO, CourseError

FOLDER = REPO / "docs"


def two_replies(folder: Path = FOLDER) -> list[Path]:
    """The README's figure: the plain question and the tool call of lesson 05, as recorded.

    Raises:
        CourseError: there is no recorded run of lesson 05, or it lacks one of the two.
    """
    run = recorded.load(recorded.RUNS / "05_measure_ttft.jsonl.gz")
    wanted = {"plain question": {"max_tokens"}, "tool call": {"max_tokens", "tools", "tool_choice"}}
    replies = {}
    for label, fields in wanted.items():
        extra = fields | {
            "messages",
            "temperature",
            "stream",
            "stream_options",
            "chat_template_kwargs",
            "model",
        }
        found = [t for t in run.timelines if set(t.request) == extra and t.error is None]
        if not found:
            raise CourseError(f"The recorded run of lesson 05 has no {label}. Type: make record")
        replies[label] = found[0]  # lesson 05 has warmed both up before, with its naive timer
    frame = latency.chunk_table(replies).assign(origin="recorded", server=run.conditions["server"]["name"])
    title = "What a naive timer sees (first chunk), and what the caller gets (TTFAT)"
    return list(figures.save(figures.stream_timeline, frame, folder / "two_replies", title=title))


if __name__ == "__main__":
    print("\n".join(str(path.relative_to(REPO)) for path in two_replies()))
