"""Stand-ins with known behaviour, for the checks of exercises: what a right answer gives is then known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


class Client:
    """Behaves like ``openai.OpenAI`` for one streamed request: ``create`` returns at once, the first chunk
    (the role) comes after ``role_ms``, the second (the first text) after ``text_ms``."""

    def __init__(self, role_ms: float, text_ms: float) -> None:
        self.role_ms = role_ms
        self.text_ms = text_ms
        self.chat = self.completions = self  # so that client.chat.completions.create works

    def create(self, **request: Any) -> Iterator[str]:
        """A stream of two chunks."""
        begun = time.perf_counter()

        def stream() -> Iterator[str]:
            for at_ms, chunk in ((self.role_ms, "role"), (self.text_ms, "text")):
                time.sleep(max(0.0, begun + at_ms / 1000 - time.perf_counter()))
                yield chunk

        return stream()
