"""What can go wrong between the Hub and the disk, said so that a learner knows what to type next.

:func:`explain` turns what the client raises into one of these; each is a :class:`CourseError`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers import hub_client
from helpers.settings import CourseError

AGAIN = "Nothing that was fetched is lost: run the same cell again and it goes on where it stopped."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOGIN_PAGE = (
    "Often it is the page of a network that wants a login, or of a proxy: open any page in a browser and see."
)
UNUSABLE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),  # not ours to write in
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP),  # no folder
    *(errno.EIO, errno.ESTALE),  # a disk that fails, or has been pulled out
)


class HubError(CourseError):
    """Something about the Hub or a download went wrong."""


class NoNetwork(HubError):
    """The Hub did not answer."""


class NotAllowed(HubError):
    """The Hub wants a token, or another one (401, 403)."""


class NotThere(HubError):
    """No such repository, revision or file (404)."""


class TooManyRequests(HubError):
    """The Hub asks to wait (429)."""

    def __init__(self, text: str, wait_s: int) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class OutOfService(HubError):
    """The Hub or its store cannot answer at the moment (5xx)."""


class DiskFull(HubError):
    """No space left where the files go."""


class WrongChecksum(HubError):
    """What came is not what the repository lists, twice in a row."""


@contextmanager
def explained(repo: str, revision: str | None, *, folder: Path, missing_bytes: int = 0) -> Iterator[None]:
    """A ``with`` block whose errors a learner can act on.

    Args:
        repo, revision: what is being fetched.
        folder: the folder it goes to.
        missing_bytes: how much is still to come, for the advice when the disk is full.

    Raises:
        HubError: what happened, why, and what to type.
    """
    try:
        yield
    except CourseError:
        raise
    except Exception as error:
        said = explain(error, repo, revision, folder=folder, missing_bytes=missing_bytes)
        if said is None:
            raise
        raise said from error


def explain(
    error: BaseException, repo: str, revision: str | None, *, folder: Path, missing_bytes: int = 0
) -> HubError | None:
    """The error in the course's words; None if it is none of the Hub's. Arguments as in :func:`explained`."""
    errors, http = hub_client.library().errors, hub_client.http()
    causes = list(_chain(error))
    for cause in causes:  # what the client wraps says more than the wrapping
        if isinstance(cause, errors.GatedRepoError):
            return NotAllowed(
                f"The repository {repo} must be asked for, and the Hub does not know that you were let in "
                f"(401, GatedRepo).\nOpen {hub_client.endpoint()}/{repo} in a browser, accept its terms, "
                "then type in a terminal: hf auth login"
            )
        if isinstance(cause, errors.RevisionNotFoundError):
            return NotThere(
                f"{repo} has no branch, tag or commit {revision!r} (404).\nLook at its branches and tags: "
                f'HfApi().list_repo_refs("{repo}"). A commit is 40 letters and digits.'
            )
        if isinstance(cause, errors.RemoteEntryNotFoundError):
            return NotThere(
                f"{repo} has no such file at revision {revision!r} (404): {_url(cause)}.\n"
                'Look at the names: hub.listing(repo, revision)["file"]'
            )
        if isinstance(cause, errors.RepositoryNotFoundError):
            return NotThere(
                f"The Hub shows nobody a repository {repo!r} ({_status(cause)}): the name is wrong, or it is "
                "private. The Hub gives the same answer for both, on purpose.\nCheck the name letter by "
                "letter; if it is private, type in a terminal: hf auth login"
            )
        if isinstance(cause, errors.HfHubHTTPError) and getattr(cause, "response", None) is not None:
            return _by_status(cause, repo)
        if isinstance(cause, OSError) and cause.errno in FULL:
            return disk_full(folder, missing_bytes)
        if isinstance(cause, errors.OfflineModeIsEnabled):
            return _switched_off()
        if isinstance(cause, errors.HFValidationError):
            return NotThere(
                f"{_short(repo)} is no name of a repository: the Hub's are of the form owner/name.\n"
                "Copy it from the repository's page."
            )
        if isinstance(cause, OSError) and cause.errno in UNUSABLE:
            return unusable(folder, cause)
        if isinstance(cause, http.RequestError | http.InvalidURL) and not isinstance(
            cause, http.TransportError
        ):
            return not_a_hub(cause)
        if isinstance(cause, UnicodeEncodeError):
            return NotAllowed(
                "The token, or the name, has a letter that cannot be sent to the Hub.\n"
                "Copy the token again (hf auth login, or the variable HF_TOKEN): it is letters, digits and _."
            )
        if isinstance(cause, ImportError) and "socks" in str(cause).lower():
            return NoNetwork(
                "A SOCKS proxy is set (as by ALL_PROXY), and the Hub's client lacks the package for it.\n"
                "Type in a terminal: .venv/bin/python -m pip install socksio; or: unset ALL_PROXY all_proxy. "
                "Then restart the kernel."
            )
        if isinstance(cause, http.TransportError):
            return NoNetwork(
                f"The Hub did not answer, or the connection broke off ({type(cause).__name__}: {cause}).\n"
                f"Check the network. {AGAIN}"
            )
    # The client says this when the answers lack what each of the Hub's has, and nothing above was the cause.
    if isinstance(error, errors.LocalEntryNotFoundError | errors.FileMetadataError):
        return not_a_hub(error)
    return None


def unusable(folder: Path, error: OSError) -> HubError:
    """A folder that files cannot be written to."""
    return HubError(
        f"Files cannot be kept in {folder} ({error}).\n"
        "Make that folder yours to write in, or set HF_HOME to another one and restart the kernel. What was "
        "there before is untouched."
    )


def not_a_hub(error: Exception) -> HubError:
    """Something answered, and not as the Hub does."""
    return HubError(
        f"Something answered, and it is not the Hub ({type(error).__name__}: {_short(str(error))}).\n"
        f"{LOGIN_PAGE} If HF_ENDPOINT is set, check it. {AGAIN}"
    )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def no_network(address: str) -> NoNetwork:
    """The Hub did not show that it is there."""
    if hub_client.switched_off():
        return _switched_off()
    return NoNetwork(
        f"The Hub at {address} does not answer from here.\nCheck the network, then run this cell again."
    )


def _switched_off() -> NoNetwork:
    name = hub_client.offline_variable()
    return NoNetwork(
        f"The client was told to stay off the network ({name} is set), so nothing was asked.\n"
        f"Type in a terminal: unset {name}; then start the lab again."
    )


def disk_full(folder: Path, missing_bytes: int) -> DiskFull:
    """No space left in this folder, with this much still to come."""
    need = f" Up to {missing_bytes / 1e9:,.2f} GB are still to come." if missing_bytes else ""
    return DiskFull(
        f"The disk is full: no space left in {folder}.{need}\nMake room there (type in a terminal: "
        f"df -h {folder}), or set HF_HOME to a folder on a larger disk. {AGAIN}"
    )


def _by_status(error: Any, repo: str) -> HubError:
    response = error.response
    status = response.status_code
    if status in (401, 403):
        return NotAllowed(
            f"The Hub did not accept the token ({status}): it is expired, mistyped, or may not read {repo}.\n"
            "Type in a terminal: hf auth login. For a public repository no token is needed: hf auth logout"
        )
    if status == 429:
        wait_s = wait_asked_s(response.headers) or 60
        return TooManyRequests(
            f"Too many requests: the Hub asks you to wait {wait_s} s (429).\nWait that long, then run this "
            f"cell again; signed in (hf auth login) you may ask more often. {AGAIN}",
            wait_s,
        )
    if status >= 500:
        return OutOfService(f"The Hub is out of service for the moment ({status}).\nWait a minute. {AGAIN}")
    return HubError(
        f"The Hub answered {status} to {_url(error)}.\nRun this cell again; if it stays: report it."
    )


def wait_asked_s(headers: Mapping[str, str]) -> int | None:
    """Seconds that an answer asks to wait: ``RateLimit`` (IETF draft, "t=") or else ``Retry-After``."""
    hub_client.library()
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return limit.reset_in_seconds
    after = str(headers.get("Retry-After", "")).strip()
    return int(after) if after.isdigit() else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: Any) -> int:
    return error.response.status_code


def _url(error: Any) -> str:
    """The address without its query: that part may hold a signature."""
    return str(error.response.url).partition("?")[0]
