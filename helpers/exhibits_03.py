"""Figures of lesson 03: the layers, what a batch reads, what a request holds, what fits."""

from __future__ import annotations

from typing import Any

import pandas as pd

from helpers import architecture, experts, figures, hardware, memory, parameters, tiny
from helpers.exhibit import Exhibit, Lazily

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROUTERS = {
    "simulated, all alike": {},
    "simulated, some experts more popular": {"skew": 1.0},
    "simulated, similar tokens": {"similarity": 0.3},
}
FITS_TOKENS = 4096
TINY_TOKENS = (64, 128, 256, 512, 1024)
GPU = "B200"


def layers_options() -> dict[str, Any]:
    """All parameters, and the headline."""
    arch = architecture.phonellm()
    return {"total": parameters.total(arch), "title": f"PhoneLLM's {len(arch.layers)} layers"}


def distinct() -> pd.DataFrame:
    """Experts that a step touches: the formula, and a router with random weights."""
    moe = architecture.phonellm().moe
    how = {"experts": moe.n_routed_experts, "per_token": moe.num_experts_per_tok}
    formula = pd.DataFrame({"batch": BATCHES, "router": "formula", "origin": "modelled"})
    formula["distinct"] = experts.expected_distinct(BATCHES, **how)
    runs = [
        experts.simulate(BATCHES, trials=10, **how, **kind).assign(router=name)
        for name, kind in ROUTERS.items()
    ]
    keys = ["router", "batch", "origin"]
    points = pd.concat(runs).groupby(keys, sort=False)["distinct"].mean().reset_index()
    return pd.concat([formula, points], ignore_index=True)


def distinct_options() -> dict[str, Any]:
    """The ceiling, and the headline."""
    experts_of_a_layer = architecture.phonellm().moe.n_routed_experts
    return {"experts": experts_of_a_layer, "title": "A batch soon touches most of the experts"}


def steps() -> pd.DataFrame:
    """Bytes that a step reads in BF16, beside a dense model of the size that one token uses."""
    arch = architecture.phonellm()
    frame = experts.bytes_per_step(arch, BATCHES)
    return frame.assign(
        step_gb=frame["total_gb"], dense_gb=2 * parameters.active(arch, embedding=False) / 1e9
    )


def steps_options() -> dict[str, Any]:
    """The bandwidth of the GPU on the second axis, with who says so."""
    rows = hardware.sources()
    row = rows[(rows["gpu"] == GPU) & (rows["quantity"] == "bandwidth")].iloc[0]
    return {
        "bandwidth_tb_s": float(row["value"]),
        "bandwidth_from": f"{row['origin']}: {row['source']}, {row['date']}",
        "machine": GPU,
        "title": "A step reads more as the batch grows; each token's part gets smaller",
    }


def request() -> pd.DataFrame:
    """What one request holds, at lengths up to the model's longest."""
    arch = architecture.phonellm()
    lengths = [64, 256, 1024, 4096, 16384, 65536, arch.max_position_embeddings]
    frame = pd.DataFrame({"tokens": lengths, "origin": "modelled"})
    frame["kv_bytes"] = frame["tokens"] * memory.kv_bytes_per_token(arch)
    return frame.assign(mamba_bytes=memory.mamba_state_bytes(arch))


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "03-model-layers",
        figures.model_layers,
        lambda: architecture.layer_table(architecture.phonellm()),
        "Nearly all parameters are in the experts, and a token uses few of them; only few layers keep a "
        "cache that grows.",
        Lazily(layers_options),
    ),
    Exhibit(
        "03-distinct-experts",
        figures.distinct_experts,
        distinct,
        "With few callers a step already touches most experts, unless the router is uneven.",
        Lazily(distinct_options),
    ),
    Exhibit(
        "03-bytes-per-step",
        figures.bytes_per_step,
        steps,
        "A larger batch makes each step dearer and each token of it cheaper.",
        Lazily(steps_options),
    ),
    Exhibit(
        "03-request-memory",
        figures.request_memory,
        request,
        "Until a request is long, its state in the Mamba layers is larger than its KV cache.",
        {"title": "A short call is mostly Mamba state"},
    ),
    Exhibit(
        "03-what-fits",
        figures.what_fits,
        lambda: memory.fits(architecture.phonellm(), tokens=FITS_TOKENS),
        "On a large GPU memory leaves room for more callers than latency allows; on a small one the "
        "weights barely fit.",
        {"title": f"What fits on one GPU, with requests of {FITS_TOKENS:,} tokens"},
    ),
    Exhibit(
        "03-cache-growth",
        figures.cache_growth,
        lambda: tiny.recorded(TINY_TOKENS),
        "A real cache, weighed byte by byte: one part grows with the text, the other does not.",
        {"title": "The KV cache grows, the Mamba state stays"},
    ),
)
