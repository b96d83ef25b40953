"""The table of GPUs: every number has a source, and what is unknown is said to be."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers import hardware
from helpers.settings import CourseError

EVERY = ("memory_gb", "memory_gib", "bandwidth_tb_s", "power_w", "compute_capability")


def test_every_gpu_has_what_the_sums_need():
    frame = hardware.table()
    assert list(frame.index) == ["B200", "H200", "H100", "L40S", "RTX PRO 6000", "DGX Spark"]
    assert frame[list(EVERY)].notna().all(axis=None)
    assert (frame[list(EVERY)] > 0).all(axis=None)
    assert frame.loc["B200", "bandwidth_tb_s"] == 8
    assert frame.loc["H100", "bf16_tflops"] == 989


def test_what_the_driver_reports_is_close_to_what_is_sold():
    """In GiB, a little below the number on the box: so neither column holds the other's unit."""
    frame = hardware.table()
    ratio = frame["memory_gib"] / frame["memory_gb"]
    assert ratio.between(0.93, 1.0).all()


def test_marketing_figures_are_left_out():
    frame = hardware.table()
    assert frame.loc[["RTX PRO 6000", "DGX Spark"], ["fp4_tflops", "fp8_tflops"]].isna().all(axis=None)
    assert frame.loc["B200", "fp4_tflops"] == 9000


def test_each_number_has_one_row_with_source_and_date():
    frame = hardware.sources()
    assert not frame.duplicated(["gpu", "quantity"]).any()
    assert set(frame["origin"]) == {"published"}
    assert set(frame["quantity"]) == set(hardware.COLUMNS)
    units = frame.groupby("quantity")["unit"].unique()
    assert all(len(found) == 1 for found in units)


def test_tables_are_copies():
    mine = hardware.sources()
    mine["value"] = 0
    assert hardware.table().loc["B200", "power_w"] == 1000


@pytest.mark.parametrize(
    ("gpu", "formats"),
    [("L40S", {"BF16", "FP8"}), ("H100", {"BF16", "FP8"}), ("B200", {"BF16", "FP8", "NVFP4"})],
)
def test_tensor_cores_know_the_formats_of_their_generation(gpu, formats):
    capability = hardware.table().loc[gpu, "compute_capability"]
    known = {fmt for fmt in hardware.TENSOR_CORES_FROM if hardware.tensor_cores_know(capability, fmt)}
    assert known == formats


def test_an_unknown_generation_is_not_guessed():
    assert hardware.tensor_cores_know(float("nan"), "FP8") is None
    with pytest.raises(CourseError, match="'INT2' is no format"):
        hardware.tensor_cores_know(9.0, "INT2")


def test_a_gpu_of_your_own_stands_in_the_same_table():
    own = hardware.own("mine", memory_gb=24, bandwidth_tb_s=1.008, compute_capability=8.9)
    both = pd.concat([hardware.table(), own])
    assert list(own.columns) == list(hardware.table().columns)
    assert both.loc["mine", "memory_gib"] == pytest.approx(24e9 / 2**30)
    assert pd.isna(both.loc["mine", "fp4_tflops"])
    assert hardware.own("mine", memory_gb=24, bandwidth_tb_s=1, memory_gib=23.6)["memory_gib"].iloc[0] == 23.6
    with pytest.raises(CourseError, match=r"bandwidth_tb_s\) of mine is 0"):
        hardware.own("mine", memory_gb=24, bandwidth_tb_s=0)


@pytest.mark.parametrize("value", ["80", float("inf"), 10**400, True, []])
@pytest.mark.parametrize("field", ["memory_gb", "bandwidth_tb_s", "memory_gib", "power_w"])
def test_what_is_no_number_is_refused_by_its_name(field, value):
    with pytest.raises(CourseError, match=field):
        hardware.own("mine", **({"memory_gb": 80, "bandwidth_tb_s": 3} | {field: value}))
    with pytest.raises(CourseError, match="memory_gib"):
        hardware.own("mine", memory_gb=80, bandwidth_tb_s=3, memory_gib=float("nan"))
