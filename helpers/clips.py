"""Clips of one exchange on the phone: a caller asks, a gap of any length, an agent answers.

The two spoken parts lie under ``data/clips/`` as they sound on a telephone (:mod:`helpers.telephone`), cut so
that they begin and end with sound. :func:`exchange` puts a silence of so many milliseconds between them and
a line's hiss under all of it; :func:`measure` finds the gap in any such clip again, from its samples alone.

::

    python -m helpers.clips list             # the gaps of lesson 01, and what is measured in each clip
    python -m helpers.clips write FOLDER     # the same as WAV files
    python -m helpers.clips make             # speak the two parts anew (helpers.clips_voices)
"""

from __future__ import annotations

import argparse
import base64
import html
import math
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from helpers import cards, clips_voices, tables, telephone
from helpers.arguments import number
from helpers.clips_voices import FOLDER, PARTS
from helpers.run_file import write_whole
from helpers.settings import CourseError
from helpers.telephone import RATE_HZ, amplitude

EDGE_MS = 400  # of hiss before the caller and after the agent
SHORTEST_MS, LONGEST_MS = 200, 10_000
TOTAL_MS = 60_000  # of a clip, at most
NOISE_DBFS = -58.0
NOISE_SEED = 1500
THRESHOLD = round(amplitude(-42))  # what is louder is sound; the hiss, 16 dB below on average, is not


@dataclass(frozen=True)
class Gap:
    """What a measurement found in a clip, in ms since its beginning.

    Attributes:
        first_ms: the first sound of all.
        caller_end_ms: the last sound before the gap.
        agent_start_ms: the first sound after it.
        last_ms: the last sound of all.
    """

    first_ms: float
    caller_end_ms: float
    agent_start_ms: float
    last_ms: float

    @property
    def gap_ms(self) -> float:
        """From the caller's last sound to the agent's first."""
        return self.agent_start_ms - self.caller_end_ms


@cache
def _gaps() -> pd.DataFrame:
    frame = tables.read(
        FOLDER / "gaps.csv", numeric=("gap_ms",), text=("short", "what", "whole_path"), unitless=True
    )
    return frame.assign(whole_path=frame["whole_path"] == "true")


def gaps() -> pd.DataFrame:
    """The gaps of lesson 01, shortest first.

    Columns: ``gap_ms``; ``short`` and ``what`` (what the number is, in two words and in a sentence);
    ``whole_path`` (False where the source means one stage alone, and the clip makes it the whole gap);
    ``source``, ``date``, ``origin``; the index is ``id``.
    """
    return _gaps().copy()


@cache
def _part(name: str) -> np.ndarray:
    samples = telephone.read_mulaw(FOLDER / f"{name}.wav")
    samples.flags.writeable = False
    return samples


def part(name: str) -> np.ndarray:
    """One of the two spoken parts, ``caller`` or ``agent``: 16-bit samples at 8 kHz, no silence around them.

    Raises:
        CourseError: there is no such part, or its file is damaged.
    """
    if name not in PARTS:
        raise CourseError(f"There is no part {name!r}. There are: {', '.join(PARTS)}.")
    return _part(name)


def transcript() -> pd.DataFrame:
    """Who says what in every clip. Columns: ``who``, ``says``, ``seconds`` (how long that takes)."""
    return pd.DataFrame(
        {
            "who": list(PARTS),
            "says": [clips_voices.WORDS[name] for name in PARTS],
            "seconds": [round(len(part(name)) / RATE_HZ, 2) for name in PARTS],
        }
    )


def exchange(gap_ms: float, *, total_ms: float | None = None) -> np.ndarray:
    """The exchange with this gap, as 16-bit samples at 8 kHz; the same samples for the same gap.

    Args:
        gap_ms: silence between the caller's last sound and the agent's first, 200 to 10,000 ms.
        total_ms: length of the whole clip; the hiss goes on until then. Clips of different gaps but of one
            length cannot be told apart by their length. None: as short as it can be.

    Raises:
        CourseError: the gap is out of its range, or ``total_ms`` is too short for it.
    """
    # A shorter gap cannot be told from a pause between two words.
    gap_ms = number("gap_ms", gap_ms, least=SHORTEST_MS, most=LONGEST_MS, example="1500")
    edge = np.zeros(_count(EDGE_MS))
    speech = np.concatenate([edge, part("caller"), np.zeros(_count(gap_ms)), part("agent"), edge])
    if total_ms is not None:
        more = _count(number("total_ms", total_ms, most=TOTAL_MS)) - len(speech)
        if more < 0:
            raise CourseError(
                f"total_ms is {total_ms}; with a gap of {gap_ms:g} ms the clip takes at least "
                f"{len(speech) / RATE_HZ * 1000:.0f} ms."
            )
        speech = np.pad(speech, (0, more))
    noise = telephone.line_noise(len(speech), dbfs=NOISE_DBFS, seed=NOISE_SEED)
    return telephone.decode(telephone.encode(telephone.as_samples(speech + noise)))


def same_length(gaps_ms: list[float]) -> dict[float, np.ndarray]:
    """A clip for each gap, all of the same length."""
    gaps_ms = list(gaps_ms)
    if not gaps_ms:
        raise CourseError("There is no gap to make a clip for. Give one or more, in ms: [500, 1500].")
    total_ms = max(len(exchange(gap_ms)) for gap_ms in gaps_ms) / RATE_HZ * 1000
    return {gap_ms: exchange(gap_ms, total_ms=total_ms) for gap_ms in gaps_ms}


def measure(samples: np.ndarray, rate_hz: int = RATE_HZ, *, threshold: float = THRESHOLD) -> Gap:
    """Find the gap in a clip of two people who speak one after the other, from its samples alone.

    A sample that is louder than the threshold is sound. Of all stretches without sound between two sounds,
    the longest is the gap: so the speakers must not pause longer than it.

    Args:
        samples: the clip.
        rate_hz: samples per second.
        threshold: of the samples' absolute value.

    Raises:
        CourseError: there are not two sounds in it.
    """
    number("rate_hz", rate_hz, above=0)
    number("threshold", threshold, least=0)
    loud = np.flatnonzero(np.abs(np.asarray(samples, dtype=float)) > threshold)
    if len(loud) < 2:
        raise CourseError(
            f"There are no two samples louder than {threshold:g} in this clip, so there is no gap between "
            f"two sounds. Is it the right clip, and the threshold on the same scale?"
        )
    longest = int(np.argmax(np.diff(loud)))
    places = (loud[0], loud[longest], loud[longest + 1], loud[-1])
    return Gap(*(float(place) / rate_hz * 1000 for place in places))


def table() -> pd.DataFrame:
    """Each clip of lesson 01, and what :func:`measure` finds in it.

    Columns: those of :func:`gaps`, and ``measured_ms`` (the gap, from the samples), ``caller_ms`` and
    ``agent_ms`` (how long the two speak).
    """
    frame = gaps()
    found = [measure(exchange(gap_ms)) for gap_ms in frame["gap_ms"]]
    return frame.assign(
        measured_ms=[one.gap_ms for one in found],
        caller_ms=[one.caller_end_ms - one.first_ms for one in found],
        agent_ms=[one.last_ms - one.agent_start_ms for one in found],
    )


def envelope(samples: np.ndarray, *, step_ms: float = 5.0) -> pd.DataFrame:
    """A clip as a figure can draw it: the lowest and the highest sample of every few milliseconds.

    Columns: ``at_ms`` (beginning of the step), ``low``, ``high`` (as a share of the loudest possible sample);
    ``caller_end_ms`` and ``agent_start_ms`` (the gap that :func:`measure` finds, the same in each row);
    ``origin`` (measured: read off the samples).

    Raises:
        CourseError: there are not two sounds in it.
    """
    found, width = measure(samples), max(1, _count(number("step_ms", step_ms, above=0, most=TOTAL_MS)))
    steps = math.ceil(len(samples) / width)
    blocks = np.pad(np.asarray(samples, dtype=float), (0, steps * width - len(samples))).reshape(steps, width)
    return pd.DataFrame(
        {
            "at_ms": np.arange(steps) * step_ms,
            "low": blocks.min(axis=1) / telephone.FULL,
            "high": blocks.max(axis=1) / telephone.FULL,
            "caller_end_ms": found.caller_end_ms,
            "agent_start_ms": found.agent_start_ms,
            "origin": "measured",
        }
    )


def player(samples: np.ndarray, label: str = "") -> str:
    """A player for a clip, as HTML that needs nothing else: the sound is inside."""
    coded = base64.b64encode(telephone.wav(samples)).decode()
    name = html.escape(label or "clip", quote=True)
    return (
        f'<audio controls preload="metadata" aria-label="{name}" src="data:audio/wav;base64,{coded}"></audio>'
    )


def play(sounds: dict[str, np.ndarray]) -> None:
    """Show a player for each sound, with its name: ``play({"caller": clips.part("caller")})``."""
    style = "padding: 2px 14px 2px 0; text-align: left; vertical-align: middle; white-space: normal;"
    rows = "".join(
        f'<tr><td style="{style}">{cards.prose(name)}</td>'
        f'<td style="{style}">{player(samples, name)}</td></tr>'
        for name, samples in sounds.items()
    )
    seconds = (f"{name}: {len(samples) / RATE_HZ:.1f} s of sound" for name, samples in sounds.items())
    cards.card(f"<table>{rows}</table>", "\n".join(seconds))


def write(folder: str | Path) -> list[Path]:
    """Write the clips of lesson 01 as WAV files into a folder, ``clip-1500ms.wav`` and so on.

    Raises:
        CourseError: the folder cannot be written in, or one of the files is there already and differs.
    """
    made = []
    for gap_ms in gaps()["gap_ms"]:
        path = Path(folder) / f"clip-{gap_ms:g}ms.wav"
        content = telephone.wav(exchange(gap_ms))
        try:
            if path.exists() and path.read_bytes() != content:
                raise CourseError(f"{path} is there already and is another file. Choose an empty folder.")
            write_whole(path, content)
        except OSError as error:
            raise CourseError(f"{path} cannot be written: {error}. Choose another folder.") from error
        made.append(path)
    return made


def _count(ms: float) -> int:
    return round(ms * RATE_HZ / 1000)


def main(words: list[str]) -> int:
    """The commands ``list``, ``write FOLDER`` and ``make``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.clips", description="The clips of lesson 01.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the gaps, and what a measurement makes of each clip")
    commands.add_parser("write", help="write the clips as WAV files").add_argument("folder")
    commands.add_parser("make", help="speak the two parts anew, in an environment of its own")
    asked = parser.parse_args(words)
    try:
        if asked.command == "list":
            print(table()[["gap_ms", "measured_ms", "short", "origin"]].round(2).to_string())
        elif asked.command == "write":
            print("\n".join(str(path) for path in write(asked.folder)))
        else:
            clips_voices.make()
    except CourseError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
