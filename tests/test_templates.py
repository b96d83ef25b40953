"""Chat templates: rendered as transformers and vLLM do, and saying whose they are."""

import json
import urllib.request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import prompts, templates
from helpers.settings import CourseError
from helpers.templates import Template

HELLO = prompts.conversation(prompts.HELLO)
CALL = {
    "role": "assistant",
    "content": "",
    "reasoning": "Look it up.",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "find_order", "arguments": '{"order": "1234"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": '{"status": "sent"}'}
TURNS = [*prompts.conversation("Where is order 1234?"), CALL, RESULT]
BOTH = [templates.phonellm(lambda *_: None), templates.embedded()]


@pytest.fixture(params=BOTH, ids=lambda template: template.name)
def template(request):
    return request.param


def test_thinking_is_on_unless_switched_off(template):
    assert template.ending(HELLO) == "<|im_start|>assistant\n<think>\n"
    assert template.ending(HELLO, enable_thinking=True) == template.ending(HELLO)
    assert template.ending(HELLO, enable_thinking=False) == "<|im_start|>assistant\n<think></think>"


def test_the_ending_belongs_to_the_request_alone(template):
    assert template.render(HELLO, add_generation_prompt=False).endswith("<|im_end|>\n")


def test_thoughts_of_earlier_turns_are_dropped_unless_kept(template):
    earlier = [*HELLO, {"role": "assistant", "reasoning": "SECRET", "content": "Yes?"}]
    later = [*earlier, {"role": "user", "content": "1234"}]
    assert "SECRET" in template.render(earlier)
    assert "SECRET" not in template.render(later)
    assert "<think></think>Yes?" in template.render(later)
    assert "<think>\nSECRET\n</think>" in template.render(later, truncate_history_thinking=False)


def test_the_thought_before_a_tools_result_is_still_there(template):
    text = template.render(TURNS)
    assert "Look it up." in text
    assert '<|im_start|>user\n<tool_response>\n{"status": "sent"}\n</tool_response><|im_end|>' in text


def test_each_writes_calls_in_its_own_way():
    xml, as_json = (template.render(TURNS, tools=[prompts.ORDER_TOOL]) for template in BOTH)
    assert "<function=find_order>\n<parameter=order>\n1234\n</parameter>\n</function>\n</tool_call>" in xml
    assert '<tool_call>\n{"name": "find_order", "arguments": {"order": "1234"}}\n</tool_call>' in as_json
    for text in (xml, as_json):
        assert text.count('"name": "find_order", "description"') == 1


def test_two_calls_in_one_turn_keep_apart():
    two = CALL | {"tool_calls": CALL["tool_calls"] * 2}
    text = BOTH[0].render([*TURNS[:2], two])
    assert "</tool_call>\n<tool_call>" in text


def test_arguments_may_be_text_or_an_object(template):
    function = CALL["tool_calls"][0]["function"] | {"arguments": {"order": "1234"}}
    as_object = CALL | {"tool_calls": [CALL["tool_calls"][0] | {"function": function}]}
    assert template.render([*TURNS[:2], as_object]) == template.render([*TURNS[:2], CALL])


def test_the_messages_stay_as_they_were(template):
    before = json.dumps(TURNS)
    template.render(TURNS)
    assert json.dumps(TURNS) == before


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"role": "robot", "content": "x"}], "Unknown role"),
        ([*HELLO, {"role": "system", "content": "x"}], "must be the first"),
        (
            [*HELLO, CALL | {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{half"}}]}],
            "not JSON",
        ),
    ],
)
def test_what_it_refuses_is_said_in_words(template, messages, says):
    with pytest.raises(CourseError, match=says):
        template.render(messages)


def test_a_template_from_a_download_runs_in_a_sandbox():
    nasty = Template("x", "{{ messages.__class__.__mro__[1].__subclasses__() }}", "somewhere")
    with pytest.raises(CourseError, match="chat template of x"):
        nasty.render(HELLO)
    broken = Template("x", "{% if %}", "somewhere")
    with pytest.raises(CourseError, match="chat template of x"):
        broken.render(HELLO)


def test_json_in_a_template_is_not_written_for_html():
    assert Template("x", "{{ tools | tojson }}", "").render(HELLO, tools=[{"a": "<é>"}]) == '[{"a": "<é>"}]'


def test_the_marks_for_training_change_nothing():
    marked = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    )
    assert Template("x", marked, "").render(HELLO) == HELLO[0]["content"]


def test_phonellms_own_file_is_used_once_it_is_there(tmp_path):
    own = tmp_path / "chat_template.jinja"
    own.write_text("{{ messages[0].content }}!", encoding="utf-8")
    asked = []
    found = templates.phonellm(lambda *names: asked.append(names) or own)
    assert asked == [("pipecat-ai/phonellm-alpha-1", "chat_template.jinja")]
    assert not found.reconstruction
    assert found.render(HELLO).endswith("!")
    ours = templates.phonellm(lambda *names: None)
    assert ours.reconstruction
    assert "reconstruction" in ours.source
    assert "reconstruction" in ours.text.partition("#}")[0]  # the file says so itself, at its top


CONTENT = st.text(st.characters(codec="utf-8"), max_size=40)
ROLES = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), CONTENT), min_size=1, max_size=5)


@settings(deadline=None)  # the first call imports transformers
@given(ROLES, st.booleans(), st.booleans())
def test_it_renders_what_transformers_renders(turns, thinking, tools):
    library = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [{"role": role, "content": content} for role, content in turns]
    offered = [prompts.ORDER_TOOL] if tools else None
    for one in BOTH:
        theirs = library.render_jinja_template(
            conversations=[messages],
            tools=offered,
            chat_template=one.text,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        texts = theirs[0] if isinstance(theirs, tuple) else theirs
        assert one.render(messages, tools=offered, enable_thinking=thinking) == texts[0]


@pytest.mark.parametrize("thinking", [True, False])
def test_the_live_server_makes_the_same_prompt(live_server, thinking):
    """vLLM's own tokens of the messages are its tokens of our text."""

    def tokens(body: dict) -> list[int]:
        request = urllib.request.Request(
            live_server.base_url.removesuffix("/v1") + "/tokenize",
            json.dumps({"model": live_server.model} | body).encode(),
            {"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            return json.load(response)["tokens"]

    offered = [prompts.ORDER_TOOL]
    theirs = {"messages": TURNS, "tools": offered, "chat_template_kwargs": {"enable_thinking": thinking}}
    text = templates.embedded().render(TURNS, tools=offered, enable_thinking=thinking)
    assert tokens(theirs) == tokens({"prompt": text, "add_special_tokens": False})
