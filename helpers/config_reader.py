"""A Nemotron-H ``config.json``, read without guessing.

The list of layers comes in two spellings, and both are read:

``hybrid_override_pattern``
    one letter for each layer: ``M`` Mamba-2, ``E`` mixture of experts, ``*`` attention, ``-`` dense MLP.
``layers_block_type``
    one word for each layer: ``mamba``, ``moe``, ``attention``, ``mlp``. Newer versions of transformers write
    ``linear_attention`` and ``full_attention`` for the first and the third.

Three rules keep a count honest. A field that is missing is an error, never a default: the defaults that
transformers has for this family describe another model. Two fields that contradict each other are an error.
So is a field that is not known here, because it may change the shape of the model. Every error names its
field.

Two fields may be missing, because older files were written before they existed: without ``moe_latent_size``
the experts work at full width, without ``num_nextn_predict_layers`` there is no multi-token prediction.

``expand`` is left alone: in this family the width of a Mamba layer is ``mamba_num_heads * mamba_head_dim``,
and ``expand * hidden_size`` may say something else (for PhoneLLM it does).

Sources: transformers 5.24.0, ``models/nemotron_h/configuration_nemotron_h.py`` and
``modeling_nemotron_h.py``; vllm 0.27.1, ``model_executor/models/nemotron_h.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from helpers.nemotron_h import LETTERS, WORDS, Architecture, Attention, Mamba, Mlp, Moe, Mtp
from helpers.settings import CourseError

# The same field under an older name.
ALIASES = {
    "dtype": "torch_dtype",
    "head_dim": "attention_head_dim",
    "n_groups": "mamba_n_groups",
    "conv_kernel": "mamba_d_conv",
    "use_conv_bias": "mamba_conv_bias",
    "n_routed_experts": "num_local_experts",
    "layers_block_type": "layer_types",
}

# Known, and without a say in how many numbers the model has or keeps.
_HARMLESS = """
architectures attention_dropout auto_map bos_token_id chunk_size chunk_size_feed_forward eos_token_id
expand hidden_dropout id2label initializer_range intermediate_size is_encoder_decoder label2id
layer_norm_epsilon mamba_chunk_size mamba_hidden_act mlp_hidden_act model_type moe_shared_expert_overlap
norm_eps num_logits_to_keep output_attentions output_hidden_states output_router_logits pad_token_id
partial_rotary_factor problem_type quantization_config rescale_prenorm_residual residual_in_fp32
return_dict rms_norm_eps rope_theta time_step_floor time_step_limit time_step_max time_step_min
time_step_rank transformers_version use_cache use_mamba_kernels mtp_hybrid_override_pattern
mtp_layers_block_type
"""
HARMLESS = frozenset(_HARMLESS.split())

# Read below, and counted.
_USED = """
hidden_size vocab_size tie_word_embeddings max_position_embeddings hybrid_override_pattern
num_hidden_layers num_attention_heads num_key_value_heads mamba_num_heads mamba_head_dim ssm_state_size
use_bias mamba_proj_bias mamba_ssm_cache_dtype num_experts_per_tok n_shared_experts moe_intermediate_size
moe_shared_expert_intermediate_size moe_latent_size n_group topk_group norm_topk_prob
routed_scaling_factor mlp_bias num_nextn_predict_layers
"""
USED = frozenset(_USED.split())

LARGEST = 10**9  # no size in a config comes near it; above it arithmetic with floats would break down
MOST_LAYERS = 1_000
MOST_BYTES = 2**24  # a config has some kilobytes; a checkpoint given by mistake has gigabytes

# If on, the formulas of this course would not hold.
HAS_TO_BE_OFF = {
    "attention_bias": "transformers and vLLM build the attention of this family without biases",
    "sliding_window": "the KV cache is counted here for attention over the whole text",
}


def read(
    source: str | Path | Mapping[str, Any], *, name: str | None = None, ignore: Iterable[str] = ()
) -> Architecture:
    """Read a Nemotron-H config.

    Args:
        source: a ``config.json`` (or the folder it is in, or its text), or what is in it as a dictionary.
        name: label of the model; by default the file's own, or that of its folder.
        ignore: fields unknown here of which you know that they do not change the shape of the model.

    Raises:
        CourseError: it is no such config, or a field is missing, contradicts another or is unknown. The
            message names the field.
    """
    raw, found_name = _load(source)
    fields = _Fields(raw, name or found_name)
    family = raw.get("model_type")
    if family != "nemotron_h":
        raise CourseError(
            f"The config of {fields.name} has model_type {family!r}, and this reader knows nemotron_h only: "
            f"another family counts its weights in another way. "
            f"architecture.example('phonellm-alpha-1') gives a config that it can read."
        )
    fields.refuse_unknown(frozenset(ignore))
    layers = _layers(fields, "hybrid_override_pattern", "layers_block_type")
    if layers is None:
        raise CourseError(
            f"The config of {fields.name} has neither hybrid_override_pattern nor layers_block_type, so the "
            f"order of its layers is not known. Add the one that the model's own config.json has."
        )
    depth = raw.get("num_hidden_layers")
    if depth is not None and depth != len(layers):
        raise fields.contradiction(
            "num_hidden_layers", f"it is {depth!r}, and the list of layers has {len(layers)} entries"
        )
    mtp = _mtp(fields)
    kinds = {*layers, *(mtp.layers if mtp else ())}
    return Architecture(
        name=fields.name,
        hidden_size=fields.number("hidden_size"),
        vocab_size=fields.number("vocab_size"),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        max_position_embeddings=fields.number("max_position_embeddings"),
        dtype=fields.text("dtype"),
        layers=layers,
        attention=_attention(fields) if "attention" in kinds else None,
        mamba=_mamba(fields) if "mamba" in kinds else None,
        moe=_moe(fields) if "moe" in kinds else None,
        mlp=Mlp(fields.number("intermediate_size"), fields.flag("mlp_bias")) if "mlp" in kinds else None,
        mtp=mtp,
        raw=dict(raw),
    )


class _Fields:
    """The fields of one config, each read by name, with errors that say which one is wrong."""

    def __init__(self, raw: Mapping[str, Any], name: str) -> None:
        self.raw = raw
        self.name = name

    def number(self, field_name: str) -> int:
        value = self._value(field_name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            raise self._wrong(field_name, value, f"a whole number above 0, and at most {LARGEST:,}")
        return value

    def flag(self, field_name: str) -> bool:
        value = self._value(field_name)
        if not isinstance(value, bool):
            raise self._wrong(field_name, value, "true or false")
        return value

    def text(self, field_name: str) -> str:
        value = self._value(field_name)
        if not isinstance(value, str) or not value:
            raise self._wrong(field_name, value, "a word in quotes")
        return value

    def factor(self, field_name: str) -> float:
        value = self._value(field_name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(field_name, value, "a number")
        if not abs(value) <= LARGEST:  # nor NaN, which is no number although Python's JSON lets it through
            raise self._wrong(field_name, value, "a number that can be counted with")
        return float(value)

    def maybe(self, field_name: str) -> Any:
        """The value under either of its names; None if it is missing or null."""
        values = [
            self.raw[spelling]
            for spelling in (field_name, ALIASES.get(field_name))
            if spelling is not None and self.raw.get(spelling) is not None
        ]
        if len(values) == 2 and values[0] != values[1]:
            raise self.contradiction(
                field_name,
                f"it is {values[0]!r}, and {ALIASES[field_name]}, its older name, is {values[1]!r}",
            )
        return values[0] if values else None

    def contradiction(self, field_name: str, what: str) -> CourseError:
        return CourseError(
            f"The config of {self.name} contradicts itself at {field_name}: {what}. "
            f"Compare it with the model's own config.json, and correct the one that is wrong."
        )

    def refuse_unknown(self, ignore: frozenset[str]) -> None:
        known = HARMLESS | USED | set(ALIASES) | set(ALIASES.values()) | set(HAS_TO_BE_OFF) | ignore
        for field_name, value in self.raw.items():
            if field_name in HAS_TO_BE_OFF and value not in (None, False):
                raise CourseError(
                    f"The config of {self.name} has {field_name} = {value!r}, and this reader cannot count "
                    f"that: {HAS_TO_BE_OFF[field_name]}. Read a config without it."
                )
            if field_name not in known and value is not None and not field_name.startswith("_"):
                raise CourseError(
                    f"The config of {self.name} has a field {field_name!r} that this reader does not know. "
                    f"It may change the shape of the model. If you know that it does not: "
                    f'architecture.read(..., ignore=["{field_name}"]).'
                )

    def _value(self, field_name: str) -> Any:
        value = self.maybe(field_name)
        if value is None:
            older = f" (older: {ALIASES[field_name]!r})" if field_name in ALIASES else ""
            raise CourseError(
                f"The config of {self.name} has no field {field_name!r}{older}, and its layers cannot be "
                f"counted without it. transformers would quietly take a default there, and that belongs to "
                f"another model. Add the value that the model's own config.json has."
            )
        return value

    def _wrong(self, field_name: str, value: object, wanted: str) -> CourseError:
        return CourseError(
            f"The config of {self.name} has {field_name} = {_short(value)}, and that has to be {wanted}. "
            f"Put in the value that the model's own config.json has."
        )


def _load(source: str | Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, str(source.get("_name_or_path") or "this model")
    if not isinstance(source, str | Path):
        raise CourseError(
            f"A config cannot be read from a {type(source).__name__}. Give the path of a config.json, its "
            f"text, or a dictionary; architecture.examples() lists the ones that come with the course."
        )
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        text, name = source, "this model"
    else:
        text, name = _read_file(source)
    try:
        raw = json.loads(text.lstrip("\ufeff"), object_pairs_hook=_once)
    except _Twice as error:
        raise CourseError(
            f"The config of {name} has the field {error.args[0]!r} twice, with two values. Copy the file "
            f"again, or delete the wrong one."
        ) from error
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond all measure
        raise CourseError(
            f"The config of {name} is not valid JSON ({error}). Copy the file again, whole."
        ) from error
    if not isinstance(raw, dict):
        raise CourseError(
            f"The config of {name} is a {type(raw).__name__}, and a config is an object: {{...}}."
        )
    return raw, name


def _read_file(source: str | Path) -> tuple[str, str]:
    """A file's text, and the name to call its model by."""
    shown = str(source) if len(str(source)) <= 200 else f"{str(source)[:200]}…"
    if str(source).startswith(("http://", "https://")):
        raise CourseError(
            f"{shown} is an address in the web, and this reads files only. Save the config.json (lesson 02 "
            f"fetches one file of a repository) and give its path, or paste its text."
        )
    try:
        path = Path(source).expanduser()
        path = path / "config.json" if path.is_dir() else path
        shown = str(path)
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        if path.exists() and not path.is_file():
            raise OSError("not a file")
        if path.stat().st_size > MOST_BYTES:
            raise OSError(f"{path.stat().st_size:,} bytes are too many for a config")
        return path.read_text(encoding="utf-8-sig"), name
    except (OSError, ValueError, RuntimeError) as error:  # a name may be too long, or no name at all
        why = getattr(error, "strerror", None) or str(error)
        raise CourseError(
            f"{shown} could not be read ({why}). Give the path of a config.json, or its folder; "
            f"architecture.examples() lists the ones that come with the course."
        ) from error


class _Twice(ValueError):
    """A field that stands twice in one object, with two values."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose fields do not contradict each other; Python would quietly take the last."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:
            raise _Twice(name)
        found[name] = value
    return found


def _short(value: object) -> str:
    """A value for a message: a whole list would bury it."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python writes
        return "a number beyond all measure"
    return text if len(text) <= 80 else f"{text[:80]}…"


def _layers(fields: _Fields, pattern_field: str, list_field: str) -> tuple[str, ...] | None:
    """The layers, from either spelling or from both if they agree."""
    pattern, words = fields.maybe(pattern_field), fields.maybe(list_field)
    found = []
    for field_name, entries, kinds in ((pattern_field, pattern, LETTERS), (list_field, words, WORDS)):
        if entries is None:
            continue
        if not isinstance(entries, str if kinds is LETTERS else list) or not 0 < len(entries) <= MOST_LAYERS:
            raise CourseError(
                f"The config of {fields.name} has {field_name} = {_short(entries)}, and that has to be "
                f"{'a string of letters' if kinds is LETTERS else 'a list of words'}, one for each layer."
            )
        for place, entry in enumerate(entries):
            if not isinstance(entry, str) or entry not in kinds:
                raise CourseError(
                    f"The config of {fields.name} has {entry!r} in {field_name} at layer {place}. "
                    f"A layer is one of {', '.join(kinds)}. Correct that entry."
                )
        found.append(tuple(kinds[entry] for entry in entries))
    if len(found) == 2 and found[0] != found[1]:
        raise fields.contradiction(list_field, f"it gives other layers than {pattern_field}")
    return found[0] if found else None


def _mtp(fields: _Fields) -> Mtp | None:
    depth = fields.maybe("num_nextn_predict_layers")
    if depth is None or (depth == 0 and not isinstance(depth, bool)):
        return None
    layers = _layers(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if layers is None:
        raise CourseError(
            f"The config of {fields.name} has num_nextn_predict_layers = {depth!r}, but no "
            f"mtp_hybrid_override_pattern that says what those layers are. Add it."
        )
    return Mtp(fields.number("num_nextn_predict_layers"), layers)


def _attention(fields: _Fields) -> Attention:
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    attention = Attention(*(fields.number(name) for name in names))
    if attention.num_attention_heads % attention.num_key_value_heads:
        raise fields.contradiction(
            "num_key_value_heads",
            f"{attention.num_attention_heads} heads of queries cannot share "
            f"{attention.num_key_value_heads} heads of keys evenly",
        )
    return attention


def _mamba(fields: _Fields) -> Mamba:
    names = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel")
    sizes = [fields.number(name) for name in names]
    flags = [fields.flag("use_conv_bias"), fields.flag("use_bias")]
    mamba = Mamba(*sizes, *flags, fields.text("mamba_ssm_cache_dtype"))
    if mamba.mamba_num_heads % mamba.n_groups:
        raise fields.contradiction(
            "n_groups", f"{mamba.mamba_num_heads} Mamba heads do not divide into {mamba.n_groups} groups"
        )
    projection_bias = fields.maybe("mamba_proj_bias")
    if projection_bias is not None and projection_bias != mamba.use_bias:
        raise fields.contradiction(
            "mamba_proj_bias",
            f"it is {projection_bias!r}, and use_bias, which is what counts, {mamba.use_bias}",
        )
    return mamba


def _moe(fields: _Fields) -> Moe:
    latent = fields.maybe("moe_latent_size")
    moe = Moe(
        n_routed_experts=fields.number("n_routed_experts"),
        num_experts_per_tok=fields.number("num_experts_per_tok"),
        n_shared_experts=fields.number("n_shared_experts"),
        moe_intermediate_size=fields.number("moe_intermediate_size"),
        moe_shared_expert_intermediate_size=fields.number("moe_shared_expert_intermediate_size"),
        moe_latent_size=None if latent is None else fields.number("moe_latent_size"),
        n_group=fields.number("n_group"),
        topk_group=fields.number("topk_group"),
        norm_topk_prob=fields.flag("norm_topk_prob"),
        routed_scaling_factor=fields.factor("routed_scaling_factor"),
        mlp_bias=fields.flag("mlp_bias"),
    )
    if moe.n_shared_experts != 1:
        raise fields.contradiction(
            "n_shared_experts",
            f"it is {moe.n_shared_experts}; transformers builds one shared expert whatever it says, and vLLM "
            f"that many, so only 1 has one meaning",
        )
    if moe.n_routed_experts % moe.n_group:
        raise fields.contradiction(
            "n_group", f"{moe.n_routed_experts} experts do not divide into {moe.n_group} groups"
        )
    if moe.topk_group > moe.n_group:
        raise fields.contradiction("topk_group", f"it is {moe.topk_group}, of {moe.n_group} groups in all")
    if moe.num_experts_per_tok > moe.topk_group * moe.n_routed_experts // moe.n_group:
        raise fields.contradiction(
            "num_experts_per_tok", f"it is {moe.num_experts_per_tok}, more than there are to choose from"
        )
    return moe
