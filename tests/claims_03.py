"""What lesson 03 says in its text, and what it must then be true of."""

from __future__ import annotations

from helpers import architecture, experts, memory, parameters, published

ARCH = architecture.phonellm()


def touched(batch: int) -> float:
    """Share of a layer's experts that a batch is expected to touch."""
    return experts.expected_distinct(batch) / ARCH.moe.n_routed_experts


CLAIMS = {
    r"own 6 of 128 experts|1 - 6/128|uses 6 experts of a layer": lambda: (
        (ARCH.moe.num_experts_per_tok, ARCH.moe.n_routed_experts) == (6, 128)
    ),
    r"[Ww]ith 16 callers": lambda: 0.5 < touched(16) < 0.6,  # "more than half of the experts"
    r"With 64 tokens nearly every expert|With 64\?|from one caller to 64": lambda: touched(64) > 0.95,
    r"64 callers cost far less than 64 times one": lambda: (
        experts.bytes_per_step(ARCH, 64) < 64 * experts.bytes_per_step(ARCH, 1) / 5
    ),
    r"They grow 64 times": lambda: experts.bytes_per_step(ARCH, 64) < 2 * parameters.total(ARCH),  # not so
    r"group of 16 weights": lambda: memory.NVFP4_GROUP == 16,
    r"A call has 1,000 tokens": lambda: memory.crossing_tokens(ARCH) / 2 > 1000,
    # Said in words, so no test would ask for it.
    r"a tenth works": lambda: 0.09 < parameters.active(ARCH) / parameters.total(ARCH) < 0.12,
    r"the six tall ones": lambda: ARCH.layers.count("attention") == 6,
    r"must be the frequent one": lambda: ARCH.layers.count("moe") > 3 * ARCH.layers.count("attention"),
    r"more than a thousand callers": lambda: (
        memory.fits(ARCH, tokens=4096).set_index(["gpu", "format"])["requests"]["B200", "BF16"] > 1000
    ),
    r"only at several thousand tokens": lambda: 5000 < memory.crossing_tokens(ARCH) < 10_000,
    r"Two of the three are explained": lambda: (
        round(parameters.active(ARCH, embedding=False) / 1e9, 1)
        == published.value("arch.active_without_embedding")
        and round(parameters.active(ARCH) / 1e9, 1) == published.value("arch.active_with_embedding")
        and not any(
            round(parameters.active(ARCH, embedding=e, lm_head=o) / 1e9, 1)
            == published.value("arch.active_card")
            for e in (True, False)
            for o in (True, False)
        )
    ),
    r"one of double width": lambda: (
        ARCH.moe.moe_shared_expert_intermediate_size == 2 * ARCH.moe.moe_intermediate_size
    ),
    r"Three come with the course": lambda: len(architecture.examples()) == 3,
    r"for NVFP4 the furthest": lambda: (
        memory.against_published()["difference_percent"].abs().idxmax() == "NVFP4"
        and memory.against_published()["difference_gb"]["NVFP4"] > 0
    ),
}


def read_bytes(fmt: str, share: float) -> float:
    """Bytes that a step reads in a format, with this share of the routed experts."""
    table = memory.weight_table(ARCH, fmt)
    routed = table["tensor"].isin(parameters.ROUTED)
    return (
        table["bytes"][(table["block"] != "embedding") & ~routed].sum() + share * table["bytes"][routed].sum()
    )


CLAIMS[r"read no faster in NVFP4 than in FP8"] = lambda: (
    read_bytes("NVFP4", 6 / 128) >= read_bytes("FP8", 6 / 128)
    and read_bytes("NVFP4", 1) < read_bytes("FP8", 1)
)
HARMLESS = (r"Mamba-2", r"BF16|FP8|NVFP4|float32")  # names
