"""The hand-written source of a lesson: its cells, its exercises, and the stubs made of their solutions.

A source is ``notebooks/src/NN_name.py``: the solved lesson in jupytext's percent format, plain Python, with a
name on each cell. CONTRIBUTING.md shows how one is written; :mod:`helpers.lessons` makes notebooks of it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers import settings
from helpers.settings import CourseError

NOTEBOOKS = settings.REPO / "notebooks"

# An unknown tag is an error: a mistyped "exercise" would hand the solution to the learner.
TAGS = {"exercise", "solution", "hint", "check", "quiz", "figure", "needs-gpu", "setup", "raises-exception"}
LESSON_NAME = re.compile(r"(\d\d)_[a-z0-9_]+")
CELL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")  # what nbformat takes as an id, and reads well
HEADER = re.compile(r"# %%(?:\s|$)")
NAME_IN_HEADER = re.compile(r'\bname="([^"]*)"')
BEGIN = re.compile(r"(\s*)# --- your code(?::\s*(.*?))?\s*$")
END = re.compile(r"\s*# --- end\s*$")
IMPORTS_CHECK = re.compile(
    r"^from helpers import [^\n]*\bcheck\b|^from helpers import \([^)]*\bcheck\b", re.MULTILINE
)
DEFAULT_TODO = "write your code here, in place of the next line."

Function = ast.FunctionDef | ast.AsyncFunctionDef


class LessonError(CourseError):
    """A mistake in a lesson's source; its text names the file, the line and the cell."""

    def __init__(self, path: Path, line: int, cell: str | None, message: str) -> None:
        """Put the place before the message; ``line`` counts from 1."""
        where = f"{path.name}, line {line}" + (f', cell "{cell}"' if cell else "")
        super().__init__(f"{where}: {message}")


@dataclass(frozen=True)
class Cell:
    """One cell of a source: its name, ``code`` or ``markdown``, its tags, its (solved) text, and the line of
    its header in the source file."""

    name: str
    kind: str
    source: str
    tags: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Item:
    """Something a learner can complete: an exercise or a quiz question, as found in a source.

    ``right`` is the position (from 0) of the right option of a question, ``options`` their number.
    """

    lesson: str
    id: str
    kind: str
    title: str
    line: int
    right: int | None = None
    options: int | None = None


# ---------------------------------------------------------------------------------------------------------
# Reading a source


def paths(notebooks: Path | None = None) -> list[Path]:
    """The lessons' sources, in order. Raises LessonError for a file not named ``NN_name.py``."""
    found = sorted(((notebooks or NOTEBOOKS) / "src").glob("*.py"))
    for path in found:
        if not LESSON_NAME.fullmatch(path.stem):
            raise LessonError(path, 1, None, "a lesson is called NN_name.py, such as 05_measure_ttft.py.")
    return found


def blocks(text: str) -> list[tuple[int, str, list[str]]]:
    """Split a source at its ``# %%`` headers: (line number from 1, header, the lines below it) of each."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if HEADER.match(line):
            found.append((number, line, []))
        elif found:
            found[-1][2].append(line)
    return found


def read(path: Path) -> list[Cell]:
    """The cells of one source. Raises LessonError for a cell without a usable name, a name used twice, an
    unknown tag, an exercise that cannot become a stub, or an id that does not belong to the lesson."""
    try:
        import jupytext  # only authors build; a learner's environment does without it
    except ImportError as error:
        raise CourseError(
            "Lessons are built with jupytext, which is not in this environment. Authors install it with: "
            "pip install -e '.[dev]'"
        ) from error

    text = path.read_text(encoding="utf-8")
    lines: dict[str, int] = {}
    for line, header, _ in blocks(text):
        match = NAME_IN_HEADER.search(header)
        if not match:
            raise LessonError(path, line, None, f'this cell has no name. Write: {header} name="what-it-does"')
        name = match[1]
        if not CELL_NAME.fullmatch(name):
            raise LessonError(
                path,
                line,
                name,
                "a name has only lower-case letters, digits and hyphens, 64 at most.",
            )
        if name in lines:
            raise LessonError(path, line, name, f"this name is already used in line {lines[name]}.")
        lines[name] = line

    # Without comment_magics, a comment such as "# cd into it" would be turned into a command.
    form = {"extension": ".py", "format_name": "percent", "comment_magics": False}
    cells = []
    for raw in jupytext.reads(text, fmt=form).cells:
        name = raw.metadata.get("name")
        if name not in lines:
            raise LessonError(path, 1, name, 'text above the first "# %%" header; give it a header.')
        cells.append(Cell(name, raw.cell_type, raw.source, tuple(raw.metadata.get("tags", ())), lines[name]))
    _validate(path, cells)
    return cells


def _validate(path: Path, cells: list[Cell]) -> None:
    names = {cell.name: cell for cell in cells}
    check_imported = False
    for cell in cells:
        unknown = sorted(set(cell.tags) - TAGS)
        if unknown:
            raise LessonError(
                path, cell.line, cell.name, f"unknown tag {unknown[0]!r}. Known: {', '.join(sorted(TAGS))}."
            )
        if cell.kind == "code":
            _parse(path, cell, cell.source)
        check_imported |= bool(IMPORTS_CHECK.search(cell.source))
        marked = any(BEGIN.match(line) or END.match(line) for line in cell.source.splitlines())
        if "exercise" not in cell.tags:
            if marked:
                raise LessonError(path, cell.line, cell.name, 'it has markers; tag it "exercise".')
            continue
        if not check_imported:
            raise LessonError(path, cell.line, cell.name, 'import it first: "from helpers import check".')
        check_cell = names.get(f"{cell.name}-check")
        if check_cell is None or "check" not in check_cell.tags or check_cell.line < cell.line:
            raise LessonError(
                path,
                cell.line,
                cell.name,
                f'it needs a check: # %% name="{cell.name}-check" tags=["check"]',
            )
        stub(path, cell)

    seen: dict[str, int] = {}
    for item in items(path):
        if not item.id.startswith(f"{item.lesson}-"):
            raise LessonError(path, item.line, None, f'"{item.id}" does not begin with {item.lesson}-.')
        if item.id in seen:
            raise LessonError(path, item.line, None, f'"{item.id}" is already used in line {seen[item.id]}.')
        seen[item.id] = item.line


def _parse(path: Path, cell: Cell, code: str) -> ast.Module:
    try:
        return compile(code, cell.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        raise LessonError(path, cell.line + (error.lineno or 0), cell.name, f"{error.msg}.") from error


# ---------------------------------------------------------------------------------------------------------
# From solution to stub


def solved(source: str) -> str:
    """A solved cell as people read it: without the marker comments."""
    kept = (line for line in source.splitlines() if not BEGIN.match(line) and not END.match(line))
    return "\n".join(kept)


def stub(path: Path, cell: Cell) -> str:
    """The learner's form of an exercise cell: each marked part becomes a TODO and ``check.NOT_DONE``.

    Inside a function that is ``return check.NOT_DONE``; at the top level each name the part assigns is set
    to ``check.NOT_DONE``. What is outside the markers stays as it is, so names, arguments and docstrings are
    the solution's own. Raises LessonError where that cannot be.
    """
    lines = cell.source.splitlines()
    functions = [node for node in ast.walk(_parse(path, cell, cell.source)) if isinstance(node, Function)]
    out: list[str] = []
    start: int | None = None  # index of the marker that opened the part we are in
    parts = 0

    def fail(index: int, message: str) -> LessonError:
        return LessonError(path, cell.line + index + 1, cell.name, message)

    for index, line in enumerate(lines):
        begin = BEGIN.match(line)
        if begin:
            if start is not None:
                raise fail(index, 'a second "# --- your code" before "# --- end".')
            start = index
            out.append(f"{begin[1]}# TODO: {begin[2] or DEFAULT_TODO}")
        elif END.match(line):
            if start is None:
                raise fail(index, '"# --- end" without "# --- your code" above it.')
            indent = BEGIN.match(lines[start])[1]
            inside = any(f.lineno < start + 1 <= (f.end_lineno or 0) for f in functions)
            if inside:
                out.append(f"{indent}return check.NOT_DONE")
            else:
                part = "\n".join(lines[start + 1 : index])
                try:
                    out += [f"{indent}{target} = check.NOT_DONE" for target in _assigned(part)]
                except ValueError as error:
                    raise fail(start, str(error)) from None
            start = None
            parts += 1
        elif start is None:
            out.append(line)
    if start is not None:
        raise fail(start, '"# --- your code" without "# --- end" below it.')
    if not parts:
        raise fail(-1, 'an exercise needs "# --- your code: what to do" and "# --- end" around its solution.')
    made = "\n".join(out)
    _parse(path, cell, made)
    if signatures(made) != signatures(cell.source):
        raise fail(-1, "keep a function's name, arguments and docstring outside the markers.")
    return made


def _assigned(part: str) -> list[str]:
    """The names that a top-level part assigns, annotations kept. Raises ValueError if it makes no stub."""
    names: list[str] = []
    for node in ast.parse(textwrap.dedent(part)).body:
        if isinstance(node, Function | ast.ClassDef):
            raise ValueError("put the markers inside the function, below its docstring, not around it.")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(f"{node.target.id}: {ast.unparse(node.annotation)}")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not isinstance(target, ast.Name):
                    raise ValueError(f"assign one plain name a line, not {ast.unparse(target)!r}.")
                names.append(target.id)
    if not names:
        raise ValueError("the marked part assigns nothing, so nothing can be left to do.")
    return list(dict.fromkeys(names))


def signatures(code: str) -> list[tuple[str, ...]]:
    """Each function and class of a cell, but not those inside functions: kind, name, arguments, return
    annotation, decorators, docstring. Equal lists mean that a stub keeps what its solution promises."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ...]]:
        for node in body:
            if not isinstance(node, Function | ast.ClassDef):
                continue
            decorators = " ".join(ast.unparse(item) for item in node.decorator_list)
            doc = ast.get_docstring(node, clean=False) or ""
            if isinstance(node, ast.ClassDef):
                yield "class", prefix + node.name, " ".join(map(ast.unparse, node.bases)), "", decorators, doc
                yield from walk(node.body, f"{prefix}{node.name}.")
            else:
                returns = ast.unparse(node.returns) if node.returns else ""
                yield (
                    type(node).__name__,
                    prefix + node.name,
                    ast.unparse(node.args),
                    returns,
                    decorators,
                    doc,
                )

    tree = compile(code, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return list(walk(tree.body, ""))


# ---------------------------------------------------------------------------------------------------------
# What a source holds, without jupytext: for hints, progress and tests


def find(lesson: str, notebooks: Path | None = None) -> Path | None:
    """The source of lesson ``"05"``, or None if it is not here."""
    return next(iter(sorted(((notebooks or NOTEBOOKS) / "src").glob(f"{lesson}_*.py"))), None)


def answer(lesson: str, cell: str) -> str | None:
    """The solved text of one cell of a lesson, read from its source; None if there is no such cell."""
    path = find(lesson)
    if path is None:
        return None
    for _, header, body in blocks(path.read_text(encoding="utf-8")):
        match = NAME_IN_HEADER.search(header)
        if match and match[1] == cell:
            return solved("\n".join(body)).strip("\n")
    return None


def title(path: Path) -> str:
    """A lesson's first heading, such as "Measure TTFT"; its file name where it has none."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# # "):
            return line[4:].strip()
    return path.stem[3:].replace("_", " ")


def items(path: Path) -> list[Item]:
    """The exercises (``check.Exercise("05-1", …)``) and questions (``quiz.ask("05-q1", …)``) of one source,
    in order. An exercise's title is the first heading of its card, the cell ``ex-1-card``."""
    text = path.read_text(encoding="utf-8")
    headings: dict[str, str] = {}
    for _, header, body in blocks(text):
        match = NAME_IN_HEADER.search(header)
        heading = next((line for line in body if re.match(r"# #+ ", line)), "")
        if match and heading:
            headings[match[1]] = heading.lstrip("# ").strip()

    found = []
    tree = compile(text, path.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
            continue
        called, key = ast.unparse(node.func), node.args[0].value
        if called in ("check.Exercise", "Exercise"):
            cell = next((ast.literal_eval(k.value) for k in node.keywords if k.arg == "cell"), cell_of(key))
            found.append(Item(path.stem[:2], key, "exercise", headings.get(f"{cell}-card", ""), node.lineno))
        elif called in ("quiz.ask", "ask") and len(node.args) == 3 and isinstance(node.args[2], ast.List):
            question = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            right = [
                position
                for position, option in enumerate(node.args[2].elts)
                if isinstance(option, ast.Call)
                and any(k.arg == "right" and ast.unparse(k.value) == "True" for k in option.keywords)
            ]
            found.append(
                Item(
                    path.stem[:2],
                    key,
                    "quiz",
                    question,
                    node.lineno,
                    right[0] if right else None,
                    len(node.args[2].elts),
                )
            )
    return sorted(found, key=lambda item: item.line)


def defined(source: str) -> list[str]:
    """The names that a cell's text defines at its top level: functions, classes and assigned names."""
    names: list[str] = []
    tree = compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            names.append(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return names


def cell_of(exercise: str) -> str:
    """The exercise cell's name that goes with an exercise's id: ``05-1`` -> ``ex-1``."""
    return f"ex-{exercise.partition('-')[2]}"
