"""Panels of lesson 03: a GPU of your own, and a config of your own.

A panel is a few widgets and an answer below them. The answer for the values that it comes with stands above
the widgets as plain HTML, so it can also be read where no kernel runs. What a panel computes is a plain
function (:func:`fits_on`, :func:`summary`) that works without widgets, too.
"""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from typing import Any

import ipywidgets
import pandas as pd

from helpers import architecture, arguments, cards, figures, hardware, memory, parameters
from helpers.settings import CourseError

FORMATS = ("BF16", "FP8", "NVFP4")
MIB = 2**20
CHANGE = "Change something, and the answer comes here."  # the answer to begin with already stands above
# What a data sheet calls a generation -> compute capability.
GENERATIONS = {"Ampere": 8.0, "Ada": 8.9, "Hopper": 9.0, "Blackwell": 10.0, "I do not know": math.nan}


def fits_on(
    gpu: pd.DataFrame, arch: architecture.Architecture | None = None, *, tokens: int = 4096
) -> pd.DataFrame:
    """What fits on one or more GPUs, in words and numbers for a reader.

    Args:
        gpu: rows of :func:`helpers.hardware.table`, or :func:`helpers.hardware.own`.
        arch: the model; PhoneLLM if left out.
        tokens: length of a request, prompt and reply together.

    Returns:
        A frame with the columns ``GPU``, ``format``, ``weights, GiB``, ``requests`` (of that length),
        ``ms a token, at least`` (how long it takes to read the weights that one token uses, at the GPU's
        bandwidth and with nobody else in the batch), ``note`` and ``origin`` (modelled).

    Raises:
        CourseError: a row of ``gpu`` or ``tokens`` makes no sense.
    """
    arch = arch or architecture.phonellm()
    fits = memory.fits(arch, gpus=gpu, formats=FORMATS, tokens=tokens)
    alone_bytes = {name: _step_bytes(arch, name) for name in FORMATS}
    bandwidth = gpu["bandwidth_tb_s"]
    return pd.DataFrame(
        {
            "GPU": fits["gpu"],
            "format": fits["format"],
            "weights, GiB": fits["weights_gib"].round(1),
            "requests": fits["requests"],
            "ms a token, at least": [
                round(alone_bytes[name] / (bandwidth[which] * 1e9), 2) if requests else math.nan
                for which, name, requests in zip(fits["gpu"], fits["format"], fits["requests"], strict=True)
            ],
            "note": fits["why"],
            "origin": fits["origin"],
        }
    )


def _step_bytes(arch: architecture.Architecture, fmt: str) -> float:
    """Bytes of weights that one token alone reads, in a format: everything but the embedding table, and of
    the routed experts the chosen ones."""
    table = memory.weight_table(arch, fmt)
    routed = (table["block"] == "moe") & table["tensor"].isin(parameters.ROUTED)
    looked_up = (table["block"] == "embedding") & (not arch.tie_word_embeddings)
    share = arch.moe.num_experts_per_tok / arch.moe.n_routed_experts if arch.moe else 0.0
    return float(table["bytes"][~routed & ~looked_up].sum() + share * table["bytes"][routed].sum())


def summary(arch: architecture.Architecture) -> pd.Series:
    """What a config says about its model, one line a question; everything is modelled (arithmetic)."""
    total, active = parameters.total(arch), parameters.active(arch)
    kv, state = memory.kv_bytes_per_token(arch), memory.mamba_state_bytes(arch)
    kinds = {kind: arch.layers.count(kind) for kind in dict.fromkeys(arch.layers)}
    crossing = f"{memory.crossing_tokens(arch):,.0f} tokens" if kv and state else ""
    lines = {
        "layers": f"{len(arch.layers)}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        "parameters": f"{total:,}",
        "active per token": f"{active:,} ({active / total:.0%})",
        "weights in BF16": f"{memory.weight_bytes(arch, 'BF16') / 1e9:.2f} GB",
        "KV cache per token": f"{kv:,.0f} bytes",
        "Mamba state per request": f"{state / MIB:.1f} MiB",
        "KV cache is larger from": crossing or ("the first token" if kv else "never"),
        "multi-token prediction": f"{parameters.mtp(arch):,} parameters more" if arch.mtp else "none",
    }
    return pd.Series(lines, name=arch.name)


class _Panel(ABC):
    """Widgets, and an answer that is remade when one of them changes.

    Attributes:
        answer: the widget below, with the answer or what went wrong.
        widget: all of it.
    """

    def __init__(self, title: str, inputs: list[ipywidgets.Widget]) -> None:
        self.answer = ipywidgets.HTML(f'<div style="{cards.FONT} {cards.QUIET}">{CHANGE}</div>')
        self.picture = ipywidgets.Output()
        head = ipywidgets.HTML(f'<div style="{cards.FONT} font-weight: bold;">{cards.prose(title)}</div>')
        self.widget = ipywidgets.VBox(
            [head, *inputs, self.answer, self.picture], layout=ipywidgets.Layout(max_width="60em")
        )

    def _say(self, inner: str, look: str = "plain") -> None:
        style = (
            f"{cards.FONT} line-height: 1.5; border-left: 4px solid {cards.COLOURS[look]}; padding: 2px 12px;"
        )
        self.answer.value = f'<div style="{style}">{inner}</div>'

    def _fail(self, error: Exception) -> None:
        self._say(cards.prose(str(error)), "bad")

    @abstractmethod
    def _static(self) -> tuple[str, str]:
        """The answer to begin with: as HTML, and as plain text."""

    def show(self) -> None:
        """Show the answer to begin with as plain HTML, and the widgets below it."""
        inner, plain = self._static()
        cards.card(inner, plain)
        if cards.in_notebook():
            from IPython.display import display

            display(self.widget)


class GpuPanel(_Panel):
    """A GPU from the table, or one of your own: what fits on it, in three formats."""

    def __init__(self, arch: architecture.Architecture | None = None, *, start: str = "H100") -> None:
        """``start``: the GPU of :func:`helpers.hardware.table` whose values it comes with.

        Raises:
            CourseError: there is no such GPU.
        """
        self.arch = arch or architecture.phonellm()
        self.table = hardware.table()
        arguments.choice("start", start, tuple(self.table.index))
        wide = {"layout": ipywidgets.Layout(width="24em"), "style": {"description_width": "11em"}}
        self.preset = ipywidgets.Dropdown(
            options=list(self.table.index), value=start, description="begin with", **wide
        )
        self.name = ipywidgets.Text(description="name", **wide)
        self.memory_gb = ipywidgets.BoundedFloatText(min=0, max=10_000, description="memory, GB", **wide)
        self.bandwidth = ipywidgets.BoundedFloatText(
            min=0, max=1_000, step=0.1, description="bandwidth, TB/s", **wide
        )
        self.generation = ipywidgets.Dropdown(options=list(GENERATIONS), description="generation", **wide)
        self.tokens = ipywidgets.BoundedIntText(
            4096, min=1, max=self.arch.max_position_embeddings, description="tokens a request", **wide
        )
        inputs = [self.preset, self.name, self.memory_gb, self.bandwidth, self.generation, self.tokens]
        super().__init__("Your own GPU", inputs)
        self._fill()
        self.preset.observe(self._preset_changed, names="value")
        for widget in inputs[1:]:
            widget.observe(lambda _: self._work_out(), names="value")

    def gpu(self) -> pd.DataFrame:
        """The GPU as the widgets have it now: as :func:`helpers.hardware.own` gives it."""
        row = self.table.loc[self.preset.value]
        # The driver's own figure for a GPU of the table, as long as nobody has typed another size.
        reported = float(row["memory_gib"]) if self.memory_gb.value == float(row["memory_gb"]) else None
        return hardware.own(
            self.name.value.strip() or "my GPU",
            memory_gb=self.memory_gb.value,
            bandwidth_tb_s=self.bandwidth.value,
            memory_gib=reported,
            compute_capability=GENERATIONS[self.generation.value],
        )

    def result(self) -> pd.DataFrame:
        """The answer as a table, see :func:`fits_on`."""
        return fits_on(self.gpu(), self.arch, tokens=self.tokens.value)

    def _fill(self) -> None:
        row = self.table.loc[self.preset.value]
        known = {name: value for name, value in GENERATIONS.items() if value <= row["compute_capability"]}
        self._filling = True
        self.name.value = self.preset.value
        self.memory_gb.value = float(row["memory_gb"])
        self.bandwidth.value = float(row["bandwidth_tb_s"])
        self.generation.value = max(known, key=known.get) if known else "I do not know"
        self._filling = False

    def _preset_changed(self, _: dict[str, Any]) -> None:
        self._fill()
        self._work_out()

    def _work_out(self) -> None:
        if self._filling:
            return
        try:
            self._say(_table(self.result()))
        except CourseError as error:
            self._fail(error)

    def _static(self) -> tuple[str, str]:
        frame = self.result()
        said = f"{self.arch.name} on {self.preset.value}, requests of {self.tokens.value:,} tokens"
        return f"<b>{cards.prose(said)}</b>{_table(frame)}", f"{said}\n{frame.to_string(index=False)}"


class ConfigPanel(_Panel):
    """A config from the course, from a file or pasted: its layers, its parameters, its memory."""

    def __init__(self, start: str = architecture.PHONELLM) -> None:
        """``start``: one of :func:`helpers.architecture.examples`."""
        wide = {"layout": ipywidgets.Layout(width="40em"), "style": {"description_width": "11em"}}
        self.example = ipywidgets.Dropdown(
            options=architecture.examples(), value=start, description="one of ours", **wide
        )
        self.text = ipywidgets.Textarea(
            placeholder="path of a config.json, or the whole text of one",
            description="your own",
            rows=4,
            **wide,
        )
        self.button = ipywidgets.Button(description="Read it", tooltip="read the path or text above")
        self.upload = ipywidgets.FileUpload(accept=".json", multiple=False, description="Choose a file")
        super().__init__(
            "A config of your own",
            [self.example, self.text, ipywidgets.HBox([self.button, self.upload])],
        )
        self.arch: architecture.Architecture | None = architecture.example(start)
        self.example.observe(lambda change: self.read_example(change["new"]), names="value")
        self.upload.observe(self._uploaded, names="value")
        self.button.on_click(lambda _: self.read(self.text.value))

    def read_example(self, name: str | None) -> None:
        """Look at one of the course's own; at nothing new for None, which is no choice."""
        if name is None:
            return
        self.arch = architecture.example(name)
        self._show()

    def read(self, source: str, *, name: str | None = None) -> None:
        """Look at the config at a path, or in a text. What is wrong with it is said in the panel.

        ``name``: what to call the model, if the source does not say.
        """
        if not source.strip():
            return self._fail(
                CourseError("Paste a config.json into the field, or type its path, then press Read it.")
            )
        self.example.value = None  # so that each of ours, the last one too, can be chosen again
        try:
            self.arch = architecture.read(source.strip(), name=name)
        except CourseError as error:
            self.arch = None
            self.picture.clear_output()
            return self._fail(error)
        return self._show()

    def _uploaded(self, change: dict[str, Any]) -> None:
        for upload in change["new"]:
            try:
                self.read(bytes(upload["content"]).decode("utf-8"), name=upload["name"])
            except UnicodeDecodeError:
                self._fail(CourseError(f"{upload['name']} is not text. Choose the model's config.json."))

    def _show(self) -> None:
        self._say(_lines(summary(self.arch)), "good")
        self.picture.clear_output()
        with self.picture:
            frame, total = architecture.layer_table(self.arch), parameters.total(self.arch)
            figures.show(figures.model_layers, frame, total=total, title=self.arch.name)

    def _static(self) -> tuple[str, str]:
        lines = summary(self.arch)
        return _lines(lines), f"{self.arch.name}\n{lines.to_string()}"


def own_gpu(arch: architecture.Architecture | None = None, *, start: str = "H100") -> GpuPanel:
    """Show the panel for a GPU of your own, and return it."""
    panel = GpuPanel(arch, start=start)
    panel.show()
    return panel


def own_config(start: str = architecture.PHONELLM) -> ConfigPanel:
    """Show the panel for a config of your own, and return it."""
    panel = ConfigPanel(start)
    panel.show()
    return panel


def _table(frame: pd.DataFrame) -> str:
    """A table with its own alignment: inside a widget the notebook's style for tables does not hold."""
    sides = ["right" if pd.api.types.is_numeric_dtype(frame[column]) else "left" for column in frame]
    head = _row([f"<b>{html.escape(column)}</b>" for column in frame], sides)
    body = "".join(
        _row(["" if value != value else html.escape(str(value)) for value in row], sides)
        for row in frame.itertuples(index=False)
    )
    return f"<table>{head}{body}</table>"


def _lines(lines: pd.Series) -> str:
    rows = "".join(
        _row([html.escape(str(what)), html.escape(str(value))], ["left", "left"])
        for what, value in lines.items()
    )
    said = "Everything here is modelled: arithmetic on the config."
    return f"<b>{html.escape(str(lines.name))}</b><table>{rows}</table><div>{said}</div>"


def _row(cells: list[str], sides: list[str]) -> str:
    style = "padding: 1px 10px 1px 0; vertical-align: top; white-space: normal;"
    written = "".join(
        f'<td style="{style} text-align: {side};">{cell}</td>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{written}</tr>"
