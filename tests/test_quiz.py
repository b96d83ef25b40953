"""Questions: exactly one right option, a reason for each, every pick recorded, readable without widgets."""

from __future__ import annotations

import pytest

from helpers import progress, quiz, settings, sources
from helpers.quiz import Option

OPTIONS = [
    Option("The first chunk", why="It may only name the role."),
    Option("The first with text", right=True, why="That is what one can read."),
    Option("The last `chunk` <b>", why="That is the end-to-end time."),
]


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    monkeypatch.delenv("PHONELLM_CHECK", raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


def question() -> quiz.Question:
    return quiz.Question("05-q1", "Which chunk?", OPTIONS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "at least two"),
        (OPTIONS[1:2], "at least two"),
        ([OPTIONS[0], OPTIONS[2]], "exactly one option must be right, not 0"),
        ([OPTIONS[1], Option("another", right=True, why="x")], "not 2"),
        ([OPTIONS[1], Option("another")], "gives no reason"),
        ([OPTIONS[1], Option("another", why="  ")], "gives no reason"),
        ([OPTIONS[1], Option("The first with text", why="x")], "its own text"),
    ],
)
def test_a_question_that_does_not_teach_is_an_error(options, says):
    with pytest.raises(ValueError, match=f"05-q1.*{says}"):
        quiz.ask("05-q1", "Which?", options)


def test_every_option_says_why_and_is_recorded():
    made = question()
    told = [made.pick(position) for position in range(3)]
    assert told == [
        "Not this one. It may only name the role.",
        "Right. That is what one can read.",
        "Not this one. That is the end-to-end time.",
    ]
    entries = progress.read()
    assert [entry["passed"] for entry in entries] == [False, True, False]
    assert {entry["kind"] for entry in entries} == {"quiz"}
    assert entries[0]["detail"] == "The first chunk"


def test_radio_buttons_show_no_backticks():
    """They show plain text only."""
    options = [Option("in `config.json`", why="No."), Option("here", right=True, why="Yes.")]
    _, radio, _ = quiz.Question("05-q1", "Which?", options).widget().children
    assert [label for label, _ in radio.options] == ["in config.json", "here"]


def test_the_radio_buttons_show_the_reason_of_what_is_picked():
    made = question()
    title, radio, told = made.widget().children
    assert "Which chunk?" in title.value
    assert radio.index is None  # nothing is picked in advance
    assert [label for label, _ in radio.options] == [option.text.replace("`", "") for option in OPTIONS]
    assert told.value == ""
    radio.index = 0
    assert "It may only name the role." in told.value
    radio.index = 1
    assert "Right. That is what one can read." in told.value
    assert made.picked == 1
    assert made.widget() is made.widget()
    assert len(progress.read()) == 2


def test_without_widgets_it_is_still_a_question():
    made = question()
    assert (
        repr(made)
        == "Which chunk?\n  a) The first chunk\n  b) The first with text\n  c) The last `chunk` <b>"
    )
    bundle = made._repr_mimebundle_()
    assert bundle["text/plain"] == repr(made)
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<code>chunk</code> &lt;b&gt;" in bundle["text/html"]
    assert bundle["text/html"].count("<details>") == 3


def test_ask_prints_outside_a_notebook(capsys):
    assert quiz.ask("05-q1", "Which chunk?", OPTIONS) is None
    assert "b) The first with text" in capsys.readouterr().out


def test_progress_that_cannot_be_written_is_said_and_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "file")
    told = question().pick(1)
    assert told.startswith("Right. That is what one can read.")
    assert "could not be written" in told


def test_in_each_lesson_the_right_option_is_not_always_in_one_place():
    """A learner who always picks the same position must not pass."""
    for path in sources.paths():
        positions = [item.right for item in sources.items(path) if item.kind == "quiz"]
        assert None not in positions, path.name
        if len(positions) >= 3:
            assert len(set(positions)) > 1, path.name
