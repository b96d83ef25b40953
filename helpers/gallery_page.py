"""The gallery's page: every figure of the course, lesson by lesson, with where it comes from.

One file of HTML beside the pictures, with links to them and to nothing else, so it works from a folder, from
a web server, and without a network. It is light or dark as the reader's system says, and so is each figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Any

from helpers import gallery_note
from helpers.style import THEMES, Theme

_CSS = """
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--paper); color: var(--ink);
       font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.skip { position: absolute; left: -100vw; background: var(--paper); padding: .5rem 1rem; }
.skip:focus { left: 1rem; top: 1rem; z-index: 1; }
header, main, footer { max-width: 57rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 3.5rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--muted); }
nav ul { list-style: none; margin: 1.25rem 0 0; padding: 0;
         display: flex; flex-wrap: wrap; gap: .4rem 1.25rem; }
a { color: var(--blue); text-underline-offset: .15em; }
a:focus-visible, summary:focus-visible, .picture:focus-visible {
  outline: 3px solid var(--orange); outline-offset: 3px; border-radius: 2px; }
figure { margin: 0 0 3rem; }
.picture { overflow-x: auto; border: 1px solid var(--faint); border-radius: 4px; padding: .75rem; }
.picture img { display: block; width: 100%; min-width: 36rem; max-width: 54rem; height: auto;
               margin: 0 auto; }
figcaption p { margin: .75rem 0 0; }
figcaption .says { font-weight: 600; }
.note, .files, details { color: var(--muted); font-size: .9rem; }
.files a { white-space: nowrap; margin-right: .9rem; display: inline-block; padding: .15rem 0; }
details { margin-top: .5rem; }
summary { cursor: pointer; width: fit-content; }
footer { border-top: 1px solid var(--muted); margin-top: 3rem; padding-top: 1rem; padding-bottom: 3rem;
         color: var(--muted); font-size: .9rem; }
@media print { .files, nav, .skip, details { display: none; } figure { break-inside: avoid; } }
"""


def page(records: Iterable[dict[str, Any]]) -> str:
    """The whole page.

    Args:
        records: of the exhibits, as :func:`helpers.gallery.make` makes them, in order of their lessons.
    """
    titles = gallery_note.lesson_titles()
    groups = [(lesson, list(of)) for lesson, of in groupby(records, key=lambda record: record["lesson"])]
    names = {lesson: f"{lesson} {titles.get(lesson, '')}".strip() for lesson, _ in groups}
    count = sum(len(of) for _, of in groups)
    links = "\n".join(f'<li><a href="#lesson-{n}">{escape(name)}</a></li>' for n, name in names.items())
    sections = "\n".join(_section(lesson, names[lesson], of) for lesson, of in groups)
    course = escape(gallery_note.COURSE)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{course}: the figures</title>
<style>
:root {{ color-scheme: light dark; {_variables(THEMES["light"])} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(THEMES["dark"])} }} }}
{_CSS.strip()}
</style>
</head>
<body>
<a class="skip" href="#figures">To the figures</a>
<header>
<h1>{course}: the figures</h1>
<p>{count} figures, each with where its numbers come from. Numbers are <em>measured</em> (in the run that made
the figure), <em>recorded</em> (measured by us earlier and kept), <em>published</em> by somebody else, or
<em>modelled</em>; marks, lines and patterns tell them apart.</p>
<nav aria-label="Lessons">
<ul>
{links}
</ul>
</nav>
</header>
<main id="figures" tabindex="-1">
{sections}
</main>
<footer>
<p>{escape(gallery_note.licence())}</p>
<p>All of this is also in <a href="gallery.json">gallery.json</a>, for programs.</p>
</footer>
</body>
</html>
"""


def _section(lesson: str, name: str, records: Iterable[dict[str, Any]]) -> str:
    pictures = "\n".join(_figure(record) for record in records)
    return f"""<section aria-labelledby="lesson-{lesson}">
<h2 id="lesson-{lesson}">{escape(name)}</h2>
{pictures}
</section>"""


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in vars(theme).items())


def _figure(record: dict[str, Any]) -> str:
    name, pictures = record["name"], record["pictures"]
    default = pictures.get("light") or next(iter(pictures.values()))
    dark = pictures.get("dark", default)
    source = f'<source srcset="{dark}.svg" media="(prefers-color-scheme: dark)">\n' if dark != default else ""
    alt, note = escape(record["alt"]), record["note"]
    room = f'width="{record["width"]}" height="{record["height"]}"'
    links = "\n".join(_link(*link) for link in _links(record))
    numbers = f'\n<p class="note">Where the numbers are from: {escape(note.rstrip("."))}.</p>' if note else ""
    return f"""<figure id="{name}">
<div class="picture" tabindex="0" role="group" aria-label="{escape(record["title"])}">
<picture>
{source}<img src="{default}.svg" {room} loading="lazy" alt="{alt}">
</picture>
</div>
<figcaption>
<p class="says">{escape(record["says"])}</p>{numbers}
<p class="files">{links}</p>
<details><summary>The figure in words</summary><p>{alt}</p></details>
</figcaption>
</figure>"""


def _links(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(file, words, label for a screen reader) of each file of a figure."""
    title = record["title"]
    found = []
    for theme, stem in record["pictures"].items():
        for ending in ("svg", "png"):
            found.append((f"{stem}.{ending}", f"{ending.upper()}, {theme}", f"{title}: {ending}, {theme}"))
    found.append((f"{record['name']}.alt.txt", "alternative text", f"{title}: alternative text"))
    found.append((f"{record['name']}.origins.txt", "origins", f"{title}: origins"))
    return found


def _link(file: str, words: str, label: str) -> str:
    return f'<a href="{file}" download aria-label="{escape(label)}">{escape(words)}</a>'
