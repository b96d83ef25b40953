"""What a model keeps in memory, and what fits."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import architecture, hardware, memory, parameters, tiny
from helpers.config_reader import read
from helpers.settings import CourseError

MIB = 2**20
PHONELLM = architecture.phonellm()


def test_bf16_is_two_bytes_for_each_number():
    assert memory.weight_bytes(PHONELLM, "BF16") == 63_155_880_576 == 2 * parameters.total(PHONELLM)


def test_the_cache_of_phonellm():
    assert memory.kv_bytes_per_token(PHONELLM) == 6_144
    assert memory.kv_bytes_per_token(PHONELLM, "fp8") == 3_072
    assert memory.mamba_state_bytes(PHONELLM) == 23 * (64 * 64 * 128 * 4 + 6144 * 3 * 2)
    assert round(memory.mamba_state_bytes(PHONELLM) / MIB, 1) == 46.8
    assert round(memory.crossing_tokens(PHONELLM)) == 7_989
    sizes = {2_000: 58.5, 4_096: 70.8, 9_216: 100.8, 32_768: 238.8, 262_144: 1_582.8}
    assert {n: round(memory.request_bytes(PHONELLM, n) / MIB, 1) for n in sizes} == sizes


def test_state_in_another_type_and_with_another_column():
    half = memory.mamba_state_bytes(PHONELLM, state_dtype="float16")
    assert memory.mamba_state_bytes(PHONELLM) - half == 23 * 64 * 64 * 128 * 2
    more = memory.mamba_state_bytes(PHONELLM, conv_columns=4)
    assert more - memory.mamba_state_bytes(PHONELLM) == 23 * 6144 * 2
    with pytest.raises(CourseError, match="'int3' is no type"):
        memory.kv_bytes_per_token(PHONELLM, "int3")


def test_vllm_keeps_the_same_state():
    utils = pytest.importorskip("vllm.model_executor.layers.mamba.mamba_utils")
    mamba = PHONELLM.mamba
    conv, state = utils.MambaStateShapeCalculator.mamba2_state_shape(
        tp_world_size=1,
        intermediate_size=mamba.inner_size,
        n_groups=mamba.n_groups,
        num_heads=mamba.mamba_num_heads,
        head_dim=mamba.mamba_head_dim,
        state_size=mamba.ssm_state_size,
        conv_kernel=mamba.conv_kernel,
    )
    layer = 2 * conv[0] * conv[1] + 4 * state[0] * state[1] * state[2]
    assert 23 * layer == memory.mamba_state_bytes(PHONELLM)


@given(st.text(alphabet="ME*-", min_size=1, max_size=12), st.integers(0, 100_000), st.integers(1, 1000))
def test_only_attention_grows_with_the_text(pattern, tokens, more):
    arch = read(tiny.config() | {"hybrid_override_pattern": pattern})
    growth = memory.request_bytes(arch, tokens + more) - memory.request_bytes(arch, tokens)
    assert growth == more * pattern.count("*") * 2 * 2 * 16 * 2
    assert (memory.request_bytes(arch, 0) > 0) == ("M" in pattern)


@given(st.text(alphabet="ME*-", min_size=1, max_size=12))
def test_kv_and_state_are_equal_at_the_crossing(pattern):
    arch = read(tiny.config() | {"hybrid_override_pattern": pattern})
    crossing = memory.crossing_tokens(arch)
    if "*" not in pattern:
        assert crossing == float("inf")
    else:
        assert crossing * memory.kv_bytes_per_token(arch) == pytest.approx(memory.mamba_state_bytes(arch))


def test_fp8_and_nvfp4_keep_wide_what_their_makers_keep_wide():
    tables = {
        fmt: memory.weight_table(PHONELLM, fmt).set_index(["block", "tensor"]) for fmt in memory.FORMATS
    }
    assert set(tables["BF16"]["stored"]) == {"BF16"}
    wide = [("embedding", "embeddings.weight"), ("lm_head", "lm_head.weight"), ("moe", "mixer.gate.weight")]
    for fmt in ("FP8", "NVFP4"):
        assert set(tables[fmt].loc[wide, "stored"]) == {"BF16"}
    assert tables["FP8"].loc[("mamba", "mixer.in_proj.weight"), "stored"] == "FP8"
    assert tables["NVFP4"].loc[("mamba", "mixer.in_proj.weight"), "stored"] == "BF16"
    assert tables["NVFP4"].loc[("attention", "mixer.q_proj.weight"), "stored"] == "BF16"
    assert tables["NVFP4"].loc[("moe", "mixer.shared_experts.up_proj.weight"), "stored"] == "NVFP4"
    experts = tables["NVFP4"].loc[("moe", "mixer.experts.up_proj")]
    one = 1856 * 2688
    assert experts["bytes"] == 23 * 128 * (one // 2 + one // 16 + 4)
    assert tables["FP8"].loc[("moe", "mixer.experts.up_proj"), "bytes"] == 23 * 128 * (one + 4 * 1856)


@pytest.mark.parametrize("name", architecture.examples())
def test_fewer_bits_are_fewer_bytes(name):
    arch = architecture.example(name)
    sizes = {fmt: memory.weight_bytes(arch, fmt) for fmt in memory.FORMATS}
    assert sizes["FP8"] < sizes["BF16"]
    assert sizes["NVFP4"] < sizes["BF16"]
    for fmt, size in sizes.items():
        table = memory.weight_table(arch, fmt)
        assert table["bytes"].sum() == size
        assert table["total"].sum() == parameters.total(arch)


def test_the_difference_to_the_published_sizes_is_said():
    frame = memory.against_published()
    assert abs(frame.loc["BF16", "difference_percent"]) < 0.1
    assert abs(frame.loc["FP8", "difference_percent"]) < 2
    # The list of tensors left alone, as published, gives more bytes than the published file has.
    assert 3 < frame.loc["NVFP4", "difference_percent"] < 6
    assert (frame["modelled_gb"] - frame["published_gb"] - frame["difference_gb"]).abs().max() < 1e-9


def test_what_fits_on_the_gpus_of_the_course():
    frame = memory.fits(PHONELLM).set_index(["gpu", "format"])
    b200 = frame.loc[("B200", "BF16")]
    assert b200["left_gib"] == pytest.approx(96.7, abs=0.05)  # 0.9 x 178.35 - 58.8 - 5
    assert b200["requests"] == 1398
    l40s = frame.loc[("L40S", "BF16")]
    assert (l40s["requests"], bool(l40s["fits"])) == (0, False)
    assert "too large" in l40s["why"]
    assert frame.loc[("L40S", "FP8"), "requests"] > 0
    assert not frame.loc[("H100", "NVFP4"), "supported"]
    assert "no NVFP4 tensor cores" in frame.loc[("H100", "NVFP4"), "why"]
    assert frame.loc[("B200", "NVFP4"), "supported"]
    assert set(frame["origin"]) == {"modelled"}
    assert len(frame) == len(hardware.table()) * 3


@settings(max_examples=30)
@given(
    tokens=st.integers(1, 262_144),
    share=st.floats(0.3, 1.0),
    overhead=st.floats(0, 20),
    fmt=st.sampled_from(memory.FORMATS),
)
def test_as_many_requests_as_fit_and_not_one_more(tokens, share, overhead, fmt):
    options = {"gpu_memory_utilization": share, "overhead_gib": overhead}
    for row in memory.fits(PHONELLM, formats=[fmt], tokens=tokens, **options).itertuples():
        used = memory.weight_bytes(PHONELLM, fmt) / memory.GIB + overhead
        one = memory.request_bytes(PHONELLM, tokens) / memory.GIB
        assert row.requests >= 0
        assert row.fits == (row.requests > 0)
        if row.requests:
            assert used + row.requests * one <= row.memory_gib * share + 1e-6
        assert used + (row.requests + 1) * one > row.memory_gib * share - 1e-6


def test_own_gpu_and_an_unknown_generation():
    own = hardware.own("mine", memory_gb=48, bandwidth_tb_s=1)
    row = memory.fits(PHONELLM, own, formats=["NVFP4"]).iloc[0]
    assert pd.isna(row["supported"])
    assert "not known" in row["why"]
    small = hardware.own("mine", memory_gb=16, bandwidth_tb_s=1, compute_capability=8.9)
    row = memory.fits(PHONELLM, small, formats=["NVFP4"]).iloc[0]
    assert row["why"].endswith("too large"), "what does not fit saves no memory either"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gpu_memory_utilization": 90}, "gpu_memory_utilization is 90"),
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization is 0"),
        ({"overhead_gib": -1}, "overhead_gib"),
        ({"tokens": 0}, "tokens"),
        ({"formats": ["INT4"]}, "'INT4' is no format"),
        ({"kv_dtype": "int4"}, "'int4' is no type"),
    ],
)
def test_what_makes_no_sense_is_named(options, named):
    with pytest.raises(CourseError, match=named):
        memory.fits(PHONELLM, **options)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1])
@pytest.mark.parametrize("name", ["tokens", "overhead_gib", "gpu_memory_utilization"])
def test_what_is_no_number_is_refused(name, value):
    with pytest.raises(CourseError, match=name):
        memory.fits(architecture.phonellm(), **{name: value})
