"""How long a caller is content to wait: the learner's own ratings of clips with gaps, kept and summed up.

One **sitting** is one file, ``workspace/ratings/<when it began>.jsonl``: a first line with the order in which
the clips come, then one line a rating, written the moment it is given. A file is only ever added to, so a
sitting that was broken off can be taken up again, and no earlier one is lost.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pandas as pd

from helpers import settings
from helpers.arguments import number
from helpers.origins import validate
from helpers.settings import CourseError, cannot_write, workspace

WORDS = ("fine", "noticeable", "annoying", "would hang up")  # 1 to 4
CONTENT = 2  # who rates no worse than this is content to wait so long
COLUMNS = ("sitting", "round", "position", "gap_ms", "rating", "at", "origin")
EXAMPLE_MIDDLE_MS = 1450.0  # of the made-up example: where its ratings pass from content to not


@dataclass
class Sitting:
    """One pass, or two, through the clips, each clip once a pass, in an order drawn by chance.

    Attributes:
        path: its file.
        order: the gaps in the order in which they come, all rounds one after the other, ms.
        rounds: how often each gap comes.
        given: the ratings so far (1 to 4), in that order.
    """

    path: Path
    order: tuple[float, ...]
    rounds: int
    given: list[int] = field(default_factory=list)
    times: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name: when it began."""
        return self.path.stem

    @property
    def next_ms(self) -> float | None:
        """The gap that is to be rated next; None when all are."""
        return self.order[len(self.given)] if len(self.given) < len(self.order) else None

    def rate(self, rating: int) -> None:
        """Rate the next gap, 1 (fine) to 4 (would hang up), and keep that.

        Raises:
            CourseError: there is nothing left to rate, the rating is none, or it cannot be written.
        """
        if self.next_ms is None:
            raise CourseError("All clips of this sitting are rated. Begin another one to rate them again.")
        if isinstance(rating, bool) or rating not in range(1, len(WORDS) + 1):
            raise CourseError(f"A rating is a whole number from 1 to {len(WORDS)}, not {rating!r}.")
        rating = int(rating)  # numpy's whole numbers cannot be written as JSON
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"position": len(self.given), "gap_ms": self.next_ms, "rating": rating, "at": at}
        _append(self.path, entry)
        self.given.append(rating)
        self.times.append(at)

    def table(self) -> pd.DataFrame:
        """The ratings so far. Columns: :data:`COLUMNS`, ``round`` and ``position`` counted from 1."""
        once = len(self.order) // self.rounds
        rows = [
            (self.name, place // once + 1, place + 1, gap_ms, rating, at, "measured")
            for place, (gap_ms, rating, at) in enumerate(
                zip(self.order, self.given, self.times, strict=False)
            )
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))


def begin(gaps_ms: Iterable[float], *, rounds: int = 1, seed: int | None = None) -> Sitting:
    """Begin a sitting.

    Args:
        gaps_ms: the gaps, each of them once.
        rounds: 1, or 2 to see whether the same clip gets the same rating again.
        seed: of the order. None: another one each time, so that nobody knows it.

    Raises:
        CourseError: there are not at least two different gaps, or the file cannot be made.
    """
    gaps = tuple(number("a gap, ms", gap) for gap in gaps_ms)
    if len(set(gaps)) != len(gaps) or len(gaps) < 2:
        raise CourseError("A sitting needs at least two gaps, all of them different numbers of ms.")
    if rounds not in (1, 2):
        raise CourseError(f"rounds is {rounds!r}; it can be 1 or 2.")
    chance = SystemRandom() if seed is None else Random(seed)
    order: list[float] = []
    for _ in range(rounds):
        once = list(gaps)
        chance.shuffle(once)
        if order and once[0] == order[-1]:  # the same clip twice in a row would give itself away
            once.append(once.pop(0))
        order += once
    first = {"order": order, "rounds": rounds, "words": WORDS}
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"  # names in the order of time, so the newest is the last
    for suffix in ("", "-2", "-3"):
        path = workspace("ratings", f"{stem}{suffix}.jsonl")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(first))
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(error) from error
        return Sitting(path, tuple(order), rounds)
    raise CourseError("Two sittings began at the same moment; begin again.")


def sittings() -> list[Sitting]:
    """All sittings that were kept, oldest first, unfinished ones too. Files that are none are passed over."""
    found = (
        _read(path)
        for path in sorted((settings.WORKSPACE / "ratings").glob("*.jsonl"), key=lambda path: path.stem)
    )
    return [sitting for sitting in found if sitting is not None]


def newest(*, finished: bool) -> Sitting | None:
    """The newest sitting in which all clips are rated, or the newest in which some are not; None if there is
    none. An unfinished one counts only if no sitting was begun after it."""
    kept = sittings()
    if not finished:
        return kept[-1] if kept and kept[-1].next_ms is not None else None
    return next((sitting for sitting in reversed(kept) if sitting.next_ms is None), None)


def example(gaps_ms: Sequence[float]) -> pd.DataFrame:
    """Made-up ratings, to show what the figure looks like before there are any of your own; nobody gave them.

    A smooth curve from "fine" to "would hang up", rounded. Columns as :meth:`Sitting.table`, ``origin`` is
    ``modelled``, ``source`` says the rest.
    """
    rows = []
    for place, gap_ms in enumerate(sorted(gaps_ms), 1):
        level = 1 + 3 / (1 + math.exp(-(gap_ms - EXAMPLE_MIDDLE_MS) / 350))
        rows.append(("example", 1, place, float(gap_ms), round(level), "", "modelled"))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.assign(source="an example that we made up; these are nobody's ratings", date="2026-12")


def mine_or_example(gaps_ms: Sequence[float]) -> pd.DataFrame:
    """Your newest finished sitting, else the :func:`example`, which says that it is one."""
    sitting = newest(finished=True)
    return example(gaps_ms) if sitting is None else sitting.table().assign(server="yourself")


@dataclass(frozen=True)
class Tolerance:
    """What a sitting says.

    Attributes:
        content_ms: the longest gap such that it, and every shorter one, got "noticeable" or better on
            average; None: not even the shortest.
        lost_ms: the next gap after it; None: even the longest was accepted.
        reversals: how often a gap was rated better than the next shorter one (on average).
        ratings: their number.
        repeated: gaps that were rated twice.
        alike: how many of those got the same rating both times.
        origin: of the ratings.
    """

    content_ms: float | None
    lost_ms: float | None
    reversals: int
    ratings: int
    repeated: int
    alike: int
    origin: str

    def sentence(self) -> str:
        """In words; an example says that it is one."""
        own = self.origin == "measured"
        who, limit = ("You were", "your own limit") if own else ("This made-up caller is", "the limit")
        if self.content_ms is None:
            where = f"{who} content with none of the gaps, not even with {self.lost_ms:,.0f} ms."
        elif self.lost_ms is None:
            where = f"{who} content with all of the gaps, up to {self.content_ms:,.0f} ms."
        else:
            where = (
                f"{who} content up to a gap of {self.content_ms:,.0f} ms and no longer at "
                f"{self.lost_ms:,.0f} ms: {limit} lies between."
            )
        if self.repeated:
            where += f" Of {self.repeated} clips rated twice, {self.alike} got the same both times."
        if self.reversals:
            where += (
                f" A longer gap got a better rating than the next shorter one {_times(self.reversals)}: "
                f"ratings of one person, once, are as rough as that."
            )
        return where if own else f"An example, not your ratings. {where}"


def tolerance(frame: pd.DataFrame) -> Tolerance:
    """What ratings say of the longest gap that is accepted.

    Args:
        frame: one row a rating, with ``gap_ms``, ``rating`` (1 to 4) and ``origin``.

    Raises:
        CourseError: there are none, or a row holds something else.
    """
    validate(frame, numeric=("gap_ms", "rating"), used_by="ratings.tolerance")
    if frame.empty:
        raise CourseError("There are no ratings yet. Rate the clips first.")
    if not frame["rating"].isin(range(1, len(WORDS) + 1)).all():
        raise CourseError(f"A rating is a whole number from 1 to {len(WORDS)}. Look at the table.")
    groups = frame.groupby("gap_ms")["rating"]
    means = groups.mean()
    accepted = (means <= CONTENT).to_numpy()
    count = len(means) if accepted.all() else int(np.argmin(accepted))
    gaps = [float(gap) for gap in means.index]
    twice = groups.count() > 1
    return Tolerance(
        content_ms=gaps[count - 1] if count else None,
        lost_ms=gaps[count] if count < len(gaps) else None,
        reversals=int((means.diff() < 0).sum()),
        ratings=len(frame),
        repeated=int(twice.sum()),
        alike=int((groups.nunique()[twice] == 1).sum()),
        origin=str(frame["origin"].iloc[0]),
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _append(path: Path, entry: dict[str, Any]) -> None:
    """Add a line. It begins with the line break, so that a line cut off before it spoils only itself."""
    try:
        with open(
            path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags & ~os.O_CREAT)
        ) as file:
            file.write("\n" + json.dumps(entry))
    except FileNotFoundError as error:  # a new file would lack the first line, and nobody could read it
        raise CourseError(
            f"{path} is not there any more, so this rating was not kept. Put the file back, or begin another "
            f"sitting: run this cell again."
        ) from error
    except OSError as error:
        raise cannot_write(error) from error


def _read(path: Path) -> Sitting | None:
    """A kept sitting; None if its first line is not that of one. Lines that are no rating, or not the next
    one, are passed over."""
    try:
        first, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        about = json.loads(first)
        order, rounds = tuple(float(gap) for gap in about["order"]), int(about["rounds"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    if rounds < 1 or not order or len(order) % rounds:
        return None
    sitting = Sitting(path, order, rounds)
    for line in lines:
        try:
            entry = json.loads(line)
            position, gap_ms, rating = entry["position"], float(entry["gap_ms"]), entry["rating"]
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
        known = rating in range(1, len(WORDS) + 1) and gap_ms == sitting.next_ms
        if known and position == len(sitting.given):
            sitting.given.append(int(rating))
            sitting.times.append(str(entry.get("at", "")))
    return sitting
