"""One figure of the course as it goes to the gallery: what draws it, and from what.

The lessons' exhibits stand in ``exhibits_NN.py``; :mod:`helpers.gallery` collects and writes them. An exhibit
is made from what is in the repository alone (``data/``), so that it comes out the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure


class Lazily(Mapping[str, Any]):
    """Options that are read from data, each time they are asked for and not when a module is imported.

    ``Lazily(lambda: {"total": parameters.total(architecture.phonellm())})`` is a mapping like any other.
    """

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    def __getitem__(self, name: str) -> Any:
        """One option."""
        return self._make()[name]

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return iter(self._make())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._make())


@dataclass(frozen=True)
class Exhibit:
    """A figure, and how to make it.

    Attributes:
        name: file name without an ending, beginning with its lesson: ``06-waterfall``.
        draw: the figure function, such as :func:`helpers.figures.itl`.
        frame: gives its table; None for a figure that takes none.
        says: one sentence: what a reader should see in it.
        options: passed on to ``draw``, such as a title; :class:`Lazily` if they come from data.
    """

    name: str
    draw: Callable[..., Figure]
    frame: Callable[[], pd.DataFrame] | None
    says: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lesson(self) -> str:
        """Its lesson, such as ``06``."""
        return self.name[:2]
