"""Where things are, and which server the lessons talk to.

One environment variable decides it: with ``PHONELLM_BASE_URL`` set, every lesson measures that server;
without it, the embedded engine on this machine (:mod:`helpers.engine`). ``PHONELLM_MODEL`` and
``PHONELLM_API_KEY`` go with it. The key is sent to the server and to nowhere else: it is not printed, stored
or put into a recorded run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
DATA = REPO / "data"
WORKSPACE = Path(os.environ.get("PHONELLM_WORKSPACE", REPO / "workspace")).expanduser().resolve()

BASE_URL_VARIABLE = "PHONELLM_BASE_URL"
MODEL_VARIABLE = "PHONELLM_MODEL"
API_KEY_VARIABLE = "PHONELLM_API_KEY"


class CourseError(Exception):
    """An error a learner can meet: its text says what happened, why, and what to type next."""


@dataclass(frozen=True)
class Server:
    """One OpenAI-compatible server, as the lessons see it.

    Attributes:
        base_url: address of its API, ending in ``/v1``.
        model: name under which it serves the model.
        api_key: sent as a bearer token; never shown (not even by ``repr``) and never stored. None for no key.
        origin: what a number timed on it is: ``measured`` (live) or ``recorded`` (a replayed run).
        name: short label for legends and tables, such as ``vLLM 0.27.1 on CPU, SmolLM2-135M``.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    origin: str = "measured"
    name: str = ""


def workspace(*parts: str) -> Path:
    """A path under the learner's own folder, its parent folders made. Nothing there is ever overwritten
    or deleted by the course without asking."""
    path = WORKSPACE.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
