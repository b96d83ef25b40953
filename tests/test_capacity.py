"""The model of a machine and the phone line on it: right in the limits, and moved by what should move it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from helpers import (
    b200,
    calibration,
    capacity,
    experts,
    hardware,
    machine_model,
    memory,
    parameters,
    published,
    workload,
)
from helpers.architecture import example, examples, phonellm
from helpers.machine_model import machine, mamba_block
from helpers.settings import CourseError

FREE = dict.fromkeys(("layer_ms", "link_ms", "first_layer_ms", "server_ms"), 0.0)
QUICK = {"requests": 300}


@pytest.mark.parametrize("batch", [1, 7, 64, 300])
def test_a_step_reads_what_lesson_03_says(batch):
    """Without fixed costs and with all of the bandwidth it is the floor of experts.floor_ms."""
    where = machine("H100", **FREE | {"bandwidth_share": 1.0, "compute_share": 1e9})
    floor = experts.floor_ms(phonellm(), [batch], hardware.table().loc[["H100"]], tokens=1000)
    # The embedding row of each token is in that sum and not here.
    assert where.step_ms(batch, 0, 1000.0 * batch) == pytest.approx(floor["floor_ms"].iloc[0], rel=1e-3)


def test_arithmetic_is_two_operations_a_weight():
    where = machine("H100", **FREE | {"bandwidth_share": 1e9, "compute_share": 1.0})
    active = parameters.active(phonellm(), embedding=False, lm_head=False)
    head = phonellm().vocab_size * phonellm().hidden_size
    expected = 2 * (1500 * active + head) / (989 * 1e9)
    assert where.step_ms(0, 1500) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fmt", memory.FORMATS)
def test_a_step_grows_with_everything(fmt):
    where = machine("B200", fmt)
    assert where.step_ms(0) == 0
    assert where.step_ms(1) < where.step_ms(8) < where.step_ms(128) < where.step_ms(512)
    assert where.step_ms(8) < where.step_ms(8, 500) < where.step_ms(8, 5000)
    assert where.step_ms(8, 0, 1000) < where.step_ms(8, 0, 1e6)
    assert machine("B200", fmt, gpus=2).step_ms(256) < where.step_ms(256)


def test_smaller_weights_are_quicker_where_the_hardware_has_them():
    steps = [machine("B200", fmt).step_ms(64) for fmt in ("BF16", "FP8", "NVFP4")]
    assert steps == sorted(steps, reverse=True)


def test_unknown_arithmetic_is_left_out_and_not_guessed():
    assert math.isnan(machine("DGX Spark").tflops["BF16"])
    assert machine("DGX Spark").step_ms(0, 5000) == pytest.approx(
        machine("DGX Spark", compute_share=1e-6).step_ms(0, 5000)
    )


def test_the_block_is_what_vllm_reports_for_this_family():
    assert mamba_block(phonellm()) == published.value("vllm.mamba_block")
    assert mamba_block(phonellm(), state_dtype="float16") < mamba_block(phonellm())
    assert all(mamba_block(example(name)) % 16 == 0 for name in examples())


def test_factor_and_constants():
    plain = machine("B200")
    assert plain.slower(2).step_ms(9, 100, 500) == pytest.approx(2 * plain.step_ms(9, 100, 500))
    assert plain.slower(2).delay_ms == pytest.approx(2 * plain.delay_ms)
    table = capacity.parameter_table()
    assert (table[["reason", "source", "date"]].map(len) > 3).all(axis=None)
    assert dict(zip(table["parameter"], table["value"], strict=True)) == dict(plain.constants)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: machine("B300"), "no GPU"),
        (lambda: machine("B200", "INT3"), "no format"),
        (lambda: machine("B200", gpus=0), "gpus"),
        (lambda: machine("B200", bandwith_share=1.0), "bandwith_share"),
        (lambda: machine("L40S").limits(), "does not fit"),
        (lambda: machine("B200").slower(0), "factor"),
        (lambda: capacity.simulate(machine(), 0), "live_calls"),
        (lambda: capacity.simulate(machine(), 1_000_000), "live_calls=1000000: .* at most 8,192"),
        (lambda: capacity.simulate(machine(), "8"), "live_calls='8'"),
        (lambda: capacity.simulate(machine(), 8.5), "whole number"),
        (lambda: capacity.simulate("B200", 8), "is no machine"),
        (lambda: capacity.simulate(machine(), 8, workload="support-call"), "no kind of call"),
        (lambda: capacity.simulate(machine(), 8, max_num_seqs=0), "max_num_seqs=0"),
        (lambda: capacity.simulate(machine(), 8, requests=10**9), "requests="),
        (lambda: capacity.curve(machine(), ()), "no level"),
        (lambda: capacity.curve(machine(), (8, 10**6)), "live_calls"),
        (lambda: capacity.limit(machine(), limit_ms=0), "limit_ms"),
        (lambda: capacity.limit(machine(), limit_ms="600"), "limit_ms"),
        (lambda: capacity.limit(machine(), steps=0), "steps"),
        (lambda: capacity.limit(machine(), most=10**6), "most"),
    ],
)
def test_what_makes_no_sense_is_said(make, words):
    with pytest.raises(CourseError, match=words):
        make()


def test_asks_follow_the_call():
    calls = workload.load()
    call = next(call for call in calls.calls(30) if any(turn.calls_tool for turn in call.turns))
    asked = capacity.asks(calls, call)
    assert len(asked) == len(call.turns) + sum(turn.calls_tool for turn in call.turns)
    assert all(one.prompt_tokens < two.prompt_tokens for one, two in pairwise(asked))
    assert all(ask.known_tokens < ask.prompt_tokens for ask in asked)
    for one, two in pairwise(asked):  # prompt and answer of a request are known next time
        assert two.known_tokens == one.prompt_tokens + one.output_tokens
    spoken = [ask for ask in asked if not ask.tool]
    expected = [turn.think_s + turn.speak_s for turn in call.turns]
    assert [ask.pause_s for ask in spoken] == pytest.approx(expected)
    assert capacity.asks(calls, call, first=True)[0].known_tokens == 0
    longer = capacity.asks(calls, call, system_tokens=5000)
    assert longer[0].known_tokens > 5000


def test_the_curve_is_modelled_keeps_littles_law_and_rises():
    frame = capacity.curve(machine("B200"), (20, 300), **QUICK)
    assert set(frame["origin"]) == {"modelled"}
    assert frame["ttfat_p95_ms"].is_monotonic_increasing
    assert frame["duty_cycle"].between(0, 1).all()
    assert (frame["in_flight"] / frame["live_calls"]).tolist() == pytest.approx(frame["duty_cycle"].tolist())
    assert (frame["cached_share"] < 0.1).all()  # prompts are shorter than the block
    fine = capacity.curve(machine("B200"), (20,), cache=64, **QUICK)
    assert fine["cached_share"].iloc[0] > 0.8


def test_without_pauses_all_lines_are_in_flight():
    row = capacity.curve(machine("B200"), (16,), pauses=False, **QUICK).iloc[0]
    assert row["duty_cycle"] > 0.9


def test_the_limit_is_the_largest_level_that_holds():
    where = machine("H100").slower(3)
    found = capacity.limit(where, limit_ms=600, **QUICK)
    level = int(found["live_calls"])
    above = capacity.curve(where, [round(level * 1.06) + 1], **QUICK)["ttfat_p95_ms"].iloc[0]
    assert found["ttfat_p95_ms"] <= 600 < above
    assert capacity.limit(where, limit_ms=1, **QUICK) == {"live_calls": 0}


def test_the_cases_move_as_they_should():
    frame = capacity.sensitivity(
        machine("H100").slower(4), prompts=(500, 6000), caches=(0, 0.95), formats=("BF16", "FP8"),
        seats=(8, 128), requests=200, steps=0.2,
    ).set_index(["what", "value"])["live_calls"]  # fmt: skip
    assert frame["system prompt", "500 tokens"] > frame["system prompt", "6,000 tokens"]
    assert frame["prefix cache", "95% of what is known"] > frame["prefix cache", "off"]
    assert frame["format", "FP8"] > frame["format", "BF16"] == frame["as it is", ""]
    assert frame["max-num-seqs", "8"] < frame["max-num-seqs", "128"]


def test_each_case_says_its_factor_and_its_seats():
    frame = capacity.sensitivity(
        machine("H100").slower(4), prompts=(), caches=(), formats=("FP8",), seats=(8,),
        own_factors={"FP8": 2.0, "NVFP4": 3.0}, requests=200, steps=0.5,
    ).set_index("value")  # fmt: skip
    assert list(frame.index) == ["", "FP8", "FP8, own correction", "8"]
    assert frame["factor"].tolist() == [4, 4, 2, 4]
    assert frame["max_num_seqs"].tolist() == [128, 128, 128, 8]
    assert frame["live_calls"]["FP8, own correction"] > frame["live_calls"]["FP8"]


def test_one_level_is_a_level():
    frame = capacity.curve(machine("B200"), 8, max_num_seqs=16, **QUICK)
    assert frame["live_calls"].tolist() == [8]
    assert frame["max_num_seqs"].tolist() == [16]


def test_the_same_twice():
    one, two = (capacity.curve(machine("B200"), (50,), **QUICK) for _ in range(2))
    assert one.equals(two)


def test_constants_of_the_module_come_from_the_table_of_published_figures():
    assert published.value("card.ttfat_ceiling") == capacity.LIMIT_MS
    share = machine_model.PARAMETERS["compute_share"][0]
    assert share == pytest.approx(published.value("b200.compute_reached") / 100 / 2, abs=0.02)


class TestRecorded:
    """What stands in data/runs is what the code says today, and nothing of it passes for a measurement."""

    def test_answers(self):
        frame = b200.recorded_answers()
        ours = frame[frame["who"] != "the model's card"]
        assert set(ours["origin"]) == {"modelled"}
        row = ours[(ours["who"] == "BF16, uncorrected") & (ours["load"] == "live calls")].iloc[0]
        again = capacity.curve(machine("B200"), [int(row["number"])], max_num_seqs=b200.SEATS).iloc[0]
        assert again["ttfat_p95_ms"] == pytest.approx(row["ttfat_p95_ms"])
        assert (ours["ttfat_p95_ms"] <= capacity.LIMIT_MS).all()
        card = frame[frame["origin"] == "published"]
        assert list(card["number"]) == [44, 88]
        assert set(ours["max_num_seqs"]) == {b200.SEATS}
        told = ours.set_index("who")["factor"]
        assert told["BF16, uncorrected"].eq(1).all()
        corrected = told[told.index.str.startswith("NVFP4, corrected")]
        assert corrected.to_numpy() == pytest.approx(calibration.factor("B200", "NVFP4"))

    def test_sentences_say_the_numbers_and_what_lies_between(self):
        said = b200.sentences()
        frame = b200.recorded_answers()
        for number in frame[frame["who"].str.startswith(("BF16", "the model"))]["number"]:
            assert f"{number:.0f}" in said
        assert all(f"{number / 44:.1f} times" in said for number in (57, 296))  # the flattering one not alone
        for word in ("network", "tokenizer", "thinking", "tool calls", "no model explains", "measure"):
            assert word in said

    def test_curves_and_cases(self):
        curves = b200.recorded_curves()
        assert set(curves["origin"]) == {"modelled"}
        assert "BF16, dynamo.replay" in set(curves["series"])
        row = curves[curves["series"] == "BF16, uncorrected"].iloc[2]
        again = capacity.curve(machine("B200"), [int(row["live_calls"])], max_num_seqs=b200.SEATS).iloc[0]
        assert again["ttfat_p95_ms"] == pytest.approx(row["ttfat_p95_ms"])
        cases = b200.recorded_cases()
        assert set(cases["what"]) >= {"system prompt", "prefix cache", "format", "max-num-seqs"}
        own = cases.set_index("value")["factor"]["NVFP4, own correction"]
        assert own == pytest.approx(calibration.factor("B200", "NVFP4"))
        assert set(curves["max_num_seqs"]) == {b200.SEATS}

    def test_recording_does_not_replace(self, tmp_path):
        (tmp_path / f"{b200.CASES}.csv").write_text("kept")
        with pytest.raises(CourseError, match="--replace"):
            b200.record(b200.CASES, folder=tmp_path)
        assert (tmp_path / f"{b200.CASES}.csv").read_text() == "kept"
        with pytest.raises(CourseError, match="no table"):
            b200.record("nothing", folder=tmp_path)
