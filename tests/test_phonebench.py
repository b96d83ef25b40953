"""The leaderboard's numbers, typed here a second time; a slip in either is found."""

from __future__ import annotations

import math

import pytest

from helpers import phonebench, tables
from helpers.settings import CourseError

# model, score, P50, floor, P95, about, USD a minute; None: the chart has none
CHART = [
    ("Gemini 3.6 Flash", 78.6, 1168, None, 1468, False, 0.0751),
    ("GPT-5.6 Terra", 72.4, 980, None, 1957, False, 0.0347),
    ("PhoneLLM Alpha 1", 72.3, 331, 197, 600, True, 0.0025),
    ("GPT-5.6 Luna", 70.7, 786, None, 1736, False, 0.0035),
    ("Qwen 3.8 27B", 70.0, None, 286, None, False, 0.0074),
    ("Claude Sonnet 5", 68.9, 1651, None, 2166, False, 0.0520),
    ("DeepSeek V4 Flash 0731", 68.6, 464, 303, 600, True, 0.0687),
    ("Claude Haiku 4.5", 67.8, 707, None, 899, False, 0.0188),
    ("Gemma 4 31B", 58.1, 385, 254, 600, True, 0.0101),
    ("Kimi K2.6 NVFP4", 57.9, 313, 227, 600, True, 0.0372),
    ("Gemini 3.5 Flash Lite", 57.8, 1190, None, 1339, False, 0.0082),
    ("GPT-4.1", 57.4, 889, None, 1190, False, 0.0292),
    ("Nemotron 3 Super 120B base", 55.9, 274, 235, 600, True, 0.0036),
    ("Nemotron 3 Ultra 550B-A55B base", 38.1, 342, 240, 600, True, 0.0279),
    ("Nemotron 3 Nano 30B base", 28.6, 331, 197, 600, True, 0.0025),
]
COLUMNS = ["model", "score", "ttfat_p50_ms", "floor_p50_ms", "ttfat_p95_ms", "p95_about", "usd_per_minute"]


@pytest.mark.parametrize("row", CHART, ids=lambda row: row[0])
def test_each_number(row):
    frame = phonebench.table().set_index("model")
    found = frame.loc[row[0]]
    for column, value in zip(COLUMNS[1:], row[1:], strict=True):
        assert math.isnan(found[column]) if value is None else found[column] == value


def test_there_is_nothing_else_and_all_is_published():
    frame = phonebench.table()
    assert list(frame["model"]) == [row[0] for row in CHART]
    assert frame["score"].is_monotonic_decreasing
    assert set(frame["origin"]) == {"published"}
    assert set(frame["date"]) == {"2026-08"}
    assert frame["p95_about"].dtype == bool


def test_about_means_the_ceiling_and_only_for_models_with_a_floor():
    """The caveat that the lesson makes of it."""
    frame = phonebench.table()
    assert set(frame.loc[frame["p95_about"], "ttfat_p95_ms"]) == {600}
    assert (frame.loc[~frame["p95_about"], "ttfat_p95_ms"].dropna() != 600).all()
    assert frame.loc[frame["p95_about"], "floor_p50_ms"].notna().all()
    hosted = frame[~frame["p95_about"] & frame["ttfat_p95_ms"].notna()]
    assert hosted["floor_p50_ms"].isna().all()


def test_base_and_fine_tune_differ_in_their_score_alone():
    frame = phonebench.table().set_index("model")
    base, tuned = frame.loc["Nemotron 3 Nano 30B base"], frame.loc[phonebench.PHONELLM]
    assert [name for name in COLUMNS[1:] if base[name] != tuned[name]] == ["score"]


def test_what_is_missing_is_told():
    assert phonebench.missing() == ["Qwen 3.8 27B: no P50, no P95"]


def test_the_table_is_a_copy():
    frame = phonebench.table()
    frame.loc[0, "score"] = 0
    assert phonebench.table().loc[0, "score"] == CHART[0][1]


def test_another_word_for_about_is_named(monkeypatch):
    read = tables.read

    def wrong(*given, **options):
        frame = read(*given, **options)
        frame.loc["GPT-4.1", "p95_about"] = "perhaps"
        return frame

    monkeypatch.setattr(tables, "read", wrong)
    with pytest.raises(CourseError, match=r"GPT-4\.1.*perhaps"):
        phonebench._read.__wrapped__()
