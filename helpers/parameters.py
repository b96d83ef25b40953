"""How many parameters a Nemotron-H model has, by arithmetic, and the same from transformers.

The arithmetic is a table of shapes (:func:`shapes`): each kind of tensor, how often a block has it, and how
many such blocks there are. Everything else here adds up that table.

The names of the tensors are those of transformers 5.24.0. The router's correction
(``e_score_correction_bias``) is a buffer there, no parameter: a sum over ``model.parameters()`` leaves it
out, and the checkpoint has it. :func:`total` counts it.

Multi-token prediction is in none of these sums, as transformers does not build it; :func:`mtp` counts it.

What transformers counts itself (:mod:`helpers.meta`) can be called from here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import pandas as pd

from helpers.config_reader import read
from helpers.meta import MetaCount, class_defaults, default_config, on_meta
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.settings import CourseError

__all__ = [
    "BLOCKS",
    "MetaCount",
    "active",
    "by_block",
    "class_defaults",
    "default_models",
    "layer",
    "mtp",
    "on_meta",
    "routed_expert",
    "shapes",
    "total",
]

BLOCKS = ("embedding", "mamba", "moe", "attention", "mlp", "final_norm", "lm_head")
ROUTED = ("mixer.experts.up_proj", "mixer.experts.down_proj")
CORRECTION = "mixer.gate.e_score_correction_bias"

Shape = tuple[int, ...]


def shapes(arch: Architecture) -> pd.DataFrame:
    """One row for each kind of tensor.

    Returns:
        A frame with the columns ``block`` (one of :data:`BLOCKS`), ``tensor`` (its name within the block),
        ``shape`` (a tuple; of one expert, where transformers stacks them all), ``parameters`` (of one),
        ``copies`` (in a block), ``blocks`` (in the model), ``total`` and ``buffer`` (True: in transformers
        no parameter).
    """
    rows = []
    for block in BLOCKS:
        blocks = _blocks(arch, block)
        for tensor, shape, copies in _tensors(arch, block) if blocks else ():
            size = prod(shape)
            rows.append(
                {
                    "block": block,
                    "tensor": tensor,
                    "shape": shape,
                    "parameters": size,
                    "copies": copies,
                    "blocks": blocks,
                    "total": size * copies * blocks,
                    "buffer": tensor == CORRECTION,
                }
            )
    return pd.DataFrame(rows)


def by_block(arch: Architecture) -> pd.DataFrame:
    """Parameters by block: the columns ``block``, ``parameters`` (of one), ``times`` and ``total``."""
    table = shapes(arch)
    table["parameters"] *= table["copies"]
    grouped = table.groupby("block", sort=False)
    frame = grouped.agg(parameters=("parameters", "sum"), times=("blocks", "first"), total=("total", "sum"))
    return frame.reset_index()


def layer(arch: Architecture, kind: str, *, active: bool = False) -> int:
    """Parameters of one layer.

    Args:
        arch: the model.
        kind: ``mamba``, ``moe``, ``attention`` or ``mlp``.
        active: count only those that work on one token: of the routed experts, the chosen ones.

    Raises:
        CourseError: the model has no layer of this kind.
    """
    known = {"attention": arch.attention, "mamba": arch.mamba, "moe": arch.moe, "mlp": arch.mlp}
    if known.get(kind) is None:
        has = ", ".join(name for name, shape in known.items() if shape is not None)
        raise CourseError(f"{arch.name} has no layer of the kind {kind!r}. It has {has}.")
    return sum(
        prod(shape) * (arch.moe.num_experts_per_tok if active and arch.moe and tensor in ROUTED else copies)
        for tensor, shape, copies in _tensors(arch, kind)
    )


def total(arch: Architecture) -> int:
    """All numbers of the model, the routers' corrections included, without multi-token prediction."""
    return int(shapes(arch)["total"].sum())


def active(arch: Architecture, *, embedding: bool = True, lm_head: bool = True) -> int:
    """Parameters that work on one token: of the routed experts, the chosen ones.

    Args:
        arch: the model.
        embedding: count the embedding table, of which one token reads one row only.
        lm_head: count the output projection, of which every new token reads everything. Where it shares its
            table with the embedding, the table counts as soon as one of the two does.
    """
    count = sum(layer(arch, kind, active=True) for kind in arch.layers) + arch.hidden_size
    tables = (embedding or lm_head) if arch.tie_word_embeddings else embedding + lm_head
    return count + int(tables) * arch.vocab_size * arch.hidden_size


def mtp(arch: Architecture) -> int:
    """Parameters of the multi-token prediction; 0 without it.

    Each of its stacks has its layers, a projection of the hidden state and the embedding together
    (``eh_proj``), and three norms. Source: vllm 0.27.1, ``model_executor/models/nemotron_h_mtp.py``.
    """
    if arch.mtp is None:
        return 0
    frame = 2 * arch.hidden_size * arch.hidden_size + 3 * arch.hidden_size
    stack = frame + sum(layer(arch, kind) for kind in arch.mtp.layers)
    return arch.mtp.num_nextn_predict_layers * stack


def routed_expert(arch: Architecture) -> int:
    """Parameters of one routed expert; 0 in a model without experts."""
    if arch.moe is None:
        return 0
    return sum(prod(shape) for tensor, shape, _ in _tensors(arch, "moe") if tensor in ROUTED)


def default_models(arch: Architecture) -> pd.DataFrame:
    """How large a model would be for a reader that fills gaps with the defaults of transformers.

    Returns:
        A frame with the columns ``config`` (which fields are the model's own), ``layers``, ``parameters`` and
        ``origin``: nothing of the model, its order of layers only, everything.
    """
    defaults = default_config()
    in_order = {**defaults, "layers_block_type": None, "hybrid_override_pattern": arch.pattern}
    guesses = {
        "no field given": read(defaults),
        "only the order of its layers": read(in_order),
        "every field": arch,
    }
    frame = pd.DataFrame(
        {
            "config": list(guesses),
            "layers": [len(guess.layers) for guess in guesses.values()],
            "parameters": [total(guess) for guess in guesses.values()],
            "origin": "modelled",
        }
    )
    return validate(frame, used_by="parameters.default_models")


def _blocks(arch: Architecture, block: str) -> int:
    """How many blocks of this name the model has."""
    if block in ("embedding", "final_norm"):
        return 1
    if block == "lm_head":
        return 0 if arch.tie_word_embeddings else 1
    return arch.layers.count(block)


def _tensors(arch: Architecture, block: str) -> Iterator[tuple[str, Shape, int]]:
    """Name, shape and copies of each tensor of a block."""
    hidden = arch.hidden_size
    table = (arch.vocab_size, hidden)
    if block == "embedding":
        yield "embeddings.weight", table, 1
    elif block == "lm_head":
        yield "lm_head.weight", table, 1
    elif block == "final_norm":
        yield "norm_f.weight", (hidden,), 1
    else:
        yield "norm.weight", (hidden,), 1
        layers = {"mamba": _mamba, "moe": _moe, "attention": _attention, "mlp": _mlp}
        for tensor, shape, copies in layers[block](arch):
            yield f"mixer.{tensor}", shape, copies


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Iterator[tuple[str, Shape, int]]:
    yield f"{name}.weight", (outputs, inputs), 1
    if bias:
        yield f"{name}.bias", (outputs,), 1


def _mamba(arch: Architecture) -> Iterator[tuple[str, Shape, int]]:
    mamba = arch.mamba
    yield from _linear("in_proj", mamba.projection_size, arch.hidden_size, mamba.use_bias)
    yield "conv1d.weight", (mamba.conv_channels, 1, mamba.conv_kernel), 1
    if mamba.use_conv_bias:
        yield "conv1d.bias", (mamba.conv_channels,), 1
    for name in ("A_log", "D", "dt_bias"):
        yield name, (mamba.mamba_num_heads,), 1
    yield "norm.weight", (mamba.inner_size,), 1
    yield from _linear("out_proj", arch.hidden_size, mamba.inner_size, mamba.use_bias)


def _moe(arch: Architecture) -> Iterator[tuple[str, Shape, int]]:
    moe, hidden = arch.moe, arch.hidden_size
    width = hidden if moe.moe_latent_size is None else moe.moe_latent_size
    yield "gate.weight", (moe.n_routed_experts, hidden), 1
    yield "gate.e_score_correction_bias", (moe.n_routed_experts,), 1
    yield "experts.up_proj", (moe.moe_intermediate_size, width), moe.n_routed_experts
    yield "experts.down_proj", (width, moe.moe_intermediate_size), moe.n_routed_experts
    shared = moe.moe_shared_expert_intermediate_size
    yield from _linear("shared_experts.up_proj", shared, hidden, moe.mlp_bias)
    yield from _linear("shared_experts.down_proj", hidden, shared, moe.mlp_bias)
    if moe.moe_latent_size is not None:
        yield from _linear("fc1_latent_proj", width, hidden, moe.mlp_bias)
        yield from _linear("fc2_latent_proj", hidden, width, moe.mlp_bias)


def _attention(arch: Architecture) -> Iterator[tuple[str, Shape, int]]:
    attention, hidden = arch.attention, arch.hidden_size
    queries = attention.num_attention_heads * attention.head_dim
    keys = attention.num_key_value_heads * attention.head_dim
    yield from _linear("q_proj", queries, hidden, False)
    yield from _linear("k_proj", keys, hidden, False)
    yield from _linear("v_proj", keys, hidden, False)
    yield from _linear("o_proj", hidden, queries, False)


def _mlp(arch: Architecture) -> Iterator[tuple[str, Shape, int]]:
    mlp = arch.mlp
    yield from _linear("up_proj", mlp.intermediate_size, arch.hidden_size, mlp.mlp_bias)
    yield from _linear("down_proj", arch.hidden_size, mlp.intermediate_size, mlp.mlp_bias)
