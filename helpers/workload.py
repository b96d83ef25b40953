"""Phone calls as data: who says how much, when, and why so.

A load is only as honest as its callers. This module reads a kind of call from ``data/workloads/``, where
every parameter stands with its unit, reason and origin, and makes calls of it: the same for the same seed.

Time in a call goes round like this; only the third step is work for the server::

    think ──> speak ──> the answer streams ──> listen ──> think ...
                   due

The request is due when the caller has said the last word. A real agent waits a little longer, to be sure that
it was the last one (endpointing); that wait belongs to another stage of the budget and is no part of this.
The caller speaks for the words of the turn at a speaking rate; listens for as long as the agent's voice needs
for the words of the *real* answer, from its first token on; and thinks for a random time. A turn that calls
a tool is two requests: one that ends in the call, and, after the shop's own system has answered, one that
tells the caller.

The system prompt is the same for all calls and the rest is each call's own, so a prefix cache can keep the
first and must not keep the second: :meth:`Call.opening` puts a number before the caller's first words.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import pandas as pd

from helpers import arguments, prompts, published
from helpers.origins import validate
from helpers.settings import DATA, CourseError

WORKLOADS = DATA / "workloads"
COLUMNS = ("parameter", "value", "unit", "reason", "origin", "source", "date")
WHOLE = ("lines", "turns", "words", "tokens")  # units that come in whole numbers only
NEEDED = (
    "system_rules",
    "turns_low",
    "turns_high",
    "caller_words_low",
    "caller_words_high",
    "caller_words_per_minute",
    "agent_words_per_minute",
    "think_median_s",
    "think_sigma",
    "tool_share",
    "tool_s",
    "answer_tokens",
)


@dataclass(frozen=True)
class Parameter:
    """One number that shapes the calls, and who says so.

    Attributes:
        name: what the code calls it.
        value: in ``unit``.
        unit: such as ``words per minute``.
        reason: one sentence: what it is and why it is so large.
        origin: one of :data:`helpers.origins.ORIGINS`.
        source: who says so; ``our assumption`` unless published.
        date: when.
    """

    name: str
    value: float
    unit: str
    reason: str
    origin: str
    source: str = "our assumption"
    date: str = ""


@dataclass(frozen=True)
class Turn:
    """What a caller does once.

    Attributes:
        user: the words.
        speak_s: seconds it takes to say them; the request is due at their end.
        think_s: seconds of silence before them: after the agent's last word, or after the call began.
        calls_tool: the agent has to look something up: two requests.
        max_tokens: longest answer.
        tool_s: seconds the looking up takes, outside the server.
    """

    user: str
    speak_s: float
    think_s: float
    calls_tool: bool
    max_tokens: int
    tool_s: float = 0.0


@dataclass(frozen=True)
class Call:
    """A phone call: its id (the same for the same seed), the system prompt, and the caller's turns."""

    id: str
    system: str
    turns: tuple[Turn, ...]

    def opening(self, mark: str) -> str:
        """The caller's first words behind a number of the call's own, such as ``My number is 8f3a2c 0-0007.``
        With a new ``mark`` for each run nothing of the call but the system prompt can be in a prefix cache
        already. (A phone line tells the number by itself, so it takes no time to say.)"""
        return f"My number is {mark} {self.id}. {self.turns[0].user}"

    def at_once(self) -> Call:
        """The same call, but the first words are said before it begins: for a burst."""
        return replace(self, turns=(replace(self.turns[0], speak_s=0.0, think_s=0.0), *self.turns[1:]))


@dataclass(frozen=True)
class Workload:
    """A kind of call. Made by :func:`load`.

    Attributes:
        name: the file under ``data/workloads/``.
        title: one line.
        parameters: what shapes the calls.
        changes: how a scaled version differs from the file, a sentence each.
    """

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    changes: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        """One parameter, in its unit.

        Raises:
            CourseError: there is none of this name.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter.value
        listed = ", ".join(parameter.name for parameter in self.parameters)
        raise CourseError(f"The workload {self.name} has no parameter {name!r}. It has: {listed}.")

    def table(self) -> pd.DataFrame:
        """One row a parameter: ``parameter``, ``value``, ``unit``, ``reason``, ``origin``, ``source``,
        ``date``."""
        rows = [tuple(vars(parameter).values()) for parameter in self.parameters]
        return validate(pd.DataFrame(rows, columns=list(COLUMNS)), used_by="Workload.table")

    def sentence(self) -> str:
        """What is sent, for a caption or a run's conditions."""
        return (
            f"{self.title}; {self.value('turns_low'):g} to {self.value('turns_high'):g} turns of "
            f"{self.value('caller_words_low'):g} to {self.value('caller_words_high'):g} words, answers of at "
            f"most {self.value('answer_tokens'):g} tokens, a system prompt of "
            f"{self.value('system_rules'):g} rules, {self.value('tool_share'):.0%} of the turns with a tool"
            + (f" (scaled: {'; '.join(self.changes)})" if self.changes else "")
        )

    def calls(self, count: int, *, seed: int = 0) -> list[Call]:
        """The first ``count`` calls. The same seed gives the same calls, and more of them begin with the
        same ones."""
        return [self.call(number, seed=seed) for number in range(count)]

    def stream(self, *, seed: int = 0) -> Iterator[Call]:
        """The same calls, one after another without end."""
        return (self.call(number, seed=seed) for number in count())

    def call(self, number: int, *, seed: int = 0) -> Call:
        """Call ``number`` (from 0) of this seed."""
        chance = Random(f"{self.name} {seed} {number}")  # a text as seed: the same on every machine
        turns = chance.randint(int(self.value("turns_low")), int(self.value("turns_high")))
        return Call(
            id=f"{seed}-{number:04d}",
            system=f"{prompts.AGENT}\n{prompts.rules(int(self.value('system_rules')))}",
            turns=tuple(self._turn(chance) for _ in range(turns)),
        )

    def _turn(self, chance: Random) -> Turn:
        words = chance.randint(int(self.value("caller_words_low")), int(self.value("caller_words_high")))
        calls_tool = chance.random() < self.value("tool_share")
        user = _speech(words, chance, calls_tool)
        return Turn(
            user=user,
            speak_s=spoken_s(user, self.value("caller_words_per_minute")),
            think_s=self.value("think_median_s") * math.exp(chance.gauss(0, self.value("think_sigma"))),
            calls_tool=calls_tool,
            max_tokens=int(self.value("answer_tokens")),
            tool_s=self.value("tool_s") if calls_tool else 0.0,
        )

    def listen_s(self, answer: str) -> float:
        """Seconds that the agent's voice needs for an answer."""
        return spoken_s(answer, self.value("agent_words_per_minute"))

    def scaled(
        self,
        *,
        turns: float = 1,
        words: float = 1,
        answer: float = 1,
        rules: float = 1,
        pauses: float = 1,
        tools: float = 1,
        pace: float = 1,
    ) -> Workload:
        """A version of other size, for a slower machine or less time. What differs is said in
        :attr:`changes`, in :meth:`sentence` and in the table's reasons.

        Args:
            turns: factor for the turns of a call.
            words: for the caller's words.
            answer: for the longest answer.
            rules: for the system prompt.
            pauses: for the caller's thinking.
            tools: for the share of turns with a tool; 0 leaves them out.
            pace: for the speaking rates, of caller and agent. Above 1 a call is a time-lapse: its requests
                come sooner after one another, so it loads the server as several calls do.

        Raises:
            CourseError: a factor is not above 0.
        """
        scale = {
            "turns_low": turns,
            "turns_high": turns,
            "caller_words_low": words,
            "caller_words_high": words,
            "answer_tokens": answer,
            "system_rules": rules,
            "think_median_s": pauses,
            "tool_share": tools,
            "caller_words_per_minute": pace,
            "agent_words_per_minute": pace,
        }
        named = {"turns": turns, "words": words, "answer": answer, "rules": rules, "pauses": pauses}
        for name, factor in (named | {"pace": pace}).items():
            arguments.number(name, factor, above=0, example="0.5 (half as much)")
        arguments.number("tools", tools, least=0, example="0 (no tools)")
        parameters, changes = [], []
        for old in self.parameters:
            factor = scale.get(old.name, 1)
            value = old.value * factor
            value = max(1, round(value)) if old.unit in WHOLE else value
            if factor == 1 or value == old.value:
                parameters.append(old)
                continue
            was = f"{value:g} instead of {old.value:g} {old.unit}"
            changes.append(f"{old.name} {was}")
            parameters.append(replace(old, value=value, reason=f"{old.reason} (scaled: {was})"))
        return replace(self, parameters=tuple(parameters), changes=(*self.changes, *changes))

    def short(self) -> Workload:
        """The version for the small engine on this machine: about three short turns a call, and no tools.
        vLLM holds back the beginning of a tool's call until its name is complete: on this engine that takes
        most of the lesson's limit with nobody else on the line (``data/runs/05-tools.csv``), and with a few
        others more than all of it."""
        return self.scaled(turns=0.4, words=0.4, answer=0.34, rules=0.25, pauses=0.5, tools=0)


def names() -> list[str]:
    """The kinds of calls there are."""
    return sorted(path.stem for path in WORKLOADS.glob("*.toml"))


def load(name: str = "support-call") -> Workload:
    """Read a kind of call from ``data/workloads/<name>.toml``.

    Raises:
        CourseError: there is no such file, or it lacks a parameter or has one that is out of range.
    """
    path = WORKLOADS / f"{name}.toml"
    if name not in names():
        raise CourseError(
            f"There is no workload {name!r} in data/workloads/. There are: {', '.join(names())}."
        )
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
        parameters = tuple(_parameter(entry) for entry in plain["parameters"])
        workload = Workload(plain["name"], plain["title"], parameters)
        missing = sorted(set(NEEDED) - {parameter.name for parameter in parameters})
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        for low, high in (("turns_low", "turns_high"), ("caller_words_low", "caller_words_high")):
            if not 1 <= workload.value(low) <= workload.value(high):
                raise ValueError(f"{low} and {high} are not in order, or below 1")
        if not 0 <= workload.value("tool_share") <= 1:
            raise ValueError("tool_share is no share")
    except (ValueError, KeyError, TypeError) as problem:
        raise CourseError(
            f"data/workloads/{path.name} cannot be used: {problem}.\nCompare it with support-call.toml."
        ) from problem
    workload.table()  # says so if a row has no origin
    return workload


def spoken_s(text: str, words_per_minute: float) -> float:
    """Seconds it takes to say a text."""
    return len(text.split()) / words_per_minute * 60


def _parameter(entry: dict[str, Any]) -> Parameter:
    if "row" not in entry:
        return Parameter(**entry)
    row = published.table(entry["row"]).iloc[0]
    return Parameter(
        name=entry["name"],
        value=float(row["value"]),
        unit=row["unit"],
        reason=entry["reason"],
        origin=row["origin"],
        source=row["source"],
        date=row["date"],
    )


_SENTENCES = (
    "Yes, please.",
    "That is right.",
    "Are you sure?",
    "It should have come last week.",
    "The box was open when it arrived.",
    "One of the lights does not work.",
    "I called about this two days ago.",
    "My neighbour says he has not seen it.",
    "Can I send it back to you?",
    "The brakes make a terrible noise.",
    "I would like my money back.",
    "Could you send it to my office?",
    "How long will that take, do you think?",
    "I need it before the weekend, we are going away.",
    "Let me look, I have the letter here somewhere.",
    "Somebody wanted to call me back, and nobody did.",
    "Do I have to pay for the parcel myself?",
    "The saddle is the wrong one, I ordered a black one.",
)


_WORDS = {sentence: len(sentence.split()) for sentence in _SENTENCES}


def _speech(words: int, chance: Random, calls_tool: bool) -> str:
    """Sentences of about ``words`` words in all; a caller whose order is looked up names its number."""
    said = [f"Where is order {chance.randint(1000, 9999)}?"] if calls_tool else []
    left = words - sum(len(sentence.split()) for sentence in said)
    while left > 0:
        fitting = [sentence for sentence in _SENTENCES if _WORDS[sentence] <= left]
        if not fitting and said:
            break
        new = [sentence for sentence in fitting or _SENTENCES[:2] if sentence not in said[-3:]]
        said.append(chance.choice(new or ["Yes."]))
        left -= len(said[-1].split())
    return " ".join(said)
