"""A panel of lesson 08: your GPU, your calls, your providers, and what a minute of a call then costs.

The answer is a plain function, :func:`minute_for`, that works without widgets.
"""

from __future__ import annotations

import ipywidgets
import pandas as pd

from helpers import cards, cost, cost_call, figures, phonebench, prices, published
from helpers.figures_cost import call_minute
from helpers.origins import validate
from helpers.panels import _Panel, _table
from helpers.settings import CourseError

OWN = "your model"
NONE = "none"


def minute_for(
    price_usd_per_hour: float,
    live_calls: float,
    *,
    region_factor: float = 1.0,
    utilisation: float = 1.0,
    telephony: str = cost_call.TELEPHONY,
    stt: str = cost_call.STT,
    tts: str = cost_call.TTS,
    platform: str = "",
    chars_per_minute: float = cost_call.CHARS_PER_MINUTE,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The price of your minute, and its bill beside that of the same call with GPT-5.6 Terra.

    Args:
        price_usd_per_hour, live_calls, region_factor, utilisation: see :func:`helpers.cost.agent_minute`.
        telephony, stt, tts, platform, chars_per_minute: see :func:`helpers.cost_call.minute`.

    Returns:
        Two frames. The first has the columns ``question``, ``answer`` and ``origin`` (modelled); the second
        is the two bills below each other, see :func:`helpers.cost_call.minute`.

    Raises:
        CourseError: an argument makes no sense.
    """
    usd = cost.agent_minute(
        price_usd_per_hour, live_calls, region_factor=region_factor, utilisation=utilisation
    )
    choice = {"telephony": telephony, "stt": stt, "tts": tts, "platform": platform}
    choice |= {"chars_per_minute": chars_per_minute}
    terra = cost_call.from_chart(phonebench.TERRA)
    own = cost_call.minute(cost_call.Model(OWN, usd, source="your inputs"), **choice)
    other = cost_call.minute(terra, **choice)
    whole, saved = cost_call.total(own), cost.saving(cost_call.total(own), cost_call.total(other))
    compared = (
        f"{abs(saved):.0%} {'cheaper' if saved >= 0 else 'dearer'} than with {terra.name} at its chart price"
    )
    lines = {
        "the model, per agent minute": cost.usd(usd),
        "the whole minute": cost.usd(whole),
        "of it the model": f"{cost_call.share(own):.0%}",
        "the whole minute is": compared,
        "the largest part": str(own.loc[own["usd_per_minute"].idxmax(), "part"]),
    }
    answer = pd.DataFrame({"question": list(lines), "answer": list(lines.values()), "origin": "modelled"})
    return validate(answer, used_by="panels_cost.minute_for"), pd.concat([own, other], ignore_index=True)


class CostPanel(_Panel):
    """GPU, region, use, calls and providers in; the price of a minute and its bill out, at each change."""

    def __init__(self, *, start: str = "gpu.b200.modal") -> None:
        """``start``: the GPU offer of :func:`helpers.prices.table` whose price it comes with."""
        self.gpus = prices.table("gpu")
        wide = {"layout": ipywidgets.Layout(width="44em"), "style": {"description_width": "15em"}}
        self.offer = ipywidgets.Dropdown(
            options=[(_offer(row), name) for name, row in self.gpus.iterrows()],
            value=start,
            description="begin with",
            **wide,
        )
        self.price = ipywidgets.BoundedFloatText(
            min=0, max=10_000, step=0.1, description="price, USD per GPU-hour", **wide
        )
        self.region = ipywidgets.BoundedFloatText(
            prices.value("region.broad", "times"),
            min=0,
            max=10,
            step=0.25,
            description="region factor",
            **wide,
        )
        self.utilisation = ipywidgets.IntSlider(
            int(published.value("cost.card_utilisation")),
            min=0,
            max=100,
            description="utilisation, %",
            **wide,
        )
        self.calls = ipywidgets.BoundedFloatText(
            published.value("b200.card_agents"),
            min=0,
            max=100_000,
            step=1,
            description="live calls on one GPU",
            **wide,
        )
        self.telephony = _choice("telephony", "telephony", cost_call.TELEPHONY, wide)
        self.stt = _choice("stt", "speech to text", cost_call.STT, wide)
        self.tts = _choice("tts", "text to speech", cost_call.TTS, wide)
        self.platform = _choice("platform", "platform", "", wide)
        self.chars = ipywidgets.IntSlider(
            int(cost_call.CHARS_PER_MINUTE),
            min=0,
            max=1000,
            step=20,
            description="spoken characters a minute",
            **wide,
        )
        inputs = [self.offer, self.price, self.region, self.utilisation, self.calls, self.telephony]
        inputs += [self.stt, self.tts, self.platform, self.chars]
        super().__init__("What does your minute cost?", inputs)
        self._filling = True
        self.price.value = float(self.gpus.loc[start, "value"])
        self._filling = False
        self.offer.observe(lambda change: self._fill(change["new"]), names="value")
        for widget in inputs[1:]:
            widget.observe(lambda _: self.work_out(), names="value")

    def result(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Answer and bills, see :func:`minute_for`."""
        return minute_for(
            self.price.value,
            self.calls.value,
            region_factor=self.region.value,
            utilisation=self.utilisation.value / 100,
            telephony=self.telephony.value,
            stt=self.stt.value,
            tts=self.tts.value,
            platform=self.platform.value,
            chars_per_minute=self.chars.value,
        )

    def work_out(self) -> None:
        """Show answer and bill for the values as they are, or what is wrong with one."""
        if self._filling:
            return
        try:
            answer, bills = self.result()
            self._say(_table(answer) + cards.prose(self._whose()))
            self.picture.clear_output(wait=True)
            with self.picture:
                figures.show(call_minute, bills)
        except CourseError as error:
            self.picture.clear_output()
            self._fail(error)

    def _whose(self) -> str:
        """A word on a number of calls that was found on another GPU; empty where it fits."""
        item, card = self.gpus.loc[self.offer.value, "item"], published.value("b200.card_agents")
        if item == "B200" or self.calls.value != card:
            return ""
        return f"{card:g} live calls are the card's number for a B200. Put in what one {item} carries."

    def _fill(self, name: str) -> None:
        self._filling = True
        self.price.value = float(self.gpus.loc[name, "value"])
        self._filling = False
        self.work_out()

    def _static(self) -> tuple[str, str]:
        answer, _ = self.result()
        said = f"{_offer(self.gpus.loc[self.offer.value])}, {self.calls.value:g} live calls, modelled"
        return f"<b>{cards.prose(said)}</b>{_table(answer)}", f"{said}\n{answer.to_string(index=False)}"


def own_minute(*, start: str = "gpu.b200.modal") -> CostPanel:
    """Show the panel, and return it."""
    panel = CostPanel(start=start)
    panel.show()
    return panel


def _offer(row: pd.Series) -> str:
    return f"{row['item']}, {row['provider']}, {row['billing']}, {row['value']:g} USD"


def _choice(kind: str, words: str, start: str, wide: dict[str, object]) -> ipywidgets.Dropdown:
    """A dropdown with the prices of a kind, and one for doing without."""
    rows = prices.table(kind)
    options = [(f"{row['item']}, {row['value']:g} {row['unit']}", name) for name, row in rows.iterrows()]
    return ipywidgets.Dropdown(options=[*options, (NONE, "")], value=start, description=words, **wide)
