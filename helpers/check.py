"""Exercises: try the learner's answer, say kindly what came of it, and go on either way.

A check never stops a notebook. A stub returns ``NOT_DONE``, its check says so, and :meth:`Exercise.use` gives
the cells below the learner's own answer if it passed, and the course's otherwise, saying which. With the
environment variable ``PHONELLM_CHECK=strict`` an exercise that has not passed raises AssertionError: that is
how the solved lessons are tested.

::

    exercise = check.Exercise("05-1", hints=("Which chunk has text?", "Skip chunks whose `text` is empty."))
    exercise.case("role-only first chunk", first_token_ms, args=(timeline,), expect=240.0,
                  mistakes={200.0: "You timed the role-only chunk: it carries no text."})
    exercise.verdict()
    first_token_ms = exercise.use(first_token_ms)
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import html
import inspect
import linecache
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers import cards, compare, progress, sources
from helpers.settings import CourseError

Mistakes = Mapping[Any, str] | Iterable[tuple[Any, str]]


# ---------------------------------------------------------------------------------------------------------
# What stands where an answer is missing


class NotDoneYet:
    """The value of an exercise that is still to do. Calculating with it gives it back, so the cells below say
    "not done yet" instead of failing; it is false, equals only itself, and is a gap (NaN) in a plot."""

    def __repr__(self) -> str:
        """Say it in plain words."""
        return "not done yet"

    def __format__(self, spec: str) -> str:
        """The same words for any format: ``f"{answer:.1f}"`` works."""
        return repr(self)

    def __bool__(self) -> bool:
        """False: there is no answer."""
        return False

    def __float__(self) -> float:
        """NaN, which plots as a gap."""
        return math.nan

    def __len__(self) -> int:
        """It holds nothing."""
        return 0

    def __iter__(self) -> Any:
        """It holds nothing."""
        return iter(())

    def __index__(self) -> int:
        """There is no whole number to give; the error says what to do."""
        raise TypeError(
            'this value is "not done yet": finish the exercise that makes it, then run on from there'
        )

    __int__ = __index__

    def __getattr__(self, name: str) -> Any:
        """Itself again; but Python's and Jupyter's own questions (``_repr_html_``) get a no."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __reduce__(self) -> str:
        """A copy, or one sent to another process, is the same object again."""
        return "NOT_DONE"

    def _itself(self, *_: Any, **__: Any) -> NotDoneYet:
        return self

    __call__ = __getitem__ = _itself
    __lt__ = __le__ = __gt__ = __ge__ = _itself
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _itself
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _itself
    __rmatmul__ = _itself
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _itself
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __floor__ = __ceil__ = __trunc__ = _itself


NOT_DONE = NotDoneYet()


# ---------------------------------------------------------------------------------------------------------
# One exercise


@dataclass(frozen=True)
class Case:
    """What came of a case: ``state`` is passed, not done or failed; ``said`` is what the learner is told."""

    name: str
    state: str
    said: str = ""


class Exercise:
    """One exercise's check. Make it, add its cases, show the verdict, go on with :meth:`use`.

    Args:
        id: lesson and number, ``"05-1"``.
        hints: two sentences: a nudge (where to look) and the method (what to do). The third hint, the answer,
            is read from the lesson's solved source, so it cannot differ from it.
        cell: name of the exercise's cell, if it is not ``ex-<number>``.

    Raises ValueError (a mistake of the author's) if there are not two hints.
    """

    def __init__(self, id: str, *, hints: tuple[str, str], cell: str | None = None) -> None:
        """See the class."""
        if isinstance(hints, str) or len(hints) != 2 or not all(hints):
            raise ValueError(f"exercise {id}: give two hints, a nudge and the method")
        self.id = id
        self.hints = tuple(hints)
        self.cell = cell or sources.cell_of(id)
        self.cases: list[Case] = []
        self._answers: list[str] = []  # text of what was tried, kept if it passes

    @property
    def passed(self) -> bool:
        """Whether there are cases and all of them passed."""
        return bool(self.cases) and all(case.state == "passed" for case in self.cases)

    @property
    def started(self) -> bool:
        """Whether the learner has written anything: some case is not "not done"."""
        return any(case.state != "not done" for case in self.cases)

    def case(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
        expect: Any,
        mistakes: Mistakes = (),
        tolerance: float = 1e-6,
    ) -> None:
        """Call the learner's function and compare what it returns.

        Args:
            name: the case in a few words, as the learner reads it.
            function: the learner's own, plain or async.
            args, kwargs: what it is called with; it gets copies, so it cannot spoil another case.
            expect: the right result, or a function that says of a result whether it is right.
            mistakes: wrong result -> what the learner probably did. A dict, or pairs. Instead of a wrong
                result there may be a function that recognises one (``lambda result: result < 0``).
            tolerance: relative, for numbers.
        """
        function = self._own(function)
        if not callable(function):
            said = "" if _undone(function) else f"it should be a function; it is {compare.kind(function)}."
            self.cases.append(Case(name, "failed" if said else "not done", said))
            return
        self._remember(function)
        try:
            result = _call(function, _copy(args), _copy(dict(kwargs or {})))
        except KeyboardInterrupt:  # the learner's own "stop"
            raise
        except BaseException as error:  # also SystemExit and CancelledError: a check never stops a notebook
            self.cases.append(Case(name, "failed", _where(error, function)))
            return
        self._judge(name, result, expect, mistakes, tolerance, reveal=True)

    def value(
        self, name: str, value: Any, *, expect: Any, mistakes: Mistakes = (), tolerance: float = 1e-6
    ) -> None:
        """Compare a plain value (``answer = …``), without giving the right one away. Arguments as for
        :meth:`case`."""
        value = self._own(value)
        if not _undone(value):
            self._answers.append(f"# {name}\n{compare.short(value, 2000)}\n")
        self._judge(name, value, expect, mistakes, tolerance, reveal=False)

    def _judge(
        self, name: str, result: Any, expect: Any, mistakes: Mistakes, tolerance: float, *, reveal: bool
    ) -> None:
        if _undone(result):
            self.cases.append(Case(name, "not done"))
            return
        if _fits(result, expect, tolerance):
            self.cases.append(Case(name, "passed"))
            return
        said = f"you have `{compare.short(result)}`"
        if reveal and not callable(expect):
            said += f", it should be `{compare.short(expect)}`"
        pairs = mistakes.items() if isinstance(mistakes, Mapping) else mistakes
        named = next((text for mistake, text in pairs if _fits(result, mistake, tolerance)), "")
        self.cases.append(Case(name, "failed", f"{said}. {named or compare.guess(result, expect)}".rstrip()))

    def _remember(self, function: Callable[..., Any]) -> None:
        """Note the text of the whole cell a function was written in, or of the function alone."""
        with contextlib.suppress(Exception):  # a callable may be anything
            written_in = inspect.unwrap(function).__code__.co_filename
            cell = "ipykernel" in written_in or written_in.startswith("<ipython")
            text = "".join(linecache.getlines(written_in)) if cell else inspect.getsource(function)
            if text not in self._answers:
                self._answers.append(text)

    def verdict(self) -> None:
        """Show what came of it, with hints while it has not passed, and record the attempt (a stub that
        nobody touched is none). With ``PHONELLM_CHECK=strict`` it raises AssertionError unless it passed."""
        if not self.cases:
            raise ValueError(f"exercise {self.id} has no case: call .case(…) or .value(…) before .verdict()")
        note = self._record()
        look, headline, then = self._headline()
        shown = self.cases if self.started else []
        items = "".join(
            f'<div style="margin-left: 0.5em;">{_MARKS[case.state]} {cards.prose(case.name)}'
            f"{': ' + cards.prose(case.said or 'not done yet') if case.state != 'passed' else ''}</div>"
            for case in shown
        )
        extra = f'<div style="{cards.QUIET}">{cards.prose(note)}</div>' if note else ""
        plain = [f"{headline} {then}".rstrip()]
        plain += [
            f"  {_MARKS[case.state]} {case.name}{': ' + case.said if case.said else ''}" for case in shown
        ]
        plain += [note] if note else []
        if not self.passed:
            plain.append("Hints are shown under this cell in JupyterLab.")
        cards.card(
            f"<b>{headline}</b> {then}{items}{extra}{self._hints_html()}",
            "\n".join(plain),
            look=look,
        )
        if os.environ.get("PHONELLM_CHECK") == "strict" and not self.passed:
            told = "; ".join(f"{c.name}: {c.said or c.state}" for c in self.cases if c.state != "passed")
            raise AssertionError(f"exercise {self.id} has not passed: {told}")

    def _headline(self) -> tuple[str, str, str]:
        if self.passed:
            return "good", f"Exercise {self.id}: passed.", ""
        if not self.started:
            then = "Put your code where the TODO is, run that cell, then this one. Try as often as you like."
            return "open", f"Exercise {self.id} is not done yet.", then
        good = sum(case.state == "passed" for case in self.cases)
        return "bad", f"Exercise {self.id}: not yet.", f"{good} of {len(self.cases)} cases right so far."

    def _record(self) -> str:
        """Keep the attempt and a passed answer; returns what the learner should know about that."""
        if not self.started:
            return ""
        failed = [f"{case.name}: {case.said or case.state}" for case in self.cases if case.state != "passed"]
        try:
            progress.record(self.id, self.passed, detail="; ".join(failed)[:500])
            if self.passed:
                progress.keep_answer(self.id, "\n\n".join(text.strip() for text in self._answers))
        except CourseError as error:
            return str(error)
        return ""

    def _answer(self) -> str | None:
        return sources.answer(self.id.partition("-")[0], self.cell)

    def _hints_html(self) -> str:
        """Three hints, each inside the one before. Plain <details>: they open in a notebook without a kernel
        too, with the keyboard, and in both themes."""
        answer = self._answer()
        code = (
            f'<pre style="{cards.CODE}">{html.escape(answer, quote=False)}</pre>'
            if answer
            else "<div>It is in <code>notebooks/solutions/</code>.</div>"
        )
        if self.passed:
            return cards.details("Compare with the course's answer", code)
        nudge, method = (f"<div>{cards.prose(hint)}</div>" for hint in self.hints)
        third = cards.details("Hint 3 of 3: the answer", code)
        second = cards.details("Hint 2 of 3: the method", method + third)
        return cards.details("Hint 1 of 3: a nudge", nudge + second)

    def use(self, own: Any, reference: Any = NOT_DONE) -> Any:
        """What the cells below go on with: the learner's own if the exercise passed, else the course's, and
        say which. An ``async`` answer to an exercise that is a plain function can be called plainly.

        Args:
            own: the learner's function or value.
            reference: the course's. Without it, what has the same name in the solved form of the exercise's
                cell, which is run for that with the notebook's own names.

        Raises ValueError (a mistake of the author's) if there is no reference to be found.
        """
        handed, own = own, self._own(own)
        name = getattr(own, "__name__", "") if callable(own) and own is not NOT_DONE else ""
        called = f"your own `{name}`" if name else "your own answer"
        if self.passed:
            said = f"Going on with {called}."
        else:
            why = "has not passed yet" if self.started else "is not done yet"
            what = f" for `{name}`" if name else ""
            said = f"Using the course's reference{what}, because exercise {self.id} {why}."
            if reference is NOT_DONE:
                reference = self._reference(handed, name, sys._getframe(1).f_globals)
        text = said.replace("`", "")
        cards.card(f'<span style="{cards.QUIET}">{cards.prose(said)}</span>', text)
        if self.passed:
            return own if self._is_async(name, reference) else _plain(own)
        given = _given(reference)
        _GIVEN.setdefault(self.id, []).append((given, own))
        return given

    def _is_async(self, name: str, reference: Any) -> bool:
        """Whether the course's answer is async itself, so that the cells below await it."""
        return inspect.iscoroutinefunction(reference) or f"async def {name}(" in (self._answer() or "")

    def _own(self, value: Any) -> Any:
        """The learner's own again, where a check is run once more after ``x = exercise.use(x)`` put the
        reference in its place: the reference must not pass for an answer."""
        return next((own for given, own in _GIVEN.get(self.id, []) if value is given), value)

    def _reference(self, handed: Any, name: str, notebook: dict[str, Any]) -> Any:
        source = self._answer() or ""
        defined = sources.defined(source)
        # A learner may have written "first_token_ms = lambda …": then the notebook's names tell which it is.
        found = [name] if name in defined else [key for key in defined if notebook.get(key) is handed]
        if len(found) != 1:
            raise ValueError(f"exercise {self.id}: give .use(…, reference=…); its source does not show which")
        space = dict(notebook)
        filename = f"<the course's answer to exercise {self.id}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), space)
        return space[found[0]]


# What `use` gave in place of an answer: exercise -> (the reference given, the learner's own at that time).
_GIVEN: dict[str, list[tuple[Any, Any]]] = {}


class _Whole(int):
    """A number given by the course, which is told from the learner's own equal number."""


class _Truth(int):
    """True or False given by the course."""

    def __repr__(self) -> str:
        return str(bool(self))


class _Text(str):
    """Text given by the course."""


def _given(reference: Any) -> Any:
    """The reference as an object of its own. Python keeps one object for all equal small numbers and short
    texts; without this, a learner's right answer could not be told from what the course gave."""
    for plain, own_kind in ((bool, _Truth), (int, _Whole), (str, _Text)):
        if type(reference) is plain:
            return own_kind(reference)
    if type(reference) is float:
        return reference * 1.0
    if type(reference) is tuple:
        return (*reference,)
    return reference if callable(reference) else copy.copy(reference)


_MARKS = {"passed": "✓", "failed": "✗", "not done": "○"}


def _undone(value: Any) -> bool:
    """Whether a value is, or holds, NOT_DONE. A list may hold itself, so none is looked at twice."""
    waiting, seen = [value], set()
    while waiting:
        entry = waiting.pop()
        if entry is NOT_DONE:
            return True
        if id(entry) in seen:
            continue
        with contextlib.suppress(Exception):  # a foreign kind of dict or list may fail in any way
            if isinstance(entry, Mapping):
                seen.add(id(entry))
                waiting += list(entry.values())
            elif isinstance(entry, list | tuple):
                seen.add(id(entry))
                waiting += entry
    return False


def _fits(result: Any, pattern: Any, tolerance: float) -> bool:
    if callable(pattern):
        try:
            return bool(pattern(result))
        except Exception:  # a test that does not apply to such a result does not recognise it
            return False
    return compare.same(result, pattern, tolerance=tolerance)


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied is shared
        return value


def _plain(function: Any) -> Any:
    """An async function as a plain one that runs it to its end; anything else as it is."""
    if not inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return _call(function, args, kwargs)

    return plain


def _call(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    if not inspect.isawaitable(result):
        return result
    # Jupyter's own event loop is already running in this thread, so an async answer gets a thread of its own.
    outcome: dict[str, Any] = {}

    async def wait() -> Any:
        return await result

    def run() -> None:
        try:
            outcome["result"] = asyncio.run(wait())
        except BaseException as error:  # carried over and raised in the caller's thread
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def _where(error: BaseException, function: Callable[..., Any]) -> str:
    """What was raised, and the last line of the learner's own code on the way to it."""
    own = None
    with contextlib.suppress(Exception):  # a callable may be anything
        own = inspect.unwrap(function).__code__.co_filename
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    try:
        text = str(error)
    except Exception as second:  # its own __str__ is broken
        text = f"(its text cannot be shown: {type(second).__name__})"
    said = f"it stopped with `{type(error).__name__}: {compare.one_line(text, 200)}`"
    if frames:
        said += f" in line {frames[-1].lineno} of your cell: `{(frames[-1].line or '').strip()}`"
    elif isinstance(error, TypeError):
        said += ". Does your function still take the arguments that its stub had?"
    return said


def explain_missing_names() -> None:
    """In a notebook, say below a NameError what to do: after a restart, or when a cell was left out, the
    names of earlier cells are not there. The error itself stays as it is."""
    if not cards.in_notebook():
        return
    from IPython import get_ipython

    def show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        name = getattr(error, "name", None) or "It"
        print(
            f"{name} is not there yet: the cell that makes it has not run since the kernel started.\n"
            "Choose Run > Run All Above Selected Cell, then run this cell again."
        )

    get_ipython().set_custom_exc((NameError,), show)


explain_missing_names()
