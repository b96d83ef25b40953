"""A panel of lesson 07: a GPU of your own, or one of the table; how many live calls it might carry, for how
much. Everything it says is modelled.

The answer is a plain function, :func:`carries`, that works without widgets.
"""

from __future__ import annotations

import math

import ipywidgets
import pandas as pd

from helpers import arguments, calibration, capacity, cards, figures, hardware
from helpers.figures_capacity import live_call_curves
from helpers.machine_model import machine
from helpers.origins import validate
from helpers.panels import CHANGE, _Panel, _table
from helpers.settings import CourseError

FORMATS = ("BF16", "FP8", "NVFP4")
LEVELS = 7  # of the curve that is drawn up to the limit
MOST_SEATS = 1024  # of an engine; vLLM's own default on a large GPU
MOST_CALLS = 4096  # beyond it a simulation takes too long to wait for
REQUESTS = 1500  # fewer than for the recorded answers: a panel should not keep you waiting


def carries(
    gpu: pd.DataFrame,
    fmt: str = "BF16",
    *,
    price_usd_per_hour: float = math.nan,
    factor: float | None = None,
    limit_ms: float = capacity.LIMIT_MS,
    max_num_seqs: int = 128,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How many live calls a GPU might carry under a limit, and what a minute of one would cost.

    Args:
        gpu: one row of :func:`helpers.hardware.table`, or :func:`helpers.hardware.own`; or a label of the
            table.
        fmt: format of the weights.
        price_usd_per_hour: of one GPU; NaN: no cost.
        factor: correction of the model's times; None: the one that published measurements of this GPU and
            format ask for, or 1 where there are none.
        limit_ms: limit of P95 TTFAT.
        max_num_seqs: requests that run at once.

    Returns:
        Two frames, both modelled. The first has the columns ``question``, ``answer`` and ``origin``. The
        second is the curve (:func:`helpers.capacity.curve`) with ``series``.

    Raises:
        CourseError: the weights do not fit, not even one call holds, or a value makes no sense.
    """
    gpu = _one_gpu(gpu)
    arguments.choice("fmt", fmt, FORMATS)
    arguments.number("limit_ms", limit_ms, above=0, example=f"{capacity.LIMIT_MS:g}")
    arguments.number("max_num_seqs", max_num_seqs, least=1, most=MOST_SEATS, whole=True, example="128")
    if not (isinstance(price_usd_per_hour, float) and math.isnan(price_usd_per_hour)):
        arguments.number("price_usd_per_hour", price_usd_per_hour, least=0, example="6.25")
    if factor is not None:
        arguments.number("factor", factor, above=0, example="1.5")
    where = machine(gpu, fmt)
    if factor is None:
        factor, said = _known_factor(gpu, fmt)
    else:
        said = "typed by you"
    how = {"max_num_seqs": max_num_seqs, "requests": REQUESTS}
    found = capacity.limit(where.slower(factor), limit_ms=limit_ms, steps=0.05, most=MOST_CALLS, **how)
    if not found["live_calls"]:
        raise CourseError(
            f"Not even one live call has a P95 TTFAT under {limit_ms:.0f} ms on this GPU, says the model. "
            f"Take a higher limit, a faster GPU or a smaller format."
        )
    number = int(found["live_calls"])
    lines = {
        f"live calls with P95 TTFAT under {limit_ms:.0f} ms": f"{number:,}"
        + (" or more: the panel tries no more" if number == MOST_CALLS else ""),
        "requests in flight then, mean": f"{found['in_flight']:.1f}",
        "TTFAT then, P50 and P95": f"{found['ttfat_p50_ms']:.0f} and {found['ttfat_p95_ms']:.0f} ms",
        "time per token then, P50": f"{found['tpot_p50_ms']:.1f} ms",
        "correction": f"times {factor:.2f} ({said})",
    }
    if math.isnan(where.tflops["BF16"]):
        lines["arithmetic"] = "speed unknown, so it is left out: too optimistic for long prompts"
    if price_usd_per_hour > 0:
        lines["USD a minute and call, if it were full all day"] = f"{price_usd_per_hour / 60 / number:.6f}"
    answer = pd.DataFrame({"question": list(lines), "answer": list(lines.values()), "origin": "modelled"})
    levels = sorted({min(max(1, round(number * i / (LEVELS - 2))), MOST_CALLS) for i in range(LEVELS)})
    curve = capacity.curve(where.slower(factor), levels, **how).assign(series=f"{where.gpu}, {fmt}")
    return validate(answer, used_by="panels_capacity.carries"), curve


def _one_gpu(gpu: object) -> pd.DataFrame:
    """The GPU as a table with one row."""
    if isinstance(gpu, str):
        arguments.choice("gpu", gpu, tuple(hardware.table().index))
        return hardware.table().loc[[gpu]]
    if not isinstance(gpu, pd.DataFrame) or len(gpu) != 1 or "bandwidth_tb_s" not in gpu:
        raise CourseError(
            "gpu has to be one row of hardware.table(), such as hardware.table().loc[['B200']], or what "
            "hardware.own(...) returns."
        )
    return gpu


def _known_factor(gpu: pd.DataFrame, fmt: str) -> tuple[float, str]:
    """The factor of a GPU of the table, as long as its bandwidth is still that one's, and its source."""
    name, known = str(gpu.index[0]), hardware.table()
    same = name in known.index and known.loc[name, "bandwidth_tb_s"] == gpu["bandwidth_tb_s"].iloc[0]
    found = calibration.factors()
    row = found[(found["gpu"] == name) & (found["precision"] == fmt) & (found["model"] == calibration.OURS)]
    if row.empty or not same:
        return 1.0, "nothing published to correct it with"
    return float(row["factor"].iloc[0]), f"fitted on {row['point'].iloc[0]}"


class CapacityPanel(_Panel):
    """Bandwidth, arithmetic, memory and price in; the largest number of live calls and a curve out.

    It answers when its button is pressed: the simulation takes some seconds.
    """

    def __init__(self, *, start: str = "B200") -> None:
        """``start``: the GPU of :func:`helpers.hardware.table` whose values it comes with.

        Raises:
            CourseError: there is no such GPU.
        """
        self.table = hardware.table()
        arguments.choice("start", start, tuple(self.table.index))
        wide = {"layout": ipywidgets.Layout(width="26em"), "style": {"description_width": "13em"}}

        def number(words: str, value: float, step: float = 0.1) -> ipywidgets.BoundedFloatText:
            return ipywidgets.BoundedFloatText(
                value, min=0, max=100_000, step=step, description=words, **wide
            )

        self.preset = ipywidgets.Dropdown(
            options=list(self.table.index), value=start, description="begin with", **wide
        )
        self.name = ipywidgets.Text(description="name", **wide)
        self.memory_gb = number("memory, GB", 1)
        self.bandwidth = number("bandwidth, TB/s", 1)
        self.tflops = number("BF16, TFLOP/s (0: unknown)", 0, 10)
        self.small_tflops = number("FP8 or FP4, TFLOP/s (0: unknown)", 0, 10)
        self.price = number("price, USD an hour (0: none)", 0)
        self.format = ipywidgets.Dropdown(options=FORMATS, description="format of the weights", **wide)
        self.factor = number("correction (0: what is published)", 0)
        self.limit_ms = number("limit of P95 TTFAT, ms", capacity.LIMIT_MS, 50)
        self.seats = ipywidgets.BoundedIntText(128, min=1, max=MOST_SEATS, description="max-num-seqs", **wide)
        self.button = ipywidgets.Button(description="Work it out", tooltip="simulate; some seconds")
        inputs = [self.preset, self.name, self.memory_gb, self.bandwidth, self.tflops, self.small_tflops]
        inputs += [self.price, self.format, self.factor, self.limit_ms, self.seats, self.button]
        super().__init__("How many live calls might a GPU carry?", inputs)
        self.answer.value = self.answer.value.replace(CHANGE, "Press the button, and the answer comes here.")
        self._fill()
        self.preset.observe(lambda _: self._fill(), names="value")
        self.format.observe(lambda _: self._fill_speed(), names="value")
        self.button.on_click(lambda _: self.work_out())

    def gpu(self) -> pd.DataFrame:
        """The GPU as the widgets have it now: as :func:`helpers.hardware.own` gives it."""
        row = self.table.loc[self.preset.value]
        reported = float(row["memory_gib"]) if self.memory_gb.value == float(row["memory_gb"]) else None
        small = {"FP8": "fp8_tflops", "NVFP4": "fp4_tflops"}.get(self.format.value)
        speeds = {"bf16_tflops": self.tflops.value or None}
        if small:
            speeds[small] = self.small_tflops.value or None
        return hardware.own(
            self.name.value.strip() or "my GPU",
            memory_gb=self.memory_gb.value,
            bandwidth_tb_s=self.bandwidth.value,
            memory_gib=reported,
            **speeds,
        )

    def result(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Answer and curve, see :func:`carries`."""
        return carries(
            self.gpu(),
            self.format.value,
            price_usd_per_hour=self.price.value,
            factor=self.factor.value or None,
            limit_ms=self.limit_ms.value,
            max_num_seqs=self.seats.value,
        )

    def work_out(self) -> None:
        """Simulate, and show answer and curve, or what is wrong with an input."""
        self.button.disabled = True
        try:
            answer, curve = self.result()
            self._say(_table(answer))
            self.picture.clear_output()
            with self.picture:
                figures.show(live_call_curves, curve, limit_ms=self.limit_ms.value)
        except CourseError as error:
            self.picture.clear_output()
            self._fail(error)
        finally:
            self.button.disabled = False

    def _fill(self) -> None:
        row = self.table.loc[self.preset.value]
        self.name.value = self.preset.value
        self.memory_gb.value = float(row["memory_gb"])
        self.bandwidth.value = float(row["bandwidth_tb_s"])
        self.tflops.value = 0.0 if math.isnan(row["bf16_tflops"]) else float(row["bf16_tflops"])
        self._fill_speed()

    def _fill_speed(self) -> None:
        column = {"FP8": "fp8_tflops", "NVFP4": "fp4_tflops"}.get(self.format.value)
        value = float(self.table.loc[self.preset.value, column]) if column else 0.0
        self.small_tflops.value = 0.0 if math.isnan(value) else value

    def _static(self) -> tuple[str, str]:
        answer, _ = self.result()
        said = f"{self.preset.value}, {self.format.value}, modelled"
        return f"<b>{cards.prose(said)}</b>{_table(answer)}", f"{said}\n{answer.to_string(index=False)}"


def own_gpu(*, start: str = "B200") -> CapacityPanel:
    """Show the panel, and return it. ``start`` is the GPU whose values it comes with."""
    panel = CapacityPanel(start=start)
    panel.show()
    return panel
