"""Fills a deck: names become numbers, figures become pictures, and each slide gets its numbers' sources.

A slide shows the sources of what it shows, in small type at its foot; its notes list those of everything that
they or the slide name. ``{{block.sources}}`` and ``{{block.runs}}`` are the appendix: who is behind which
slide, and how the recorded runs were made. They take as many slides as they need.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from helpers import deck_source
from helpers.deck_blocks import block, table
from helpers.deck_facts import Fact, fact
from helpers.deck_figures import Drawn, badge
from helpers.deck_source import FIGURE, Deck, Slide
from helpers.origins import ORIGINS

APPENDIX = ("block.sources", "block.runs")
LABEL_LETTERS = 60  # a longer fact is a sentence, and goes by its name in the list of sources
# Room on a slide of the appendix, in px as the theme has it, and what a row takes of it.
PAGE_PX, LINE_PX, ROW_PX, LINE_LETTERS = 540, 19, 9, 115


@dataclass
class Filled:
    """A deck with its names replaced.

    Attributes:
        slides: in order, the pages of the appendix among them.
        sources: ``origin: who, when`` -> the numbers of the slides that show or say something of it.
        runs: file of a recorded run -> what it says of itself.
    """

    slides: list[Slide] = field(default_factory=list)
    sources: dict[str, list[int]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)


def fill(deck: Deck, drawn: Mapping[str, Drawn]) -> Filled:
    """Replace names by numbers and figures by pictures, and add what each slide's numbers come from.

    Args:
        deck: a source, taken apart.
        drawn: its figures, by name.

    Raises:
        CourseError: a name is unknown; the message names the slide.
    """
    made = Filled()
    begins = 0
    for slide in deck.slides:
        shown, told = dict[str, Fact](), dict[str, Fact]()
        text, notes = _filled(slide.text, deck, slide, shown), _filled(slide.notes, deck, slide, told)
        pictures = [drawn[name] for name in slide.figures]
        _remember(made, slide.number, (shown | told).values(), pictures)
        text = FIGURE.sub(lambda found: drawn[found.group(1)].markup(), text)
        if shown and not pictures:
            text += f"\n\n{_foot(shown.values())}"
        notes = _script(slide, notes, begins, {**shown, **told}, pictures)
        made.slides.append(replace(slide, text=text, notes=notes))
        begins += slide.minutes
    made.slides = [page for slide in made.slides for page in _pages(slide, made)]
    return made


def markdown(deck: Deck, filled: Filled, theme: str) -> str:
    """The deck as Marp takes it, in the theme of this name."""
    front = re.sub(r"(?m)^theme:.*$", f"theme: {theme}", deck.front)
    slides = (f"\n{slide.text}\n\n<!--\n{slide.notes}\n-->\n" for slide in filled.slides)
    return f"---\n{front}\n---\n" + "\n---\n".join(slides)


def script(filled: Filled) -> str:
    """The speaker's notes of all slides, as plain text."""
    parts = (f"{number}. {slide.title}\n{slide.notes}" for number, slide in enumerate(filled.slides, 1))
    return ("\n\n" + "-" * 72 + "\n\n").join(parts) + "\n"


def plan(deck: Deck) -> str:
    """The parts of the talk with their minutes, as a Markdown table."""
    rows, begins = [], 0
    for name, minutes in deck.sections.items():
        rows.append((deck_source.clock(begins), name, f"{minutes} min"))
        begins += minutes
    return table(("", "", ""), rows, right=(0, 2))


def _filled(text: str, deck: Deck, slide: Slide, used: dict[str, Fact]) -> str:
    def give(name: str, form: str) -> str:
        if name in APPENDIX:
            return f"{{{{{name}}}}}"  # made when all slides are known
        if name == "block.plan":
            return plan(deck)
        if name.startswith("block."):
            made, facts = block(name)
            used.update(facts)
            return made
        used[name] = fact(name)
        return used[name].words(form)

    return deck_source.fill(text, give, f"Slide {slide.number} ({slide.title})")


def _remember(made: Filled, place: int, facts: Iterable[Fact], pictures: Iterable[Drawn]) -> None:
    said = [f"{one.origin}: {one.said_by}" for one in facts]
    for picture in pictures:
        # A table that names nobody: the files say where its numbers are from.
        files = ", ".join(source.file for source in picture.files)
        said += picture.published or [f"{', '.join(picture.origins)}: {files}"] * bool(files)
        runs = [source for source in picture.files if source.file.startswith("data/runs/")]
        made.runs |= {source.file: source.says for source in runs}
    for one in dict.fromkeys(said):
        made.sources.setdefault(one, []).append(place)


def _foot(facts: Iterable[Fact]) -> str:
    """The line of sources below a slide's text, and its marks, where a figure's slide has them."""
    facts = list(facts)
    said = dict.fromkeys(f"{one.origin}: {one.said_by}" for one in facts)
    badges = " ".join(badge(origin) for origin in ORIGINS if origin in {one.origin for one in facts})
    return f'<p class="sources">{html.escape("; ".join(said))}</p>\n<p class="origin marks">{badges}</p>'


def _script(slide: Slide, notes: str, begins: int, facts: Mapping[str, Fact], shown: list[Drawn]) -> str:
    """What the speaker reads: minutes with the clock, the notes, and where each number comes from."""
    span = f"{deck_source.clock(begins)} to {deck_source.clock(begins + slide.minutes)}"
    head = f"{slide.minutes} {'minute' if slide.minutes == 1 else 'minutes'} ({span})"
    short = {
        name: one.words() if 0 < len(one.words()) <= LABEL_LETTERS else name for name, one in facts.items()
    }
    lines = dict.fromkeys(f"{short[name]}: {one.origin}, {one.said_by}" for name, one in facts.items())
    lines |= dict.fromkeys(f"figure {one.name}: {one.note}" for one in shown if one.note)
    origin = "\n\nWHERE IT IS FROM\n" + "\n".join(lines) if lines else ""
    return f"{head}\n\n{notes}{origin}"


def _pages(slide: Slide, made: Filled) -> list[Slide]:
    """The slide; or, if it is an appendix, as many as its list needs."""
    for name in APPENDIX:
        mark = f"{{{{{name}}}}}"
        if mark in slide.text:
            head, rows = _appendix(name, made)
            return [replace(slide, text=slide.text.replace(mark, table(head, part))) for part in _parts(rows)]
    return [slide]


def _appendix(name: str, made: Filled) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    if name == "block.runs":
        names = {file.removeprefix("data/runs/"): html.escape(says) for file, says in made.runs.items()}
        # A run's tables of levels and pages say the same as its table of requests.
        rows = [(name, says) for name, says in names.items() if f"{name.rpartition('-')[0]}.csv" not in names]
        return ("in data/runs/", "how it was made"), sorted(rows)
    rows = [
        (", ".join(str(place) for place in places), html.escape(said))
        for said, places in made.sources.items()
    ]
    return ("slides", "who says so, and when"), rows


def _parts(rows: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The rows in parts that fit on a slide."""
    parts: list[list[tuple[str, str]]] = [[]]
    room = PAGE_PX
    for row in rows:
        takes = ROW_PX + LINE_PX * math.ceil(len(row[1]) / LINE_LETTERS)
        if takes > room and parts[-1]:
            parts.append([])
            room = PAGE_PX
        parts[-1].append(row)
        room -= takes
    return parts
