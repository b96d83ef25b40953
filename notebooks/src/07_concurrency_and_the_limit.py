# %% [markdown] name="title"
# # 07 · Concurrency and the limit
#
# One caller is easy. How many can be on the phone at once before one answer in twenty comes too late? In this lesson
# you let callers loose on the server behind this notebook, find out what it means to be "at once", and search for the
# largest number that keeps a promise. The answer comes with how sure it is. At the end stands a GPU that nobody here
# has.
#
# | | |
# |---|---|
# | **You will** | run callers who speak, listen and think; draw the curve of waiting against live calls; see what fills up; search for the limit and confirm it; hold a model of a B200 against what others measured |
# | **You will learn** | open and closed loops, live calls and requests in flight, Little's law, goodput, coordinated omission, and how many calls a "yes" takes |
# | **You need** | lesson 05; a little Python |
# | **Time** | 70 minutes, of which the cells run for about five |

# %% name="setup" tags=["setup"]
import inspect
import math

import numpy as np
import pandas as pd
from scipy.stats import binom

from helpers import b200, calibration, calls, check, engine, figures, figures_capacity, limits, load
from helpers import load_tools, panels_capacity, progress, published, quiz, search, showcases, simulated
from helpers import slo, sweeps, workload

# %% name="connect"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole
server = engine.connect()

# %% [markdown] name="why"
# ## 1. A number with three units
#
# This is what the makers of PhoneLLM say about one B200, and what price per minute follows hangs on it:

# %% name="published-numbers"
published.show("b200.card_processes", "b200.card_agents", "card.ttfat_ceiling")

# %% [markdown] name="why-2"
# Processes, agents: what is counted here, and how does the one become twice as many of the other? The card does not
# say. So first we need words. Two of them:
#
# - a **live call**: somebody is on the phone;
# - a **request in flight**: the server has been asked, and the answer is not complete.
#
# During most of a live call nothing is in flight, because somebody speaks, listens or thinks. A tool that
# reports "concurrency" may mean either.

# %% [markdown] name="callers"
# ## 2. Callers, as data
#
# A load is only as honest as its callers. Here is one kind of call, each number with its reason:

# %% name="workload"
support_call = workload.load("support-call")
support_call.table()[["parameter", "value", "unit", "reason", "origin"]]

# %% [markdown] name="short-note"
# The engine behind this notebook is a small one on a CPU, so it gets a shorter version of that call:

# %% name="short"
real_time = support_call.short()
print("\n".join(real_time.changes))

# %% [markdown] name="loops"
# There are two ways to send callers, and they answer different questions:
#
# - **closed**: so many **lines**, each with room for one call at a time. When a call ends, its line takes the next
#   one, so the number of live calls stays the same. If the server gets slower, fewer requests come: the load gives way.
# - **open**: calls begin whenever somebody dials, whether the server keeps up or not. The load does not give way, and
#   a server that is too slow falls ever further behind.
#
# Real life is both: calls arrive open, and the turns *inside* a call are closed, because nobody asks the next question
# before hearing the answer. The load maker does either. Its heart is short; read it once:

# %% name="read-it"
print(inspect.getsource(load.take_call))

# %% [markdown] name="due"
# Look for `due_ns`. A request is **due** when the caller has said the last word. If our own program sends it late, the
# caller waits all the same, so every wait in this lesson counts from when the request was due: `due_to_ttfat_ms`.

# %% [markdown] name="first-run-note"
# ## 3. The first run
#
# Four lines, in real time. It takes a quarter of a minute.

# %% name="first-run"
first = load.run(server, real_time, live_calls=4, seconds=12, warmup_s=5)
print(first.sentence())

# %% name="first-table"
columns = ["call", "turn", "phase", "due_s", "sent_s", "first_answer_s", "ended_s", "due_to_ttfat_ms"]
first.requests[columns].tail(6).round(2)

# %% name="figure-calls" tags=["figure"]
figures.show(figures.call_timeline, first.requests, title="When does the model work?")

# %% [markdown] name="duty"
# Only the coloured parts are work for the server. Their share of a call is its **duty cycle**. It is the bridge
# between the two units: so many requests in flight, on average, are that many live calls.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: from requests to calls
#
# difficulty ●○○ · importance ●●● · 5 minutes
#
# A server has `in_flight` requests in flight on average. In a call of `call_s` seconds a request is in flight for
# `flight_s` of them. How many live calls is that?


# %% name="ex-1" tags=["exercise"]
def live_calls(in_flight: float, flight_s: float, call_s: float) -> float:
    """Live calls that keep ``in_flight`` requests in flight on average."""
    # --- your code: the duty cycle is the share of a call in which its request is in flight
    duty_cycle = flight_s / call_s
    return in_flight / duty_cycle
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "07-1",
    hints=(
        "If a call needs the server for a third of its time, how many calls share one request in flight?",
        "Divide `flight_s` by `call_s` for the duty cycle, then `in_flight` by that.",
    ),
)
exercise.case(
    "3 in flight, calls of 90 s with 12 s of work",
    live_calls,
    args=(3.0, 12.0, 90.0),
    expect=22.5,
    tolerance=0.001,
    mistakes={
        0.4: "You multiplied by the duty cycle. There are more calls than requests, not fewer.",
        19.5: "You divided by work over rest. The share is of the whole call, its work included.",
        0.225: "A share, not a percentage: no factor of 100.",
        3.4615: "That is the share of the call without work. The server is needed in the other part.",
        7.5: "That is one over the duty cycle: how many calls share one request. There are more requests.",
    },
)
exercise.case("a caller who never pauses", live_calls, args=(5.0, 60.0, 60.0), expect=5.0, tolerance=0.001)
exercise.verdict()
live_calls = exercise.use(live_calls)

# %% name="own-duty"
answered = (first.requests["outcome"] == "finished").any()
duty = calls.duty_cycle(first.requests) if answered else math.nan
if answered:
    print(f"Your calls had a request in flight for {duty:.0%} of their time ({server.origin}).")
    print(f"At that share, 10 requests in flight are {calls.agents(10, duty):.0f} live calls.")
else:
    print(f"No duty cycle without an answer: {first.sentence()}")
    print("Run the cell `connect` again, which starts a server that is gone, and then from `first-run` on.")

# %% [markdown] name="agents"
# Now back to the card. Turned around: at which duty cycle would its processes, each with a request in flight all the
# time, be its agents?

# %% name="card-duty"
published.show("b200.spoken_share")

# %% [markdown] name="agents-2"
# That is **our reading**, nothing more: if a simulated caller asks again without a pause, and a real agent waits for
# the model during at most half of its call, then one process stands for two agents. The card says only "the way the
# sweep is built". Remember how far your own duty cycle is from a half.

# %% [markdown] name="open-note"
# Two more things before the sweep. First, the open loop, so that you have seen it. Calls now arrive at random, and
# nobody decides how many are live. Second, **time-lapse**: from here on the callers speak, listen and think at
# five times their speed. One of them loads the server as several in real time do, so the limit is reached with fewer
# callers, and in minutes instead of an hour. The unit stays "live calls", but these are calls in time-lapse, and are
# named so.

# %% name="time-lapse"
time_lapse = real_time.scaled(pace=sweeps.PACE, pauses=1 / sweeps.PACE)
opened = load.run(server, time_lapse, calls_per_minute=60, seconds=10, warmup_s=3)
print(opened.sentence())

# %% name="open-live"
began = opened.requests.groupby("call")["call_began_s"].min()
over = opened.requests.groupby("call")["heard_s"].max()
live = [int(((began <= at_s) & (over > at_s)).sum()) for at_s in range(1, 13)]
print("live calls, second by second:", *live)

# %% [markdown] name="curve-note"
# ## 4. The curve
#
# Now the closed loop, level by level. (A minute and a quarter. Look at the line of progress: it tells how late
# the client itself is.) In the table below it `n` counts calls and `turns` their requests; `share` is the part of the
# turns that got their first token within the limit, and `verdict` what so few calls prove about that: section 8 makes it.

# %% name="sweep"
LIMIT_MS = published.value("card.ttfat_ceiling")
sweep = sweeps.run(server, time_lapse, levels=(1, 4, 8, 12, 16), seconds=11, kept=sweeps.SWEEP)

# %% name="curve"
curve = sweeps.curve(sweep, LIMIT_MS)
curve.drop(columns="server").round(2)

# %% name="figure-curve" tags=["figure"]
figures.show(
    figures.latency_curve,
    curve,
    limit_ms=LIMIT_MS,
    unit="live calls, time-lapse",
    title="P95 breaks before P50",
)

# %% [markdown] name="curve-2"
# Three things to read from it. The tail goes first: where P95 passes the limit, the median is still far from it. An arrow means that so few
# calls set no upper bound: this sweep shows the shape and proves nothing. And the lower panel is the one that pays:
# **goodput** is what came within the limit. Past the limit a server may do more work and less good.
#
# Was it the server that was late, or we? The client watches its own clock meanwhile:

# %% name="lag"
sweep.levels[["live_calls", "lag_p95_ms", "trusted", "why_not", "ended"]].round(1)

# %% [markdown] name="lag-2"
# The client, the engine and this notebook share one machine here, so a level may well say that it is not to be trusted.
# Then its numbers are partly the client's own. Measured from another machine they would not be.

# %% [markdown] name="fills"
# ## 5. What fills up
#
# The client sees that answers come later. Why, only the server can say. These are its own pages, on the same axis of
# time:

# %% name="figure-saturation" tags=["figure"]
figures.show(
    figures.saturation, sweeps.over_time(sweep), limit_ms=LIMIT_MS, title="What the callers wait for, and why"
)

# %% [markdown] name="fills-2"
# Read it from below. The system prompt is in the **prefix cache**, so most of each prompt costs nothing. **Tokens per
# step** tells what else a step does: one token for each running answer, and now and then a whole new prompt. While a step
# reads a prompt, everybody in it waits. **Waiting** stays at zero as long as there are **seats** (`--max-num-seqs`: so many
# requests run at once): on this server nobody queues at the door, all sit inside and slow each other down. So more seats would not help here; a faster
# step would.

# %% [markdown] name="little"
# ## 6. Little's law
#
# There is one law that every queue obeys, whatever is inside: what comes in per second, times how long each stays, is
# how many are there on average. No assumption about chance is in it. That makes it the best lie detector for a load
# test.

# %% [markdown] name="ex-2-card"
# ### Exercise 2: how many are in there?
#
# difficulty ●○○ · importance ●●● · 5 minutes
#
# From requests per *minute* and *milliseconds* each: the mean number in flight. Reports mix units like that all the time.


# %% name="ex-2" tags=["exercise"]
def mean_in_flight(requests_per_minute: float, each_ms: float) -> float:
    """Requests in flight on average, by Little's law."""
    # --- your code: bring both to seconds first
    per_second = requests_per_minute / 60
    return per_second * each_ms / 1000
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "07-2",
    hints=(
        "In one second so many come, and each stays for so many seconds.",
        "`requests_per_minute / 60` are the arrivals of a second, `each_ms / 1000` the seconds of each; multiply.",
    ),
)
exercise.case(
    "120 requests a minute, 1500 ms each",
    mean_in_flight,
    args=(120.0, 1500.0),
    expect=3.0,
    tolerance=0.001,
    mistakes={
        180.0: "Requests per minute: divide by 60 once.",
        3000.0: "Milliseconds: divide by 1000 once.",
        180000.0: "Bring both to seconds: a minute has 60, and a second 1000 ms.",
        10800.0: "You multiplied by 60. Fewer come in a second than in a minute.",
        1.3333: "You divided the rate by the time. The longer each stays, the more are there.",
        0.75: "You divided the time by the rate. The more come, the more are there.",
    },
)
exercise.case(
    "30 requests a minute, 800 ms each",
    mean_in_flight,
    args=(30.0, 800.0),
    expect=0.4,
    tolerance=0.001,
    mistakes={0.0: "A mean may lie between whole numbers: do not round it."},
)
exercise.case("nobody calls", mean_in_flight, args=(0.0, 800.0), expect=0.0, tolerance=0.001)
exercise.verdict()
mean_in_flight = exercise.use(mean_in_flight)

# %% name="own-little"
own = sweeps.little(sweep)
own["by_law"] = [mean_in_flight(60 * row.rate_per_s, 1000 * row.mean_time_s) for row in own.itertuples()]
own[
    [
        "live_calls",
        "requests",
        "rate_per_s",
        "mean_time_s",
        "by_law",
        "mean_in_flight",
        "server_in_flight",
        "origin",
    ]
].round(2)

# %% [markdown] name="own-little-2"
# Two columns agree to the last digit, as they must: one is a product, the other was counted on the axis of time. A
# difference would mean that requests went missing from the table. The last column is a real witness: the server's own count, read
# once a second, so it is rough. It is lower, most likely because to the server a request begins later (once it has been
# read and turned into tokens) and ends earlier (before the client has read the last of it).
#
# Now somebody else's run. With one request at a time the first token came quickly; with more of them it took seconds:

# %% name="published-queue"
queue = showcases.published_queue()
queue[["what", "value", "unit", "how", "origin", "source"]].round(2)

# %% name="figure-little" tags=["figure"]
record = published.table("load.queue_in_flight", "load.queue_requests_per_s", "load.queue_e2e")
by_law = record["value"].iloc[1] * record["value"].iloc[2]
theirs = record.iloc[[0]].assign(label="published run", rate_x_time=by_law, in_flight=record["value"].iloc[0])
ours = own.assign(label=[f"{level:g} live" for level in own["live_calls"]], in_flight=own["mean_in_flight"])
figures.show(figures.little_check, pd.concat([ours, theirs]), title="Little's law, on your run and on theirs")

# %% [markdown] name="queue-2"
# The law holds (it wants means and the record has medians, so not to the last digit), so the record is sound. And it
# tells what happened: more than half of the requests in flight had no token yet, on average. They were standing in a queue, and nearly all of that time to first token is standing. That
# the server let in only so many at a time is our reading; the record names no limit. "Concurrency" there means requests
# in flight, without a pause. No caller behaves like that, and a limit that you find this way is not one in live calls.

# %% [markdown] name="traps"
# ## 7. Three ways to fool yourself
#
# **The start burst.** Let all callers speak their first word at the same moment, as a test script likes to do:

# %% name="burst"
callers = sweep.nearest(sweeps.BURST_LEVEL)  # a level that your sweep has, if it was stopped early
burst = sweeps.run(server, time_lapse, (callers,), seconds=6, warmup_s=0, burst=True, kept=sweeps.BURST)
runs = {"all at once": burst.measured, "spread": sweep.at(callers)}
both = pd.concat([rows[rows["turn"] == 0].assign(run=name) for name, rows in runs.items()])
both[sweeps.CLOCK] = sweeps.waits_ms(both)  # who got no answer waited longer than any limit
told = showcases.summary(both, metric=sweeps.CLOCK)
title = f"First turns of {callers} callers"
figures.show(figures.percentiles_by_run, told, limit_ms=LIMIT_MS, title=title)

# %% [markdown] name="burst-2"
# Real callers do not pick up the phone in the same second. Some published tables have no other requests than such a
# burst: as many prompts in all as may be in flight. Their P95 is the time to work off a heap.
#
# **Longer answers, shorter waits.** A client that keeps at most so many requests in flight holds the others back, and
# many tools count TTFT from sending. Here the same arrivals meet longer and longer answers (a small model, no server):

# %% name="longer"
longer = showcases.longer_answers_under_a_cap((64, 128, 192))
clocks = {"from sending": "ttft_ms", "from when due": "due_to_ttft_ms"}
told = pd.concat([showcases.summary(longer, metric=at).assign(clock=clock) for clock, at in clocks.items()])
told = told.sort_values("run", kind="stable", key=lambda runs: runs.str.extract(r"(\d+)")[0].astype(int))
figures.show(figures.percentiles_by_run, told, title="Timed from sending, TTFT falls as answers get longer")

# %% [markdown] name="longer-2"
# By the first clock, longer answers made the server faster. In truth the cap moved the queue out of the server and
# into the client, where that clock does not look.
#
# **Coordinated omission.** The third is the same mistake in its purest form. A client planned to send at a fixed rate, but
# it waits for each answer before it sends the next. The server stands still for a second. One request is slow; all
# those that should have been sent meanwhile are sent later, and are fast.

# %% [markdown] name="ex-3-card"
# ### Exercise 3: the wait that was left out
#
# difficulty ●●○ · importance ●●● · 7 minutes
#
# For each request: when it was due, when it was sent, and when its first token came, in seconds. (`None`: it never
# came.) Return what each caller waited, in milliseconds. Who never got an answer waited longer than any limit.


# %% name="ex-3" tags=["exercise"]
def waits_ms(requests: list[tuple[float, float, float | None]]) -> list[float]:
    """Wait of each caller in ms; ``math.inf`` for one who never got an answer. ``(due_s, sent_s, first_s)``."""
    # --- your code: one number a request, in the same order
    waits = []
    for due_s, _, first_s in requests:
        waits.append(math.inf if first_s is None else (first_s - due_s) * 1000)
    return waits
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
exercise = check.Exercise(
    "07-3",
    hints=(
        "Since when does the caller wait: since your program got round to sending, or since the last word?",
        "For each request `(first_s - due_s) * 1000`, and `math.inf` where `first_s` is None.",
    ),
)
exercise.case(
    "sent two seconds late",
    waits_ms,
    args=([(1.0, 1.0, 1.25), (2.0, 4.0, 4.25)],),
    expect=[250.0, 2250.0],
    tolerance=0.001,
    mistakes=[
        (
            lambda result: np.allclose(result, [250.0, 250.0]),
            "From sending: the two seconds for which the second caller stood there are left out. That is coordinated omission.",
        ),
        (lambda result: np.allclose(result, [0.25, 2.25]), "That is in seconds. Multiply by 1000."),
        (
            lambda result: np.allclose(result, [0.0, 2000.0]),
            "That is how late it was sent. The caller waits until the first token.",
        ),
        (lambda result: min(result) < 0, "Later minus earlier."),
    ],
)
exercise.case(
    "one who never got an answer",
    waits_ms,
    args=([(0.0, 0.0, 0.5), (1.0, 1.0, None)],),
    expect=[500.0, math.inf],
    mistakes=[
        (
            lambda result: len(result) == 1,
            "You left out the one without an answer. A server would look better for failing.",
        ),
        (
            lambda result: result[1] is None or result[1] != result[1],
            "It cannot be compared with a limit, be it None or NaN. Nobody waits longer than `math.inf`.",
        ),
        (lambda result: result[1] == 0, "A wait of 0 is the best there is, and this is the worst."),
    ],
)
exercise.verdict()
waits_ms = exercise.use(waits_ms)

# %% name="omission"
omission = showcases.coordinated_omission()
patient, on_time = (rows for _, rows in omission.groupby("run", sort=False))
service_s = (patient["ttft_ms"] / 1000).to_numpy()
plan_s = on_time[
    "due_s"
].to_numpy()  # it meant to send at these moments, and sent when the answer before was there
sent_s = simulated.fifo(plan_s, service_s)
from_plan = waits_ms(list(zip(plan_s, sent_s, sent_s + service_s, strict=True)))
told = pd.concat([patient, patient.assign(run="the same, from its plan", ttft_ms=from_plan), on_time])
showcases.summary(told)[["run", "n", "p50_ms", "p95_ms", "p99_ms", "max_ms", "origin"]].round(0)

# %% name="figure-omission" tags=["figure"]
figures.show(figures.percentiles_by_run, showcases.summary(told), title="The same server, and who was asked")

# %% [markdown] name="omission-2"
# Two answers about one server. The patient client's P99 knows nothing of the pauses, although its slowest request saw one
# whole. Held against its own plan, the same run tells what independent callers would have met. Our load maker
# has `due_s` and `sent_s` in its table for this reason, and does not trust a run in which they part.

# %% [markdown] name="sure"
# ## 8. Yes, no, or not yet
#
# "P95 is at most the limit" is a yes/no question: at least nineteen of twenty answers come in time. So count. Lesson
# 05 had the smallest sample for which a "yes" is possible at all, with no slow answer in it. With some slow ones it
# takes more, and between yes and no lies a third answer.

# %% [markdown] name="ex-4-card"
# ### Exercise 4: the verdict
#
# difficulty ●●● · importance ●●● · 9 minutes
#
# Of `count` independent answers `slow` came too late. On the line itself, each is slow with a chance of 5 %, and
# `binom.cdf(k, count, 0.05)` is the chance of k slow ones or fewer; `binom.sf(k, count, 0.05)` that of *more than* k.
#
# Say `"holds"` if so few or fewer would be seen with a chance of at most 5 %, `"fails"` if so many or more would be, and
# `"open"` otherwise.


# %% name="ex-4" tags=["exercise"]
def verdict(slow: int, count: int) -> str:
    """``holds``, ``fails`` or ``open``: is P95 within the limit, asked with 95 % confidence either way?"""
    # --- your code: compare two chances with 0.05
    if binom.cdf(slow, count, 0.05) <= 0.05:
        return "holds"
    if binom.sf(slow - 1, count, 0.05) <= 0.05:
        return "fails"
    return "open"
    # --- end


# %% name="ex-4-check" tags=["check"]
# Check of exercise 4: run this cell after yours.
exercise = check.Exercise(
    "07-4",
    hints=(
        "If the server were exactly on the line: how surprising would it be to see so few slow ones? So many?",
        "`binom.cdf(slow, ...)` for so few or fewer; for so many or more `binom.sf(slow - 1, ...)`.",
    ),
)
exercise.case(
    "none of 20 slow",
    verdict,
    args=(0, 20),
    expect="open",
    mistakes={
        "fails": "Not one was slow: nothing speaks for a no. What is not proved is not refuted, it is open.",
        "holds": "All were in time, but 20 answers contain none of the slowest twentieth more often than once in three tries.",
    },
)
exercise.case(
    "none of 58 slow",
    verdict,
    args=(0, 58),
    expect="open",
    mistakes={
        "holds": "58 is one short: the chance is still a little above 0.05. Use `cdf` itself, with no `slow - 1`."
    },
)
exercise.case(
    "none of 59 slow",
    verdict,
    args=(0, 59),
    expect="holds",
    mistakes={
        "open": "The chance is now just below 0.05: so few or fewer is `binom.cdf(slow, count, 0.05)`.",
        "fails": "So few slow ones would be a surprise on the line: that speaks for the server.",
    },
)
exercise.case(
    "3 of 20 slow",
    verdict,
    args=(3, 20),
    expect="open",
    mistakes={
        "fails": "A share of more than 5 % is no proof: on the line, three or more of 20 are seen once in thirteen tries. "
        "If you did use `sf`: it means *more than*, so ask it for `slow - 1`.",
        "holds": "So few would be no surprise at all here. Which of the two chances did you compare?",
    },
)
exercise.case(
    "4 of 20 slow",
    verdict,
    args=(4, 20),
    expect="fails",
    mistakes={
        "open": "Four or more of 20 would be seen in fewer than one try of fifty: that is too many for the line.",
        "holds": "So many slow ones would be a surprise on the line: that speaks against the server.",
    },
)
exercise.case("12 of 400 slow", verdict, args=(12, 400), expect="holds")
exercise.case("13 of 400 slow", verdict, args=(13, 400), expect="open")
exercise.verdict()
verdict = exercise.use(verdict)

# %% name="verdict-own"
by_turns = [verdict(row.turns - round(row.share * row.turns), row.turns) for row in curve.itertuples()]
curve[["live_calls", "n", "turns", "share", "verdict"]].assign(counting_turns=by_turns).round(3)

# %% [markdown] name="correlated"
# Two columns of verdicts, and they may differ. Yours counts every turn as a witness. But turns of one call are not
# independent: a call with a long history, or one that fell into a bad moment, is slow turn after turn. The other column
# takes the **call** as the unit and asks how alike its turns are. In simulations with correlated turns the plain count
# is wrong far more often than it says; the careful one comes much closer (`python -m benchmarks.search`).

# %% name="own-attainment"
last = sweep.at(int(curve["live_calls"].iloc[-1]))
print(slo.attainment(last, LIMIT_MS, metric=sweeps.CLOCK).sentence())

# %% [markdown] name="search"
# ## 9. The search
#
# A grid would spend most of its calls where the answer is plain. A search doubles until the promise breaks, then
# halves the gap; it gives a level few calls if they settle it and more if they do not. At the end comes a **fresh** run
# at the answer, because a search that stopped where it liked the result flatters itself. (Up to two minutes. The stop
# button ends it with what is known.)

# %% name="run-search"
tables = []
measure = sweeps.measure(server, time_lapse, most_s=25, keep=tables, kept=sweeps.SEARCH)
found = search.limit(
    measure,
    limit_ms=LIMIT_MS,
    metric=sweeps.CLOCK,
    low=sweeps.first_level(curve, LIMIT_MS),  # below it the sweep was plain, and few lines take long
    seconds=75,
    say=print,
    **sweeps.SEARCH_SETTINGS,
)

# %% name="figure-search" tags=["figure"]
figures.show(
    figures.search_path,
    found.probes,
    answer=found.live_calls or None,
    unit="live calls, time-lapse",
    title="Where the search spent its calls",
)

# %% name="found"
print(found.sentence())

# %% [markdown] name="found-2"
# Read that sentence slowly: an estimate, a level that surely keeps the promise (or none), one that surely breaks it, the
# fresh run, and how many more calls would settle it. With the calls of a minute the honest answer is often "open". For a
# number on which money hangs, let it run for an hour. A level whose true share *is* nineteen of twenty can never be
# settled.
#
# The search may contradict the sweep about a level. It had other callers (another `seed`), and callers who are live
# together meet in the server: some sets of them come in waves. So even calls are not quite independent, and one short run
# is surer of itself than it should be. A number for others to rely on takes several runs.

# %% [markdown] name="convert"
# How many are that in real time? By the duty cycle of section 3, from the requests that were in flight in the last
# measurement:

# %% name="predict"
predicted = 0
if tables and duty > 0:
    level, flying = found.probes["live_calls"].iloc[-1], calls.mean_in_flight(tables[-1])
    predicted = round(calls.agents(flying, duty))
    print(f"{level} live calls in time-lapse kept {flying:.1f} requests in flight: {predicted} in real time.")
else:
    print("Nothing to convert: the search or the first run measured nothing. See above what to do.")

# %% [markdown] name="predict-2"
# A prediction that nobody tests is an opinion. Test it (with sixty live calls at most):

# %% name="check-prediction"
lines = min(max(predicted, 1), 60)
tested = sweeps.run(server, real_time, (lines,), seconds=14, warmup_s=6, kept=sweeps.REAL_TIME)
if untested := sweeps.beside(predicted, tested, LIMIT_MS):
    print(untested)
columns = ["live_calls", "n", "turns", "p50_ms", "p95_ms", "share", "in_flight", "duty_cycle", "origin"]
shown = sweeps.curve(tested, LIMIT_MS)[columns].round(2) if len(tested.measured) else tested.levels
shown

# %% [markdown] name="check-prediction-2"
# Compare the duty cycle with the one you started from. It is not a constant: a busy server holds every request longer, so
# each call needs more of it, and a conversion with the duty cycle of an idle server promises too many calls. Whether the
# card's factor was found under load, the card does not say. **Measure in the unit that you sell.**

# %% [markdown] name="tools"
# ## 10. The field's tools
#
# You now know what to ask of any load tool: which unit its concurrency has, from when its clock counts, and what it calls
# the first token. Here are three of them (aiperf 0.13.0, guidellm 0.8.1, the `vllm bench serve` of vLLM 0.27.1), and
# ours, against one server whose true times are known (recorded; `python -m benchmarks.load_tools` does it again). For each
# kind of stream, the event at which each tool's TTFT stops:

# %% name="tool-table"
meanings = load_tools.meanings()
meanings[meanings["common"] == "TTFT"].pivot(index="stream", columns="tool", values="fires_on")

# %% name="tool-numbers"
median = meanings.pivot(index=["stream", "common"], columns="tool", values="p50_ms")
median.round(1).assign(origin=meanings["origin"].iloc[0])

# %% [markdown] name="tools-2"
# First the events, then the medians in ms; a gap means that the tool has no such number. Where two mean the same, they
# agree closely; where they do not, no statistics will help. And the unit: aiperf counts a session as live while its
# caller thinks, guidellm gives the place to somebody else. So the same "concurrency" is a different load, and while
# there are callers enough to take the places the ratio is the duty cycle again. `load_tools.aiperf(server, ...)` and
# `load_tools.guidellm(...)` give you either tool's requests in the table of this lesson.

# %% [markdown] name="b200"
# ## 11. A B200 nobody here has
#
# Apart from two of the traps, everything so far was measured. From here on it is **modelled**, and a model must first say
# how wrong it is. Ours is small: a step takes as long as reading the weights that it wakes, or as its arithmetic, plus a
# fixed cost a layer; the phone line of this lesson runs on it in virtual time. Beside it stand two tools of the field,
# aiconfigurator and dynamo.replay (recorded). Each gets one correction factor for each GPU and format, fitted on one named
# point. All other runs in `data/calibration.csv` are the test. (dynamo.replay can do one of these runs only, the one of
# its factor, so no test of it is left.)

# %% name="calibration"
calibration.summary().round(2)

# %% name="figure-calibration" tags=["figure"]
figures.show(figures_capacity.predictions, calibration.table(), title="Predicted against published")

# %% [markdown] name="calibration-2"
# `median_error` says how far off the median point is after the correction, `raw_median_error` before it, and `within_goal`
# whether the first is at most a quarter, the goal that was set beforehand. Time per token can be predicted. Time to first
# token hardly can: even with one request at a time ours mostly comes out too low, most likely since a server does more
# before a first token than steps. And over all its points ours misses the goal. Some points no model explains, and they
# are left unexplained:

# %% name="unexplained"
pd.DataFrame({"point": list(calibration.OPEN), "what is known": list(calibration.OPEN.values())})

# %% [markdown] name="b200-curve"
# With that in mind: the same callers (the support call in real time, not the short one) on a modelled B200. One thing
# sets dynamo.replay apart: its prefix cache has small blocks and finds the system prompt of each call; in ours, as in
# vLLM, the block is longer than that prompt, and nothing is found.

# %% name="figure-b200" tags=["figure"]
figures.show(
    figures_capacity.live_call_curves,
    b200.recorded_curves(),
    limit_ms=LIMIT_MS,
    title="A modelled B200: P95 TTFAT against live calls",
)

# %% name="b200-answers"
columns = ["who", "load", "number", "factor", "max_num_seqs", "in_flight", "duty_cycle", "origin"]
b200.recorded_answers()[columns].round(2)

# %% name="b200-sentences"
print(b200.sentences())

# %% [markdown] name="b200-moves"
# The most useful part of a model is not its number but what moves it. Each bar differs in one thing from the first: BF16,
# with its correction and 128 seats (the table above has more). NVFP4 stands there twice: with the correction of BF16, so
# that only the format differs, and with its own. Bars that are closer than about 5 % are alike:

# %% name="figure-b200-cases" tags=["figure"]
figures.show(figures_capacity.capacity_cases, b200.recorded_cases(), title="What moves the answer (modelled)")

# %% [markdown] name="b200-panel"
# Look at the system prompt: a longer one can carry *more* calls. It pays once it is longer than a block of the prefix
# cache, which is large in a hybrid Mamba model (lesson 05), and costs again when it grows further. Now your own GPU: put
# in its bandwidth, its arithmetic, its memory and its price. (The answer takes a few seconds.)

# %% name="panel"
panel = panels_capacity.CapacityPanel()
panel.show()

# %% [markdown] name="keep"
# ## 12. Keep what you measured
#
# Saving never overwrites an earlier run.

# %% name="save"
if server.origin == "measured":
    print(first.save("07-first"))
else:
    print("A replayed run is not saved. These are the runs that you saved from a live server:")
load.compare()

# %% [markdown] name="keep-limit-note"
# And the limit itself, in real-time live calls, with its interval: lesson 08 turns it into a price. The search was in
# time-lapse, so it is converted once more, this time by the duty cycle *at that load*; and what the run in real time
# proves counts more than any conversion.

# %% name="keep-limit"
if server.origin == "measured" and found.live_calls:
    kept = {"tables": tables, "real_time": first.requests, "tested": tested}
    print("kept as", limits.keep(found, server, kind=real_time, **kept))
elif server.origin == "measured":
    print("Your search found no limit, so none is kept. The newest that there is:")
print(limits.latest().sentence())

# %% [markdown] name="recap"
# ## Recap
#
# - A live call is not a request in flight. The duty cycle converts them, and it grows with the load.
# - Calls arrive open, turns inside a call are closed. Count from when a request was due.
# - P95 breaks before P50 notices. Goodput is the part that keeps the promise.
# - Little's law checks any run, yours or a published one. A long wait is often a queue.
# - Bursts, caps and patient clients make servers look worse or better than they are.
# - "P95 within the limit" holds, fails or is open. The calls are the witnesses, not their turns.
# - A search says how sure it is, and a fresh run confirms it. A model says first how wrong it is.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "07-q1",
    "A report says that a server kept its promise with so many requests in flight. How many live calls is that?",
    [
        quiz.Option("As many", why="Only if callers never speak, listen or think."),
        quiz.Option(
            "Fewer: a call has several turns",
            why="One after the other: a call has at most one request in flight.",
        ),
        quiz.Option(
            "More, by one over the duty cycle; and the duty cycle has to be measured under that load",
            right=True,
            why="A busy server holds each request longer, so the idle duty cycle promises too much.",
        ),
        quiz.Option(
            "Twice as many", why="That is one card's factor, and it does not say where it comes from."
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "07-q2",
    "A client waits for each answer before it sends the next request. The server stood still for a second, once. "
    "What does the client's P99 say about that?",
    [
        quiz.Option(
            "Next to nothing",
            right=True,
            why="One request was slow. Those that should have been sent meanwhile were sent later, and were fast.",
        ),
        quiz.Option(
            "It rises to about a second", why="It would, if requests had gone on arriving meanwhile."
        ),
        quiz.Option("It becomes unbounded", why="Every request got its answer; one of many was slow."),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "07-q3",
    "Twenty calls of five turns each, and not one turn was too slow. May you say that P95 is within the limit?",
    [
        quiz.Option(
            "Yes: a hundred turns without a slow one are enough",
            why="A hundred independent ones would be. Turns of one call are not independent.",
        ),
        quiz.Option(
            "Not yet",
            right=True,
            why="The calls are the witnesses, and twenty are too few: none of twenty being slow is no surprise even on the line.",
        ),
        quiz.Option("No: it fails", why="Nothing speaks against it. The question is open."),
    ],
)

# %% name="progress"
progress.show("07")

# %% [markdown] name="next"
# ## Next
#
# **08 · What a minute costs** divides the price of a GPU by the number you found.
