"""Stand-ins with known behaviour, for the checks of exercises: what a right answer gives is then known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


class Client:
    """Behaves like ``openai.OpenAI`` for one streamed request, with known times.

    ``create`` returns after ``open_ms``, as the real one does when the headers have come; the first chunk
    (the role) comes ``role_ms`` after the call of ``create``, the second (the first text) ``text_ms`` after.
    """

    def __init__(self, open_ms: float, role_ms: float, text_ms: float) -> None:
        self.open_ms = open_ms
        self.role_ms = role_ms
        self.text_ms = text_ms
        self.chat = self.completions = self  # so that client.chat.completions.create works

    def create(self, **request: Any) -> Iterator[str]:
        """A stream of two chunks; raises TypeError, as the real one may, if it is not asked for a stream."""
        if request.get("stream") is not True:
            raise TypeError("the request does not ask for a stream: pass it as it is, with **request")
        begun = time.perf_counter()
        _wait_until(begun + self.open_ms / 1000)

        def stream() -> Iterator[str]:
            for at_ms, chunk in ((self.role_ms, "role"), (self.text_ms, "text")):
                _wait_until(begun + at_ms / 1000)
                yield chunk

        return stream()


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))
