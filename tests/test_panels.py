"""Panels: their answers are plain functions, and a mistake in an input is said in the panel."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from helpers import architecture, cards, hardware, memory, panels, parameters, tiny
from helpers.settings import CourseError


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """What a panel draws; figures have their own tests."""
    drawn = []
    monkeypatch.setattr(
        panels.figures, "show", lambda figure, frame, **options: drawn.append((figure, options))
    )
    return drawn


def h100() -> pd.DataFrame:
    return hardware.table().loc[["H100"]]


def test_the_table_is_that_of_memory_with_the_time_to_read_a_token():
    arch = architecture.phonellm()
    frame = panels.fits_on(h100(), tokens=9216).set_index("format")
    plain = memory.fits(arch, gpus=h100(), tokens=9216).set_index("format")
    assert list(frame["requests"]) == list(plain["requests"])
    read = 2 * parameters.active(arch, embedding=False)
    assert frame["ms a token, at least"]["BF16"] == pytest.approx(read / 3.35e9, abs=0.006)
    assert set(frame["origin"]) == {"modelled"}


def test_smaller_formats_read_less_but_not_in_proportion():
    """What stays in BF16 is read in BF16."""
    arch = architecture.phonellm()
    read = [panels._step_bytes(arch, name) for name in panels.FORMATS]
    assert read[0] == 2 * parameters.active(arch, embedding=False)
    assert read[1] < read[0]
    assert read[2] > read[0] * memory.weight_bytes(arch, "NVFP4") / memory.weight_bytes(arch, "BF16")


def test_what_does_not_fit_has_no_time():
    frame = panels.fits_on(hardware.table().loc[["L40S"]]).set_index("format")
    assert frame["requests"]["BF16"] == 0
    assert math.isnan(frame["ms a token, at least"]["BF16"])
    assert frame["ms a token, at least"]["FP8"] > 0


@pytest.mark.parametrize("name", architecture.examples())
def test_summary_of_each_model(name):
    arch = architecture.example(name)
    lines = panels.summary(arch)
    assert lines.name == arch.name
    assert lines["parameters"] == f"{parameters.total(arch):,}"
    assert lines["layers"].startswith(f"{len(arch.layers)}: ")
    assert ("parameters more" in lines["multi-token prediction"]) == (arch.mtp is not None)


def test_summary_of_a_model_without_attention_or_without_mamba():
    fields = tiny.config()
    for pattern, never in (("MEM-", "never"), ("*E*-", "the first token")):
        lines = panels.summary(architecture.read(fields | {"hybrid_override_pattern": pattern}))
        assert lines["KV cache is larger from"] == never


def test_the_gpu_panel_begins_with_a_gpu_of_the_table_and_follows_its_widgets():
    panel = panels.GpuPanel(start="H100")
    expected = memory.fits(architecture.phonellm(), gpus=h100())
    assert list(panel.result()["requests"]) == list(expected["requests"])
    before = panel.answer.value
    assert panels.CHANGE in before  # the answer to begin with stands above the panel
    panel.memory_gb.value = 200
    assert panel.answer.value != before
    assert (panel.result()["requests"] > expected["requests"]).all()
    requests = panel.result()["requests"]
    panel.tokens.value = 32768
    assert (panel.result()["requests"] < requests).all()
    panel.preset.value = "B200"
    assert panel.name.value == "B200"
    assert panel.generation.value == "Blackwell"
    assert panel.memory_gb.value == hardware.table()["memory_gb"]["B200"]


@pytest.mark.parametrize("name", hardware.table().index)
def test_a_gpu_of_the_table_gives_the_same_in_the_panel(name):
    panel = panels.GpuPanel(start=name)
    expected = memory.fits(architecture.phonellm(), gpus=hardware.table().loc[[name]])
    assert list(panel.result()["requests"]) == list(expected["requests"])
    assert list(panel.result()["note"]) == list(expected["why"])


def test_the_gpu_panel_says_what_is_wrong():
    panel = panels.GpuPanel()
    panel.memory_gb.value = 0
    assert "has to be above 0" in panel.answer.value
    panel.memory_gb.value = 80
    assert "above 0" not in panel.answer.value


def test_a_name_is_text_and_not_html():
    panel = panels.GpuPanel()
    panel.name.value = "<b>mine</b>"
    assert "<b>mine" not in panel.answer.value
    assert "&lt;b&gt;mine" in panel.answer.value


def test_the_config_panel_reads_examples_text_and_paths(tmp_path, no_pictures):
    panel = panels.ConfigPanel()
    panel.example.value = "nemotron-nano-9b-v2"
    assert "8,888,227,328" in panel.answer.value
    text = json.dumps(tiny.config())
    panel.text.value = text
    panel.button.click()
    assert f"{parameters.total(architecture.read(text)):,}" in panel.answer.value
    path = tmp_path / "config.json"
    path.write_text(text)
    panel.text.value = f"  {path} "
    panel.button.click()
    assert panel.arch.name == tmp_path.name
    assert len(no_pictures) == 3
    assert no_pictures[-1][1]["total"] == parameters.total(panel.arch)


def test_the_config_panel_takes_a_file():
    panel = panels.ConfigPanel()
    content = json.dumps(tiny.config()).encode()
    panel._uploaded({"new": ({"name": "config.json", "content": memoryview(content)},)})
    assert panel.arch.hidden_size == tiny.config()["hidden_size"]
    panel._uploaded({"new": ({"name": "weights.bin", "content": memoryview(b"\xff\xfe\x00")},)})
    assert "weights.bin is not text" in panel.answer.value


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "Paste a config.json"),
        ("no/such/config.json", "could not be read"),
        ("https://example.org/config.json", "an address in the web"),
        ("{", "not valid JSON"),
        ('{"model_type": "llama"}', "llama"),
        (json.dumps({k: v for k, v in tiny.config().items() if k != "head_dim"}), "head_dim"),
        (json.dumps(tiny.config() | {"num_hidden_layers": 3}), "num_hidden_layers"),
    ],
)
def test_the_config_panel_says_what_is_wrong_and_goes_on(source, says, no_pictures):
    panel = panels.ConfigPanel()
    panel.read(source)
    assert says in panel.answer.value
    assert no_pictures == []
    panel.read_example("phonellm-alpha-1")
    assert "31,577,940,288" in panel.answer.value


def test_one_of_ours_can_be_chosen_again_after_a_config_of_your_own():
    panel = panels.ConfigPanel()
    panel.example.value = "nemotron-nano-9b-v2"
    panel.read(json.dumps(tiny.config()))
    panel.example.value = "nemotron-nano-9b-v2"
    assert "8,888,227,328" in panel.answer.value


def test_an_uploaded_config_goes_by_the_name_of_its_file():
    panel = panels.ConfigPanel()
    content = json.dumps(tiny.config()).encode()
    panel._uploaded({"new": ({"name": "my-model.json", "content": memoryview(content)},)})
    assert "my-model.json" in panel.answer.value


@pytest.mark.parametrize("show", [panels.own_gpu, panels.own_config])
def test_the_first_answer_is_there_without_a_kernel(show, monkeypatch):
    """As plain HTML above the widgets, and as text where there is no notebook."""
    said = []
    monkeypatch.setattr(cards, "card", lambda inner, plain, **_: said.append((inner, plain)))
    show()
    [(inner, plain)] = said
    assert "<table" in inner
    assert "modelled" in inner
    assert "phonellm-alpha-1" in plain
    assert inner.count("phonellm-alpha-1") == 1


def test_a_gpu_that_is_none_is_refused():
    with pytest.raises(CourseError, match="tokens"):
        panels.fits_on(h100(), tokens=0)
