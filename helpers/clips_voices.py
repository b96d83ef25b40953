"""Who says what in the course's clips, and how the two spoken parts under ``data/clips/`` were made.

The parts lie in the repository, so no lesson needs this. :func:`make` speaks them anew: the voices run in an
environment of their own (``requirements/clips.txt``), :mod:`helpers.clips_worker` inside it; what comes out
is brought to the telephone's sound and cut to the sound itself here.

piper-tts is GPL-3 and is only ever run, as a program in that environment; its voice ``joe`` is CC0.
hibari-tts and its voice are Apache-2.0.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from helpers import telephone
from helpers.environments import Environment, environment
from helpers.processes import stopped_at_the_end
from helpers.settings import DATA, REPO, CourseError

FOLDER = DATA / "clips"
VOICES = {"caller": "piper", "agent": "hibari"}
WORDS = {
    "caller": "Can you tell me where my order is right now?",
    "agent": "Your order left our warehouse early this morning.",
}
PARTS = tuple(WORDS)
LOUDNESS_DBFS = -20.0  # RMS of a part
EDGE_DBFS = -36.0  # a part begins and ends with a sample that is as loud as this
FADE_MS = 2.0  # at both ends, so that the cut does not click
CLIPS = Environment("clips", REPO / "requirements" / "clips.txt", 9, 320)
WORKER = REPO / "helpers" / "clips_worker.py"
PATIENCE_S = 120


def make(folder: Path = FOLDER, *, say: Callable[[str], None] = print) -> list[Path]:
    """Speak the two parts anew and write them, as mu-law files; returns their paths.

    The files of the same name are replaced. One of the two voices draws a little by chance, so a new part
    does not have the same bytes as the old one.

    Raises:
        CourseError: the environment could not be made, or a voice said nothing.
    """
    python = environment(CLIPS, say=say)
    made = []
    with tempfile.TemporaryDirectory() as raw:
        _speak(python, Path(raw))
        for name in PARTS:
            samples, rate_hz = telephone.read_wav(Path(raw) / f"{name}.wav")
            path = folder / f"{name}.wav"
            telephone.write_mulaw(on_the_phone(samples, rate_hz), path)
            say(f"{path}: {path.stat().st_size} bytes")
            made.append(path)
    return made


def _speak(python: Path, folder: Path) -> None:
    asked = [
        {"voice": VOICES[name], "text": WORDS[name], "path": str(folder / f"{name}.wav")} for name in PARTS
    ]
    child = subprocess.Popen(
        [str(python), str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with stopped_at_the_end(child):
        try:
            said, _ = child.communicate(json.dumps(asked), timeout=PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise CourseError(f"The voices took longer than {PATIENCE_S} s. Try again.") from error
    if child.returncode:
        raise CourseError(f"The voices could not speak. Their last words:\n{said[-1500:]}")


def on_the_phone(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    """A voice as a telephone carries it: 8 kHz, its band, one loudness, no silence before and after.

    Args:
        samples: 16-bit samples of one voice.
        rate_hz: how many of them a second.

    Returns:
        16-bit samples at 8 kHz that begin and end with sound.

    Raises:
        CourseError: there is no sound in it.
    """
    from scipy.signal import resample_poly  # takes a while to import, and only the making needs it

    sound = np.asarray(samples, dtype=float)
    if not sound.size or not np.abs(sound).max() > 0:
        raise CourseError("This voice said nothing: all its samples are zero.")
    common = np.gcd(telephone.RATE_HZ, rate_hz)
    sound = telephone.band_pass(resample_poly(sound, telephone.RATE_HZ // common, rate_hz // common))
    sound = _cut(sound / np.abs(sound).max() * telephone.FULL)  # silence must not count as quiet speech
    sound = _cut(sound * telephone.amplitude(LOUDNESS_DBFS) / np.sqrt(np.mean(sound**2)))
    rise = np.linspace(0, 1, round(FADE_MS * telephone.RATE_HZ / 1000) + 2)[1:-1]
    sound[: len(rise)] *= rise
    sound[-len(rise) :] *= rise[::-1]
    return telephone.as_samples(sound)


def _cut(sound: np.ndarray) -> np.ndarray:
    loud = np.flatnonzero(np.abs(sound) > telephone.amplitude(EDGE_DBFS))
    return sound[loud[0] : loud[-1] + 1].copy()
