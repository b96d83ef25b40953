"""GPUs as data: memory, bandwidth and arithmetic, from ``data/gpus.csv``, where each number has its source.

All figures are the makers' nominal ones. A number that we found in marketing only, without the conditions
that would make it comparable, is left out: it is NaN in the table (FP4 and FP8 of RTX PRO 6000 and DGX
Spark).
"""

from __future__ import annotations

from functools import cache
from numbers import Real

import pandas as pd

from helpers import tables
from helpers.origins import validate
from helpers.settings import CourseError

# Quantity in the file -> column here.
COLUMNS = {
    "memory": "memory_gb",
    "memory_reported": "memory_gib",
    "bandwidth": "bandwidth_tb_s",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
    "fp4": "fp4_tflops",
    "power": "power_w",
    "compute_capability": "compute_capability",
}

# Compute capability from which on the tensor cores multiply a format. Source of the generations: NVIDIA's
# table of CUDA GPUs, read 2026-12-01; 8.0 is Ampere, 8.9 Ada, 9.0 Hopper, 10.0 and above Blackwell.
TENSOR_CORES_FROM = {"BF16": 8.0, "FP8": 8.9, "NVFP4": 10.0}


MOST = 1e9  # no figure of a GPU comes near it


@cache
def _read() -> pd.DataFrame:
    return tables.read("gpus.csv", key=("gpu", "quantity"), text=("conditions",))


def table() -> pd.DataFrame:
    """One row for each GPU.

    Returns:
        A frame with the index ``gpu`` and the columns ``memory_gb`` (as sold), ``memory_gib`` (as its driver
        reports it, in 2**30 bytes), ``bandwidth_tb_s`` (10**12 bytes in a second), ``bf16_tflops``,
        ``fp8_tflops`` and ``fp4_tflops`` (dense), ``power_w``, ``compute_capability`` and ``origin``. NaN:
        the GPU has no such unit, or no number with a source was found.
    """
    wide = _read().pivot(index="gpu", columns="quantity", values="value").rename(columns=COLUMNS)
    wide = wide.reindex(index=_read()["gpu"].unique(), columns=list(COLUMNS.values()))
    wide.columns.name = None
    wide = wide.assign(origin="published", source="data/gpus.csv", date=_read()["date"].max())
    return validate(wide, used_by="hardware.table")


def sources() -> pd.DataFrame:
    """Each number with its ``unit``, ``conditions``, ``source``, ``date`` and ``origin``."""
    return _read().copy()


def own(
    name: str,
    *,
    memory_gb: float,
    bandwidth_tb_s: float,
    memory_gib: float | None = None,
    bf16_tflops: float | None = None,
    fp8_tflops: float | None = None,
    fp4_tflops: float | None = None,
    power_w: float | None = None,
    compute_capability: float | None = None,
    source: str = "entered by hand",
    date: str = "today",
) -> pd.DataFrame:
    """A GPU of your own, as a table with one row; ``pd.concat([hardware.table(), hardware.own(...)])`` adds
    it.

    Args:
        name: its label.
        memory_gb: its memory in GB, as sold.
        bandwidth_tb_s: bandwidth of its memory in TB/s.
        memory_gib: its memory as the driver reports it (``nvidia-smi``), in GiB. Left out, it is
            ``memory_gb`` in GiB, which is on the safe side.
        bf16_tflops: dense TFLOPS in BF16; so for FP8 and FP4.
        fp8_tflops: None: unknown.
        fp4_tflops: None: unknown.
        power_w: None: unknown.
        compute_capability: such as 9.0. It decides which formats the tensor cores know; None: unknown.
        source: where you have this from.
        date: when you read it.

    Raises:
        CourseError: memory or bandwidth is not above 0, or something else is no number.
    """
    for what, value in (
        ("memory in GB (memory_gb)", memory_gb),
        ("bandwidth in TB/s (bandwidth_tb_s)", bandwidth_tb_s),
    ):
        if not _counts(value) or not value > 0:
            raise CourseError(f"{what} of {name} is {value!r}. It has to be above 0: see its data sheet.")
    if memory_gib is None:
        memory_gib = memory_gb * 1e9 / 2**30
    elif not _counts(memory_gib) or not memory_gib > 0:
        raise CourseError(
            f"memory_gib of {name} is {memory_gib!r}. It has to be a number above 0: type nvidia-smi, which "
            "says it in MiB; or leave it out."
        )
    unknown = {"bf16_tflops": bf16_tflops, "fp8_tflops": fp8_tflops, "fp4_tflops": fp4_tflops}
    unknown |= {"power_w": power_w, "compute_capability": compute_capability}
    for what, value in unknown.items():
        if value is not None and not _counts(value) and value == value:  # NaN: not known, as None is
            raise CourseError(f"{what} of {name} is {value!r}. It has to be a number, or None: not known.")
    values = (memory_gb, memory_gib, bandwidth_tb_s, bf16_tflops, fp8_tflops, fp4_tflops, power_w)
    row = dict(zip(COLUMNS.values(), (*values, compute_capability), strict=True))
    frame = pd.DataFrame([row], index=pd.Index([name], name="gpu")).astype(float)
    return validate(frame.assign(origin="published", source=source, date=date), used_by="hardware.own")


def _counts(value: object) -> bool:
    """Whether a value is a number that can be counted with."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return abs(value) < MOST


def tensor_cores_know(compute_capability: float, fmt: str) -> bool | None:
    """Whether tensor cores multiply this format; None if the compute capability is not known (NaN).

    Raises:
        CourseError: the format is not one of :data:`TENSOR_CORES_FROM`.
    """
    if fmt not in TENSOR_CORES_FROM:
        raise CourseError(f"{fmt!r} is no format known here. Take one of {', '.join(TENSOR_CORES_FROM)}.")
    if pd.isna(compute_capability):
        return None
    return compute_capability >= TENSOR_CORES_FROM[fmt]
