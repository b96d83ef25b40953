"""Where no vLLM can run: the lessons that talk to a server, solved, on recorded runs; each number says so."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from helpers.settings import REPO


@pytest.fixture
def replay(tmp_path, monkeypatch):
    """A workspace of its own, on recorded runs; its replay server is stopped whatever happens."""
    for variable, value in {
        "PHONELLM_ENGINE": "recorded",
        "PHONELLM_CHECK": "strict",
        "PHONELLM_WORKSPACE": str(tmp_path),
    }.items():
        monkeypatch.setenv(variable, value)
    yield tmp_path
    subprocess.run([sys.executable, "-m", "helpers.engine", "stop"], cwd=REPO, check=True)


LESSONS = ["00_start_here", "04_serve_with_vllm", "05_measure_ttft", "07_concurrency_and_the_limit"]


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_on_recorded_runs(name, replay):
    notebook = nbformat.read(REPO / "notebooks" / "solutions" / f"{name}.ipynb", 4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(replay))
    texts = {cell.id: "".join(_texts(cell)) for cell in notebook.cells if cell.cell_type == "code"}
    assert "recorded on vLLM" in texts["connect"]
    assert any("Timeline of" in text or "TTFT against" in text for text in texts.values())
    said = "".join(texts.values())
    assert "(measured" not in said
    assert "measured on" not in said


def _texts(cell):
    for output in cell.outputs:
        yield output.get("text", "")
        yield output.get("data", {}).get("text/plain", "")
