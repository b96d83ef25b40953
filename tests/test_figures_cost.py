"""The figures of lesson 08: they draw what is in their tables, in both themes, and say it in words."""

from __future__ import annotations

import warnings

import matplotlib
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of

from helpers import cost_call, exhibits_08, figures
from helpers.settings import CourseError

EXHIBITS = {exhibit.name: exhibit for exhibit in exhibits_08.EXHIBITS}


def draw(name: str, **options):
    exhibit = EXHIBITS[name]
    return exhibit.draw(exhibit.frame(), **(dict(exhibit.options) | options))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", EXHIBITS)
def test_it_draws_without_a_warning_the_same_each_time_and_leaves_everything_alone(name, theme, tmp_path):
    exhibit = EXHIBITS[name]
    frame = exhibit.frame()
    before, settings = frame.copy(), dict(matplotlib.rcParams)
    options = dict(exhibit.options) | {"theme": theme, "title": "$5 \u2603 4\u4f60"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = figures.save(exhibit.draw, frame, tmp_path / "one", **options)
        again = figures.save(exhibit.draw, frame, tmp_path / "two", **options)
    pd.testing.assert_frame_equal(frame, before)
    assert dict(matplotlib.rcParams) == settings
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]


@pytest.mark.parametrize("name", EXHIBITS)
def test_each_is_on_the_list_that_lessons_use(name):
    function = EXHIBITS[name].draw
    assert getattr(figures, function.__name__) is function


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_origin_is_named_in_the_legend_and_one_that_is_none_is_refused(name):
    exhibit = EXHIBITS[name]
    frame = exhibit.frame()
    said = legend_of(draw(name))
    assert all(origin in said for origin in set(frame["origin"]))
    with pytest.raises(CourseError, match="guessed"):
        exhibit.draw(frame.assign(origin="guessed"), **exhibit.options)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("08-price-by-calls", "usd_per_minute"),
        ("08-call-day", "live_calls"),
        ("08-tornado", "at_low"),
        ("08-cost-by-turn", "usd"),
        ("08-cost-by-volume", "usd_per_day"),
        ("08-call-minute", "usd_per_minute"),
    ],
)
def test_a_missing_column_and_an_infinite_number_are_named(name, column):
    exhibit = EXHIBITS[name]
    frame = exhibit.frame()
    with pytest.raises(CourseError, match=column):
        exhibit.draw(frame.drop(columns=column), **exhibit.options)
    frame[column] = frame[column].astype(float)
    frame.iloc[0, frame.columns.get_loc(column)] = float("inf")
    with pytest.raises(CourseError, match=column):
        exhibit.draw(frame, **exhibit.options)


def test_the_slips_calls_are_marked_and_the_charts_are_not():
    figure = draw("08-price-by-calls")
    words = texts_of(figure)
    assert "would take 893" in words
    assert not any(text == "would take 89" for text in words)
    assert "which would take 893" in figures.alt_text(figure)
    assert "claimed price" not in legend_of(draw("08-price-by-calls", claims=None))


def test_the_day_says_which_share_of_what_is_paid_carries_calls():
    figure = draw("08-call-day")
    planned, agents = exhibits_08.bank_day(), EXHIBITS["08-call-day"].options["calls_per_gpu"]
    share = planned["live_calls"].mean() / (planned["gpus"].max() * agents)
    assert f"reserved for the peak: {share:.0%}" in legend_of(figure)


def test_the_tornado_has_its_widest_bar_on_top_and_the_ends_of_its_input_beside_it():
    figure = draw("08-tornado")
    [axes] = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[0].startswith("live calls on one GPU")
    assert {"44", "624", "2.65", "14.24"} <= set(texts_of(figure))


def test_the_bill_names_the_models_share_and_each_total():
    words = texts_of(draw("08-call-minute"))
    assert "language model 0.0025, 9%" in words
    assert "language model 0.0347, 57%" in words
    assert "language model 0.00025, 1%" in words
    assert {"0.0283 USD", "0.0605 USD"} <= set(words)


def test_a_bill_of_one_part_and_a_free_one_can_be_drawn(tmp_path):
    free = cost_call.minute(cost_call.Model("free", 0.0), telephony="", stt="", tts="")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(figures.call_minute, free, tmp_path / "free")


def test_lines_are_named_at_their_ends():
    words = texts_of(draw("08-cost-by-turn"))
    assert {"with a cache", "without a cache"} <= set(words)
