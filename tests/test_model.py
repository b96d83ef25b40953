"""The small model: made once, whole or not at all, checked by hash; its tokens and its chat template."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import types
import urllib.request
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest

from helpers import model, settings
from helpers.settings import REPO, CourseError

# ---------------------------------------------------------------- made once


@pytest.fixture
def making(tmp_path, monkeypatch):
    """A workspace of its own and a conversion that takes no time; the list counts its runs."""
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path)
    runs = []

    def convert(gguf, made):
        made.mkdir()
        (made / "model.safetensors").write_bytes(b"weights")
        (made / "tokenizer.json").write_text("{}")
        shutil.copyfile(model.CHAT_TEMPLATE, made / "chat_template.jinja")
        runs.append(gguf)

    monkeypatch.setattr(model, "_convert", convert)
    monkeypatch.setattr(model, "source", lambda: Path("the.gguf"))
    return runs


def quiet(line):
    pass


def test_it_is_made_once(making):
    said = []
    folder = model.prepare(said.append)
    assert folder == model.folder()
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "SHA256SUMS.json",
    }
    assert said
    said.clear()
    assert model.prepare(said.append) == folder
    assert said == []
    assert len(making) == 1


@pytest.mark.parametrize(
    "name", ["model.safetensors", "tokenizer.json", "chat_template.jinja", "SHA256SUMS.json"]
)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_is_noticed_and_made_again(making, name, damage):
    path = model.prepare(quiet) / name
    right = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "cut" else right[:-1] + b"?")
    assert not model.is_ready()
    assert model.prepare(quiet).joinpath(name).read_bytes() == right
    assert len(making) == 2


def test_a_new_chat_template_makes_it_again(making, tmp_path, monkeypatch):
    model.prepare(quiet)
    newer = tmp_path / "newer.jinja"
    newer.write_text("{# newer #}")
    monkeypatch.setattr(model, "CHAT_TEMPLATE", newer)
    folder = model.prepare(quiet)
    assert (folder / "chat_template.jinja").read_text() == "{# newer #}"


def left_over(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("no")]
)
def test_an_interrupted_conversion_leaves_nothing(making, monkeypatch, error):
    whole = model._convert

    def fails(gguf, made):
        whole(gguf, made)
        raise error

    monkeypatch.setattr(model, "_convert", fails)
    expected = CourseError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        model.prepare(quiet)
    assert left_over(model.folder().parent) == []
    if expected is CourseError:
        assert "No space left on device" in str(caught.value)
        assert "600 MB" in str(caught.value)
        assert "make lab" in str(caught.value)
    monkeypatch.setattr(model, "_convert", whole)
    assert model.prepare(quiet).exists()


def test_an_interrupted_remake_keeps_the_old_one_until_the_new_is_whole(making, monkeypatch):
    folder = model.prepare(quiet)
    (folder / "tokenizer.json").write_text("spoilt")
    monkeypatch.setattr(model, "_convert", lambda gguf, made: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.prepare(quiet)
    assert left_over(folder.parent) == [model.NAME]
    assert not model.is_ready(), "the spoilt one is not taken for a good one"


def test_what_a_killed_conversion_left_is_cleared_away(making):
    half = settings.workspace("model", ".making-x1", "half")
    half.write_bytes(b"x" * 1000)
    model.prepare(quiet)
    assert left_over(model.folder().parent) == [model.NAME]


def test_two_at_the_same_moment_make_it_once(making, monkeypatch):
    whole = model._convert
    monkeypatch.setattr(model, "_convert", lambda gguf, made: (time.sleep(0.3), whole(gguf, made)))
    threads = [threading.Thread(target=model.prepare, args=(quiet,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(making) == 1


def test_a_full_disk_is_said_before_the_work(making, monkeypatch):
    monkeypatch.setattr(model.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=5e6))
    with pytest.raises(
        CourseError, match=r"5 MB free; the small model needs 600 MB there\.\nFree some space"
    ):
        model.prepare(quiet)
    assert making == []


def test_a_damaged_package_file_is_refused(tmp_path):
    gguf = tmp_path / model.GGUF_FILE
    gguf.write_bytes(b"GGUF, but not ours")
    with pytest.raises(
        CourseError, match=rf"damaged \(SHA-256 {model.sha256(gguf)[:12]}, expected"
    ) as caught:
        model._convert(gguf, tmp_path / "made")
    assert "rm -rf .venv && make lab" in str(caught.value)
    gguf.unlink()
    with pytest.raises(CourseError, match="no file"):
        model._convert(gguf, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setattr(model, "GGUF_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(CourseError, match=r"not installed.*\n.*make setup"):
        model.source()


def test_the_installed_package_has_the_file_we_know():
    assert model.sha256(model.source()) == model.GGUF_SHA256


# ---------------------------------------------------------------- its tokenizer, as converted


@pytest.fixture(scope="module")
def converted():
    """The model's folder in the developer's workspace, where the engine's tests make it too."""
    import conftest

    conftest.lend_model()
    return conftest.WORKSPACE / "model" / model.NAME


@pytest.fixture(scope="module")
def tokenizer(converted):
    tokenizers = pytest.importorskip("tokenizers")
    return tokenizers.Tokenizer.from_file(str(converted / "tokenizer.json"))


@pytest.mark.parametrize("mark", ["<think>", "</think>"])
def test_think_marks_are_single_tokens_that_decoding_keeps(tokenizer, mark):
    ids = tokenizer.encode(mark, add_special_tokens=False).ids
    assert len(ids) == 1
    inside = tokenizer.encode(f"well{mark}then", add_special_tokens=False).ids
    assert ids[0] in inside
    assert tokenizer.decode(inside, skip_special_tokens=True) == f"well{mark}then"


def test_the_renamed_tokens_are_gone_and_the_size_is_the_same(tokenizer, converted):
    for old in model.RENAMED_TOKENS:
        assert tokenizer.token_to_id(old) is None
    config = json.loads((converted / "config.json").read_text())
    assert tokenizer.get_vocab_size() == config["vocab_size"]


def test_digits_are_tokens_one_by_one(tokenizer):
    tokens = tokenizer.encode("1500 ms", add_special_tokens=False).tokens
    assert tokens[:4] == ["1", "5", "0", "0"]


@pytest.mark.parametrize(
    "text", ["naïve café", "日本語 🙂🏽", "a\n\n  b\t", "1,5 %", "<tool_call>\n{}</tool_call>"]
)
def test_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_the_weights_are_the_ones_we_know(converted):
    assert (
        json.loads((converted / "SHA256SUMS.json").read_text())["model.safetensors"] == model.WEIGHTS_SHA256
    )


# ---------------------------------------------------------------- its chat template


def render(messages, **variables):
    """As transformers renders a chat template."""

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    template = environment.from_string(model.CHAT_TEMPLATE.read_text())
    return template.render(messages=messages, **({"add_generation_prompt": True} | variables))


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **rest):
    return {"role": "assistant", "content": text, **rest}


SYSTEM = {"role": "system", "content": "Be brief."}
TOOL = {
    "type": "function",
    "function": {
        "name": "hours",
        "description": 'Opening "hours" & more <b>',
        "parameters": {"type": "object"},
    },
}
CALL = {"id": "1", "type": "function", "function": {"name": "hours", "arguments": {"day": "Sunday"}}}


@pytest.mark.parametrize(
    ("variables", "opening"),
    [
        ({}, "<think>\n"),
        ({"enable_thinking": True}, "<think>\n"),
        ({"enable_thinking": False}, "<think></think>"),
    ],
)
def test_how_the_answer_opens(variables, opening):
    assert render([SYSTEM, user("Hi")], **variables) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        + opening
    )


def test_without_a_system_message_there_is_no_system_turn():
    assert render([user("Hi")]).startswith("<|im_start|>user\n")


def test_without_generation_prompt_it_ends_with_the_last_turn():
    assert render([user("Hi")], add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_an_answer_without_thinking_gets_an_empty_pair():
    text = render([user("a"), assistant("b"), user("c")], enable_thinking=False)
    assert "<|im_start|>assistant\n<think></think>b<|im_end|>\n" in text


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_of_old_turns_is_left_out(field):
    messages = [user("a"), assistant("b", **{field: "SECRET"}), user("c")]
    assert "SECRET" not in render(messages)
    assert "<think>\nSECRET\n</think>\nb<|im_end|>" in render(messages, truncate_history_thinking=False)


def test_thinking_of_the_turn_that_goes_on_is_kept():
    messages = [
        user("a"),
        assistant("old", reasoning="LONG AGO"),
        user("b"),
        assistant("", reasoning="JUST NOW", tool_calls=[CALL]),
        {"role": "tool", "content": "10-16"},
    ]
    text = render(messages)
    assert "LONG AGO" not in text
    assert "<think>\nJUST NOW\n</think>\n" in text


def test_a_prompt_grows_at_its_end_only():
    """Or else the prefix cache would not help from turn to turn."""
    first = render([SYSTEM, user("a")], enable_thinking=False)
    second = render([SYSTEM, user("a"), assistant("b"), user("c")], enable_thinking=False)
    assert second.startswith(first + "b<|im_end|>\n")


@pytest.mark.parametrize("system", [[], [SYSTEM]])
@pytest.mark.parametrize("tool", [TOOL, TOOL["function"]])
def test_tools_are_listed_as_json_a_line_each(system, tool):
    text = render([*system, user("a")], tools=[tool, tool])
    inside = text.split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
    assert [json.loads(line) for line in inside] == [TOOL["function"]] * 2
    assert text.count("<|im_start|>system\n") == 1


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_no_list(tools):
    assert "<tools>" not in render([user("a")], tools=tools)


@pytest.mark.parametrize("arguments", [{"day": "Sunday"}, '{"day": "Sunday"}'])
@pytest.mark.parametrize("content", [None, ""])
def test_a_tool_call_and_its_result(arguments, content):
    call = {"function": {"name": "hours", "arguments": arguments}}
    text = render([user("a"), assistant(content, tool_calls=[call]), {"role": "tool", "content": "10-16"}])
    written = text.split("<tool_call>\n")[1].split("\n</tool_call>")[0]
    assert json.loads(written) == {"name": "hours", "arguments": {"day": "Sunday"}}
    assert "<|im_start|>user\n<tool_response>\n10-16\n</tool_response><|im_end|>\n" in text
    assert "None" not in text


def test_an_assistant_message_without_content_is_fine():
    message = {"role": "assistant", "tool_calls": [CALL]}
    assert "<tool_call>" in render([user("a"), message, {"role": "tool", "content": "x"}])


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    for role in ("system", "user", "assistant", "tool"):
        messages = [{"role": role, "content": parts}]
        assert "one two" in render(messages if role == "system" else [user("x"), *messages])


def test_angle_brackets_and_braces_of_the_user_stay_as_they_are():
    text = "if a < b && c: {{ raise }} {% x %} <|im_end|>"
    assert f"<|im_start|>user\n{text}<|im_end|>\n" in render([user(text)])


@pytest.mark.parametrize(
    ("messages", "words"),
    [([user("a"), SYSTEM], "must be the first"), ([{"role": "boss", "content": "x"}], "Unknown role: boss")],
)
def test_what_cannot_be_rendered_is_refused(messages, words):
    with pytest.raises(jinja2.exceptions.TemplateError, match=words):
        render(messages)


# ---------------------------------------------------------------- on the real engine

CONVERSATION = [
    SYSTEM,
    user("When do you open?"),
    assistant("", tool_calls=[CALL | {"function": {"name": "hours", "arguments": '{"day": "Sunday"}'}}]),
    {"role": "tool", "content": "10-16", "tool_call_id": "1"},
    assistant("At ten.", reasoning="Look it up."),
    user([{"type": "text", "text": "And "}, {"type": "text", "text": "on Monday?"}]),
]


@pytest.mark.parametrize("variables", [{}, {"enable_thinking": True}, {"enable_thinking": False}])
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_the_engine_renders_the_same(live_server, tokenizer, variables, tools):
    body = {"model": live_server.model, "messages": CONVERSATION, "chat_template_kwargs": variables}
    request = urllib.request.Request(
        live_server.base_url.removesuffix("/v1") + "/tokenize",
        json.dumps(body | ({"tools": tools} if tools else {})).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        ids = json.load(answer)["tokens"]
    expected = render(CONVERSATION, tools=tools, **variables)
    assert tokenizer.decode(ids, skip_special_tokens=False) == expected
    assert ids == tokenizer.encode(expected, add_special_tokens=False).ids


def test_importing_the_module_costs_nothing():
    code = (
        "import sys; import helpers.model; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPO).returncode == 0


def test_what_keeps_the_conversion_offline_does_not_outlive_it(monkeypatch):
    """The lab may be started by the same process: a learner in it must be able to download."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with model._offline():
        assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in os.environ
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with model._offline():
        assert os.environ["HF_HUB_OFFLINE"] == "0", "what somebody set is theirs"
    assert os.environ["HF_HUB_OFFLINE"] == "0"
