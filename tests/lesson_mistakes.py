"""Does a lesson name the mistakes that people make in it? What the tests of all lessons share.

A lesson's own test file holds its mistakes and what its cells need; see ``test_lesson_02.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers import check, settings, sources

Mistakes = dict[str, tuple[tuple[str, str, str], ...]]


class Lesson:
    """The solved cells of a lesson, and what they need to run: ``Lesson("02", hashlib=hashlib)``."""

    def __init__(self, number: str, **names: Any) -> None:
        [path] = [path for path in sources.paths() if path.stem.startswith(f"{number}_")]
        self.cells = {cell.name: cell.source for cell in sources.read(path)}
        self.names = {"check": check} | names

    def told(self, exercise: str, right: str = "", wrong: str = "") -> str:
        """What the check of an exercise says when one thing in its solution is wrong (or nothing is)."""
        assert right in self.cells[exercise]
        space = dict(self.names)
        exec(self.cells[exercise].replace(right, wrong) if right else self.cells[exercise], space)
        exec(self.cells[f"{exercise}-check"], space)
        return " ".join(case.said for case in space["exercise"].cases)


def each(mistakes: Mistakes) -> pytest.MarkDecorator:
    """One test for each mistake: exercise, what is right, what is written instead, part of the words."""
    rows = [(name, *mistake) for name, known in mistakes.items() for mistake in known]
    return pytest.mark.parametrize(("exercise", "right", "wrong", "words"), rows)


def own_workspace(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the tries gets into anybody's progress."""
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.delenv("PHONELLM_CHECK", raising=False)
