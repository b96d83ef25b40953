"""The figures of lesson 01 say what they show, refuse what cannot be drawn, and look the same twice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of

from helpers import clips, exhibits_01, figures, phonebench, ratings, slow_turns
from helpers.settings import CourseError

EXHIBITS = {exhibit.name: exhibit for exhibit in exhibits_01.EXHIBITS}


def drawn(name: str, theme: str = "light"):
    exhibit = EXHIBITS[name]
    return exhibit.draw(exhibit.frame(), theme=theme, **exhibit.options)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", EXHIBITS)
def test_each_exhibit_can_be_drawn_and_says_so(name, theme):
    figure = drawn(name, theme)
    assert len(figures.alt_text(figure)) > 60
    assert figure.note


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_same_bytes_each_time(name, tmp_path):
    exhibit = EXHIBITS[name]
    for folder in ("one", "two"):
        figures.save(exhibit.draw, exhibit.frame(), tmp_path / folder / name, **exhibit.options)
    for ending in (".svg", ".png", ".alt.txt"):
        one, two = ((tmp_path / folder / f"{name}{ending}").read_bytes() for folder in ("one", "two"))
        assert one == two


@pytest.mark.parametrize("name", EXHIBITS)
def test_a_table_without_rows_or_origin_is_refused(name):
    exhibit = EXHIBITS[name]
    frame = exhibit.frame()
    with pytest.raises(CourseError, match="no "):
        exhibit.draw(frame.iloc[:0], **exhibit.options)
    with pytest.raises(CourseError, match="origin"):
        exhibit.draw(frame.drop(columns="origin"), **exhibit.options)


def test_the_clips_with_what_they_stand_for():
    words = figures.alt_text(drawn("01-clip-gaps"))
    assert "1,957 ms: Terra's P95, one stage alone (published)" in words
    assert "300 ms: quick (modelled)" in words
    assert "published" in legend_of(drawn("01-clip-gaps"))
    assert "our assumption" in legend_of(drawn("01-clip-gaps"))
    assert texts_of(drawn("01-clip-gaps")).count("agent") == len(clips.gaps())


def test_the_waveform_tells_the_gap():
    assert "the gap between is 1,29" in figures.alt_text(drawn("01-waveform"))
    frame = EXHIBITS["01-waveform"].frame()
    with pytest.raises(CourseError, match="before it begins"):
        figures.waveform(frame.assign(agent_start_ms=0.0))


def test_an_example_of_ratings_is_named_as_one():
    figure = drawn("01-tolerance")
    assert "modelled" in legend_of(figure)
    assert "nobody's ratings" in legend_of(figure)
    assert "measured" not in legend_of(figure)


def test_two_passes_are_told_apart_without_colour():
    frame = pd.concat([ratings.example([300, 600]).assign(round=number) for number in (1, 2)])
    assert "second pass" in legend_of(figures.tolerance(frame))
    faces = {
        line.get_markerfacecolor()
        for line in figures.tolerance(frame).axes[0].lines
        if line.get_marker() == "^"
    }
    assert len(faces) > 1


@pytest.mark.parametrize("rating", [0, 5, 2.5])
def test_a_rating_off_the_scale_is_refused(rating):
    frame = ratings.example([300, 600]).assign(rating=rating)
    with pytest.raises(CourseError, match="rating"):
        figures.tolerance(frame)


def test_median_mean_and_p95_are_those_of_the_table():
    waits = np.arange(1.0, 201.0)
    frame = pd.DataFrame({"wait_ms": waits, "origin": "measured", "server": "a server"})
    words = figures.alt_text(figures.wait_distribution(frame, what="wait"))
    assert "median 100 ms, mean 100 ms, P95 190 ms" in words
    assert "the slowest 200 ms" in words
    assert "measured on a server, n = 200" in legend_of(figures.wait_distribution(frame))


def test_two_runs_in_one_distribution_are_refused():
    frame = pd.DataFrame({"wait_ms": [1.0, 2.0], "origin": ["measured", "recorded"]})
    with pytest.raises(CourseError, match="one run"):
        figures.wait_distribution(frame)


def test_the_marked_call_length_is_told():
    figure = figures.slow_calls(slow_turns.curves(range(1, 31)), turns=20)
    assert "64 %" in texts_of(figure)
    assert "20 turns 64 %" in figures.alt_text(figure)
    with pytest.raises(CourseError, match="31"):
        figures.slow_calls(slow_turns.curves(range(1, 31)), turns=31)
    with pytest.raises(CourseError, match="share"):
        figures.slow_calls(slow_turns.curves(range(1, 31)).assign(share=64.0))


def test_what_the_leaderboard_lacks_is_said_in_it():
    figure = drawn("01-leaderboard")
    assert texts_of(figure).count("P50, P95 not given") == 1
    assert texts_of(figure).count("about 600") == 7
    words = figures.alt_text(figure)
    assert "Qwen 3.8 27B: score 70.0, TTFAT P50 not given, P95 not given, 0.0074 USD a minute" in words
    assert "GPT-5.6 Terra: score 72.4, TTFAT P50 980 ms, P95 1,957 ms" in words
    assert "published" in legend_of(figure)


def test_a_leaderboard_without_a_price_or_a_score():
    frame = phonebench.table()
    frame.loc[3, ["score", "usd_per_minute"]] = np.nan
    figure = figures.leaderboard(frame, left_ms=857, limit_ms=1500)
    assert texts_of(figure).count("not given") == 2
