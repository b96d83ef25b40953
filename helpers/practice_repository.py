"""A small model repository to practise downloads on, made in memory and the same bytes each time.

It looks like a real one: two shards of weights in safetensors format with their index, a config, a tokenizer,
a chat template, the licence, a picture. The weights are random numbers, so nothing can be served from it.
It has two commits, which differ in the chat template: enough to see what a branch that moves does to you.
:mod:`helpers.practice_hub` serves it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, field
from functools import cache

REPO = "course/phonellm-practice"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
LARGE = (".safetensors", "tokenizer.json", ".png")  # what the repository keeps in LFS: weights, big or binary

_LICENSE = """Permission is given to anyone to use, copy, change and pass on these files, for any purpose.
There is no warranty of any kind.
"""
_README = """# phonellm-practice

Random weights in the shape of a very small model, to practise downloading. Nothing can be served from this.
"""
_TEMPLATE = """{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}
{% endfor %}{%- if enable_thinking | default(THINKS) %}<think>{% endif %}"""
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "vocab_size": 2048,
    "torch_dtype": "bfloat16",
}
_TENSORS = (  # per shard: name and shape, two bytes a number
    {"model.embed_tokens.weight": (2048, 512), "model.layers.0.self_attn.q_proj.weight": (512, 512)},
    {"model.layers.0.mlp.up_proj.weight": (1024, 512), "lm_head.weight": (2048, 512)},
)


@dataclass(frozen=True)
class File:
    """One file of the repository.

    Attributes:
        path: its name in the repository.
        content: its bytes.
        sha256: SHA-256 of the content, by which LFS names it; None for a file that git keeps itself.
        git_sha1: git's name for what it keeps: the content, or the pointer that stands for an LFS file.
    """

    path: str
    content: bytes = field(repr=False)
    sha256: str | None
    git_sha1: str

    @property
    def etag(self) -> str:
        """What the Hub sends as this file's ETag, and the client names the file by in its cache."""
        return self.sha256 or self.git_sha1


def git_sha1(content: bytes) -> str:
    """Git's name for a file with this content: the SHA-1 of ``blob``, a space, the length in bytes, a zero
    byte and the content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def pointer(content: bytes) -> bytes:
    """The short text that git keeps in place of an LFS file (format: Git LFS specification, version 1)."""
    digest = hashlib.sha256(content).hexdigest()
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    ).encode()


@cache
def commits() -> dict[str, dict[str, File]]:
    """Commit id -> its files by path. The older commit comes first; by default the model thinks in the newer
    one and does not in the older one."""
    made = {}
    for thinks in ("false", "true"):
        files = {path: _file(path, content) for path, content in _contents(thinks).items()}
        listing = "".join(f"{file.git_sha1} {path}\n" for path, file in sorted(files.items()))
        made[hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()] = files
    return made


def _file(path: str, content: bytes) -> File:
    large = path.endswith(LARGE)
    return File(
        path,
        content,
        sha256=hashlib.sha256(content).hexdigest() if large else None,
        git_sha1=git_sha1(pointer(content) if large else content),
    )


def _contents(thinks: str) -> dict[str, bytes]:
    shards = {name: _safetensors(name, shapes) for name, shapes in zip(SHARDS, _TENSORS, strict=True)}
    weights = {tensor: name for name, shapes in zip(SHARDS, _TENSORS, strict=True) for tensor in shapes}
    numbers = sum(rows * columns for shapes in _TENSORS for rows, columns in shapes.values())
    index = {"metadata": {"total_size": 2 * numbers}, "weight_map": dict(sorted(weights.items()))}
    words = {f"word{number:04d}": number for number in range(2048)}
    return {
        ".gitattributes": "".join(f"*{end} filter=lfs diff=lfs merge=lfs -text\n" for end in LARGE).encode(),
        "LICENSE": _LICENSE.encode(),
        "README.md": _README.encode(),
        "chat_template.jinja": _TEMPLATE.replace("THINKS", thinks).encode(),
        "config.json": _json(_CONFIG),
        "generation_config.json": _json({"do_sample": True, "eos_token_id": [2, 11]}),
        "images/calls.png": _png(),
        "model.safetensors.index.json": _json(index),
        "tokenizer.json": _json({"model": {"type": "WordLevel", "vocab": words}}),
        "tokenizer_config.json": _json({"model_max_length": 512}),
        **shards,
    }


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _safetensors(name: str, shapes: dict[str, tuple[int, int]]) -> bytes:
    """The safetensors format: length of the header in 8 bytes, the header as JSON, then the numbers."""
    header: dict[str, object] = {}
    end = 0
    for tensor, (rows, columns) in shapes.items():
        start, end = end, end + 2 * rows * columns
        header[tensor] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text + hashlib.shake_256(name.encode()).digest(end)


def _png() -> bytes:
    """A grey square, 8 by 8 points."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    rows = b"".join(b"\0" + b"\x88" * 8 for _ in range(8))
    size = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
