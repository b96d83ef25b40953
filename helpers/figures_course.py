"""Figures of the course as a whole: the budget of a turn, and the way through the lessons."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers import drawing, origins, published
from helpers.drawing import canvas, look, many, ms, safe
from helpers.settings import DATA, CourseError

STEPS = ("prompt", "engine", "stream", "TTFT", "percentiles", "limit", "price")
LIMIT_MS = published.value("card.limit")  # voice to voice, at P95: callers are content below it
_LIMIT = published.table("card.limit").iloc[0]
LIMIT_FROM = f"{_LIMIT['origin']}: {_LIMIT['source']}, {_LIMIT['date']}"


def budget_line(
    frame: pd.DataFrame,
    *,
    limit_ms: float | None = None,
    limit_from: str | None = None,
    title: str = "",
    theme: str = "light",
) -> Figure:
    """The stages between the caller's last word and the agent's first, end to end, against the limit.

    Args:
        frame: one row a stage, in order, with ``stage``, ``ms``, ``origin``; ``server``, or ``source`` and
            ``date`` for published rows.
        limit_ms: where the limit stands; without it, the published one.
        limit_from: where the limit comes from, for the legend; for the published ones it is known.
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a column is missing, or a row holds something that cannot be drawn.
    """
    limit_ms = published.value("card.limit") if limit_ms is None else limit_ms
    limit = f"limit, {limit_from}" if limit_from else drawing.limit_from(limit_ms)
    frame = drawing.checked(frame, "budget_line", required=("stage",), numeric=("ms",))
    groups = origins.groups(frame, counted="stage")
    ends = frame["ms"].cumsum().to_numpy(dtype=float)
    total, left = float(ends[-1]), 0.2
    panel_in = drawing.WIDTH_IN - 2 * left
    span_ms = max(total, limit_ms) * 1.03
    inches_per_ms = panel_in / span_ms
    stages, marks = [], [(limit_ms, f"limit {ms(limit_ms)}")]
    for (_, row), end in zip(frame.iterrows(), ends, strict=True):
        width_in = row["ms"] * inches_per_ms
        inside = f"{drawing.wrapped(row['stage'], 14)}\n{row['ms']:,.0f}"
        fits = max(drawing.width_in(line) for line in inside.split("\n")) < width_in - 0.12
        stages.append(
            (end - row["ms"], row["ms"], row["origin"], inside if fits and inside.count("\n") < 4 else "")
        )
        if not stages[-1][3]:
            marks.append((end - row["ms"] / 2, f"{safe(row['stage'])} {row['ms']:,.0f}"))
    rows = drawing.label_levels(
        [(at * inches_per_ms, drawing.width_in(text) + 0.12) for at, text in marks],
        panel_in + left,
        turned=[0],
    )
    bar_in, below_in = 0.72, 0.3
    above_in = 0.19 * (max(row for row, _ in rows) + 1) + 0.12
    foot = 0.5 + drawing.legend_in([*(group.phrase for group in groups), limit])
    with canvas(theme, above_in + bar_in + below_in + foot, title, layout=None) as (fig, colours):
        height = fig.get_figheight()
        place = (
            left / drawing.WIDTH_IN,
            foot / height,
            panel_in / drawing.WIDTH_IN,
            (bar_in + below_in) / height,
        )
        ax = fig.add_axes(place)
        ax.set(xlim=(0, span_ms), ylim=(-below_in, bar_in), yticks=[])
        for start, width, origin, inside in stages:
            ax.barh(bar_in / 2, width, bar_in, left=start, **drawing.area(look(origin, colours), colours))
            box = {"facecolor": colours.paper, "edgecolor": "none", "pad": 1.5}
            ax.text(
                start + width / 2, bar_in / 2, inside, ha="center", va="center", bbox=box if inside else None
            )
        for number, ((at, text), (row, to_left)) in enumerate(zip(marks, rows, strict=True)):
            rise, is_limit = bar_in + 0.1 + 0.19 * row, number == 0
            start = -below_in if is_limit else bar_in
            ax.plot(
                [at, at], [start, rise + 0.1], color=colours.ink, lw=2.2 if is_limit else 0.7, clip_on=False
            )
            ax.annotate(
                text,
                (at, rise),
                xytext=(-3 if to_left else 3, 0),
                textcoords="offset points",
                ha="right" if to_left else "left",
                weight="bold" if is_limit else "normal",
                annotation_clip=False,
                bbox={"facecolor": colours.paper, "edgecolor": "none", "pad": 0.4},
            )
        over = total > limit_ms
        verdict = f"total {ms(total)}, {ms(abs(limit_ms - total))} {'over' if over else 'under'} the limit"
        end = min(total, limit_ms)
        to_left = end * inches_per_ms > drawing.width_in(verdict) + 0.1
        place = {"xytext": (-5 if to_left else 5, 0), "ha": "right" if to_left else "left", "va": "center"}
        ax.annotate(verdict, (end, -0.15), textcoords="offset points", **place)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel("ms since the caller stopped speaking")
        drawing.ms_axis(ax.xaxis)
        keys: list[Artist] = [drawing.area_key(group, colours) for group in groups]
        keys.append(Line2D([], [], color=colours.ink, lw=2.2, label=limit))
        drawing.legend(fig, keys, loc="lower left", bbox_to_anchor=(0, 0))
        listed = ", ".join(f"{row['stage']} {ms(row['ms'])} ({row['origin']})" for _, row in frame.iterrows())
        fig.alt = f"Latency budget as one bar: {listed}; {verdict} of {ms(limit_ms)}."
        fig.note = f"{origins.note(frame, counted='stage')}; {limit}"
    return fig


def course_map(
    lessons: pd.DataFrame | None = None, *, here: str = "", title: str = "", theme: str = "light"
) -> Figure:
    """The way through the course: one row a lesson, with its part of the chain from prompt to price.

    Args:
        lessons: one row a lesson, with ``lesson`` (such as ``05``), ``title``, ``minutes``, ``first_step``
            and ``last_step`` (of :data:`STEPS`) and ``available``; without it, ``data/lessons.csv``. Lessons
            that are not available are muted and say "coming".
        here: the lesson to mark with "you are here".
        title: headline.
        theme: ``light`` or ``dark``.

    Raises:
        CourseError: a step is not one of :data:`STEPS`.
    """
    if lessons is None:
        lessons = pd.read_csv(DATA / "lessons.csv", dtype={"lesson": str})
    for index, row in lessons.iterrows():
        for column in ("first_step", "last_step"):
            if row[column] not in STEPS:
                raise CourseError(
                    f"Row {index!r}, column {column!r}: {row[column]!r} is not one of {', '.join(STEPS)}."
                )
    row_in, left, right = 0.29, 2.62, 0.85
    body = row_in * len(lessons)
    with canvas(theme, body + 0.5, title, layout=None) as (fig, colours):
        ax = fig.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, drawing.WIDTH_IN), ylim=(body + 0.1, body + 0.1 - fig.get_figheight()))  # inches
        ax.axis("off")
        # The steps stand as far apart as their names need, with the same room for each arrow.
        names_in = [drawing.width_in(step, 8) * 1.12 for step in STEPS]
        arrow_in = (drawing.WIDTH_IN - left - right - sum(names_in)) / (len(STEPS) - 1)
        centres, at = [], left
        for step, name_in in zip(STEPS, names_in, strict=True):
            centres.append(at + name_in / 2)
            ax.text(centres[-1], -0.2, step, ha="center", va="center", weight="bold", size=8)
            ax.plot([centres[-1]] * 2, [-0.08, body], color=colours.faint, lw=0.8, zorder=0)
            at += name_in + arrow_in
            if step != STEPS[-1]:
                ax.text(at - arrow_in / 2, -0.2, "\u203a", ha="center", va="center", color=colours.muted)
        words = []
        for number, (_, row) in enumerate(lessons.iterrows()):
            y, ready = row_in * (number + 0.5) - 0.02, bool(row["available"])
            paint = colours.ink if ready else colours.muted
            ax.text(0.1, y, row["lesson"], va="center", color=paint, weight="bold")
            ax.text(0.42, y, drawing.fit(safe(row["title"]), left - 0.95), va="center", color=paint)
            ax.text(
                left - 0.12, y, f"{int(row['minutes'])} min", va="center", ha="right", color=paint, size=7.5
            )
            start, end = centres[STEPS.index(row["first_step"])], centres[STEPS.index(row["last_step"])]
            line = {"color": colours.blue if ready else colours.muted, "solid_capstyle": "round"}
            ax.plot([start, end], [y, y], lw=9 if ready else 1.6, ls="-", **line)
            if not ready:
                ax.plot([start, end], [y, y], ls="", marker="o", ms=6, mfc=colours.paper, mec=colours.muted)
            elif start == end:
                ax.plot(start, y, marker="o", ms=9, color=colours.blue)
            state = "you are here" if row["lesson"] == here else "" if ready else "coming"
            weight = "bold" if row["lesson"] == here else "normal"
            corner = {"va": "center", "ha": "right", "size": 7.5}
            ax.text(drawing.WIDTH_IN - 0.1, y, state, color=paint, weight=weight, **corner)
            steps = row["first_step"] if start == end else f"{row['first_step']} to {row['last_step']}"
            coming = "" if ready else ", coming"
            words.append(f"{row['lesson']} {row['title']}, {int(row['minutes'])} minutes, {steps}{coming}.")
        total = f"{many(len(lessons), 'lesson')}, {int(lessons['minutes'].sum())} minutes"
        fig.alt = f"Map of the course: {total}, along the chain {', '.join(STEPS)}. " + " ".join(words)
        fig.note = "the course's own plan; the minutes are estimates (modelled)"
    return fig
