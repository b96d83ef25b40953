"""The list of known problems, and the tests for them: each must see the problem where it is made, and not
where it is not."""

from __future__ import annotations

import re

import pytest
from fakeserver import DONE, ROLE, Script, chunk, event, serve, tool_call, usage_chunk

from helpers import api, architecture, known_problems, memory, model, prompts, published
from helpers.known_problems import FINE, PROBLEM, QUESTIONS, UNKNOWN
from helpers.settings import REPO, Server


def thinks(body: dict) -> bool:
    """Whether this request asks for thinking, on a server that does it unless told not to."""
    return body.get("chat_template_kwargs", {}).get("enable_thinking", True)


def says(body: dict, content: str | None = None, **more) -> Script | list:
    """An answer, streamed or not, as the request asks."""
    if body.get("stream"):
        return [(0, ROLE), (0, chunk(content, **more)), (0, chunk("", finish="stop")), (0, DONE)]
    message = {"role": "assistant", "content": content, **more}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return Script([(0, event(whole)[6:-2])], content_type="application/json")


def question(body: dict) -> str:
    return body["messages"][-1]["content"]


def test_the_list_is_whole_and_the_dangerous_one_first():
    table = known_problems.table()
    assert table.index[0] == "wrong-text-nvfp4"
    assert len(table) == 30
    assert table.index.is_unique
    assert not (table == "").any(axis=None)
    assert "flashinfer_cutlass" in table.loc["wrong-text-nvfp4", "what_to_do"]
    assert table["date"].str.match(r"20\d\d").all()


def test_the_tests_that_the_list_names_exist():
    text = " ".join(known_problems.table()["how_to_test"])
    named = set(re.findall(r"known_problems\.(\w+)\(server\)", text))
    assert named == {test.__name__ for test in known_problems.TESTS}


def test_each_test_is_about_a_row_of_the_list():
    with open(known_problems.__file__) as file:
        source = file.read()
    used = set(re.findall(r'_about\(server, "([a-z0-9-]+)"\)', source))
    assert used
    assert used <= set(known_problems.table().index)


def test_the_small_model_is_known_by_its_name():
    assert known_problems.SMALL_MODEL == model.NAME


# --- wrong text ---------------------------------------------------------------------------------------------

RIGHT = {asked: words[0].title() + "." for asked, words in QUESTIONS}


def test_right_answers_are_fine():
    with serve(lambda body: says(body, RIGHT[question(body)])) as server:
        assert known_problems.wrong_text(server.as_server()).verdict == FINE
    assert all(body["temperature"] == 0 and not thinks(body) for body in server.bodies)


def test_fluent_wrong_text_is_seen():
    with serve(lambda body: says(body, "Of course, I am happy to help you with 142 things.")) as server:
        found = known_problems.wrong_text(server.as_server())
    assert found.verdict == PROBLEM
    assert found.saw == f"0 of {len(QUESTIONS)} right"
    assert "flashinfer_cutlass" in found.meaning


def test_a_number_within_a_number_is_not_right():
    with serve(lambda body: says(body, "142")) as server:
        assert not known_problems.answers(server.as_server())["right"].any()


def test_the_small_models_failure_is_not_called_a_broken_kernel():
    with serve(lambda body: says(body, "1. 1. 1.")) as server:
        found = known_problems.wrong_text(server.as_server(model=model.NAME))
    assert found.verdict == UNKNOWN
    assert "small model" in found.meaning


# --- thinking -----------------------------------------------------------------------------------------------


def test_a_server_that_keeps_thinking_apart_is_fine():
    def script(body):
        return says(body, reasoning="hm") if thinks(body) else says(body, "Hello.")

    with serve(script) as server:
        found = known_problems.think_leak(server.as_server())
    assert found.verdict == FINE
    assert "thinks unless the request says no" in found.saw
    assert len(server.bodies) == 4


def test_a_mark_in_the_answer_is_seen():
    with serve(lambda body: says(body, "</think>Hello.")) as server:
        found = known_problems.think_leak(server.as_server())
    assert found.verdict == PROBLEM
    assert "</think>" in found.saw


def test_the_answer_in_the_reasoning_field_is_seen():
    with serve(lambda body: says(body, reasoning="Hello.")) as server:
        found = known_problems.think_leak(server.as_server())
    assert found.verdict == PROBLEM
    assert "streamed, off in the request: the answer came in the reasoning field" in found.saw


def test_the_plugins_way_is_seen():
    """As seen with vLLM 0.27.1: thinking off by the server's default only, and not streamed."""

    def script(body):
        wrong_field = "chat_template_kwargs" not in body and not body.get("stream")
        return says(body, reasoning="Hello.") if wrong_field else says(body, "Hello.")

    with serve(script) as server:
        found = known_problems.think_leak(server.as_server())
    assert found.verdict == PROBLEM
    assert found.saw == "not streamed, off by the server's default: the answer came in the reasoning field"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_the_name_of_the_field_is_told(name):
    with serve([(0, ROLE), (0, chunk(**{name: "hm"})), (0, chunk("4")), (0, DONE)]) as server:
        found = known_problems.field_name(server.as_server())
    assert found.verdict == FINE
    assert name in found.saw.split(": ")[1].split(", ")
    assert thinks(server.bodies[0])


def test_thinking_in_the_content_is_seen():
    with serve([(0, ROLE), (0, chunk("<think>hm</thi")), (0, chunk("nk>4")), (0, DONE)]) as server:
        assert known_problems.field_name(server.as_server()).verdict == PROBLEM


def test_no_thinking_at_all_is_no_verdict():
    with serve([(0, ROLE), (0, chunk("4")), (0, DONE)]) as server:
        assert known_problems.field_name(server.as_server()).verdict == UNKNOWN


# --- the cache ----------------------------------------------------------------------------------------------


def cache(hits, other_answer=False):
    """A server with a prefix cache: ``hits`` makes of a prompt's tokens those that come from it."""
    seen = set()

    def script(body):
        prompt = question(body)
        again = prompt in seen
        seen.add(prompt)
        tokens = len(prompt) // 4
        cached = hits(tokens) if again else 0
        details = {"prompt_tokens_details": {"cached_tokens": cached}} if hits else {}
        answer = "4 days." if not (again and other_answer) else "!!!!"
        usage = usage_chunk(3, tokens, **details)
        return [(0, ROLE), (0, chunk(answer)), (0, chunk("", finish="stop")), (0, usage), (0, DONE)]

    return script


@pytest.mark.parametrize(
    ("script", "verdict", "problem"),
    [
        (cache(lambda tokens: tokens // 16 * 16), FINE, "short-prompt-no-hit"),
        (cache(lambda tokens: tokens // 528 * 528), PROBLEM, "short-prompt-no-hit"),
        (cache(lambda tokens: tokens // 2096 * 2096), PROBLEM, "short-prompt-no-hit"),
        (cache(lambda tokens: 0), PROBLEM, "prefix-cache-off"),
        (cache(lambda tokens: tokens // 16 * 16, other_answer=True), PROBLEM, "mamba-cache-all-nan"),
        (cache(None), UNKNOWN, "short-prompt-no-hit"),
    ],
    ids=["works", "mamba blocks", "PhoneLLM's blocks", "off", "garbage", "not reported"],
)
def test_the_prefix_cache(script, verdict, problem):
    with serve(script) as server:
        found = known_problems.prefix_hits(server.as_server())
    assert (found.verdict, found.problem) == (verdict, problem)


def block_tokens(kv_dtype: str) -> int:
    """Tokens of a block of PhoneLLM's prefix cache in mode align: as many, in steps of 16, as take up one
    Mamba layer's state. Source: vllm 0.27.1, platforms/interface.py, "Setting attention block size to"."""
    arch = architecture.phonellm()
    state = memory.mamba_state_bytes(arch) // arch.layers.count("mamba")
    token = memory.kv_bytes_per_token(arch, kv_dtype) // arch.layers.count("attention")
    return -(-state // (16 * token)) * 16


def test_the_long_prompt_fills_a_block_of_phonellms_cache():
    """A shorter one would have no hit on a server whose cache works, and the test would call it off."""
    block = block_tokens("bfloat16")
    assert block == published.value("vllm.mamba_block")  # its sister's, whose shape is the same
    assert len(prompts.rules(known_problems.LONG_LINES)) / 4 > block  # no tokenizer makes fewer of this text
    row = known_problems.table().loc["short-prompt-no-hit", "problem"]
    assert f"{block:,} for PhoneLLM with a BF16 KV cache" in row
    assert block_tokens("fp8") / block == pytest.approx(2, rel=0.01)  # "about twice"


def test_the_list_names_no_variable_that_the_pinned_vllm_lacks():
    """Unless it says so."""
    envs = pytest.importorskip("vllm.envs")
    for name, row in known_problems.table().iterrows():
        for variable in re.findall(r"VLLM_[A-Z0-9_]+", " ".join(row)):
            gone = f"{variable}=1, which 0.27.1 no longer knows" in row["what_to_do"]
            assert (variable in envs.environment_variables) != gone, f"{name}: {variable}"


def test_the_flashinfer_of_the_list_is_the_pinned_one():
    [pinned] = re.findall(r"(?m)^flashinfer-python==(\S+)", (REPO / "requirements" / "gpu.txt").read_text())
    assert f"comes with {pinned}" in known_problems.table().loc["flashinfer-nan", "affects"]


# --- sampling, tools, the queue -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("varies", "verdict"),
    [
        (lambda body: "temperature" not in body, PROBLEM),
        (lambda body: False, FINE),
        (lambda body: True, UNKNOWN),
    ],
    ids=["samples by default", "does not", "always varies"],
)
def test_sampling_by_default(varies, verdict):
    count = iter(range(100))
    with serve(lambda body: says(body, f"Fact {next(count) if varies(body) else 0}")) as server:
        assert known_problems.temperature_default(server.as_server()).verdict == verdict


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ([(0, ROLE), (0, tool_call("find_order", '{"order": "4815"}')), (0, DONE)], FINE),
        ([(0, ROLE), (0, chunk("<tool_call><function=find_order>")), (0, DONE)], PROBLEM),
        ([(0, ROLE), (0, chunk("Let me see.")), (0, DONE)], UNKNOWN),
        (Script([(0, b'{"error": {"message": "no auto"}}')], 400, "application/json"), UNKNOWN),
    ],
    ids=["parsed", "raw", "no call", "refused"],
)
def test_tool_calls(steps, verdict):
    with serve(steps) as server:
        assert known_problems.raw_tool_call(server.as_server()).verdict == verdict


@pytest.mark.parametrize(
    ("page", "verdict"),
    [
        ('vllm:num_requests_running{engine="0"} 64\nvllm:num_requests_waiting{engine="0"} 12\n', PROBLEM),
        ("sglang:num_running_reqs 3\nsglang:num_queue_reqs 0\n", FINE),
        ("process_cpu_seconds_total 3\n", UNKNOWN),
    ],
    ids=["vllm", "sglang", "other"],
)
def test_the_queue(page, verdict, monkeypatch):
    monkeypatch.setattr(api, "page", lambda server, path, **more: page)
    assert known_problems.queueing(Server("http://127.0.0.1:9/v1", "m")).verdict == verdict


def test_a_server_without_metrics_is_no_verdict():
    with serve([(0, DONE)]) as server:
        assert known_problems.queueing(server.as_server()).verdict == UNKNOWN


@pytest.mark.parametrize("test", known_problems.TESTS, ids=lambda test: test.__name__)
def test_a_server_that_fails_is_no_finding(test):
    with serve(Script([(0, b'{"error": {"message": "out of order"}}')], 500, "application/json")) as server:
        found = test(server.as_server())
    assert found.verdict == UNKNOWN
    assert found.problem in known_problems.table().index


@pytest.mark.parametrize(
    "steps",
    [
        [(0, event({"choices": [{"delta": "x"}]})), (0, DONE)],
        [(0, event({"choices": [{"delta": {"content": 5}}]})), (0, DONE)],
        [(0, event({"choices": "x", "usage": [1]})), (0, DONE)],
        [(0, b"data: " + b"[" * 100_000 + b"\n\n"), (0, DONE)],
        Script([(0, b'{"choices": []}')], content_type="application/json"),
        Script([(0, b"<html>login</html>")], content_type="text/html"),
    ],
)
@pytest.mark.parametrize("test", [known_problems.think_leak, known_problems.temperature_default,
                                  known_problems.field_name, known_problems.prefix_hits])  # fmt: skip
def test_a_server_that_answers_nonsense_is_neither_fine_nor_a_traceback(test, steps):
    with serve(steps) as server:
        assert test(server.as_server()).verdict == known_problems.UNKNOWN


def test_all_at_once_make_a_table_with_the_origin():
    with serve(lambda body: says(body, "Hello.")) as server:
        frame = known_problems.check(server.as_server(), known_problems.think_leak)
    assert list(frame.columns) == ["problem", "verdict", "saw", "meaning", "server", "origin"]
    assert frame["origin"].tolist() == ["measured"]


def test_on_the_engine_itself(live_server):
    """What the course's engine is known to do: it samples by default, its cache and its parser work."""
    tests = (known_problems.think_leak, known_problems.prefix_hits, known_problems.field_name)
    frame = known_problems.check(live_server, *tests)
    assert frame["verdict"].tolist() == [FINE, FINE, FINE], frame.to_string()
    assert known_problems.temperature_default(live_server).verdict == PROBLEM
    assert known_problems.queueing(live_server).verdict == FINE
