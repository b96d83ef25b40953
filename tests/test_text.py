"""Numbers in prose are checked, not remembered.

Each number in a lesson's text is either quoted from a table or the code (then its pattern here says from
which), or it is one of the few that mean no fact: a lesson's number, minutes, an exercise, a P95, the inputs
of an exercise's own cases. A number that is neither fails, with its cell.
"""

from __future__ import annotations

import ast
import re

import pandas as pd
import pytest

from helpers import engine, lessons, prompts, published, recipes, settings, sources, stats

SOURCES = sources.paths()
LESSONS = pd.read_csv(settings.DATA / "lessons.csv", dtype={"lesson": str})

# What the text may say -> what it must then be true of. One line for each claim; all lessons share them.
CLAIMS = {
    r"1500 ms": lambda: published.value("card.limit") == 1500,
    r"31\.6 billion": lambda: round(published.value("phonellm.parameters") / 1e9, 1) == 31.6,
    r"135 million": lambda: round(published.value("smollm2.parameters") / 1e6) == 135,
    r"1/235": lambda: (
        abs(published.value("phonellm.parameters") / published.value("smollm2.parameters") / 235 - 1) < 0.01
    ),
    r"150 words a minute": lambda: published.value("assumption.speech_words") == 150,
    r"about 200( tokens)?": lambda: (
        round(published.value("assumption.speech_words") * published.value("assumption.tokens_per_word"))
        == 200
    ),
    r"60,000 ms": lambda: True,  # a minute, by definition
    r"temperature 0|Temperature 0": lambda: True,  # a setting, not a finding
    r"B200": lambda: True,  # a name
    r"at most 5 %|chance of 95 %": lambda: stats.samples_needed(0.95, 0.95, sides=1) == 59,
    r"19 times in 20": lambda: True,  # 95 %, in words
    r"chance of 36 % none": lambda: round(0.95**20, 2) == 0.36,
    r"59 is enough": lambda: stats.samples_needed(0.95, 0.95, sides=1) == 59,
    r"at least 95 of 100 samples": lambda: stats.percentile([1.0] * 99, 0.95).confidence == 0.95,
    r"58 is one short": lambda: stats.samples_needed(0.95, 0.95, sides=1) - 1 == 58,
    r"20 requests|20 lie|timed 20|one of 20|of 20 is|twenty": lambda: (
        stats.percentile([1.0] * 20, 0.95).high == float("inf")
    ),
    r"456 ms, 95 % of 480": lambda: 0.95 * 480 == 456,
    r"480 ms": lambda: True,  # the number that the question itself makes up
    r"more often than once in three tries": lambda: 0.95**20 > 1 / 3,
    r"each 100 new tokens": lambda: True,  # a unit
}
# Numbers that mean no fact of the world.
HARMLESS = (
    r"\b(?:0\d|1[01])\b(?: · |\*\*)?",  # a lesson's number
    r"^## \d+\.|\(section \d\)",  # a section's number
    r"[Ee]xercises? \d",
    r"Question \d",
    r"\b\d+ minutes",  # checked below
    r"P\d\d",
    r"95th percentile",
    r"95 of 100 turns|5 of 100 take",  # what P95 means
    r"order 1234",
    r"hints? in three steps",
    r"SmolLM2|PhoneLLM Alpha 1",
    r"99 at 95 % confidence|95 at 95 % confidence|at 95 % confidence",
    r"`[^`]*`",  # code
    r"aiperf 0|n - 1",
    r"[Mm]ultiply by 1000|60 divided|60 s, and a second is 1000 ms|60 times",  # units
    r"A 0 would|a 0 would|time of 0|; 0 is|0 is the moment|tokens have 20 steps|five fence posts",
)


def prose(path) -> list[tuple[str, str]]:
    """(cell, text) of everything a reader reads as text: markdown, and the words of quizzes, hints, mistakes.
    A number of an exercise's own case, which stands in the same cell as a number, is left out."""
    found = []
    for cell in sources.read(path):
        if cell.kind == "markdown":
            found += [(cell.name, re.sub(r"\n(?!#)", " ", part)) for part in cell.source.split("\n\n")]
        elif set(cell.tags) & {"quiz", "check"}:
            constants = [n.value for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Constant)]
            own = {f"{value:g}" for value in constants if type(value) in (int, float)}
            for text in constants:
                if isinstance(text, str) and " " in text:
                    numbers = [number for number in re.findall(r"\d+(?:\.\d+)?", text) if number in own]
                    for number in numbers:
                        text = re.sub(rf"(?<![\d.]){re.escape(number)}(?![\d.])", "", text)
                    found.append((cell.name, text))
    return found


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[:30])
def test_a_claim_is_true(claim):
    assert CLAIMS[claim]()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_number_in_the_text_is_unchecked(path):
    unchecked = []
    for cell, text in prose(path):
        rest = text
        for pattern in (*CLAIMS, *HARMLESS):
            rest = re.sub(pattern, "", rest)
        if re.search(r"\d", rest):
            unchecked.append(
                f"{path.name}, cell {cell}: {text.strip()}   <- {re.findall(r'.{0,12}[0-9].{0,12}', rest)}"
            )
    assert not unchecked, "\n".join(unchecked)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_minutes_are_those_of_the_course_map(path):
    text = "\n".join(cell.source for cell in sources.read(path) if cell.kind == "markdown")
    told = re.search(r"\*\*Time\*\* \| (\d+) minutes", text)
    row = LESSONS[LESSONS["lesson"] == path.stem[:2]].iloc[0]
    assert told, "the opening table says how long the lesson takes"
    assert int(told.group(1)) == row["minutes"]
    parts = [
        int(minutes)
        for minutes in re.findall(r"● · (\d+) minutes|○ · (\d+) minutes", text)
        for minutes in minutes
        if minutes
    ]
    assert sum(parts) <= row["minutes"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_lesson_opens_and_ends_as_all_do(path):
    cells = sources.read(path)
    text = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    for part in ("**You will**", "**You will learn**", "**You need**", "## Recap", "## Next"):
        assert part in text
    assert sum("quiz" in cell.tags for cell in cells) == 3
    assert 2 <= sum("exercise" in cell.tags for cell in cells) <= 4
    assert [item.right for item in sources.items(path) if item.kind == "quiz"].count(0) < 3


def test_the_map_says_which_lessons_are_here():
    here = {path.stem[:2] for path in SOURCES}
    assert set(LESSONS.loc[LESSONS["available"], "lesson"]) == here


def test_built_notebooks_are_what_the_sources_say():
    assert lessons.check() == []


def test_the_embedded_recipe_has_a_reason_for_each_flag():
    for flag in (*recipes.EMBEDDED.flags, *recipes.EMBEDDED.environment):
        assert len(flag.why) > 20


def test_rules_are_the_same_each_time_and_ids_are_not():
    assert prompts.rules(40) == prompts.rules(40)
    assert prompts.rules(40).startswith(prompts.rules(8))
    assert prompts.call_id() != prompts.call_id()
    assert re.fullmatch(r"\[call [0-9a-f]{6}\]", prompts.call_id())


def test_the_readme_names_real_things():
    text = (settings.REPO / "README.md").read_text()
    for target in re.findall(r"make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", (settings.REPO / "Makefile").read_text(), re.MULTILINE), target
    for path in re.findall(r"`((?:helpers|notebooks|data|benchmarks|docs)/[^`]*)`", text):
        assert (settings.REPO / path).exists(), path
    for variable in re.findall(r"PHONELLM_[A-Z_]+", text):
        assert variable in (
            settings.BASE_URL_VARIABLE,
            settings.MODEL_VARIABLE,
            settings.API_KEY_VARIABLE,
            engine.ENGINE_VARIABLE,
        )
