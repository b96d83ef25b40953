"""A deck as people write it: Marp Markdown, one file, with names in place of numbers.

A slide ends at a line ``---``. Three things in it are the course's own; the rest is plain Marp:

- ``{{card.limit}}`` stands for a number (:mod:`helpers.deck_facts` knows the names). ``{{card.limit:bare}}``
  leaves out the unit, ``{{card.limit:source}}`` is who says so. ``{{block.plan}}``, alone on a line, stands
  for a table.
- ``![](figures/05-two-replies.svg)`` is a figure of the course, by the name of its exhibit.
- A comment that begins with minutes (``3 minutes``) holds the speaker's notes. Each slide has one.

:func:`parse` takes the file apart and says what is wrong, and on which slide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers.settings import CourseError

PLACEHOLDER = re.compile(r"\{\{\s*([a-z0-9_.-]+)(?::([a-z]+))?\s*\}\}")
FIGURE = re.compile(r"^!\[\]\(figures/([\w-]+)\.svg\)$", re.MULTILINE)
MINUTES = re.compile(r"\s*(\d+) minutes?\s*(?:\n|$)")
_COMMENT = re.compile(r"[ \t]*<!--(.*?)-->[ \t]*\n?", re.DOTALL)
_DIRECTIVE = re.compile(r"\s*_?[a-zA-Z]+:")
_SECTION = re.compile(r'^\s*header:\s*"?(.*?)"?\s*$', re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~)")


@dataclass(frozen=True)
class Slide:
    """One slide of a source.

    Attributes:
        number: from 1.
        text: its Markdown and directives, without the notes.
        notes: what the speaker reads, without the line of minutes.
        minutes: how long it stands, in whole minutes; 0 for an appendix.
        section: name of the part of the talk it belongs to, from the last ``header`` directive.
    """

    number: int
    text: str
    notes: str
    minutes: int
    section: str

    @property
    def title(self) -> str:
        """Its first heading; the words ``slide 3`` if it has none."""
        found = re.search(r"^#+ (.+)$", self.text, re.MULTILINE)
        return found.group(1).strip() if found else f"slide {self.number}"

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures on it."""
        return tuple(FIGURE.findall(self.text))


@dataclass(frozen=True)
class Deck:
    """A source, taken apart.

    Attributes:
        front: its front matter, without the dashes.
        slides: in order.
    """

    front: str
    slides: tuple[Slide, ...]

    @property
    def minutes(self) -> int:
        """How long the whole talk takes."""
        return sum(slide.minutes for slide in self.slides)

    @property
    def sections(self) -> dict[str, int]:
        """Minutes of each part of the talk, in order; what has no name or no minutes is left out."""
        found: dict[str, int] = {}
        for slide in self.slides:
            if slide.section and slide.minutes:
                found[slide.section] = found.get(slide.section, 0) + slide.minutes
        return found


def parse(source: str) -> Deck:
    """Take a deck apart.

    Raises:
        CourseError: it has no front matter, or a slide has no notes, two of them, notes without minutes, a
            figure that is not alone on its line, or braces that are no name. The message names the slide.
    """
    found = re.match(r"---\n(.*?)\n---\n", source, re.DOTALL)
    if not found or "marp: true" not in found.group(1):
        raise CourseError(
            "A deck begins with its front matter: a line ---, then `marp: true` and the other settings, then "
            "a line ---. Look at slides/60-minutes.md."
        )
    slides: list[Slide] = []
    for number, part in enumerate(_split(source[found.end() :]), 1):
        before = slides[-1].section if slides else ""
        slides.append(_slide(number, part, before))
    return Deck(found.group(1), tuple(slides))


def _split(body: str) -> Iterator[str]:
    """The slides' texts: parts between lines ``---`` that stand neither in a code block nor in a comment."""
    part: list[str] = []
    fenced = comment = False
    for line in body.splitlines():
        if not comment and _FENCE.match(line):
            fenced = not fenced
        if not fenced:
            opened, closed = line.rfind("<!--"), line.rfind("-->")
            comment = opened > closed if max(opened, closed) >= 0 else comment
        if line.strip() == "---" and not fenced and not comment:
            yield "\n".join(part)
            part = []
        else:
            part.append(line)
    yield "\n".join(part)


def _slide(number: int, part: str, section: str) -> Slide:
    where = f"Slide {number}"
    notes: list[tuple[int, str]] = []
    for comment in _COMMENT.findall(part):
        if begins := MINUTES.match(comment):
            notes.append((int(begins.group(1)), comment[begins.end() :].strip()))
        elif not _DIRECTIVE.match(comment):
            raise CourseError(
                f"{where}: a comment there is neither a setting nor notes. Notes begin with a line of their "
                f"own that says how long the slide stands, such as: 3 minutes"
            )
        elif named := _SECTION.search(comment):
            section = named.group(1)
    if len(notes) != 1:
        raise CourseError(
            f"{where} has {len(notes)} notes; it needs one: a comment <!-- ... --> whose first line says how "
            f"long the slide stands, such as: 3 minutes"
        )
    text = _COMMENT.sub(lambda found: "" if MINUTES.match(found.group(1)) else found.group(), part)
    if text.count("](figures/") != len(FIGURE.findall(text)):
        raise CourseError(
            f"{where}: a figure stands alone on its line, with nothing in its brackets: "
            f"![](figures/05-two-replies.svg). Its words come from the figure itself."
        )
    [(minutes, said)] = notes
    slide = Slide(number, text.strip("\n"), said, minutes, section)
    for words in (slide.text, slide.notes):
        if "{{" in (rest := PLACEHOLDER.sub("", words)) or "}}" in rest:
            raise CourseError(
                f"{where}: there are braces that hold no name. A number stands as {{{{card.limit}}}}."
            )
    return slide


def fill(text: str, give: Callable[[str, str], str], where: str) -> str:
    """The text with each placeholder replaced.

    Args:
        text: from a slide.
        give: gets a name and a form (``bare``, ``source``; empty without one) and returns what to write.
        where: names the slide in an error.

    Raises:
        CourseError: what ``give`` raised, with the slide in front.
    """

    def put(found: re.Match[str]) -> str:
        try:
            return give(found.group(1), found.group(2) or "")
        except CourseError as error:
            raise CourseError(f"{where}, {found.group()}: {error}") from error

    return PLACEHOLDER.sub(put, text)


def clock(minutes: int) -> str:
    """``0:07``: a time since the talk began."""
    return f"{minutes // 60}:{minutes % 60:02d}"
