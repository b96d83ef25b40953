"""Numbers in prose are checked, not remembered.

Each number in a lesson's text is either quoted from a table or the code (then its pattern here says from
which), or it is one of the few that mean no fact: a lesson's number, minutes, an exercise, a P95, the inputs
of an exercise's own cases. A number that is neither fails, with its cell.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import claims as claims_of_all
import pandas as pd
import pytest

from helpers import engine, lessons, prompts, recipes, settings, sources

TESTS = Path(__file__).parent
SOURCES = sources.paths()
LESSONS = pd.read_csv(settings.DATA / "lessons.csv", dtype={"lesson": str})


def claims(lesson: str) -> tuple[dict, tuple]:
    """The claims (pattern -> is it true) and harmless patterns that hold for one lesson."""
    own = TESTS / f"claims_{lesson}.py"
    if not own.exists():
        return claims_of_all.CLAIMS, claims_of_all.HARMLESS
    module = importlib.import_module(own.stem)
    return claims_of_all.CLAIMS | module.CLAIMS, (*claims_of_all.HARMLESS, *module.HARMLESS)


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_claims_are_true(path):
    wrong = [pattern for pattern, true in claims(path.stem[:2])[0].items() if not true()]
    assert not wrong


@pytest.mark.parametrize("path", sorted(TESTS.glob("claims_*.py")), ids=lambda path: path.stem)
def test_every_claim_is_made_somewhere(path):
    """A pattern that matches nothing is left over from text that is gone."""
    [lesson] = [source for source in SOURCES if source.stem[:2] == path.stem[-2:]]
    text = "\n".join(text for _, text in prose(lesson))
    own = importlib.import_module(path.stem)
    assert not [pattern for pattern in (*own.CLAIMS, *own.HARMLESS) if not re.search(pattern, text)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_number_in_the_text_is_unchecked(path):
    unchecked = []
    patterns = [pattern for part in claims(path.stem[:2]) for pattern in part]
    for cell, text in prose(path):
        rest = text
        for pattern in patterns:
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
