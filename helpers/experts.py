"""Which experts a batch of tokens wakes, and what that costs in memory traffic.

One token uses 6 of the 128 experts of a layer. Several tokens in one step use more of them together, because
each chooses its own: the bytes that a step has to read grow with the batch, until every expert is read
anyway.

:func:`expected_distinct` is the formula, for tokens that choose independently and experts that are chosen
equally often. :func:`simulate` is the router itself with random weights, to see what happens when neither
holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import overload

import numpy as np
import pandas as pd

from helpers import hardware, memory, parameters
from helpers.nemotron_h import Architecture
from helpers.origins import validate
from helpers.settings import CourseError

# Enough for the load of the busiest expert to come down to about that of the others.
BALANCING_ROUNDS = 150
BALANCING_TOKENS = 1024
FIRST_STEP = 0.05
STEP_SHRINKS = 0.97


@overload
def expected_distinct(batch: float, *, experts: int = 128, per_token: int = 6) -> float: ...
@overload
def expected_distinct(batch: Iterable[float], *, experts: int = 128, per_token: int = 6) -> np.ndarray: ...
def expected_distinct(
    batch: float | Iterable[float], *, experts: int = 128, per_token: int = 6
) -> float | np.ndarray:
    """How many different experts of one layer a batch uses, on average.

    A token leaves a given expert out with the chance ``1 - per_token / experts``. That all tokens of the
    batch leave it out has the chance of that to the power of ``batch``; the other experts are used::

        experts * (1 - (1 - per_token / experts) ** batch)

    Args:
        batch: tokens in one step, or several such numbers.
        experts: experts of the layer.
        per_token: how many of them one token uses.

    Raises:
        CourseError: there are fewer experts than one token uses, or a negative batch.
    """
    _check_choice(experts, per_token)
    tokens = np.asarray(list(batch) if isinstance(batch, Iterable) else batch, dtype=float)
    if not (tokens >= 0).all():  # so written, NaN is refused too
        raise CourseError("A batch cannot have fewer than 0 tokens.")
    distinct = experts * (1 - (1 - per_token / experts) ** tokens)
    return distinct if distinct.ndim else float(distinct)


def simulate(
    batch: int | Iterable[int],
    *,
    trials: int = 100,
    seed: int = 0,
    skew: float = 0.0,
    similarity: float = 0.0,
    balanced: bool = False,
    experts: int = 128,
    per_token: int = 6,
    hidden_size: int = 256,
) -> pd.DataFrame:
    """A router with random weights chooses experts for random tokens; count the different ones.

    The shape is that of the model's: the hidden state times the router's weights, a sigmoid, a correction for
    each expert added for the choice only, the highest ``per_token`` win. The weights are random, since the
    real ones are in a download of 63 GB; so ``skew`` and ``similarity`` are assumptions, to see what they
    would do.

    Args:
        batch: tokens in one step, or several such numbers.
        trials: how often; each with a router and tokens of its own.
        seed: the same seed gives the same table.
        skew: how much more popular some experts are: the spread of a constant added to each expert's logit,
            in units of the logits' own spread between tokens. 0: all alike.
        similarity: correlation of the tokens with each other, from 0 (independent) to 1 (all the same).
        balanced: fit the correction first, as training does: an expert that is chosen too often loses a
            little, until all are chosen about equally often.
        experts: experts of the layer.
        per_token: how many of them one token uses.
        hidden_size: width of the random hidden state. It changes nothing but the time.

    Returns:
        A frame with one row for each batch and trial: ``batch``, ``trial``, ``distinct`` (different experts),
        ``busiest`` (the largest share of the batch that one expert got), ``expected`` (the formula),
        ``skew``, ``similarity``, ``balanced`` and ``origin`` (modelled).

    Raises:
        CourseError: an argument makes no sense.
    """
    _check_choice(experts, per_token)
    batches = list(batch) if isinstance(batch, Iterable) else [batch]
    if trials < 1 or skew < 0 or not 0 <= similarity <= 1 or min(batches, default=0) < 1:
        raise CourseError(
            f"batch ({batch!r}) and trials ({trials!r}) have to be 1 or more, skew ({skew!r}) 0 or more, and "
            f"similarity ({similarity!r}) from 0 to 1."
        )
    random = np.random.default_rng(seed)
    rows = []
    for trial in range(trials):
        router = _Router(random, experts, per_token, hidden_size, skew)
        if balanced:
            router.balance()
        for tokens in batches:
            chosen = router.choose(router.tokens(tokens, similarity))
            load = np.bincount(chosen.ravel(), minlength=experts)
            rows.append(
                {
                    "batch": tokens,
                    "trial": trial,
                    "distinct": int((load > 0).sum()),
                    "busiest": load.max() / tokens,
                    "expected": expected_distinct(tokens, experts=experts, per_token=per_token),
                }
            )
    frame = pd.DataFrame(rows).assign(skew=skew, similarity=similarity, balanced=balanced, origin="modelled")
    return validate(frame, used_by="experts.simulate")


@overload
def bytes_per_step(
    arch: Architecture, batch: float, bytes_per_weight: float = 2, *, tokens: float | None = None
) -> float: ...
@overload
def bytes_per_step(
    arch: Architecture, batch: Iterable[float], bytes_per_weight: float = 2, *, tokens: float | None = None
) -> pd.DataFrame: ...
def bytes_per_step(
    arch: Architecture,
    batch: float | Iterable[float],
    bytes_per_weight: float = 2,
    *,
    tokens: float | None = None,
) -> float | pd.DataFrame:
    """Bytes that one step of decoding moves, in which each request of the batch gets one more token.

    Weights that every step reads: all but the routed experts, and of the embedding one row for each token.
    Then the experts that the batch is expected to use, in each layer that has some.

    Args:
        arch: the model.
        batch: requests in the step, or several such numbers.
        bytes_per_weight: 2 for BF16, 1 for FP8. (A format that keeps some tensors wider needs a mean here:
            ``memory.weight_bytes(arch, fmt) / parameters.total(arch)``.)
        tokens: length of each request, to add its KV cache, which is read, and its Mamba state, which is read
            and written. None: weights only.

    Returns:
        For one batch the bytes. For several a frame with the columns ``batch``, ``distinct_experts`` (of a
        layer), ``always_bytes``, ``expert_bytes``, ``request_bytes``, ``total_bytes``, ``total_gb`` and
        ``origin`` (modelled).

    Raises:
        CourseError: a batch is negative, or the bytes of a weight are not above 0.
    """
    if not 0 < bytes_per_weight < math.inf:
        raise CourseError(f"bytes_per_weight is {bytes_per_weight!r}. It has to be above 0, as 2 for BF16.")
    several = isinstance(batch, Iterable)
    frame = pd.DataFrame({"batch": list(batch) if several else [batch]})
    sizes = frame["batch"].to_numpy(dtype=float)
    routed_layers = arch.layers.count("moe")
    if arch.moe is None:
        frame["distinct_experts"] = 0.0
    else:
        choice = {"experts": arch.moe.n_routed_experts, "per_token": arch.moe.num_experts_per_tok}
        frame["distinct_experts"] = expected_distinct(sizes, **choice)
    expert = parameters.routed_expert(arch)
    chosen = arch.moe.num_experts_per_tok * expert * routed_layers if arch.moe else 0
    table = arch.vocab_size * arch.hidden_size  # read as lm_head; as embedding one row for each token
    always = parameters.active(arch, embedding=False, lm_head=False) - chosen + table
    frame["always_bytes"] = (always + sizes * arch.hidden_size) * bytes_per_weight
    frame["expert_bytes"] = frame["distinct_experts"] * expert * routed_layers * bytes_per_weight
    state = 0.0
    if tokens is not None:
        state = tokens * memory.kv_bytes_per_token(arch) + 2 * memory.mamba_state_bytes(arch)
    frame["request_bytes"] = sizes * state
    frame["total_bytes"] = frame["always_bytes"] + frame["expert_bytes"] + frame["request_bytes"]
    frame["total_gb"] = frame["total_bytes"] / 1e9
    frame = validate(frame.assign(origin="modelled"), used_by="experts.bytes_per_step")
    return frame if several else float(frame["total_bytes"].iloc[0])


def floor_ms(
    arch: Architecture,
    batch: Iterable[float],
    gpus: pd.DataFrame | None = None,
    bytes_per_weight: float = 2,
    *,
    tokens: float | None = None,
) -> pd.DataFrame:
    """The least time a step can take: its bytes divided by the GPU's nominal bandwidth.

    Arithmetic, launches and the gap between a nominal and a real bandwidth come on top; no server is this
    fast.

    Args:
        arch: the model.
        batch: requests in the step.
        gpus: as :func:`helpers.hardware.table`, which is the default.
        bytes_per_weight: as in :func:`bytes_per_step`; so ``tokens``.
        tokens: length of each request.

    Returns:
        A frame with the columns ``gpu``, ``batch``, ``total_gb``, ``floor_ms``, ``tokens_per_s`` (of one
        request, at most) and ``origin`` (modelled).
    """
    gpus = hardware.table() if gpus is None else gpus
    steps = bytes_per_step(arch, list(batch), bytes_per_weight, tokens=tokens)
    parts = []
    for gpu, bandwidth in gpus["bandwidth_tb_s"].items():
        part = steps[["batch", "total_gb"]].copy()
        part.insert(0, "gpu", gpu)
        part["floor_ms"] = part["total_gb"] / bandwidth  # GB over TB/s is ms
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True)
    frame["tokens_per_s"] = 1000 / frame["floor_ms"]
    return validate(frame.assign(origin="modelled"), used_by="experts.floor_ms")


class _Router:
    """One random router: weights, popularity of its experts, correction."""

    def __init__(
        self, random: np.random.Generator, experts: int, per_token: int, hidden_size: int, skew: float
    ) -> None:
        self.random = random
        self.per_token = per_token
        # Rows of length 1, so that logits of a token with unit variance spread by 1 for every expert.
        weights = random.standard_normal((hidden_size, experts))
        self.weights = weights / np.linalg.norm(weights, axis=0)
        self.popularity = skew * random.standard_normal(experts)
        self.correction = np.zeros(experts)

    def tokens(self, count: int, similarity: float) -> np.ndarray:
        """Hidden states: a common part and one of each token's own, mixed to the wanted correlation."""
        width = self.weights.shape[0]
        common = self.random.standard_normal(width)
        own = self.random.standard_normal((count, width))
        return np.sqrt(similarity) * common + np.sqrt(1 - similarity) * own

    def choose(self, tokens: np.ndarray) -> np.ndarray:
        """The chosen experts, one row for each token."""
        return self._highest(tokens @ self.weights + self.popularity)

    def _highest(self, logits: np.ndarray) -> np.ndarray:
        scores = 1 / (1 + np.exp(-logits)) + self.correction
        return np.argpartition(-scores, self.per_token - 1, axis=1)[:, : self.per_token]

    def balance(self) -> None:
        """Move the correction against the load, in steps that become smaller.

        Source of the rule: DeepSeek-V3's balancing without an auxiliary loss, whose kind of router this is.
        """
        experts = self.correction.size
        logits = self.tokens(BALANCING_TOKENS, 0.0) @ self.weights + self.popularity
        fair = BALANCING_TOKENS * self.per_token / experts
        step = FIRST_STEP
        for _ in range(BALANCING_ROUNDS):
            load = np.bincount(self._highest(logits).ravel(), minlength=experts)
            self.correction += step * np.sign(fair - load)
            step *= STEP_SHRINKS


def _check_choice(experts: int, per_token: int) -> None:
    if not 1 <= per_token <= experts:
        raise CourseError(f"A token cannot use {per_token} of {experts} experts.")
