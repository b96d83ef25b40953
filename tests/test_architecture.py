"""Nemotron-H configs: both spellings, whole families of them, and everything that can be wrong in one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import architecture, engine, meta, tiny
from helpers.config_reader import ALIASES, read
from helpers.nemotron_h import LETTERS, Architecture
from helpers.settings import CourseError

NEW_WORDS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
patterns = st.text(alphabet="ME*-", min_size=1, max_size=40)
# Absent here means: the model has none. Everything else that is missing has to be noticed.
MAY_BE_MISSING = {"moe_latent_size", "num_nextn_predict_layers"}


def config(name: str = "phonellm-alpha-1", **changes) -> dict:
    """A config of the course with changes; None takes a field out."""
    raw = architecture.example(name).raw if name != "tiny" else tiny.config()
    return {key: value for key, value in (raw | changes).items() if value is not None}


def outcome(raw: dict) -> Architecture | CourseError:
    try:
        return read(raw)
    except CourseError as error:
        return error


def another(value: object) -> object:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else ["something else"]


def in_words(raw: dict, words: dict[str, str]) -> dict:
    pattern = raw["hybrid_override_pattern"]
    without = {key: value for key, value in raw.items() if key != "hybrid_override_pattern"}
    return without | {"layers_block_type": [words[letter] for letter in pattern]}


def test_phonellm_is_what_the_public_copies_say():
    arch = architecture.phonellm()
    assert (arch.hidden_size, arch.vocab_size, arch.max_position_embeddings) == (2688, 131072, 262144)
    assert [arch.layers.count(kind) for kind in ("mamba", "moe", "attention", "mlp")] == [23, 23, 6, 0]
    assert [place for place, kind in enumerate(arch.layers) if kind == "attention"] == [5, 12, 19, 26, 33, 42]
    assert (arch.moe.n_routed_experts, arch.moe.num_experts_per_tok, arch.moe.n_shared_experts) == (128, 6, 1)
    assert (arch.attention.num_attention_heads, arch.attention.num_key_value_heads) == (32, 2)
    assert arch.mamba.inner_size == 4096 != arch.raw["expand"] * arch.hidden_size
    assert arch.mamba.projection_size == 10304
    assert (arch.mlp, arch.mtp) == (None, None)


def test_dense_layers_latent_experts_and_multi_token_prediction_are_read():
    nano, super_ = (architecture.example(f"nemotron-{rest}") for rest in ("nano-9b-v2", "3-super-120b-a12b"))
    assert (nano.layers.count("mlp"), nano.moe, nano.mlp.intermediate_size) == (25, None, 15680)
    assert super_.moe.moe_latent_size == 1024
    assert super_.mtp.layers == ("attention", "moe")
    assert super_.mtp.num_nextn_predict_layers == 1


@pytest.mark.parametrize("name", architecture.examples())
def test_every_config_reads_as_its_letters_say_and_has_its_origin(name):
    arch = architecture.example(name)
    assert arch.pattern == arch.raw["hybrid_override_pattern"]
    assert architecture.sources().loc[name, "origin"] == "published"
    assert arch.name == name


@given(patterns)
def test_both_spellings_with_old_and_new_words_give_the_same(pattern):
    raw = config("tiny", hybrid_override_pattern=pattern)
    expected = read(raw)
    assert expected.pattern == pattern
    assert read(in_words(raw, LETTERS)) == expected
    assert read(in_words(raw, NEW_WORDS)) == expected
    assert read(in_words(raw, LETTERS) | {"hybrid_override_pattern": pattern}) == expected


@given(st.permutations(list(config("nemotron-3-super-120b-a12b"))))
def test_the_order_of_the_fields_does_not_matter(order):
    raw = config("nemotron-3-super-120b-a12b")
    assert read({key: raw[key] for key in order}) == read(raw)


@pytest.mark.parametrize("name", [*architecture.examples(), "tiny"])
def test_a_missing_field_is_named_or_had_no_say(name):
    """The rule as a whole: no field's absence changes the model silently."""
    raw = config(name)
    expected = read(raw)
    found = {field: outcome({key: raw[key] for key in raw if key != field}) for field in raw}
    noticed = {field for field, result in found.items() if isinstance(result, CourseError)}
    for field in noticed:
        assert field in str(found[field])
    for field in set(raw) - noticed - MAY_BE_MISSING:
        assert found[field] == expected, field
        # Equal could be luck: a default that is this model's value. So no other value may have a say either.
        changed = outcome(raw | {field: another(raw[field])})
        assert changed == expected or isinstance(changed, CourseError), field
    assert {"hidden_size", "mamba_num_heads", "head_dim", "num_key_value_heads", "torch_dtype"} <= noticed
    assert {"hybrid_override_pattern", "vocab_size", "mamba_ssm_cache_dtype"} <= noticed


@pytest.mark.parametrize(
    "field", ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group"]
)
def test_fields_of_the_experts_are_needed_only_where_there_are_experts(field):
    raw = config("tiny")
    del raw[field]
    with pytest.raises(CourseError, match=field):
        read(raw)
    assert read(raw | {"hybrid_override_pattern": "M*-"}).moe is None


CONTRADICTIONS = [
    ({"num_hidden_layers": 51}, "num_hidden_layers"),
    ({"hybrid_override_pattern": "MEM*"}, "num_hidden_layers"),
    ({"layers_block_type": ["mamba"] * 52}, "layers_block_type"),
    ({"num_key_value_heads": 5}, "num_key_value_heads"),
    ({"n_groups": 7}, "n_groups"),
    ({"mamba_proj_bias": True}, "mamba_proj_bias"),
    ({"n_shared_experts": 2}, "n_shared_experts"),
    ({"n_group": 3}, "n_group"),
    ({"topk_group": 2}, "topk_group"),
    ({"num_experts_per_tok": 129}, "num_experts_per_tok"),
    ({"n_group": 64}, "num_experts_per_tok"),
    ({"mamba_d_conv": 3}, "conv_kernel"),
    ({"dtype": "float32"}, "dtype"),
    ({"num_nextn_predict_layers": 1}, "mtp_hybrid_override_pattern"),
]


@pytest.mark.parametrize(("changes", "named"), CONTRADICTIONS)
def test_a_contradiction_is_named(changes, named):
    with pytest.raises(CourseError, match=named):
        read(config(**changes))


WRONG = [
    ("hidden_size", "2688"),
    ("hidden_size", 0),
    ("hidden_size", True),
    ("vocab_size", 131072.5),
    ("tie_word_embeddings", "no"),
    ("norm_topk_prob", 1),
    ("routed_scaling_factor", "2.5"),
    ("mamba_ssm_cache_dtype", 32),
    ("hybrid_override_pattern", "MEX"),
    ("hybrid_override_pattern", ""),
    ("hybrid_override_pattern", ["M"]),
    ("layers_block_type", ["mamba", "transformer"]),
    ("layers_block_type", "ME"),
    ("num_nextn_predict_layers", -1),
    ("attention_bias", True),
    ("sliding_window", 4096),
    ("kv_lora_rank", 512),
    ("block_configs", [{"block_type": "mamba"}]),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_wrong_or_unknown_field_is_named(field, value):
    with pytest.raises(CourseError, match=field):
        read(config(**{field: value}))


def test_an_unknown_letter_is_named_with_its_place():
    with pytest.raises(CourseError, match="'X' in hybrid_override_pattern at layer 2"):
        read(config(hybrid_override_pattern="MEX"))


def test_an_unknown_field_can_be_let_through_knowingly_and_null_is_none():
    assert read(config(kv_lora_rank=512), ignore=["kv_lora_rank"]) == read(config())
    assert read(config() | {"kv_lora_rank": None}) == read(config())


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "nemotron", "nemotron_h_puzzle", None])
def test_another_family_is_refused_by_name(family):
    with pytest.raises(CourseError, match=f"model_type {family!r}"):
        read(config() | {"model_type": family})


def test_older_names_of_fields_mean_the_same():
    raw = config()
    older = {ALIASES.get(key, key): value for key, value in raw.items() if key != "layers_block_type"}
    assert older != raw
    assert read(older) == read(raw)


def test_a_config_that_transformers_saved_reads_the_same():
    classes = meta.nemotron_h_classes()
    if classes is None:  # only where the engine cannot be either; anywhere else this must not go unseen
        assert engine.why_not_embedded(), "the engine is here, and transformers with it"
        pytest.skip("transformers is not installed here")
    for name in architecture.examples():
        arch = architecture.example(name)
        saved = classes[0](**meta.as_transformers_wants(arch)).to_dict()
        assert "hybrid_override_pattern" not in saved
        saved.setdefault("num_hidden_layers", len(arch.layers))
        assert read(json.loads(json.dumps(saved, default=str))) == read(arch.raw)


def test_it_reads_a_file_a_folder_a_text_and_says_what_is_wrong_with_one(tmp_path):
    text = json.dumps(config())
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(text, encoding="utf-8")
    for source in (folder, folder / "config.json", str(folder)):
        assert read(source).name == "my-model"
    assert read(text) == read(config())
    assert read(text, name="mine").name == "mine"
    with pytest.raises(CourseError, match="could not be read"):
        read(tmp_path / "missing.json")
    with pytest.raises(CourseError, match="not valid JSON"):
        read(text[:-5])
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(CourseError, match="is a list"):
        read(tmp_path / "list.json")
    with pytest.raises(CourseError, match="It has phonellm-alpha-1"):
        architecture.example("gpt-5")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "from a NoneType"),
        (["a"], "from a list"),
        (b"{}", "from a bytes"),
        ("x" * 5000, "could not be read"),
        ("a\0b", "could not be read"),
        ("/dev/zero", "not a file"),
        ("[1, 2]", "is a list"),
        ('{"a":' * 100_000, "not valid JSON"),
        ('{"hidden_size":' + "9" * 5000 + "}", "not valid JSON"),
        ('{"hidden_size": 1, "hidden_size": 2}', "'hidden_size' twice"),
    ],
)
def test_what_is_no_config_is_told_in_a_few_words(source, says):
    with pytest.raises(CourseError) as caught:
        read(source)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_as_large_as_a_checkpoint_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(CourseError, match="too many for a config"):
        read(path)


@pytest.mark.parametrize("value", [10**10, 10**400])
def test_a_size_beyond_all_measure_is_named(value):
    with pytest.raises(CourseError, match="hidden_size"):
        read(config() | {"hidden_size": value})
    with pytest.raises(CourseError, match="routed_scaling_factor"):
        read(config() | {"routed_scaling_factor": float("nan")})


@pytest.mark.parametrize("layers", [[["moe"]], [{}], [5], ["moe"] * 100_000])
def test_a_list_of_layers_that_is_none_is_named(layers):
    raw = {name: value for name, value in config().items() if name != "hybrid_override_pattern"}
    with pytest.raises(CourseError, match="layers_block_type") as caught:
        read(raw | {"layers_block_type": layers})
    assert len(str(caught.value)) < 500


def test_a_mark_of_byte_order_is_read_over(tmp_path):
    text = "\ufeff" + json.dumps(config())
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert read(text) == read(config())
    assert read(tmp_path, name="this model") == read(config())


def test_the_reader_does_not_change_what_it_was_given():
    raw = config()
    before = json.dumps(raw)
    read(raw)
    assert json.dumps(raw) == before


def test_layer_table_adds_up_to_the_layers():
    frame = architecture.layer_table(architecture.phonellm())
    assert list(frame.index) == list(range(52))
    assert "".join(frame["letter"]) == architecture.phonellm().pattern
    assert frame.groupby("kind")["parameters"].first().to_dict() == {
        "attention": 23_399_040,
        "mamba": 38_744_896,
        "moe": 1_297_468_160,
    }
    moe = frame[frame["kind"] == "moe"].iloc[0]
    assert moe["active_parameters"] == 1_297_468_160 - 122 * 9_977_856
    others = frame[frame["kind"] != "moe"]
    assert (others["active_parameters"] == others["parameters"]).all()
