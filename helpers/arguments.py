"""Arguments that a learner types: a number, or an error that says which one makes no sense, and why."""

from __future__ import annotations

import math
from numbers import Real

from helpers.settings import CourseError


def number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
    example: str = "",
) -> float:
    """The value as a number.

    Args:
        name: of the argument, for the error.
        value: what was given.
        above: the number has to be larger than this.
        least: or at least this.
        most: and at most this.
        whole: without a fraction.
        example: what would be right, such as ``8 (lines)``, for the error.

    Returns:
        A float, or an int if ``whole``. A text that reads like a number is none: twice ``"8"`` is ``"88"``.

    Raises:
        CourseError: it is no number, not finite, out of range, or not whole.
    """
    try:
        counts = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number with more than 308 digits
        counts = False
    if counts and above < value and least <= value <= most and not (whole and value != value // 1):
        return int(value) if whole else float(value)
    kind = "a whole number" if whole else "a number"
    edges = [
        (math.isfinite(above), f"above {above:,g}"),
        (math.isfinite(least), f"not below {least:,g}"),
        (math.isfinite(most), f"at most {most:,.0f}" if most >= 1000 else f"at most {most:g}"),
    ]
    allowed = " and ".join(words for there, words in edges if there)
    hint = f" Such as {example}." if example else ""
    raise CourseError(f"{name}={value!r}: it has to be {kind}{f' {allowed}' if allowed else ''}.{hint}")


def choice(name: str, value: object, choices: tuple[str, ...] | list[str]) -> str:
    """The value, if it is one of the choices.

    Raises:
        CourseError: it is none of them; the message lists them.
    """
    if isinstance(value, str) and value in choices:
        return value
    raise CourseError(f"{name}={value!r}: there is none of this name. Take one of {', '.join(choices)}.")
