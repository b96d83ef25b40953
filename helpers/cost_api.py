"""What an API model's tokens cost over a conversation, with and without prompt caching.

A chat API remembers nothing. Each request sends the whole conversation again, so turn 8 pays for the words of
turn 1 an eighth time: over a call of n turns the input grows with n squared. Prompt caching bills the part
that the provider has seen before at a lower price. That makes the square smaller; it does not take it away.

The calls are those of the course (:mod:`helpers.workload`), counted in tokens as the modelled GPU counts them
(:func:`helpers.capacity.asks`). So a price here and a price of the modelled GPU are of the same calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from helpers import capacity, prices, published
from helpers.arguments import number
from helpers.origins import validate
from helpers.settings import CourseError
from helpers.workload import Call, Workload, load

MILLION = 1_000_000
CALLS = 200  # of the workload, for a mean: its standard error is then below 2 %
KINDS = ("input", "cached-input", "cache-write", "output")
COLUMNS = ("call", "turn", "prompt_tokens", "known_tokens", "output_tokens")


@dataclass(frozen=True)
class TokenPrice:
    """Prices of one API model, in USD per million tokens.

    Attributes:
        name: of the model.
        input: of prompt tokens that are not in the provider's cache.
        cached_input: of those that are.
        cache_write: of tokens that are put there; the price of input where the provider asks nothing more.
        output: of answered tokens, thinking included.
        source, date: who says so, and when.
    """

    name: str
    input: float
    cached_input: float
    cache_write: float
    output: float
    source: str = "our assumption"
    date: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        for field in ("input", "cached_input", "cache_write", "output"):
            number(f"TokenPrice.{field}", getattr(self, field), least=0)


@dataclass(frozen=True)
class Caching:
    """How a provider's prompt cache works.

    Attributes:
        least_tokens: no shorter beginning is cached.
        step_tokens: what is found comes in whole steps of so many tokens.
        warm_system: the system prompt is there already when a call begins, from the calls before it. (From
            GPT-5.6 on OpenAI finds it only if its end was marked.)
        hits: share of the requests that find what could be found (another machine may take the request).
    """

    least_tokens: int = int(published.value("cost.cache_least"))
    step_tokens: int = int(published.value("cost.cache_step"))
    warm_system: bool = True
    hits: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        number("Caching.least_tokens", self.least_tokens, least=0)
        number("Caching.step_tokens", self.step_tokens, least=1)
        number("Caching.hits", self.hits, least=0, most=1)

    def found(self, known_tokens: int) -> float:
        """Tokens of a known beginning that are billed as cached, on average."""
        whole = known_tokens // self.step_tokens * self.step_tokens
        return self.hits * whole if known_tokens >= self.least_tokens else 0.0


EXACT = Caching(least_tokens=0, step_tokens=1)  # finds each known token: what the closed forms describe


def token_price(model: str) -> TokenPrice:
    """Prices of a model from the table, by the middle of their ids (``terra`` of ``llm.terra.input``).

    Raises:
        CourseError: a price is missing; the message lists the models there are.
    """
    known = prices.table()
    if f"llm.{model}.input" not in known.index:
        raise CourseError(f"There are no token prices of {model!r}. There are: {', '.join(models())}.")
    found = {kind: prices.value(f"llm.{model}.{kind}", prices.UNITS[f"llm-{kind}"]) for kind in KINDS}
    first = known.loc[f"llm.{model}.input"]
    return TokenPrice(
        name=first["item"],
        **{kind.replace("-", "_"): value for kind, value in found.items()},
        source=first["source"],
        date=first["date"],
    )


def models() -> list[str]:
    """Models with token prices in the table."""
    return [name.split(".")[1] for name in prices.table("llm-input").index]


def requests(workload: Workload | None = None, *, calls: int = CALLS, seed: int = 0) -> pd.DataFrame:
    """What the calls of a workload ask of a model, in tokens.

    Returns:
        One row a request: ``call``, ``turn``, ``prompt_tokens`` (the whole conversation so far),
        ``known_tokens`` (of these, from the beginning: what an earlier request of the call sent; in its first
        one the system prompt, which all calls send. The model's own last answer is not among them: it was
        made, not sent), ``output_tokens`` and ``origin`` (modelled: tokens by a rule of thumb).

    Raises:
        CourseError: fewer than one call is asked for.
    """
    calls = number("calls", calls, least=1, whole=True)
    workload = workload or load()
    rows = []
    for call in workload.calls(calls, seed=seed):
        sent = None
        for ask in capacity.asks(workload, call):
            known = ask.known_tokens if sent is None else sent
            rows.append((ask.call, ask.turn, ask.prompt_tokens, known, ask.output_tokens))
            sent = ask.prompt_tokens
    return validate(pd.DataFrame(rows, columns=list(COLUMNS)).assign(origin="modelled"))


def call_minutes(workload: Workload | None = None, *, calls: int = CALLS, seed: int = 0) -> float:
    """How long a call of the workload takes on average, in minutes: speaking, listening, thinking, tools, and
    the wait for each first token (the published P50 of PhoneLLM)."""
    workload, calls = workload or load(), number("calls", calls, least=1, whole=True)
    return sum(_seconds(workload, call) for call in workload.calls(calls, seed=seed)) / calls / 60


def _seconds(workload: Workload, call: Call) -> float:
    wait_s = published.value("chart.ttfat_p50") / 1000
    total = 0.0
    for turn in call.turns:
        words = turn.max_tokens / capacity.TOKENS_PER_WORD
        listen_s = 60 * words / workload.value("agent_words_per_minute")
        total += turn.think_s + turn.speak_s + turn.tool_s + listen_s + wait_s * (1 + turn.calls_tool)
    return total


def priced(
    frame: pd.DataFrame, price: TokenPrice, caching: Caching | None = None, *, thinking_tokens: float = 0
) -> pd.DataFrame:
    """Each request with what it costs.

    Args:
        frame: requests, see :func:`requests`.
        price: of the model.
        caching: how its cache works; None: without a cache, all of the prompt at the price of input.
        thinking_tokens: tokens of thinking before each answer, billed as output and not sent again.

    Returns:
        The requests with ``cached_tokens``, ``input_usd``, ``output_usd`` and ``usd``; modelled.

    Raises:
        CourseError: a column is missing, or a number makes no sense.
    """
    validate(frame, numeric=COLUMNS[1:], used_by="cost_api.requests")
    number("thinking_tokens", thinking_tokens, least=0)
    priced_frame = frame.copy()
    if caching is None:
        cached, fresh_price = 0.0 * frame["known_tokens"], price.input
    else:
        known = frame["known_tokens"].where(frame["call"].duplicated() | caching.warm_system, 0)
        cached, fresh_price = known.map(caching.found).astype(float), price.cache_write
    fresh = frame["prompt_tokens"] - cached
    priced_frame["cached_tokens"] = cached
    priced_frame["input_usd"] = (cached * price.cached_input + fresh * fresh_price) / MILLION
    priced_frame["output_usd"] = (frame["output_tokens"] + thinking_tokens) * price.output / MILLION
    priced_frame["usd"] = priced_frame["input_usd"] + priced_frame["output_usd"]
    return priced_frame.assign(origin="modelled")


def usd_per_minute(
    price: TokenPrice,
    caching: Caching | None = None,
    workload: Workload | None = None,
    *,
    thinking_tokens: float = 0,
) -> float:
    """USD for the model in one minute of a call, on average over the workload's calls.

    Args:
        price, caching, thinking_tokens: see :func:`priced`.
        workload: the kind of call; the support call by default.
    """
    asked = requests(workload)
    total = priced(asked, price, caching, thinking_tokens=thinking_tokens)["usd"].sum()
    return float(total / asked["call"].nunique() / call_minutes(workload))


# A conversation in round numbers: each turn adds the same. Good for seeing what grows, and how.


def even_calls(system_tokens: int, caller_tokens: int, answer_tokens: int, turns: int) -> pd.DataFrame:
    """The requests of a call whose turns are all alike, in the columns of :func:`requests`.

    Turn k sends the system prompt, k remarks of the caller and k - 1 answers.

    Raises:
        CourseError: a number of tokens is below 0, or there is no turn.
    """
    _checked_even(system_tokens, caller_tokens, answer_tokens, turns)
    added = caller_tokens + answer_tokens
    rows = [
        (
            "even",
            turn,
            system_tokens + turn * added + caller_tokens,
            system_tokens + (turn * added - answer_tokens if turn else 0),
            answer_tokens,
        )
        for turn in range(turns)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).assign(origin="modelled")


def _checked_even(system_tokens: float, caller_tokens: float, answer_tokens: float, turns: int) -> None:
    number("system_tokens", system_tokens, least=0)
    number("caller_tokens", caller_tokens, least=0)
    number("answer_tokens", answer_tokens, least=0)
    number("turns", turns, least=1, whole=True, example="8")


def input_tokens(system_tokens: int, caller_tokens: int, answer_tokens: int, turns: int) -> float:
    """Prompt tokens of all requests of an even call together, in one formula:
    n S + u n (n + 1) / 2 + a n (n - 1) / 2 for n turns, a system prompt of S, remarks of u, answers of a.

    Raises:
        CourseError: a number of tokens is below 0, or there is no turn.
    """
    _checked_even(system_tokens, caller_tokens, answer_tokens, turns)
    n = turns
    return n * system_tokens + caller_tokens * n * (n + 1) / 2 + answer_tokens * n * (n - 1) / 2


def call_usd(
    price: TokenPrice,
    system_tokens: int,
    caller_tokens: int,
    answer_tokens: int,
    turns: int,
    *,
    cached: bool = False,
) -> float:
    """USD of an even call in closed form; with ``cached`` under the cache of :data:`EXACT`.

    With that cache each turn writes the caller's new remark and the answer before it: the rest was sent
    already. So n u + (n - 1) a tokens are written, and all others are read at the cached price; those still
    grow with n squared.
    """
    total = input_tokens(system_tokens, caller_tokens, answer_tokens, turns)
    output_usd = turns * answer_tokens * price.output
    if not cached:
        return (total * price.input + output_usd) / MILLION
    written = turns * caller_tokens + (turns - 1) * answer_tokens
    return ((total - written) * price.cached_input + written * price.cache_write + output_usd) / MILLION


def compare(workload: Workload | None = None, *, caching: Caching | None = None) -> pd.DataFrame:
    """A minute of the workload's calls at each API model with known prices.

    Returns:
        One row a model: ``model``, ``uncached`` and ``cached`` (USD per minute of a call), ``saved`` (share
        that caching saves), ``source`` and ``date`` of the prices, and ``origin`` (modelled).
    """
    caching = caching or Caching()
    asked, minutes = requests(workload), call_minutes(workload)
    per = asked["call"].nunique() * minutes
    rows = []
    for name in models():
        price = token_price(name)
        plain, less = (float(priced(asked, price, how)["usd"].sum() / per) for how in (None, caching))
        rows.append(
            {
                "model": price.name,
                "uncached": plain,
                "cached": less,
                "saved": 1 - less / plain,
                "source": price.source,
                "date": price.date,
            }
        )
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="cost_api.compare")
