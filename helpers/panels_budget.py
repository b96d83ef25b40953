"""A panel of lesson 06: put a turn together, and see whether its P95 keeps the limit. All of it is modelled.

The answer is a plain function, :func:`what_if`, that works without widgets.
"""

from __future__ import annotations

import html

import ipywidgets
import pandas as pd

from helpers import budget, budget_stages, budget_turn, cards, figures, own_latency
from helpers.budget_sum import Stage
from helpers.budget_turn import Turn, Verdict
from helpers.figures_budget import turn_times
from helpers.panels import _Panel, _table
from helpers.settings import CourseError

OWN = "your own run"
DRAWS = 20_000  # a tenth of a second


def what_if(
    turn: Turn | None = None,
    *,
    limit_ms: float = budget.LIMIT_MS,
    llm: Stage | None = None,
    n: int | None = None,
    seed: int = 0,
) -> tuple[Verdict, pd.DataFrame, pd.DataFrame]:
    """Draw turns, and hold them against a limit.

    Args:
        turn: what the turn is made of; without it the default :class:`helpers.budget_turn.Turn`.
        limit_ms: the limit.
        llm: a language model in place of ``turn.llm``, such as :func:`helpers.own_latency.stage`.
        n: how many turns; without it, :data:`DRAWS`.
        seed: which ones.

    Returns:
        The verdict; a table of the stages (:func:`helpers.budget_turn.table`); the turns
        (:func:`helpers.budget_turn.simulate`).

    Raises:
        CourseError: a name or a number makes no sense; the message says which.
    """
    turn = turn or Turn()
    turns = budget_turn.simulate(turn, llm=llm, n=n or DRAWS, seed=seed)
    found = budget_turn.verdict(turns, limit_ms=limit_ms)
    return found, budget_turn.table(turn, turns, llm=llm), turns


class BudgetPanel(_Panel):
    """Services, way, waits and words in; the share of turns over the limit and the P95 out."""

    def __init__(self, start: Turn | None = None, *, limit_ms: float = budget.LIMIT_MS) -> None:
        """``start``: the turn it comes with; ``limit_ms``: the limit."""
        start = start or Turn()
        wide = {"layout": ipywidgets.Layout(width="36em"), "style": {"description_width": "15em"}}

        def choice(kind: str, words: str, value: str, *more: str) -> ipywidgets.Dropdown:
            options = [*budget_stages.names(kind), *more]
            return ipywidgets.Dropdown(options=options, value=value, description=words, **wide)

        def slider(
            words: str, value: float, most: float, step: float, least: float = 0
        ) -> ipywidgets.FloatSlider:
            # Only when it is let go: each picture takes about a second to draw.
            return ipywidgets.FloatSlider(
                value,
                min=least,
                max=most,
                step=step,
                description=words,
                readout_format=".0f" if step >= 1 else ".2f",
                continuous_update=False,
                **wide,
            )

        self.path = choice("path", "to and from the caller", start.path)
        self.stt = choice("stt", "transcription", start.stt)
        self.llm = choice("llm", "language model", start.llm, OWN)
        self.tts = choice("tts", "speech synthesis", start.tts)
        self.stop_ms = slider("wait for silence, ms", start.stop_ms, 1000, 10)
        self.turn_model_ms = slider("end-of-turn model, ms", start.turn_model_ms, 300, 1)
        self.beside = ipywidgets.Checkbox(start.beside, description="beside the transcription", **wide)
        self.first_words = slider("words of the first sentence", start.first_words, 30, 1)
        self.ms_per_token = slider("ms a token", start.ms_per_token, 100, 1)
        self.tool = ipywidgets.Checkbox(start.tool, description="the turn calls a tool", **wide)
        self.tool_ms = slider("time of the tool, ms", start.tool_ms, 2000, 10)
        self.correlation = slider("rank correlation", start.correlation, 1, 0.05)
        self.limit_ms = slider("limit, ms", limit_ms, 4000, 50, 300)
        inputs = [self.path, self.stt, self.llm, self.tts, self.stop_ms, self.turn_model_ms, self.beside]
        inputs += [
            self.first_words,
            self.ms_per_token,
            self.tool,
            self.tool_ms,
            self.correlation,
            self.limit_ms,
        ]
        super().__init__("What if?", inputs)
        for widget in inputs:
            widget.observe(lambda _: self.work_out(), names="value")

    def turn(self) -> Turn:
        """The turn as the widgets have it now."""
        return Turn(
            path=self.path.value,
            stt=self.stt.value,
            llm=Turn().llm if self.llm.value == OWN else self.llm.value,
            tts=self.tts.value,
            stop_ms=self.stop_ms.value,
            turn_model_ms=self.turn_model_ms.value,
            beside=self.beside.value,
            first_words=self.first_words.value,
            ms_per_token=self.ms_per_token.value,
            tool=self.tool.value,
            tool_ms=self.tool_ms.value,
            correlation=self.correlation.value,
        )

    def result(self) -> tuple[Verdict, pd.DataFrame, pd.DataFrame]:
        """Verdict, stages and turns, see :func:`what_if`."""
        own = own_latency.stage() if self.llm.value == OWN else None
        return what_if(self.turn(), limit_ms=self.limit_ms.value, llm=own)

    def work_out(self) -> None:
        """Draw anew, and show verdict, stages and picture, or what is wrong with an input."""
        self.picture.clear_output(wait=True)
        try:
            found, stages, turns = self.result()
            self._say(_answer(found, stages), "good" if found.kept else "bad")
            with self.picture:
                figures.show(turn_times, turns, limit_ms=found.limit_ms)
        except CourseError as error:
            self.picture.clear_output()
            self._fail(error)

    def _static(self) -> tuple[str, str]:
        found, stages, _ = self.result()
        return _answer(found, stages), f"{found.sentence()}\n{stages.to_string(index=False)}"


def _answer(found: Verdict, stages: pd.DataFrame) -> str:
    colour = cards.COLOURS["good" if found.kept else "bad"]
    line = f'<b style="color: {colour};">{html.escape(found.sentence())}</b>'
    note = "All of it is modelled; the intervals are those of the drawing. Do not add the stages' P95s."
    return f"{line}{_table(stages)}<div>{cards.prose(note)}</div>"


def show(start: Turn | None = None, *, limit_ms: float = budget.LIMIT_MS) -> BudgetPanel:
    """Show the panel, and return it. Arguments as for :class:`BudgetPanel`."""
    panel = BudgetPanel(start, limit_ms=limit_ms)
    panel.show()
    return panel
