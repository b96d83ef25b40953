"""The clips, heard by a second pair of ears: everything here is read off the finished WAV files."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import budget, clips, clips_voices, phonebench, published, telephone
from helpers.settings import REPO, CourseError

GAPS = [300, 600, 993, 1293, 1500, 1957, 2500]


def heard(content: bytes) -> np.ndarray:
    """A clip's samples as Python's own reader gives them, from -1 to 1."""
    with wave.open(io.BytesIO(content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def silences_ms(sound: np.ndarray) -> list[tuple[float, float]]:
    """Beginning and end of each silence between two sounds, by power: 5 ms at a time, every ms, against the
    hiss of the clip's own first 200 ms. Shares nothing with the detector under test."""
    power = np.convolve(sound**2, np.ones(40) / 40, mode="valid")[::8]
    loud = np.flatnonzero(power > 10**1.2 * np.mean(sound[:1600] ** 2))
    # A window that still holds sound ends 5 ms after it begins; the next one with sound has it at its end.
    return [(float(one), float(next_) + 5) for one, next_ in itertools.pairwise(loud) if next_ - one > 20]


def longest_ms(sound: np.ndarray) -> float:
    return max(end - begin for begin, end in silences_ms(sound))


@pytest.mark.parametrize("gap_ms", GAPS)
def test_each_clip_has_its_gap_to_10_ms(gap_ms):
    samples = clips.exchange(gap_ms)
    assert clips.measure(samples).gap_ms == pytest.approx(gap_ms, abs=10)
    assert longest_ms(heard(telephone.wav(samples))) == pytest.approx(gap_ms, abs=10)


@settings(max_examples=40, deadline=None)
@given(st.floats(clips.SHORTEST_MS, 4000))
def test_any_gap_can_be_made_and_is_found_again(gap_ms):
    samples = clips.exchange(gap_ms)
    assert clips.measure(samples).gap_ms == pytest.approx(gap_ms, abs=10)
    assert longest_ms(heard(telephone.wav(samples))) == pytest.approx(gap_ms, abs=10)


def test_the_threshold_hardly_matters():
    """Between the hiss and the voices lies a wide range in which every threshold finds the same gap."""
    samples = clips.exchange(1500)
    found = [
        clips.measure(samples, threshold=telephone.amplitude(dbfs)).gap_ms for dbfs in (-44, -42, -40, -37)
    ]
    assert max(found) - min(found) < 10


def test_nobody_pauses_as_long_as_the_shortest_gap():
    for name in clips.PARTS:
        quiet = np.diff(np.flatnonzero(np.abs(clips.part(name).astype(float)) > clips.THRESHOLD)).max() / 8
        assert quiet < clips.SHORTEST_MS * 0.75


def test_hiss_lies_well_below_the_voices():
    sound = heard(telephone.wav(clips.exchange(1500)))
    found = clips.measure(clips.exchange(1500))
    between = sound[int(found.caller_end_ms * 8) + 80 : int(found.agent_start_ms * 8) - 80]
    speech = sound[int(found.first_ms * 8) : int(found.caller_end_ms * 8)]
    assert 10 * np.log10(np.mean(speech**2) / np.mean(between**2)) > 30
    assert np.mean(between**2) > 0  # a line is never dead
    assert np.abs(between).max() * 32768 < clips.THRESHOLD


@pytest.mark.parametrize("gap_ms", GAPS)
def test_nothing_outside_the_telephone_band(gap_ms):
    sound = heard(telephone.wav(clips.exchange(gap_ms)))
    power = np.abs(np.fft.rfft(sound)) ** 2
    hertz = np.fft.rfftfreq(len(sound), 1 / 8000)
    assert power[hertz < 250].sum() < 0.001 * power.sum()
    assert power[hertz > 3600].sum() < 0.001 * power.sum()
    assert power[(hertz > 300) & (hertz < 3400)].sum() > 0.99 * power.sum()


def pitch_hz(samples: np.ndarray) -> float:
    """Median pitch of the voiced frames: the lag at which a frame is most like itself."""
    found = []
    for start in range(0, len(samples) - 400, 160):
        frame = samples[start : start + 400].astype(float)
        if np.sqrt(np.mean(frame**2)) < telephone.amplitude(-26):
            continue
        like = np.correlate(frame, frame, "full")[399:]
        lag = 26 + int(np.argmax(like[26:115]))  # 70 to 300 Hz
        if like[lag] > 0.5 * like[0]:
            found.append(8000 / lag)
    assert len(found) > 20
    return float(np.median(found))


def test_the_two_are_two_voices():
    """His pitch is a man's, hers a woman's, as the voices' own cards say."""
    his, hers = pitch_hz(clips.part("caller")), pitch_hz(clips.part("agent"))
    assert his < 160 < hers
    assert hers > 1.3 * his


def test_the_words_are_the_same_in_each_clip():
    quiet = 3 * telephone.amplitude(clips.NOISE_DBFS)
    for gap_ms in GAPS:
        samples, caller, agent = (
            clips.exchange(gap_ms).astype(float),
            clips.part("caller"),
            clips.part("agent"),
        )
        begin = clips.EDGE_MS * 8
        later = begin + len(caller) + round(gap_ms * 8)
        for spoken, at in ((caller, begin), (agent, later)):
            off = samples[at : at + len(spoken)] - spoken
            assert np.sqrt(np.mean(off**2)) < quiet
            assert np.corrcoef(samples[at : at + len(spoken)], spoken)[0, 1] > 0.998


def test_both_are_equally_loud():
    levels = [20 * np.log10(np.sqrt(np.mean((clips.part(name) / 32768.0) ** 2))) for name in clips.PARTS]
    assert levels == pytest.approx([clips_voices.LOUDNESS_DBFS] * 2, abs=0.5)


def test_clips_for_rating_have_one_length_and_their_gaps():
    made = clips.same_length(GAPS)
    assert len({len(samples) for samples in made.values()}) == 1
    for gap_ms, samples in made.items():
        assert clips.measure(samples).gap_ms == pytest.approx(gap_ms, abs=10)


def test_the_parts_are_small_files():
    size = sum(path.stat().st_size for path in clips.FOLDER.iterdir())
    assert size < 400_000


@pytest.mark.parametrize("gap_ms", [0, 199.9, 10_001, -5, float("nan"), float("inf"), "8", None])
def test_a_gap_out_of_range_is_refused(gap_ms):
    with pytest.raises(CourseError, match="gap_ms"):
        clips.exchange(gap_ms)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: clips.exchange(1500, total_ms=float("nan")), "total_ms"),
        (lambda: clips.exchange(1500, total_ms=1e12), "total_ms"),
        (lambda: clips.same_length([]), "no gap"),
        (lambda: clips.same_length([500, "long"]), "long"),
        (lambda: clips.measure(clips.part("caller"), rate_hz=0), "rate_hz"),
        (lambda: clips.measure(clips.part("caller"), threshold=None), "threshold"),
        (lambda: clips.envelope(clips.part("caller"), step_ms=0), "step_ms"),
    ],
)
def test_nonsense_is_refused_and_named(make, words):
    with pytest.raises(CourseError, match=words):
        make()


def test_what_makes_no_clip_is_refused():
    with pytest.raises(CourseError, match="at least"):
        clips.exchange(1500, total_ms=2000)
    with pytest.raises(CourseError, match="caller, agent"):
        clips.part("operator")
    with pytest.raises(CourseError, match="no two samples"):
        clips.measure(np.zeros(8000))


def test_parts_cannot_be_changed_by_accident():
    with pytest.raises(ValueError, match="read-only"):
        clips.part("caller")[0] = 1


def test_the_gaps_are_what_their_sources_say():
    frame = clips.gaps()
    assert list(frame["gap_ms"]) == GAPS
    assert frame.loc["ceiling", "gap_ms"] == published.value("card.ttfat_ceiling")
    assert frame.loc["primer", "gap_ms"] == budget.total_ms(budget.table("primer"))
    assert frame.loc["card", "gap_ms"] == budget.total_ms(budget.table("card"))
    assert frame.loc["limit", "gap_ms"] == published.value("card.limit")
    board = phonebench.table().set_index("model")
    assert frame.loc["terra", "gap_ms"] == board.loc[phonebench.TERRA, "ttfat_p95_ms"]
    assert list(frame.index[~frame["whole_path"]]) == ["ceiling", "terra"]
    assert list(frame.index[frame["origin"] == "modelled"]) == ["quick", "long"]


def test_the_table_measures_each_clip():
    frame = clips.table()
    assert (frame["measured_ms"] - frame["gap_ms"]).abs().max() < 10
    assert frame["caller_ms"].std() < 1
    assert frame["agent_ms"].std() < 1


def test_the_envelope_covers_the_clip():
    samples = clips.exchange(600)
    frame = clips.envelope(samples)
    assert frame["high"].max() == samples.max() / telephone.FULL
    assert frame["low"].min() == samples.min() / telephone.FULL
    assert frame["at_ms"].iloc[-1] == pytest.approx(len(samples) / 8 - 5, abs=5)
    assert set(frame["origin"]) == {"measured"}


def test_a_player_holds_its_sound():
    made = clips.player(clips.exchange(300), 'a "quoted" name')
    assert "data:audio/wav;base64," in made
    assert 'aria-label="a &quot;quoted&quot; name"' in made


SCRIPT = "from helpers import clips; import sys; clips.write(sys.argv[1])"


def test_written_by_two_processes_the_bytes_are_the_same(tmp_path):
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / seed)]
        subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=120)
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == sorted(f"clip-{gap}ms.wav" for gap in GAPS)
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_writing_replaces_no_other_file(tmp_path, capsys):
    assert clips.main(["write", str(tmp_path)]) == 0
    assert clips.main(["write", str(tmp_path)]) == 0  # the same once more
    (tmp_path / "clip-300ms.wav").write_bytes(b"mine")
    assert clips.main(["write", str(tmp_path)]) == 1
    assert (tmp_path / "clip-300ms.wav").read_bytes() == b"mine"
    assert "another file" in capsys.readouterr().out


def test_the_list_tells_the_measured_gaps(capsys):
    assert clips.main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(str(gap) in said for gap in GAPS)


# Making the parts, without the voices


def test_a_voice_is_brought_to_the_telephone():
    """A tone of 440 Hz with silence around it, at 24 kHz, as a voice might come."""
    at = np.arange(24000) / 24000
    raw = np.concatenate([np.zeros(7200), 12000 * np.sin(2 * np.pi * 440 * at), np.zeros(4800)])
    made = clips_voices.on_the_phone(raw.astype(np.int16), 24000)
    assert len(made) / 8 == pytest.approx(1000, abs=15)  # the silence is gone
    level = 20 * np.log10(np.sqrt(np.mean((made / 32768.0) ** 2)))
    assert level == pytest.approx(clips_voices.LOUDNESS_DBFS, abs=0.3)
    assert abs(made[0]) < 2000  # it fades in


def test_a_quiet_and_a_loud_voice_end_alike():
    """The cut is made at a level of the finished part, not of what the voice gave."""
    raw = np.random.default_rng(0).normal(0, 1000, 22050) * np.hanning(22050)
    loud, quiet = (clips_voices.on_the_phone((raw * by).astype(np.int16), 22050) for by in (8, 0.5))
    assert len(loud) == pytest.approx(len(quiet), rel=0.02)


@pytest.mark.parametrize("raw", [np.zeros(100, np.int16), np.array([], np.int16)])
def test_a_silent_voice_is_named(raw):
    with pytest.raises(CourseError, match="said nothing"):
        clips_voices.on_the_phone(raw, 24000)


def test_make_writes_both_parts(tmp_path, monkeypatch):
    """With a stand-in for the voices, which need an environment of their own."""

    def speak(python, folder):
        rng = np.random.default_rng(1)
        for name in clips_voices.PARTS:
            with wave.open(str(folder / f"{name}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(24000)
                file.writeframes(rng.normal(0, 3000, 24000).astype("<i2").tobytes())

    monkeypatch.setattr(clips_voices, "environment", lambda spec, say: tmp_path / "python")
    monkeypatch.setattr(clips_voices, "_speak", speak)
    made = clips_voices.make(tmp_path, say=lambda line: None)
    assert [path.name for path in made] == ["caller.wav", "agent.wav"]
    assert all(len(telephone.read_mulaw(path)) > 7000 for path in made)


def test_a_voice_that_fails_has_its_last_words_told(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\ncat > /dev/null\necho no such voice\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(CourseError, match="no such voice"):
        clips_voices._speak(broken, tmp_path)
