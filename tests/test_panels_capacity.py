"""The panel's answer is a plain function; its widgets only carry values to it."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from helpers import calibration, capacity, cards, hardware, panels, panels_capacity
from helpers.settings import CourseError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Fewer requests than a learner gets, and no pictures."""
    drawn = []
    monkeypatch.setattr(panels_capacity, "REQUESTS", 200)
    monkeypatch.setattr(panels_capacity.figures, "show", lambda *given, **options: drawn.append(given))
    return drawn


def gpu(name: str = "H100") -> pd.DataFrame:
    return hardware.table().loc[[name]]


def answers(*given, **options) -> dict[str, str]:
    frame, _ = panels_capacity.carries(*given, **options)
    assert set(frame["origin"]) == {"modelled"}
    return dict(zip(frame["question"], frame["answer"], strict=True))


def test_answer_and_curve_belong_together():
    frame, curve = panels_capacity.carries(gpu(), price_usd_per_hour=6.5, factor=4)
    lines = dict(zip(frame["question"], frame["answer"], strict=True))
    number = int(lines["live calls with P95 TTFAT under 600 ms"].replace(",", ""))
    assert number in set(curve["live_calls"])
    assert set(curve["origin"]) == {"modelled"}
    cost = float(lines["USD a minute and call, if it were full all day"])
    assert cost == pytest.approx(6.5 / 60 / number, abs=1e-6)


def test_correction_is_the_published_one_only_for_the_gpu_of_the_table():
    known = calibration.factor("H100", "BF16")
    assert answers(gpu(), max_num_seqs=8)["correction"].startswith(f"times {known:.2f} (fitted on baseten")
    mine = gpu().assign(bandwidth_tb_s=4.0)
    assert answers(mine, max_num_seqs=8)["correction"].startswith("times 1.00 (nothing published")
    assert answers(gpu(), factor=2.0, max_num_seqs=8)["correction"] == "times 2.00 (typed by you)"


def test_unknown_arithmetic_is_said_and_without_a_price_there_is_no_cost():
    lines = answers(gpu("DGX Spark"), factor=1.0)
    assert "left out" in lines["arithmetic"]
    assert not any(line.startswith("USD") for line in lines)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit_ms": 0}, "limit_ms"),
        ({"limit_ms": 5}, "Not even one"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"price_usd_per_hour": -1}, "price"),
        ({"price_usd_per_hour": "6.5"}, "price"),
        ({"limit_ms": "600"}, "limit_ms"),
        ({"limit_ms": math.nan}, "limit_ms"),
        ({"max_num_seqs": 1_000_000}, "max_num_seqs"),
        ({"max_num_seqs": 2.5}, "max_num_seqs"),
        ({"factor": 0}, "factor"),
        ({"factor": "2"}, "factor"),
        ({"fmt": "INT3"}, "BF16, FP8, NVFP4"),
    ],
)
def test_what_makes_no_sense_is_said(options, words):
    with pytest.raises(CourseError, match=words):
        panels_capacity.carries(gpu(), **options)


@pytest.mark.parametrize("wrong", ["nope", 5, None, hardware.table()])
def test_a_gpu_that_is_none_is_said(wrong):
    with pytest.raises(CourseError, match="gpu"):
        panels_capacity.carries(wrong)


def test_a_label_is_a_gpu_too():
    assert answers("H100", factor=4, max_num_seqs=8) == answers(gpu(), factor=4, max_num_seqs=8)


@pytest.mark.parametrize("make", [panels_capacity.CapacityPanel, panels_capacity.own_gpu, panels.GpuPanel])
def test_a_panel_that_is_to_begin_with_an_unknown_gpu_lists_the_known_ones(make):
    with pytest.raises(CourseError, match=r"start='nope'.*B200"):
        make(start="nope")


def test_widgets_carry_their_values(quick):
    panel = panels_capacity.CapacityPanel(start="H100")
    assert panel.gpu()["memory_gib"].iloc[0] == pytest.approx(79.65)
    assert panel.gpu()["bf16_tflops"].iloc[0] == 989
    panel.format.value = "FP8"
    assert panel.small_tflops.value == 1979
    panel.format.value = "BF16"
    panel.factor.value, panel.seats.value = 4.0, 8
    panel.button.click()
    assert "live calls" in panel.answer.value
    assert len(quick) == 1
    panel.preset.value = "L40S"
    panel.work_out()
    assert "does not fit" in panel.answer.value
    assert cards.COLOURS["bad"] in panel.answer.value
    panel.preset.value = "DGX Spark"
    assert math.isnan(panel.gpu()["bf16_tflops"].iloc[0])


def test_a_gpu_that_is_fast_beyond_sense_is_answered_without_a_long_wait(monkeypatch):
    asked, curve = [], capacity.curve
    monkeypatch.setattr(panels_capacity, "MOST_CALLS", 64)
    monkeypatch.setattr(
        capacity, "curve", lambda where, levels, **how: asked.extend(levels) or curve(where, levels, **how)
    )
    found = answers(gpu(), factor=1e-4)
    assert next(iter(found.values())) == "64 or more: the panel tries no more"
    assert max(asked) == 64
