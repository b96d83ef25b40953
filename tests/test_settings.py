"""What a learner sees of an error of the course."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

CELL = """
import sys; sys.path.insert(0, {repo!r})
from helpers import published
published.value("no.such.row")
"""


def test_in_a_notebook_an_error_of_the_course_is_its_text_alone():
    from helpers.settings import REPO

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.format(repo=str(REPO)))])
    with pytest.raises(CellExecutionError):
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    [error] = notebook.cells[0].outputs
    assert error.ename == "CourseError"
    [text] = error.traceback
    assert text.startswith("CourseError: data/published.csv has no row 'no.such.row'. It has: ")
