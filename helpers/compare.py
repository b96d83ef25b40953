"""Is a learner's result the same as the expected one, and if not, what may have happened?"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def same(result: Any, expect: Any, *, tolerance: float = 1e-6) -> bool:
    """Whether a result is what was expected. Never raises.

    Numbers agree within ``tolerance`` (relative, and 1e-9 absolute), NaN with NaN; a truth value is not a
    number. A list may be a tuple. Frames and series need the same labels and values, not the same dtypes.
    """
    try:
        return _same(result, expect, tolerance)
    except Exception:  # a foreign object may fail in any way when compared; then it is not the same
        return False


def _same(result: Any, expect: Any, tolerance: float) -> bool:
    if isinstance(expect, pd.DataFrame | pd.Series):
        if not isinstance(result, type(expect)):
            return False
        compare = pd.testing.assert_frame_equal if result.ndim == 2 else pd.testing.assert_series_equal
        try:
            compare(result, expect, check_dtype=False, rtol=tolerance, atol=1e-9)
        except AssertionError:
            return False
        return True
    if isinstance(expect, bool | np.bool_) or isinstance(result, bool | np.bool_):
        return (
            isinstance(result, bool | np.bool_) and isinstance(expect, bool | np.bool_) and result == expect
        )
    if _is_number(expect):
        if not _is_number(result):
            return False
        if math.isnan(expect):
            return math.isnan(result)
        return math.isclose(result, expect, rel_tol=tolerance, abs_tol=1e-9)
    if isinstance(expect, np.ndarray):
        return np.shape(result) == expect.shape and _same(
            np.asarray(result).tolist(), expect.tolist(), tolerance
        )
    if isinstance(expect, Mapping):
        return (
            isinstance(result, Mapping)
            and result.keys() == expect.keys()
            and all(_same(result[key], expect[key], tolerance) for key in expect)
        )
    if isinstance(expect, list | tuple):
        return (
            isinstance(result, list | tuple | np.ndarray)
            and len(result) == len(expect)
            and all(_same(one, other, tolerance) for one, other in zip(result, expect, strict=True))
        )
    return bool(result == expect)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def guess(result: Any, expect: Any) -> str:
    """What may have happened, where the exercise's author names no mistake; "" if nothing fits. Never
    raises."""
    try:
        return _guess(result, expect)
    except Exception:  # a number too large for a float, a foreign object: then there is no guess
        return ""


def _guess(result: Any, expect: Any) -> str:
    if result is None:
        return "It gave `None`. Does every way through your function end in a `return`?"
    if callable(expect):
        return ""
    if callable(result):
        return "It gave a function, not what the function returns. Is a pair of brackets `()` missing?"
    if _is_number(expect) and _is_number(result) and not isinstance(result, bool):
        if expect and result:
            for factor in (1e3, 1e6, 1e9):
                if any(math.isclose(result, expect * scale, rel_tol=1e-6) for scale in (factor, 1 / factor)):
                    return f"It is off by a factor of {factor:,.0f}. Are the units right (s, ms, ns)?"
            if math.isclose(result, -expect, rel_tol=1e-6):
                return "The sign is the other way round. Which of the two comes first?"
        return ""
    wanted, given = kind(expect), kind(result)
    if wanted != given:
        return f"It should be {wanted}; it is {given}."
    if isinstance(expect, pd.DataFrame):
        missing = [str(name) for name in expect.columns if name not in result.columns]
        if missing:
            return f"Columns missing: {', '.join(f'`{name}`' for name in missing)}."
    if isinstance(expect, Mapping):
        missing = [str(name) for name in expect if name not in result]
        if missing:
            return f"Keys missing: {', '.join(f'`{name}`' for name in missing)}."
    with contextlib.suppress(TypeError):
        if not isinstance(expect, str) and len(expect) != len(result):
            return f"It should have {len(expect)} entries; it has {len(result)}."
    return ""


def kind(value: Any) -> str:
    """What sort of value this is, in the words a learner uses: ``a number``, ``a list``, ``text``."""
    for types, words in (
        (bool | np.bool_, "True or False"),
        (numbers.Real, "a number"),
        (str, "text"),
        (list | tuple | np.ndarray, "a list"),
        (Mapping, "a dict"),
        (pd.DataFrame, "a table (DataFrame)"),
        (pd.Series, "a column (Series)"),
    ):
        if isinstance(value, types):
            return words
    return f"a `{type(value).__name__}`"


def short(value: Any, limit: int = 80) -> str:
    """A value in one line of at most ``limit`` characters, whatever its own repr does."""
    try:
        text = f"{value:.6g}" if isinstance(value, float | np.floating) else repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    if isinstance(value, pd.DataFrame | pd.Series):
        text = f"a table of {' × '.join(map(str, value.shape))}"
    return one_line(text, limit)


def one_line(text: str, limit: int) -> str:
    """A text in one line of at most ``limit`` characters, all of which can be printed and saved: half a
    surrogate pair is spelled out."""
    text = " ".join(text.encode(errors="backslashreplace").decode().split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
