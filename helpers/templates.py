"""Chat templates: from a list of messages to the one text that a model reads.

A model knows no messages; it continues a text. The template, a small program in the Jinja language that comes
with the model, makes that text. :meth:`Template.render` runs it as vLLM does (through transformers): in a
sandbox, because the program comes from a download; with blocks trimmed; and with the few functions that
templates count on.

PhoneLLM's own file is used where it has been downloaded (lesson 02). Until then :func:`phonellm` gives our
reconstruction of it, ``data/phonellm/chat_template.jinja``, and says so.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from helpers import model
from helpers.settings import DATA, CourseError

REPOSITORY = "pipecat-ai/phonellm-alpha-1"
FILE = "chat_template.jinja"
RECONSTRUCTION = DATA / "phonellm" / FILE
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>"}  # names that some templates write out

Message = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """One chat template.

    Attributes:
        name: the model it belongs to, for people.
        text: the program, in Jinja.
        source: where the text is from, in words.
        reconstruction: it is our own reconstruction, not the model's file.
    """

    name: str
    text: str = field(repr=False)
    source: str
    reconstruction: bool = False

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The prompt, as the server makes it before it counts tokens.

        Args:
            messages: as in a chat request. Arguments of tool calls may be JSON text or a dict.
            tools: as in a chat request.
            add_generation_prompt: end with the opening of the assistant's turn, which is what a server does.
            **options: what a request sends as ``chat_template_kwargs``, such as ``enable_thinking=False``.

        Raises:
            CourseError: the template refuses these messages, or is no template.
        """
        prepared = [_with_arguments(message) for message in messages]
        try:
            return _compiled(self.text).render(
                messages=prepared,
                tools=list(tools) if tools else None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **(SPECIAL_TOKENS | options),
            )
        except (jinja2.TemplateError, TypeError, LookupError) as error:
            raise CourseError(
                f"The chat template of {self.name} does not take these messages: {error}\n"
                "Each needs a role (system first, then user, assistant, tool) and a content that is text."
            ) from error

    def ending(self, messages: Sequence[Message], **options: Any) -> str:
        """What the template adds behind the last message: the opening of the assistant's turn."""
        whole = self.render(messages, **options)
        return whole[len(self.render(messages, add_generation_prompt=False, **options)) :]


def embedded() -> Template:
    """The template of the small model that the embedded engine serves."""
    text = model.CHAT_TEMPLATE.read_text(encoding="utf-8")
    return Template(model.LABEL, text, "this course's own, in PhoneLLM's manner")


def phonellm(find: Callable[[str, str], Path | None] | None = None) -> Template:
    """PhoneLLM's template: its own file if it is in the download folder, else our reconstruction.

    Args:
        find: says where a file of a repository is on this disk, or None; by default ``helpers.hub.find``.
    """
    path = (find or _find)(REPOSITORY, FILE)
    if path is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return Template("PhoneLLM Alpha 1", path.read_text(encoding="utf-8"), "the downloaded file")
    text = RECONSTRUCTION.read_text(encoding="utf-8")
    return Template("PhoneLLM Alpha 1", text, "our reconstruction from published facts", True)


def _find(repository: str, name: str) -> Path | None:
    try:
        hub = importlib.import_module("helpers.hub")
    except ModuleNotFoundError:
        return None
    return hub.find(repository, name)


# --- Jinja as transformers sets it up ---------------------------------------------------------------------


class _Generation(Extension):
    """``{% generation %}`` marks the model's own words for training; for a prompt it changes nothing."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's content as if the tag were not there."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _compiled(text: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(text)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter writes for HTML: it would turn < into \u003c.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _with_arguments(message: Message) -> Message:
    """The message with the arguments of its tool calls as a dict, as vLLM hands them to the template; on the
    wire they are JSON text."""
    calls = message.get("tool_calls")
    return message | {"tool_calls": list(_parsed(calls))} if calls else message


def _parsed(calls: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for call in calls:
        function = call["function"]
        arguments = function["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError as error:
                raise CourseError(
                    f"The arguments of the call of {function['name']} are not JSON: {arguments!r}.\n"
                    "Pass them on as the server sent them, or make them with json.dumps."
                ) from error
        yield call | {"function": function | {"arguments": arguments}}
