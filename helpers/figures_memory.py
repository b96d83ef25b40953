"""Figures of memory: of one request as it grows, and of a GPU that holds weights and requests."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from helpers import drawing, origins
from helpers.drawing import canvas, look, many, safe

MIB = 2**20


def request_memory(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """What one request holds in GPU memory as it grows: KV cache, Mamba state, and both.

    Args:
        frame: one row a length, with ``tokens`` (prompt and reply together), ``kv_bytes``, ``mamba_bytes``,
            ``origin``. Where the KV cache passes the Mamba state, the crossing is marked.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("tokens", "kv_bytes", "mamba_bytes")
    frame = drawing.checked(frame, "request_memory", numeric=columns).sort_values("tokens", kind="stable")
    with canvas(theme, 3.3, title) as (fig, colours):
        ax = fig.add_subplot()
        keys, words = [], []
        for number, group in enumerate(origins.groups(frame)):
            of, rows = look(group.origin, colours), group.rows
            tokens, kv, mamba = (rows[column].to_numpy(dtype=float) for column in columns)
            line = {"color": of.colour, "ls": of.line, "lw": 1.5}
            ax.plot(tokens, kv / MIB, marker="o", ms=4.5, **line | {"color": colours.blue})
            ax.plot(tokens, mamba / MIB, marker="s", ms=4.5, **line | {"color": colours.green})
            ax.plot(tokens, (kv + mamba) / MIB, **line | {"color": colours.ink, "lw": 2.4})
            keys.append(drawing.line_key(group, colours, colour=colours.ink))
            words += [
                f"{n:,.0f} tokens: KV {a / MIB:,.1f} MiB, Mamba {b / MIB:,.1f} MiB ({group.origin})."
                for n, a, b in zip(tokens, kv, mamba, strict=True)
            ]
            where = crossing(tokens, kv, mamba)
            if where is not None and not number:
                at, height = where
                ax.plot(at, height / MIB, marker="o", ms=12, mfc="none", mec=colours.ink, mew=1.4, zorder=4)
                said = f"as large as each other\nat {at:,.0f} tokens"
                ax.annotate(
                    said, (at, height / MIB), (9, -10), textcoords="offset points", va="top", linespacing=1.2
                )
                words.append(f"They cross at {at:,.0f} tokens.")
        first, early, last = frame.iloc[0], frame.iloc[len(frame) // 4], frame.iloc[-1]
        beside = {"textcoords": "offset points", "weight": "bold"}
        both = (first["kv_bytes"] + first["mamba_bytes"]) / MIB
        ax.annotate("both together", (first["tokens"], both), (2, 7), color=colours.ink, **beside)
        ax.annotate(
            "Mamba state: stays",
            (last["tokens"], last["mamba_bytes"] / MIB),
            (0, 7),
            ha="right",
            color=colours.ink,
            **beside,
        )
        ax.annotate(
            "KV cache: grows",
            (early["tokens"], early["kv_bytes"] / MIB),
            (8, -4),
            va="top",
            color=colours.ink,
            **beside,
        )
        ax.set(xscale="log", yscale="log", xlabel="tokens of the request so far (logarithmic)")
        ax.set_ylabel("MiB (logarithmic)")
        for axis in (ax.xaxis, ax.yaxis):
            drawing.ms_axis(axis, log=True)
            axis.set_major_locator(LogLocator(numticks=99))  # 1, 10, 100: in between they would collide
        ax.grid()
        drawing.legend(fig, keys)
        fig.alt = "Memory of one request by its length. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def crossing(tokens: np.ndarray, kv: np.ndarray, mamba: np.ndarray) -> tuple[float, float] | None:
    """(tokens, bytes) where the KV cache becomes larger than the Mamba state; None if it does not.

    Lengths in growing order; between two of them both are taken to run straight, which they do.
    """
    gap = kv - mamba
    for i in range(1, len(gap)):
        if gap[i - 1] < 0 <= gap[i]:
            part = -gap[i - 1] / (gap[i] - gap[i - 1])
            return (
                float(tokens[i - 1] + part * (tokens[i] - tokens[i - 1])),
                float(mamba[i - 1] + part * (mamba[i] - mamba[i - 1])),
            )
    return None


def what_fits(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """Each GPU's memory as a box with the weights in it, one bar a format, and the requests that still fit.

    Args:
        frame: one row a GPU and format (as :func:`helpers.memory.fits` gives them), with ``gpu``, ``format``,
            ``memory_gib``, ``weights_gib``, ``left_gib`` (room for requests, after everything kept back),
            ``requests``, ``supported`` (whether the GPU's tensor cores multiply in that format; None: not
            known), ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame,
        "what_fits",
        required=("gpu", "format", "supported"),
        numeric=("memory_gib", "weights_gib", "left_gib", "requests"),
    )
    gpus, formats = list(frame["gpu"].unique()), list(frame["format"].unique())
    groups = origins.groups(frame)
    edge = float(frame[["memory_gib", "weights_gib"]].to_numpy().max())
    step, high, gap = 0.18, 0.145, 0.13  # inches: a bar with its gap, without it, and between two GPUs
    body = len(gpus) * (step * len(formats) + gap)
    with canvas(theme, body + 0.75 + drawing.legend_in([*(g.phrase for g in groups), ""]), title) as (
        fig,
        colours,
    ):
        ax = fig.add_subplot()
        words, ticks, names = [], [], []
        for group in groups:
            bar = drawing.area(look(group.origin, colours), colours)
            for row in group.rows.to_dict("records"):
                y = gpus.index(row["gpu"]) * (step * len(formats) + gap) + formats.index(row["format"]) * step
                memory, weights, left = row["memory_gib"], row["weights_gib"], max(row["left_gib"], 0.0)
                fits, unknown = row["requests"] >= 1, pd.isna(row["supported"])
                able = unknown or bool(row["supported"])
                ax.barh(y, weights, high, **bar, alpha=1.0 if fits and able else 0.45)
                if fits:
                    ax.barh(y, left, high, left=weights, color=colours.faint, edgecolor=colours.muted, lw=0.6)
                ax.plot([memory, memory], [y - step / 2, y + step / 2], color=colours.ink, lw=2.2, zorder=4)
                said = f"{many(int(row['requests']), 'request')}" if fits else "does not fit"
                mark = ", not known if in hardware" if unknown else "" if able else ", not in hardware"
                ax.text(
                    max(memory, weights) + edge * 0.012,
                    y,
                    said + mark,
                    va="center",
                    size=7.5,
                    color=colours.ink if fits and able else colours.muted,
                )
                ticks.append(y)
                names.append(row["format"])
                words.append(
                    f"{safe(row['gpu'])}, {row['format']}: {weights:.1f} of {memory:.1f} GiB are weights, "
                    f"{said}{mark} ({group.origin})."
                )
        for number, gpu in enumerate(gpus):
            middle = number * (step * len(formats) + gap) + step * (len(formats) - 1) / 2
            ax.annotate(
                drawing.wrapped(gpu, 14),
                (0, middle),
                (-48, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                weight="bold",
                annotation_clip=False,
            )
        ax.set_yticks(ticks, names)
        ax.tick_params(axis="y", length=0, labelsize=7)
        ax.spines["left"].set_visible(False)
        ax.set(ylim=(body - 0.1 - gap / 2, -0.16), xlim=(0, edge * 1.33), xlabel="GiB")
        drawing.ms_axis(ax.xaxis)
        ax.grid(axis="x")
        keys = [drawing.area_key(group, colours) for group in groups]
        for key, group in zip(keys, groups, strict=True):
            key.set_label(f"weights, {group.phrase}")
        keys.append(Patch(facecolor=colours.faint, edgecolor=colours.muted, label="room for requests"))
        keys.append(
            Line2D([], [], color=colours.ink, lw=2.2, label="the GPU's memory (what is blank is kept back)")
        )
        drawing.legend(fig, keys)
        fig.alt = "What fits on which GPU. " + " ".join(words)
        fig.note = origins.note(frame)
    return fig


def cache_growth(frame: pd.DataFrame, *, title: str = "", theme: str = "light") -> Figure:
    """KV cache and Mamba state of a running model, byte by byte, against their formulas.

    Args:
        frame: one row a length (as :func:`helpers.tiny.watch` gives them), with ``tokens``, ``kv_bytes``,
            ``mamba_bytes``, ``kv_formula``, ``mamba_formula`` (bytes all) and ``origin``.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("tokens", "kv_bytes", "mamba_bytes", "kv_formula", "mamba_formula")
    frame = drawing.checked(frame, "cache_growth", numeric=columns).sort_values("tokens", kind="stable")
    with canvas(theme, 2.9, title) as (fig, colours):
        ax = fig.add_subplot()
        keys, words = [], []
        formula = look("modelled", colours)
        parts = (("KV cache", "kv", colours.blue), ("Mamba state", "mamba", colours.green))
        for name, column, _ in parts:
            ax.plot(
                frame["tokens"],
                frame[f"{column}_formula"] / 1024,
                color=formula.colour,
                ls=formula.line,
                lw=1,
            )
            last = frame.iloc[-1]
            ax.annotate(
                name,
                (last["tokens"], last[f"{column}_bytes"] / 1024),
                (9, 0),
                textcoords="offset points",
                va="center",
                weight="bold",
                annotation_clip=False,
            )
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            for _, column, colour in parts:
                bytes_ = group.rows[f"{column}_bytes"] / 1024
                ax.plot(group.rows["tokens"], bytes_, ls="", marker=of.marker, ms=7, color=colour)
            keys.append(Line2D([], [], ls="", marker=of.marker, ms=7, color=colours.ink, label=group.phrase))
            words += [
                f"{row['tokens']:,.0f} tokens: KV {row['kv_bytes']:,.0f} bytes (formula "
                f"{row['kv_formula']:,.0f}), "
                f"Mamba {row['mamba_bytes']:,.0f} (formula {row['mamba_formula']:,.0f}) ({group.origin})."
                for row in group.rows.to_dict("records")
            ]
        keys.append(
            Line2D([], [], color=formula.colour, ls=formula.line, lw=1, label="modelled: the formulas")
        )
        ax.set(xlabel="tokens read so far", ylabel="KiB", ylim=(0, None))
        ax.set_xlim(0, float(frame["tokens"].max()) * 1.2)
        drawing.ms_axis(ax.xaxis)
        drawing.ms_axis(ax.yaxis)
        ax.grid(axis="y")
        drawing.legend(fig, keys)
        fig.alt = "Cache of a running model by tokens read. " + " ".join(words)
        fig.note = f"{origins.note(frame)}; formulas: modelled"
    return fig
