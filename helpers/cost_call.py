"""The whole minute of a call: telephone line, speech to text, language model, text to speech, platform.

The language model is one line of a bill with five. How much of a minute's price it makes up depends on the
others as much as on itself, so this module adds them up and says each one's share.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from helpers import phonebench, prices, published
from helpers.arguments import number
from helpers.cost import saving
from helpers.origins import validate
from helpers.settings import CourseError

PARTS = ("telephony", "speech to text", "language model", "text to speech", "platform")
CHARS_PER_MINUTE = published.value("cost.chars_per_minute")
TELEPHONY, STT, TTS = "telephony.twilio-in", "stt.deepgram-flux", "tts.deepgram-aura-2"
MILLION = 1_000_000


@dataclass(frozen=True)
class Model:
    """A language model and what a minute of a call with it costs.

    Attributes:
        name: for a table or a legend.
        usd_per_minute: its price.
        origin, source, date: where that number comes from.
    """

    name: str
    usd_per_minute: float
    origin: str = "modelled"
    source: str = "our assumption"
    date: str = ""


def from_chart(name: str) -> Model:
    """A model of the PhoneBench chart with the price that stands there.

    Raises:
        CourseError: the chart has no model of this name.
    """
    chart = phonebench.table().set_index("model")
    if name not in chart.index:
        raise CourseError(f"The chart has no model {name!r}. It has: {', '.join(chart.index)}.")
    row = chart.loc[name]
    return Model(name, float(row["usd_per_minute"]), row["origin"], row["source"], row["date"])


def the_slip() -> Model:
    """PhoneLLM at the price in the card's text, which is ten times too low."""
    row = published.table("cost.card_minute").iloc[0]
    return Model("PhoneLLM, with the slip", float(row["value"]), row["origin"], row["source"], row["date"])


def minute(
    model: Model,
    *,
    telephony: str = TELEPHONY,
    stt: str = STT,
    tts: str = TTS,
    platform: str = "",
    chars_per_minute: float = CHARS_PER_MINUTE,
) -> pd.DataFrame:
    """The bill of one minute of a call.

    Args:
        model: the language model.
        telephony, stt, tts, platform: ids in the table of prices; "" leaves a part out.
        chars_per_minute: what the agent says in a minute of a call, on average: it speaks a part of it only.

    Returns:
        One row a part, in the order of :data:`PARTS`: ``scenario`` (the model's name), ``part``, ``item``,
        ``usd_per_minute``, ``share`` of the minute, ``how`` (what was multiplied), ``source``, ``date`` and
        ``origin``. A price by the character becomes one by the minute through an assumption: modelled.

    Raises:
        CourseError: there is no such price, it is not of that kind, or a number makes no sense.
    """
    chars = number("chars_per_minute", chars_per_minute, least=0)
    llm = number("usd_per_minute", model.usd_per_minute, least=0)
    rows = []
    for part, name, kind in zip(
        PARTS,
        (telephony, stt, None, tts, platform),
        ("telephony", "stt", None, "tts", "platform"),
        strict=True,
    ):
        if kind is None:
            said = {"source": model.source, "date": model.date, "origin": model.origin}
            rows.append({"part": part, "item": model.name, "usd_per_minute": llm, "how": "", **said})
        elif name:
            rows.append({"part": part, **_line(name, kind, chars)})
    frame = pd.DataFrame(rows)
    total = float(frame["usd_per_minute"].sum())
    frame["share"] = frame["usd_per_minute"] / total if total else 0.0
    frame.insert(0, "scenario", model.name)
    return validate(frame, numeric=("usd_per_minute", "share"), used_by="cost_call.minute")


def _line(name: str, kind: str, chars: float) -> dict[str, object]:
    row = prices.row(name)
    if row["kind"] != kind:
        raise CourseError(f"{name} is a price of kind {row['kind']!r}; here one of kind {kind!r} is needed.")
    said = {"item": row["item"], "source": row["source"], "date": row["date"]}
    if kind == "tts":
        how = f"{row['value']:g} USD per million characters x {chars:,.0f} a minute"
        value = row["value"] * chars / MILLION
        ours = f"our arithmetic: the price of {row['source']}, for an assumed number of characters"
        return said | {"usd_per_minute": value, "how": how, "source": ours, "origin": "modelled"}
    return said | {"usd_per_minute": float(row["value"]), "how": "", "origin": row["origin"]}


def total(frame: pd.DataFrame) -> float:
    """USD for the whole minute of :func:`minute`."""
    return float(frame["usd_per_minute"].sum())


def share(frame: pd.DataFrame, part: str = "language model") -> float:
    """Share of the minute that one part makes up.

    Raises:
        CourseError: the bill has no such part.
    """
    found = frame[frame["part"] == part]
    if found.empty:
        raise CourseError(f"This bill has no part {part!r}. It has: {', '.join(frame['part'])}.")
    return float(found["share"].iloc[0])


def spoken_chars(agent_share: float, words_per_minute: float | None = None) -> float:
    """Characters that the agent says in a minute of a call, if it speaks for a share of it.

    Args:
        agent_share: of the call's time in which the agent speaks.
        words_per_minute: how fast; by default the course's assumption.

    Raises:
        CourseError: the share is none, or the pace is below 0.
    """
    words = published.value("assumption.speech_words") if words_per_minute is None else words_per_minute
    pace = number("words_per_minute", words, least=0)
    return number("agent_share", agent_share, least=0, most=1) * pace * published.value("cost.chars_per_word")


def swaps(base: pd.DataFrame, others: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What one change at a time does to the whole minute.

    Args:
        base: a bill.
        others: what was changed, in words -> the bill with that change.

    Returns:
        One row a change: ``change``, ``usd_per_minute`` (of the whole minute), ``saved_usd_per_minute``,
        ``saved`` (share of the base's price; below 0 it is dearer) and ``origin`` (modelled).
    """
    start = total(base)
    rows = [
        {
            "change": change,
            "usd_per_minute": total(bill),
            "saved_usd_per_minute": start - total(bill),
            "saved": saving(total(bill), start),
        }
        for change, bill in others.items()
    ]
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="cost_call.swaps")
