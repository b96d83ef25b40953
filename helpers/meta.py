"""What transformers itself counts, without downloading or holding a model.

torch has a device named ``meta``: a tensor there has a shape and a type and no numbers, so a model of any
size is built in less than a second. Two things come out of it here: how many parameters the model of a config
has (:func:`on_meta`), and what transformers assumes where a config is silent (:func:`class_defaults`).

Where torch or transformers is missing, the answers are those that we recorded, with the origin ``recorded``:
``data/runs/03-transformers.json``, written by ``python -m helpers.tiny``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.config_reader import ALIASES, read
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.settings import DATA, CourseError

RECORDED = DATA / "runs" / "03-transformers.json"

# Not about the shape, or only of use with a downloaded model.
NOT_PASSED = ("architectures", "auto_map", "model_type", "quantization_config", "transformers_version")

SHOWN_DEFAULTS = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "mamba_num_heads",
    "mamba_head_dim",
    "ssm_state_size",
    "n_groups",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "routed_scaling_factor",
    "vocab_size",
    "max_position_embeddings",
)


@dataclass(frozen=True)
class MetaCount:
    """What transformers counts in the model that it built.

    Attributes:
        parameters: numbers in ``model.parameters()``.
        buffers: numbers in ``model.buffers()``: the routers' corrections, which are no parameters there.
        origin: ``measured`` here and now, or ``recorded`` where torch or transformers is missing.
    """

    parameters: int
    buffers: int
    origin: str


def on_meta(config: Architecture | Mapping[str, Any] | str | Path) -> MetaCount:
    """Build the model of a config with transformers on torch's meta device, and count what it has.

    Seconds, no memory, no download. Multi-token prediction is not built.

    Args:
        config: a model that was read, or whatever :func:`helpers.config_reader.read` takes.

    Raises:
        CourseError: the config cannot be read, or it was not recorded and transformers is missing.
    """
    arch = config if isinstance(config, Architecture) else read(config)
    classes = nemotron_h_classes()
    if classes is None:
        return _recorded_count(arch)
    import torch

    config_class, model_class = classes
    with quiet(), torch.device("meta"):
        model = model_class(config_class(**as_transformers_wants(arch)))
    return MetaCount(
        parameters=sum(tensor.numel() for tensor in model.parameters()),
        buffers=sum(tensor.numel() for tensor in model.buffers()),
        origin="measured",
    )


def class_defaults(arch: Architecture | None = None) -> pd.DataFrame:
    """What ``NemotronHConfig()`` assumes where a field is missing, beside what a model really has.

    Args:
        arch: the model; PhoneLLM if left out.

    Returns:
        A frame with the columns ``field``, ``default`` (that of transformers), ``model`` (the model's own;
        None if its config is silent), ``same`` and ``origin`` (measured, or recorded where transformers is
        missing).
    """
    arch = arch or read(DATA / "models" / "phonellm-alpha-1.json")
    defaults, origin = _defaults()
    frame = pd.DataFrame({"field": SHOWN_DEFAULTS})
    frame["default"] = pd.Series([defaults[name] for name in SHOWN_DEFAULTS], dtype=object)
    own = [arch.raw.get(name, arch.raw.get(ALIASES.get(name, name))) for name in SHOWN_DEFAULTS]
    frame["model"] = pd.Series(own, dtype=object)
    frame["same"] = [here == default for here, default in zip(own, frame["default"], strict=True)]
    return validate(frame.assign(origin=origin), used_by="parameters.class_defaults")


def default_config() -> dict[str, Any]:
    """All fields of ``NemotronHConfig()``, as it would save them: a config that nobody chose. Its type of
    weights is open there; here it is bfloat16."""
    return _defaults()[0] | {"dtype": "bfloat16"}


def nemotron_h_classes() -> tuple[type, type] | None:
    """The config and model classes of transformers; None if torch or transformers is not there, or too
    old."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    try:
        from transformers.models.nemotron_h import NemotronHConfig, NemotronHForCausalLM
    except ImportError:  # a version from before this family
        return None
    return NemotronHConfig, NemotronHForCausalLM


def as_transformers_wants(arch: Architecture) -> dict[str, Any]:
    """The fields for ``NemotronHConfig(**fields)``. transformers would ignore an older name of a field and
    take its default instead, so each goes in under its present name."""
    fields = {name: value for name, value in arch.raw.items() if name not in NOT_PASSED}
    for name, older in ALIASES.items():
        if older in fields and name not in ("dtype", "layers_block_type", "n_routed_experts"):
            fields[name] = fields.pop(older)
    return fields


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the notes of transformers on kernels that only a GPU needs."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@cache
def recorded() -> dict[str, Any]:
    """What was recorded with transformers, with its conditions."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def _recorded_count(arch: Architecture) -> MetaCount:
    for kept in recorded()["meta"]:
        if read(kept["config"]) == _nameless(arch):
            return MetaCount(kept["parameters"], kept["buffers"], "recorded")
    raise CourseError(
        f"transformers is not installed here, and {arch.name} was not recorded. "
        f"helpers.parameters.total(arch) counts it by arithmetic."
    )


def _nameless(arch: Architecture) -> Architecture:
    return read({name: value for name, value in arch.raw.items() if name != "_name_or_path"})


def _defaults() -> tuple[dict[str, Any], str]:
    classes = nemotron_h_classes()
    if classes is None:
        return recorded()["defaults"], "recorded"
    return classes[0]().to_dict(), "measured"
