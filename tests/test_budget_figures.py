"""The figures of lesson 06 and its panel: what they say in words, where numbers come from, nasty tables."""

from __future__ import annotations

import math
from functools import cache

import matplotlib
import numpy as np
import pandas as pd
import pytest
from figure_texts import legend_of, texts_of

from helpers import (
    budget,
    budget_stages,
    budget_sum,
    budget_turn,
    cards,
    drawing,
    figures,
    figures_budget,
    own_latency,
    panels_budget,
)
from helpers.budget_turn import Turn
from helpers.settings import CourseError

THEMES = sorted(drawing.THEMES)


@cache
def frames() -> dict[str, pd.DataFrame]:
    """For each figure a small plausible table."""
    stages = [budget_sum.through(name, {0.5: 200, 0.95: 400}) for name in "ab"]
    return {
        "waterfall": budget.table("card"),
        "two_sums": budget_sum.compared({"apart": (stages, 0), "at once": (stages, 1)}, n=400),
        "levers": budget_turn.variants({"as it is": {}, "a tool": {"tool": True}}, n=400),
        "turn_times": budget_turn.simulate(Turn(), n=400),
    }


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", frames())
def test_each_figure_draws_says_what_it_shows_and_leaves_matplotlib_alone(name, theme):
    before = {key: value for key, value in matplotlib.rcParams.items() if key != "backend"}
    figure = getattr(figures_budget, name)(frames()[name], theme=theme, title="A title")
    assert {key: value for key, value in matplotlib.rcParams.items() if key != "backend"} == before
    assert len(figures.alt_text(figure)) > 60
    for origin in set(frames()[name]["origin"]):
        assert origin in figure.note
        assert origin in legend_of(figure)
    assert "A title" in texts_of(figure)


@pytest.mark.parametrize("name", frames())
def test_the_same_table_gives_the_same_bytes(name):
    draw, frame = getattr(figures_budget, name), frames()[name]
    one, other = (figures.render(draw(frame), "light", "svg") for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", frames())
def test_a_table_without_origins_or_with_nothing_in_it_is_refused(name):
    draw, frame = getattr(figures_budget, name), frames()[name]
    with pytest.raises(CourseError, match="origin"):
        draw(frame.drop(columns="origin"))
    with pytest.raises(CourseError):
        draw(frame.iloc[:0])
    with pytest.raises(CourseError, match="theme"):
        draw(frame, theme="sepia")


def test_the_waterfall_shows_every_line_the_running_total_and_the_slack():
    figure = figures_budget.waterfall(budget.table("card"))
    words = texts_of(figure)
    for text in ("limit 1,500 ms", "207", "1,293", "650", "language model  (8)", "left below the limit"):
        assert text in words
    assert "207 ms left below the limit" in figure.alt
    for stage in budget.table("card")["stage"]:
        assert stage in figure.alt
    assert "our reading" in legend_of(figure)
    assert "…" not in "".join(words)


def test_a_waterfall_over_its_limit_says_so():
    figure = figures_budget.waterfall(budget.table("card"), limit_ms=1000)
    assert "over the limit" in texts_of(figure)
    assert "293 ms over the limit" in figure.alt
    assert "as it was asked for" in legend_of(figure)


def test_a_waterfall_of_other_lines():
    one = pd.DataFrame({"stage": ["all"], "group": [budget.LLM], "ms": [0.0], "origin": ["measured"]})
    assert "1,500 ms left" in figures_budget.waterfall(one).alt
    nasty = one.assign(stage="a $name$ with \u2744 and, a comma " * 9, ms=12345.6)
    assert "over the limit" in figures_budget.waterfall(nasty).alt
    with pytest.raises(CourseError, match="no group"):
        figures_budget.waterfall(one.assign(group="elsewhere"))
    with pytest.raises(CourseError, match="not a time"):
        figures_budget.waterfall(one.assign(ms=-1.0))


def test_both_directions_are_in_the_words():
    usual = [budget_sum.through(name, {0.5: 200, 0.95: 500}) for name in "abc"]
    rare = [budget_sum.spiky(name, 100, 1000, 0.04) for name in "abc"]
    found = figures_budget.two_sums(budget_sum.compared({"u": (usual, 0), "o": (usual, 1), "r": (rare, 0)}))
    assert "too high" in found.alt
    assert "too low" in found.alt
    assert any("too low" in text for text in texts_of(found))


def test_turns_of_two_origins_are_not_mixed_and_the_share_is_right():
    frame = pd.DataFrame({"total_ms": [1000.0] * 90 + [1600.0] * 10, "origin": "modelled"})
    figure = figures_budget.turn_times(frame)
    assert "10.0 % take longer" in figure.alt
    frame.loc[0, "origin"] = "measured"
    with pytest.raises(CourseError, match="one origin"):
        figures_budget.turn_times(frame)


@pytest.mark.parametrize("times", [[1500.0], [100.0] * 5, [9000.0] * 5, [0.0, 1e6]])
def test_turns_that_are_all_alike_or_far_apart_can_be_drawn(times):
    figure = figures_budget.turn_times(pd.DataFrame({"total_ms": times, "origin": "modelled"}))
    over = 100 * np.mean(np.array(times) > 1500)
    assert f"{over:.1f} % take longer" in figure.alt


# The panel


@pytest.fixture
def pictures(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        panels_budget.figures, "show", lambda function, frame, **options: drawn.append((function, options))
    )
    monkeypatch.setattr(panels_budget, "DRAWS", 2000)
    return drawn


def test_the_answer_is_that_of_the_plain_function(pictures):
    panel = panels_budget.BudgetPanel()
    found, stages, turns = panels_budget.what_if(n=2000)
    assert panel.result()[0] == found
    assert panel.result()[1].equals(stages)
    assert len(turns) == 2000


def test_it_comes_with_an_answer_as_plain_html_and_text(capsys, pictures):
    panel = panels_budget.show()
    said = capsys.readouterr().out
    assert "kept: P95" in said
    assert "the whole turn" in said
    assert "modelled" in said
    inner, _ = panel._static()
    assert "<script" not in inner
    assert cards.COLOURS["good"] in inner


def test_a_slider_turns_the_line_from_kept_to_broken(pictures):
    panel = panels_budget.BudgetPanel()
    panel.stop_ms.value = 210.0
    assert "kept: P95" in panel.answer.value
    assert cards.COLOURS["good"] in panel.answer.value
    panel.stop_ms.value = 900.0
    assert "broken: P95" in panel.answer.value
    assert cards.COLOURS["bad"] in panel.answer.value
    panel.limit_ms.value = 2500.0
    assert "kept: P95" in panel.answer.value
    assert [function for function, _ in pictures] == [figures_budget.turn_times] * 3
    assert pictures[-1][1] == {"limit_ms": 2500.0}


def test_every_widget_reaches_the_turn(pictures):
    panel = panels_budget.BudgetPanel()
    panel.path.value, panel.stt.value, panel.tts.value = "phone network", "Azure", "Gradium"
    panel.llm.value, panel.stop_ms.value, panel.turn_model_ms.value = "GPT-5.6 Terra", 300.0, 12.0
    panel.beside.value, panel.first_words.value, panel.ms_per_token.value = False, 8.0, 20.0
    panel.tool.value, panel.tool_ms.value, panel.correlation.value = True, 400.0, 0.5
    assert panel.turn() == Turn(
        path="phone network",
        stt="Azure",
        llm="GPT-5.6 Terra",
        tts="Gradium",
        stop_ms=300.0,
        turn_model_ms=12.0,
        beside=False,
        first_words=8.0,
        ms_per_token=20.0,
        tool=True,
        tool_ms=400.0,
        correlation=0.5,
    )
    assert "broken" in panel.answer.value


def test_ones_own_run_can_be_chosen_and_is_named(pictures, monkeypatch):
    mine = budget_sum.from_samples("mine", [90.0] * 30, origin="measured", server="my GPU")
    monkeypatch.setattr(own_latency, "stage", lambda: mine)
    panel = panels_budget.BudgetPanel()
    panel.llm.value = panels_budget.OWN
    rows = panel.result()[1].set_index("stage")
    assert rows.loc[budget.LLM, "P95, ms"] == 90
    assert "mine" in panel.answer.value


def test_what_goes_wrong_is_said_in_the_panel(pictures, monkeypatch):
    def damaged():
        raise CourseError("The run is damaged. Move it away.")

    monkeypatch.setattr(own_latency, "stage", damaged)
    panel = panels_budget.BudgetPanel()
    panel.llm.value = panels_budget.OWN
    assert "Move it away" in panel.answer.value
    assert cards.COLOURS["bad"] in panel.answer.value
    panel.llm.value = Turn().llm
    assert "kept" in panel.answer.value


def test_the_plain_function_refuses_nonsense():
    with pytest.raises(CourseError, match="limit_ms"):
        panels_budget.what_if(limit_ms=math.nan, n=100)
    with pytest.raises(CourseError, match="correlation"):
        panels_budget.what_if(Turn(correlation=3), n=100)
    assert budget_stages.names("llm")
