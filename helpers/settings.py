"""Where things are, and which server the lessons talk to.

One environment variable decides it: with ``PHONELLM_BASE_URL`` set, every lesson measures that server;
without it, the embedded engine on this machine (:mod:`helpers.engine`). ``PHONELLM_MODEL`` and
``PHONELLM_API_KEY`` go with it. The key is sent to the server and to nowhere else: it is not printed, stored
or put into a recorded run.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
DATA = REPO / "data"
WORKSPACE_VARIABLE = "PHONELLM_WORKSPACE"
BASE_URL_VARIABLE = "PHONELLM_BASE_URL"
MODEL_VARIABLE = "PHONELLM_MODEL"
API_KEY_VARIABLE = "PHONELLM_API_KEY"


def _find_workspace() -> Path:
    named = os.environ.get(WORKSPACE_VARIABLE, "").strip()
    if not named:
        return REPO / "workspace"
    path = (REPO / Path(named).expanduser()).resolve()
    os.environ[WORKSPACE_VARIABLE] = str(path)  # a kernel starts in another folder and must find the same
    return path


WORKSPACE = _find_workspace()


class CourseError(Exception):
    """An error a learner can meet: its text says what happened, why, and what to type next."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the text. Which of our lines noticed it is of no help there."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Server:
    """One OpenAI-compatible server, as the lessons see it.

    Attributes:
        base_url: address of its API, ending in ``/v1``.
        model: name under which it serves the model.
        api_key: sent as a bearer token; never shown (not even by ``repr``) and never stored. None for no key.
        origin: what a number timed on it is: ``measured`` (live) or ``recorded`` (a replayed run).
        name: short label for legends and tables, such as ``vLLM 0.27.1 on CPU, SmolLM2-135M``.
        plain: it refuses fields that go beyond the OpenAI API (see :mod:`helpers.extras`).
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    origin: str = "measured"
    name: str = ""
    plain: bool = False


def workspace(*parts: str) -> Path:
    """A path under the learner's own folder, its parent folders made. Nothing there is ever overwritten
    or deleted by the course without asking.

    Raises:
        CourseError: the folder cannot be made.
    """
    path = WORKSPACE.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(error) from error
    return path


def cannot_write(error: OSError) -> CourseError:
    """What to tell a learner whose folder is full, or does not let itself be written in."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        todo = f"Make some room there (type: df -h {WORKSPACE.parent}), then run this again"
    else:
        todo = "Make that folder yours to write in, then run this again"
    return CourseError(
        f"Something could not be written or started, in the folder {WORKSPACE} ({error}).\n"
        f"{todo}; or set {WORKSPACE_VARIABLE} to another folder."
    )
