"""The Hub's own client, imported when it is needed, and what the course settles about it.

``huggingface_hub`` reads its environment when it is imported, so what matters is passed with each call
instead: the address, the token, the folder. Two things are settled here for the course's own process. It
sends no telemetry (with it, the client would ask the real Hub for a list even when a lesson talks to the
practice hub only). And a token goes to the real Hub or nowhere: to an address on this machine none is sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from helpers.settings import CourseError, workspace

ENDPOINT = "https://huggingface.co"
CACHE_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME")
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # the client looks at both
LOCAL = ("127.0.0.1", "localhost", "::1")
TREE_TIMEOUT_S = 20.0  # the client itself sets none for a list of files
PROBE_S = 4.0  # how long a lesson waits for the Hub before it goes on without


def library() -> ModuleType:
    """The package ``huggingface_hub``.

    Raises:
        CourseError: it is not installed.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    _past_the_proxy()
    try:
        http()
        import huggingface_hub.errors
        import huggingface_hub.hf_api
    except ImportError as error:
        raise CourseError(
            f"The Hub's client is not installed here, or is too old ({error}).\nType: "
            '.venv/bin/python -m pip install "huggingface_hub>=2.4", then restart the kernel.'
        ) from error
    # Somebody may have imported it before us, and with it the setting.
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    return huggingface_hub


def _past_the_proxy() -> None:
    """Keep this machine's own addresses off any proxy that is set: from elsewhere they cannot be reached."""
    for name in ("NO_PROXY", "no_proxy"):
        listed = [one.strip() for one in os.environ.get(name, "").split(",") if one.strip()]
        if listed != ["*"]:
            os.environ[name] = ",".join(dict.fromkeys([*listed, *LOCAL]))


def http() -> ModuleType:
    """The HTTP library that the client uses from its version 2 on, for the names of its errors."""
    import httpx2

    return httpx2


def endpoint() -> str:
    """Address of the real Hub: ``HF_ENDPOINT`` if the learner set a mirror, else huggingface.co."""
    return os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or ENDPOINT


def cache_folder() -> Path:
    """Where downloads go: the learner's own Hugging Face cache if one of its variables is set
    (``HF_HUB_CACHE``, ``HF_HOME``), else ``workspace/hub``. The layout is the client's own in both cases."""
    for name in CACHE_VARIABLES:
        if named := os.environ.get(name, "").strip():
            folder = Path(os.path.expandvars(named)).expanduser()
            return folder / "hub" if name == "HF_HOME" else folder
    return workspace("hub", "x").parent


def is_local(address: str) -> bool:
    """Whether an address is on this machine, as the practice hub's is."""
    try:
        return urlsplit(address).hostname in LOCAL
    except ValueError:  # no address at all
        return False


def token_for(address: str, token: str | bool | None) -> str | bool | None:
    """What to pass to the client as ``token=``: no token for an address on this machine, unless one is given
    outright; else what the learner gave, or None (then the client uses the login on this machine, if any)."""
    return False if token is None and is_local(address) else token


def switched_off() -> bool:
    """Whether the learner told the client to stay off the network (``HF_HUB_OFFLINE``)."""
    return any(_is_on(name) for name in OFFLINE_VARIABLES)


def offline_variable() -> str:
    """The variable that tells the client to stay off the network."""
    return next((name for name in OFFLINE_VARIABLES if _is_on(name)), OFFLINE_VARIABLES[0])


def _is_on(name: str) -> bool:
    return os.environ.get(name, "").strip().upper() in ("1", "ON", "YES", "TRUE")


@contextmanager
def allowed(address: str) -> Iterator[None]:
    """Let the client talk to an address on this machine even where ``HF_HUB_OFFLINE`` is set: that setting
    is about the network."""
    constants = library().constants
    before = constants.HF_HUB_OFFLINE
    if is_local(address):
        constants.HF_HUB_OFFLINE = False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def reachable(address: str | None = None, *, within_s: float = PROBE_S) -> bool:
    """Whether the Hub answers at all, found out quickly.

    The client itself retries for about half a minute before it gives up; a lesson should not. Looking up a
    name can hang longer than any timeout says, so the question is asked in a thread that is not waited for.
    """
    address = address or endpoint()
    if switched_off() and not is_local(address):
        return False
    answered: list[int] = []

    def ask() -> None:
        with suppress(Exception):  # whatever goes wrong here means: not reachable
            # trust_env stays on: behind a proxy the client itself gets through too
            answered.append(http().head(address, timeout=within_s, follow_redirects=False).status_code)

    library()
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(within_s)
    return bool(answered)


def quiet_bar() -> type:
    """A progress bar that shows nothing, for the client's ``tqdm_class=``."""
    from tqdm.auto import tqdm

    class Quiet(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **kwargs | {"disable": True})

    return Quiet
