"""What the learner has done: kept in plain files, shown at the end of each lesson.

``workspace/progress.jsonl`` has one JSON line an attempt and is only ever added to; two notebooks may write
at the same moment. ``workspace/answers/`` keeps the text of every answer that passed. Both are the learner's
own.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from helpers import cards, settings, sources
from helpers.settings import CourseError

try:
    import fcntl
except ImportError:  # Windows; there a line is still one write
    fcntl = None

COLUMNS = ("lesson", "exercise", "kind", "title", "passed", "attempts", "first_passed", "last_tried")


def path() -> Path:
    """The progress file, which need not exist yet."""
    return settings.WORKSPACE / "progress.jsonl"


def recording() -> bool:
    """False in a solved notebook, in the tests' strict mode and while the course's own runs are recorded
    (``PHONELLM_RECORD``): what passes there is not the learner's."""
    if os.environ.get("PHONELLM_CHECK") == "strict" or os.environ.get("PHONELLM_RECORD"):
        return False
    opened = Path(os.environ.get("JPY_SESSION_NAME", ""))  # set by JupyterLab: the notebook of this kernel
    if opened.parent.name == "solutions":
        return False
    try:  # nbconvert sets no such variable, but runs a notebook in the folder where it lies
        return Path.cwd().parts[-2:] != ("notebooks", "solutions")
    except OSError:  # the folder is gone
        return True


def record(exercise: str, passed: bool, *, kind: str = "exercise", detail: str = "") -> None:
    """Add one attempt.

    Args:
        exercise: id such as ``05-1`` or ``05-q1``; what stands before the hyphen is the lesson.
        passed: whether the answer was right.
        kind: ``exercise`` or ``quiz``.
        detail: a short sentence for later reading, such as the mistake that was named.

    Raises CourseError if the file cannot be written.
    """
    if not recording():
        return
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "lesson": exercise.partition("-")[0],
        "exercise": exercise,
        "kind": kind,
        "passed": bool(passed),
        "detail": detail,
    }
    # Half a surrogate pair, which an exception's text may hold, has no UTF-8 form.
    line = (json.dumps(entry, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
    try:
        _append(path(), line)
    except OSError as error:
        raise CourseError(
            f"Your result counts, but it could not be written to {path()} ({error.strerror}). "
            "Free some disk space or make that folder writable, then run this cell again."
        ) from error


def _append(file: Path, line: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":  # a line that was cut off; ours must not be glued to it
                line = b"\n" + line
        os.write(descriptor, line)
    finally:
        os.close(descriptor)  # gives the lock back too


def keep_answer(exercise: str, text: str) -> Path | None:
    """Keep a passed answer as ``workspace/answers/<exercise>-<n>.py``, beside earlier ones; returns the file,
    or None if the newest kept answer is this one already. Raises CourseError if it cannot be written."""
    if not recording() or not text.strip():
        return None
    content = text.rstrip() + "\n"
    try:
        folder = settings.workspace("answers", "x").parent
        numbers = [
            int(match[1])
            for file in folder.glob(f"{exercise}-*.py")
            if (match := re.fullmatch(rf"{re.escape(exercise)}-(\d+)\.py", file.name))
        ]
        number = max(numbers, default=0)
        if number and (folder / f"{exercise}-{number}.py").read_text(encoding="utf-8") == content:
            return None
        while True:
            number += 1
            file = folder / f"{exercise}-{number}.py"
            with contextlib.suppress(FileExistsError), file.open("x", encoding="utf-8") as out:
                out.write(content)
                return file
    except (OSError, UnicodeError) as error:
        raise CourseError(
            f"Your answer passed, but no copy could be kept in {settings.WORKSPACE / 'answers'} ({error}). "
            "Free some disk space or make that folder writable, then run this cell again."
        ) from error


def read() -> list[dict]:
    """Every attempt, oldest first. Lines that are cut off or are no attempt are passed over, not removed."""
    try:
        text = path().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
            entry["time"] = datetime.fromisoformat(entry["time"])
            whole = isinstance(entry["exercise"], str) and isinstance(entry["passed"], bool)
        except (ValueError, KeyError, TypeError):
            continue
        if whole and entry["time"].tzinfo:
            found.append(entry)
    return found


def summary() -> pd.DataFrame:
    """One row for each exercise and question of the course, and for any other that was ever tried.

    Columns:
        lesson: its number, ``05``. exercise: its id, ``05-1``. kind: ``exercise`` or ``quiz``.
        title: heading of the exercise, or the question.
        passed: whether any attempt was right.
        attempts: number of tries up to and including the first right one; all of them if none was right.
        first_passed, last_tried: times in UTC, NaT where there is none.
    """
    tried: dict[str, list[dict]] = {}
    for entry in read():
        tried.setdefault(entry["exercise"], []).append(entry)
    known = {item.id: (item.lesson, item.kind, item.title) for item in _items()}
    rows = []
    for key in [*known, *sorted(set(tried) - set(known))]:
        entries = tried.get(key, [])
        default = (key.partition("-")[0], entries[0].get("kind", "exercise") if entries else "exercise", "")
        lesson, kind, title = known.get(key, default)
        right = next((number for number, entry in enumerate(entries) if entry["passed"]), None)
        rows.append(
            {
                "lesson": lesson,
                "exercise": key,
                "kind": kind,
                "title": title,
                "passed": right is not None,
                "attempts": len(entries) if right is None else right + 1,
                "first_passed": None if right is None else entries[right]["time"],
                "last_tried": entries[-1]["time"] if entries else None,
            }
        )
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    for column in ("first_passed", "last_tried"):
        frame[column] = pd.to_datetime(frame[column], utc=True)
    return frame.astype({"passed": bool, "attempts": int})


def _items() -> list[sources.Item]:
    found: list[sources.Item] = []
    for source in sorted((sources.NOTEBOOKS / "src").glob("[0-9][0-9]_*.py")):
        with contextlib.suppress(
            OSError, SyntaxError, ValueError
        ):  # a lesson being written is no reason to fail
            found += sources.items(source)
    return found


def show(lesson: str) -> None:
    """Show what is done of one lesson (``"05"``), and a line for each lesson of the course."""
    frame = summary()
    here = frame[frame["lesson"] == lesson]
    rows, plain = [], [f"Lesson {lesson}"]
    for row in here.itertuples():
        mark, state = ("✓", "done") if row.passed else ("○", "not yet" if row.attempts else "open")
        tries = f"{row.attempts} {'try' if row.attempts == 1 else 'tries'}" if row.attempts else ""
        name = f"{row.exercise} {row.title}".strip()
        rows.append((_mark(mark), cards.prose(name), _whole(state), _whole(tries)))
        plain.append(f"  {mark} {name}: {state}{', ' + tries if tries else ''}")

    course, plain_course = [], ["The course"]
    for number, group in frame.groupby("lesson", sort=True):
        source = sources.find(number)
        title = sources.title(source) if source else ""
        name = title if title.startswith(number) else f"{number} {title}".strip()
        exercises, questions = group[group["kind"] == "exercise"], group[group["kind"] == "quiz"]
        counts = [
            f"{part['passed'].sum()} of {len(part)} {what}"
            for part, what in ((exercises, "exercises"), (questions, "questions"))
            if len(part)
        ]
        whole = group["passed"].all()
        course.append(
            (_mark("✓" if whole else "○"), cards.prose(name), _bar(group["passed"].mean()), ", ".join(counts))
        )
        plain_course.append(f"  {'✓' if whole else '○'} {name}: {', '.join(counts)}")

    table = (
        f"<b>Lesson {html.escape(lesson)}</b>{_table(rows)}<b>The course</b>{_table(course)}"
        f'<div style="{cards.QUIET}">Finished something since? Run this cell again. Your tries are kept in '
        f"<code>{html.escape(str(path()))}</code>.</div>"
    )
    cards.card(table, "\n".join(plain + plain_course))


def _mark(mark: str) -> str:
    colour = cards.COLOURS["good"] if mark == "✓" else "inherit"
    return f'<span style="color: {colour}; font-weight: bold;">{mark}</span>'


def _whole(words: str) -> str:
    return f'<span style="white-space: nowrap;">{words}</span>'


def _bar(share: float) -> str:
    return (
        '<div style="width: 8em; height: 0.6em; border-radius: 0.3em; overflow: hidden; '
        f'background: var(--jp-border-color2, #8a8a8a66);"><div style="width: {share:.0%}; height: 100%; '
        f'background: {cards.COLOURS["good"]};"></div></div>'
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    style = "text-align: left; padding: 2px 14px 2px 0; border: none; background: none; color: inherit;"
    body = "".join(
        "<tr style='background: none;'>"
        + "".join(f'<td style="{style}">{cell}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    look = f"{cards.FONT} border: none; margin: 2px 0 10px 0; border-collapse: collapse;"
    return f'<table style="{look}">{body}</table>'
