"""Figures say what they show, in words too; come out the same each time; and survive nasty data."""

import base64
import os
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of
from PIL import Image

from helpers import drawing, figures, origins
from helpers.settings import DATA, REPO, CourseError

CARD = {"source": "the model card", "date": "2026-11"}


def chunks(*rows, **columns):
    return pd.DataFrame(rows, columns=["at_ms", "kind", "text"]).assign(**columns)


def frames(origin="measured"):
    """For each figure a small plausible table, all of one origin."""
    made = {
        "stream_timeline": chunks(
            (175.0, "role", ""),
            (205.0, "answer", "Thanks"),
            (221.0, "answer", " for"),
            (238.0, "answer", " calling"),
            (254.0, "finish", "stop"),
            (255.0, "usage", ""),
        ),
        "itl": pd.DataFrame({"gap_ms": [15.0, 16.0, 17.0, 16.5, 31.0], "reply": "alone"}),
        "ttft_by_prompt_length": pd.DataFrame(
            {
                "prompt_tokens": [44, 44, 992, 992, 44, 992],
                "ttft_ms": [55.0, 57.0, 640.0, 660.0, 50.0, 110.0],
                "cache": ["cold"] * 4 + ["cached"] * 2,
            }
        ),
        "latency_bars": pd.DataFrame(
            {"label": ["thinking off", "budget 20"], "ttft_ms": [61.0, 72.0], "ttfat_ms": [61.0, 497.0]}
        ),
        "percentile_by_samples": pd.DataFrame(
            {"n": [20, 100], "value": [246.0, 243.0], "low": [200.0, 220.0], "high": [np.inf, 301.0]}
        ),
        "tool_comparison": pd.DataFrame(
            {
                "tool": ["ours", "ours", "another"],
                "metric": ["TTFT", "TTFAT", "TTFT"],
                "p50_ms": [62.0, 88.0, 63.0],
                "max_ms": [84.0, 111.0, 86.0],
                "n": 200,
            }
        ),
        "client_vs_server": pd.DataFrame(
            {
                "side": ["client"] * 4 + ["server"] * 3,
                "ttft_ms": [61.0, 73.0, 99.0, 181.0] + [np.nan] * 3,
                "le_s": [np.nan] * 4 + [0.08, 0.25, np.inf],
                "count": [np.nan] * 4 + [2, 2, 0],
            }
        ),
        "budget_line": pd.DataFrame({"stage": ["transcription", "LLM TTFT", "TTS"], "ms": [300, 650, 120]}),
    }
    place = CARD if origin == "published" else {"server": "vLLM on CPU"}
    return {name: frame.assign(origin=origin, **place) for name, frame in made.items()}


NAMES = sorted(frames())
NUMBERS = {  # what the words must contain
    "stream_timeline": ["first chunk 175 ms", "TTFT = TTFAT 205 ms", "end 255 ms", "6 chunks", "3 answer"],
    "itl": ["5 gaps", "P50 16 ms", "P95 31 ms"],
    "ttft_by_prompt_length": ["56 ms at 44 tokens", "650 ms at 992 tokens", "110 ms at 992 tokens"],
    "latency_bars": ["TTFT = TTFAT 61 ms", "TTFT 72 ms, TTFAT 497 ms"],
    "percentile_by_samples": ["n = 20: 246 ms, interval 200 ms to unbounded", "220 ms to 301 ms"],
    "tool_comparison": ["another, TTFT: P50 63 ms, slowest 86 ms", "another does not report TTFAT"],
    "client_vs_server": [
        "P50 73 ms",
        "P95 181 ms",
        "50% of the server's requests lie between 0 ms and 80 ms",
    ],
    "budget_line": ["LLM TTFT 650 ms", "total 1,070 ms, 430 ms under the limit of 1,500 ms"],
}


@pytest.mark.parametrize("name", NAMES)
def test_words_have_the_numbers(name):
    words = figures.alt_text(getattr(figures, name)(frames()[name]))
    for number in NUMBERS[name]:
        assert number in words


@pytest.mark.parametrize("origin", origins.ORIGINS)
@pytest.mark.parametrize("name", NAMES)
def test_legend_and_note_name_the_origin(name, origin):
    figure = getattr(figures, name)(frames(origin)[name])
    assert origin in legend_of(figure)
    assert ("the model card, 2026-11" if origin == "published" else "vLLM on CPU") in legend_of(figure)
    assert origin in figure.note


@pytest.mark.parametrize("name", NAMES)
def test_two_origins_are_both_named_and_look_different(name):
    both = pd.concat([frames("measured")[name], frames("modelled")[name]], ignore_index=True)
    if name == "stream_timeline":  # one reply has one origin
        both["reply"] = both["origin"]
    figure = getattr(figures, name)(both)
    assert "measured" in legend_of(figure)
    assert "modelled" in legend_of(figure)


def test_origins_differ_without_colour():
    looks = [drawing.look(origin, drawing.THEMES["light"]) for origin in origins.ORIGINS]
    for trait in ("marker", "line", "hatch"):
        assert len({getattr(look, trait) for look in looks}) == len(origins.ORIGINS)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_named(name):
    frame = frames()[name]
    optional = {"server", "reply"}
    for column in set(frame.columns) - optional:
        with pytest.raises(CourseError, match=f"'{column}'"):
            getattr(figures, name)(frame.drop(columns=column))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_says_so(name):
    with pytest.raises(CourseError, match="no "):
        getattr(figures, name)(frames()[name].iloc[:0])


@pytest.mark.parametrize("name", NAMES)
def test_drawing_leaves_table_and_settings_alone(name):
    frame = frames()[name]
    before, settings = frame.copy(), dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.facecolor": "pink", "font.size": 30, "text.usetex": True}):
        figure = getattr(figures, name)(frame)
    pd.testing.assert_frame_equal(frame, before)
    assert dict(matplotlib.rcParams) == settings
    assert figure.get_figwidth() == drawing.WIDTH_IN
    assert all(axes.get_facecolor() == (1, 1, 1, 1) for axes in figure.axes)  # not pink


@pytest.mark.parametrize(
    ("name", "column"),
    [("stream_timeline", "kind"), ("ttft_by_prompt_length", "cache"), ("client_vs_server", "side")],
)
def test_a_word_that_is_not_one_of_the_known_is_named(name, column):
    frame = frames()[name]
    frame.loc[1, column] = "warm"
    with pytest.raises(CourseError, match=f"Row 1, column '{column}': 'warm'"):
        getattr(figures, name)(frame)


# The same bytes


def test_saved_twice_the_bytes_are_the_same(tmp_path):
    for name, frame in frames().items():
        first = figures.save(getattr(figures, name), frame, tmp_path / "first" / name)
        second = figures.save(getattr(figures, name), frame.copy(), tmp_path / "second" / name)
        assert [path.name for path in first] == [f"{name}.svg", f"{name}.png", f"{name}.alt.txt"]
        for one, other in zip(first, second, strict=True):
            assert one.read_bytes() == other.read_bytes()


SCRIPT = """
import sys
import pandas as pd
from helpers import figures
frame = pd.DataFrame({"gap_ms": [15.0, 16.0, 31.0], "reply": ["a", "b", "a"], "origin": "measured"})
figures.save(figures.itl, frame, sys.argv[1])
figures.save(figures.course_map, None, sys.argv[1] + "_map")
"""


def test_saved_by_two_processes_the_bytes_are_the_same(tmp_path):
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}"}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / seed)]
        subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=120)
    for ending in (".svg", ".png", ".alt.txt", "_map.svg", "_map.png", "_map.alt.txt"):
        assert (tmp_path / f"1{ending}").read_bytes() == (tmp_path / f"2{ending}").read_bytes()


def test_saved_files(tmp_path):
    svg, png, text = figures.save(figures.itl, frames()["itl"], tmp_path / "gaps v1.0")
    assert svg.name == "gaps v1.0.svg"
    assert ET.fromstring(svg.read_text(encoding="utf-8")).tag.endswith("svg")
    assert matplotlib.__version__ not in svg.read_text(encoding="utf-8")
    with Image.open(png) as image:
        assert image.width == drawing.WIDTH_IN * 200
        assert "Software" not in image.info
    alt, _, note = text.read_text(encoding="utf-8").strip().partition("\n\n")
    assert alt == figures.alt_text(figures.itl(frames()["itl"]))
    assert note == "measured on vLLM on CPU, n = 5"


def test_a_relative_stem_goes_to_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "WORKSPACE", tmp_path)
    svg, _, _ = figures.save(figures.itl, frames()["itl"], "lesson/gaps")
    assert svg == tmp_path / "figures" / "lesson" / "gaps.svg"
    assert svg.exists()


# In a notebook


def shown(monkeypatch, *arguments, **options):
    caught = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: caught.append(data))
    assert figures.show(*arguments, **options) is None
    (bundle,) = caught
    return bundle


def test_show_gives_one_image_for_both_themes(monkeypatch):
    frame = frames()["latency_bars"]
    frame.loc[0, "label"] = 'thinking "off" <b> & more'
    bundle = shown(monkeypatch, figures.latency_bars, frame, title="A title")
    page = bundle["text/html"]
    assert page.count("<img") == 1
    images = [base64.b64decode(image) for image in re.findall(r"base64,([^\"]+)", page)]
    dark, light = (image.decode() for image in images)  # the style rule comes first
    assert drawing.THEMES["dark"].paper in dark
    assert drawing.THEMES["dark"].paper not in light
    assert 'body[data-jp-theme-light="false"] img.figure-' in page
    assert "body.vscode-dark img.figure-" in page
    (element,) = ET.fromstring(f"<page>{page[page.index('<img') :].replace('>', '/>')}</page>")
    assert element.get("alt") == bundle["text/plain"] == figures.alt_text(figures.latency_bars(frame))


def test_show_the_map(monkeypatch):
    assert "05 measure TTFT" in shown(monkeypatch, figures.course_map, here="05")["text/html"]


def test_unknown_theme():
    with pytest.raises(CourseError, match="theme='light'"):
        figures.itl(frames()["itl"], theme="sepia")


# Nasty data

NASTY = [
    "\U0001f44b\U0001f3fd",
    " \u4f60\u597d",
    "$5 and $6",
    "\n",
    "\ufffd",
    "\u0645\u0631",
    "\U0001f468\u200d\U0001f469",
    "\ud83d",
    "\x00",
    "\\",
]


def nasty_frames():
    long_name = "a name that does not end, " * 12 + NASTY[0]
    nasty = frames()
    at = np.arange(300) * 17.0 + 200
    nasty["stream_timeline"] = pd.DataFrame(
        {
            "at_ms": at,
            "kind": "answer",
            "text": [NASTY[i % len(NASTY)] for i in range(300)],
            "reply": long_name,
            "origin": "measured",
        }
    )
    nasty["itl"] = nasty["itl"].assign(gap_ms=[0.0, 0.0, 0.0, 0.0, 900.0], reply=long_name)
    nasty["ttft_by_prompt_length"] = nasty["ttft_by_prompt_length"].iloc[:1]
    nasty["latency_bars"] = nasty["latency_bars"].assign(
        label=long_name + NASTY[7], ttft_ms=np.nan, ttfat_ms=np.nan
    )
    nasty["percentile_by_samples"] = nasty["percentile_by_samples"].iloc[:1].assign(value=np.inf, low=-np.inf)
    nasty["tool_comparison"] = nasty["tool_comparison"].assign(tool=long_name)
    nasty["client_vs_server"] = nasty["client_vs_server"].assign(count=[np.nan] * 4 + [0, 0, 4])
    nasty["budget_line"] = pd.concat([nasty["budget_line"].assign(ms=1.0, stage=NASTY[2])] * 6)
    return {name: frame.assign(server=long_name) for name, frame in nasty.items()}


@pytest.mark.parametrize("name", NAMES)
def test_nasty_data_is_drawn_without_a_warning(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a letter that the font lacks is a warning
        for path in figures.save(
            getattr(figures, name), nasty_frames()[name], tmp_path / name, title=NASTY[0]
        ):
            assert path.stat().st_size > 0


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("stream_timeline", "at_ms"),
        ("stream_timeline", "ttft_ms"),
        ("itl", "gap_ms"),
        ("ttft_by_prompt_length", "prompt_tokens"),
        ("ttft_by_prompt_length", "ttft_ms"),
        ("percentile_by_samples", "n"),
        ("tool_comparison", "n"),
        ("client_vs_server", "count"),
        ("budget_line", "ms"),
    ],
)
def test_an_infinite_value_that_cannot_be_drawn_is_named(name, column, value):
    frame = frames()[name]
    frame[column] = frame.get(column, pd.Series(200.0, frame.index)).astype(float)
    frame.loc[0, column] = value
    with pytest.raises(CourseError, match=f"Row 0, column '{column}'"):
        getattr(figures, name)(frame)


@pytest.mark.parametrize(
    ("name", "columns", "says"),
    [
        ("client_vs_server", ["ttft_ms"], ["P95 unbounded", "1 request never got there"]),
        ("latency_bars", ["ttfat_ms"], ["TTFT 61 ms, TTFAT unbounded. 1 request never got there"]),
        ("latency_bars", ["ttft_ms", "ttfat_ms"], ["TTFT = TTFAT unbounded. 1 request never got there"]),
        ("tool_comparison", ["max_ms"], ["P50 62 ms, slowest unbounded", "1 request never got there"]),
        ("tool_comparison", ["p50_ms", "max_ms"], ["P50 unbounded", "1 request never got there"]),
    ],
)
def test_a_request_that_never_got_there_ends_at_the_edge(name, columns, says, tmp_path):
    frame = frames()[name]
    frame.loc[0, columns] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = figures.alt_text(getattr(figures, name)(frame))
        figures.save(getattr(figures, name), frame, tmp_path / name)
    for said in says:
        assert said in words
    frame.loc[0, columns] = -np.inf
    with pytest.raises(CourseError, match="Row 0"):
        getattr(figures, name)(frame)


def test_a_client_whose_requests_all_failed_is_a_line_on_the_floor():
    frame = frames()["client_vs_server"]
    frame.loc[frame["side"] == "client", "ttft_ms"] = np.inf
    figure = figures.client_vs_server(frame)
    (line,) = [line for line in figure.axes[0].lines if line.get_drawstyle() == "steps-post"]
    assert set(line.get_ydata()) == {0.0}
    assert "4 requests never got there" in figures.alt_text(figure)


def test_a_tool_without_a_success_is_told_from_one_that_does_not_report():
    frame = frames()["tool_comparison"]
    frame.loc[frame["metric"] == "TTFAT", ["p50_ms", "max_ms", "n"]] = [np.nan, np.nan, 0]
    figure = figures.tool_comparison(frame)
    assert "ours, TTFAT: no request succeeded" in figures.alt_text(figure)
    assert "another does not report TTFAT" in figures.alt_text(figure)
    assert texts_of(figure).count("no request succeeded") == 1


def test_one_chunk():
    figure = figures.stream_timeline(chunks((812.0, "answer", "all at once"), origin="recorded"))
    assert "first chunk = TTFT = TTFAT = end 812 ms" in figures.alt_text(figure)


def test_a_reply_without_a_token():
    words = figures.alt_text(figures.stream_timeline(chunks((90.0, "role", ""), origin="measured")))
    assert "first chunk = end 90 ms" in words
    assert "TTFT" not in words


def test_measured_values_win_over_the_kinds():
    """Answer text in the reasoning field: only helpers.latency can know that it is the answer."""
    frame = chunks((50.0, "role", ""), (61.0, "reasoning", "Hello"), (80.0, "finish", ""), origin="measured")
    assert "TTFAT" not in figures.alt_text(figures.stream_timeline(frame))
    frame = frame.assign(ttft_ms=61.0, ttfat_ms=61.0)
    assert "TTFT = TTFAT 61 ms" in figures.alt_text(figures.stream_timeline(frame))


def test_replies_stand_below_each_other_on_one_time_axis():
    slow = chunks(
        (72.0, "reasoning", "Hm"), (497.0, "answer", "Hello"), origin="measured", reply="thinking on"
    )
    fast = chunks((61.0, "answer", "Hello"), origin="measured", reply="thinking off")
    figure = figures.stream_timeline(pd.concat([slow, fast], ignore_index=True))
    above, below = figure.axes
    assert above.get_xlim() == below.get_xlim()
    assert above.get_position().y0 > below.get_position().y1
    assert "thinking on: 2 chunks" in figures.alt_text(figure)


def test_the_open_end_of_an_interval_is_called_unbounded():
    frame = frames()["percentile_by_samples"]
    assert texts_of(figures.percentile_by_samples(frame)).count("unbounded") == 1
    assert "unbounded" not in texts_of(figures.percentile_by_samples(frame.iloc[1:]))


def test_a_budget_over_the_limit():
    frame = frames()["budget_line"].assign(ms=[300, 1100, 120])
    assert "total 1,520 ms, 20 ms over the limit" in figures.alt_text(figures.budget_line(frame))


def test_labels_keep_apart_and_inside():
    labels = [(place, 1.1) for place in (0.1, 0.15, 0.2, 3.0, 3.9, 5.6, 5.7)]
    rows = drawing.label_levels(labels, 5.8)
    boxes = [
        (level, place - width if left else place, place if left else place + width)
        for (place, width), (level, left) in zip(labels, rows, strict=True)
    ]
    assert all(low >= 0 and high <= 5.8 for _, low, high in boxes)
    for i, (level, low, high) in enumerate(boxes):
        for other_level, other_low, other_high in boxes[:i]:
            assert level != other_level or high <= other_low or other_high <= low


def test_cut_text_fits():
    text = drawing.safe("a long text with $ and \U0001f44b in it, " * 20)
    for room_in in (0.5, 2.0, 6.0):
        cut = drawing.fit(text, room_in)
        assert cut.endswith("\u2026")
        assert 0.7 * room_in < drawing.width_in(cut) <= room_in
    assert drawing.fit("short", 6.0) == "short"


def test_safe_text():
    assert drawing.safe("Gr\u00fc\u00dfe, 5 \u00b5s") == "Gr\u00fc\u00dfe, 5 \u00b5s"
    assert drawing.safe(NASTY[0]) == "[waving hand sign]"
    assert drawing.safe("\u4f60") == "\\u4f60"
    assert drawing.safe("a\nb") == "a\u21b5b"


# The course map


def test_the_map_shows_each_lesson_and_what_is_coming():
    lessons = pd.read_csv(DATA / "lessons.csv", dtype={"lesson": str})
    figure = figures.course_map(here="00")
    for title in lessons["title"]:
        assert title in texts_of(figure)
    assert texts_of(figure).count("coming") == int((~lessons["available"]).sum())
    assert texts_of(figure).count("you are here") == 1
    assert f"{lessons['minutes'].sum()} minutes" in figures.alt_text(figure)


def test_the_map_refuses_a_step_that_is_not_on_the_chain():
    lessons = pd.read_csv(DATA / "lessons.csv", dtype={"lesson": str})
    lessons.loc[3, "last_step"] = "profit"
    with pytest.raises(CourseError, match="Row 3, column 'last_step': 'profit'"):
        figures.course_map(lessons)


def test_no_heavy_import():
    code = "import sys, helpers.figures; print({'vllm', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "set()"
