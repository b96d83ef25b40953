"""Lesson 02 names the mistakes that people make in it: each wrong answer gets the words meant for it."""

from __future__ import annotations

import hashlib

import lesson_mistakes
import pytest

from helpers import hub, practice_repository

LESSON = lesson_mistakes.Lesson("02", hashlib=hashlib)

# exercise -> (what is right, what is written instead, part of the words) ...
WRONG = {
    "ex-1": (
        ("mbit_per_s * 1_000_000", "mbit_per_s", "A megabit is a million bits"),
        ("size_bytes * 8", "size_bytes", "A byte has eight bits"),
        ("size_bytes * 8", "size_bytes / 8", "You divided by eight"),
        ("1_000_000", "1024**2", "powers of ten"),
        ("seconds / 60", "seconds", "in seconds"),
        ("seconds / 60", "seconds / 3600", "in hours"),
        ("return seconds / 60", "return round(seconds / 60)", "Do not round"),
    ),
    "ex-3": (
        ("sha1(header + content)", "sha1(content)", "the header is missing"),
        ("sha1(header + content)", "sha1(content + header)", "The header goes before"),
        (r' + b"\0"', "", "zero byte between"),
        (r' + b"\0"', ' + b"0"', "That is a digit"),
        ("str(len(content)).encode()", "bytes(len(content))", "six zero bytes"),
        (
            "sha1(header + content)",
            r'sha1(f"blob {len(content)}\0{content}".encode())',
            "writes bytes with a b",
        ),
        ("hashlib.sha1", "hashlib.sha256", "git uses SHA-1"),
        ("hexdigest", "digest", "raw bytes"),
    ),
}


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    lesson_mistakes.own_workspace(tmp_path, monkeypatch)


@lesson_mistakes.each(WRONG)
def test_a_known_mistake_is_named(exercise, right, wrong, words):
    assert words in LESSON.told(exercise, right, wrong)


@pytest.mark.parametrize("exercise", WRONG)
def test_the_solution_passes(exercise):
    assert LESSON.told(exercise).strip() == ""


def run(names: str, space: dict) -> None:
    """Run cells in this order."""
    for name in names.split():
        exec(LESSON.cells[name], space)


def test_the_wrong_byte_comes_and_goes_however_often_the_cells_are_run():
    space: dict = {}
    run("setup start-hub", space)
    try:
        space |= {"pinned": space["practice"].older, "last_shard": practice_repository.SHARDS[-1]}
        run("listing flip flip", space)
        for _ in range(2):
            checked = hub.verify(space["listing"], cache=space["cache"])
            assert list(checked.loc[~checked["right"], "file"]) == [space["last_shard"]]
            run("mend", space)
            assert hub.verify(space["listing"], cache=space["cache"])["right"].all()
            run("flip", space)
    finally:
        space["practice"].stop()
        space["folder"].cleanup()
