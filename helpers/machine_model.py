"""How long one step of a server takes on a GPU that nobody here has: a model small enough to argue with.

A step reads weights and does arithmetic, whichever takes longer, and each layer has a fixed cost on top::

    step = max(bytes / bandwidth, arithmetic / speed) + layers * layer_ms

The bytes are those of :mod:`helpers.experts`: all weights that every token uses, the experts that this many
tokens wake, and for each running request its KV cache and its Mamba state. Arithmetic is two operations for
each active weight and token; that of attention over earlier tokens is left out (a few per cent at the lengths
of a phone call). Every constant is in :data:`PARAMETERS` with its reason: change one and look what moves.

What it does not know: kernels, the network, sampling, a tokenizer that is short of cores. So it is compared
with what others published (:mod:`helpers.calibration`) and corrected by one factor for each GPU and format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

import pandas as pd

from helpers import hardware, memory, parameters
from helpers.architecture import phonellm
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.scheduler import Limits
from helpers.settings import CourseError

# name -> value, unit, reason, source ("our assumption" or who), date
PARAMETERS: dict[str, tuple[float, str, str, str, str]] = {
    "bandwidth_share": (
        0.75,
        "of nominal",
        "what kernels get of a memory's nominal bandwidth; single large copies get more, small tensors less",
        "our assumption",
        "2026-12",
    ),
    "compute_share": (
        0.4,
        "of nominal",
        "a B200 reaches 77.6 % of nominal in large BF16 products; experts see a small part of the batch "
        "each, so about half of that",
        "stas00/ml-engineering, compute/accelerator/README.md (77.6 %), and our assumption (half)",
        "2026-08-22",
    ),
    "layer_ms": (
        0.025,
        "ms",
        "a layer is several small kernels one after the other, whatever the batch: what is left of a B200's "
        "step for one request after the bytes, by layers",
        "aiconfigurator 0.12.0, step of 2.3 ms at batch 1, run by us",
        "2026-12",
    ),
    "link_ms": (
        0.01,
        "ms",
        "with several GPUs each layer ends with an exchange between them",
        "our assumption",
        "2026-12",
    ),
    "first_layer_ms": (
        0.8,
        "ms",
        "the CPU hands out the kernels of a prompt layer by layer; once for each request, beside the GPU",
        "the constant of aiconfigurator 0.12.0, fitted there to measurements",
        "2026-12",
    ),
    "server_ms": (
        10.0,
        "ms",
        "HTTP, chat template, tokenizer and the way between the processes of the server, for each request",
        "our assumption",
        "2026-12",
    ),
}

RATES = {"BF16": "bf16_tflops", "FP8": "fp8_tflops", "NVFP4": "fp4_tflops"}
CACHE_UNIT = 16  # vLLM rounds the block of a hybrid model's cache up to a multiple of this


def parameter_table(changed: dict[str, float] | None = None) -> pd.DataFrame:
    """The model's constants: ``parameter``, ``value``, ``unit``, ``reason``, ``source``, ``date``,
    ``origin`` (modelled: a constant of a model, whoever says it)."""
    rows = [
        {"parameter": name, "value": value, "unit": unit, "reason": reason, "source": source, "date": date}
        for name, (value, unit, reason, source, date) in PARAMETERS.items()
    ]
    frame = pd.DataFrame(rows)
    frame["value"] = [(changed or {}).get(row.parameter, row.value) for row in frame.itertuples()]
    return validate(frame.assign(origin="modelled"), used_by="machine_model.parameter_table")


@dataclass(frozen=True)
class Machine:
    """One or more GPUs with a model on them. Made by :func:`machine`.

    Attributes:
        gpu: label of the GPU.
        fmt: format of the weights, one of :data:`helpers.memory.FORMATS`.
        gpus: how many share the model (tensor parallel).
        bandwidth_tb_s: nominal, of one.
        tflops: nominal and dense, of one, by format of the weights; NaN: unknown, arithmetic is left out.
        memory_gib: of one, as its driver reports it.
        factor: every time is multiplied by this: the correction of :mod:`helpers.calibration`.
        constants: the values of :data:`PARAMETERS`.
        arch: the model on it.
    """

    gpu: str
    fmt: str
    gpus: int
    bandwidth_tb_s: float
    tflops: MappingProxyType[str, float]
    memory_gib: float
    factor: float = 1.0
    constants: MappingProxyType[str, float] = field(
        default_factory=lambda: MappingProxyType({name: row[0] for name, row in PARAMETERS.items()})
    )
    arch: Architecture = field(default_factory=phonellm, repr=False)
    _weights: _Weights = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look the weights up once."""
        object.__setattr__(self, "_weights", _weights(self.arch, self.fmt))  # a step asks for it each time

    def slower(self, factor: float) -> Machine:
        """The same machine, every time multiplied by ``factor``.

        Raises:
            CourseError: the factor is not above 0.
        """
        if not (factor > 0 and math.isfinite(factor)):
            raise CourseError(f"A factor of {factor!r} is no correction. Give a number above 0, such as 1.5.")
        return replace(self, factor=self.factor * factor)

    def step_ms(self, decodes: int, prompt_tokens: int = 0, context_tokens: float = 0.0) -> float:
        """How long one step takes, in ms.

        Args:
            decodes: running requests that get one token each.
            prompt_tokens: tokens of prompts that are read in the same step.
            context_tokens: tokens that the running requests hold together.
        """
        weights = self._weights
        tokens = decodes + prompt_tokens
        if tokens == 0:
            return 0.0
        share = 1 - weights.left_out**tokens  # experts.expected_distinct, without its tables: called often
        of_requests = context_tokens * weights.kv_bytes + (decodes + (prompt_tokens > 0)) * 2 * weights.state
        read = weights.always_bytes + share * weights.routed_bytes + of_requests
        speed = self.gpus * self.bandwidth_tb_s * self.constants["bandwidth_share"]  # TB/s = GB/ms
        memory_ms = read / 1e9 / speed
        compute_ms = self._compute_ms(weights, tokens, decodes + min(prompt_tokens, 1))
        per_layer = self.constants["layer_ms"] + (self.constants["link_ms"] if self.gpus > 1 else 0.0)
        return self.factor * (max(memory_ms, compute_ms) + len(self.arch.layers) * per_layer)

    def _compute_ms(self, weights: _Weights, tokens: int, answers: int) -> float:
        total = 0.0
        for stored, each_token, each_answer in weights.work:
            rate = self.tflops.get(stored, math.nan)
            if math.isnan(rate):
                rate = self.tflops.get("BF16", math.nan)
            if not math.isnan(rate):
                operations = 2 * (tokens * each_token + answers * each_answer)
                total += operations / 1e9 / (self.gpus * rate * self.constants["compute_share"])
        return total

    @property
    def delay_ms(self) -> float:
        """What each request waits beside its steps: the server's own work and the CPU's for its prompt."""
        return self.factor * (
            self.constants["server_ms"] + len(self.arch.layers) * self.constants["first_layer_ms"]
        )

    def limits(
        self,
        *,
        max_num_seqs: int = 128,
        max_num_batched_tokens: int = 8192,
        cache: int | float | None = None,
    ) -> Limits:
        """What an engine on this machine is started with.

        Args:
            max_num_seqs: requests that run at once.
            max_num_batched_tokens: tokens of a step.
            cache: block of the prefix cache in tokens (an int), or the share of the known tokens that hits
                (a float from 0 to 1); None: the Mamba-aligned block of this model, see
                :func:`mamba_block`; 0: no cache.

        Raises:
            CourseError: the weights do not fit.
        """
        room_gib = (
            self.gpus * (self.memory_gib * memory.GPU_MEMORY_UTILIZATION - memory.OVERHEAD_GIB)
            - memory.weight_bytes(self.arch, self.fmt) / memory.GIB
        )
        if room_gib <= 0:
            raise CourseError(
                f"{self.arch.name} in {self.fmt} does not fit on {self.gpus} x {self.gpu}: "
                f"{-room_gib:.1f} GiB are missing. Take a smaller format or a larger GPU."
            )
        block, share = (mamba_block(self.arch) if cache is None else None), None
        if isinstance(cache, float):
            share = cache
        elif cache:
            block = int(cache)
        per_token = memory.kv_bytes_per_token(self.arch)
        return Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            room_tokens=room_gib * memory.GIB / per_token,
            request_tokens=memory.mamba_state_bytes(self.arch) / per_token,
            delay_ms=self.delay_ms,
            cache_block=block,
            cache_share=share,
        )


def machine(
    gpu: str | pd.DataFrame = "B200",
    fmt: str = "BF16",
    *,
    gpus: int = 1,
    arch: Architecture | None = None,
    **constants: float,
) -> Machine:
    """A GPU of the table, or one of your own, with a model on it.

    Args:
        gpu: a label of :func:`helpers.hardware.table`, or a table with one row
            (:func:`helpers.hardware.own`).
        fmt: format of the weights, one of :data:`helpers.memory.FORMATS`.
        gpus: how many share the model.
        arch: the model; PhoneLLM if left out.
        **constants: other values for :data:`PARAMETERS`, by name.

    Raises:
        CourseError: no such GPU, format or constant.
    """
    table = hardware.table() if isinstance(gpu, str) else gpu
    label = gpu if isinstance(gpu, str) else str(gpu.index[0])
    if label not in table.index:
        raise CourseError(f"There is no GPU {label!r} in data/gpus.csv. It has {', '.join(table.index)}.")
    if fmt not in memory.FORMATS:
        raise CourseError(f"{fmt!r} is no format known here. Take one of {', '.join(memory.FORMATS)}.")
    unknown = sorted(set(constants) - set(PARAMETERS))
    if unknown or gpus < 1:
        raise CourseError(
            f"gpus is {gpus}, which has to be 1 or more; and the constants are {', '.join(PARAMETERS)}"
            + (f", not {', '.join(unknown)}." if unknown else ".")
        )
    row = table.loc[label]
    values = {name: constants.get(name, known[0]) for name, known in PARAMETERS.items()}
    return Machine(
        gpu=label,
        fmt=fmt,
        gpus=gpus,
        bandwidth_tb_s=float(row["bandwidth_tb_s"]),
        tflops=MappingProxyType({form: float(row[column]) for form, column in RATES.items()}),
        memory_gib=float(row["memory_gib"]),
        constants=MappingProxyType(values),
        arch=arch or phonellm(),
    )


def mamba_block(arch: Architecture, *, state_dtype: str | None = None) -> int:
    """Tokens in a block of the prefix cache when Mamba states are kept at block boundaries (vLLM's mode
    ``align``): so many that the KV cache of a block, in one attention layer, is no smaller than the state of
    a Mamba layer, rounded up to a multiple of 16.

    PhoneLLM in float32 comes to 2,096, which is what vLLM reports for a model of its family
    (``vllm.mamba_block`` in ``data/published.csv``). 16 without Mamba or attention layers.
    """
    mamba, attention = arch.layers.count("mamba"), arch.layers.count("attention")
    if not mamba or not attention:
        return CACHE_UNIT
    state = memory.mamba_state_bytes(arch, state_dtype=state_dtype) / mamba
    token = memory.kv_bytes_per_token(arch) / attention
    return math.ceil(state / token / CACHE_UNIT) * CACHE_UNIT


@dataclass(frozen=True)
class _Weights:
    """What a step needs to know of a model in a format.

    ``left_out``: chance that a token leaves a given expert out. ``work``: for each stored format the weights
    that work on each token, and on each answer token only.
    """

    always_bytes: float
    routed_bytes: float
    kv_bytes: float
    state: float
    left_out: float
    work: tuple[tuple[str, float, float], ...]


@lru_cache(maxsize=16)
def _weights(arch: Architecture, fmt: str) -> _Weights:
    table = memory.weight_table(arch, fmt)
    routed = (table["block"] == "moe") & table["tensor"].isin(parameters.ROUTED)
    looked_up = (table["block"] == "embedding") & (not arch.tie_word_embeddings)
    experts, chosen = (arch.moe.n_routed_experts, arch.moe.num_experts_per_tok) if arch.moe else (1, 1)
    head = table["block"].isin(("lm_head", "embedding")) & ~looked_up
    weight = table["total"] * (routed * (chosen / experts) + (~routed & ~looked_up))
    work = []
    for stored in table["stored"].unique():
        of_it = table["stored"] == stored
        work.append((stored, float(weight[of_it & ~head].sum()), float(weight[of_it & head].sum())))
    return _Weights(
        always_bytes=float(table["bytes"][~routed & ~looked_up].sum()),
        routed_bytes=float(table["bytes"][routed].sum()),
        kv_bytes=float(memory.kv_bytes_per_token(arch)),
        state=float(memory.mamba_state_bytes(arch)),
        left_out=1 - chosen / experts,
        work=tuple(work),
    )
