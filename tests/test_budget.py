"""The budget of a turn as data, and what can be added up of it."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import budget, budget_stages, budget_sum, phonebench, published
from helpers.settings import CourseError

TIMES = st.floats(0, 1e5, allow_nan=False)


def lines(times: list[float]) -> pd.DataFrame:
    """A budget with these times, one line a group."""
    return pd.DataFrame(
        {"stage": budget.GROUPS[: len(times)], "group": budget.GROUPS[: len(times)], "ms": times}
    ).assign(origin="modelled")


# --- the published table ----------------------------------------------------------------------------------


def test_the_lines_add_up_to_the_published_totals():
    assert budget.total_ms(budget.table("primer")) == published.value("budget.primer_total")
    assert budget.total_ms(budget.table("card")) == published.value("budget.card_total")


def test_the_two_versions_differ_in_the_line_of_the_model_alone():
    primer, card = budget.table("primer"), budget.table("card")
    assert list(primer["number"]) == list(card["number"]) == list(range(1, 17))
    changed = primer["ms"] != card["ms"]
    assert list(primer.loc[changed, "group"]) == [budget.LLM]
    assert card.loc[changed, "ms"].iloc[0] == published.value("card.llm_line")
    assert list(primer["stage"]) == list(card["stage"])


def test_our_reading_of_the_card_is_not_shown_as_published():
    card = budget.table("card")
    model = card["group"] == budget.LLM
    assert set(card.loc[model, "origin"]) == {"published"}
    assert set(card.loc[~model, "origin"]) == {"modelled"}
    assert card.loc[~model, "source"].str.contains("our reading").all()
    assert set(budget.table("primer")["origin"]) == {"published"}


def test_what_subtraction_leaves_is_not_the_target():
    card = budget.table("card")
    assert budget.rest_ms(card) == 643
    assert budget.left_for_ms(card) == 857
    assert budget.slack_ms(card) == 207
    assert budget.left_for_ms(card) - budget.slack_ms(card) == published.value("card.llm_line")


def test_groups_hold_all_lines_once_and_in_order():
    grouped = budget.by_group(budget.table("card"))
    assert tuple(grouped["group"]) == budget.GROUPS
    assert list(grouped["lines"]) == ["1-6", "7", "8", "9", "10", "11-16"]
    assert list(grouped["ms"]) == [114, 300, 650, 20, 120, 89]
    assert list(grouped["end_ms"]) == list(grouped["ms"].cumsum())
    assert list(grouped["origin"]) == ["modelled", "modelled", "published", *["modelled"] * 3]


def test_the_claims_are_held_against_the_table():
    claims = budget.claims()
    assert set(claims["holds"]) == {"yes", "no", "in part"}
    assert set(claims["origin"]) == {"published"}
    text = " ".join(claims["by the table"])
    for number in ("857", "207", "203", "1,293"):
        assert number in text
    assert "No line" in text or "no line" in text


# --- arithmetic -------------------------------------------------------------------------------------------


@given(st.lists(TIMES, min_size=3, max_size=6), TIMES, st.integers(0, 2))
def test_more_in_one_line_is_more_in_all_and_less_is_left(times, more, place):
    frame, group = lines(times), budget.GROUPS[place]
    longer = frame.assign(ms=[ms + more if i == place else ms for i, ms in enumerate(times)])
    assert budget.total_ms(longer) == pytest.approx(budget.total_ms(frame) + more)
    assert budget.slack_ms(longer) == pytest.approx(budget.slack_ms(frame) - more)
    assert budget.left_for_ms(longer, group) == pytest.approx(budget.left_for_ms(frame, group))
    for other in set(budget.GROUPS[: len(times)]) - {group}:
        assert budget.left_for_ms(longer, other) <= budget.left_for_ms(frame, other) + 1e-9


@given(st.lists(TIMES, min_size=3, max_size=6), st.randoms())
def test_order_does_not_matter(times, random):
    frame = lines(times)
    mixed = frame.sample(frac=1, random_state=random.randrange(2**32)).reset_index(drop=True)
    assert budget.total_ms(mixed) == pytest.approx(budget.total_ms(frame))
    assert list(budget.by_group(mixed)["group"]) == list(budget.by_group(frame)["group"])


@given(st.lists(TIMES, min_size=3, max_size=6), TIMES)
def test_what_is_left_for_a_line_would_fill_the_budget_exactly(times, limit):
    frame = lines(times)
    left = budget.left_for_ms(frame, limit_ms=limit)
    if left >= 0:
        full = budget.with_group(frame, budget.LLM, left, origin="modelled")
        assert budget.slack_ms(full, limit_ms=limit) == pytest.approx(0, abs=1e-6)


def test_a_group_can_be_replaced_and_keeps_its_place():
    card = budget.table("card")
    phone = budget.with_group(card, "uplink media", 115, stage="phone", origin="modelled", source="us")
    assert list(phone["stage"][:2]) == ["phone", "transcription + endpointing"]
    assert len(phone) == len(card) - 5
    assert budget.total_ms(phone) == budget.total_ms(card) - 114 + 115
    assert len(card) == 16
    own = budget.with_group(card, budget.LLM, 90.5, origin="measured", server="mine", n=40)
    assert budget.by_group(own)["n"].dropna().to_list() == [40]
    row = own[own["group"] == budget.LLM].iloc[0]
    assert (row["ms"], row["server"], row["number"]) == (90.5, "mine", 8)
    assert list(own["number"]) == list(range(1, 17))


def test_a_group_of_two_origins_is_modelled():
    frame = budget.table("primer")
    frame.loc[0, "origin"] = "modelled"
    assert budget.by_group(frame).iloc[0]["origin"] == "modelled"


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "300", None, True])
def test_nonsense_is_refused_by_name(bad):
    frame = budget.table("primer").astype({"ms": object})
    frame.loc[6, "ms"] = bad
    with pytest.raises(CourseError):
        budget.total_ms(frame)
    if bad != "300":
        with pytest.raises(CourseError, match="limit_ms"):
            budget.slack_ms(budget.table("primer"), limit_ms=bad)


def test_what_is_not_there_is_named():
    card = budget.table("card")
    with pytest.raises(CourseError, match="'blog'"):
        budget.table("blog")
    with pytest.raises(CourseError, match="application logic"):
        budget.left_for_ms(card, "application logic")
    with pytest.raises(CourseError, match="no line of the group"):
        budget.rest_ms(card[card["group"] != budget.LLM])
    with pytest.raises(CourseError, match="no group of the budget"):
        budget.total_ms(card.assign(group="somewhere"))
    with pytest.raises(CourseError, match="origin"):
        budget.with_group(card, budget.LLM, 10, origin="guessed")
    with pytest.raises(CourseError, match="source"):
        budget.with_group(card, budget.LLM, 10, origin="published")
    with pytest.raises(CourseError, match="no line"):
        budget.total_ms(card.iloc[:0])


# --- the stages that somebody measured --------------------------------------------------------------------


def test_every_service_becomes_a_stage_through_its_published_points():
    for row in budget_stages.table("stt").to_dict("records"):
        found = budget_stages.stage("stt", row["name"])
        for share, column in ((0.5, "p50_ms"), (0.95, "p95_ms"), (0.99, "p99_ms")):
            assert found.at(share) == pytest.approx(row[column])
        assert found.origin == "modelled"
        assert found.source
    for row in budget_stages.table("tts").to_dict("records"):
        found = budget_stages.stage("tts", row["name"])
        assert found.at(0.5) == pytest.approx(row["p50_ms"])
        assert found.at(0.75) - found.at(0.25) == pytest.approx(row["iqr_ms"])


def test_models_are_those_of_phonebench_with_both_percentiles():
    names = budget_stages.names("llm")
    assert phonebench.PHONELLM in names
    assert phonebench.TERRA in names
    assert "Qwen 3.8 27B" not in names  # the chart has no P50 and no P95 of it
    terra = budget_stages.stage("llm", phonebench.TERRA)
    row = phonebench.table().set_index("model").loc[phonebench.TERRA]
    assert terra.at(0.95) == pytest.approx(row["ttfat_p95_ms"])


def test_the_phone_path_is_half_of_what_twilios_targets_leave():
    turn, platform = (published.value(f"budget.twilio_{name}") for name in ("turn", "platform"))
    upper, platform_upper = (published.value(f"budget.twilio_{name}_upper") for name in ("turn", "platform"))
    for way in budget_stages.ways("phone network"):
        assert way.at(0.5) == pytest.approx((turn - platform) / 2)
        assert way.at(0.95) == pytest.approx((upper - platform_upper) / 2)
        assert way.at(0.95) <= published.value("budget.g114_short_route") + 1e-6
        assert "our assumption" in way.source
    rows = budget_stages.table("path")
    assert set(rows["origin"]) == {"modelled"}


def test_the_path_inside_a_building_is_packet_buffer_and_network():
    parts = ("g711_packet", "dejitter", "lan")
    for way in budget_stages.ways("one building (on-premise)"):
        assert way.at(0.95) == sum(published.value(f"budget.{part}") for part in parts)


def test_webrtc_is_the_media_lines_of_the_budget():
    up, down = budget_stages.ways("WebRTC")
    assert (up.at(0.5), down.at(0.5)) == (114, 89)
    assert {up.origin, down.origin} == {"published"}


def test_the_fit_is_tested_on_the_percentile_that_it_was_not_given():
    fits = budget_stages.fit_check().set_index("name")
    assert len(fits) == len(budget_stages.table("stt"))
    assert fits.loc["Deepgram nova-3-general", "close"]
    assert not fits.loc["Cartesia ink-2", "close"]
    assert fits.loc["Cartesia ink-2", "off_percent"] < -70
    spread = math.log(298 / 247) / 1.6448536
    assert fits.loc["Deepgram nova-3-general", "fitted_p99_ms"] == pytest.approx(
        247 * math.exp(spread * 2.3263479)
    )


def test_the_measured_turn_against_its_parts():
    found = budget_stages.stack_check().set_index("percentile")
    assert found.loc["P50", "added_ms"] == 200 + 33 + 808 + 193
    assert found.loc["P90", "added_ms"] == 200 + 183 + 847 + 234
    assert found.loc["P50", "difference_ms"] == 42
    assert found.loc["P90", "difference_ms"] == 132


def test_the_trial_is_no_run_of_ours():
    rows = pd.concat([budget_stages.table("trial"), budget_stages.table("voice")])
    assert set(rows["origin"]) == {"modelled"}
    assert rows["source"].str.contains("not kept as a run").all()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: budget_stages.table("network"), "'network'"),
        (lambda: budget_stages.stage("stt", "Siri"), "'Siri'"),
        (lambda: budget_stages.stage("llm", "Qwen 3.8 27B"), "Qwen"),
        (lambda: budget_stages.ways("pigeon"), "'pigeon'"),
        (lambda: budget_stages.ms("turn.magic"), r"turn\.magic"),
    ],
)
def test_unknown_stages_are_named(ask, words):
    with pytest.raises(CourseError, match=words):
        ask()


def test_the_default_first_sentence_costs_what_the_primer_has_for_it():
    words, token = published.value("budget.first_words"), published.value("budget.ms_per_token")
    line = budget.by_group(budget.table("primer")).set_index("group").loc["sentence aggregation", "ms"]
    assert words * published.value("assumption.tokens_per_word") * token == pytest.approx(line, rel=0.01)
    assert isinstance(budget_stages.stage("tts", "Gradium"), budget_sum.Stage)
