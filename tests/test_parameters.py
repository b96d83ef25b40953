"""Parameter counts: against known totals, and against transformers for any config."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import architecture, meta, parameters, published, tiny
from helpers.config_reader import ALIASES, read
from helpers.settings import CourseError

needs_transformers = pytest.mark.skipif(
    meta.nemotron_h_classes() is None, reason="transformers is not installed here"
)


@pytest.fixture
def no_transformers(monkeypatch):
    monkeypatch.setattr(meta, "nemotron_h_classes", lambda: None)


@st.composite
def configs(draw):
    """Small Nemotron-H configs of any kind that the reader accepts."""
    size = st.integers(1, 12)
    groups = draw(st.integers(1, 3))
    kv_heads = draw(st.integers(1, 3))
    bias = draw(st.booleans())
    experts = draw(st.integers(1, 6))
    return tiny.config() | {
        "hybrid_override_pattern": draw(st.text(alphabet="ME*-", min_size=1, max_size=6)),
        "hidden_size": draw(size),
        "vocab_size": draw(size),
        "n_groups": groups,
        "mamba_num_heads": groups * draw(st.integers(1, 4)),
        "mamba_head_dim": draw(size),
        "ssm_state_size": draw(size),
        "conv_kernel": draw(st.integers(1, 5)),
        "use_conv_bias": draw(st.booleans()),
        "use_bias": bias,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.integers(1, 4)),
        "head_dim": draw(size),
        "n_routed_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "moe_intermediate_size": draw(size),
        "moe_shared_expert_intermediate_size": draw(size),
        "moe_latent_size": draw(st.none() | size),
        "intermediate_size": draw(size),
        "mlp_bias": draw(st.booleans()),
    }


def test_phonellm_to_the_last_number():
    arch = architecture.phonellm()
    assert parameters.total(arch) == 31_577_940_288 == published.value("phonellm.parameters")
    blocks = parameters.by_block(arch).set_index("block")
    assert blocks["parameters"].to_dict() == {
        "embedding": 352_321_536,
        "mamba": 38_744_896,
        "moe": 1_297_468_160,
        "attention": 23_399_040,
        "final_norm": 2_688,
        "lm_head": 352_321_536,
    }
    assert blocks["times"].to_dict() == {
        "embedding": 1,
        "mamba": 23,
        "moe": 23,
        "attention": 6,
        "final_norm": 1,
        "lm_head": 1,
    }
    assert (blocks["parameters"] * blocks["times"] == blocks["total"]).all()
    assert blocks["total"].sum() == parameters.total(arch)


def test_active_with_and_without_the_two_tables():
    arch = architecture.phonellm()
    assert parameters.active(arch) == 3_580_076_352
    assert parameters.active(arch, embedding=False) == 3_227_754_816
    assert parameters.active(arch, embedding=False, lm_head=False) == 2_875_433_280
    assert parameters.routed_expert(arch) == 9_977_856


def test_shapes_say_which_tensor_is_no_parameter():
    frame = parameters.shapes(architecture.phonellm())
    assert frame[frame["buffer"]]["total"].sum() == 2_944 == 23 * 128
    assert (frame["parameters"] * frame["copies"] * frame["blocks"] == frame["total"]).all()
    in_proj = frame[frame["tensor"] == "mixer.in_proj.weight"].iloc[0]
    assert in_proj["shape"] == (10304, 2688)
    expert = frame[frame["tensor"] == "mixer.experts.up_proj"].iloc[0]
    assert (expert["shape"], expert["copies"], expert["blocks"]) == ((1856, 2688), 128, 23)


def test_super_explains_its_published_index_to_the_byte():
    """Two bytes for each number, four for each of the routers' corrections, those of the prediction too."""
    arch = architecture.example("nemotron-3-super-120b-a12b")
    frame = parameters.shapes(arch)
    corrections = int(frame[frame["buffer"]]["total"].sum()) + arch.moe.n_routed_experts
    numbers = parameters.total(arch) + parameters.mtp(arch)
    assert 2 * numbers + 2 * corrections == published.value("arch.super_index_bytes")


def test_nano_9b_has_the_published_size():
    arch = architecture.example("nemotron-nano-9b-v2")
    assert round(parameters.total(arch) / 1e9, 2) == published.value("arch.nano9b_parameters")
    assert parameters.active(arch) == parameters.total(arch)
    assert parameters.mtp(arch) == parameters.routed_expert(arch) == 0


@needs_transformers
@pytest.mark.parametrize("name", architecture.examples())
def test_transformers_builds_the_same(name):
    arch = architecture.example(name)
    count = parameters.on_meta(arch)
    frame = parameters.shapes(arch)
    assert count.origin == "measured"
    assert count.parameters == frame[~frame["buffer"]]["total"].sum()
    assert count.buffers == frame[frame["buffer"]]["total"].sum()


@needs_transformers
@settings(max_examples=40, deadline=None)
@given(configs())
def test_transformers_builds_the_same_from_any_config(raw):
    arch = read(raw)
    count = parameters.on_meta(raw)
    assert parameters.total(arch) == count.parameters + count.buffers


@needs_transformers
def test_older_names_of_fields_do_not_become_defaults_of_transformers():
    raw = tiny.config() | {"conv_kernel": 3, "n_groups": 4}
    older = {ALIASES.get(name, name): value for name, value in raw.items()}
    assert {"attention_head_dim", "mamba_d_conv", "mamba_n_groups", "num_local_experts"} <= set(older)
    assert parameters.on_meta(older) == parameters.on_meta(raw)


@needs_transformers
def test_transformers_gives_each_tensor_our_name_and_shape():
    arch = read(tiny.config())
    config_class, model_class = meta.nemotron_h_classes()
    model = model_class(config_class(**meta.as_transformers_wants(arch)))
    theirs = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    frame = parameters.shapes(arch)
    for layer, kind in enumerate(arch.layers):
        for row in frame[frame["block"] == kind].itertuples():
            shape = theirs[f"model.layers.{layer}.{row.tensor}"]
            assert shape == (row.shape if row.copies == 1 else (row.copies, *row.shape))
    outer = {"model.embeddings.weight", "model.norm_f.weight", "lm_head.weight"}
    ours = sum((frame["block"] == kind).sum() for kind in arch.layers)
    assert outer <= set(theirs)
    assert len(theirs) == ours + len(outer)


@given(configs(), st.sampled_from(["hidden_size", "vocab_size"]))
def test_more_is_more(raw, field):
    wider = raw | {field: raw[field] + 1}
    assert parameters.total(read(wider)) > parameters.total(read(raw))


@given(configs())
def test_active_is_part_of_the_total(raw):
    arch = read(raw)
    every = parameters.active(arch)
    assert every <= parameters.total(arch)
    without = parameters.active(arch, embedding=False, lm_head=False)
    assert every - without == 2 * arch.vocab_size * arch.hidden_size


@given(configs())
def test_a_shared_table_counts_once(raw):
    apart, tied = read(raw), read(raw | {"tie_word_embeddings": True})
    table = apart.vocab_size * apart.hidden_size
    assert parameters.total(apart) - parameters.total(tied) == table
    assert parameters.active(tied) == parameters.active(tied, embedding=False)


def test_a_kind_that_is_not_there_is_named():
    with pytest.raises(CourseError, match=r"'mlp'\. It has attention, mamba, moe"):
        parameters.layer(architecture.phonellm(), "mlp")


def test_defaults_of_transformers_are_another_model():
    frame = parameters.class_defaults().set_index("field")
    assert not frame.loc["hidden_size", "same"]
    assert frame.loc["head_dim", "same"]
    assert frame.loc["n_routed_experts", "model"] == 128
    models = parameters.default_models(architecture.phonellm()).set_index("config")["parameters"]
    assert models["every field"] == 31_577_940_288
    assert models["no field given"] < models["only the order of its layers"] < models["every field"]


@needs_transformers
def test_what_was_recorded_is_what_is_measured(monkeypatch):
    measured = {name: parameters.on_meta(architecture.example(name)) for name in architecture.examples()}
    defaults = parameters.class_defaults().drop(columns="origin")
    monkeypatch.setattr(meta, "nemotron_h_classes", lambda: None)
    for name, live in measured.items():
        kept = parameters.on_meta(architecture.example(name))
        assert (kept.parameters, kept.buffers, kept.origin) == (live.parameters, live.buffers, "recorded")
    assert parameters.class_defaults().drop(columns="origin").equals(defaults)


def test_without_transformers_only_what_was_recorded_is_answered(no_transformers):
    assert parameters.on_meta(architecture.phonellm().raw).origin == "recorded"
    assert set(parameters.class_defaults()["origin"]) == {"recorded"}
    with pytest.raises(CourseError, match="was not recorded"):
        parameters.on_meta(architecture.phonellm().raw | {"vocab_size": 1000})
