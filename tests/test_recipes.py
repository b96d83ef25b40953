"""Recipes: complete, each flag known to its engine, the commands what they should be."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from helpers import engine, machine, published, recipes
from helpers.recipes import Flag
from helpers.settings import CourseError

NAMES = recipes.names()
VLLM = [name for name in NAMES if recipes.load(name).package != "sglang"]
WANTED = {
    "b200-bf16", "b200-nvfp4", "h200-bf16", "h100-bf16", "l40s-fp8", "rtx-pro-6000", "sglang-b200", "embedded"
}  # fmt: skip


def value(recipe: recipes.Recipe, name: str) -> str | None:
    [flag] = [flag for flag in recipe.flags if flag.name == name]
    return flag.value


def test_all_profiles_are_here():
    assert set(NAMES) == WANTED


@pytest.mark.parametrize("name", NAMES)
def test_each_flag_has_its_reason_source_and_how_far_it_was_tried(name):
    recipe = recipes.load(name)
    assert recipe.name == name
    assert recipe.flags
    for flag in (*recipe.flags, *recipe.environment, *recipe.options):
        assert len(flag.why) > 20, flag.name
        assert re.search(r"20\d\d", flag.source), f"{flag.name}: no date"
        assert flag.verified
    assert recipe.source
    assert recipe.verified
    names = [flag.name for flag in recipe.flags]
    assert len(names) == len(set(names)), "a flag stands there twice"


def test_every_source_is_used():
    text = "".join(path.read_text() for path in recipes.FOLDER.glob("*.toml"))
    used = {key for keys in re.findall(r'source = "(.*)"', text) for key in keys.split(", ")}
    assert set(recipes.sources()) <= used


def test_only_the_embedded_recipe_says_that_we_ran_it():
    for name in NAMES:
        ran = not recipes.load(name).verified.startswith("not by us")
        assert ran == (name == "embedded")


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_has_every_flag(name):
    assert recipes.unknown_flags(recipes.load(name)) == []


@pytest.mark.parametrize("name", VLLM)
def test_vllms_own_parser_takes_the_command(name):
    recipe = recipes.load(name)
    seen = recipes.parse(recipe)
    assert seen.host == "127.0.0.1"
    assert seen.max_num_seqs == int(value(recipe, "--max-num-seqs"))
    assert seen.enable_prefix_caching is True


def test_json_flags_arrive_as_json():
    seen = recipes.parse(recipes.load("b200-nvfp4"))
    assert seen.override_generation_config == {"temperature": 0}
    assert seen.default_chat_template_kwargs == {"enable_thinking": False}
    assert seen.moe_backend == "flashinfer_cutlass"


@pytest.mark.parametrize("name", VLLM)
def test_vllm_has_the_parsers_by_name(name):
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    recipe = recipes.load(name)
    flags = {flag.name: flag.value for flag in recipe.flags}
    assert flags["--tool-call-parser"] in ToolParserManager.list_registered()
    known = set(ReasoningParserManager.list_registered())
    named = [f.value for f in (*recipe.flags, *recipe.options) if f.name == "--reasoning-parser"]
    assert set(named) <= known | {"nano_v3"}, "nano_v3 comes with the plugin, the others with vLLM"
    assert "nano_v3" not in known, "then the plugin is no longer needed"


def test_a_flag_that_does_not_exist_is_found():
    recipe = recipes.load("b200-nvfp4")
    wrong = replace(recipe, flags=(*recipe.flags, Flag("--moe-kernel", "cutlass", "no such flag")))
    assert recipes.unknown_flags(wrong) == ["--moe-kernel"]
    with pytest.raises(
        CourseError, match=r"(?s)does not take .* --moe-kernel.*data/recipes/b200-nvfp4\.toml"
    ):
        recipes.parse(wrong)
    sglang = recipes.load("sglang-b200")
    wrong = replace(sglang, flags=(Flag("--max-num-seqs", "1", "vLLM's name for it"),))
    assert recipes.unknown_flags(wrong) == ["--max-num-seqs"]


def test_a_value_that_does_not_exist_is_refused():
    recipe = recipes.load("b200-nvfp4")
    flags = tuple(
        replace(flag, value="cutlas") if flag.name == "--moe-backend" else flag for flag in recipe.flags
    )
    with pytest.raises(CourseError, match="cutlas"):
        recipes.parse(replace(recipe, flags=flags))


def test_nvfp4_names_the_kernel_that_gives_right_text():
    recipe = recipes.load("b200-nvfp4")
    assert value(recipe, "--moe-backend") == "flashinfer_cutlass"
    assert value(recipe, "--kv-cache-dtype") == "bfloat16"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "embedded"])
def test_no_recipe_thinks_or_samples_unasked_or_listens_to_the_world(name):
    recipe = recipes.load(name)
    assert value(recipe, "--default-chat-template-kwargs") == '{"enable_thinking":false}'
    if recipe.package == "vllm":
        assert value(recipe, "--override-generation-config") == '{"temperature":0}'
        assert value(recipe, "--mamba-cache-mode") == "align"
    assert not {"--host", "--api-key"} & {flag.name for flag in recipe.flags}
    assert "--host 127.0.0.1" in recipes.shell(recipe)


def test_the_weights_are_pinned_where_a_revision_is_known():
    bf16 = [recipes.load(name) for name in NAMES if recipes.load(name).form == "BF16" and name != "embedded"]
    assert len(bf16) >= 4
    for recipe in bf16:
        assert re.fullmatch(r"[0-9a-f]{40}", recipe.revision)
        assert recipe.revision in recipes.shell(recipe)


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_gets_from_the_text_the_words_of_the_command(name, tmp_path):
    """bash itself takes the text apart; a stand-in for the server prints what it was given."""
    recipe = recipes.load(name)
    folder = tmp_path / "a folder"
    text = recipes.shell(recipe, folder)
    program, *rest = recipes.command(recipe, folder, recipes.SERVED_NAME, recipes.HOST, recipes.PORT)
    assert not re.search(r"[^\\ ]\n  --", text), "a line without its continuation"
    said = subprocess.run(
        ["bash", "-c", f"{shlex.quote(program)}() {{ printf '%s\\0' \"$@\"; }}\n{text}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.split("\0")[:-1] == rest


def test_a_shell_takes_the_folder_that_the_download_prints():
    text = recipes.shell(recipes.load("b200-bf16"))
    stand_ins = "hf() { echo '/a folder'; }\nvllm() { printf '%s\\0' \"$@\"; }\n"
    said = subprocess.run(["bash", "-c", stand_ins + text], capture_output=True, text=True, check=True).stdout
    words = said.split("\0")
    assert words[:2] == ["serve", "/a folder"]
    assert "/a folder/nano_v3_reasoning_parser.py" in words


def test_tables_say_what_the_files_say():
    table = recipes.table("b200-nvfp4")
    assert list(table.columns) == ["flag", "value", "why", "source", "verified"]
    assert len(table) == len(recipes.load("b200-nvfp4").flags)
    assert "VLLM_CPU_KVCACHE_SPACE" in set(recipes.table("embedded")["flag"])
    both = recipes.compare("b200-bf16", "b200-nvfp4")
    assert list(both.columns) == ["b200-bf16", "b200-nvfp4"]
    assert both.loc["--moe-backend"].tolist() == ["", "flashinfer_cutlass"]
    assert both.loc["--trust-remote-code"].tolist() == ["on", "on"]
    assert recipes.overview()["profile"].tolist() == NAMES
    assert {"VLLM_API_KEY", "--host"} <= set(recipes.options("b200-bf16")["flag"])


def test_an_unknown_profile_is_answered_with_the_list():
    with pytest.raises(CourseError, match=r"no profile 'b200'.*b200-nvfp4.*embedded"):
        recipes.load("b200")


def test_numbers_in_the_reasons_are_the_published_ones():
    [kv] = [flag for flag in recipes.load("b200-nvfp4").flags if flag.name == "--kv-cache-dtype"]
    bf16, fp8 = (abs(published.value(f"serve.nvfp4_kv_{form}_delta")) for form in ("bf16", "fp8"))
    assert f"{bf16:.2f} points" in kv.why
    assert f"{fp8:.2f};" in kv.why
    assert f"about {published.value('serve.nvfp4_kv_bf16_cost'):.0f} % fewer" in kv.why


def test_a_flag_that_its_source_does_not_have_is_said_to_be_ours_too():
    """The L40S author limits requests at the endpoint, not in vLLM; SGLang's cookbook turns thinking off in
    each request; Pipecat's card says to turn it off, and the L40S author has the flag that does it."""
    cards = recipes.sources()

    def source(name: str, flag: str) -> str:
        return next(one.source for one in recipes.load(name).flags if one.name == flag)

    assert cards["course"] in source("l40s-fp8", "--max-num-seqs")
    assert cards["course"] in source("sglang-b200", "--default-chat-template-kwargs")
    for name in VLLM:
        if name != "embedded":
            assert cards["l40s"] in source(name, "--default-chat-template-kwargs")


def test_asking_the_parser_leaves_the_environment_as_it_was(monkeypatch):
    """An engine that is started afterwards inherits it; with a quiet log, nobody could read its start."""
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    recipes.parse(recipes.load("b200-nvfp4"))
    assert "VLLM_LOGGING_LEVEL" not in os.environ
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    recipes.unknown_flags(recipes.EMBEDDED)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.parametrize(
    ("features", "fast"),
    [
        ("avx avx2 fma", False),
        ("avx2 avx512f", False),
        ("avx2 avx512f avx512bw avx512vl avx512dq", True),
        ("fp asimd bf16", True),
        ("fp asimd", False),
        ("", False),
    ],
)
def test_processors_with_fast_bfloat16_are_told_from_others(features, fast):
    assert machine.fast_bfloat16(frozenset(features.split())) == fast


def test_without_fast_bfloat16_the_engine_computes_in_float32_and_nothing_else_differs():
    def in_form(form: str) -> recipes.Recipe:
        flags = (replace(f, value=form) if f.name == "--dtype" else f for f in recipes.EMBEDDED.flags)
        return replace(recipes.EMBEDDED, flags=tuple(flags))

    plain = in_form("bfloat16")
    assert recipes.for_processor(plain, True) == plain
    slow = recipes.for_processor(plain, False)
    assert value(slow, "--dtype") == "float32"
    assert recipes.command(slow, "m", "n", "h", 1) == recipes.command(in_form("float32"), "m", "n", "h", 1)
    assert slow.environment == plain.environment


def test_the_rule_is_the_one_pytorch_goes_by():
    """PyTorch says itself whether it has fast kernels; in a process of its own, as importing it is slow."""
    ask = "import torch; print(torch.ops.mkldnn._is_mkldnn_bf16_supported())"
    told = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=120, check=False
    )
    if told.returncode:  # only where the engine cannot be either; anywhere else this must not go unseen
        assert engine.why_not_embedded(), told.stderr
        pytest.skip("PyTorch is not installed: this system runs on recorded runs")
    assert told.stdout.split() == [str(machine.fast_bfloat16())]
