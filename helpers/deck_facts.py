"""The numbers that slides name, each with who says so: ``{{card.limit}}`` in a deck is a row here.

Every row of ``data/published.csv`` has its id as a name. What has to be computed first (from a recorded run,
the model's config, the budget, the price) is in :data:`COMPUTED`, a name and a function each.
:mod:`helpers.deck_blocks` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from helpers import (
    architecture,
    b200,
    budget,
    cost,
    gallery,
    limits,
    memory,
    phonebench,
    prices,
    published,
    recorded,
    stats,
    tables,
)
from helpers.architecture import Architecture
from helpers.exhibits_03 import FITS_TOKENS
from helpers.run_file import load_conditions
from helpers.settings import CourseError

CONFIG = "counted by us from the config.json of the base model, from public copies"
TODAY = "2026-12"  # when what we computed ourselves was computed
OURS = "our arithmetic"
MODEL = "our model of a B200 (helpers/b200.py)"
REPLIES = "05_measure_ttft"  # the run of the two replies
TURNS = 20  # of the call in the example; a round number of ours
CHOSEN = 0.95  # the percentile of the talk, and the confidence of its intervals


@dataclass(frozen=True)
class Fact:
    """One number as a slide shows it.

    Attributes:
        number: as it is written, such as ``1500`` or ``0.0025``.
        unit: such as ``ms``; empty for a sentence, ``USD`` for dollars.
        origin: see :mod:`helpers.origins`.
        source: who says so.
        date: when.
    """

    number: str
    unit: str
    origin: str
    source: str
    date: str

    def words(self, form: str = "") -> str:
        """The number with its unit; ``bare`` leaves the unit out, ``source`` is who said it and when.

        Raises:
            CourseError: there is no such form.
        """
        if form == "bare":
            return self.number
        if form == "source":
            return self.said_by
        if form:
            raise CourseError(f"there is no form {form!r}. It may be bare or source.")
        return f"${self.number}" if self.unit.startswith("USD") else f"{self.number} {self.unit}".strip()

    @property
    def said_by(self) -> str:
        """Source and date, as one phrase."""
        return ", ".join(filter(None, (self.source, self.date)))


def fact(name: str) -> Fact:
    """The number of this name.

    Raises:
        CourseError: there is none; the message lists those that are near.
    """
    if name in COMPUTED:
        return COMPUTED[name]()
    known = published.table()
    if name in known.index:
        return _row(known.loc[name])
    names = [*COMPUTED, *known.index]
    near = [one for one in names if one.split(".")[0] == name.split(".")[0]]
    raise CourseError(f"there is no number of that name. There are: {', '.join(near or names)}.")


def number(value: float, digits: int | None = None) -> str:
    """A number as slides write it: thousands apart from 10,000 on; ``digits`` behind the point, else as many
    as it has."""
    apart = "," if abs(value) >= 10_000 else ""
    if digits is None and float(value).is_integer():
        digits = 0
    if digits is not None:
        return f"{value:{apart}.{digits}f}"
    return f"{value:{apart}.10f}".rstrip("0").rstrip(".")


def _row(row: pd.Series, column: str = "value", unit: str | None = None, about: bool = False) -> Fact:
    """A row of a table of figures as a fact."""
    said = ("about " if about else "") + number(row[column])
    return Fact(said, row["unit"] if unit is None else unit, row["origin"], row["source"], row["date"])


def _ours(value: float, unit: str, source: str = OURS, digits: int | None = 0) -> Fact:
    """What we computed."""
    return Fact(number(value, digits), unit, "modelled", source, TODAY)


def _bench(model: str, column: str, unit: str) -> Fact:
    row = phonebench.table().set_index("model").loc[model]
    return _row(row, column, unit, about=column == "ttfat_p95_ms" and bool(row["p95_about"]))


def _model(value: Callable[[Architecture], float], unit: str, digits: int | None = 0) -> Fact:
    return _ours(value(architecture.phonellm()), unit, CONFIG, digits)


def _reply(exhibit: str, moment: str) -> Fact:
    """A moment of a recorded reply, as its figure shows it: its ``first`` chunk, its ``ttfat``, or the time
    between (``error``)."""
    frame = gallery.find(exhibit).frame()
    tokens = frame[frame["kind"].isin(("answer", "tool_call")) & (frame["text"].fillna("") != "")]
    first, ttfat = float(frame["at_ms"].min()), float(tokens["at_ms"].min())
    value = {"first": first, "ttfat": ttfat, "error": ttfat - first}[moment]
    row = frame.iloc[0]
    date = load_conditions(recorded.RUNS / f"{REPLIES}.jsonl.gz")["date"]
    return Fact(number(value, 0), "ms", row["origin"], str(row["server"]), date)


def _budget(value: Callable[[pd.DataFrame], float]) -> Fact:
    return _ours(value(budget.table("card")), "ms", "our arithmetic on the Primer's table and the model card")


def _primer_llm() -> Fact:
    lines = budget.table("primer")
    return _row(lines[lines["group"] == budget.LLM].iloc[0], "ms", "ms")


def _number_of(who: str, load: str) -> float:
    found = b200.recorded_answers()
    row = found[found["who"].str.startswith(who) & (found["load"] == load)].iloc[0]
    return float(row["number"])


def _answer(who: str, load: str) -> Fact:
    return _ours(_number_of(who, load), load, MODEL)


def _unit_factor() -> Fact:
    """How many times as many live calls as requests in flight our corrected model gives."""
    live, flying = (_number_of("BF16, corrected", load) for load in ("live calls", "requests in flight"))
    return _ours(live / flying, "times", MODEL)


def _limit(form: str) -> Fact:
    """The recorded limit: live calls with their interval (``words``), or ``how`` they were found."""
    found = limits.recorded()
    high = "more" if found.high is None else f"{found.high:.0f}"
    words = {"words": f"{found.live_calls:.0f} live calls ({found.low:.0f} to {high})", "how": found.how}
    return Fact(words[form], "", found.origin, found.server, found.date)


def _own_minute() -> Fact:
    """The price of a minute on the course's own engine, with the limit's interval."""
    machine = shipped_price("cpu.two-cores")
    priced = cost.from_limit(limits.recorded(), float(machine["value"]))
    source = f"our arithmetic on the recorded limit and a machine's price ({machine['source']})"
    return Fact(priced.sentence(), "", "modelled", source, TODAY)


def shipped_price(name: str) -> pd.Series:
    """A row of the course's own table of prices, whatever a learner has put beside it: a talk quotes the
    course."""
    return tables.read(prices.SHIPPED, text=prices.TEXT).loc[name]


def card_price() -> dict[str, float]:
    """What the card puts into its price of a minute: the arguments of :func:`helpers.cost.chain`."""
    return {
        "price_usd_per_hour": float(shipped_price("gpu.b200.modal")["value"]),
        "live_calls": published.value("b200.card_agents"),
        "region_factor": float(shipped_price("region.broad")["value"]),
        "utilisation": published.value("cost.card_utilisation") / 100,
    }


def _minute() -> Fact:
    return _ours(cost.agent_minute(**card_price()), "USD", "our arithmetic on the model card's inputs", 5)


def _slip_agents() -> Fact:
    inputs = card_price()
    del inputs["live_calls"]
    calls = cost.calls_needed(usd_per_minute=published.value("cost.card_minute"), **inputs)
    return _ours(calls, "calls", "our arithmetic on the model card's inputs")


def _cheaper() -> Fact:
    usd = phonebench.table().set_index("model")["usd_per_minute"]
    share = cost.saving(usd[phonebench.PHONELLM], usd[phonebench.TERRA])
    return _ours(share * 100, "%", "our arithmetic on the leaderboard chart", 1)


def _llm_share(scenario: str) -> Fact:
    """Share of the language model in the whole minute, as the figure has it."""
    frame = gallery.find("08-call-minute").frame()
    rows = frame[frame["scenario"].str.startswith(scenario) & (frame["part"] == "language model")]
    return _ours(
        float(rows["share"].iloc[0]) * 100, "%", "our arithmetic on the prices of the minute's parts"
    )


COMPUTED: dict[str, Callable[[], Fact]] = {
    "call.slow_share": lambda: _ours((1 - CHOSEN**TURNS) * 100, "%", "our arithmetic, turns independent"),
    "call.turns": lambda: _ours(TURNS, "turns", "our example"),
    "phonebench.phonellm_score": lambda: _bench(phonebench.PHONELLM, "score", "%"),
    "phonebench.phonellm_p95": lambda: _bench(phonebench.PHONELLM, "ttfat_p95_ms", "ms"),
    "phonebench.phonellm_price": lambda: _bench(phonebench.PHONELLM, "usd_per_minute", "USD"),
    "phonebench.terra_score": lambda: _bench(phonebench.TERRA, "score", "%"),
    "phonebench.terra_p95": lambda: _bench(phonebench.TERRA, "ttfat_p95_ms", "ms"),
    "phonebench.base_score": lambda: _bench("Nemotron 3 Nano 30B base", "score", "%"),
    "model.layers": lambda: _model(lambda arch: len(arch.layers), "layers"),
    "model.attention_layers": lambda: _model(lambda arch: arch.pattern.count("*"), "layers"),
    "model.experts": lambda: _model(lambda arch: arch.moe.n_routed_experts, "experts"),
    "model.experts_used": lambda: _model(lambda arch: arch.moe.num_experts_per_tok, "experts"),
    "model.state": lambda: _model(lambda arch: memory.mamba_state_bytes(arch) / 2**20, "MiB", 1),
    "model.kv_bytes": lambda: _model(memory.kv_bytes_per_token, "bytes"),
    "memory.request": lambda: _ours(FITS_TOKENS, "tokens", "our example"),
    "reply.plain_first": lambda: _reply("05-plain-question", "first"),
    "reply.tool_first": lambda: _reply("05-tool-call", "first"),
    "reply.tool_ttfat": lambda: _reply("05-tool-call", "ttfat"),
    "reply.tool_error": lambda: _reply("05-tool-call", "error"),
    "stats.p95_samples": lambda: _ours(stats.samples_needed(CHOSEN, CHOSEN), "requests"),
    "budget.primer_llm": _primer_llm,
    "budget.rest": lambda: _budget(budget.rest_ms),
    "budget.left": lambda: _budget(budget.left_for_ms),
    "budget.slack": lambda: _budget(budget.slack_ms),
    "limit.words": lambda: _limit("words"),
    "limit.how": lambda: _limit("how"),
    "b200.live_corrected": lambda: _answer("BF16, corrected", "live calls"),
    "b200.live_plain": lambda: _answer("BF16, uncorrected", "live calls"),
    "b200.flight_corrected": lambda: _answer("BF16, corrected", "requests in flight"),
    "b200.flight_plain": lambda: _answer("BF16, uncorrected", "requests in flight"),
    "b200.unit_factor": _unit_factor,
    "cost.gpu_hour": lambda: _row(shipped_price("gpu.b200.modal")),
    "cost.minute": _minute,
    "cost.slip_agents": _slip_agents,
    "cost.cheaper": _cheaper,
    "cost.own_minute": _own_minute,
    "cost.llm_share": lambda: _llm_share(phonebench.PHONELLM),
    "cost.terra_share": lambda: _llm_share(phonebench.TERRA),
    "cost.slip_share": lambda: _llm_share("PhoneLLM, with the slip"),
}
