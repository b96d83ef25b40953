"""The sound of a telephone line, and files of it: 8 kHz, 300 to 3400 Hz, mu-law, a quiet hiss.

Samples are 16-bit integers at :data:`RATE_HZ`. On the line each is coded in 8 bits by mu-law (ITU-T G.711),
fine for quiet sounds and coarse for loud ones. Python's own ``wave`` module reads and writes plain samples
only, so the mu-law files of this course have their reader here.
"""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path

import numpy as np

from helpers.settings import CourseError

RATE_HZ = 8000
BAND_HZ = (300.0, 3400.0)
FULL = 32767.0  # the loudest sample; dBFS counts from here
MULAW = 7  # the number of mu-law among the formats of WAV files
_BIAS, _CLIP = 132, 32635  # constants of G.711
_TAPS = 401  # of the filter: 50 ms long, so that its edges are 70 Hz wide


def amplitude(dbfs: float) -> float:
    """A level in dBFS as a sample value: 0 dBFS is the loudest there is, -20 dBFS a tenth of it."""
    return FULL * 10 ** (dbfs / 20)


def band_pass(samples: np.ndarray) -> np.ndarray:
    """Only what a telephone lets through, 300 to 3400 Hz; as floats, as long as before and not delayed.

    A windowed-sinc filter, the textbook way; its shape is the same before and after a sound.
    """
    at = np.arange(_TAPS) - (_TAPS - 1) / 2
    low, high = (2 * edge / RATE_HZ for edge in BAND_HZ)
    taps = (high * np.sinc(high * at) - low * np.sinc(low * at)) * np.hamming(_TAPS)
    padded = np.pad(np.asarray(samples, dtype=float), _TAPS // 2)
    return np.convolve(padded, taps, mode="valid")


def line_noise(count: int, *, dbfs: float, seed: int) -> np.ndarray:
    """A line's hiss: ``count`` samples of band-limited noise of this level (RMS); the same for each seed."""
    hiss = band_pass(np.random.default_rng(seed).standard_normal(count))
    rms = float(np.sqrt(np.mean(hiss**2))) if count else 1.0
    return hiss * amplitude(dbfs) / rms


def as_samples(sound: np.ndarray) -> np.ndarray:
    """Floats as 16-bit samples; what is too loud is cut off."""
    return np.clip(np.rint(sound), -FULL, FULL).astype(np.int16)


def encode(samples: np.ndarray) -> np.ndarray:
    """16-bit samples as mu-law bytes."""
    value = np.asarray(samples).astype(np.int32)
    magnitude = np.minimum(np.abs(value), _CLIP) + _BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    mantissa = (magnitude >> (exponent + 3)) & 0x0F
    sign = np.where(value < 0, 0x80, 0)
    return (~(sign | exponent << 4 | mantissa) & 0xFF).astype(np.uint8)


def decode(coded: np.ndarray) -> np.ndarray:
    """Mu-law bytes as 16-bit samples."""
    turned = ~np.asarray(coded).astype(np.int32) & 0xFF
    magnitude = ((turned & 0x0F) << 3) + _BIAS << ((turned & 0x70) >> 4)
    return np.where(turned & 0x80, _BIAS - magnitude, magnitude - _BIAS).astype(np.int16)


def wav(samples: np.ndarray) -> bytes:
    """A WAV file with plain 16-bit samples, which every browser plays."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(np.asarray(samples).astype("<i2").tobytes())
    return buffer.getvalue()


def read_wav(source: str | Path | bytes) -> tuple[np.ndarray, int]:
    """The samples and the rate (Hz) of a WAV file of one channel with plain 16-bit samples.

    Raises:
        CourseError: it cannot be read, or is of another kind.
    """
    try:
        with wave.open(io.BytesIO(source) if isinstance(source, bytes) else str(source), "rb") as file:
            if (file.getnchannels(), file.getsampwidth()) != (1, 2):
                raise CourseError("This WAV file does not have one channel with 16-bit samples.")
            return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2"), file.getframerate()
    except (OSError, EOFError, wave.Error) as error:
        name = "These bytes" if isinstance(source, bytes) else source
        raise CourseError(f"{name} cannot be read as a WAV file: {error}") from error


def write_mulaw(samples: np.ndarray, path: Path) -> None:
    """Write 16-bit samples as a mu-law WAV file, a byte a sample."""
    coded = encode(samples).tobytes()
    form = struct.pack("<HHIIHHH", MULAW, 1, RATE_HZ, RATE_HZ, 1, 8, 0)
    chunks = b"".join(
        name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
        for name, body in ((b"fmt ", form), (b"fact", struct.pack("<I", len(coded))), (b"data", coded))
    )
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)


def read_mulaw(path: Path) -> np.ndarray:
    """The 16-bit samples of a mu-law WAV file of one channel at 8 kHz.

    Raises:
        CourseError: it cannot be read, or is of another kind.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error}") from error
    found = _chunks(raw)
    form = found.get(b"fmt ", b"")[:16]
    wanted = struct.pack("<HHIIHH", MULAW, 1, RATE_HZ, RATE_HZ, 1, 8)
    if form != wanted or b"data" not in found:
        raise CourseError(f"{path} is not a mu-law WAV file of one channel at {RATE_HZ} Hz.")
    return decode(np.frombuffer(found[b"data"], dtype=np.uint8))


def _chunks(raw: bytes) -> dict[bytes, bytes]:
    """The chunks of a RIFF file by name; none if it is no whole RIFF file."""
    if raw[:4] != b"RIFF" or raw[8:12] != b"WAVE":
        return {}
    found, at = {}, 12
    while at + 8 <= len(raw):
        length = struct.unpack("<I", raw[at + 4 : at + 8])[0]
        if at + 8 + length > len(raw):  # cut off
            return {}
        found[raw[at : at + 4]] = raw[at + 8 : at + 8 + length]
        at += 8 + length + length % 2
    return found
