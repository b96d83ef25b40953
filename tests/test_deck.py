"""The deck is true: each number has a source, each figure is an exhibit, the minutes are an hour. And what is
built of it stands alone, fits on its slides, and can be read from the back row."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_browser import CHROMIUM_FLAGS

from helpers import (
    calibration,
    deck,
    deck_blocks,
    deck_facts,
    deck_figures,
    deck_fill,
    deck_source,
    deck_tools,
    published,
    stats,
)
from helpers.origins import ORIGINS
from helpers.settings import REPO, CourseError
from helpers.style import THEMES

SLIDES = REPO / "slides"
LESSON_05 = REPO / "notebooks" / "src" / "05_measure_ttft.py"
DECKS = sorted(path for path in SLIDES.glob("*.md") if path.stem != "README")
# Words; lines that name a source; the smallest of a figure's letters, such as the name of a small bar.
SMALLEST_PX, SMALLEST_SOURCE_PX, SMALLEST_FIGURE_PX = 18, 12, 14
# Digits in a deck that are no number of the world.
HARMLESS = (
    r"PhoneLLM Alpha 1|GPT-5\.6 Terra|P95|P50|P99|B200|H100|L40S|FP8|BF16|NVFP4",
    r"[Ll]esson \d\d|lesson 0\d|[Ss]ections? \d(?: and \d)?|PROFILE=b200-nvfp4 DRY=1|HOST:8000/v1",
    r"^# 1500 Milliseconds$|Why 1500",  # its name
    r"^\d+ to \d+: ",  # the clock of a demo
    r"0\.95 to the power n|below 2\.5 %|at 95 % confidence|a 95 % interval",  # what a P95 is
    r"the 95th percentile",
)
FRONT = "---\nmarp: true\ntheme: milliseconds\n---\n"


def slide(text: str = "# A slide", notes: str = "1 minute\n\nSAY\nHello.") -> str:
    return f"\n{text}\n\n<!--\n{notes}\n-->\n"


def parsed(path) -> deck_source.Deck:
    return deck_source.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(params=DECKS, ids=lambda path: path.stem)
def source(request) -> deck_source.Deck:
    return parsed(request.param)


# --- the deck as it is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", DECKS, ids=lambda path: path.stem)
def test_the_minutes_are_those_of_its_name(path):
    made = parsed(path)
    assert made.minutes == int(path.stem.split("-")[0])
    assert sum(made.sections.values()) == made.minutes  # none outside the parts that the plan lists


def test_ten_minutes_are_for_questions_and_ten_for_the_demo():
    made = parsed(SLIDES / "60-minutes.md")
    assert made.sections["Questions"] == 10
    [demo] = [one for one in made.slides if "SHOW" in one.notes and one.minutes == 10]
    assert "IF IT FAILS" in demo.notes
    assert made.slides[demo.number].figures  # the fallback is the next slide


def test_each_figure_is_an_exhibit(source):
    wanted = {name for one in source.slides for name in one.figures}
    assert wanted
    assert wanted <= set(deck_figures.exhibits())


def test_each_slide_of_the_talk_says_what_to_say(source):
    for one in source.slides:
        assert one.minutes == 0 or re.search(r"^(SAY|SHOW|IF NOBODY ASKS)", one.notes, re.MULTILINE), (
            one.title
        )
        assert one.notes.count("\nQ: ") == one.notes.count("\nA: "), one.title


def test_no_number_is_typed(source):
    typed = []
    for one in source.slides:
        for text in (one.text, one.notes):
            rest = deck_source.FIGURE.sub("", deck_source.PLACEHOLDER.sub("", text))
            for pattern in HARMLESS:
                rest = re.sub(pattern, "", rest, flags=re.MULTILINE)
            typed += [f"slide {one.number}: {found}" for found in re.findall(r".{0,25}\d.{0,15}", rest)]
    assert not typed, "\n".join(typed)


def test_each_name_is_known(source):
    for one in source.slides:
        for name, form in deck_source.PLACEHOLDER.findall(one.text + one.notes):
            if name in (*deck_fill.APPENDIX, "block.plan"):
                continue
            if name.startswith("block."):
                assert deck_blocks.block(name)[0]
            else:
                assert deck_facts.fact(name).words(form)


# --- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [  # typed once, from the sources, to hold the code against
        ("card.limit", "1500 ms"),
        ("phonellm.parameters", "31,577,940,288 parameters"),
        ("arch.bf16_size", "63.16 GB"),
        ("cost.card_minute", "$0.00025"),
        ("serve.nvfp4_kv_bf16_delta", "-0.0367 points"),
        ("call.slow_share", "64 %"),
        ("phonebench.phonellm_score", "72.3 %"),
        ("phonebench.phonellm_p95", "about 600 ms"),
        ("phonebench.terra_p95", "1957 ms"),
        ("phonebench.phonellm_price", "$0.0025"),
        ("phonebench.base_score", "28.6 %"),
        ("model.layers", "52 layers"),
        ("model.attention_layers", "6 layers"),
        ("model.experts", "128 experts"),
        ("model.experts_used", "6 experts"),
        ("model.state", "46.8 MiB"),
        ("model.kv_bytes", "6144 bytes"),
        ("stats.p95_samples", "72 requests"),
        ("budget.primer_llm", "350 ms"),
        ("budget.rest", "643 ms"),
        ("budget.left", "857 ms"),
        ("budget.slack", "207 ms"),
        ("cost.gpu_hour", "$6.2496"),
        ("cost.minute", "$0.00254"),
        ("cost.slip_agents", "893 calls"),
        ("cost.cheaper", "92.8 %"),
        ("cost.llm_share", "9 %"),
        ("cost.terra_share", "57 %"),
        ("cost.slip_share", "1 %"),
    ],
)
def test_a_fact_in_words(name, words):
    assert deck_facts.fact(name).words() == words


@pytest.mark.parametrize("name", [*deck_facts.COMPUTED, *published.table().index])
def test_each_fact_says_where_it_is_from(name):
    fact = deck_facts.fact(name)
    assert fact.origin in ORIGINS
    assert len(fact.source) > 5
    assert fact.words("source") == fact.said_by
    assert fact.words("bare") == fact.number


def test_an_unknown_name_is_an_error_that_names_the_slide():
    made = deck_source.parse(FRONT + slide() + "---" + slide("# Two\n\n{{card.limt}}"))
    with pytest.raises(CourseError, match=r"Slide 2 \(Two\), \{\{card.limt\}\}.*card\.limit"):
        deck_fill.fill(made, {})


@pytest.mark.parametrize("name", ["{{card.limit:long}}", "{{block.none}}"])
def test_an_unknown_form_or_block_is_an_error(name):
    with pytest.raises(CourseError, match="Slide 1"):
        deck_fill.fill(deck_source.parse(FRONT + slide(name)), {})


@given(st.floats(min_value=-1e6, max_value=1e6, allow_nan=False).map(lambda value: round(value, 6)))
def test_a_number_is_written_as_it_is(value):
    assert float(deck_facts.number(value).replace(",", "")) == pytest.approx(value, abs=1e-9)
    assert "e" not in deck_facts.number(value)


@pytest.mark.parametrize("name", deck_blocks.BLOCKS)
def test_a_block_is_a_table_whose_facts_have_origins(name):
    text, facts = deck_blocks.block(name)
    lines = text.split("\n")
    assert len(lines) > 3
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert all(one.origin in ORIGINS and one.source for one in facts.values())


def test_what_the_notes_say_in_words_is_true():
    headings = dict(re.findall(r"^# ## (\d+)\. (.*)$", LESSON_05.read_text(), re.MULTILINE))
    demo = next(one.text for one in parsed(SLIDES / "60-minutes.md").slides if one.minutes == 10)
    named = re.findall(r"[Ss]ection (\d+)", demo)
    assert len(named) == 3
    for one, word in zip(named, ("timer", "prompt", "P95"), strict=True):
        assert word in headings[one]
    order = list(deck_figures.exhibits()["08-tornado"].frame()["input"])
    assert [word.split()[0] for word in order] == ["live", "USD", "utilisation", "region"]
    ours = calibration.summary().query("model == @calibration.OURS").set_index("kind")["within_goal"]
    assert [bool(ours[kind]) for kind in ("time per token", "time to first token")] == [True, False]
    fits = deck_figures.exhibits()["03-what-fits"].frame().groupby("gpu")["requests"].max()
    assert fits["B200"] > 1000
    assert stats.samples_needed(0.99) / stats.samples_needed(0.95) == pytest.approx(5, abs=0.3)


# --- taking a source apart --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# no front matter", "front matter"),
        ("---\ntheme: x\n---\n" + slide(), "marp: true"),
        (FRONT + "\n# no notes\n", "Slide 1 has 0 notes"),
        (FRONT + slide() + "---" + slide() + "<!--\n2 minutes\n-->\n", "Slide 2 has 2 notes"),
        (FRONT + slide(notes="SAY\nno minutes"), "Slide 1: a comment"),
        (FRONT + slide("see ![](figures/05-itl.svg) there"), "Slide 1: a figure stands alone"),
        (FRONT + slide("![alt](figures/05-itl.svg)"), "Slide 1: a figure stands alone"),
        (FRONT + slide("{{card limit}}"), "Slide 1: there are braces"),
        (FRONT + slide(notes="1 minute\n\n{{}}"), "Slide 1: there are braces"),
    ],
)
def test_a_faulty_source_is_told_where(text, says):
    with pytest.raises(CourseError, match=re.escape(says)):
        deck_source.parse(text)


@given(st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=12))
def test_minutes_and_slides_are_counted(minutes):
    text = FRONT + "---".join(
        slide(f"# Slide\n\n```\n---\n```\n\n| a |\n|---|\n| {n} |", f"{n} minutes\n\nSAY\nx") for n in minutes
    )
    made = deck_source.parse(text)
    assert [one.minutes for one in made.slides] == minutes
    assert made.minutes == sum(minutes)


def test_a_section_goes_on_until_the_next():
    text = '<!-- header: "{}" -->\n# x'
    made = deck_source.parse(
        FRONT + slide(text.format("One")) + "---" + slide() + "---" + slide(text.format("Two"))
    )
    assert made.sections == {"One": 2, "Two": 1}
    assert "0:02" in deck_fill.plan(made)


def test_the_notes_have_the_clock_and_the_sources():
    made = deck_source.parse(
        FRONT + slide(notes="3 minutes\n\nSAY\n{{card.limit}}") + "---" + slide("# B\n\n{{card.limit}}")
    )
    first, second = deck_fill.fill(made, {}).slides
    assert first.notes.startswith("3 minutes (0:00 to 0:03)")
    assert second.notes.startswith("1 minute (0:03 to 0:04)")
    assert "1500 ms: published, model card" in first.notes
    assert "sources" not in first.text  # what only the notes say is not at the foot of the slide
    assert 'class="sources">published: model card' in second.text
    assert '<p class="origin marks"><b class="published">' in second.text


def test_the_appendix_names_the_sources_of_notes_and_of_figures_whose_table_names_nobody():
    source = FRONT + slide(notes="1 minute\n\nSAY\n{{card.limit}}") + "---"
    source += slide("# B\n\n![](figures/03-what-fits.svg)") + "---" + slide("# C\n\n{{block.sources}}")
    file = deck_figures.provenance.Source("data/gpus.csv", "", "")
    drawn = deck_figures.Drawn("03-what-fits", "", "modelled", ("modelled",), (), (file,), 1.0, 1.0, 1.0)
    *_, last = deck_fill.fill(deck_source.parse(source), {"03-what-fits": drawn}).slides
    assert "| 1 | published: model card" in last.text
    assert "| 2 | modelled: data/gpus.csv |" in last.text


# --- programs and pins ------------------------------------------------------------------------------------


def test_every_package_is_pinned_with_its_hash_and_no_address():
    wanted = json.loads((SLIDES / "package.json").read_text())["dependencies"]
    lock = json.loads((SLIDES / "package-lock.json").read_text())
    packages = {name: of for name, of in lock["packages"].items() if name}
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(re.match(r"sha512-", of["integrity"]) for of in packages.values())
    assert not any("resolved" in of for of in packages.values())
    assert "://" not in (SLIDES / ".npmrc").read_text()


@pytest.mark.parametrize(
    ("call", "needs"), [(deck_tools.node, "nodejs npm"), (deck_tools.browser, "chromium")]
)
def test_a_missing_program_is_one_line_with_what_to_type(monkeypatch, tmp_path, call, needs):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(deck_tools.BROWSER_VARIABLE, raising=False)
    with pytest.raises(CourseError, match=f"sudo apt install {needs}") as told:
        call()
    assert "\n" not in str(told.value)


def test_an_old_node_is_told(monkeypatch, tmp_path):
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v16.20.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(CourseError, match=r"or newer, and .* is v16\.20\.0"):
        deck_tools.node()


def test_a_program_that_fails_says_its_last_words(tmp_path):
    with pytest.raises(CourseError, match="It failed for a reason"):
        deck_tools.run(["sh", "-c", "echo It failed for a reason; exit 3"], tmp_path, tmp_path / "log", "It")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["none"], "make slides DECK=60-minutes"),
        (["60-minutes", "--theme", "pink"], "THEME=light or THEME=dark"),
    ],
)
def test_a_wrong_command_is_told(words, says, capsys):
    assert deck.main(words) == 1
    assert says in capsys.readouterr().err


def test_the_slides_have_the_figures_colours():
    for name, path in (("light", "theme.css"), ("dark", "theme-dark.css")):
        colours = dict(re.findall(r"--(\w+): (#\w+);", (SLIDES / path).read_text()))
        of = THEMES[name]
        assert colours == {
            "paper": of.paper, "ink": of.ink, "muted": of.muted, "faint": of.faint,
            "measured": of.blue, "recorded": of.orange, "published": of.ink, "modelled": of.purple,
        }  # fmt: skip


# --- what is built ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory, chromium) -> deck.Built:
    """The deck, built whole, as ``make slides`` does."""
    try:
        deck_tools.node()
    except CourseError as error:
        pytest.skip(str(error))
    return deck.build(folder=tmp_path_factory.mktemp("slides"), say=lambda line: None)


@pytest.fixture(scope="module")
def page(built, chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(built.html.as_uri())
        page.wait_for_selector("svg.bespoke-marp-active")
        yield page
        browser.close()


LOOK = """() => {
  const slide = document.querySelector('svg.bespoke-marp-active section');
  const frame = slide.getBoundingClientRect();
  const name = el => el.tagName.toLowerCase() + (el.className ? '.' + el.className : '');
  const out = [], small = [], images = [];
  const fixed = el => getComputedStyle(el).position === 'absolute';
  const boxes = [...slide.children].map(el => [name(el), el.getBoundingClientRect(), fixed(el)]);
  for (const el of slide.querySelectorAll('*')) {
    const box = el.getBoundingClientRect();
    if (box.width && (box.left < frame.left - 1 || box.right > frame.right + 1
        || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)) out.push(name(el));
    if (el.scrollWidth > el.clientWidth + 1 && el.clientWidth && getComputedStyle(el).overflow !== 'visible')
      out.push('cut: ' + name(el));
    const own = [...el.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (own) small.push([parseFloat(getComputedStyle(el).fontSize),
      !!el.closest('p.sources, p.origin span') || slide.className.includes('appendix'), name(el)]);
  }
  const covered = [];
  for (const [a, first, afloat] of boxes) for (const [b, second, bfloat] of boxes)
    if (afloat && !bfloat && first.top < second.bottom - 1 && second.top < first.bottom - 1
        && first.left < second.right - 1 && second.left < first.right - 1) covered.push(a + ' over ' + b);
  for (const el of slide.querySelectorAll('img')) {
    const box = el.getBoundingClientRect();
    const scale = Math.min(box.width / el.naturalWidth, box.height / el.naturalHeight);
    const px = scale * el.naturalWidth / parseFloat(el.dataset.widthPt);
    images.push({loaded: el.complete && el.naturalWidth > 0, alt: el.alt, name: el.src.slice(0, 30),
      letters: px * parseFloat(el.dataset.smallestPt), legend: px * parseFloat(el.dataset.legendPt)});
  }
  return {width: frame.width, full: slide.scrollHeight - slide.clientHeight, out, small, images, covered,
    title: (slide.querySelector('h1, h2') || {}).textContent};
}"""


@pytest.fixture(scope="module")
def looks(page, built) -> list[dict]:
    """What the browser sees of each slide."""
    found = []
    for number in range(1, built.markdown.read_text().count("\n-->\n") + 1):
        page.goto(f"{built.html.as_uri()}#{number}")
        page.wait_for_timeout(150)
        found.append(page.evaluate(LOOK) | {"number": number})
        if pictures := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=f"{pictures}/slide_{number:02d}.png")
    return found


def test_nothing_is_cut_off_or_covered(looks):
    assert len(looks) >= len(parsed(SLIDES / "60-minutes.md").slides)
    for look in looks:
        where = f"slide {look['number']}, {look['title']}"
        assert look["width"] == pytest.approx(1280, abs=1), where
        assert look["full"] <= 1, f"{where}: {look['full']} px too tall"
        assert not look["out"], where
        assert not look["covered"], where


def test_the_back_row_can_read_it(looks):
    for look in looks:
        for size, source, name in look["small"]:
            least = SMALLEST_SOURCE_PX if source else SMALLEST_PX
            assert size >= least, f"slide {look['number']}, {look['title']}: {name} has {size} px"
        for image in look["images"]:
            where = f"slide {look['number']}, {look['title']}"
            assert image["letters"] >= SMALLEST_FIGURE_PX, f"{where}: letters of {image['letters']:.1f} px"
            assert image["legend"] == 0 or image["legend"] >= SMALLEST_SOURCE_PX, where


def test_each_figure_is_there_with_words_and_its_origin(looks, built):
    named = [name for one in parsed(SLIDES / "60-minutes.md").slides for name in one.figures]
    images = [image for look in looks for image in look["images"]]
    assert len(images) == len(named)
    assert all(image["loaded"] and len(image["alt"]) > 40 for image in images)
    assert built.html.read_text().count('<p class="origin">') == len(named)


def test_it_asks_nobody_for_anything(page, looks, built):
    own = built.html.as_uri()
    assert [url for url in page.asked if not url.startswith((own, "data:"))] == []
    assert page.complaints == []
    assert not re.findall(r'src="(?!data:)[^"]+"', built.html.read_text())


def test_the_presenter_gets_every_note(built):
    notes = re.findall(r'class="bespoke-marp-note"[^>]*>(.*?)</div>', built.html.read_text(), re.DOTALL)
    slides = built.markdown.read_text().count("\n-->\n")
    assert len(notes) == slides
    assert sum("SAY" in note for note in notes) > 20
    assert "WHERE IT IS FROM" in built.notes.read_text()


def test_the_pdf_has_a_page_a_slide(built):
    content = built.pdf.read_bytes()
    assert content.startswith(b"%PDF")
    parts = [content]
    for stream in re.findall(rb"/ObjStm.*?stream\r?\n(.*?)endstream", content, re.DOTALL):
        parts.append(zlib.decompressobj().decompress(stream))  # most objects are in such packed streams
    pages = sum(len(re.findall(rb"/Type\s*/Page\b", part)) for part in parts)
    assert pages == built.markdown.read_text().count("\n-->\n")


def test_the_same_data_give_the_same_bytes(built, tmp_path):
    command = [sys.executable, "-m", "helpers.deck", "--no-pdf", "--out", str(tmp_path)]
    subprocess.run(
        command, cwd=REPO, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": "7"}
    )
    assert (tmp_path / built.html.name).read_bytes() == built.html.read_bytes()
