"""The whole minute, and which input of the chain matters most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers import cost, cost_call, cost_range, exhibits_08, prices, settings
from helpers.cost_range import Range
from helpers.settings import CourseError

MODEL = cost_call.Model("a model", 0.0025)


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path)


def test_the_worked_minute():
    bill = cost_call.minute(cost_call.from_chart("PhoneLLM Alpha 1"))
    assert list(bill["part"]) == ["telephony", "speech to text", "language model", "text to speech"]
    assert list(bill["usd_per_minute"]) == pytest.approx([0.0085, 0.0065, 0.0025, 0.0108])
    assert cost_call.total(bill) == pytest.approx(0.0283)
    assert cost_call.share(bill) == pytest.approx(0.09, abs=0.003)


@pytest.mark.parametrize(
    ("model", "share"),
    [(cost_call.from_chart("GPT-5.6 Terra"), 0.57), (cost_call.the_slip(), 0.01)],
    ids=["terra", "slip"],
)
def test_the_models_share_of_a_minute(model, share):
    assert cost_call.share(cost_call.minute(model)) == pytest.approx(share, abs=0.005)


def test_each_part_keeps_its_origin_and_what_hangs_on_an_assumption_is_modelled():
    bill = cost_call.minute(cost_call.from_chart("PhoneLLM Alpha 1")).set_index("part")
    assert bill.loc["telephony", "origin"] == bill.loc["language model", "origin"] == "published"
    assert bill.loc["text to speech", "origin"] == "modelled"
    assert "360 a minute" in bill.loc["text to speech", "how"]


@hypothesis_settings(deadline=None, max_examples=30)
@given(st.floats(0, 0.1), st.floats(0, 2000))
def test_shares_add_up_and_more_words_are_dearer(usd, chars):
    bill = cost_call.minute(cost_call.Model("m", usd), chars_per_minute=chars)
    assert bill["share"].sum() == pytest.approx(1)
    more = cost_call.minute(cost_call.Model("m", usd), chars_per_minute=chars + 100)
    assert cost_call.total(more) - cost_call.total(bill) == pytest.approx(100 * 30 / 1e6)


def test_parts_can_be_left_out_and_a_platform_added():
    alone = cost_call.minute(MODEL, telephony="", stt="", tts="")
    assert list(alone["part"]) == ["language model"]
    assert cost_call.share(alone) == 1
    added = cost_call.minute(MODEL, platform="platform.vapi")
    assert cost_call.total(added) - cost_call.total(cost_call.minute(MODEL)) == pytest.approx(0.05)


def test_spoken_characters():
    assert cost_call.spoken_chars(0.4) == pytest.approx(360)
    assert cost_call.spoken_chars(1, 100) == pytest.approx(600)


def test_swaps_are_measured_against_the_base():
    base = cost_call.minute(cost_call.from_chart("GPT-5.6 Terra"))
    dear = cost_call.minute(cost_call.from_chart("GPT-5.6 Terra"), tts="tts.elevenlabs-flash")
    found = cost_call.swaps(base, {"same": base, "dearer voice": dear})
    assert found["saved"].iloc[0] == pytest.approx(0)
    assert found["saved_usd_per_minute"].iloc[1] == pytest.approx(-20 * 360 / 1e6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cost_call.minute(MODEL, stt="tts.deepgram-aura-2"), "kind"),
        (lambda: cost_call.minute(MODEL, stt="stt.nobody"), "stt.nobody"),
        (lambda: cost_call.minute(MODEL, chars_per_minute=-1), "chars_per_minute"),
        (lambda: cost_call.minute(cost_call.Model("m", -1)), "usd_per_minute"),
        (lambda: cost_call.from_chart("GPT-2"), "PhoneLLM"),
        (lambda: cost_call.share(cost_call.minute(MODEL), "platform"), "platform"),
        (lambda: cost_call.spoken_chars(1.2), "agent_share"),
        (lambda: cost_range.card_ranges(idle_utilisation=0.8), "idle_utilisation"),
        (lambda: cost_range.card_ranges(idle_utilisation=0), "idle_utilisation"),
    ],
)
def test_nonsense_is_refused_and_named(make, words):
    with pytest.raises(CourseError) as caught:
        make()
    assert words in str(caught.value)


# Ranges


def ranges(**ends: tuple[float, float, float]) -> tuple[Range, ...]:
    """Four inputs; those that are not given stand still."""
    plain = {"price_usd_per_hour": 6.0, "region_factor": 1.0, "utilisation": 0.5, "live_calls": 100.0}
    spans = {name: (value, value, value) for name, value in plain.items()} | ends
    return tuple(Range(name, name, *span, "because", "modelled") for name, span in spans.items())


def test_a_bar_is_as_long_as_the_factor_of_its_input():
    frame = cost_range.tornado(ranges(live_calls=(50, 100, 400), utilisation=(0.25, 0.5, 1.0)))
    assert list(frame["input"])[:2] == ["live_calls", "utilisation"]
    assert list(frame["times"]) == pytest.approx([8, 4, 1, 1])
    first = frame.iloc[0]
    assert first["at_low"] == pytest.approx(cost.agent_minute(6, 50, utilisation=0.5))
    assert first["at_high"] < first["base"] < first["at_low"]


def test_all_inputs_at_once_stay_between_the_worst_and_the_best_and_around_the_middle():
    spans = ranges(live_calls=(50, 100, 200), price_usd_per_hour=(3, 6, 12))
    found = cost_range.together(spans, draws=4000)
    assert found.is_monotonic_increasing
    base = cost.agent_minute(6, 100, utilisation=0.5)
    assert base / 4 < found["P05"] < found["P95"] < base * 4
    assert found["P50"] == pytest.approx(base, rel=0.05)
    assert found.equals(cost_range.together(spans, draws=4000))
    still = cost_range.together(ranges(), draws=100)
    assert np.allclose(still, base)


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        (ranges()[:3], "live_calls"),
        (ranges(live_calls=(200, 100, 400)), "in order"),
        (ranges(utilisation=(0.0, 0.5, 1.0)), "above 0"),
        ((*ranges(), ranges()[0]), "one range for each"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(spans, words):
    for function in (cost_range.tornado, cost_range.together):
        with pytest.raises(CourseError, match=words):
            function(spans)


def test_the_cards_ranges_begin_with_the_cards_own_inputs():
    frame = cost_range.tornado(exhibits_08.ranges())
    assert frame["base"].iloc[0] == pytest.approx(0.0025364, abs=1e-6)
    assert (frame["times"] > 1).all()


def test_the_learners_price_list_moves_the_range(tmp_path):
    head = prices.SHIPPED.read_text(encoding="utf-8").splitlines()[0]
    row = "gpu.mine,gpu,B200,reserved,me,1.5,USD per GPU-hour,,my contract,2026-12-01,published"
    (tmp_path / prices.OWN).write_text(f"{head}\n{row}\n", encoding="utf-8")
    low = {entry.name: entry.low for entry in cost_range.card_ranges(idle_utilisation=0.3)}
    assert low["price_usd_per_hour"] == 1.5


def test_cases_have_their_prices_and_the_small_card_is_not_dearer():
    cases = cost_range.cases()
    minute = {(row["who"], row["what"]): row["usd_per_minute"] for row in cases.to_dict("records")}
    assert minute["the model's card", "simulated processes"] == pytest.approx(0.0051, abs=0.0001)
    assert minute["the model's card", "agents"] == pytest.approx(0.0025, abs=0.0001)
    assert minute["L40S, list price", "requests in flight"] == pytest.approx(0.0020, abs=0.0001)
    assert minute["L40S, as the card", "requests in flight"] == pytest.approx(0.0044, abs=0.0001)
    ours = cases[cases["origin"] == "modelled"]
    assert len(ours) == 2
    assert (ours["usd_per_minute"] < minute["the model's card", "agents"]).all()
