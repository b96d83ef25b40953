"""Questions whose every option, right or wrong, says why.

::

    quiz.ask("05-q1", "Which chunk ends the wait of TTFT?", [
        quiz.Option("The first chunk.", why="It may only name the role: no text yet."),
        quiz.Option("The first chunk with text.", right=True, why="That is the first token one can read."),
    ])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ipywidgets

from helpers import cards, progress
from helpers.settings import CourseError

# Radio buttons keep to one line and lose their button when the text is longer; an option must wrap instead.
WRAP = """<style>
.course-quiz .widget-radio-box label { display: flex; gap: 0.5em; align-items: baseline; white-space: normal;
  overflow: visible; height: auto; line-height: 1.5; margin-bottom: 2px;
  font-size: var(--jp-content-font-size1, 14px); }
.course-quiz .widget-radio-box input { flex: none; order: -1; width: auto; margin: 0; position: relative;
  top: 3px; }
</style>"""


@dataclass(frozen=True)
class Option:
    """One option: its text, whether it is the right one, and why it is or is not."""

    text: str
    right: bool = False
    why: str = ""


class Question:
    """One question with its options. JupyterLab shows it as radio buttons; other front ends as text.

    ``picked`` is the position of the option last picked, None before that.
    """

    def __init__(self, id: str, question: str, options: list[Option]) -> None:
        """Raises ValueError (a mistake of the author's) unless there are two or more different options,
        exactly one of them right, each with its reason."""
        options = list(options)
        if len(options) < 2 or len({option.text for option in options}) < len(options):
            raise ValueError(f"quiz {id}: give at least two options, each with its own text")
        if sum(option.right for option in options) != 1:
            raise ValueError(
                f"quiz {id}: exactly one option must be right, not {sum(o.right for o in options)}"
            )
        for option in options:
            if not option.why.strip():
                raise ValueError(f'quiz {id}: the option "{option.text}" gives no reason (why=…)')
        self.id = id
        self.question = question
        self.options = tuple(options)
        self.picked: int | None = None
        self._widget: ipywidgets.VBox | None = None

    def pick(self, position: int) -> str:
        """Pick an option by its position from 0: records it and returns what the learner is told."""
        option = self.options[position]
        self.picked = position
        note = ""
        try:
            progress.record(self.id, option.right, kind="quiz", detail=option.text)
        except CourseError as error:
            note = f" ({error})"
        return f"{'Right.' if option.right else 'Not this one.'} {option.why}{note}"

    def __repr__(self) -> str:
        """The question and its options, for front ends without widgets."""
        lines = [self.question, *(f"  {chr(97 + n)}) {option.text}" for n, option in enumerate(self.options))]
        return "\n".join(lines)

    def _html(self) -> str:
        """For front ends without widgets that show HTML: each option opens to its reason."""
        options = "".join(
            f"<details><summary>{cards.prose(option.text)}</summary>"
            f"{'Right.' if option.right else 'Not this one.'} {cards.prose(option.why)}</details>"
            for option in self.options
        )
        return f"<b>{cards.prose(self.question)}</b>{options}"

    def widget(self) -> ipywidgets.VBox:
        """The question as widgets; the same ones each time it is asked for."""
        if self._widget is not None:
            return self._widget
        frame = f'<div style="{cards.FONT} line-height: 1.5; white-space: normal; %s">%s</div>'
        labels = [option.text.replace("`", "") for option in self.options]  # radio buttons show no HTML
        radio = ipywidgets.RadioButtons(
            options=[(label, number) for number, label in enumerate(labels)],
            value=None,  # nothing picked in advance
            layout=ipywidgets.Layout(width="auto", max_width="56em"),
        )
        told = ipywidgets.HTML()

        def on_pick(change: dict[str, Any]) -> None:
            if change["new"] is None:
                return
            text = self.pick(change["new"])
            look = "good" if self.options[change["new"]].right else "bad"
            style = f"border-left: 4px solid {cards.COLOURS[look]}; padding: 2px 12px;"
            told.value = frame % (style, cards.prose(text))

        radio.observe(on_pick, names="value")
        title = ipywidgets.HTML(WRAP + frame % ("font-weight: bold;", cards.prose(self.question)))
        self._widget = ipywidgets.VBox([title, radio, told], layout=ipywidgets.Layout(max_width="60em"))
        self._widget.add_class("course-quiz")
        return self._widget

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = {"text/plain": repr(self), "text/html": self._html()}
        shown = self.widget()._repr_mimebundle_()
        data = shown[0] if isinstance(shown, tuple) else shown
        return {**(data or {}), **bundle}


def ask(id: str, question: str, options: list[Option]) -> None:
    """Ask one question; what is picked is told why and recorded. ``id`` is like ``"05-q1"``.

    Options stay in the order written. Text may have `code` in backticks (radio buttons show it plain). Raises
    ValueError unless there are two or more options, exactly one of them right, each with its reason.
    """
    asked = Question(id, question, options)
    if cards.in_notebook():
        from IPython.display import display

        display(asked)
    else:
        print(asked)
