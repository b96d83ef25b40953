"""The figures of lesson 03: what they say in words, where their numbers come from, and nasty tables."""

import re
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of
from matplotlib.patches import FancyBboxPatch

from helpers import drawing, figures, figures_memory, origins
from helpers.settings import CourseError

PATTERN = "MEM*E-"
MIB = 2**20


def frames(origin="modelled"):
    """For each figure a small table, all of one origin."""
    size = {"M": 40e6, "E": 1.3e9, "*": 23e6, "-": 140e6}
    used = size | {"E": 80e6}
    made = {
        "model_layers": pd.DataFrame(
            {
                "letter": list(PATTERN),
                "parameters": [size[letter] for letter in PATTERN],
                "active_parameters": [used[letter] for letter in PATTERN],
            }
        ),
        "distinct_experts": pd.DataFrame(
            {
                "batch": [1, 16, 64, 16, 64],
                "distinct": [6.0, 69.0, 122.0, 68.0, 97.0],
                "router": ["formula"] * 3 + ["even router"] * 2,
            }
        ),
        "bytes_per_step": pd.DataFrame({"batch": [1, 16, 64], "step_gb": [5.8, 35.0, 59.0]}),
        "request_memory": pd.DataFrame(
            {"tokens": [100, 4000, 16000], "kv_bytes": [614400, 24576000, 98304000], "mamba_bytes": 47 * MIB}
        ),
        "what_fits": pd.DataFrame(
            {
                "gpu": ["H100", "H100", "L40S"],
                "format": ["BF16", "NVFP4", "BF16"],
                "memory_gib": [74.5, 74.5, 44.7],
                "weights_gib": [58.8, 18.0, 58.8],
                "left_gib": [3.2, 44.0, -24.0],
                "requests": [47, 640, 0],
                "supported": [True, False, True],
            }
        ),
        "cache_growth": pd.DataFrame(
            {
                "tokens": [16, 64],
                "kv_bytes": [8192, 32768],
                "mamba_bytes": 40000,
                "kv_formula": [8192, 32768],
                "mamba_formula": 40000,
            }
        ),
    }
    place = {"source": "the model card", "date": "2026-11"} if origin == "published" else {"server": "a GPU"}
    return {name: frame.assign(origin=origin, **place) for name, frame in made.items()}


NAMES = sorted(frames())
NUMBERS = {
    "model_layers": [
        PATTERN,
        "mixture of experts: 2 layers of 1.30 billion (80.0 million used for a token), 91.5 % of all",
        "attention: 1 layer of 23.0 million",
        "Attention at layer 3, counted from 0",
    ],
    "distinct_experts": [
        "formula (modelled): 6 at 1, 69 at 16, 122 at 64",
        "even router (modelled): 68 at 16",
    ],
    "bytes_per_step": ["Batch 64: 59.0 GB a step, 0.92 GB a token"],
    "request_memory": ["4,000 tokens: KV 23.4 MiB, Mamba 47.0 MiB", "They cross at 8,021 tokens"],
    "what_fits": [
        "H100, BF16: 58.8 of 74.5 GiB are weights, 47 requests",
        "H100, NVFP4: 18.0 of 74.5 GiB are weights, 640 requests, not in hardware",
        "L40S, BF16: 58.8 of 44.7 GiB are weights, does not fit",
    ],
    "cache_growth": ["64 tokens: KV 32,768 bytes (formula 32,768), Mamba 40,000 (formula 40,000)"],
}
OPTIONAL = {"server"}


def draw(name, frame, **options):
    return getattr(figures, name)(frame, **options)


@pytest.mark.parametrize("name", NAMES)
def test_words_have_the_numbers(name):
    words = figures.alt_text(draw(name, frames()[name]))
    for number in NUMBERS[name]:
        assert number in words


@pytest.mark.parametrize("origin", origins.ORIGINS)
@pytest.mark.parametrize("name", NAMES)
def test_legend_note_and_words_name_the_origin(name, origin):
    figure = draw(name, frames(origin)[name])
    assert origin in legend_of(figure)
    assert ("the model card, 2026-11" if origin == "published" else "a GPU") in legend_of(figure)
    assert origin in figure.note


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_named(name):
    frame = frames()[name]
    for column in set(frame.columns) - OPTIONAL:
        with pytest.raises(CourseError, match=f"'{column}'"):
            draw(name, frame.drop(columns=column))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_says_so(name):
    with pytest.raises(CourseError, match="no row"):
        draw(name, frames()[name].iloc[:0])


@pytest.mark.parametrize("name", NAMES)
def test_an_infinite_number_is_named(name):
    frame = frames()[name]
    column = frame.select_dtypes("number").columns[-1]
    frame[column] = frame[column].astype(float)
    frame.loc[0, column] = np.inf
    with pytest.raises(CourseError, match=f"Row 0, column '{column}'"):
        draw(name, frame)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_it_draws_in_both_themes_without_a_warning_and_leaves_everything_alone(name, theme, tmp_path):
    frame = frames()[name]
    before, settings = frame.copy(), dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = figures.save(
            getattr(figures, name), frame, tmp_path / name, theme=theme, title="$5 \u2603 4\u4f60"
        )
        again = figures.save(
            getattr(figures, name), frame, tmp_path / "again", theme=theme, title="$5 \u2603 4\u4f60"
        )
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


def test_a_letter_that_is_no_layer_is_named():
    frame = frames()["model_layers"]
    frame.loc[2, "letter"] = "X"
    with pytest.raises(CourseError, match="Row 2, column 'letter': 'X'"):
        figures.model_layers(frame)


def test_each_kind_of_layer_has_its_own_shape_and_letter():
    figure = figures.model_layers(frames()["model_layers"])
    strip = figure.axes[0]
    assert sum(isinstance(patch, FancyBboxPatch) for patch in strip.patches) == PATTERN.count("M")
    heights = sorted(patch.get_height() for patch in strip.patches)
    assert heights[-1] > 2 * heights[-2]  # the one attention layer stands out
    letters = [text.get_text() for text in strip.texts]
    assert [letters.count(letter) for letter in "ME"] == [2, 2]
    assert "3" in letters  # its number


def test_shares_are_of_the_whole_model_where_that_is_given():
    frame = frames()["model_layers"]
    words = figures.alt_text(figures.model_layers(frame, total=2 * frame["parameters"].sum()))
    assert "45.7 % of all" in words
    assert "embedding, output and last norm: 2.84 billion, 50.0 %" in words


def test_bandwidth_gives_a_second_scale_and_milliseconds():
    frame = frames()["bytes_per_step"].assign(dense_gb=5.8)
    figure = figures.bytes_per_step(frame, bandwidth_tb_s=8.0, machine="B200")
    words = figures.alt_text(figure)
    assert "59.0 GB a step, 0.92 GB a token, at least 7.38 ms" in words
    assert "A dense model of that size reads 5.8 GB" in words
    assert any("8 TB/s, B200" in text for text in texts_of(figure))


def test_where_two_lines_cross():
    tokens = np.array([1000.0, 4000.0, 16000.0])
    assert figures_memory.crossing(tokens, tokens * 10, np.full(3, 50000.0)) == (5000.0, 50000.0)
    assert figures_memory.crossing(tokens, tokens * 10, np.full(3, 1e9)) is None
    words = figures.alt_text(figures.request_memory(frames()["request_memory"].iloc[:2]))
    assert "cross" not in words


def test_what_does_not_fit_and_what_is_not_supported_is_said_in_the_picture():
    texts = texts_of(figures.what_fits(frames()["what_fits"]))
    assert "does not fit" in texts
    assert any(re.search("640 requests, not in hardware", text) for text in texts)
    assert "0 requests" not in texts
    unknown = frames()["what_fits"].assign(supported=None)
    assert "640 requests, not known if in hardware" in texts_of(figures.what_fits(unknown))
