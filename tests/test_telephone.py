"""The telephone's sound: mu-law as G.711 has it, the band, the hiss, and files that come back whole."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from helpers import telephone
from helpers.settings import CourseError

SAMPLES = arrays(np.int16, st.integers(0, 400))


def test_mulaw_is_that_of_the_standard():
    """Values of ITU-T G.711's tables, as every decoder has them: silence, the quietest, the loudest."""
    assert list(telephone.decode(np.array([0xFF, 0x7F, 0xFE, 0x80, 0x00], np.uint8))) == [
        0,
        0,
        8,
        32124,
        -32124,
    ]
    assert list(telephone.encode(np.array([0, 8, 32124, -32124, 32767, -32768], np.int16))) == [
        0xFF, 0xFE, 0x80, 0x00, 0x80, 0x00,
    ]  # fmt: skip


def test_every_byte_survives_decoding_and_coding():
    codes = np.arange(256, dtype=np.uint8)
    values = telephone.decode(codes)
    assert np.array_equal(telephone.decode(telephone.encode(values)), values)
    assert len(set(values.tolist())) == 255  # two bytes mean zero


@given(SAMPLES)
def test_coding_is_never_off_by_more_than_a_step(samples):
    """A step is a sixteenth of its segment: at most 1/32 of the value, and 4 near zero."""
    back = telephone.decode(telephone.encode(samples)).astype(int)
    given_ = np.clip(samples.astype(int), -32635, 32635)
    assert (np.abs(back - given_) <= np.maximum(4, (np.abs(given_) + 132) / 32)).all()


def test_the_band_lets_speech_through_and_nothing_beside_it():
    at = np.arange(telephone.RATE_HZ) / telephone.RATE_HZ
    level = {}
    for hertz in (60, 200, 250, 400, 1000, 3300, 3600, 3900):
        passed = telephone.band_pass(np.sin(2 * np.pi * hertz * at))[1000:-1000]
        level[hertz] = 20 * np.log10(np.sqrt(2 * np.mean(passed**2)) + 1e-12)
    assert max(level[hertz] for hertz in (60, 200, 250, 3600, 3900)) < -40
    assert all(abs(level[hertz]) < 0.1 for hertz in (400, 1000, 3300))


def test_the_filter_does_not_move_a_sound():
    click = np.zeros(2000)
    click[1000] = 1
    assert np.argmax(np.abs(telephone.band_pass(click))) == 1000
    assert len(telephone.band_pass(click)) == 2000


def test_hiss_has_its_level_and_is_the_same_each_time():
    hiss = telephone.line_noise(16000, dbfs=-58, seed=3)
    level = 20 * np.log10(np.sqrt(np.mean(hiss**2)) / telephone.FULL)
    assert level == pytest.approx(-58)
    assert np.array_equal(hiss, telephone.line_noise(16000, dbfs=-58, seed=3))
    assert not np.array_equal(hiss, telephone.line_noise(16000, dbfs=-58, seed=4))


@given(SAMPLES)
def test_a_wav_file_comes_back_as_it_was(samples):
    back, rate = telephone.read_wav(telephone.wav(samples))
    assert rate == telephone.RATE_HZ
    assert np.array_equal(back, samples)


@pytest.mark.parametrize("count", [0, 1, 2, 801])
def test_a_mulaw_file_comes_back_as_it_was_coded(tmp_path, count):
    samples = np.random.default_rng(count).integers(-20000, 20000, count).astype(np.int16)
    path = tmp_path / "part.wav"
    telephone.write_mulaw(samples, path)
    assert np.array_equal(telephone.read_mulaw(path), telephone.decode(telephone.encode(samples)))
    assert path.stat().st_size == 58 + count + count % 2


def stereo() -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0" * 400)
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"RIFF", stereo(), b"RIFF\0\0\0\0WAVEdata\xff\0\0\0"])
def test_another_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other.wav"
    path.write_bytes(content)
    with pytest.raises(CourseError, match=r"other\.wav"):
        telephone.read_mulaw(path)


def test_a_file_cut_off_is_refused(tmp_path):
    path = tmp_path / "cut.wav"
    telephone.write_mulaw(np.ones(500, np.int16), path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(CourseError, match=r"cut\.wav"):
        telephone.read_mulaw(path)
    with pytest.raises(CourseError, match="cannot be read"):
        telephone.read_mulaw(tmp_path / "gone.wav")


@pytest.mark.parametrize(("content", "says"), [(b"no", "cannot be read"), (stereo(), "one channel")])
def test_another_wav_file_is_refused(content, says):
    with pytest.raises(CourseError, match=says):
        telephone.read_wav(content)
