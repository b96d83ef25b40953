"""Tables that slides name: ``{{block.four}}``, alone on a line, is made here from the course's data.

Each function returns the block as Markdown, and the numbers in it as facts, so that the slide can say where
they are from.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence

from helpers import cost, published, recipes
from helpers.deck_facts import Fact, card_price, fact
from helpers.deck_figures import badge
from helpers.origins import ORIGINS
from helpers.settings import CourseError

Block = tuple[str, dict[str, Fact]]
FOUR = ("card.single_request", "chart.ttfat_p50", "card.ttfat_ceiling", "card.llm_line")
RECIPE = "b200-nvfp4"
FLAGS = (
    "--moe-backend",
    "--default-chat-template-kwargs",
    "--override-generation-config",
    "--enable-prefix-caching",
)
MEANINGS = {
    "measured": "timed now, on this machine",
    "recorded": "timed by us earlier; the run and its conditions are kept",
    "published": "somebody else's, with source and date",
    "modelled": "computed, or assumed by us",
}


def block(name: str) -> Block:
    """The block of this name.

    Raises:
        CourseError: there is none.
    """
    if name not in BLOCKS:
        raise CourseError(f"there is no block of that name. There are: {', '.join(BLOCKS)}.")
    return BLOCKS[name]()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A Markdown table.

    Args:
        head: names of the columns.
        rows: cells; a bar in one is no border.
        right: numbers of the columns that are set to the right.
    """
    rule = ("---:" if column in right else "---" for column in range(len(head)))
    lines = [head, tuple(rule), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _origins() -> Block:
    return table(("", ""), [(badge(origin), MEANINGS[origin]) for origin in ORIGINS]), {}


def _four() -> Block:
    """The four published latencies of one model."""
    frame = published.table(*FOUR)
    facts = {name: fact(name) for name in FOUR}
    rows = [
        (f"**{facts[name].words()}**", html.escape(row["what"]), html.escape(row["conditions"]))
        for name, row in frame.iterrows()
    ]
    return table(("", "what was timed", "under which conditions"), rows, right=(0,)), facts


def _flags() -> Block:
    """Four flags of the recipe with their reasons."""
    recipe = recipes.load(RECIPE)
    flags = {flag.name: flag for flag in recipe.flags}
    rows = [
        (f"`{' '.join(flags[name].words(''))}`", html.escape(flags[name].why.split(". ")[0]))
        for name in FLAGS
    ]
    said = Fact("", "", "published", f"{recipe.source}, and the sources in data/recipes/{RECIPE}.toml", "")
    return table(("flag", "why"), rows), {"recipe": said}


def _subtraction() -> Block:
    """What is left for the model, and what its target leaves."""
    names = ("card.limit", "budget.rest", "budget.left", "card.llm_line", "budget.slack")
    facts = {name: fact(name) for name in names}
    words = ("the limit", "everything but the model", "left for the model", "the target", "not spent")
    signs = ("", "\u2212 ", "= ", "\u2212 ", "= ")
    rows = [
        (f"{sign}{facts[name].words()}" if sign != "= " else f"**{sign}{facts[name].words()}**", said,
         badge(facts[name].origin))
        for name, sign, said in zip(names, signs, words, strict=True)
    ]  # fmt: skip
    return table(("", "", ""), rows, right=(0,)), facts


def _chain() -> Block:
    """The cost chain with the card's inputs, down to the minute; below it what the card says, twice."""
    names = ("cost.gpu_hour", "cost.minute", "cost.card_minute", "phonebench.phonellm_price")
    facts = {name: fact(name) for name in names}
    signs = str.maketrans({"x": "\u00d7", "/": "\u00f7"})
    rows = []
    for row in cost.chain(**card_price()).itertuples():
        origin = "modelled" if row.how else facts["cost.gpu_hour"].origin  # the first row is an input
        unit = row.unit.removeprefix("USD ")
        rows.append((row.step, row.how.translate(signs), cost.usd(row.value), unit, badge(origin)))
    for words, name in (
        ("the card's chart", "phonebench.phonellm_price"),
        ("the card's text", "cost.card_minute"),
    ):
        told = f"**{facts[name].number} USD**"
        rows.append((f"**{words}**", "", told, "per agent minute", badge(facts[name].origin)))
    return table(("",) * 5, rows, right=(1, 2)), facts


def _b200() -> Block:
    """How many one B200 carries, by the card and by our model, each in its own unit."""
    names = {
        "b200.card_processes": "the model card",
        "b200.card_agents": "the model card: twice as many",
        "b200.flight_corrected": "our model, corrected",
        "b200.live_corrected": "the same",
        "b200.flight_plain": "our model, uncorrected",
        "b200.live_plain": "the same",
    }
    facts = {name: fact(name) for name in names}
    rows = [
        (words, f"**{facts[name].number}**", facts[name].unit, badge(facts[name].origin))
        for name, words in names.items()
    ]
    return table(("who", "", "of what", ""), rows, right=(1,)), facts


BLOCKS: Mapping[str, Callable[[], Block]] = {
    "block.origins": _origins,
    "block.four": _four,
    "block.flags": _flags,
    "block.subtraction": _subtraction,
    "block.chain": _chain,
    "block.b200": _b200,
}
