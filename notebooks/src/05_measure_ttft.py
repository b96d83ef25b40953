# %% [markdown] name="title"
# # 05 · Measure TTFT
#
# A stopwatch around a request looks like the easiest thing in the world. In this lesson you write one, and then
# catch it being wrong, and not by a little, on the server that runs behind this notebook. After that you know what
# to time, how often, and how much to believe of the result.
#
# | | |
# |---|---|
# | **You will** | write a timer, break it, mend it; time prompts of several lengths, cold and cached, with thinking on and off; put an interval on a P95; time the same server with another tool and compare with the server's own clock |
# | **You will learn** | the definitions of TTFT, TTFAT, ITL, TPOT and end-to-end, and why two tools disagree about them |
# | **You need** | lesson 00; a little Python |
# | **Time** | 50 minutes, of which the cells run for about two |

# %% name="setup" tags=["setup"]
import time

import numpy as np
import pandas as pd
from openai import OpenAI

from helpers import api, check, engine, figures, latency, opinions, practice, progress
from helpers import prompts, published, quiz, runs, sdk, stats, streaming

# %% name="connect"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole
server = engine.connect()

# %% [markdown] name="why"
# ## 1. Four numbers that are not the same
#
# These are all published about one model, and each could be called its latency:

# %% name="published-numbers"
published.show("card.single_request", "chart.ttfat_p50", "card.ttfat_ceiling", "card.llm_line")

# %% [markdown] name="why-2"
# One is for a single request, two are for a GPU full of callers (one measured, one a limit), one is a line in a plan.
# And one letter is easy to overlook: TTF**A**T, with an A, is another clock than TTFT (section 3). To compare numbers
# you have to know what was timed. So we begin there.

# %% [markdown] name="naive"
# ## 2. A naive timer
#
# The obvious timer: start the clock, ask for a stream, stop the clock when the first thing arrives.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: write the naive timer
#
# difficulty ●○○ · importance ●●● · 6 minutes
#
# `client.chat.completions.create(**request)` gives you a stream, because the requests below say `stream=True`;
# `next(iter(stream))` waits for its first chunk. Use `time.perf_counter()` for the clock: it counts seconds and never
# jumps, as the clock on the wall can.

# %% name="client"
client = sdk.client(server)  # an ordinary OpenAI(base_url=..., api_key=...)


# %% name="requests"
plain = streaming.chat_request(prompts.conversation(prompts.HELLO), max_tokens=24)
tool = streaming.chat_request(
    prompts.conversation("Where is order 1234?"),
    max_tokens=60,
    tools=[prompts.ORDER_TOOL],
    tool_choice="required",
)


# %% name="ex-1" tags=["exercise"]
def naive_ttft_ms(client: OpenAI, request: dict) -> float:
    """Milliseconds from asking for a stream to its first chunk. ``request``: all arguments of ``create``."""
    # --- your code: start the clock, create the stream, wait for one chunk, stop the clock
    begun = time.perf_counter()
    stream = client.chat.completions.create(**request)
    next(iter(stream))
    return (time.perf_counter() - begun) * 1000
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "05-1",
    hints=(
        "Four lines: clock, stream, first chunk, clock.",
        "`begun = time.perf_counter()`, then `stream = client.chat.completions.create(**request)`, then "
        "`next(iter(stream))`; the difference of two clock readings is in seconds.",
    ),
)
exercise.case(
    "a server whose headers come after 30 ms and its first chunk after 60 ms",
    naive_ttft_ms,
    args=(practice.Client(open_ms=30, role_ms=60, text_ms=210), {"stream": True}),
    expect=lambda ms: 59 <= ms < 200,
    mistakes=[
        (lambda ms: 0.059 <= ms < 0.2, "That is in seconds. Multiply by 1000."),
        (
            lambda ms: ms > 10_000,
            "Check the units: `time.perf_counter()` counts seconds, so multiply by 1000 once.",
        ),
        (lambda ms: 0 <= ms < 5, "You stopped the clock before anything had come."),
        (
            lambda ms: 25 <= ms < 45,
            "You left out one of the two waits: start the clock before `create`, stop it after the first chunk.",
        ),
        (lambda ms: ms >= 200, "You waited for a later chunk, or for the whole reply."),
        (lambda ms: ms < 0, "Later minus earlier, not the other way round."),
    ],
)
exercise.verdict()
naive_ttft_ms = exercise.use(naive_ttft_ms)

# %% [markdown] name="try-naive"
# Now time two requests with it: a plain question, and one that makes the model call a tool, that is, answer with the
# name of a function and its arguments. (A voice agent does that all the time: to find an order, to book a table.) The first run of each is thrown away, so that both are
# warm.

# %% name="run-naive"
naive = {}
for name, request in {"plain": plain, "tool call": tool}.items():
    naive_ttft_ms(client, sdk.arguments(server, request))
    naive[name] = naive_ttft_ms(client, sdk.arguments(server, request))
pd.Series(naive).round(1).rename("naive timer, ms")

# %% [markdown] name="suspicious"
# Both look alike. Believable? Here are the same two requests once more, with every chunk kept.

# %% name="catch"
replies = {"plain": streaming.ask(server, plain), "tool call": streaming.ask(server, tool)}
chunks = latency.chunk_table(replies)
figures.show(figures.stream_timeline, chunks, title="What the naive timer saw, and what the caller got")

# %% name="catch-numbers"
rows = {name: latency.measure(reply) for name, reply in replies.items()}
pd.DataFrame(
    {name: {"first chunk": row.first_chunk_ms, "first token": row.ttft_ms} for name, row in rows.items()}
).T.assign(error=lambda frame: frame["first token"] - frame["first chunk"]).round(1)

# %% [markdown] name="caught"
# Caught. The first chunk is `role: assistant`, with nothing in it. On the plain question this server happens to
# send it together with the first word, so the naive timer is right by luck. For the tool call it is sent while the
# model is still writing the beginning of the call, which the server holds back until the tool's name is complete. A
# timer that you checked on plain questions only would never have told you.
#
# It can be worse. `create()` itself returns as soon as the *headers* of the response are there. That number is
# smaller still:

# %% name="headers"
begun = time.perf_counter()
stream = client.chat.completions.create(**sdk.arguments(server, plain))
headers_ms = (time.perf_counter() - begun) * 1000
stream.close()
print(
    f"create() returned after {headers_ms:.1f} ms; the first token came after {rows['plain'].ttft_ms:.1f} ms"
)

# %% [markdown] name="definitions"
# ## 3. What to time
#
# A chunk can bring several kinds of thing, and the caller waits for only some of them. The course uses one set of
# definitions, all counted from the moment before the request is sent:
#
# | | stops at | why |
# |---|---|---|
# | **TTFT**, time to first token | the first non-empty token of any kind: answer, thinking or tool call | the server has begun to produce |
# | **TTFAT**, time to first answer token | the first token that the caller would get: answer text or a tool call | what a voice can begin with |
# | **ITL**, inter-token latency | the gap between one token-bearing chunk and the next | does the answer keep up with the voice? |
# | **TPOT**, time per output token | from first token to last (a token that means "stop" counts, and comes with the chunk that says so), divided by the number of tokens less one | the server's speed, chunks or not |
# | **end-to-end** | the last event | the whole |
#
# With thinking off, TTFT and TTFAT are the same. With thinking on they are far apart, and only the second is
# what a caller feels. The definitions, with reasons and sources, are at the top of `helpers/latency.py`: open it
# once.

# %% [markdown] name="ex-2-card"
# ### Exercise 2: the two clocks
#
# difficulty ●●○ · importance ●●● · 8 minutes
#
# Below, a stream is a list of `(at_ms, kind, text)`. The kinds are `role`, `reasoning` (thinking), `answer`,
# `tool_call`, `usage` and `finish`. Write both clocks. A stream may have no token at all: then return `None`.


# %% name="ex-2" tags=["exercise"]
def ttft_ms(stream: list[tuple[float, str, str]]) -> float | None:
    """Time of the first non-empty token of any kind, in ms; None if there is none."""
    # --- your code: reasoning, answer and tool_call count, if their text is not empty
    for at_ms, kind, text in stream:
        if kind in ("reasoning", "answer", "tool_call") and text:
            return at_ms
    return None
    # --- end


def ttfat_ms(stream: list[tuple[float, str, str]]) -> float | None:
    """Time of the first non-empty token that the caller would get, in ms; None if there is none."""
    # --- your code: as above, but thinking does not count
    for at_ms, kind, text in stream:
        if kind in ("answer", "tool_call") and text:
            return at_ms
    return None
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
thinks = [(80.0, "role", ""), (80.2, "reasoning", "Hm"), (110.0, "reasoning", "."), (400.0, "answer", "Yes")]
empty_first = [(70.0, "role", ""), (71.0, "answer", ""), (105.0, "answer", "Hello"), (105.5, "usage", "")]
calls = [(97.0, "role", ""), (487.0, "tool_call", "find_order"), (520.0, "tool_call", "{")]
nothing = [(60.0, "role", ""), (90.0, "finish", "stop"), (90.1, "usage", "")]

exercise = check.Exercise(
    "05-2",
    hints=(
        "Which kinds are words that the model made? And which of those does the caller get?",
        "One loop: `for at_ms, kind, text in stream`, and return `at_ms` at the first row whose kind is in your "
        "list and whose text is not empty.",
    ),
)
role = "You stopped at the role-only chunk: it carries no token."
exercise.case(
    "TTFT with thinking",
    ttft_ms,
    args=(thinks,),
    expect=80.2,
    mistakes={
        80.0: role,
        400.0: "You skipped the thinking. A token of thinking is as much work as any; TTFT counts it.",
    },
)
exercise.case(
    "TTFAT with thinking",
    ttfat_ms,
    args=(thinks,),
    expect=400.0,
    mistakes={
        80.0: role,
        80.2: "The caller does not get the thinking.",
    },
)
exercise.case(
    "an empty answer first",
    ttfat_ms,
    args=(empty_first,),
    expect=105.0,
    mistakes={
        71.0: "That chunk's text is empty: no token yet.",
        70.0: role,
    },
)
exercise.case("TTFT of a tool call", ttft_ms, args=(calls,), expect=487.0, mistakes={97.0: role})
exercise.case(
    "TTFAT of a tool call",
    ttfat_ms,
    args=(calls,),
    expect=487.0,
    mistakes={
        97.0: role,
        None: "A tool call is what this turn was for: it counts as the answer.",
    },
)
exercise.case(
    "no token at all",
    ttft_ms,
    args=(nothing,),
    expect=None,
    mistakes={
        0: "No token is not a time of 0: a 0 would pull every average down.",
        90.0: "The end is not a token.",
    },
)
exercise.verdict()
ttft_ms = exercise.use(ttft_ms)
ttfat_ms = exercise.use(ttfat_ms)

# %% name="use-clocks"
for name, reply in replies.items():
    stream = [(round(delta.at_ms, 1), delta.kind, delta.text) for delta in latency.deltas(reply)]
    print(f"{name}: TTFT {ttft_ms(stream)} ms, TTFAT {ttfat_ms(stream)} ms")

# %% [markdown] name="chunks-not-tokens"
# ## 4. Chunks are not tokens
#
# It is tempting to count chunks and call them tokens. Make the model say something with emoji in it (a choice of
# one sentence, so it has no choice) and look:

# %% name="emoji"
emoji = streaming.ask(
    server,
    prompts.conversation("Greet me."),
    max_tokens=60,
    structured_outputs={"choice": ["👋🏽 Hello! 🚲 🧑‍🔧"]},
)
row = latency.measure(emoji)
print(f"{row.answer!r}: {row.chunks} chunks with text, {row.completion_tokens} tokens counted by the server")

# %% name="figure-emoji" tags=["figure"]
figures.show(
    figures.stream_timeline, latency.chunk_table({"emoji": emoji}), title="An emoji is several tokens"
)

# %% [markdown] name="held-back"
# An emoji is several bytes, and a token may end in the middle of it. The server holds such a piece back until the
# character is whole, so one chunk holds several tokens, and the first chunk with text comes later than the first
# token was made. Busy servers, and flags such as vLLM's `--stream-interval`, also put several tokens into a
# chunk. So: gaps between chunks are gaps between chunks. For time per *token*, take the token count from the
# server's `usage`.

# %% [markdown] name="ex-3-card"
# ### Exercise 3: time per output token
#
# difficulty ●●○ · importance ●●○ · 5 minutes
#
# From the time of the first token, the time of the last, and the number of tokens in `usage`: how long does one
# token take? Careful with the number of steps. (Where a server holds back the first tokens, as above, the result comes
# out a little low: the first token was made before the first text came.)


# %% name="ex-3" tags=["exercise"]
def tpot_ms(first_ms: float, last_ms: float, completion_tokens: int) -> float:
    """Milliseconds per output token after the first."""
    # --- your code: between n tokens there are n - 1 steps
    return (last_ms - first_ms) / (completion_tokens - 1)
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
exercise = check.Exercise(
    "05-3",
    hints=(
        "How many steps are there from the first of five fence posts to the last?",
        "The time from first to last token, divided by one less than the number of tokens.",
    ),
)
exercise.case(
    "21 tokens, the first at 100 ms and the last at 700 ms",
    tpot_ms,
    args=(100.0, 700.0, 21),
    expect=30.0,
    tolerance=0.01,
    mistakes={
        28.571: "21 tokens have 20 steps between them.",
        27.273: "21 tokens have 20 steps between them, one fewer, not one more.",
        33.333: "You divided the whole time; the wait before the first token is TTFT, not TPOT.",
        35.0: "You divided the whole time; the wait before the first token is TTFT, not TPOT.",
    },
)
exercise.case("two tokens, 25 ms apart", tpot_ms, args=(400.0, 425.0, 2), expect=25.0, tolerance=0.01)
exercise.verdict()
tpot_ms = exercise.use(tpot_ms)

# %% name="tpot-emoji"
by_chunks = np.mean(row.itl_ms)
first, tokens = row.ttft_ms, row.completion_tokens or row.chunks  # a server that counts none: count chunks
last = max(delta.at_ms for delta in latency.deltas(emoji) if delta.kind in ("answer", "finish"))
print(f"mean gap between chunks {by_chunks:.0f} ms, but per token {tpot_ms(first, last, tokens):.0f} ms")

# %% [markdown] name="cold"
# ## 5. The first request is often not like the others
#
# A server that has just started still has things to load, to compile and to allocate: it is cold. The engine behind
# this notebook timed its own very first requests, when it was born, since a server is cold only once. (The same short
# greeting three times, time to the first text.)

# %% name="birth"
born = engine.birth(server)
print(", ".join(f"{ms:.0f} ms" for ms in born) or "not known: this server was not started by the course")

# %% name="published-cold"
published.show("vllm.first_request_before", "vllm.first_request_after")

# %% [markdown] name="cold-2"
# On this CPU the difference is small. On a GPU with a hybrid Mamba model it was half a minute, because the first
# request compiled kernels, and seconds are left since vLLM warms up by itself. So **warm up with requests of the real shape before you time**, and when you report a number, say that
# you did.

# %% [markdown] name="length"
# ## 6. A longer prompt takes longer
#
# Before the first token the server reads the whole prompt: the **prefill**. Let us send system prompts of several
# lengths, each beginning with a call id that no server has seen, and then each once more. (Prompts can be cold, too: a
# **cold** prompt is one whose beginning the server has not computed before.)

# %% name="measure-length"
timed, marks = [], []
for lines in (1, 8, 18, 32):
    for _ in range(3):
        system = f"{prompts.call_id()} {prompts.AGENT}\n{prompts.rules(lines)}"
        request = streaming.chat_request(prompts.conversation(prompts.HELLO, system=system), max_tokens=2)
        timed += [("cold", streaming.ask(server, request)), ("cached", streaming.ask(server, request))]
        marks += [lines, lines]
lengths = latency.table([reply for _, reply in timed], cache=[cache for cache, _ in timed])
lengths["prompt_tokens"] = lengths.groupby(marks)["prompt_tokens"].transform(
    "median"
)  # ids differ by a token
lengths.pivot_table(
    index="prompt_tokens", columns="cache", values=["ttft_ms", "cached_tokens"], aggfunc="median"
)

# %% name="figure-length" tags=["figure"]
figures.show(
    figures.ttft_by_prompt_length, lengths, title="TTFT grows with the part of the prompt that is new"
)

# %% name="prefill-rate"
cold = lengths[lengths["cache"] == "cold"].dropna(subset=["prompt_tokens", "ttft_ms"])
if len(cold) > 1:
    slope, base = np.polyfit(cold["prompt_tokens"], cold["ttft_ms"], 1)
    print(
        f"100 new tokens cost {100 * slope:.0f} ms here: a prefill of about {1000 / slope:,.0f} tokens a second"
    )
else:
    print("This server does not say how many tokens a prompt has.")

# %% [markdown] name="prefix-cache"
# The second time, the server found the beginning of the prompt in its **prefix cache** and computed only the rest.
# Look at the column `cached_tokens`: the cache counts in whole blocks, so the shortest prompt was computed twice, and a
# long one that ends with a block can be faster than a short one. What counts is the number of *new* tokens. A phone agent lives from this: its system prompt is long and the same in every call, so it is computed once. But
# only if it really is the same *from the first character on*. Where would you put the id of the call?

# %% name="id-first-or-last"
rules = prompts.rules(18)
places = {
    "call id first": lambda: f"{prompts.call_id()} {prompts.AGENT}\n{rules}",
    "call id last": lambda: f"{prompts.AGENT}\n{rules}\n{prompts.call_id()}",
}
for place, system in places.items():
    asked = [
        streaming.chat_request(prompts.conversation(prompts.HELLO, system=system()), max_tokens=2)
        for _ in range(4)
    ]
    later = latency.table(streaming.ask_many(server, asked, concurrency=1))["ttft_ms"][
        1:
    ]  # the first fills the cache
    print(f"{place}: median TTFT {later.median():.0f} ms")

# %% [markdown] name="prefix-trap"
# One line of a template, and a large part of the budget. PhoneLLM is a hybrid: most of its layers that look back are
# Mamba layers, which keep one running state instead of a cache entry for each token. A prefix can be taken up only
# where that state was kept, so the blocks are far larger. For a model of the same family and size somebody saw this:

# %% name="published-block"
published.show("vllm.mamba_block")

# %% [markdown] name="thinking"
# ## 7. Thinking out loud, and not
#
# PhoneLLM's chat template switches thinking **on** unless the request says otherwise, and its makers say: switch it
# off, because it was trained without. There is another reason. `thinking_token_budget` lets this small model think for
# a number of tokens and then makes it stop; in the first row thinking is off altogether.

# %% name="measure-thinking"
thinking = []
for budget in (0, 10, 40):
    extra = {"thinking_token_budget": budget} if budget else {}
    request = streaming.chat_request(
        prompts.conversation(prompts.HELLO),
        max_tokens=budget + 12,
        thinking=budget > 0,
        ignore_eos=True,
        **extra,
    )
    label = f"thinking, {budget} tokens" if budget else "thinking off"
    thinking += [(label, streaming.ask(server, request)) for _ in range(3)]
thoughts = latency.table([reply for _, reply in thinking], label=[label for label, _ in thinking])
thoughts.groupby("label", sort=False)[["ttft_ms", "ttfat_ms"]].median().round(0)

# %% name="figure-thinking" tags=["figure"]
figures.show(figures.latency_bars, thoughts, title="Thinking leaves TTFT alone and moves TTFAT")

# %% [markdown] name="thinking-2"
# TTFT hardly moves. TTFAT grows with every token of thought, at one ITL each. Whoever quotes TTFT for a model that
# thinks is quoting a moment at which the caller still hears nothing.

# %% [markdown] name="samples"
# ## 8. How many requests does a P95 need?
#
# A limit such as "1500 ms at P95" is about the tail. So send the same short request many times, one after the other,
# and see what the P95 is worth as the numbers come in. (A call id at the end keeps the requests different, as calls
# are. Five requests go first and are not counted.)
#
# The P95 of your sample is only an **estimate** of the server's true P95: another sample would give another one. So a
# P95 comes with an **interval**, made so that such intervals hold the true value in at least 95 of 100 samples; that is
# its **confidence**. An interval has two sides, a lower and an upper end. If you only want to promise "not slower than",
# the upper end alone will do: that is **one-sided**, and needs a little less data.


# %% name="two-helpers"
def server_clock() -> pd.DataFrame | None:
    """The server's own TTFT histogram so far, or None if it shows none."""
    try:
        return api.histogram(api.metrics(server), "vllm:time_to_first_token_seconds")
    except api.CourseError:
        return None


def short_requests(count: int) -> list[dict]:
    """``count`` short questions, each with a call id of its own."""
    texts = [f"{prompts.HELLO} {prompts.call_id()}" for _ in range(count)]
    return [streaming.chat_request(prompts.conversation(text), max_tokens=1) for text in texts]


# %% [markdown] name="measure-many-note"
# The next cell takes about half a minute.

# %% name="measure-many"
streaming.ask_many(server, short_requests(5), concurrency=1)
before = server_clock()
many = latency.table(streaming.ask_many(server, short_requests(200), concurrency=1))
after = server_clock()
print(stats.percentile(many["ttft_ms"][:20], 0.95).sentence())
print(stats.percentile(many["ttft_ms"], 0.95).sentence())

# %% name="figure-samples" tags=["figure"]
growing = pd.DataFrame(
    [vars(stats.percentile(many["ttft_ms"][:n], 0.95)) for n in (10, 20, 40, 60, 80, 100, 150, 200)]
).assign(origin=server.origin, server=server.name)
figures.show(
    figures.percentile_by_samples,
    growing,
    name="P95 of TTFT",
    title="A P95 needs more requests than one thinks",
)

# %% [markdown] name="samples-2"
# These are two-sided intervals. With few requests the upper end is **unbounded**: nothing you saw rules out that the true P95 is far
# higher. That is no weakness of this method. Twenty requests contain one from the worst twentieth, on average, and
# more often than once in three tries none.

# %% [markdown] name="ex-4-card"
# ### Exercise 4: the smallest sample that says anything
#
# difficulty ●●● · importance ●●● · 8 minutes
#
# This is about the upper end alone, one-sided. Each request is under the true P95 with a chance of 95 %. If **all** of your n requests are under it, then even your
# slowest one is, and you have seen nothing of the tail. How large must n be so that this happens with a chance of at
# most 5 %?


# %% name="ex-4" tags=["exercise"]
def smallest_sample(q: float, risk: float) -> int:
    """The smallest n for which all n samples lie below the quantile q with a chance of at most ``risk``."""
    # --- your code: the chance for one is q; for n independent ones, q to the power n
    n = 1
    while q**n > risk:
        n += 1
    return n
    # --- end


# %% name="ex-4-check" tags=["check"]
# Check of exercise 4: run this cell after yours.
exercise = check.Exercise(
    "05-4",
    hints=(
        "What is the chance that two requests are both under the P95?",
        "Raise n from 1 until `q ** n` is no longer above `risk`.",
    ),
)
exercise.case(
    "P95 at 95 % confidence",
    smallest_sample,
    args=(0.95, 0.05),
    expect=stats.samples_needed(0.95, 0.95, sides=1),
    mistakes={
        1: "The chance must be at most the risk; with one request it is q.",
        58: "58 is one short: the chance is still a little above the risk.",
        20: "On average one of 20 is above, but with a chance of 36 % none is.",
        58.4: "A number of requests is whole: round up.",
        60: "59 is enough; 60 is one more than needed.",
    },
    tolerance=0.005,
)
exercise.case(
    "P99 at 95 % confidence",
    smallest_sample,
    args=(0.99, 0.05),
    expect=stats.samples_needed(0.99, 0.95, sides=1),
)
exercise.verdict()
smallest_sample = exercise.use(smallest_sample)

# %% name="needed"
for q in (0.5, 0.9, 0.95, 0.99):
    print(
        f"P{100 * q:g}: at least {smallest_sample(q, 0.05)} requests for an upper bound that holds at least 19 times in 20"
    )

# %% [markdown] name="several-hundred"
# That is the least, for the widest interval there is. For a P95 that you would print, take several hundred, and print
# the interval with it. And note what the interval does not know: the requests came one after the other, from one
# machine, within a minute, and what slows one down (another program, a warm processor) slows its neighbours down, too. It
# speaks for such a minute and no other. Run `measure-many` again and compare: if the two intervals do not even overlap,
# the machine was not the same machine.

# %% [markdown] name="server-clock"
# ## 9. What the server says itself
#
# vLLM keeps its own histogram of TTFT and shows it at `/metrics`. It counts from the arrival of the request at the
# server, so the network and your client are not in it; and it keeps buckets, not samples. The difference of two
# readings is what happened between them:

# %% name="client-vs-server"
if before is None or after is None:
    print("This server shows no histogram at /metrics. Many hosted ones do not.")
else:
    counts = (after["count"] - before["count"]).diff().fillna(after["count"] - before["count"])
    buckets = pd.DataFrame({"side": "server", "le_s": after["le"], "count": counts})
    both = pd.concat([many[["ttft_ms"]].assign(side="client"), buckets]).assign(
        origin=server.origin, server=server.name
    )
    figures.show(figures.client_vs_server, both, title="Your clock and the server's")

# %% [markdown] name="server-clock-2"
# Read the diamonds as "so many requests were at most this slow". Between two of them the server does not know. A P95
# taken from such a histogram is a guess between two bucket edges, and these edges are far apart just where a voice
# agent's limits are. Use the server's histogram to see *what happens in production*, and your own samples to make a
# claim.

# %% [markdown] name="tools"
# ## 10. The same server, another tool
#
# vLLM brings a benchmark of its own, `vllm bench serve`, and NVIDIA's `aiperf` is another that many use. Give them the
# same two kinds of request: one that thinks first, and one that calls a tool. (vLLM's tool runs now, in about half a
# minute. aiperf needs an environment of its own, nearly a gigabyte, so its rows are our recorded ones, unless you have
# made that environment: then it runs, too.)

# %% name="workloads"
workloads = opinions.workloads()
for name, load in workloads.items():
    print(f"{name}: {len(load.prompts)} requests, one at a time, such as {load.prompts[0]!r}")

# %% name="run-tools"
compared = opinions.compare(server, workloads)
compared.round(1)

# %% name="figure-tools-thinking" tags=["figure"]
thinks_first = compared[compared["workload"] == "thinks first"]
figures.show(figures.tool_comparison, thinks_first, title="A reply that thinks first")

# %% name="figure-tools-call" tags=["figure"]
calls_a_tool = compared[compared["workload"] == "calls a tool"]
figures.show(figures.tool_comparison, calls_a_tool, title="A reply that calls a tool")

# %% [markdown] name="tools-2"
# Look at the medians; the open mark is the slowest of a dozen or fewer, and no P95. On the tool call two tools agree and one is far off. Not because its clock is bad: it means
# something else by "first token". vLLM's tool, in this version, stops at the first chunk of any kind, which is your
# naive timer from exercise 1. And it has no TTFAT at all, so for a model that thinks it cannot tell you what a caller
# waits for. If aiperf's slowest is far above its median, that is the other kind of error: its many processes share this
# machine's cores with the engine, and some replies reach it late and all at once. Before you compare two published numbers, find out which chunk each stopped at.
#
# Are the clocks themselves equally good? `make bench` times streams whose true times are known, with all three tools.
# This is how far off each was when we ran it (a tool's TTFT minus the one in the server's log; so many streams at a
# time, the first of them started together):

# %% name="clocks"
opinions.clocks().round(1)

# %% [markdown] name="clocks-2"
# With one stream, and cores to spare, any of them will do. With many, a client that starts a burst begins the clocks
# before the requests are on the wire, and one that is busy with one stream stamps another one late. Both errors land
# in the tail: just where your limit is. Look at a tool's own delay before you believe its P99.

# %% [markdown] name="keep"
# ## 11. Keep what you measured
#
# Lesson 06 puts your own TTFT into the budget. Saving never overwrites an earlier run.

# %% name="save"
runs.save("05-ttft", many, server, "one short question, thinking off, max_tokens 1, one at a time")

# %% [markdown] name="recap"
# ## Recap
#
# - You wrote a timer and caught it: the first chunk may hold nothing, and headers come even earlier.
# - TTFT stops at the first token of any kind, TTFAT at the first that the caller gets. With thinking on they part.
# - Chunks are not tokens; take token counts from `usage`.
# - Warm up first. New prompt tokens cost time, cached ones hardly any, and the cache needs the same beginning.
# - A P95 comes with its sample size and an interval, or it is a rumour.
# - Two tools that disagree usually mean different things by the same word.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "05-q1",
    "A model thinks before it answers. Which number tells you how long the caller waits?",
    [
        quiz.Option("TTFT", why="It stops at the first token of thinking, which the caller never gets."),
        quiz.Option("The time to the first chunk", why="That may not hold any token at all."),
        quiz.Option("TTFAT", right=True, why="It stops at the first token that the caller gets."),
        quiz.Option("TPOT", why="That is the pace after the start, not the wait before it."),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "05-q2",
    "You timed 20 requests; the slowest took 480 ms. What may you say about the P95?",
    [
        quiz.Option(
            "Hardly anything about how high it may be",
            right=True,
            why="With 20 requests all of them may lie below the true P95: the upper end is unbounded.",
        ),
        quiz.Option(
            "It is 480 ms",
            why="480 ms is not even the estimate: the P95 of 20 is the second slowest, and its interval has no upper end.",
        ),
        quiz.Option(
            "It is at most 480 ms", why="All 20 lie below the true P95 more often than once in three tries."
        ),
        quiz.Option(
            "It is about 456 ms, 95 % of 480",
            why="A percentile is a rank among the samples, not a share of the largest.",
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "05-q3",
    "The system prompt begins with the time of day, to the second. What happens to TTFT?",
    [
        quiz.Option(
            "Nothing: a time is only a few tokens",
            why="A few tokens, but at the place from which all others are compared.",
        ),
        quiz.Option(
            "Each call computes the whole prompt anew",
            right=True,
            why="The prefix cache needs the same beginning. Put what changes at the end.",
        ),
        quiz.Option("Only the first call is slow", why="It would be, if the beginning stayed the same."),
    ],
)

# %% name="progress"
progress.show("05")

# %% [markdown] name="next"
# ## Next
#
# **06 · Take the budget apart** puts your TTFT among the other stages between the caller's last word and the
# agent's first.
