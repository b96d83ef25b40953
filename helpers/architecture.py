"""The models of this course as data: their configs, where each comes from, and their layers in a table.

The reader (:mod:`helpers.config_reader`) and the classes it fills (:mod:`helpers.nemotron_h`) are here too,
so that a lesson needs one import. The configs are plain ``config.json`` files in ``data/models``, and
``origins.csv`` beside them says where each was read. A file you put there yourself is found by its name.
"""

from __future__ import annotations

import pandas as pd

from helpers import parameters, tables
from helpers.config_reader import read
from helpers.nemotron_h import LETTER_OF, Architecture, Attention, Mamba, Mlp, Moe, Mtp
from helpers.origins import validate
from helpers.settings import DATA, CourseError

__all__ = [
    "Architecture",
    "Attention",
    "Mamba",
    "Mlp",
    "Moe",
    "Mtp",
    "example",
    "examples",
    "layer_table",
    "phonellm",
    "read",
    "sources",
]

MODELS = DATA / "models"
PHONELLM = "phonellm-alpha-1"


def phonellm() -> Architecture:
    """PhoneLLM Alpha 1."""
    return example(PHONELLM)


def example(name: str) -> Architecture:
    """A model from ``data/models``, by the name of its file.

    Raises:
        CourseError: there is none of that name, or it cannot be read (see :func:`read`).
    """
    if name not in examples():
        raise CourseError(f"There is no config {name!r} in data/models. It has {', '.join(examples())}.")
    return read(MODELS / f"{name}.json")


def examples() -> list[str]:
    """Names of the configs in ``data/models``, PhoneLLM first."""
    names = sorted(path.stem for path in MODELS.glob("*.json"))
    return sorted(names, key=lambda name: name != PHONELLM)


def sources() -> pd.DataFrame:
    """Where each config was read.

    Returns:
        A frame with the index ``model`` and the columns ``what`` (the model's full name), ``fields`` (whether
        the file is whole), ``parameters`` (published total, NaN if none was found), ``parameters_source``,
        ``source``, ``date`` and ``origin``.
    """
    path = MODELS / "origins.csv"
    columns = ("what", "fields", "parameters_source")
    return tables.read(path, key="model", numeric=("parameters",), text=columns, unitless=True)


def layer_table(arch: Architecture) -> pd.DataFrame:
    """The layers in order, with their weights.

    Returns:
        A frame with the index ``layer`` (from 0) and the columns ``letter`` (M, E, ``*`` or -), ``kind``,
        ``parameters`` (router corrections included), ``active_parameters`` (those that work on one token: of
        the routed experts only the chosen ones) and ``origin``. Embeddings, ``lm_head`` and the last norm are
        no layers: see :func:`helpers.parameters.by_block`.
    """
    whole = {kind: parameters.layer(arch, kind) for kind in set(arch.layers)}
    active = {kind: parameters.layer(arch, kind, active=True) for kind in set(arch.layers)}
    frame = pd.DataFrame(
        {
            "letter": [LETTER_OF[kind] for kind in arch.layers],
            "kind": list(arch.layers),
            "parameters": [whole[kind] for kind in arch.layers],
            "active_parameters": [active[kind] for kind in arch.layers],
            "origin": "modelled",
        }
    )
    return validate(frame.rename_axis("layer"), used_by="architecture.layer_table")
