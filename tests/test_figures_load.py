"""The figures of lesson 07: what they say in words, where their numbers come from, and nasty tables."""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of

from helpers import drawing, figures, origins
from helpers.settings import CourseError

CARD = {"source": "somebody's report", "date": "2026-09"}


def frames(origin="measured"):
    """For each figure a small plausible table, all of one origin."""
    made = {
        "call_timeline": pd.DataFrame(
            {
                "call": ["a", "b", "a"],
                "due_s": [2.0, 3.0, 8.0],
                "sent_s": [2.0, 3.0, 8.0],
                "first_answer_s": [2.5, 3.5, 8.5],
                "ended_s": [4.0, 5.0, 9.0],
                "heard_s": [6.0, 6.5, 10.0],
                "call_began_s": [0.0, 0.5, 0.0],
            }
        ),
        "latency_curve": pd.DataFrame(
            {
                "live_calls": [1, 8, 16],
                "p50_ms": [120.0, 150.0, 230.0],
                "p95_ms": [210.0, 480.0, 900.0],
                "low_ms": [180.0, 400.0, 700.0],
                "high_ms": [np.inf, 590.0, 1300.0],
                "requests_per_s": [0.5, 3.5, 6.0],
                "goodput_per_s": [0.5, 3.4, 5.0],
                "n": [4, 60, 110],
                "trusted": [True, True, False],
            }
        ),
        "saturation": pd.DataFrame(
            [
                (1.0, "TTFAT", 120.0, 4.0),
                (2.0, "TTFAT", np.inf, 4.0),
                (9.0, "TTFAT", 700.0, 8.0),
                (1.0, "in flight", 1.0, 4.0),
                (9.0, "in flight", 2.0, 8.0),
                (1.0, "running", 1.0, 4.0),
                (9.0, "running", 2.0, 8.0),
                (1.0, "waiting", 0.0, 4.0),
                (9.0, "waiting", 3.0, 8.0),
                (1.0, "tokens per step", 14.0, 4.0),
                (9.0, "tokens per step", 230.0, 8.0),
                (1.0, "prefix hits", 0.6, 4.0),
                (9.0, "prefix hits", 0.8, 8.0),
            ],
            columns=["at_s", "series", "value", "live_calls"],
        ),
        "search_path": pd.DataFrame(
            {
                "live_calls": [4, 8, 16, 12, 12, 12],
                "calls": [32, 32, 32, 32, 32, 64],
                "share": [1.0, 0.97, 0.5, 0.95, 0.97, 0.96],
                "purpose": ["search"] * 5 + ["confirm"],
                "verdict": ["holds", "open", "fails", "open", "open", "holds"],
            }
        ),
        "percentiles_by_run": pd.DataFrame(
            {
                "run": ["all at once", "spread"],
                "p50_ms": [60.0, 60.0],
                "p95_ms": [1440.0, 87.0],
                "p99_ms": [1860.0, 125.0],
            }
        ),
        "little_check": pd.DataFrame(
            {"label": ["4 live", "8 live"], "rate_x_time": [1.7, 4.25], "in_flight": [1.7, 4.24]}
        ),
    }
    place = CARD if origin == "published" else {"server": "vLLM on CPU"}
    return {name: frame.assign(origin=origin, **place) for name, frame in made.items()}


NAMES = sorted(frames())
OPTIONAL = {"server", "trusted"}
NUMBERS = {  # what the words must contain
    "call_timeline": ["Timeline of 2 calls", "3 requests; at most 2 in flight at once, 0.71 on average"],
    "latency_curve": [
        "1 live calls (measured, 4 calls): P50 120 ms, P95 210 ms, interval 180 ms to unbounded",
        "16 live calls (measured, 110 calls, not to be trusted)",
        "5.0 of 6.0 requests a second within the limit",
        "a limit of 600 ms",
    ],
    "saturation": [
        "4 live calls: 2 requests, 1 over 600 ms",
        "waiting up to 3",
        "tokens per step up to 230",
        "80 % of the prompts in the cache",
    ],
    "search_path": ["16 live calls, 32 calls (search): 50 % within the limit, fails", "64 calls (confirm)"],
    "percentiles_by_run": ["all at once (measured): P50 60 ms, P95 1,440 ms, P99 1,860 ms"],
    "little_check": ["8 live (measured): 4.25 by the law, 4.24 in flight"],
}


def draw(name, frame, **options):
    return getattr(figures, name)(frame, **options)


@pytest.mark.parametrize("name", NAMES)
def test_words_have_the_numbers(name):
    words = figures.alt_text(draw(name, frames()[name]))
    for number in NUMBERS[name]:
        assert number in words


@pytest.mark.parametrize("origin", origins.ORIGINS)
@pytest.mark.parametrize("name", NAMES)
def test_legend_and_note_name_the_origin(name, origin):
    figure = draw(name, frames(origin)[name])
    assert origin in legend_of(figure)
    assert ("somebody's report" if origin == "published" else "vLLM on CPU") in legend_of(figure)
    assert origin in figure.note


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_named(name):
    frame = frames()[name]
    for column in set(frame.columns) - OPTIONAL:
        with pytest.raises(CourseError, match=f"'{column}'"):
            draw(name, frame.drop(columns=column))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "search_path"])
def test_an_empty_table_says_so(name):
    with pytest.raises(CourseError, match="no row"):
        draw(name, frames()[name].iloc[:0])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("call_timeline", "ended_s"),
        ("latency_curve", "live_calls"),
        ("latency_curve", "goodput_per_s"),
        ("saturation", "at_s"),
        ("search_path", "share"),
        ("little_check", "in_flight"),
    ],
)
def test_an_infinite_number_that_cannot_be_drawn_is_named(name, column):
    frame = frames()[name]
    frame[column] = frame[column].astype(float)
    frame.loc[0, column] = np.inf
    with pytest.raises(CourseError, match=f"Row 0, column '{column}'"):
        draw(name, frame)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_it_draws_in_both_themes_without_a_warning_and_leaves_everything_alone(name, theme, tmp_path):
    frame = frames()[name]
    before, settings = frame.copy(), dict(matplotlib.rcParams)
    options = {"theme": theme, "title": "$5 \u2603 4\u4f60"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = figures.save(getattr(figures, name), frame, tmp_path / name, **options)
        again = figures.save(getattr(figures, name), frame, tmp_path / "again", **options)
    pd.testing.assert_frame_equal(frame, before)
    assert dict(matplotlib.rcParams) == settings
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert drawing.THEMES[theme].paper in paths[0].read_text()


@pytest.mark.parametrize("name", NAMES)
def test_one_row_is_enough(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(getattr(figures, name), frames()[name].iloc[:1], tmp_path / name)


def test_two_origins_are_both_named():
    for name in NAMES:
        both = pd.concat([frames("measured")[name], frames("modelled")[name]], ignore_index=True)
        said = legend_of(draw(name, both))
        assert "measured" in said
        assert "modelled" in said


@pytest.mark.parametrize("name", ["latency_curve", "percentiles_by_run"])
def test_what_never_came_is_drawn_at_the_edge_and_said(name, tmp_path):
    frame = frames()[name].assign(p95_ms=np.inf, high_ms=np.inf, p99_ms=np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(getattr(figures, name), frame, tmp_path / name)
    assert "P95 unbounded" in figures.alt_text(draw(name, frame))


def test_a_request_in_flight_at_the_end_of_a_call_is_drawn():
    frame = frames()["call_timeline"]
    frame.loc[1, ["first_answer_s", "heard_s"]] = np.nan  # cut before its first token
    words = figures.alt_text(figures.call_timeline(frame))
    assert "2 calls" in words
    assert "3 requests" in words


def test_only_so_many_calls_are_drawn_but_all_are_counted():
    frame = frames()["call_timeline"]
    figure = figures.call_timeline(frame, calls=1)
    assert "call 2" not in texts_of(figure)
    assert "2 calls with 3 requests" in figures.alt_text(figure)


def test_an_untrusted_level_has_its_mark():
    frame = frames()["latency_curve"]
    assert "?" in texts_of(figures.latency_curve(frame))
    assert "?" not in texts_of(figures.latency_curve(frame.assign(trusted=True)))


def test_a_verdict_that_is_none_is_named():
    frame = frames()["search_path"]
    frame.loc[2, "verdict"] = "maybe"
    with pytest.raises(CourseError, match="Row 2, column 'verdict': 'maybe'"):
        figures.search_path(frame)


def test_the_fresh_run_is_marked_and_measurements_at_one_level_share_a_text():
    texts = texts_of(figures.search_path(frames()["search_path"], answer=12))
    assert "holds\n96 %\nfresh run" in texts
    assert "open\n96 %" in texts  # two of 32 calls with 95 and 97 %
    assert "Found: 12 live calls" in figures.alt_text(figures.search_path(frames()["search_path"], answer=12))


def test_two_clocks_of_a_run_are_named():
    frame = frames()["percentiles_by_run"].assign(run="64 tokens", clock=["from sending", "from when due"])
    words = figures.alt_text(figures.percentiles_by_run(frame))
    assert "64 tokens, from when due (measured)" in words


def test_a_table_with_no_known_series_says_where_one_comes_from():
    with pytest.raises(CourseError, match="sweeps.over_time".replace(".", r"\.")):
        figures.saturation(frames()["saturation"].assign(series="temperature"))


def test_a_server_without_pages_still_shows_the_waits():
    frame = frames()["saturation"]
    figure = figures.saturation(frame[frame["series"].isin(["TTFAT", "in flight"])])
    assert len(figure.axes) == 2
    assert "waiting" not in figures.alt_text(figure)


def test_a_run_without_requests_has_no_place_on_logarithmic_axes():
    with pytest.raises(CourseError, match="leave out runs without requests"):
        figures.little_check(frames()["little_check"].assign(in_flight=0.0))


@pytest.mark.parametrize("limit_ms", [600.0, 1.0])
def test_a_limit_far_from_every_time_is_in_the_picture_and_spoils_nothing(limit_ms, tmp_path):
    frame = frames()["percentiles_by_run"].assign(p50_ms=52.0, p95_ms=57.0, p99_ms=58.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(figures.percentiles_by_run, frame, tmp_path / "limit", limit_ms=limit_ms)
    low, high = figures.percentiles_by_run(frame, limit_ms=limit_ms).axes[0].get_xlim()
    assert low <= limit_ms <= high


def test_the_requests_of_a_run_are_counted_and_not_the_runs():
    frame = frames()["percentiles_by_run"].assign(n=[12, 63])
    assert "n = 12 to 63" in legend_of(figures.percentiles_by_run(frame))
