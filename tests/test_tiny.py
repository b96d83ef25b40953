"""The small model: what transformers keeps in its cache is what the formulas say."""

from __future__ import annotations

import json

import pytest

from helpers import memory, meta, tiny
from helpers.config_reader import read
from helpers.settings import CourseError

needs_transformers = pytest.mark.skipif(
    meta.nemotron_h_classes() is None, reason="transformers is not installed here"
)


@pytest.fixture
def no_transformers(monkeypatch):
    monkeypatch.setattr(meta, "nemotron_h_classes", lambda: None)


def test_it_has_every_kind_of_layer_and_its_config_is_a_copy():
    assert set(tiny.config()["hybrid_override_pattern"]) == set("ME*-")
    tiny.config()["hidden_size"] = 1
    assert tiny.config()["hidden_size"] == 64
    read(tiny.config())


@needs_transformers
def test_the_cache_grows_and_the_state_stays_as_the_formulas_say():
    frame = tiny.watch((1, 2, 63, 64, 65))
    assert set(frame["origin"]) == {"measured"}
    assert (frame["kv_bytes"] == frame["kv_formula"]).all()
    assert (frame["mamba_bytes"] == frame["mamba_formula"]).all()
    assert frame["kv_bytes"].is_monotonic_increasing
    assert frame["kv_bytes"].nunique() == len(frame)
    assert frame["mamba_bytes"].nunique() == 1


@needs_transformers
@pytest.mark.parametrize(
    "changes",
    [
        {"hybrid_override_pattern": "M**E", "num_key_value_heads": 4},
        {"hybrid_override_pattern": "MM-*", "mamba_num_heads": 4, "ssm_state_size": 8, "conv_kernel": 2},
        {"hybrid_override_pattern": "*-E", "head_dim": 8},
        {"torch_dtype": "float32", "n_groups": 4},
    ],
)
def test_they_do_for_other_shapes_too(changes):
    frame = tiny.watch((5, 17), fields=tiny.config() | changes)
    assert (frame["kv_bytes"] == frame["kv_formula"]).all()
    assert (frame["mamba_bytes"] == frame["mamba_formula"]).all()
    assert (frame["mamba_bytes"] > 0).all() == ("M" in read(tiny.config() | changes).pattern)


@needs_transformers
def test_a_wrong_formula_would_be_seen(monkeypatch):
    right = memory.kv_bytes_per_token
    monkeypatch.setattr(memory, "kv_bytes_per_token", lambda *words: right(*words) + 1)
    frame = tiny.watch((3,))
    assert (frame["kv_bytes"] != frame["kv_formula"]).all()


@needs_transformers
def test_what_was_recorded_is_what_is_measured(monkeypatch):
    measured = tiny.watch((1, 64)).drop(columns="origin")
    monkeypatch.setattr(meta, "nemotron_h_classes", lambda: None)
    recorded = tiny.watch((1, 64))
    assert set(recorded["origin"]) == {"recorded"}
    assert recorded.drop(columns="origin").equals(measured)


def test_without_transformers_the_recorded_lengths_are_there(no_transformers):
    frame = tiny.watch()
    assert list(frame["tokens"]) == list(tiny.LENGTHS)
    assert (frame["kv_bytes"] == frame["kv_formula"]).all()
    with pytest.raises(CourseError, match="a text of 5 tokens was not recorded"):
        tiny.watch((5,))
    with pytest.raises(CourseError, match="this config was not recorded"):
        tiny.watch(fields=tiny.config() | {"hidden_size": 32})


@pytest.mark.parametrize("length", [0, -1, 4097])
def test_a_length_that_makes_no_sense_is_named(length):
    with pytest.raises(CourseError, match=str(length)):
        tiny.watch((length,))


@needs_transformers
def test_the_weights_leave_the_callers_randomness_alone():
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    tiny.watch((1,))
    assert torch.equal(torch.rand(1), expected)


def test_the_recording_says_its_conditions():
    kept = json.loads(meta.RECORDED.read_text(encoding="utf-8"))
    assert {"date", "machine", "os", "versions", "workload"} <= set(kept)
    assert {"torch", "transformers"} == set(kept["versions"])
