"""Every figure of the course comes from one command, the same bytes each time, with where it came from."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import figure_checks
import pandas as pd
import pytest
from matplotlib.figure import Figure

from helpers import drawing, figures, gallery, gallery_note, gallery_page, provenance, published, style
from helpers.exhibit import Exhibit, Lazily
from helpers.settings import DATA, REPO, CourseError

EXHIBITS = {exhibit.name: exhibit for exhibit in gallery.exhibits()}
SLIDE_PX = (1140, 586)  # what a slide of 1280 x 720 px has for a figure; data/style.toml says so, too
QUICK = "00-first-reply"
COLUMN_ONLY = ("04-parser", "05-two-replies", "07-saturation")  # panels one below the other: too tall


# What there is


def figure_functions() -> dict[str, object]:
    """Every public function of helpers/figures_*.py that gives a figure."""
    found = {}
    for path in sorted((REPO / "helpers").glob("figures_*.py")):
        module = importlib.import_module(f"helpers.{path.stem}")
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_":
                returned = inspect.get_annotations(value, eval_str=True).get("return")
                if inspect.isclass(returned) and issubclass(returned, Figure):
                    found[f"{path.stem}.{name}"] = value
    return found


@pytest.mark.parametrize("name", figure_functions())
def test_every_figure_function_has_an_exhibit(name):
    assert figure_functions()[name] in [exhibit.draw for exhibit in EXHIBITS.values()]


def cells(path: Path) -> list[tuple[str, str]]:
    """First line and text of each code cell of a lesson's source."""
    parts = re.split(r"(?m)^(?=# %%)", path.read_text(encoding="utf-8"))
    return [(part.split("\n", 1)[0], part) for part in parts if part and "[markdown]" not in part[:20]]


def shown(text: str) -> list[str]:
    """Names of the figure functions that a program shows or saves, as they stand in it."""
    return re.findall(r"\bfigures\.(?:show|save)\(\s*([\w.]+)", text)


def resolved(name: str, of_module: object = figures) -> object:
    module, _, function = name.rpartition(".")
    if not module:
        return getattr(of_module, function)
    return getattr(importlib.import_module(f"helpers.{module}"), function)


@pytest.mark.parametrize(
    "path", sorted((REPO / "notebooks" / "src").glob("*.py")), ids=lambda path: path.stem
)
def test_a_lesson_shows_only_figures_that_the_gallery_has(path):
    drawn_by = [exhibit.draw for exhibit in EXHIBITS.values()]
    for head, text in cells(path):
        names = shown(text)
        assert names or '"figure"' not in head, f"{head}: a figure cell without figures.show"
        for name in names:
            assert resolved(name) in drawn_by, f"{head}: {name} has no exhibit"


def test_panels_show_only_figures_that_the_gallery_has():
    drawn_by = [exhibit.draw for exhibit in EXHIBITS.values()]
    found = 0
    for path in sorted((REPO / "helpers").glob("panels*.py")):
        for name in shown(path.read_text(encoding="utf-8")):
            function = resolved(name, importlib.import_module(f"helpers.{path.stem}"))
            assert function in drawn_by, f"{path.name}: {name} has no exhibit"
            found += 1
    assert found


def test_nothing_draws_past_the_figure_functions():
    """Lessons, panels, scripts: only the figures import matplotlib, and nobody uses pandas' plots."""
    places = [*REPO.glob("helpers/*.py"), *REPO.glob("benchmarks/*.py"), *REPO.glob("notebooks/src/*.py")]
    allowed = re.compile(r"figures\w*|drawing|style|exhibit|gallery|deck_figures")
    for path in places:
        if allowed.fullmatch(path.stem):
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            drawing_name = [
                name for name in names if name.split(".")[0] in ("matplotlib", "seaborn", "plotly")
            ]
            assert not drawing_name, f"{path.name} imports {drawing_name}"
        assert not re.search(r"\.plot(\.\w+)?\(|\.hist\(|\.savefig\(", text), f"{path.name} draws by itself"


def test_names_are_in_order_and_the_lessons_exist():
    titles = gallery_note.lesson_titles()
    assert [name[:2] for name in EXHIBITS] == sorted(name[:2] for name in EXHIBITS)
    assert {exhibit.lesson for exhibit in EXHIBITS.values()} <= set(titles)
    for exhibit in EXHIBITS.values():
        assert re.fullmatch(r"[^.]{20,}.*\.", exhibit.says), f"{exhibit.name}: says one sentence"


def test_only_some():
    assert [e.name for e in gallery.exhibits(["00"])] == [n for n in EXHIBITS if n.startswith("00")]
    assert [e.name for e in gallery.exhibits(["05-itl", "00"])][-1] == "05-itl"
    assert gallery.find("05-itl") is EXHIBITS["05-itl"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("99", "No lesson '99' has figures"),
        ("05-nothing", "There is no figure '05-nothing'. Lesson 05 has: .*05-itl"),
        ("5", "No lesson '5'"),
    ],
)
def test_a_name_that_is_none_is_named(name, says):
    with pytest.raises(CourseError, match=says):
        gallery.exhibits([name])


@pytest.mark.parametrize("bad", ["06-other-lesson", "00-Large", "00-a b", "first", "00-"])
def test_an_exhibit_with_a_bad_name_is_named(bad, monkeypatch):
    module = importlib.import_module("helpers.exhibits_00")
    monkeypatch.setattr(module, "EXHIBITS", (Exhibit(bad, figures.course_map, None, "x"),))
    with pytest.raises(CourseError, match=r"exhibits_00\.py: .* is no name"):
        gallery.exhibits(["00"])


def test_two_exhibits_of_one_name_are_named(monkeypatch):
    module = importlib.import_module("helpers.exhibits_00")
    monkeypatch.setattr(module, "EXHIBITS", module.EXHIBITS * 2)
    with pytest.raises(CourseError, match="two exhibits"):
        gallery.exhibits(["00"])


def test_a_missing_module_breaks_nothing(monkeypatch):
    monkeypatch.setattr(gallery, "lessons", lambda: ["00", "05"])
    assert {e.lesson for e in gallery.exhibits()} == {"00", "05"}


def test_lazy_options_are_a_mapping_read_anew():
    made = []
    options = Lazily(lambda: made.append(1) or {"title": "x", "n": len(made)})
    assert not made
    assert dict(**options)["title"] == "x"
    assert options["n"] < options["n"]


# What they look like


@cache
def frame_of(name: str) -> pd.DataFrame | None:
    exhibit = EXHIBITS[name]
    return None if exhibit.frame is None else exhibit.frame()


def drawn(name: str, theme: str, size: str = "column") -> Figure:
    exhibit, frame = EXHIBITS[name], frame_of(name)
    with style.sized(size):
        return exhibit.draw(*(() if frame is None else (frame,)), theme=theme, **exhibit.options)


@pytest.mark.parametrize("theme", sorted(drawing.THEMES))
@pytest.mark.parametrize("name", EXHIBITS)
def test_it_can_be_read(name, theme):
    figure = drawn(name, theme)
    found = figure_checks.words(figure, theme)
    assert not figure_checks.clipped(found, figure)
    assert not figure_checks.colliding(found)
    assert not figure_checks.pale(found)
    assert min(one.points for one in found) >= 6.5, "9 px at the width of a blog's column"


@pytest.mark.parametrize("name", EXHIBITS)
def test_it_can_be_read_from_the_back_row(name):
    figure = drawn(name, "light", "slide")
    found = figure_checks.words(figure, "light")
    assert not figure_checks.clipped(found, figure)
    assert not figure_checks.colliding(found)
    px_an_inch = min(px / inches for px, inches in zip(SLIDE_PX, figure.get_size_inches(), strict=True))
    smallest = min(found, key=lambda one: one.points)
    least = 9.5 if name in COLUMN_ONLY else 12
    assert smallest.points / 72 * px_an_inch >= least, f"{smallest.says!r} on a slide of 1280 px"


@pytest.mark.parametrize("name", EXHIBITS)
def test_it_says_in_words_what_it_shows_and_where_it_is_from(name):
    figure, frame = drawn(name, "light"), frame_of(name)
    assert len(figures.alt_text(figure)) > 60
    assert figure.note
    for origin in set() if frame is None or "origin" not in frame else set(frame["origin"]):
        assert origin in figure.note, f"{origin} is in the table and not in the note"


# Where it came from


def test_files_are_noted_even_if_they_were_read_before():
    published.table()
    with provenance.watching() as read:
        published.value("card.limit")
    assert read == {DATA / "published.csv"}
    with provenance.watching() as nothing:
        pass
    assert not nothing


def test_only_what_was_read_below_data_is_noted(tmp_path):
    (tmp_path / "own.csv").write_text("a\n1\n")
    with provenance.watching() as read:
        pd.read_csv(tmp_path / "own.csv")
        (REPO / "README.md").read_text(encoding="utf-8")
        (DATA / "lessons.csv").read_text(encoding="utf-8")
        with pytest.raises(FileNotFoundError):
            (DATA / "not-there.csv").read_text(encoding="utf-8")
    assert [source.file for source in provenance.sources(read)] == ["data/lessons.csv"]


def test_a_run_is_told_with_machine_server_date_and_count():
    path = DATA / "runs" / "05_measure_ttft.jsonl.gz"
    (source,) = provenance.sources({path})
    about = provenance._conditions(path)
    for part in (
        about["date"],
        about["server"]["name"],
        about["machine"]["processor"],
        f"{about['machine']['cores']} cores",
        f"{about['requests']:,} requests",
        about["workload"],
    ):
        assert part in source.says
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_table_of_a_run_and_its_conditions_are_one_entry():
    stem = DATA / "runs" / "05-tools"
    (source,) = provenance.sources({stem.with_suffix(".csv"), stem.with_suffix(".json")})
    assert source.file == "data/runs/05-tools.csv"
    assert "12 rows" in source.says


def test_a_modelled_run_says_which_tool_computed_it():
    (source,) = provenance.sources({DATA / "runs" / "07-b200-line.csv"})
    assert "dynamo.replay" in source.says
    assert "computed, not measured" in source.says


def test_a_table_of_figures_is_told_with_the_dates_of_its_rows():
    (source,) = provenance.sources({DATA / "gpus.csv"})
    dates = sorted(pd.read_csv(DATA / "gpus.csv", dtype=str)["date"])
    assert source.says.endswith(f"rows, dated {dates[0]} to {dates[-1]}")


def test_published_sources_are_listed_once_and_modelled_rows_with_theirs():
    frame = pd.DataFrame(
        {
            "origin": ["published", "published", "modelled", "measured"],
            "source": ["a card", "a card", "sizes", None],
            "date": ["2026-08", "2026-08", "2026", None],
        }
    )
    assert provenance.published_sources(frame) == ["published: a card, 2026-08", "modelled: sizes, 2026"]
    assert provenance.published_sources(frame.drop(columns="date")) == [
        "published: a card",
        "modelled: sizes",
    ]
    assert provenance.published_sources(None) == []


# The folder


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """The whole gallery, made by the command."""
    folder = tmp_path_factory.mktemp("gallery")
    command(folder / "one", seed="1")
    return folder / "one"


def command(folder: Path, *words: str, seed: str = "0", **variables: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": seed} | variables
    done = subprocess.run(
        [sys.executable, "-m", "helpers.gallery", "--out", str(folder), *words],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_exhibit_has_its_files(made):
    endings = (".svg", ".png", "-dark.svg", "-dark.png", ".alt.txt", ".origins.txt")
    wanted = {name + ending for name in EXHIBITS for ending in endings}
    assert set(content(made)) == wanted | {gallery.PAGE, gallery.MANIFEST}


def test_made_elsewhere_the_bytes_are_the_same(made, tmp_path):
    """Another process, hash seed, time zone, language and a user's own matplotlib settings."""
    (tmp_path / "matplotlibrc").write_text(
        "font.size: 30\naxes.facecolor: pink\nsavefig.dpi: 55\nsavefig.bbox: tight\naxes.grid: True\n"
        "axes.formatter.use_locale: True\nsvg.fonttype: none\npath.simplify: False\n"
    )
    where = {
        "TZ": "Pacific/Auckland",
        "LC_ALL": "C",
        "LANG": "de_DE.UTF-8",
        "MATPLOTLIBRC": str(tmp_path),
        "PYTHONUTF8": "0",
    }
    command(tmp_path / "two", seed="4711", **where)
    one, two = content(made), content(tmp_path / "two")
    assert list(one) == list(two)
    assert not [name for name in one if one[name] != two[name]]


def test_the_note_of_a_figure_says_all_that_it_must(made):
    note = (made / "05-two-replies.origins.txt").read_text(encoding="utf-8")
    flat = " ".join(note.split())
    run = DATA / "runs" / "05_measure_ttft.jsonl.gz"
    about = provenance._conditions(run)
    for part in (
        "05-two-replies",
        "Lesson: 05 measure TTFT",
        "helpers.figures_reply.stream_timeline",
        "data/runs/05_measure_ttft.jsonl.gz",
        hashlib.sha256(run.read_bytes()).hexdigest(),
        f"run of {about['date']}",
        about["server"]["name"],
        about["machine"]["processor"],
        f"{about['requests']:,} requests",
        "n = 2",
        "Apache-2.0",
        "To cite it: 1500 Milliseconds, version",
    ):
        assert part in flat


def test_every_recorded_figure_names_its_run_and_every_published_one_its_source(made):
    records = json.loads((made / gallery.MANIFEST).read_text(encoding="utf-8"))["exhibits"]
    for name, record in records.items():
        frame = frame_of(name)
        said = set() if frame is None or "origin" not in frame else set(frame["origin"])
        runs = [one["file"] for one in record["sources"] if one["file"].startswith("data/runs/")]
        if "recorded" in said:
            assert runs, name
        if "published" in said:
            assert any(line.startswith("published: ") for line in record["published"]), name


def test_texts_of_a_figure_are_those_of_save(made, tmp_path):
    exhibit = EXHIBITS["05-itl"]
    *_, text = figures.save(exhibit.draw, frame_of("05-itl"), tmp_path / "05-itl", **exhibit.options)
    assert text.read_bytes() == (made / "05-itl.alt.txt").read_bytes()


def test_the_readmes_figure_is_what_the_recorded_run_gives(tmp_path):
    for path in gallery.two_replies(tmp_path):
        there = (gallery.FOLDER / path.name).read_bytes()
        assert path.read_bytes() == there, f"{path.name}: python -m helpers.gallery --readme"


def test_the_readmes_figure_is_the_gallerys(made):
    for ending in (".svg", ".png", ".alt.txt"):
        there = (gallery.FOLDER / f"two_replies{ending}").read_bytes()
        assert (made / f"{gallery.README_FIGURE}{ending}").read_bytes() == there


# Nothing of the learner's is lost


def quick(**options) -> gallery.Made:
    return gallery.make(EXHIBITS[QUICK], **options)


def test_a_foreign_file_in_the_way_stops_it_before_anything_is_written(tmp_path):
    (tmp_path / "index.html").write_text("my own page")
    with pytest.raises(CourseError, match=r"did not write.*index\.html"):
        gallery.write([quick(themes=["light"])], tmp_path)
    assert content(tmp_path) == {"index.html": b"my own page"}


def test_a_file_that_was_changed_is_kept(tmp_path):
    drawn_once = quick(themes=["light"])
    gallery.write([drawn_once], tmp_path)
    (tmp_path / f"{QUICK}.svg").write_text("<svg>mine</svg>")
    before = content(tmp_path)
    with pytest.raises(CourseError, match=rf"changed since: {QUICK}\.svg"):
        gallery.write([drawn_once], tmp_path)
    assert content(tmp_path) == before


def test_its_own_files_are_replaced_and_others_left(tmp_path):
    old = quick(themes=["light"])
    gallery.write([old], tmp_path)
    (tmp_path / "notes.md").write_text("mine")
    newer = gallery.Made(old.record | {"says": "Another sentence."}, old.files | {f"{QUICK}.png": b"new"})
    gallery.write([newer], tmp_path)
    after = content(tmp_path)
    assert after[f"{QUICK}.png"] == b"new"
    assert after["notes.md"] == b"mine"
    assert b"Another sentence." in after["index.html"]


def test_a_damaged_list_is_no_reason_to_write_over_anything(tmp_path):
    (tmp_path / "gallery.json").write_text('{"exhibits": [1]}')
    with pytest.raises(CourseError, match=r"gallery\.json is not the gallery's, or is damaged"):
        gallery.write([quick(themes=["light"])], tmp_path)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CourseError, match="could not be written"):
        gallery.write([quick(themes=["light"])], tmp_path / "file" / "gallery")


def test_what_was_made_before_stays_on_the_page(tmp_path):
    gallery.write([quick(themes=["light"])], tmp_path)
    other = gallery.make(EXHIBITS["00-course-map"], themes=["light"])
    gallery.write([other], tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.index('id="00-first-reply"') < page.index('id="00-course-map"')
    (tmp_path / f"{QUICK}.svg").unlink()
    gallery.write([other], tmp_path)
    assert QUICK not in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_one_theme_now_and_the_other_later_are_both_on_the_page(tmp_path):
    gallery.write([quick(themes=["dark"])], tmp_path)
    assert "<source" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    gallery.write([quick(themes=["light"])], tmp_path)
    assert f'<source srcset="{QUICK}-dark.svg"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_figure_that_cannot_be_made_does_not_stop_the_others(tmp_path, monkeypatch):
    module = importlib.import_module("helpers.exhibits_00")

    def broken() -> pd.DataFrame:
        raise CourseError("There is no such run. Type: make record")

    bad = Exhibit("00-broken", figures.itl, broken, "Never seen.")
    monkeypatch.setattr(module, "EXHIBITS", (bad, EXHIBITS[QUICK]))
    said: list[str] = []
    failed = gallery.run(tmp_path, only=["00"], themes=["light"], say=said.append)
    assert failed == ["00-broken: There is no such run. Type: make record"]
    assert (tmp_path / f"{QUICK}.svg").exists()
    assert "1/2 00-broken: not made, see below" in said


def test_the_command_says_what_is_wrong(capsys):
    assert gallery.main(["--only", "99"]) == 1
    assert "No lesson '99'" in capsys.readouterr().err


# The page


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_links_only_to_files_that_are_there(made):
    page = Page((made / "index.html").read_text(encoding="utf-8"))
    links = [of["href"] for of in page.of("a")] + [of["src"] for of in page.of("img")]
    links += [of["srcset"] for of in page.of("source")]
    ids = {of["id"] for _, of in page.tags if "id" in of}
    assert len(links) > 7 * len(EXHIBITS)
    for link in links:
        assert link[1:] in ids if link.startswith("#") else (made / link).is_file(), link
    assert not re.search(r"https?:|//", re.sub(r"<p.*?</p>|<img[^>]*>", "", "\n".join(links)))


def test_every_image_has_its_words_and_its_size(made):
    page = Page((made / "index.html").read_text(encoding="utf-8"))
    images = page.of("img")
    assert len(images) == len(EXHIBITS)
    for image, name in zip(images, EXHIBITS, strict=True):
        assert image["alt"] == figures.alt_text(drawn(name, "light"))
        assert int(image["width"]) == round(drawing.WIDTH_IN * 100)


def test_words_that_are_html_stay_words():
    record = quick(themes=["light"]).record | {
        "title": "<b>", "says": "a < b & c", "alt": 'x "y" <z>', "note": "<i>",
    }  # fmt: skip
    text = gallery_page.page([record])
    assert "a &lt; b &amp; c" in text
    assert Page(text).of("img")[0]["alt"] == 'x "y" <z>'
    assert not Page(text).of("b")
    assert not Page(text).of("i")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(made, chromium, width, scheme):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((made / "index.html").as_uri())
        page.evaluate("document.querySelectorAll('img').forEach(image => { image.loading = 'eager' })")
        page.wait_for_function("[...document.images].every(image => image.complete)")
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        assert all(url.startswith("file:") for url in asked)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shown_file = page.evaluate("document.images[0].currentSrc")
        assert shown_file.endswith("-dark.svg") == (scheme == "dark")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}[scheme]
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "picture"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        browser.close()
