"""Figures of the model itself: its layers, and what a decode step reads of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from helpers import drawing, origins
from helpers.drawing import Theme, canvas, look, many, safe
from helpers.settings import CourseError

# letter -> (kind in words, colour of the theme, height of its block in inches)
KINDS = {
    "M": ("Mamba-2", "green", 0.34),
    "E": ("mixture of experts", "orange", 0.34),
    "*": ("attention", "blue", 0.78),
    "-": ("dense MLP", "purple", 0.34),
}
FILLS = ("none", "full", "left")  # how series of points are told apart


def model_layers(
    frame: pd.DataFrame, *, total: float | None = None, title: str = "", theme: str = "light"
) -> Figure:
    """Every layer of a model in one strip, and below each its parameters: stored, and used for one token.

    Args:
        frame: one row a layer, in order (as :func:`helpers.architecture.layer_table` gives them), with
            ``letter`` (``M``, ``E``, ``*`` or ``-``), ``parameters``, ``active_parameters`` and ``origin``.
            The layers are counted from 0, as in the model's own code.
        total: parameters of the whole model, so that the shares count embedding and output too; without it,
            the layers' own sum.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    columns = ("parameters", "active_parameters")
    frame = drawing.checked(frame, "model_layers", required=("letter",), numeric=columns)
    for index, letter in frame["letter"].items():
        if letter not in KINDS:
            raise CourseError(
                f"Row {index!r}, column 'letter': {letter!r} is none of {', '.join(KINDS)}. "
                f"helpers.architecture.layer_table(arch) makes this table from a config."
            )
    letters, groups = list(frame["letter"]), origins.groups(frame)
    kinds = [letter for letter in KINDS if letter in letters]
    whole = total or float(frame["parameters"].sum())
    words = [_kind_in_words(frame, letter, whole) for letter in kinds]
    rest = whole - float(frame["parameters"].sum())
    if total and rest > 0:
        words.append(f"embedding, output and last norm: {_count(rest)}, {_share(rest, whole)}")
    left, right, above, root_in = 0.72, 0.12, 1.0, 1.0
    key_in, foot_in = 0.22 * len(words) + 0.1, 0.14 + drawing.legend_in(group.phrase for group in groups)
    wide = drawing.WIDTH_IN - left - right
    unit = wide / len(frame)
    with canvas(theme, above + root_in + key_in + foot_in + 0.12, title, layout=None) as (fig, colours):
        high = fig.get_figheight()
        ground = (foot_in + key_in + root_in + 0.08) / high
        strip = fig.add_axes((0, ground, 1, above / high))
        strip.set(xlim=(-left, wide + right), ylim=(0, above))  # inches, so that shapes keep their shape
        strip.axis("off")
        line = {"color": colours.muted, "lw": 1.2, "zorder": 0}
        strip.annotate(
            "", (wide + right, 0.2), (-0.12, 0.2), arrowprops={"arrowstyle": "->", **line}, zorder=0
        )
        strip.text(-0.15, 0.2, "a token", ha="right", va="center", size=7.5, color=colours.muted)
        for layer, letter in enumerate(letters):
            _block(strip, letter, unit * layer, unit, colours)
            if letter == "*":
                place = {"ha": "center", "va": "bottom", "size": 7.5, "weight": "bold"}
                strip.text(unit * (layer + 0.5), KINDS["*"][2] + 0.07, str(layer), **place)
        if "*" in kinds:
            place = {"ha": "right", "va": "bottom", "size": 7.5, "color": colours.muted}
            first = unit * (letters.index("*") + 0.5) - 0.14
            room = first + left - 0.05 > drawing.width_in("attention at layer", 7.5)
            strip.text(first, KINDS["*"][2] + 0.07, "attention at layer" if room else "layer", **place)
        ax = fig.add_axes(
            (left / drawing.WIDTH_IN, (foot_in + key_in) / high, wide / drawing.WIDTH_IN, root_in / high)
        )
        _roots(ax, frame, groups, colours)
        _kind_keys(fig, kinds, words, foot_in, key_in, colours)
        used = Patch(facecolor=colours.ink, edgecolor=colours.ink, label="of these, used for one token")
        drawing.legend(
            fig,
            [*(drawing.area_key(group, colours) for group in groups), used],
            loc="lower left",
            bbox_to_anchor=(0, 0),
        )
        numbers = [str(n) for n, letter in enumerate(letters) if letter == "*"]
        places = f" Attention at {'layer' if len(numbers) == 1 else 'layers'} {', '.join(numbers)}"
        fig.alt = (
            f"The {many(len(frame), 'layer')} of a model in a row: {''.join(letters)}. "
            f"{'. '.join(words)}.{f'{places}, counted from 0.' if numbers else ''} "
            f"Below each layer a bar of its parameters, with the part that one token uses filled."
        )
        fig.note = origins.note(frame)
    return fig


def _kind_in_words(frame: pd.DataFrame, letter: str, whole: float) -> str:
    """``mixture of experts: 23 layers of 1.30 billion, 181 million of them used for a token; 94.5 %``."""
    rows = frame[frame["letter"] == letter]
    each, used = rows["parameters"].iloc[0], rows["active_parameters"].iloc[0]
    name = KINDS[letter][0]
    size = f"{many(len(rows), 'layer')} of {_count(each)}" if rows["parameters"].nunique() == 1 else ""
    part = f" ({_count(used)} used for a token)" if size and used < each else ""
    return f"{name}: {size or many(len(rows), 'layer')}{part}, {_share(rows['parameters'].sum(), whole)}"


def _count(parameters: float) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2f} billion"
    return f"{parameters / 1e6:.1f} million" if parameters >= 1e6 else f"{parameters:,.0f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} % of all parameters"


def _block(ax: Axes, letter: str, x: float, unit: float, colours: Theme) -> None:
    """One layer: its own shape, its letter, and a colour that repeats them."""
    _, hue, high = KINDS[letter]
    paint, wide = getattr(colours, hue), unit * 0.82
    x += (unit - wide) / 2
    low = 0.2 - 0.17
    if letter == "M":  # round and light: state flows through
        shape = FancyBboxPatch(
            (x, low),
            wide,
            high,
            boxstyle=f"round,pad=0,rounding_size={wide * 0.48}",
            facecolor=colours.paper,
            edgecolor=paint,
            lw=1.3,
        )
    elif letter == "-":
        shape = Rectangle((x, low), wide, high, facecolor=colours.paper, edgecolor=paint, lw=1.3)
    else:
        shape = Rectangle((x, low), wide, high, facecolor=paint, edgecolor=paint, lw=1.0)
    ax.add_patch(shape)
    size = min(8.0, unit * 72 * 0.8) * (1.35 if letter == "*" else 1.0)
    inside = drawing.readable_on(colours.paper if letter in "M-" else paint, colours)
    at = {"ha": "center", "va": "center", "color": inside, "size": size, "weight": "bold"}
    # The font's own star stands high in its line; the sign for "six-pointed" is centred.
    ax.text(x + wide / 2, low + high / 2, "\u2217" if letter == "*" else letter, **at)


def _roots(ax: Axes, frame: pd.DataFrame, groups: list[origins.Group], colours: Theme) -> None:
    """A bar downwards for each layer: as long as its parameters, filled as far as one token uses them."""
    places = pd.Series(np.arange(len(frame)), index=frame.index)
    for group in groups:
        at = places.loc[group.rows.index]
        style = drawing.area(look(group.origin, colours), colours) | {"linewidth": 0.6}
        ax.bar(at, group.rows["parameters"] / 1e9, 0.82, **style)
        ax.bar(at, group.rows["active_parameters"] / 1e9, 0.82, color=colours.ink, linewidth=0)
    ax.set(xlim=(-0.5, len(frame) - 0.5), ylim=(float(frame["parameters"].max()) / 1e9 * 1.04, 0), xticks=[])
    ax.set_ylabel("billions of\nparameters", size=7.5, color=colours.muted)
    ax.spines["bottom"].set_visible(False)
    ax.spines["top"].set_visible(True)
    ax.tick_params(axis="y", labelsize=7.5)
    drawing.ms_axis(ax.yaxis)
    ax.yaxis.get_major_locator().set_params(nbins=3)


def _kind_keys(
    fig: Figure, kinds: list[str], words: list[str], foot_in: float, key_in: float, colours: Theme
) -> None:
    """One line for each kind of layer: its block, and what it holds."""
    high = fig.get_figheight()
    ax = fig.add_axes((0, foot_in / high, 1, key_in / high))
    ax.set(xlim=(0, drawing.WIDTH_IN), ylim=(0, key_in))
    ax.axis("off")
    for number, text in enumerate(words):
        y = key_in - 0.16 - 0.22 * number
        if number < len(kinds):
            letter = kinds[number]
            mini = ax.inset_axes((0.4, y - 0.09, 0.2, 0.18), transform=ax.transData)
            mini.axis("off")
            _key_block(mini, letter, colours)
        ax.text(0.72, y, safe(text), va="center", size=8)


def _key_block(ax: Axes, letter: str, colours: Theme) -> None:
    paint = getattr(colours, KINDS[letter][1])
    solid = letter in "E*"
    box = {"facecolor": paint if solid else colours.paper, "edgecolor": paint, "lw": 1.2}
    ax.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5))
    if letter == "M":
        ax.add_patch(FancyBboxPatch((-0.4, -0.4), 0.8, 0.8, boxstyle="round,pad=0,rounding_size=0.35", **box))
    else:
        ax.add_patch(Rectangle((-0.4, -0.45), 0.8, 0.9, **box))
    inside = drawing.readable_on(box["facecolor"], colours)
    sign = "\u2217" if letter == "*" else letter
    ax.text(0, 0, sign, ha="center", va="center", size=7.5, weight="bold", color=inside)


def distinct_experts(
    frame: pd.DataFrame, *, experts: int = 128, title: str = "", theme: str = "light"
) -> Figure:
    """How many different experts of a layer a step touches, as the batch grows: formula and simulation.

    Args:
        frame: one row a batch size and router, with ``batch``, ``distinct`` (experts of one layer that at
            least one token of the batch goes to), ``router`` (what is drawn: ``formula`` makes a line, any
            other name points), ``origin``.
        experts: routed experts of a layer: the ceiling.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(
        frame, "distinct_experts", required=("router",), numeric=("batch", "distinct")
    ).sort_values("batch", kind="stable")
    with canvas(theme, 3.1, title) as (fig, colours):
        ax = fig.add_subplot()
        _batch_axis(ax, frame["batch"], "tokens in the batch (one per running request; logarithmic)")
        ax.axhline(experts, color=colours.ink, lw=1.2)
        ceiling = f"all {experts} experts of a layer"
        ax.annotate(ceiling, (float(frame["batch"].min()), experts), (2, 3), textcoords="offset points")
        keys, words = [], []
        routers = [name for name in frame["router"].unique() if name != "formula"]
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            for router in group.rows["router"].unique():
                rows = group.rows[group.rows["router"] == router]
                label = f"{router}: {group.phrase}"
                if router == "formula":
                    [key] = ax.plot(rows["batch"], rows["distinct"], color=of.colour, ls=of.line, lw=1.8)
                else:
                    number = routers.index(router)
                    mark = {"marker": of.marker, "ms": 7.5, "color": of.colour, "mew": 1.3, "zorder": 3}
                    mark |= {"fillstyle": FILLS[number % len(FILLS)], "markerfacecoloralt": colours.paper}
                    [key] = ax.plot(rows["batch"], rows["distinct"], ls="", **mark)
                key.set_label(label)
                keys.append(key)
                listed = ", ".join(
                    f"{value:.0f} at {batch:,.0f}"
                    for batch, value in zip(rows["batch"], rows["distinct"], strict=True)
                )
                words.append(f"{safe(router)} ({group.origin}): {listed}.")
        ax.set(ylim=(0, experts * 1.12), ylabel="different experts touched,\nin one layer and one step")
        ax.yaxis.set_major_locator(FixedLocator(list(np.linspace(0, experts, 5))))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(axis="y")
        drawing.legend(fig, keys)
        fig.alt = (
            f"Different experts touched in a layer of {experts}, by tokens in a batch. {' '.join(words)}"
        )
        fig.note = origins.note(frame)
    return fig


def bytes_per_step(
    frame: pd.DataFrame,
    *,
    bandwidth_tb_s: float | None = None,
    bandwidth_from: str = "",
    machine: str = "",
    title: str = "",
    theme: str = "light",
) -> Figure:
    """Weights that a decode step must read, as the batch grows: in all, and for each token of the batch.

    Args:
        frame: one row a batch size, with ``batch``, ``step_gb`` (gigabytes read by the step), ``origin``;
            optionally ``dense_gb``, the same for a dense model to compare with.
        bandwidth_tb_s: memory bandwidth in TB/s; with it a second scale says how long the reading takes.
        bandwidth_from: who says so, for the note.
        machine: whose bandwidth that is.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    frame = drawing.checked(frame, "bytes_per_step", numeric=("batch", "step_gb")).sort_values("batch")
    with canvas(theme, 3.1, title) as (fig, colours):
        ax = fig.add_subplot()
        _batch_axis(ax, frame["batch"], "tokens in the batch (one per running request; logarithmic)")
        keys, words = [], []
        for group in origins.groups(frame):
            of = look(group.origin, colours)
            line = {"color": of.colour, "ls": of.line, "marker": of.marker, "ms": 5, "lw": 1.6}
            batch, step = group.rows["batch"], group.rows["step_gb"]
            ax.plot(batch, step, **line)
            ax.plot(batch, step / batch, **line | {"mfc": colours.paper, "lw": 1.0})
            keys.append(drawing.line_key(group, colours, marker=True))
            words += [
                f"Batch {size:,.0f}: {gb:.1f} GB a step, {gb / size:.2f} GB a token"
                f"{f', at least {gb / bandwidth_tb_s:.2f} ms' if bandwidth_tb_s else ''} ({group.origin})."
                for size, gb in zip(batch, step, strict=True)
            ]
        last, middle = frame.iloc[-1], frame.iloc[len(frame) // 2]
        beside = {"textcoords": "offset points", "ha": "right", "weight": "bold"}
        ax.annotate("the whole step", (last["batch"], last["step_gb"]), (-2, 7), **beside)
        each = middle["step_gb"] / middle["batch"]
        ax.annotate("for each token of it", (middle["batch"], each), (-4, -14), **beside)
        if "dense_gb" in frame.columns:
            ax.plot(frame["batch"], frame["dense_gb"], color=colours.muted, ls=of.line, lw=1.2)
            place = {"textcoords": "offset points", "ha": "right", "color": colours.muted}
            said = "the whole step of a dense model that is as large as what one token uses"
            ax.annotate(said, (last["batch"], last["dense_gb"]), (-2, 4), size=7.5, **place)
            words.append(f"A dense model of that size reads {last['dense_gb']:.1f} GB at any batch.")
        ax.set_yscale("log")
        ax.set_ylim(top=float(frame["step_gb"].max()) * 2)
        ax.set_ylabel("GB of weights read (logarithmic)")
        drawing.ms_axis(ax.yaxis, log=True)
        ax.grid(axis="y")
        if bandwidth_tb_s:
            # GB divided by TB/s is milliseconds.
            side = ax.secondary_yaxis(
                "right", functions=(lambda gb: gb / bandwidth_tb_s, lambda ms: ms * bandwidth_tb_s)
            )
            side.set_ylabel(f"ms to read that at {bandwidth_tb_s:g} TB/s{f', {machine}' if machine else ''}")
            drawing.ms_axis(side.yaxis)
            side.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=99))
            side.yaxis.set_minor_locator(NullLocator())
        drawing.legend(fig, keys)
        fig.alt = f"Weights read by one decode step, by tokens in the batch. {' '.join(words)}"
        fig.note = origins.note(frame)
        if bandwidth_tb_s and bandwidth_from:
            fig.note += f"; bandwidth, {bandwidth_from}"
    return fig


def _batch_axis(ax: Axes, batches: pd.Series, label: str) -> None:
    low, high = float(batches.min()), float(batches.max())
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / 1.15, high * 1.15)
    ax.xaxis.set_major_locator(FixedLocator([2.0**n for n in range(20) if low <= 2**n <= high]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_xlabel(label)
