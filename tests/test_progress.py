"""Progress: only ever added to, by several kernels at once, and readable whatever happened to the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from helpers import progress, settings, sources
from helpers.settings import CourseError

DATA = Path(__file__).parent / "data" / "lessons"


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.setattr(sources, "NOTEBOOKS", DATA)
    monkeypatch.delenv("PHONELLM_CHECK", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.delenv("PHONELLM_RECORD", raising=False)


def row(exercise: str) -> pd.Series:
    frame = progress.summary()
    return frame[frame["exercise"] == exercise].iloc[0]


def test_an_attempt_is_one_json_line():
    progress.record("07-1", False, detail="zwei\nZeilen – ü")
    progress.record("07-q1", True, kind="quiz")
    first, second = progress.path().read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["detail"] == "zwei\nZeilen – ü"
    assert set(json.loads(second)) == {"time", "lesson", "exercise", "kind", "passed", "detail"}
    assert [entry["exercise"] for entry in progress.read()] == ["07-1", "07-q1"]


def test_two_processes_writing_at_once_lose_nothing():
    count = 300
    code = (
        "import sys\nfrom helpers import progress\n"
        f"for n in range({count}): progress.record('07-1', False, detail=sys.argv[1] * 200 + str(n))"
    )
    env = {
        key: value for key, value in os.environ.items() if key not in ("PHONELLM_CHECK", "JPY_SESSION_NAME")
    }
    env |= {"PHONELLM_WORKSPACE": str(settings.WORKSPACE), "PYTHONPATH": str(settings.REPO)}
    writers = [subprocess.Popen([sys.executable, "-c", code, letter], env=env) for letter in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    details = [entry["detail"] for entry in progress.read()]
    assert sorted(details) == sorted(letter * 200 + str(n) for letter in "ab" for n in range(count))
    for letter in "ab":  # each writer's own lines are in its order
        assert [d for d in details if d[0] == letter] == [letter * 200 + str(n) for n in range(count)]


@pytest.mark.parametrize("tail", [b'{"time": "2026-01-0', b"\xff\xfe", b"[1, 2]", b'"text"', b"{}"])
def test_a_line_that_was_cut_off_costs_only_itself(tail):
    progress.record("07-1", False)
    with progress.path().open("ab") as file:
        file.write(tail)
    assert len(progress.read()) == 1
    progress.record("07-1", True)
    assert [entry["passed"] for entry in progress.read()] == [False, True]
    assert tail in progress.path().read_bytes()  # nothing is removed


@pytest.mark.parametrize(
    "line",
    [
        '{"time": 3, "exercise": "07-1", "passed": true}',
        '{"time": "2026-01-01T00:00:00", "exercise": "07-1", "passed": true}',
        '{"time": "2026-01-01T00:00:00+00:00", "exercise": 7, "passed": true}',
        '{"time": "2026-01-01T00:00:00+00:00", "exercise": "07-1", "passed": "yes"}',
        "null",
        "",
    ],
)
def test_a_line_that_is_no_attempt_is_passed_over(line):
    progress.record("07-1", False)
    with progress.path().open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert len(progress.read()) == 1
    assert row("07-1")["attempts"] == 1


def test_no_file_means_nothing_done():
    assert progress.read() == []
    frame = progress.summary()
    assert list(frame.columns) == list(progress.COLUMNS)
    assert list(frame["exercise"]) == ["07-1", "07-2", "07-q1"]
    assert not frame["passed"].any()
    assert frame["last_tried"].isna().all()


def test_tries_count_up_to_the_first_right_one():
    for passed in (False, False, True, False, True):
        progress.record("07-1", passed)
    progress.record("07-2", False)
    assert row("07-1")["passed"]
    assert row("07-1")["attempts"] == 3
    assert row("07-1")["first_passed"] < row("07-1")["last_tried"] or (
        row("07-1")["first_passed"] == row("07-1")["last_tried"]
    )
    assert row("07-1")["title"] == "Exercise 1: time the first token"
    assert not row("07-2")["passed"]
    assert row("07-2")["attempts"] == 1
    assert pd.isna(row("07-2")["first_passed"])


def test_what_the_course_no_longer_has_is_still_shown():
    progress.record("03-9", True)
    assert row("03-9")["lesson"] == "03"
    assert row("03-9")["passed"]


def test_show_lists_the_lesson_and_the_course(capsys):
    progress.record("07-1", False)
    progress.record("07-1", True)
    progress.record("07-q1", False, kind="quiz")
    progress.show("07")
    out = capsys.readouterr().out
    assert "✓ 07-1 Exercise 1: time the first token: done, 2 tries" in out
    assert "○ 07-2 Exercise 2: count them: open" in out
    assert "not yet, 1 try" in out
    assert "07 A sample lesson: 1 of 2 exercises, 0 of 1 questions" in out


def test_show_works_for_a_lesson_without_exercises_and_beside_a_broken_source(tmp_path, monkeypatch, capsys):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "01_broken.py").write_text("def (", encoding="utf-8")
    monkeypatch.setattr(sources, "NOTEBOOKS", tmp_path)
    progress.show("01")
    assert "Lesson 01" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- answers


def test_answers_are_kept_beside_each_other_and_never_overwritten():
    first = progress.keep_answer("07-1", "a = 1\n")
    assert progress.keep_answer("07-1", "a = 1") is None  # the same again
    second = progress.keep_answer("07-1", "a = 2")
    (settings.WORKSPACE / "answers" / "07-1-9.py").write_text("mine", encoding="utf-8")
    third = progress.keep_answer("07-1", "a = 1")
    assert [path.name for path in (first, second, third)] == ["07-1-1.py", "07-1-2.py", "07-1-10.py"]
    assert first.read_text(encoding="utf-8") == "a = 1\n"
    assert progress.keep_answer("07-1", "  ") is None
    assert progress.keep_answer("07-11", "b").name == "07-11-1.py"


def test_an_answer_by_another_notebook_at_the_same_moment_is_not_overwritten(monkeypatch):
    folder = settings.WORKSPACE / "answers"
    folder.mkdir(parents=True)
    (folder / "07-1-1.py").write_text("theirs", encoding="utf-8")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))  # we looked just before it came
    assert progress.keep_answer("07-1", "ours").name == "07-1-2.py"
    assert (folder / "07-1-1.py").read_text(encoding="utf-8") == "theirs"


# -------------------------------------------------------------------------------- what is not recorded


def test_a_solved_notebook_is_not_the_learners_work(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/course/notebooks/solutions/07_sample.ipynb")
    progress.record("07-1", True)
    assert progress.keep_answer("07-1", "a") is None
    assert progress.read() == []
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/course/workspace/lessons/07_sample.ipynb")
    progress.record("07-1", True)
    assert len(progress.read()) == 1


@pytest.mark.parametrize(
    ("folder", "counts"), [("notebooks/solutions", False), ("notebooks", True), ("mine/solutions", True)]
)
def test_a_solved_notebook_run_by_nbconvert_is_not_either(tmp_path, monkeypatch, folder, counts):
    """nbconvert sets no JPY_SESSION_NAME; the kernel's folder is the notebook's."""
    (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / folder)
    progress.record("07-1", True)
    assert len(progress.read()) == counts


def test_the_courses_own_recording_is_not_either(monkeypatch):
    monkeypatch.setenv("PHONELLM_RECORD", "05_measure_ttft")
    progress.record("07-1", True)
    assert progress.keep_answer("07-1", "a") is None
    assert progress.read() == []


def test_half_a_surrogate_pair_can_be_recorded():
    progress.record("07-1", False, detail="it said \ud83d")
    progress.record("07-1", True)
    assert [entry["detail"] for entry in progress.read()] == ["it said \ud83d", ""]


def test_a_folder_that_cannot_be_written_is_explained(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "file")
    with pytest.raises(CourseError, match="run this cell again"):
        progress.record("07-1", True)
    with pytest.raises(CourseError, match=r"run this (cell )?again"):
        progress.keep_answer("07-1", "a = 1")
