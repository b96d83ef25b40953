"""The prompts that the lessons send, as data, so that two people send the same.

A prompt's *length* decides how long its prefill takes, and its *beginning* decides whether the server has
seen it before. Both are under control here: :func:`rules` makes text of any length, the same each time, and
:func:`call_id` makes a beginning that no server has seen.
"""

from __future__ import annotations

import secrets
from typing import Any

AGENT = (
    "You are the phone agent of a bicycle shop. Answer in one or two short sentences, as one speaks on the "
    "phone. If you do not know, say so."
)
HELLO = "Hello, my new bicycle has not come yet. What can you do?"

# Answered under structured output, so that even a small model calls it, and calls it well.
ORDER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Look up an order by its number.",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "string", "pattern": "^[0-9]{4}$"}},
            "required": ["order"],
            "additionalProperties": False,
        },
    },
}

_PLACES = ("Oslo", "Lyon", "Porto", "Graz", "Ghent", "Turin", "Malmo", "Cork", "Basel", "Bergen", "Split")
_GOODS = ("helmets", "tyres", "lights", "saddles", "chains", "pumps", "bells")


def call_id() -> str:
    """A mark such as ``[call 8f3a2c]``, new each time. At the start of a prompt it makes the whole prompt new
    to the server's prefix cache; at the end it spoils nothing."""
    return f"[call {secrets.token_hex(3)}]"


def rules(count: int) -> str:
    """A shop's rules, ``count`` lines of about 30 tokens each: the kind of text that fills a real system
    prompt. The same lines each time."""
    return "\n".join(
        f"Rule {n}. Orders of {_GOODS[n % 7]} from {_PLACES[n % 11]} above {20 + 7 * n % 90} euros are sent "
        f"within {1 + n % 5} days; returns take {2 + n % 9} days."
        for n in range(1, count + 1)
    )


def conversation(user: str, *, system: str = AGENT) -> list[dict[str, str]]:
    """A system and a user message."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
