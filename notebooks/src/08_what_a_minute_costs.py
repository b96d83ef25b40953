# %% [markdown] name="title"
# # 08 · What a minute costs
#
# A price of a fraction of a cent decides whether a phone agent is worth building. You will work it out from the
# price of a GPU hour, find a slip that has been copied from page to page, and see which of the inputs deserves your
# worry. Then you hold your own GPU against an API that bills by the token, and the language model against everything
# else in the bill.
#
# | | |
# |---|---|
# | **You will** | rebuild a published price and find its slip; price the limit that you measured; size GPUs for a real day of calls; count the tokens of a growing conversation; find the break-even; take a whole call minute apart |
# | **You will learn** | utilisation, peak against mean, Erlang's formula, prompt caching, break-even, and which price to compare with which |
# | **You need** | lesson 07 (its limit flows in here); a little Python |
# | **Time** | 70 minutes; the cells run for seconds |
#
# No server is asked anything in this lesson. Everything computed here is **modelled**: arithmetic on published prices and on
# your limit.

# %% name="setup" tags=["setup"]
import math

import pandas as pd

from helpers import (
    b200,
    check,
    cost,
    cost_api,
    cost_break_even,
    cost_call,
    cost_day,
    cost_range,
    figures,
    limits,
    panels_cost,
    phonebench,
    prices,
    progress,
    published,
    quiz,
)

# %% name="look"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole

# %% [markdown] name="chain-note"
# ## 1. Four divisions
#
# The makers of PhoneLLM say what a minute of an agent costs, and they say what they put in. This is all of it:

# %% name="card-inputs"
offer = prices.show(prices.table("gpu").loc[["gpu.b200.modal"]])
region = prices.show(prices.table("region").loc[["region.broad"]])
pd.concat([offer, region])[["what", "price", "unit", "conditions", "source", "read", "origin"]]

# %% name="card-inputs-2"
published.show("cost.card_utilisation", "b200.card_agents", "cost.card_minute")

# %% [markdown] name="chain-2"
# A machine in a region of your choice costs more; the **region factor** says how much. A machine is paid for when nobody
# calls, too: **utilisation** is the share of what you pay for that carries calls. And a full GPU carries many calls at
# once. Each of these is one multiplication or division.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: from the hour to the minute
#
# difficulty ●○○ · importance ●●● · 6 minutes
#
# Write the chain. Prices are in USD; `utilisation` is a share between 0 and 1.


# %% name="ex-1" tags=["exercise"]
def agent_minute(
    price_usd_per_hour: float, region_factor: float, utilisation: float, live_calls: float
) -> float:
    """USD for one minute of one call."""
    # --- your code: lay the idle time on the full hours, then go to minutes, then to one call of many
    usd_per_full_hour = price_usd_per_hour * region_factor / utilisation
    usd_per_full_minute = usd_per_full_hour / 60
    return usd_per_full_minute / live_calls
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "08-1",
    hints=(
        "Which of the four makes a minute dearer, and which cheaper? Idle time makes it dearer.",
        "Price times region factor, divided by the utilisation, by the minutes of an hour, and by the live calls.",
    ),
)
exercise.case(
    "12 USD an hour, factor 1.5, used to 0.6, 50 calls",
    agent_minute,
    args=(12.0, 1.5, 0.6, 50.0),
    expect=0.01,
    tolerance=0.001,
    mistakes={
        0.0036: "You multiplied by the utilisation. Idle hours are paid too, so a used hour costs more, not less.",
        0.006: "The utilisation is missing: the idle hours have to be paid by somebody.",
        0.0066667: "The region factor is missing.",
        0.0044444: "You divided by the region factor. A pinned region makes the hour dearer.",
        0.6: "That is the price of an hour of a call. Go to minutes.",
        0.5: "That is a minute of the whole GPU. It carries many calls at once: divide by them.",
        36.0: "You multiplied by the minutes of an hour. A minute costs less than an hour.",
        25.0: "You multiplied by the calls. They share the GPU.",
        0.00016667: "You divided by the seconds of an hour. The price is by the minute.",
        0.015: "You divided by the idle share. `utilisation` is the share in use.",
        0.0084: "You laid the idle share on top. Divide by the share in use: all hours have to be paid by those.",
        1.0: "That is in cents; the price is in USD.",
    },
)
exercise.case(
    "1 USD an hour, always full, one call",
    agent_minute,
    args=(1.0, 1.0, 1.0, 1.0),
    expect=1 / 60,
    tolerance=0.001,
)
exercise.verdict()
agent_minute = exercise.use(agent_minute)

# %% name="ex-1-after"
HOUR = prices.value("gpu.b200.modal", "USD per GPU-hour")
REGION = prices.value("region.broad", "times")
USED = published.value("cost.card_utilisation") / 100
AGENTS = published.value("b200.card_agents")
own_minute = agent_minute(HOUR, REGION, USED, AGENTS)
print(f"From the card's own inputs: {own_minute:.6f} USD per agent minute.")
print(f"The card's text says:       {published.value('cost.card_minute'):.6f}")

# %% name="chain"
cost.chain(HOUR, AGENTS, region_factor=REGION, utilisation=USED).round(6)

# %% [markdown] name="slip"
# The two differ by a factor of ten, nearly. One of them has slipped by a digit. Which? Turn the chain around: what
# would have to be true for the text's price?

# %% name="backwards"
claimed = published.value("cost.card_minute")
calls = cost.calls_needed(HOUR, claimed, region_factor=REGION, utilisation=USED)
print(f"For {cost.usd(claimed)} one GPU would have to carry {calls:.0f} agents, not {AGENTS:.0f},")
print(f"or a full hour of it cost {cost.usd(cost.hour_needed(claimed, AGENTS))}, all idle time paid.")

# %% name="chart-says"
chart = phonebench.table().set_index("model")
chart.loc[
    ["PhoneLLM Alpha 1", "GPT-5.6 Terra", "GPT-5.6 Luna"],
    ["score", "ttfat_p95_ms", "usd_per_minute", "source", "origin"],
]

# %% [markdown] name="slip-2"
# The chart on the same card agrees with the arithmetic. So the sentence in the text is the slip, and with it each
# article that copied the sentence. **A price that comes without its inputs cannot be checked; this one could.**
#
# Here is the chain as a picture. A price of a full GPU-minute is a falling line, and everything hangs on how many calls share it:

# %% name="figure-calls" tags=["figure"]
cases = cost_range.cases()
claims = pd.concat(
    [
        published.table("cost.card_minute").assign(name="the card's text", usd_per_minute=claimed),
        chart.loc[["PhoneLLM Alpha 1"]].assign(name="the card's chart"),
    ]
)
figures.show(
    figures.price_by_calls,
    cases,
    claims=claims[["name", "usd_per_minute", "origin", "source", "date"]],
    title="What a minute costs hangs on what counts as a call",
)

# %% name="cases"
cases[["who", "what", "gpu", "live_calls", "usd_per_hour", "usd_per_minute", "origin"]].round(5)

# %% [markdown] name="cases-2"
# Look at the words in `what`. Counted in requests in flight, or in simulated processes, a B200 carries so many; counted
# in agents twice as many; and our own model, with our own callers, says more again, because they leave the server idle
# most of the time (lesson 07). The same GPU, the same hour. **A price per minute is only as good as its unit.** And on this crude
# view the small L40S is not dearer than the big B200, counted alike: the first of its rows is at list price and full,
# the second with the card's region factor and utilisation. Crude, because prompts, promises and tuning differ.

# %% [markdown] name="cheaper"
# ## 2. Cheaper than what?
#
# The card also says that PhoneLLM is so much cheaper than GPT-5.6 Terra:

# %% name="card-cheaper"
published.show("cost.card_cheaper")

# %% [markdown] name="ex-2-card"
# ### Exercise 2: per cent cheaper
#
# difficulty ●○○ · importance ●●○ · 4 minutes
#
# How many per cent does one save by paying `usd` instead of `instead_of_usd`? What is dearer saves less than nothing.


# %% name="ex-2" tags=["exercise"]
def percent_cheaper(usd: float, instead_of_usd: float) -> float:
    """Per cent saved by paying ``usd`` instead of ``instead_of_usd``."""
    # --- your code: the difference, as a part of what would have been paid otherwise
    return 100 * (instead_of_usd - usd) / instead_of_usd
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "08-2",
    hints=(
        "Somebody pays 2 and could pay half a dollar. What share of the 2 stays in the pocket?",
        "Subtract the new price from the old one, divide by the old one, and make it per cent.",
    ),
)
exercise.case(
    "0.5 instead of 2",
    percent_cheaper,
    args=(0.5, 2.0),
    expect=75.0,
    tolerance=0.001,
    mistakes={
        25.0: "That is what is still paid. The saving is the rest.",
        300.0: "You divided by the new price. The base is what would have been paid otherwise.",
        0.75: "A share: the question asks for per cent.",
        -75.0: "The sign: what is cheaper is positive.",
        4.0: "That is how many times as dear the other one is.",
        1.5: "That is the difference in USD, not a part of anything.",
    },
)
exercise.case(
    "3 instead of 2",
    percent_cheaper,
    args=(3.0, 2.0),
    expect=-50.0,
    tolerance=0.001,
    mistakes={
        50.0: "It is dearer, so the number is negative.",
        0.0: "What is dearer is negative: do not cut it off.",
        -33.3333: "You divided by the new price. The base is what would have been paid otherwise.",
    },
)
exercise.verdict()
percent_cheaper = exercise.use(percent_cheaper)

# %% [markdown] name="readings"
# Which two prices? Token prices of Terra and Luna were cut on one day in July 2026, a month before the card came out, and not by the
# same share. So the chart itself can tell on which side of that day it was computed: both models answered
# the same calls, and should differ in price about as their tokens do.

# %% name="price-ratios"
terra, luna = (chart.loc[name, "usd_per_minute"] for name in ("GPT-5.6 Terra", "GPT-5.6 Luna"))
print(f"Terra is {terra / luna:.1f} times as dear as Luna in the chart.")
for when, suffix in (("at launch", "-launch"), ("since the cut", "")):
    pair = [cost_api.token_price(f"{name}{suffix}") for name in ("terra", "luna")]
    print(f"By the token, {when}: {pair[0].input / pair[1].input:.1f} times.")

# %% name="readings-table"
cut = cost_api.token_price("terra-launch").input / cost_api.token_price("terra").input
phone = chart.loc["PhoneLLM Alpha 1", "usd_per_minute"]
readings = {
    "against Terra in the chart": (phone, terra),
    "against Terra at its launch price": (phone, terra * cut),
    "against Terra in the chart, with the slip": (claimed, terra),
    "against Luna in the chart": (phone, luna),
}
pd.DataFrame(
    [(what, *pair, percent_cheaper(*pair), "modelled") for what, pair in readings.items()],
    columns=["PhoneLLM", "usd_per_minute", "instead_of", "percent_cheaper", "origin"],
).round({"usd_per_minute": 5, "instead_of": 5, "percent_cheaper": 1})

# %% [markdown] name="readings-2"
# The chart was computed after the cut, it seems; the claim in the text fits the launch price. That is **our reading**. Nobody
# claims what the slip would give, which is one more sign that it is one. And the last row is the one to remember: the base makes the
# percentage. Luna scores a little lower than PhoneLLM (the table above has both scores), and against it little is saved.

# %% [markdown] name="dated"
# ## 3. Prices have a date
#
# Here are the offers for a B200 that we found, from the cheapest to the dearest:

# %% name="b200-offers"
gpus = prices.table("gpu")
offers = gpus[gpus["item"] == "B200"].sort_values("value")
prices.show(offers)[["billing", "provider", "price", "conditions", "source", "read", "origin"]]

# %% name="stale"
print(prices.warning(prices.table()))

# %% [markdown] name="dated-2"
# The same chip, and a wide spread. Part of it is what you give up: a spot machine can be taken away in the
# middle of a call, a reserved one is paid for a year or more. Part of it is only age: prices move, and not always down (compare RunPod's two on demand). Each has the day on which it was read,
# and the course says when that is too long ago to rely on.
#
# Prices are yours to change, in one file. The next cell makes it, once; nothing ever overwrites it:

# %% name="own-prices"
path = prices.make_own()

# %% [markdown] name="own-prices-2"
# It holds no price yet. Copy a line of ours into it, change value, source and date, save, and run this notebook again: your
# row takes the place of ours. A new `id` adds an offer. If a row cannot be read, the message names it.

# %% [markdown] name="limit-note"
# ## 4. Your own limit, priced
#
# In lesson 07 you searched for the number of live calls that your server carries. It had an interval, so the price has
# one too, and the ends change places: **many calls, low price**. For the small engine on a CPU we take the price of a small cloud machine; if your server is
# another one, put its price in.

# %% name="machine-price"
limit = limits.latest()
MACHINE = "cpu.two-cores"  # another id, such as "gpu.b200.modal", if that is what you measured
machine_hour = float(prices.row(MACHINE)["value"])
prices.show(prices.table().loc[[MACHINE]])

# %% name="own-limit"
print(limit.sentence())
full = cost.from_limit(limit, machine_hour)
print(f"if it were full all day: {full.sentence()}")
print(f"at the card's utilisation: {cost.from_limit(limit, machine_hour, utilisation=USED).sentence()}")

# %% [markdown] name="own-limit-2"
# If that is the engine of this course, it is the price of a **small model on a CPU** with a short kind of call. It
# says nothing about PhoneLLM; it shows the way from a measured limit to a price, and that an honest one has two ends. They are those of the
# limit alone: the price of the machine and its utilisation have their own doubts.

# %% [markdown] name="day-note"
# ## 5. Where utilisation comes from
#
# The card says that so much of the paid time carries calls, and gives no reason. Nobody chooses that number. It
# falls out of the day. Here is a real one: the calls of a bank's call centre in the United States.

# %% name="day"
shape = cost_day.day("bank, weekday")
print(f"Busiest hour over the mean of the 24: {cost_day.peak_to_mean(shape):.2f}")
busiest = shape.loc[shape["share"].idxmax()]
print(f"{busiest['source']}, {busiest['date']} ({busiest['origin']})")

# %% [markdown] name="day-2"
# How many lines for the busiest hour? As many as calls are live on average would be too few: calls come at random, and
# about half of the time there are more. **Erlang's formula** says which share of the callers finds all lines busy. Lines come in
# whole GPUs.

# %% name="plan"
minutes = cost_api.call_minutes()
planned = cost_day.plan(shape, calls_per_day=100_000, minutes_per_call=minutes, calls_per_gpu=AGENTS)
print(f"A call of our workload takes {minutes:.1f} minutes.")
planned.loc[[3, 8, 11, 15, 20], ["hour", "calls", "live_calls", "lines", "gpus", "origin"]].round(1)

# %% name="figure-day" tags=["figure"]
figures.show(figures.call_day, planned, calls_per_gpu=AGENTS, title="A day of calls, and what is paid for it")

# %% [markdown] name="ways"
# Three ways to pay for that day: **reserved** around the clock for the busiest hour; **on demand**, more and fewer by the hour; **serverless**,
# by the second, only while somebody is on the phone. The longer you bind yourself, the lower the price of the hour. (The first
# two prices are one provider's, asked without a region; the third is the card's, with the factor for one. Part of the distance is that factor.)

# %% name="bill"
hour_prices = {
    "reserved": prices.value("gpu.b200.hyperstack-reserved", "USD per GPU-hour"),
    "on demand": prices.value("gpu.b200.hyperstack", "USD per GPU-hour"),
    "serverless": HOUR * REGION,
}
cost_day.bill(planned, calls_per_gpu=AGENTS, usd_per_hour=hour_prices).round(4)

# %% name="sizes"
rows = []
for calls_a_day in (1_000, 10_000, 100_000, 1_000_000):
    size = cost_day.plan(shape, calls_per_day=calls_a_day, minutes_per_call=minutes, calls_per_gpu=AGENTS)
    bill = cost_day.bill(size, calls_per_gpu=AGENTS, usd_per_hour=hour_prices).set_index("way")
    rows.append(
        {"calls a day": calls_a_day, "GPUs at the peak": size["gpus"].max()} | dict(bill["utilisation"])
    )
pd.DataFrame(rows).assign(origin="modelled").round(3)

# %% [markdown] name="sizes-2"
# Read it from the top. With few calls hardly anything of a GPU is used, whatever the way of paying: it comes whole, and one caller at three in the afternoon
# keeps it busy. With many calls only the shape of the day is left. A reserved fleet for this day never gets near the
# card's figure; to reach it one needs many calls *and* a bill that follows the day.
#
# And that was a mean weekday. GPUs that are reserved have to be enough for the busiest day, and they are paid for at the weekend, when this
# bank is closed (we assume):

# %% name="busiest-day"
mean_day, busiest_day = published.value("cost.mean_day"), published.value("cost.busiest_day")
print(f"The busiest weekday had {busiest_day / mean_day:.2f} times the calls of a mean one.")
most = mean_day / busiest_day / cost_day.peak_to_mean(shape)
print(f"Reserved for its busiest hour: used to {most:.0%} at most, on weekdays.")
print(f"With the weekends, closed: {most * 5 / 7:.0%} (modelled)")

# %% [markdown] name="serverless"
# Serverless has a price of its own: somebody's call is the one that a cold GPU has to be started for. In `bill` it is the column `cold_calls`. How
# long does that caller wait?

# %% name="cold"
published.show("cost.cold_start", "cost.cold_start_snapshot")

# %% [markdown] name="cold-2"
# No caller waits that long. So a serverless fleet for the phone keeps at least one GPU warm, and then its first hour
# is no longer serverless.

# %% [markdown] name="inputs"
# ## 6. Which input to worry about
#
# Each input of the chain has a range: from the list of prices, from the day above, from what was claimed or modelled. The next
# figure moves one at a time from end to end. On a logarithmic axis the length of a bar is a factor.

# %% name="ranges"
paid = planned["gpus"].max() * AGENTS
ranges = cost_range.card_ranges(idle_utilisation=planned["live_calls"].mean() / paid)
tornado = cost_range.tornado(ranges)
tornado[["input", "low_value", "base_value", "high_value", "times", "why", "origin"]].round(2)

# %% name="figure-tornado" tags=["figure"]
figures.show(figures.tornado, tornado, title="Which input matters most")

# %% name="together"
cost_range.together(ranges).map(cost.usd).to_frame("USD per agent minute").assign(origin="modelled")

# %% [markdown] name="together-2"
# The last cell draws all four at random, twenty thousand times. Between the fifth and the ninety-fifth percentile lies about a factor
# of ten. So a price of PhoneLLM's minute with three digits says more than anybody knows, and the money is not in haggling over the hour: it is in **how many calls
# a GPU carries**, which is measured, and in **how full it is**, which is planned. One caution: the long bar on top mixes units. Its upper end is
# our own model with our own short calls; from half of the card's number to all of it would be a factor of two, and then the hour leads.

# %% [markdown] name="tokens-note"
# ## 7. Paying by the token
#
# An API has no hour. It bills tokens: those you send and, dearer, those it makes. And it remembers nothing: every turn
# sends the whole conversation again.

# %% [markdown] name="ex-3-card"
# ### Exercise 3: the tokens of a growing conversation
#
# difficulty ●●○ · importance ●●● · 8 minutes
#
# A system prompt of `system` tokens; each turn a remark of the caller of `remark` tokens and an answer of `answer`
# tokens. The prompt of a turn is everything said so far, and the new remark. How many prompt tokens do all turns of the call send together?


# %% name="ex-3" tags=["exercise"]
def prompt_tokens(system: int, remark: int, answer: int, turns: int) -> int:
    """Prompt tokens of all requests of a call together."""
    # --- your code: add up the prompts, turn by turn; each is longer than the one before
    total, history = 0, system
    for _ in range(turns):
        prompt = history + remark
        total += prompt
        history = prompt + answer
    return total
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
exercise = check.Exercise(
    "08-3",
    hints=(
        "Write down what the second turn sends: is the system prompt in it? The first remark? The first answer?",
        "Keep the history in a variable. In each turn the prompt is the history and the remark; afterwards the "
        "history has grown by the remark and the answer.",
    ),
)
exercise.case(
    "system 1000, remark 20, answer 50, 3 turns",
    prompt_tokens,
    args=(1000, 20, 50, 3),
    expect=3270,
    mistakes={
        1160: "That is the last prompt alone. Each turn is billed.",
        1210: "That is everything once. The API is sent it again with each turn.",
        3060: "The history is missing: turn two sends turn one again.",
        3420: "You counted the answer of a turn in its own prompt. It comes back in the next one.",
        1270: "The system prompt is sent with every turn, not once.",
        3120: "The answers are part of the history, too: the model has to be told what it said.",
        3210: "The new remark is part of the prompt.",
        3630: "Turn two sends two remarks and one answer, turn three more: the prompts grow, they do not all have the length of the last.",
        3480: "One turn's answer and remark too much: the first prompt is the system prompt and one remark.",
    },
)
exercise.case(
    "no system prompt, remark 10, no answer, 4 turns",
    prompt_tokens,
    args=(0, 10, 0, 4),
    expect=100,
    mistakes={40: "Turn two sends two remarks, turn three sends three."},
)
exercise.case("one turn", prompt_tokens, args=(500, 30, 40, 1), expect=530)
exercise.verdict()
prompt_tokens = exercise.use(prompt_tokens)

# %% name="square"
for turns in (5, 10, 20, 40):
    sent = prompt_tokens(0, 20, 48, turns)
    print(f"{turns:>2} turns: {sent:>6,} prompt tokens, {sent / turns**2:.0f} for each turn squared")

# %% [markdown] name="square-2"
# Twice the turns, four times the tokens: the sum grows with the **square** of the turns. (The system prompt is left out
# there; it comes on top, once a turn.) Providers know this and offer **prompt caching**: the beginning of a prompt that they have seen before costs
# a part of the price. That makes the square smaller. It does not take it away.

# %% name="token-prices"
token_prices = prices.table()
token_prices = token_prices[token_prices.index.str.startswith("llm.")]
token_prices.pivot(index="item", columns="kind", values="value").assign(
    unit="USD per million tokens", origin="published"
)

# %% name="figure-turns" tags=["figure"]
asked = cost_api.even_calls(system_tokens=1100, caller_tokens=20, answer_tokens=48, turns=24)
terra_tokens = cost_api.token_price("terra")
ways = {"without a cache": None, "with a cache": cost_api.Caching()}
by_turn = pd.concat(
    cost_api.priced(asked, terra_tokens, how).assign(series=name) for name, how in ways.items()
)
figures.show(
    figures.cost_by_turn,
    by_turn.assign(turn=by_turn["turn"] + 1),
    title="A long call at an API, turn by turn (GPT-5.6 Terra)",
)

# %% [markdown] name="turns-2"
# With a cache a turn pays in full, and a little more, only for what is new. This provider's models of today find what was sent
# before up to the end of a message, and the system prompt of *another* call only if you marked where it ends; that it was marked, and that
# each request finds what it could, is our assumption. (Older models found a beginning in whole steps.)

# %% [markdown] name="support-call"
# Now our own support call, the one of lesson 07: its turns, its words, its tools, with tokens counted by a rule of thumb. A minute of it at
# each API in USD, without and with a cache, and the share that the cache saves:

# %% name="api-minutes"
api = cost_api.compare().set_index("model")
api[["uncached", "cached", "saved", "date", "origin"]].round(5)

# %% name="against-chart"
ours = api.loc["GPT-5.6 Terra", ["uncached", "cached"]]
print(f"The chart's minute of Terra costs {terra / ours['uncached']:.1f} times ours without a cache,")
print(f"and {terra / ours['cached']:.0f} times ours with one.")

# %% [markdown] name="against-chart-2"
# That is a large gap, and it is no error of either side. The calls of the benchmark must send and make more
# tokens than ours, or the model thinks before it answers, and thoughts are billed; the makers publish neither. **A price per minute at an API is a price of a
# kind of call.** So never hold somebody's API minute against your GPU minute: put the same calls on both sides.

# %% [markdown] name="even-note"
# ## 8. Rent or pay by the token
#
# A rented GPU costs the same whether calls come or not. An API costs nothing when nobody calls. Somewhere they meet.

# %% [markdown] name="ex-4-card"
# ### Exercise 4: the break-even
#
# difficulty ●●○ · importance ●●● · 8 minutes
#
# A GPU costs `usd_per_gpu_hour`, all day. An API costs `api_usd_per_minute` for each minute of a call. How many calls have to be live on
# average, around the clock, for both bills to be the same? If that is more than the `most_calls` the GPU carries, it never happens: `math.inf`.


# %% name="ex-4" tags=["exercise"]
def break_even_calls(usd_per_gpu_hour: float, api_usd_per_minute: float, most_calls: float) -> float:
    """Live calls, on average over the day, from which on the GPU is cheaper; ``math.inf`` if never."""
    # --- your code: bring the GPU to minutes; how many API minutes cost as much as one of its minutes?
    calls = usd_per_gpu_hour / 60 / api_usd_per_minute
    return calls if calls <= most_calls else math.inf
    # --- end


# %% name="ex-4-check" tags=["check"]
# Check of exercise 4: run this cell after yours.
exercise = check.Exercise(
    "08-4",
    hints=(
        "In one minute the GPU costs so much. How many minutes of calls at the API does that buy?",
        "Divide the hour by 60, then by the API's price. Compare the result with `most_calls` at the end.",
    ),
)
exercise.case(
    "9 USD an hour, 0.003 a minute, room for a million",
    break_even_calls,
    args=(9.0, 0.003, 1e6),
    expect=50.0,
    tolerance=0.001,
    mistakes={
        3000.0: "An hour against a minute: bring both to the same time.",
        180000.0: "You multiplied by the minutes of an hour. A minute of the GPU costs less than its hour.",
        0.02: "Upside down: the GPU's minute, divided by the API's.",
        1200.0: "Both bills run over the same day, so the hours of the day fall out.",
        0.15: "That is what a minute of the GPU costs. How many calls at the API cost as much?",
        math.inf: "So many do fit. Which way round did you compare?",
    },
)
exercise.case(
    "the same, with room for 88",
    break_even_calls,
    args=(9.0, 0.003, 88.0),
    expect=50.0,
    tolerance=0.001,
    mistakes={50 / 88: "That is the utilisation it takes. The question asks for calls."},
)
exercise.case(
    "the same, with room for 44",
    break_even_calls,
    args=(9.0, 0.003, 44.0),
    expect=math.inf,
    mistakes={
        50.0: "So many calls do not fit on it, so it never gets there: `math.inf`.",
        44.0: "At its limit the GPU is still the dearer one, so there is no break-even: `math.inf`.",
    },
)
exercise.case(
    "exactly full",
    break_even_calls,
    args=(6.0, 0.002, 50.0),
    expect=50.0,
    tolerance=0.001,
    mistakes={math.inf: "*More* than it carries: what just fits is a break-even."},
)
exercise.verdict()
break_even_calls = exercise.use(break_even_calls)

# %% name="even-own"
answers = b200.recorded_answers()
same_calls = answers[answers["who"].str.startswith("BF16, corrected") & (answers["load"] == "live calls")]
MODELLED = float(same_calls["number"].iloc[0])
for model in ("GPT-5.6 Terra", "GPT-6.1 Terra", "GPT-5.6 Luna"):
    found = break_even_calls(HOUR * REGION, api.loc[model, "cached"], MODELLED)
    print(f"{model}: {found:,.0f} live calls around the clock, of {MODELLED:,.0f} that our model says fit")

# %% [markdown] name="even-own-2"
# Both sides are our support call now: at the API with a cache, and on a B200 as modelled in lesson 07. Here is the same with the card's
# number of agents beside it. (Those agents make the benchmark's calls, so that half mixes two kinds of call; it shows what the number of calls does. That our model's full minute
# looks like the price in the card's text is chance: other calls, and no idle time.)

# %% name="even-table"
api_minutes = {name: api.loc[name, "cached"] for name in ("GPT-5.6 Terra", "GPT-6.1 Terra", "GPT-5.6 Luna")}
on_gpu = {"B200, card's agents": AGENTS, "B200, our model": MODELLED}
table = cost_break_even.table(HOUR * REGION, on_gpu, api_minutes)
table.round(
    {
        "full_usd_per_minute": 5,
        "api_usd_per_minute": 5,
        "utilisation_needed": 2,
        "minutes_per_day": 0,
        "live_calls": 0,
    }
)

# %% name="figure-volume" tags=["figure"]
peak = cost_day.peak_to_mean(shape)
volumes = cost_break_even.volumes(120_000, HOUR * REGION, on_gpu, api_minutes, peak_to_mean=peak)
figures.show(figures.cost_by_volume, volumes, title="Rent a GPU or pay by the token: our support call")

# %% [markdown] name="even-2"
# `utilisation_needed` is the column to read. Above 1: a full GPU is still the dearer one, so no volume helps. Below 1: compare it with the utilisation of your day in
# section 5. A GPU that has to be fuller than your day lets it be will lose, although its full minute looks cheap.
#
# And look at the dates. Within a few months Terra became cheaper once, and then its successor cheaper again. A GPU reserved for a year keeps its price. What you
# compare with is not today's API.

# %% [markdown] name="whole"
# ## 9. The whole minute
#
# A caller does not buy a language model. A minute of a call also has a telephone line, speech to text and text to
# speech in it. First how much the agent says, since text to speech bills by the character. (In our own support call the agent speaks about two
# thirds of the time, the last line below; the bill takes the assumption.)

# %% name="chars"
print(f"Assumed: {published.value('cost.chars_per_minute'):.0f} characters in a minute of a call.")
for part in (0.25, 0.4, 0.66):
    print(f"If the agent speaks {part:.0%} of the time: {cost_call.spoken_chars(part):.0f}")

# %% name="figure-minute" tags=["figure"]
choices = [
    cost_call.from_chart("PhoneLLM Alpha 1"),
    cost_call.the_slip(),
    cost_call.from_chart("GPT-5.6 Terra"),
]
bills = [cost_call.minute(choice) for choice in choices]
figures.show(figures.call_minute, pd.concat(bills), title="The whole minute of a call")

# %% name="whole-table"
bills[0][["part", "item", "usd_per_minute", "share", "how", "source", "date", "origin"]].round(4)

# %% [markdown] name="arbitrage"
# The article that this course grew from ends with a thesis: self-hosting pays not because one's own card is cheap, but
# because a small model that just fits takes the place of a large one. Test it. One change at a time, beginning with the minute with Terra:

# %% name="swaps-terra"
with_terra, with_phone = bills[2], bills[0]
luna_bill = cost_call.minute(cost_call.from_chart("GPT-5.6 Luna"))
terra_model = choices[2]
cost_call.swaps(
    with_terra,
    {
        "PhoneLLM instead of Terra": with_phone,
        "Luna instead of Terra": luna_bill,
        "Nova-3 instead of Flux": cost_call.minute(terra_model, stt="stt.deepgram-nova-3"),
        "half as many spoken characters": cost_call.minute(terra_model, chars_per_minute=180),
    },
).round(4)

# %% name="swaps-phone"
free = cost_call.Model("a model that costs nothing", 0.0)
cost_call.swaps(
    with_phone,
    {
        "Luna instead of PhoneLLM": luna_bill,
        "a model that costs nothing": cost_call.minute(free),
        "Nova-3 instead of Flux": cost_call.minute(choices[0], stt="stt.deepgram-nova-3"),
        "half as many spoken characters": cost_call.minute(choices[0], chars_per_minute=180),
    },
).round(4)

# %% [markdown] name="arbitrage-2"
# Three findings. **The step from a large model to a small one is real**, at the chart's prices: it is by far the largest single change to the
# first bill. **But it is not a step to self-hosting.** A small model at an API takes nearly the same one, and by the table of section 8 it stays
# cheaper than a GPU of your own that is half idle. What it does not do, by the makers' chart, is answer in time: look at its `ttfat_p95_ms` in section 1, which is more than the whole budget of
# 1500 ms. So by these numbers the reason for a model of your own is the wait, not the price. **And the step can be taken once.** In the second bill even a model that costs nothing would save less
# than a shorter way of speaking. What is left then is speech and the line.

# %% [markdown] name="panel-note"
# ## 10. Your own minute
#
# Put in your GPU, your calls and your providers. Another GPU carries another number of calls, and the panel does not know it: the number it
# begins with is the card's, for a B200.

# %% name="panel"
panel = panels_cost.CostPanel()
panel.show()

# %% [markdown] name="recap"
# ## Recap
#
# - A minute's price is a chain: hour, region, utilisation, live calls. Turn it around to check what others claim.
# - "Per cent cheaper" needs a base and a date. A price without a date is a rumour.
# - A limit has an interval, so a price has one, with its ends the other way round.
# - Utilisation falls out of the day: its shape, its size, whole GPUs, and how they are paid for.
# - The number of calls on a GPU moves the price most. State its unit.
# - A conversation's input grows with the square of its turns. A cache makes the square smaller.
# - Break-even: the same calls on both sides, idle hours counted.
# - The model is one part of the minute. Once it is cheap, look at the others.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "08-q1",
    "A GPU is full for half of the time that you pay for. What does that do to the price of an agent minute?",
    [
        quiz.Option(
            "It halves it", why="The other way: the idle half is paid for, and somebody has to bear it."
        ),
        quiz.Option(
            "It doubles it, against a GPU that is always full",
            right=True,
            why="The same bill is shared by half as many call minutes.",
        ),
        quiz.Option(
            "Nothing: a call takes as much of the GPU as before",
            why="It takes as much, but there are fewer calls to share the bill.",
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "08-q2",
    "A support call becomes twice as long, with twice as many turns of the same kind. What does its input cost at an API with a prompt cache?",
    [
        quiz.Option(
            "Twice as much", why="Each turn sends the history again, and cached tokens are cheap, not free."
        ),
        quiz.Option(
            "The same: the history is cached",
            why="Cached tokens are billed at a lower price, at each turn anew.",
        ),
        quiz.Option(
            "More than twice as much, though less than without a cache",
            right=True,
            why="The history still grows with each turn; the cache only makes its price lower.",
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "08-q3",
    "Your break-even table says that the GPU has to be used to 60 % to beat the API. Your day lets a reserved GPU be used to 35 %. What now?",
    [
        quiz.Option(
            "Stay with the API, or carry more calls on one GPU, or pay by the hour instead of around the clock",
            right=True,
            why="Each of these changes one of the two numbers. The price of the hour is only the last resort.",
        ),
        quiz.Option(
            "Rent the GPU: its full minute is cheaper than the API's",
            why="It will not be full. The idle hours are on the bill.",
        ),
        quiz.Option(
            "Rent two: the load is then better spread",
            why="The same calls on twice the capacity: the utilisation halves.",
        ),
    ],
)

# %% name="progress"
progress.show("08")

# %% [markdown] name="next"
# ## Next
#
# **09 · A voice agent that talks** puts the whole chain of speech together and times every stage of it.
