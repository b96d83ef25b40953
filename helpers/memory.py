"""What a Nemotron-H model keeps in memory: weights, KV cache, Mamba state, and how many requests fit on a
GPU.

Three things share a GPU's memory. The weights are there once. The KV cache belongs to a request and grows
with each token, in the attention layers only. The Mamba state belongs to a request too and never grows.

Formats of weights, as in :data:`FORMATS`:

BF16
    two bytes for each number. (A checkpoint may keep the routers' corrections in four: that is how Nemotron
    3 Super comes to the size in its index, see the tests.)
FP8
    one byte for each weight of a linear layer, with one scale in four bytes for each of its outputs. The
    embedding, ``lm_head``, the routers, the convolutions and the norms stay in BF16.
NVFP4
    half a byte for each weight of an expert or a dense MLP; sixteen weights share a scale of one byte, and a
    matrix one more in four. Attention, Mamba and ``lm_head`` stay in BF16, as the makers of PhoneLLM's NVFP4
    checkpoint say (card of phonellm-alpha-1-nvfp4, read in a public digest, 2026-09).

The published checkpoint is smaller than that: :func:`against_published` says by how much. So this is a model
of the file, not the file. For another model, NVFP4 means here the same choice of tensors.

A server fits a little less than :func:`fits` says: vLLM hands out the cache in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf, prod

import pandas as pd

from helpers import hardware, parameters, published
from helpers.architecture import phonellm
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.settings import CourseError

GIB = 2**30
FORMATS = ("BF16", "FP8", "NVFP4")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}

NVFP4_GROUP = 16  # weights that share a scale
# What the recipes for this model write. vLLM 0.27.1 takes 0.92 if nothing is written.
GPU_MEMORY_UTILIZATION = 0.9
# CUDA itself, captured graphs, and room for the activations of the longest step. Third-party notes on this
# model (basetenlabs/truss-examples, llm/phonellm-alpha-1) reckon with about this much.
OVERHEAD_GIB = 5.0

LINEAR = (
    "in_proj",
    "out_proj",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "up_proj",
    "down_proj",
    "latent_proj",
)


def weight_table(arch: Architecture, fmt: str) -> pd.DataFrame:
    """The weights by kind of tensor, in a format.

    Returns:
        The rows of :func:`helpers.parameters.shapes` with the columns ``block``, ``tensor``, ``total``
        (numbers), ``stored`` (the format of this tensor: BF16, FP8 or NVFP4), ``bytes`` (scales included) and
        ``origin``.

    Raises:
        CourseError: the format is not one of :data:`FORMATS`.
    """
    if fmt not in FORMATS:
        raise CourseError(f"{fmt!r} is no format known here. Take one of {', '.join(FORMATS)}.")
    frame = parameters.shapes(arch)
    frame["stored"] = [_stored(fmt, row.block, row.tensor) for row in frame.itertuples()]
    frame["bytes"] = [
        _bytes(row.stored, row.shape) * row.copies * row.blocks for row in frame.itertuples(index=False)
    ]
    frame = frame[["block", "tensor", "total", "stored", "bytes"]].assign(origin="modelled")
    return validate(frame, used_by="memory.weight_table")


def weight_bytes(arch: Architecture, fmt: str = "BF16") -> int:
    """Bytes of all weights in a format, without multi-token prediction."""
    return int(weight_table(arch, fmt)["bytes"].sum())


def against_published() -> pd.DataFrame:
    """Our sizes of PhoneLLM's weights beside those of the checkpoints.

    Returns:
        A frame with the index ``format`` and the columns ``modelled_gb``, ``published_gb``, ``difference_gb``
        (ours minus theirs), ``difference_percent`` (of theirs), ``source``, ``date`` and ``origin``
        (modelled).
    """
    rows = []
    for fmt, name in (("BF16", "arch.bf16_size"), ("FP8", "arch.fp8_size"), ("NVFP4", "arch.nvfp4_size")):
        known = published.table(name).iloc[0]
        ours = weight_bytes(phonellm(), fmt) / 1e9
        rows.append(
            {
                "format": fmt,
                "modelled_gb": ours,
                "published_gb": known["value"],
                "difference_gb": ours - known["value"],
                "difference_percent": 100 * (ours / known["value"] - 1),
                "source": known["source"],
                "date": known["date"],
                "origin": "modelled",
            }
        )
    return validate(pd.DataFrame(rows), used_by="memory.against_published").set_index("format")


def kv_bytes_per_token(arch: Architecture, dtype: str = "bfloat16") -> int:
    """Bytes that each token of a request adds to the KV cache: a key and a value in every attention layer.

    Args:
        arch: the model.
        dtype: type of the cache, one of :data:`BYTES`.

    Raises:
        CourseError: the type is not known.
    """
    if arch.attention is None:
        return 0
    heads = 2 * arch.attention.num_key_value_heads * arch.attention.head_dim
    return heads * _size(dtype) * arch.layers.count("attention")


def mamba_state_bytes(
    arch: Architecture,
    *,
    state_dtype: str | None = None,
    conv_dtype: str | None = None,
    conv_columns: int | None = None,
) -> int:
    """Bytes of a request's Mamba state, whatever its length.

    Each Mamba layer keeps a matrix for each head (head size times state size) and the last inputs of its
    convolution.

    Args:
        arch: the model.
        state_dtype: type of the matrices; by default ``mamba_ssm_cache_dtype`` of the config.
        conv_dtype: type of the convolution's inputs; by default that of the weights.
        conv_columns: how many inputs are kept. The kernel needs those before the present one, so vLLM keeps
            ``conv_kernel - 1``, the default here; transformers keeps ``conv_kernel``.

    Raises:
        CourseError: a type is not known.
    """
    mamba = arch.mamba
    if mamba is None:
        return 0
    columns = mamba.conv_kernel - 1 if conv_columns is None else conv_columns
    state = mamba.inner_size * mamba.ssm_state_size * _size(state_dtype or mamba.mamba_ssm_cache_dtype)
    conv = mamba.conv_channels * columns * _size(conv_dtype or arch.dtype)
    return arch.layers.count("mamba") * (state + conv)


def request_bytes(arch: Architecture, tokens: float, *, kv_dtype: str = "bfloat16") -> float:
    """Bytes that a request of this length keeps: its KV cache and its Mamba state."""
    return tokens * kv_bytes_per_token(arch, kv_dtype) + mamba_state_bytes(arch)


def crossing_tokens(arch: Architecture, *, kv_dtype: str = "bfloat16") -> float:
    """The length at which the KV cache of a request becomes larger than its Mamba state.

    Infinite without attention, 0 without Mamba layers.
    """
    per_token = kv_bytes_per_token(arch, kv_dtype)
    return mamba_state_bytes(arch) / per_token if per_token else float("inf")


def fits(
    arch: Architecture,
    gpus: pd.DataFrame | None = None,
    formats: Iterable[str] = FORMATS,
    tokens: int = 4096,
    *,
    gpu_memory_utilization: float = GPU_MEMORY_UTILIZATION,
    overhead_gib: float = OVERHEAD_GIB,
    kv_dtype: str = "bfloat16",
) -> pd.DataFrame:
    """How many requests fit on one GPU beside the weights.

    Args:
        arch: the model.
        gpus: as :func:`helpers.hardware.table`, which is the default.
        formats: of the weights, from :data:`FORMATS`.
        tokens: length of each request, prompt and answer together.
        gpu_memory_utilization: the share of the memory that the server may use, as vLLM's option of this
            name. The rest is for what else lives there: the driver, a display, on DGX Spark the whole system.
        overhead_gib: of that share, what is neither weights nor cache.
        kv_dtype: type of the KV cache.

    Returns:
        A frame with one row for each GPU and format: ``gpu``, ``format``, ``memory_gib`` (as the driver
        reports it), ``budget_gib`` (what the server may use), ``weights_gib``, ``left_gib`` (for requests;
        below 0: so much is missing), ``requests`` (how many of this length), ``tokens``, ``fits`` (one
        request does), ``supported`` (the tensor cores multiply this format; None: not known), ``why`` and
        ``origin``.

    Raises:
        CourseError: a format, a share or a length makes no sense.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise CourseError(
            f"gpu_memory_utilization is {gpu_memory_utilization!r}; it is a share, such as 0.9."
        )
    if not 0 <= overhead_gib < inf or not 1 <= tokens < inf:  # so written, NaN is refused too
        raise CourseError(
            f"overhead_gib ({overhead_gib!r}) cannot be negative, nor tokens ({tokens!r}) below 1, and both "
            "have to be numbers."
        )
    gpus = hardware.table() if gpus is None else gpus
    one_request = request_bytes(arch, tokens, kv_dtype=kv_dtype) / GIB
    sizes = {fmt: weight_bytes(arch, fmt) / GIB for fmt in formats}
    rows = []
    for gpu, row in gpus.iterrows():
        budget = row["memory_gib"] * gpu_memory_utilization
        for fmt, weights in sizes.items():
            left = budget - overhead_gib - weights
            known = hardware.tensor_cores_know(row["compute_capability"], fmt)
            rows.append(
                {
                    "gpu": gpu,
                    "format": fmt,
                    "memory_gib": row["memory_gib"],
                    "budget_gib": budget,
                    "weights_gib": weights,
                    "left_gib": left,
                    "requests": max(0, floor(left / one_request)),
                    "tokens": tokens,
                    "fits": left >= one_request,
                    "supported": known,
                    "why": _why(left, one_request, known, fmt),
                    "origin": "modelled",
                }
            )
    return validate(pd.DataFrame(rows), used_by="memory.fits")


def _why(left: float, one_request: float, known: bool | None, fmt: str) -> str:
    if left < 0:
        return f"the weights are {-left:.1f} GiB too large"
    if left < one_request:
        return "the weights fit, a request beside them does not"
    room = f"{left:.1f} GiB for requests"
    if known is None:
        return f"{room}; whether the tensor cores know {fmt} is not known"
    if known:
        return room
    return f"{room}; no {fmt} tensor cores: saves memory, computes in BF16"


def _stored(fmt: str, block: str, tensor: str) -> str:
    """The format in which one tensor is kept when the model comes in ``fmt``."""
    linear = block not in ("embedding", "lm_head") and any(
        tensor.removesuffix(".weight").endswith(name) for name in LINEAR
    )
    if fmt == "FP8" and linear:
        return "FP8"
    if fmt == "NVFP4" and linear and block in ("moe", "mlp"):
        return "NVFP4"
    return "BF16"


def _bytes(stored: str, shape: tuple[int, ...]) -> int:
    """Bytes of one tensor with its scales."""
    numbers = prod(shape)
    if stored == "FP8":
        return numbers + 4 * shape[0]
    if stored == "NVFP4":
        outputs, inputs = shape
        groups = outputs * -(-inputs // NVFP4_GROUP)
        return -(-numbers // 2) + groups + 4
    return 2 * numbers


def _size(dtype: str) -> int:
    if dtype not in BYTES:
        raise CourseError(f"{dtype!r} is no type known here. Take one of {', '.join(BYTES)}.")
    return BYTES[dtype]
