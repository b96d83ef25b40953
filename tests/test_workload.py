"""Calls made of a workload's parameters: the same for a seed, within their bounds, and said where from."""

import statistics

import pytest

from helpers import published, recorded, workload
from helpers.settings import CourseError

SUPPORT = workload.load()


def turns(count=400, seed=0, calls=SUPPORT):
    return [turn for call in calls.calls(count, seed=seed) for turn in call.turns]


def test_the_same_seed_gives_the_same_calls_and_more_calls_begin_with_the_same():
    assert SUPPORT.calls(5, seed=3) == SUPPORT.calls(9, seed=3)[:5]
    assert SUPPORT.calls(5, seed=3) != SUPPORT.calls(5, seed=4)
    endless = SUPPORT.stream(seed=3)
    assert [next(endless) for _ in range(5)] == SUPPORT.calls(5, seed=3)


def test_ids_are_unique_across_seeds():
    ids = [call.id for seed in (0, 1) for call in SUPPORT.calls(50, seed=seed)]
    assert len(set(ids)) == 100


def test_sizes_stay_within_the_parameters():
    lengths = [len(call.turns) for call in SUPPORT.calls(300)]
    assert (min(lengths), max(lengths)) == (SUPPORT.value("turns_low"), SUPPORT.value("turns_high"))
    words = [len(turn.user.split()) for turn in turns()]
    # A sentence is not cut to fit: the last may miss the wanted length by a few words.
    assert min(words) >= SUPPORT.value("caller_words_low") - 3
    assert max(words) <= SUPPORT.value("caller_words_high")
    assert {turn.max_tokens for turn in turns()} == {SUPPORT.value("answer_tokens")}


def test_speaking_takes_the_words_at_the_published_rate():
    rate = published.value("assumption.speech_words")
    for turn in turns(20):
        assert turn.speak_s == pytest.approx(len(turn.user.split()) / rate * 60)
    assert SUPPORT.listen_s("one two three") == pytest.approx(3 / rate * 60)
    assert SUPPORT.listen_s("") == 0


def test_thinking_and_tools_follow_their_parameters():
    many = turns(1000)
    assert statistics.median(turn.think_s for turn in many) == pytest.approx(
        SUPPORT.value("think_median_s"), rel=0.05
    )
    share = statistics.mean(turn.calls_tool for turn in many)
    assert share == pytest.approx(SUPPORT.value("tool_share"), abs=0.02)
    for turn in many:
        assert (turn.tool_s > 0) == turn.calls_tool == turn.user.startswith("Where is order ")


def test_the_quoted_tail_of_the_pauses_is_the_distributions():
    """The reason in the file says how many pauses are long."""
    long = [turn.think_s > 2.7 for turn in turns(1500)]
    assert statistics.mean(long) == pytest.approx(0.05, abs=0.01)


def test_the_quoted_length_of_a_call_and_of_an_answer():
    """With the longest answers, at the tokens a word of data/published.csv."""
    words = SUPPORT.value("answer_tokens") / published.value("assumption.tokens_per_word")
    listened_s = SUPPORT.listen_s("word " * round(words))
    assert words == pytest.approx(36, abs=0.5)
    assert listened_s == pytest.approx(15, abs=1)
    lengths_s = [
        sum(turn.think_s + turn.speak_s + listened_s for turn in call.turns) for call in SUPPORT.calls(200)
    ]
    assert 120 < statistics.mean(lengths_s) < 180


def test_calls_share_the_system_prompt_and_nothing_else():
    one, other = SUPPORT.calls(2)
    assert one.system == other.system
    assert one.system.count("\n") == SUPPORT.value("system_rules")
    assert one.opening("8f3a2c") == f"My number is 8f3a2c {one.id}. {one.turns[0].user}"
    assert len({call.opening(mark) for call in (one, other) for mark in ("a", "b")}) == 4


def test_a_call_at_once_has_said_its_first_words():
    call = SUPPORT.call(0)
    now = call.at_once()
    assert (now.turns[0].speak_s, now.turns[0].think_s) == (0, 0)
    assert (now.turns[0].user, now.turns[1:]) == (call.turns[0].user, call.turns[1:])


def test_each_parameter_has_unit_reason_and_origin():
    table = SUPPORT.table()
    assert set(table["parameter"]) == set(workload.NEEDED)
    assert (table[["unit", "reason", "source"]] != "").all(axis=None)
    rate = table.set_index("parameter").loc["caller_words_per_minute"]
    row = published.table("assumption.speech_words").iloc[0]
    assert (rate["value"], rate["unit"], rate["origin"]) == (row["value"], row["unit"], row["origin"])


def test_a_scaled_version_says_what_differs():
    small = SUPPORT.scaled(turns=0.5, answer=0.5)
    assert small.value("answer_tokens") == SUPPORT.value("answer_tokens") / 2
    assert small.value("think_median_s") == SUPPORT.value("think_median_s")
    changed = {change.split()[0] for change in small.changes}
    assert changed == {"turns_low", "turns_high", "answer_tokens"}
    assert "answer_tokens" in small.sentence()
    reasons = small.table().set_index("parameter")["reason"]
    assert all(("scaled" in reason) == (name in changed) for name, reason in reasons.items())
    assert SUPPORT.scaled() == SUPPORT
    assert len(SUPPORT.scaled(turns=0.5).scaled(words=0.5).changes) == 4


def test_the_short_version_is_short_and_without_tools():
    small = SUPPORT.short()
    lengths = [len(call.turns) for call in small.calls(200)]
    assert statistics.mean(lengths) == pytest.approx(3, abs=0.3)
    assert not any(turn.calls_tool for turn in turns(200, calls=small))


def test_a_faster_pace_is_a_time_lapse():
    fast = SUPPORT.scaled(pace=2)
    slow, quick = SUPPORT.call(7).turns[0], fast.call(7).turns[0]
    assert quick.user == slow.user
    assert quick.speak_s == pytest.approx(slow.speak_s / 2)
    assert fast.listen_s("one two") == pytest.approx(SUPPORT.listen_s("one two") / 2)


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), "5", None])
def test_a_factor_that_is_no_size_is_refused(factor):
    with pytest.raises(CourseError, match=r"words=.*above 0"):
        SUPPORT.scaled(words=factor)


def test_the_factor_that_makes_no_sense_is_named():
    with pytest.raises(CourseError, match="pace='5'"):
        SUPPORT.scaled(pace="5")
    with pytest.raises(CourseError, match=r"tools=-0\.5"):
        SUPPORT.scaled(tools=-0.5)
    assert SUPPORT.scaled(tools=0).value("tool_share") == 0


def test_unknown_names_are_listed():
    with pytest.raises(CourseError, match="support-call"):
        workload.load("nobody")
    with pytest.raises(CourseError, match="turns_low"):
        SUPPORT.value("patience")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "tool_s"', 'name = "tool_ms"', "tool_s"),
        ('value = 0.2\nunit = "of the turns"', 'value = 2\nunit = "of the turns"', "tool_share"),
        ("value = 5\n", "value = 50\n", "turns_low"),
        ('unit = "lines"\n', "", "unit"),
        ("[[parameters]]", "[[parameters", "support-call"),
        ('origin = "modelled"', 'origin = "guessed"', "guessed"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, monkeypatch, old, new, says):
    text = (workload.WORKLOADS / "support-call.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "broken.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(workload, "WORKLOADS", tmp_path)
    with pytest.raises(CourseError, match=says):
        workload.load("broken")


def test_a_call_takes_as_long_as_its_reason_says():
    """Two to four minutes, with answers as long as allowed and no wait for the model."""
    answer_s = 60 * SUPPORT.value("answer_tokens") / published.value("assumption.tokens_per_word") / 150
    lasts = sorted(
        sum(turn.think_s + turn.speak_s + answer_s for turn in call.turns) / 60 for call in SUPPORT.calls(400)
    )
    assert 1.5 < lasts[20] < 2.5  # nine calls of ten lie between this and the next
    assert 3.5 < lasts[-20] < 4.5
    reasons = SUPPORT.table().set_index("parameter")["reason"]
    assert "two to four minutes" in reasons["turns_high"]


def test_why_the_short_version_has_no_tools():
    """On the small engine a call of a tool alone takes most of the lesson's limit."""
    rows = recorded.load_table("05-tools").query("workload == 'calls a tool' and tool == 'our timer'")
    limit_ms = published.value("card.ttfat_ceiling")
    assert limit_ms / 2 < rows[rows["metric"] == "TTFAT"]["p50_ms"].iloc[0] < limit_ms
    assert SUPPORT.short().value("tool_share") == 0
