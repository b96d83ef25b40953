"""A Nemotron-H small enough to run anywhere: random weights, real code, and a cache to look into.

It says nothing sensible. Its memory behaves as that of the large one: the KV cache grows with the text, the
Mamba state does not. :func:`watch` measures both in transformers and sets the formulas of
:mod:`helpers.memory` beside them.

Where torch or transformers is missing, the measurements are those that we recorded, with the origin
``recorded``. ``python -m helpers.tiny`` records them anew, with the counts of :mod:`helpers.meta`.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import pandas as pd

from helpers import architecture, machine, memory, meta, parameters
from helpers.config_reader import read
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.settings import CourseError

LENGTHS = (1, 64, 256, 1024)
COLUMNS = ("tokens", "kv_bytes", "mamba_bytes", "kv_formula", "mamba_formula", "origin")

_CONFIG: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "MEM*EM-E",
    "hidden_size": 64,
    "vocab_size": 256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "chunk_size": 64,
    "use_conv_bias": True,
    "use_bias": False,
    "mamba_ssm_cache_dtype": "float32",
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 64,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "intermediate_size": 96,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
}


def config() -> dict[str, Any]:
    """A Nemotron-H config with every kind of layer, in which one forward pass takes milliseconds."""
    return dict(_CONFIG)


def watch(
    lengths: Iterable[int] = LENGTHS, *, fields: dict[str, Any] | None = None, seed: int = 0
) -> pd.DataFrame:
    """Run texts through a small model and weigh its cache after each.

    transformers keeps ``conv_kernel`` inputs of the convolution, one more than it needs (and than vLLM
    keeps), so the formula is told so.

    Args:
        lengths: of the texts, in tokens.
        fields: the config of the model; by default :func:`config`. Large ones take memory and time.
        seed: for the weights. The bytes do not depend on it.

    Returns:
        A frame with one row for each length: ``tokens``, ``kv_bytes`` and ``mamba_bytes`` (in the cache),
        ``kv_formula`` and ``mamba_formula`` (from the config), ``origin`` (measured, or recorded where torch
        or transformers is missing).

    Raises:
        CourseError: a length is below 1; or transformers is missing, and this was not recorded.
    """
    wanted = list(lengths)
    arch = read(fields or config(), name="the tiny model")
    bad = [length for length in wanted if not 1 <= length <= arch.max_position_embeddings]
    if bad:
        raise CourseError(
            f"{bad[0]} is no length for this text; it has 1 to {arch.max_position_embeddings} tokens."
        )
    classes = meta.nemotron_h_classes()
    if classes is None:
        return _recorded(wanted, arch)
    model = _build(classes, arch, seed)
    rows = []
    for length in wanted:
        kv_bytes, mamba_bytes = _cache_bytes(model, arch, length)
        rows.append(
            {
                "tokens": length,
                "kv_bytes": kv_bytes,
                "mamba_bytes": mamba_bytes,
                "kv_formula": length * memory.kv_bytes_per_token(arch, arch.dtype),
                "mamba_formula": memory.mamba_state_bytes(arch, conv_columns=arch.mamba.conv_kernel)
                if arch.mamba
                else 0,
                "origin": "measured",
            }
        )
    return validate(pd.DataFrame(rows, columns=list(COLUMNS)), used_by="tiny.watch")


def _build(classes: tuple[type, type], arch: Architecture, seed: int) -> Any:
    import torch

    config_class, model_class = classes
    with meta.quiet(), torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config_class(**meta.as_transformers_wants(arch)))
    return model.to(getattr(torch, arch.dtype)).eval()


def _cache_bytes(model: Any, arch: Architecture, length: int) -> tuple[int, int]:
    """Bytes of keys and values, and of Mamba states, after a text: all but its last token at once, as a
    prompt is read, then the last alone, as an answer is made."""
    import torch

    text = torch.arange(length).remainder(arch.vocab_size).unsqueeze(0)
    with meta.quiet(), torch.inference_mode():
        cache = None
        for part in (text[:, :-1], text[:, -1:]):
            if part.shape[1]:
                cache = _cache(model(part, use_cache=True, **_as_argument(model, cache)))
    kv_bytes = mamba_bytes = 0
    for layer, kind in zip(cache.layers, arch.layers, strict=True):
        if kind == "attention":
            kv_bytes += sum(tensor.nbytes for tensor in (layer.keys, layer.values))
        elif kind == "mamba":
            states = [*layer.conv_states.values(), *layer.recurrent_states.values()]
            mamba_bytes += sum(tensor.nbytes for tensor in states if tensor is not None)
    return kv_bytes, mamba_bytes


def _as_argument(model: Any, cache: Any) -> dict[str, Any]:
    """The cache under the name by which this version of transformers takes it."""
    import inspect

    if cache is None:
        return {}
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    return {name: cache}


def _cache(output: Any) -> Any:
    cache = getattr(output, "cache", None)
    return output.past_key_values if cache is None else cache


def _recorded(lengths: list[int], arch: Architecture) -> pd.DataFrame:
    kept = {row["tokens"]: row for row in meta.recorded()["tiny"]}
    missing = [length for length in lengths if length not in kept]
    if missing or arch != read(config(), name=arch.name):
        what = f"a text of {missing[0]} tokens" if missing else "this config"
        raise CourseError(
            f"torch or transformers is not installed here, and {what} was not recorded. Recorded are the "
            f"lengths {', '.join(map(str, kept))} of tiny.config(). make lab installs both, on Linux."
        )
    rows = [kept[length] for length in lengths]
    frame = pd.DataFrame(rows).assign(origin="recorded")[list(COLUMNS)]
    return validate(frame, used_by="tiny.watch")


def recorded(lengths: Iterable[int] = LENGTHS) -> pd.DataFrame:
    """What :func:`watch` gave when it was recorded, on any machine.

    Args:
        lengths: of the texts, in tokens.

    Raises:
        CourseError: a length was not recorded.
    """
    return _recorded(list(lengths), read(config(), name="the tiny model"))


def record() -> dict[str, Any]:
    """Everything that the lessons show of transformers, with its conditions, as kept in ``data/runs``."""
    models = {name: architecture.example(name) for name in architecture.examples()}
    models["tiny"] = read(config(), name="tiny")
    counted = []
    for name, arch in models.items():
        count = parameters.on_meta(arch)
        kept = {"name": name, "parameters": count.parameters, "buffers": count.buffers, "config": arch.raw}
        counted.append(kept)
    # JSON has no word for the infinite end of this one, which has no say in any count.
    defaults = {k: v for k, v in parameters.default_config().items() if k != "time_step_limit"}
    tiny = watch(sorted({*LENGTHS, *(2**power for power in range(12))}))
    return {
        "lesson": "03",
        "date": datetime.date.today().isoformat(),
        "machine": {"processor": machine.processor()},
        "os": machine.system(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "workload": "parameters of each model on the meta device; defaults of NemotronHConfig; bytes in the "
        "cache of a small model with random weights",
        "meta": counted,
        "defaults": defaults,
        "tiny": tiny.drop(columns="origin").to_dict("records"),
    }


def main() -> int:
    """``python -m helpers.tiny``: record anew what needs transformers."""
    if meta.nemotron_h_classes() is None:
        print("transformers is not installed here: nothing was recorded.", file=sys.stderr)
        return 1
    text = json.dumps(record(), indent=1, allow_nan=False) + "\n"
    meta.RECORDED.write_text(text, encoding="utf-8")
    print(f"Written: {meta.RECORDED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
