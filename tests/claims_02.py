"""What lesson 02 says, and what it must then be true of. Form: see ``claims.py``."""

from __future__ import annotations

import inspect
import re

import huggingface_hub

from helpers import hub, practice_repository, published


def shard_gb() -> float:
    """Gigabytes of a shard of the BF16 repository, if all had the same length: no shard is so short that the
    longest could be much longer than 5 GB, but their lengths are not published."""
    return published.value("hub.bf16_weights") / published.value("hub.bf16_shards")


def workers() -> int:
    """How many files the client fetches at once."""
    return inspect.signature(huggingface_hub.snapshot_download).parameters["max_workers"].default


CLAIMS = {
    r"almost 5 GB": lambda: 4.8 < shard_gb() < 5,
    r"39 GB fetched twice": lambda: round(workers() * shard_gb()) == 39,
    r"less than 20 MB": lambda: hub.recorded().bytes - published.value("hub.bf16_weights") * 1e9 < 20e6,
    r"its 63 GB": lambda: int(published.value("hub.bf16_size")) == 63,
    r"63\.17 GB at": lambda: published.value("hub.bf16_size") == 63.17,
    r"19\.4 GB at": lambda: published.value("hub.nvfp4_size") == 19.4,
    r"40 hexadecimal digits": lambda: (
        len(practice_repository.git_sha1(b"")) == len(hub.REVISION) == 40
        and re.fullmatch(r"[0-9a-f]{40}", hub.REVISION) is not None
    ),
    r"SHA-1\b": lambda: practice_repository.git_sha1(b"").startswith(
        "e69de29b"
    ),  # a name; and git's own value
    r"SHA-256": lambda: len(practice_repository.File("a", b"", "0" * 64, "0" * 40).etag) == 64,
}
HARMLESS = (
    r"BF16|NVFP4",  # names
    r"BSD-2-Clause",
    r"divide seconds by 60",  # a unit
)
