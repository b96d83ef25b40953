# %% [markdown] name="title"
# # 00 · Start here
#
# You call a company. You stop talking, and then you wait until the voice at the other end begins. If that
# voice is a machine, the wait has a name, a budget and a price. This course takes it apart.
#
# | | |
# |---|---|
# | **You will** | check this machine, meet a real vLLM server, see its first streamed reply chunk by chunk, and read off your first time to first token (TTFT) |
# | **You will learn** | what a stream is made of, what TTFT is, and how exercises, hints and checks work here |
# | **You need** | to have run a Python cell before; no GPU, no account, no key |
# | **Time** | 15 minutes |
#
# Run the cells from top to bottom: click into the first one and press **Shift + Enter**.

# %% [markdown] name="story"
# ## What a voice agent is
#
# A voice agent is a loop. **Speech to text** writes down what the caller said. A **language model** reads it and
# answers. **Text to speech** says the answer. The caller hears nothing until the first words of the answer have
# gone all the way round. The makers of PhoneLLM write that callers are content when that takes
# at most **1500 ms**, nearly every time: at the 95th percentile, written P95.
#
# Only a part of the 1500 ms belongs to the language model. How soon its first word comes is what this course is
# about: you will serve a model, time it, see what else uses up the budget, and work out what a minute of
# conversation costs.

# %% name="setup" tags=["setup"]
import pandas as pd

from helpers import check, engine, figures, latency, progress, prompts, quiz, readiness, sdk, streaming

# %% [markdown] name="machine"
# ## 1. This machine
#
# Timings are only as good as the machine they are made on. A "no" below is not the end: the last column says
# what it means for you.

# %% name="machine-check"
readiness.check()

# %% [markdown] name="engine"
# ## 2. The server
#
# The next cell finds a server, or starts one. On Linux that is **vLLM**, the same software that runs on a big
# GPU, here on the CPU and with a small model in it; elsewhere the lessons replay runs that we recorded. A first start
# takes one to two minutes, most of it spent on importing Python packages, later ones about half a minute; the line below the cell says where it is. All notebooks share the one
# server, and it ends when you close the lab.

# %% name="connect"
server = engine.connect()

# %% name="server"
pd.Series({"address": server.base_url, "model": server.model, "numbers from it are": server.origin})

# %% [markdown] name="stand-in"
# The small model, SmolLM2 with 135 million parameters, **stands in** for PhoneLLM Alpha 1, the phone-agent model
# with 31.6 billion that this course is about. The way of serving and timing is the same: same API, same kind of
# stream, same traps. Two things are not. What it *says* is often nonsense and tells you nothing about PhoneLLM.
# And its *milliseconds* are this machine's, not a GPU's.
#
# Have a B200 (NVIDIA's big data-centre GPU), or the address of any OpenAI-compatible server? Set `PHONELLM_BASE_URL` before you start the lab,
# and the same cells measure that one. The README says how.

# %% [markdown] name="first-reply"
# ## 3. The first reply
#
# A chat server can send its answer whole, at the end, or as a **stream**: piece by piece, as the model makes it.
# A voice agent always streams, because the first sentence can be spoken while the rest is still being made.
# This is the `openai` package you would use in your own project. First what we send: a role and a question.

# %% name="messages"
messages = prompts.conversation(prompts.HELLO)
messages

# %% [markdown] name="stream-note"
# `temperature=0` makes the model take the likeliest token each time, and `thinking=False` lets it answer at once. Watch
# the words come:

# %% name="stream-words"
client = sdk.client(server)  # OpenAI(base_url=..., api_key=...) with the address of this server
request = streaming.chat_request(messages, max_tokens=40, thinking=False, temperature=0)
stream = client.chat.completions.create(**sdk.arguments(server, request))
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)

# %% [markdown] name="timeline"
# ## 4. The same reply, with a clock
#
# Now once more, and this time we keep the moment at which each piece (each **chunk**) arrived. `streaming.ask`
# does that and nothing else: what the chunks mean is decided afterwards.

# %% name="ask"
reply = streaming.ask(server, request)
chunks = latency.chunk_table({"first reply": reply})
chunks[["at_ms", "kind", "text"]].round(1)

# %% name="figure-timeline" tags=["figure"]
figures.show(figures.stream_timeline, chunks, title="One streamed reply, chunk by chunk")

# %% [markdown] name="read-timeline"
# Read it from the left. First nothing: the server reads your prompt and computes the first token. Then the
# chunks come, a **token** (a piece of a word) or a few in each, at nearly even steps. The first chunk names only
# the role, `assistant`, and holds no text. At the end the server says why it stopped and how many tokens it
# counted.
#
# The wait before the first token is the **time to first token**, TTFT. A caller feels this wait, and hardly the
# steps after it, as you will see in exercise 2. (TTFAT, in the figure, is the time to the first token of the *answer*.
# Here it is the same; lesson 05 takes the two apart.)

# %% [markdown] name="how-exercises"
# ## 5. Your turn
#
# Each exercise is a cell with a `TODO`, and a check below it. Write your answer over `check.NOT_DONE`, run the
# cell, then run the check, with Shift + Enter (a click on its folded line shows its source, and with it the answer). A
# check that does not pass names the likely mistake, and has hints in three steps: a
# nudge, the method, the answer. Nothing breaks if you skip one: later cells then go on with the course's answer
# and say so.
#
# After a restart of the kernel nothing is defined any more: choose **Run > Run All Above Selected Cell** and go on where
# you were.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: read off your first TTFT
#
# difficulty ●○○ · importance ●●● · 3 minutes
#
# Look at the table above. How many milliseconds passed until the first chunk that carries **text**? Take the
# number from the table by hand, or with a line of pandas: rows of `chunks` whose `kind` is `"answer"`.

# %% name="ex-1" tags=["exercise"]
# --- your code: the time of the first chunk with text, in milliseconds
my_ttft_ms = chunks[chunks["kind"] == "answer"]["at_ms"].iloc[0]
# --- end

# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "00-1",
    hints=(
        "Which is the first row with something in the column `text`?",
        "Keep the rows whose kind is answer, then take `at_ms` of the first: `.iloc[0]`.",
    ),
)
exercise.value(
    "time to first token",
    my_ttft_ms,
    expect=latency.measure(reply).ttft_ms,
    tolerance=0.01,
    mistakes=[
        (lambda value: value == 0, "0 is the moment of sending."),
        (lambda value: 0 < value < 5, "In milliseconds, please: as it stands in the table."),
        (
            lambda value: abs(value - latency.measure(reply).e2e_ms) < 1,
            "That is the last chunk: the time to the end of the reply.",
        ),
        (
            lambda value: value == latency.measure(reply).first_chunk_ms,
            "That is the first chunk, which holds only the role and no text.",
        ),
        (
            lambda value: True,
            "It is not the first row with text of the table above. (The table is new each time its cell is run.)",
        ),
    ],
)
exercise.verdict()
my_ttft_ms = exercise.use(my_ttft_ms, reference=latency.measure(reply).ttft_ms)

# %% name="my-first-number"
print(f"TTFT of {server.name}: {my_ttft_ms:.0f} ms ({server.origin})")

# %% [markdown] name="one-number"
# That is your first number, and already it needs a sentence with it: one request, one short prompt, one
# machine, one moment. Lesson 05 shows how much such a number can be off, and in which direction.

# %% [markdown] name="ex-2-card"
# ### Exercise 2: does the rest keep up with speech?
#
# difficulty ●○○ · importance ●●○ · 5 minutes
#
# After the first token the others follow in steps: the **inter-token latency**, ITL. Say a person speaks 150
# words a minute (our round figure); in English that is about 200 tokens. Is the model faster than the voice? Write the
# function.


# %% name="ex-2" tags=["exercise"]
def tokens_per_minute(itl_ms: float) -> float:
    """How many tokens come in a minute, if one comes every ``itl_ms`` milliseconds."""
    # --- your code: a minute has 60,000 ms
    return 60_000 / itl_ms
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "00-2",
    hints=(
        "How many steps of that length fit into a minute?",
        "Divide the length of a minute by the length of a step, both in milliseconds.",
    ),
)
exercise.case(
    "a token every 30 ms",
    tokens_per_minute,
    args=(30.0,),
    expect=2000.0,
    mistakes={
        2.0: "60 divided by the milliseconds: a minute is 60 s, and a second is 1000 ms.",
        1_800_000.0: "You multiplied: the longer the step, the fewer the tokens. Divide.",
        0.0005: "The other way round: how many steps fit into a minute?",
        1800.0: "60 times the step: the longer the step, the fewer the tokens. Divide.",
        33.33: "That is tokens in a second.",
    },
    tolerance=0.01,
)
exercise.case("a token every 300 ms only just keeps pace", tokens_per_minute, args=(300.0,), expect=200.0)
exercise.verdict()
tokens_per_minute = exercise.use(tokens_per_minute)

# %% name="keeps-up"
itl_ms = pd.Series(latency.measure(reply).itl_ms).median()
print(
    f"a chunk, mostly one token, every {itl_ms:.0f} ms: {tokens_per_minute(itl_ms):,.0f} tokens a minute, speech needs about 200"
)

# %% [markdown] name="why-first"
# Even this small machine makes tokens faster than a voice says them, as long as few callers share it. That is why
# the first token gets all the attention: after it, the answer stays ahead of the voice.

# %% [markdown] name="map"
# ## 6. The way through the course
#
# One chain runs through all lessons: a prompt goes to an engine, comes back as a stream, gives a TTFT; many
# TTFTs give percentiles; a limit on a percentile gives a number of callers; and that number gives a price.

# %% name="figure-map" tags=["figure"]
figures.show(figures.course_map, here="00")

# %% [markdown] name="origins"
# Each number in the course says where it comes from, in words and in the marker it is drawn with: **measured**
# (just now, on your server), **recorded** (earlier, by us), **published** (by somebody else, with the source) or
# **modelled** (computed, for machines that nobody here has).

# %% [markdown] name="recap"
# ## Recap
#
# - You checked this machine and met the server behind all lessons.
# - A reply comes as a stream of chunks. The first may hold no text.
# - TTFT is the wait before the first token. The caller feels it; the steps after it are faster than speech.
# - Exercises have checks and three hints, and nothing stops you from going on.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "00-q1",
    "Why does a voice agent ask for its answer as a stream?",
    [
        quiz.Option(
            "The whole answer is finished sooner", why="It takes the same work; the end comes no sooner."
        ),
        quiz.Option("It costs fewer tokens", why="The same tokens are made and counted."),
        quiz.Option(
            "The first sentence can be spoken while the rest is made",
            right=True,
            why="The caller waits for the first words only, and they are on their way early.",
        ),
        quiz.Option("The answers are better", why="The same model makes the same tokens."),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "00-q2",
    "The small model here answered nonsense. What does that say about PhoneLLM?",
    [
        quiz.Option(
            "Nothing",
            right=True,
            why="It is another model, with about 1/235 of the parameters. It is here to be served and timed.",
        ),
        quiz.Option(
            "That vLLM loses quality on a CPU",
            why="The same weights and the same arithmetic, up to rounding; only slower.",
        ),
        quiz.Option(
            "That temperature 0 is wrong",
            why="Temperature 0 takes the likeliest token each time. It repeats itself, nearly always, and is not worse.",
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "00-q3",
    "1500 ms at P95 means that",
    [
        quiz.Option(
            "the average turn takes 1500 ms", why="The average is another number, and usually lower."
        ),
        quiz.Option(
            "95 of 100 turns take at most 1500 ms",
            right=True,
            why="And at most 5 of 100 take longer. Lesson 01 asks how often a caller then meets a slow one.",
        ),
        quiz.Option(
            "no turn takes longer than 1500 ms", why="That would be the maximum, and nobody can promise it."
        ),
    ],
)

# %% name="progress"
progress.show("00")

# %% [markdown] name="next"
# ## Next
#
# **05 · Measure TTFT**: you write a timer, catch it being wrong on this very server, and learn what a P95 from
# twenty requests is worth. Open `05_measure_ttft.ipynb` in the file list at the left. The lessons between are on
# their way.
