"""What a Nemotron-H config says about the shape of its model, as dataclasses.

The field names in :class:`Attention`, :class:`Mamba`, :class:`Moe` and :class:`Mlp` are those of
``config.json``. :mod:`helpers.config_reader` fills them in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
WORDS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "moe": "moe",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
}
LETTER_OF = {kind: letter for letter, kind in LETTERS.items()}


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention: ``num_attention_heads`` queries share ``num_key_value_heads`` keys and
    values."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int


@dataclass(frozen=True)
class Mamba:
    """A Mamba-2 layer. ``n_groups`` heads share one B and one C; ``mamba_ssm_cache_dtype`` is that of its
    state."""

    mamba_num_heads: int
    mamba_head_dim: int
    ssm_state_size: int
    n_groups: int
    conv_kernel: int
    use_conv_bias: bool
    use_bias: bool
    mamba_ssm_cache_dtype: str

    @property
    def inner_size(self) -> int:
        """Width inside the layer: heads times head size."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: the inner width, B and C."""
        return self.inner_size + 2 * self.n_groups * self.ssm_state_size

    @property
    def projection_size(self) -> int:
        """Outputs of ``in_proj``: the gate, the channels of the convolution, one time step for each head."""
        return self.inner_size + self.conv_channels + self.mamba_num_heads


@dataclass(frozen=True)
class Moe:
    """A mixture of experts without gates: each expert is an up and a down projection.

    With ``moe_latent_size`` the routed experts work on a narrower copy of the hidden state, and two
    projections of the layer lead there and back. ``n_group`` and ``topk_group`` limit the choice to groups of
    experts; with one group they do nothing.
    """

    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    moe_intermediate_size: int
    moe_shared_expert_intermediate_size: int
    moe_latent_size: int | None
    n_group: int
    topk_group: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    mlp_bias: bool


@dataclass(frozen=True)
class Mlp:
    """A dense MLP without a gate: up and down projection."""

    intermediate_size: int
    mlp_bias: bool


@dataclass(frozen=True)
class Mtp:
    """Multi-token prediction: ``num_nextn_predict_layers`` small stacks of ``layers`` behind the model.

    They guess further tokens for speculative decoding. transformers does not build them, so they are counted
    apart from the model.
    """

    num_nextn_predict_layers: int
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Architecture:
    """What a Nemotron-H config says about the shape of its model.

    Attributes:
        name: a label for tables.
        hidden_size: width of the hidden state.
        vocab_size: rows of the embedding table and of the output projection (``lm_head``).
        tie_word_embeddings: these two are one table.
        max_position_embeddings: the longest text, in tokens.
        dtype: type of the weights, such as ``bfloat16``.
        layers: the kind of each layer in order: ``mamba``, ``moe``, ``attention`` or ``mlp``.
        attention: shape of its attention layers; None if there are none. So for the next three.
        mamba: shape of its Mamba-2 layers.
        moe: shape of its mixtures of experts.
        mlp: shape of its dense MLPs.
        mtp: multi-token prediction, None without it.
        raw: the whole file, as it was read.
    """

    name: str
    hidden_size: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    dtype: str
    layers: tuple[str, ...]
    attention: Attention | None
    mamba: Mamba | None
    moe: Moe | None
    mlp: Mlp | None
    mtp: Mtp | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @property
    def pattern(self) -> str:
        """The layers as letters, as in ``hybrid_override_pattern``."""
        return "".join(LETTER_OF[kind] for kind in self.layers)
