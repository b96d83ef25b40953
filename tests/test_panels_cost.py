"""The panel of lesson 08: its answer is a plain function, and it follows its widgets."""

from __future__ import annotations

import pytest

from helpers import cards, cost_call, panels_cost, prices, settings
from helpers.settings import CourseError


@pytest.fixture(autouse=True)
def drawn(monkeypatch, tmp_path):
    """What it draws; figures have their own tests. No prices of anybody's own."""
    found = []
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path)
    monkeypatch.setattr(panels_cost.figures, "show", lambda *given, **options: found.append(given))
    return found


def answers(frame) -> dict[str, str]:
    assert set(frame["origin"]) == {"modelled"}
    return dict(zip(frame["question"], frame["answer"], strict=True))


def test_it_begins_with_the_cards_inputs_and_shows_them_without_a_kernel(monkeypatch, capsys):
    panel = panels_cost.CostPanel()
    said = answers(panel.result()[0])
    assert said["the model, per agent minute"] == "0.00254 USD"
    assert said["of it the model"] == "9%"
    assert "53% cheaper than with GPT-5.6 Terra" in said["the whole minute is"]
    monkeypatch.setattr(cards, "in_notebook", lambda: False)
    panel.show()
    assert "0.00254 USD" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("widget", "value", "question"),
    [
        ("price", 20.0, "the model, per agent minute"),
        ("region", 3.0, "the model, per agent minute"),
        ("utilisation", 10, "the model, per agent minute"),
        ("calls", 5.0, "the model, per agent minute"),
        ("telephony", "telephony.twilio-toll-free", "the whole minute"),
        ("stt", "stt.deepgram-flux-multi", "the whole minute"),
        ("tts", "tts.elevenlabs-flash", "the whole minute"),
        ("platform", "platform.vapi", "the whole minute"),
        ("chars", 800, "the whole minute"),
    ],
)
def test_each_input_moves_the_answer_and_the_picture(widget, value, question, drawn):
    panel = panels_cost.CostPanel()
    before = answers(panel.result()[0])[question]
    getattr(panel, widget).value = value
    after = answers(panel.result()[0])[question]
    assert float(after.split()[0]) > float(before.split()[0])
    assert after in panel.answer.value
    assert len(drawn) == 1


def test_an_offer_fills_in_its_price_once(drawn):
    panel = panels_cost.CostPanel()
    panel.offer.value = "gpu.l40s.modal"
    assert panel.price.value == 1.95
    assert len(drawn) == 1


def test_what_is_wrong_is_said_in_the_panel_and_goes_away():
    panel = panels_cost.CostPanel()
    panel.utilisation.value = 0
    assert "utilisation" in panel.answer.value
    panel.utilisation.value = 50
    assert "it has to be" not in panel.answer.value
    panel.calls.value = 0
    assert "live_calls" in panel.answer.value


def test_everything_but_the_model_can_be_left_out():
    _, bills = panels_cost.minute_for(6.0, 100, telephony="", stt="", tts="")
    assert set(bills["part"]) == {"language model"}


def test_the_function_refuses_nonsense():
    with pytest.raises(CourseError, match="utilisation"):
        panels_cost.minute_for(6.0, 100, utilisation=1.2)
    with pytest.raises(CourseError, match="live_calls"):
        panels_cost.minute_for(6.0, 0)


def test_the_learners_own_offer_is_on_the_list(tmp_path):
    head = prices.SHIPPED.read_text(encoding="utf-8").splitlines()[0]
    row = "gpu.mine,gpu,B200,reserved,me,1.5,USD per GPU-hour,,my contract,2026-12-01,published"
    (tmp_path / prices.OWN).write_text(f"{head}\n{row}\n", encoding="utf-8")
    panel = panels_cost.own_minute(start="gpu.mine")
    assert panel.price.value == 1.5
    assert cost_call.total(panel.result()[1].iloc[:4]) > 0
