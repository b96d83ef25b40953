"""Sources become notebooks: canonical, checked against drift, and without loss of anybody's work."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import lessons, settings, sources
from helpers.sources import LessonError

SAMPLE = Path(__file__).parent / "data" / "lessons" / "src" / "07_sample.py"
SETUP = '# %% name="setup"\nfrom helpers import check\n\n'
CHECK = '\n\n# %% name="ex-1-check" tags=["check"]\npass\n'


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """A course of one lesson, with a workspace of its own."""
    folder = tmp_path / "notebooks"
    (folder / "src").mkdir(parents=True)
    shutil.copy(SAMPLE, folder / "src")
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")
    return folder


def write(notebooks: Path, text: str, name: str = "05_x.py") -> Path:
    path = notebooks / "src" / name
    path.write_text(text, encoding="utf-8")
    return path


def cells(path: Path) -> dict[str, dict]:
    return {cell["id"]: cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]}


def text(cell: dict) -> str:
    return "".join(cell["source"])


def edit(path: Path, change) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    change(book)
    path.write_text(json.dumps(book), encoding="utf-8")


def add_output(book: dict) -> None:
    cell = next(cell for cell in book["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["mine\n"]}]
    cell["execution_count"] = 1


def add_work(book: dict) -> None:
    book["cells"][2]["source"] = "my own words"


# ------------------------------------------------------------------------------------------- both versions


def test_both_versions_are_canonical(notebooks):
    lessons.build(notebooks)
    for path in (notebooks / "07_sample.ipynb", notebooks / "solutions" / "07_sample.ipynb"):
        raw = path.read_bytes()
        book = nbformat.reads(raw.decode(), as_version=4)
        nbformat.validate(book)
        assert (book.nbformat, book.nbformat_minor) == (4, 5)
        assert raw.endswith(b"}\n")
        assert "version" not in book.metadata.language_info
        assert book.metadata.kernelspec.name == "python3"
        for cell in book.cells:
            if cell.cell_type == "code":
                assert cell.outputs == []
                assert cell.execution_count is None


def test_building_twice_changes_nothing(notebooks):
    lessons.build(notebooks)
    before = {path: path.read_bytes() for path in notebooks.rglob("*.ipynb")}
    assert len(before) == 2
    assert lessons.build(notebooks) == []
    assert {path: path.read_bytes() for path in notebooks.rglob("*.ipynb")} == before
    assert lessons.check(notebooks) == []


def test_names_become_ids_and_solution_cells_stay_with_the_solution(notebooks):
    lessons.build(notebooks)
    learner = cells(notebooks / "07_sample.ipynb")
    solution = cells(notebooks / "solutions" / "07_sample.ipynb")
    assert list(solution) == [cell.name for cell in sources.read(SAMPLE)]
    assert set(solution) - set(learner) == {"ex-2-solution"}


def test_the_stub_has_no_trace_of_the_solution(notebooks):
    lessons.build(notebooks)
    stub = text(cells(notebooks / "07_sample.ipynb")["ex-1"])
    assert stub.count("return check.NOT_DONE") == 2
    assert "# TODO: say whether there is any text" in stub
    assert "for at_ms" not in stub
    assert "# ---" not in stub
    assert text(cells(notebooks / "07_sample.ipynb")["ex-2"]).endswith("answer = check.NOT_DONE")


def test_the_solved_cell_has_the_code_without_markers(notebooks):
    lessons.build(notebooks)
    solved = text(cells(notebooks / "solutions" / "07_sample.ipynb")["ex-1"])
    assert "for at_ms, text in chunks" in solved
    assert "NOT_DONE" not in solved
    assert "# ---" not in solved


def test_checks_and_questions_are_folded_and_code_is_not(notebooks):
    lessons.build(notebooks)
    learner = cells(notebooks / "07_sample.ipynb")
    for name in ("ex-1-check", "ex-2-check", "question-1"):
        assert learner[name]["metadata"]["jupyter"]["source_hidden"] is True
    for name in ("ex-1", "setup", "progress"):
        assert "jupyter" not in learner[name]["metadata"]


def test_tags_pass_through(notebooks):
    write(notebooks, '# %% name="a" tags=["figure", "needs-gpu"]\n1\n')
    lessons.build(notebooks)
    assert cells(notebooks / "05_x.ipynb")["a"]["metadata"]["tags"] == ["figure", "needs-gpu"]


def test_a_comment_that_looks_like_a_command_stays_a_comment(notebooks):
    write(notebooks, '# %% name="a"\n# cd is what one types\n# %time is a magic\nx = 1\n')
    lessons.build(notebooks)
    assert text(cells(notebooks / "05_x.ipynb")["a"]) == "# cd is what one types\n# %time is a magic\nx = 1"


# ------------------------------------------------------------------------- stubs match by construction


@given(
    name=st.from_regex(r"[a-z]{1,8}_x", fullmatch=True),
    arguments=st.lists(st.from_regex(r"[a-z]{1,6}_a", fullmatch=True), unique=True, max_size=4),
    doc=st.from_regex(r"[A-Za-z ]{1,30}\.", fullmatch=True),
    asynchronous=st.booleans(),
    in_class=st.booleans(),
    body=st.sampled_from(
        ["return 1", "x = 2\nreturn x", "def inner(q):\n    return q\nreturn inner(1)", "yield 1"]
    ),
)
def test_a_stub_keeps_name_arguments_and_docstring(name, arguments, doc, asynchronous, in_class, body):
    pad = "    " if in_class else ""
    lines = [f"{'async ' if asynchronous else ''}def {name}({', '.join(arguments)}):", f'    """{doc}"""']
    lines += ["    # --- your code: do it", *(f"    {line}" for line in body.split("\n")), "    # --- end"]
    code = "\n".join((["class Box:"] if in_class else []) + [pad + line for line in lines])
    cell = sources.Cell("ex-1", "code", code, ("exercise",), 1)
    made = sources.stub(Path("05_x.py"), cell)
    assert sources.signatures(made) == sources.signatures(code)
    assert any(doc in entry for entry in sources.signatures(made))
    assert "inner" not in made
    assert "yield" not in made
    assert made.count("return check.NOT_DONE") == 1


def test_every_stub_of_the_course_keeps_its_signatures():
    for path in (SAMPLE, *sources.paths()):
        for cell in sources.read(path):
            if "exercise" in cell.tags:
                made = sources.stub(path, cell)
                assert sources.signatures(made) == sources.signatures(sources.solved(cell.source)), (
                    path,
                    cell.name,
                )
                assert "check.NOT_DONE" in made


def test_assignments_become_not_done_with_their_annotations(notebooks):
    part = "# --- your code: set them\na: float = 3.0\nb = a * 2\n# --- end\nprint(a)"
    made = sources.stub(Path("05_x.py"), sources.Cell("ex-1", "code", part, ("exercise",), 1))
    assert made == "# TODO: set them\na: float = check.NOT_DONE\nb = check.NOT_DONE\nprint(a)"


# ------------------------------------------------------------------- errors name the file, line and cell


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("# %%\n1\n", 1, "no name"),
        ('# %% name="a"\n1\n\n# %% name="a"\n2\n', 4, "already used in line 1"),
        ('# %% name="Not Good"\n1\n', 1, "lower-case"),
        ('x = 1\n# %% name="a"\n1\n', 1, "above the first"),
        ('# %% name="a" tags=["exercice"]\n1\n', 1, "unknown tag 'exercice'"),
        ('# %% name="a"\n1\n\n# %% name="b"\nx = = 2\n', 5, "invalid syntax"),
        (SETUP + '# %% name="ex-1"\n# --- your code\nx = 1\n# --- end\n', 4, 'tag it "exercise"'),
        (
            SETUP + '# %% name="ex-1" tags=["exercise"]\n# --- your code\nx = 1\n# --- end\n',
            4,
            "needs a check",
        ),
        (
            '# %% name="ex-1" tags=["exercise"]\n# --- your code\nx = 1\n# --- end' + CHECK,
            1,
            "import it first",
        ),
        (SETUP + '# %% name="ex-1" tags=["exercise"]\nx = 1' + CHECK, 4, "around its solution"),
        (SETUP + '# %% name="ex-1" tags=["exercise"]\n# --- your code\nx = 1' + CHECK, 5, "without"),
        (SETUP + '# %% name="ex-1" tags=["exercise"]\nx = 1\n# --- end' + CHECK, 6, "without"),
        (
            SETUP
            + '# %% name="ex-1" tags=["exercise"]\n# --- your code\n# --- your code\nx = 1\n# --- end'
            + CHECK,
            6,
            "second",
        ),
        (
            SETUP
            + '# %% name="ex-1" tags=["exercise"]\n# --- your code\ndef f():\n    pass\n# --- end'
            + CHECK,
            5,
            "inside the function",
        ),
        (
            SETUP + '# %% name="ex-1" tags=["exercise"]\n# --- your code\nprint(1)\n# --- end' + CHECK,
            5,
            "nothing",
        ),
        (
            SETUP + '# %% name="ex-1" tags=["exercise"]\n# --- your code\na, b = 1, 2\n# --- end' + CHECK,
            5,
            "plain",
        ),
        (
            SETUP
            + '# %% name="ex-1" tags=["exercise"]\ndef f():\n    # --- your code\n    """Doc."""\n'
            + "    return 1\n    # --- end"
            + CHECK,
            4,
            "docstring",
        ),
        (SETUP + '# %% name="c"\ncheck.Exercise("06-1", hints=("a", "b"))\n', 5, "begin with 05-"),
        (
            SETUP + '# %% name="c"\ncheck.Exercise("05-1")\ncheck.Exercise("05-1")\n',
            6,
            "already used in line 5",
        ),
    ],
)
def test_a_mistake_in_a_source_is_named(notebooks, source, line, says):
    path = write(notebooks, source)
    with pytest.raises(LessonError) as error:
        sources.read(path)
    assert f"05_x.py, line {line}" in str(error.value)
    assert says in str(error.value)


def test_a_mistake_stops_the_build_before_anything_is_written(notebooks, capsys, monkeypatch):
    write(notebooks, "# %%\n1\n", "09_bad.py")
    monkeypatch.setattr(lessons, "NOTEBOOKS", notebooks)
    assert lessons.main(["build"]) == 1
    assert "09_bad.py, line 1" in capsys.readouterr().err
    assert list(notebooks.rglob("*.ipynb")) == []


def test_a_badly_named_source_is_an_error(notebooks):
    write(notebooks, '# %% name="a"\n1\n', "intro.py")
    with pytest.raises(LessonError, match=r"NN_name\.py"):
        lessons.build(notebooks)


# ------------------------------------------------------------------------------------------------- drift


def drop_id(book):
    book["cells"][0].pop("id")


def change_kernel(book):
    book["metadata"]["kernelspec"]["name"] = "other"


def swap(book):
    book["cells"][0], book["cells"][1] = book["cells"][1], book["cells"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (add_output, "outputs; run counts"),
        (add_work, "cells ex-1-card"),
        (drop_id, "cells title"),
        (change_kernel, "notebook metadata"),
        (swap, "the order of cells"),
        (lambda book: None, "not in canonical form"),
    ],
)
def test_drift_is_found_and_named(notebooks, change, says):
    lessons.build(notebooks)
    edit(notebooks / "07_sample.ipynb", change)
    (problem,) = lessons.check(notebooks)
    assert "notebooks/07_sample.ipynb differs" in problem
    assert says in problem


def test_a_changed_source_a_missing_and_an_orphaned_notebook_are_found(notebooks):
    lessons.build(notebooks)
    source = notebooks / "src" / "07_sample.py"
    source.write_text(source.read_text(encoding="utf-8").replace("Hello", "Hallo"), encoding="utf-8")
    (notebooks / "solutions" / "07_sample.ipynb").unlink()
    shutil.copy(notebooks / "07_sample.ipynb", notebooks / "08_orphan.ipynb")
    first, second, third = lessons.check(notebooks)
    assert "07_sample.ipynb differs from its source: cells setup" in first
    assert "solutions/07_sample.ipynb is missing" in second
    assert "08_orphan.ipynb has no source" in third


def test_an_unreadable_notebook_is_drift(notebooks):
    lessons.build(notebooks)
    (notebooks / "07_sample.ipynb").write_text("{half", encoding="utf-8")
    assert "not a readable notebook" in lessons.check(notebooks)[0]


def test_the_command_line_reports_drift(notebooks, capsys, monkeypatch):
    monkeypatch.setattr(lessons, "NOTEBOOKS", notebooks)
    assert lessons.main(["build"]) == 0
    assert lessons.main(["check"]) == 0
    edit(notebooks / "07_sample.ipynb", add_output)
    assert lessons.main(["check"]) == 1
    assert "python -m helpers.lessons build" in capsys.readouterr().out


# ------------------------------------------------------------------------- build loses nobody's work


@pytest.mark.parametrize("change", [add_output, add_work])
@pytest.mark.parametrize("which", ["07_sample.ipynb", "solutions/07_sample.ipynb"])
def test_work_done_in_a_built_notebook_is_saved_first(notebooks, change, which):
    lessons.build(notebooks)
    edit(notebooks / which, change)
    before = (notebooks / which).read_bytes()
    said = lessons.build(notebooks)
    (kept,) = (settings.WORKSPACE / "saved").rglob("*.ipynb")
    assert kept.read_bytes() == before
    assert str(kept) in "\n".join(said)
    assert lessons.check(notebooks) == []


@pytest.mark.parametrize("content", ["{half", '{"cells": 3, "metadata": {}}', '{"cells": []}', "[]"])
def test_what_is_no_readable_notebook_is_saved_too(notebooks, content):
    (notebooks / "07_sample.ipynb").write_text(content, encoding="utf-8")
    lessons.build(notebooks)
    (kept,) = (settings.WORKSPACE / "saved").rglob("*.ipynb")
    assert kept.read_text(encoding="utf-8") == content


def test_an_untouched_older_build_needs_no_saving(notebooks):
    lessons.build(notebooks)
    source = notebooks / "src" / "07_sample.py"
    source.write_text(source.read_text(encoding="utf-8").replace("Hello", "Hallo"), encoding="utf-8")
    lessons.build(notebooks)
    assert lessons.check(notebooks) == []
    assert not (settings.WORKSPACE / "saved").exists()


def test_build_leaves_a_notebook_without_source_alone(notebooks):
    (notebooks / "99_mine.ipynb").write_text("mine", encoding="utf-8")
    said = lessons.build(notebooks)
    assert (notebooks / "99_mine.ipynb").read_text(encoding="utf-8") == "mine"
    assert any("99_mine.ipynb has no source" in line for line in said)


# ----------------------------------------------------------------------------------- learners' copies


@pytest.fixture
def course(notebooks):
    lessons.build(notebooks)
    lessons.copy(notebooks)
    return notebooks


def newer(notebooks: Path, word: str = "Hallo") -> None:
    source = notebooks / "src" / "07_sample.py"
    source.write_text(source.read_text(encoding="utf-8") + f"\n# {word}\n", encoding="utf-8")
    lessons.build(notebooks)


def folder() -> Path:
    return settings.WORKSPACE / "lessons"


def names() -> list[str]:
    return sorted(str(path.relative_to(folder())) for path in folder().rglob("*.ipynb"))


def test_an_absent_lesson_is_copied(course):
    assert names() == ["07_sample.ipynb"]
    assert (folder() / "07_sample.ipynb").read_bytes() == (course / "07_sample.ipynb").read_bytes()


@pytest.mark.parametrize("change", [add_output, add_work, lambda book: None])
def test_with_the_lesson_unchanged_a_copy_is_left_alone(course, change):
    edit(folder() / "07_sample.ipynb", change)
    before = (folder() / "07_sample.ipynb").read_bytes()
    assert lessons.copy(course) == []
    assert names() == ["07_sample.ipynb"]
    assert (folder() / "07_sample.ipynb").read_bytes() == before


def blank_cell_too(book):
    add_output(book)
    book["cells"].append({"cell_type": "code", "id": "new", "source": "", "outputs": [], "metadata": {}})


@pytest.mark.parametrize("change", [add_output, blank_cell_too])
def test_a_copy_with_only_outputs_makes_room_for_the_newer_lesson(course, change):
    edit(folder() / "07_sample.ipynb", change)
    before = (folder() / "07_sample.ipynb").read_bytes()
    newer(course)
    (said,) = lessons.copy(course)
    assert (folder() / "07_sample.ipynb").read_bytes() == (course / "07_sample.ipynb").read_bytes()
    (kept,) = (folder() / "earlier").glob("07_sample.*.ipynb")
    assert kept.read_bytes() == before
    assert str(kept) in said
    assert lessons.copy(course) == []


def test_two_newer_lessons_in_one_second_keep_both_earlier_runs(course, monkeypatch):
    monkeypatch.setattr(lessons, "_now", lambda: "same")
    for word in ("one", "two"):
        edit(folder() / "07_sample.ipynb", add_output)
        newer(course, word)
        lessons.copy(course)
    assert names() == ["07_sample.ipynb", "earlier/07_sample.same-2.ipynb", "earlier/07_sample.same.ipynb"]


def test_an_edited_copy_stays_and_the_newer_lesson_is_put_beside_it(course):
    edit(folder() / "07_sample.ipynb", add_work)
    before = (folder() / "07_sample.ipynb").read_bytes()
    newer(course, "one")
    (said,) = lessons.copy(course)
    assert "it stays" in said
    assert names() == ["07_sample.ipynb", "07_sample.new.ipynb"]
    assert lessons.copy(course) == []  # offered once
    newer(course, "two")
    lessons.copy(course)
    assert names() == ["07_sample.ipynb", "07_sample.new-2.ipynb", "07_sample.new.ipynb"]
    assert (folder() / "07_sample.ipynb").read_bytes() == before
    assert (folder() / "07_sample.new-2.ipynb").read_bytes() == (course / "07_sample.ipynb").read_bytes()


@pytest.mark.parametrize("changed", [False, True])
def test_an_unreadable_copy_moves_aside_and_is_made_anew(course, changed):
    (folder() / "07_sample.ipynb").write_text("{half", encoding="utf-8")
    if changed:
        newer(course)
    (said,) = lessons.copy(course)
    (kept,) = (folder() / "earlier").glob("07_sample.*.ipynb")
    assert kept.read_text(encoding="utf-8") == "{half"
    assert "could not be read" in said
    assert str(kept) in said
    assert (folder() / "07_sample.ipynb").read_bytes() == (course / "07_sample.ipynb").read_bytes()
    assert lessons.copy(course) == []


def test_a_full_disk_leaves_no_half_copy(notebooks, monkeypatch):
    lessons.build(notebooks)
    real = Path.write_bytes

    def full(self, content):
        real(self, content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            lessons.copy(notebooks)
    assert list(folder().iterdir()) == []
    assert lessons.copy(notebooks) == []
    assert (folder() / "07_sample.ipynb").read_bytes() == (notebooks / "07_sample.ipynb").read_bytes()


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_never_takes_the_place_of_another(tmp_path, monkeypatch, links):
    def no_links(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    lessons._create(tmp_path / "a.ipynb", b"first")
    with pytest.raises(FileExistsError):
        lessons._create(tmp_path / "a.ipynb", b"second")
    assert [path.name for path in tmp_path.iterdir()] == ["a.ipynb"]
    assert (tmp_path / "a.ipynb").read_bytes() == b"first"


def test_taking_the_new_file_as_ones_own_settles_it(course):
    edit(folder() / "07_sample.ipynb", add_work)
    newer(course)
    lessons.copy(course)
    (folder() / "07_sample.new.ipynb").rename(folder() / "07_sample.ipynb")
    assert lessons.copy(course) == []
    newer(course, "again")
    lessons.copy(course)
    assert len(names()) == 2
    assert names()[1].startswith("earlier/")


@pytest.mark.parametrize("state", [None, "{half", "[]", '{"07_sample.ipynb": 3}', '{"07_sample.ipynb": {}}'])
@pytest.mark.parametrize("change", [add_output, add_work, lambda book: None])
def test_without_its_state_file_nothing_is_lost(course, state, change):
    edit(folder() / "07_sample.ipynb", change)
    before = (folder() / "07_sample.ipynb").read_bytes()
    newer(course)
    remembered = folder() / ".copied.json"
    remembered.unlink()
    if state is not None:
        remembered.write_text(state, encoding="utf-8")
    lessons.copy(course)
    assert before in [path.read_bytes() for path in folder().rglob("*.ipynb")]
    assert (course / "07_sample.ipynb").read_bytes() in [
        path.read_bytes() for path in folder().rglob("*.ipynb")
    ]
    lessons.copy(course)
    assert before in [path.read_bytes() for path in folder().rglob("*.ipynb")]


# ---------------------------------------------------------------------------- what a source holds


def test_items_titles_and_answers_are_read_from_the_source(notebooks, monkeypatch):
    monkeypatch.setattr(sources, "NOTEBOOKS", notebooks)
    path = sources.find("07")
    assert sources.title(path) == "A sample lesson"
    found = sources.items(path)
    assert [item.id for item in found] == ["07-1", "07-2", "07-q1"]
    assert found[0].title == "Exercise 1: time the first token"
    assert (found[2].kind, found[2].right, found[2].options) == ("quiz", 1, 3)
    assert sources.find("99") is None
    assert sources.answer("99", "ex-1") is None
    assert sources.answer("07", "no-such-cell") is None


def test_the_answer_is_the_solved_cell(notebooks, monkeypatch):
    monkeypatch.setattr(sources, "NOTEBOOKS", notebooks)
    lessons.build(notebooks)
    solved = cells(notebooks / "solutions" / "07_sample.ipynb")
    for name in ("ex-1", "ex-2", "setup", "ex-2-check"):
        assert sources.answer("07", name) == text(solved[name])
