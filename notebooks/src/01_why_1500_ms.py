# %% [markdown] name="title"
# # 01 · Why 1500 ms
#
# A number stands over this whole course. In this lesson you hear it. You rate the same exchange with seven different
# waits, before you know which is which, and see how long *you* are content to wait. Then you find out why the number
# is a P95 and not an average, what that means for a whole call, and which language models leave room for anything else.
#
# | | |
# |---|---|
# | **You will** | rate clips blind and plot your own tolerance; measure a gap in a recording; see what a P95 of turns means for a call; hold a leaderboard of models against the limit |
# | **You will learn** | voice-to-voice time, what a limit at P95 promises and what it does not, and the difference between a stage and the whole path |
# | **You need** | lesson 00; loudspeaker or headphones (without, everything but section 2 works) |
# | **Time** | 35 minutes, of which listening takes about three |
#
# This lesson needs no server.

# %% name="setup" tags=["setup"]
import numpy as np
import pandas as pd

from helpers import budget, check, clips, figures, panels_rating, phonebench, practice_clips, progress
from helpers import published, quiz, ratings, slow_turns, sweeps

pd.set_option("display.max_colwidth", None)  # show long texts in tables whole

# %% [markdown] name="gap"
# ## 1. The gap
#
# A phone call is turns. One stops speaking, there is a gap, the other begins. What we call the wait, or **voice-to-voice
# time**, is that gap as the caller hears it: from the caller's last sound to the agent's first. Nothing else counts. An
# agent may think and write whole pages meanwhile; the caller hears silence.
#
# This is the exchange that you will hear:

# %% name="transcript"
clips.transcript()

# %% [markdown] name="voices-note"
# Both voices are synthetic, and both have been through a telephone: a narrow band, coarse steps, a quiet hiss. Play
# them once, to set your volume.

# %% name="voices"
clips.play({"caller": clips.part("caller"), "agent": clips.part("agent")})

# %% [markdown] name="rate-note"
# ## 2. How long is too long?
#
# Do this part before you read on, because what follows tells what the clips are. You hear the exchange several times.
# Words, voices and length of the clip are the same each time, only the gap differs. Imagine that you are the caller, and
# press what you feel. Each answer is kept at once, so you can stop and come back.

# %% name="rate"
panel = panels_rating.rate()

# %% [markdown] name="tolerance-note"
# ## 3. Your own tolerance
#
# Rated all of them? Then run the next cell (again). Until then it shows an example that we made up, and says so.

# %% name="own-ratings"
mine = ratings.mine_or_example(clips.gaps()["gap_ms"])
print(ratings.tolerance(mine).sentence())

# %% name="figure-tolerance" tags=["figure"]
figures.show(figures.tolerance, mine, title="How long is too long?")

# %% [markdown] name="tolerance-note-2"
# What is this worth? It is one person, on one day, with nothing at stake. You knew that it was a test, and you heard
# one turn, where a call has many. So it is no study. It is there so that the numbers below mean something to your ears.
# If you rated each clip twice, you also know how well you agree with yourself: that is the precision of the whole thing.
#
# And where does the published number come from? This is what we found:

# %% name="published-limit"
published.show("card.limit", "waits.daily_llm", "waits.rule_rest")

# %% [markdown] name="published-limit-2"
# Makers of voice agents say it, from experience. We found no study behind it in what we could read. It is a good
# target; it is not a law of nature. If your callers differ, the method of this course stays and the number changes.

# %% [markdown] name="clips-note"
# ## 4. What you heard
#
# Each gap stands for something. Look at the column `whole_path`: some of the published numbers are for one stage alone, and no caller
# ever hears a stage alone. And the shortest and the longest are ours, to compare with.

# %% name="clips"
heard = clips.table()
heard[["gap_ms", "what", "whole_path", "source", "date", "origin"]]

# %% name="figure-clips" tags=["figure"]
figures.show(figures.clip_gaps, heard, title="One exchange, seven gaps")

# %% [markdown] name="listen-note"
# Now with their names on. Listen to the limit, and to its neighbours:

# %% name="listen"
clips.play({f"{row.gap_ms:,.0f} ms, {row.short}": clips.exchange(row.gap_ms) for row in heard.itertuples()})

# %% [markdown] name="measure-note"
# ## 5. Measure it
#
# Do the clips have the gaps that we say? You should not have to believe it. And a recording of a call is the only witness
# that needs no cooperation from any part of an agent: whatever the parts report about themselves, the silence is in the
# file. So here is the oldest tool of the trade.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: find the gap in a recording
#
# difficulty ●●○ · importance ●●○ · 7 minutes
#
# `samples` is an array of numbers, `rate_hz` of them a second, below and above zero. What is farther from zero than
# `threshold` is sound, the rest is hiss. The caller may pause between two words, and there is silence before the caller
# and after the agent. The gap is the longest stretch without sound *between two sounds*. Return it in ms. (Two functions
# of numpy help: `np.flatnonzero` gives the places where a condition is true, `np.diff` the steps between neighbours.)


# %% name="ex-1" tags=["exercise"]
def gap_ms(samples: np.ndarray, rate_hz: int, threshold: float) -> float:
    """Milliseconds from the caller's last sound to the agent's first."""
    # --- your code: find the places of the loud samples, then the longest step from one to the next
    loud = np.flatnonzero(np.abs(samples) > threshold)
    longest = np.diff(loud).max()
    return float(longest / rate_hz * 1000)
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "01-1",
    hints=(
        "If you list the places of all loud samples, what does a gap look like in that list?",
        "`np.flatnonzero(np.abs(samples) > threshold)` gives the places; `np.diff` of them the steps, whose "
        "largest is the gap in samples. Divide by `rate_hz` for seconds, and bring that to ms.",
    ),
)
exercise.case(
    "a gap of 500 ms at 8000 samples a second",
    gap_ms,
    args=(practice_clips.clip(500), 8000, practice_clips.THRESHOLD),
    expect=500.0,
    tolerance=0.004,
    mistakes=[
        (lambda ms: 0.49 < ms < 0.51, "That is in seconds. Multiply by 1000."),
        (lambda ms: 3990 < ms < 4010, "That is in samples. Divide by `rate_hz` for seconds."),
        (
            lambda ms: 535 < ms < 545,
            "You looked above zero only. A loud sample may be far below zero: use `np.abs`.",
        ),
        (lambda ms: 895 < ms < 905, "That is the silence after the agent. A gap has a sound on both sides."),
        (lambda ms: 1810 < ms < 1830, "You added up all the silence. Only the longest stretch is the gap."),
        (
            lambda ms: 115 < ms < 125,
            "That is a pause inside the caller's turn, the first one. Take the longest.",
        ),
        (lambda ms: ms < 0.01, "From seconds to ms you multiply by 1000; you divided."),
        (lambda ms: 0.18 < ms < 0.19, "That is the mean of the steps. Take the longest."),
        (
            lambda ms: 0.25 < ms < 25,
            "To your code the hiss is sound. Compare with `threshold`, not with zero.",
        ),
        (
            lambda ms: 615 < ms < 625,
            "That is the longest stretch of sound. The gap is between two loud samples.",
        ),
        (
            lambda ms: 645 < ms < 655,
            "That is the place of the longest step, as `np.argmax` gives it, not its length.",
        ),
        (lambda ms: 1885 < ms < 1895, "That is the time from the first sound to the last."),
    ],
)
exercise.case(
    "a gap of 1200 ms at 16000 samples a second",
    gap_ms,
    args=(practice_clips.clip(1200, rate_hz=16000), 16000, practice_clips.THRESHOLD),
    expect=1200.0,
    tolerance=0.004,
    mistakes=[(lambda ms: 2380 < ms < 2420, "Use `rate_hz`: not every recording has 8000 samples a second.")],
)
exercise.verdict()
gap_ms = exercise.use(gap_ms)

# %% name="measure-clips"
heard["by_you_ms"] = [gap_ms(clips.exchange(gap), 8000, clips.THRESHOLD) for gap in heard["gap_ms"]]
heard[["gap_ms", "by_you_ms", "measured_ms"]].round(1)

# %% [markdown] name="measure-clips-2"
# Asked for, found by your code, found by ours. Two ms or so are too many, because a voice fades in and out, and
# the threshold decides from where on it counts as sound. Keep that in mind whenever somebody quotes single ms of voice.

# %% name="figure-waveform" tags=["figure"]
figures.show(figures.waveform, clips.envelope(clips.exchange(1293)), title="The gap in a recording")

# %% [markdown] name="budget-note"
# ## 6. Where the time goes
#
# The silence in that picture is full of work. Sound travels to the agent, is written down, the agent has to be sure that
# the caller has finished, a language model reads and begins to answer, a voice is made of it, and sound travels back. A
# published table has a line for each; by group, with the line that the makers plan for their model. (TTFB, time to the first
# byte, is what voice people call the wait for a stage; Opus is the code that the sound travels in; a jitter buffer holds it
# back a little, so that late packets still fit in.)

# %% name="groups"
turn = budget.by_group(budget.table("card"))
turn[["group", "parts", "ms", "origin"]]

# %% name="figure-budget" tags=["figure"]
figures.show(figures.budget_line, turn.rename(columns={"group": "stage"}), title="A turn, planned")

# %% name="left"
card = budget.table("card")
print(
    f"The plan adds up to {budget.total_ms(card):,.0f} ms. All but the model: {budget.rest_ms(card):,.0f} ms."
)
print(f"So subtraction leaves {budget.left_for_ms(card):,.0f} ms for the model, of {budget.LIMIT_MS:,.0f}.")

# %% [markdown] name="budget-note-2"
# Most of these lines are our reading of a picture, so they are `modelled`; lesson 06 takes the table apart, and shows that
# adding up such lines is not quite allowed. For now two things. The language model has the largest line. And the other
# lines together are far from nothing: a model that takes 1500 ms by itself has broken the limit before anybody says a word.

# %% [markdown] name="p95-note"
# ## 7. Median, mean, P95
#
# No server takes the same time twice. These are waits that we recorded on a small server with as many callers on
# it as we dared (lesson 07 does that live). They are times to the first answer token, of a small model on a CPU. Their size
# means nothing here; their shape does.

# %% name="waits"
run = sweeps.kept_sweep(sweeps.REAL_TIME)
most = int(run.levels["live_calls"].max())
busy = run.at(most)
print(
    f"{most} live calls: {len(busy)} turns of {busy['call'].nunique()} calls, recorded on {busy['server'].iloc[0]}"
)

# %% name="figure-waits" tags=["figure"]
figures.show(
    figures.wait_distribution, busy, metric=sweeps.CLOCK, what="time to the first answer token",
    title="One run, three summaries",
)  # fmt: skip

# %% [markdown] name="p95-note-2"
# Half of the turns are faster than the **median**. The **mean** is what you would get if all waited equally long, which
# nobody does. And the **P95** is passed by one turn in twenty. Nobody ever waits "the average". Callers remember the
# turns at the right end, and those are what P95 looks at. See what happens to the three as callers are added:

# %% name="by-level"
summary = run.measured.groupby("live_calls")[sweeps.CLOCK].agg(
    ["median", "mean", lambda ms: np.quantile(ms.dropna(), 0.95, method="inverted_cdf"), "max"]
)
summary.index = summary.index.astype(int)
summary.set_axis(["median", "mean", "P95", "slowest"], axis=1).round(0).assign(origin="recorded")

# %% [markdown] name="p95-note-3"
# The tail moves most at each step. Hold the last row against the ceiling that the makers of PhoneLLM set for this
# stage, 600 ms: the mean still keeps it, and the P95 is at twice as much. A limit on the mean would not have noticed.
# That is why the limit is put on P95. Why not on the slowest turn of all? Because that is one accident, another
# one each day, and it only grows the longer you measure. P95 is a compromise: it looks at the tail, and a few hundred
# turns say something about it (lesson 05 says how much).

# %% [markdown] name="calls-note"
# ## 8. What a P95 means in a call
#
# "95 % of turns are in time" sounds good. But nobody phones for one turn.

# %% [markdown] name="ex-2-card"
# ### Exercise 2: calls with a slow turn
#
# difficulty ●○○ · importance ●●● · 5 minutes
#
# Each turn is slow with a chance of `slow_share`, whatever the other turns of the call did. Which share of calls has at
# least one slow turn, if a call has `turns` of them?


# %% name="ex-2" tags=["exercise"]
def calls_with_a_slow_turn(turns: int, slow_share: float) -> float:
    """Share of calls, from 0 to 1, in which at least one turn is slow."""
    # --- your code: think of the calls without a slow turn first
    return 1 - (1 - slow_share) ** turns
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "01-2",
    hints=(
        "It is easier to ask the opposite: how likely is it that all turns of a call are in time?",
        "One turn is in time with `1 - slow_share`; all of them with that to the power `turns`. The rest of the "
        "calls have at least one slow turn.",
    ),
)
exercise.case(
    "10 turns, 5 % of turns slow",
    calls_with_a_slow_turn,
    args=(10, 0.05),
    expect=1 - 0.95**10,
    mistakes={
        0.5: "You multiplied. That counts a call with two slow turns twice; with 30 turns it would say more than all calls.",
        0.95**10: "That is the share of calls *without* a slow turn. Take the others.",
        100 * (1 - 0.95**10): "A share, from 0 to 1, not a percentage.",
        0.05**10: "That is the chance that *every* turn is slow. One is enough.",
        1.0: "You took the calls in which not every turn is slow. Put the chance of being in time to the power.",
        0.05: "That is the share of turns. A call has many of them.",
        10
        * 0.05
        * 0.95**9: "That is the share with exactly one slow turn. Calls with two or more count, too.",
        1 - 10 * 0.95: "You multiplied the chance of being in time. Put it to the power `turns`.",
        0.4: "Return it as it comes, not rounded.",
    },
)
exercise.case("one turn", calls_with_a_slow_turn, args=(1, 0.05), expect=0.05)
exercise.case("30 turns, 1 % of turns slow", calls_with_a_slow_turn, args=(30, 0.01), expect=1 - 0.99**30)
exercise.verdict()
calls_with_a_slow_turn = exercise.use(calls_with_a_slow_turn)

# %% [markdown] name="own-turns-note"
# How many turns has a call of yours? Put in your own number:

# %% name="own-turns"
MY_TURNS = 20
share = calls_with_a_slow_turn(MY_TURNS, 0.05)
print(f"{MY_TURNS} turns, each in time with 95 %: {share:.0%} of the calls have at least one slow turn.")

# %% name="figure-calls" tags=["figure"]
curves = slow_turns.curves(range(1, max(41, MY_TURNS + 1)))
figures.show(figures.slow_calls, curves, turns=MY_TURNS, title="Calls with at least one slow turn")

# %% [markdown] name="alike-note"
# There is a second line, because the chances of one call need not start afresh with each turn. A bad network stays bad for
# the whole call, and a server that is full may be full for the next turn, too. Then fewer calls are hit, and those that are
# hit are hit again and again. The total of slow turns is the same:

# %% name="alike"
slow_turns.spread(MY_TURNS, alike=(0, 0.25, 0.5, 0.75)).round(3)

# %% [markdown] name="alike-note-2"
# All of that is simulated, from a fixed seed, and how alike the turns are is our assumption (`alike` is the correlation of
# two turns of a call). Does it happen in real runs? Here is the recorded run of section 7: its own P95 as the line, its
# calls counted, and beside that the share that independent turns would give.

# %% name="observed"
slow_turns.observed(busy, metric=sweeps.CLOCK).to_frame("this run")

# %% [markdown] name="alike-note-3"
# Compare the last two shares. They hardly differ: this run shows no such thing. It does not refute it either. Its calls
# are short and its slow turns few, so that most calls could not have had a second one. Remember that for your own
# data: with a handful of slow turns you cannot tell bad turns from bad calls, and a safe report counts both. Lesson 07 asks
# the question in a way that gets more out of a run.

# %% [markdown] name="models-note"
# ## 9. Which models leave room?
#
# The makers of PhoneLLM published a leaderboard, PhoneBench: a score for how well a model handles phone calls, its times to
# the first answer token (TTFAT), and the price of a minute. All published, none measured here:

# %% name="figure-models" tags=["figure"]
board = phonebench.table()
left_ms = budget.left_for_ms(budget.table("card"))
figures.show(
    figures.leaderboard, board, left_ms=left_ms, limit_ms=budget.LIMIT_MS, bold=phonebench.PHONELLM,
    title="PhoneBench: score, wait, price",
)  # fmt: skip

# %% name="caveats"
print("\n".join(f"- {line}" for line in phonebench.CAVEATS))
print("Not given:", "; ".join(phonebench.missing(board)))

# %% [markdown] name="models-note-2"
# TTFAT is **one stage**. What counts is whether it fits into what the rest of the path leaves, the left one of the two
# lines. Look at Terra: as a stage alone it is past the whole limit.

# %% name="terra"
terra_ms = board.set_index("model").loc[phonebench.TERRA, "ttfat_p95_ms"]
rest_ms = budget.rest_ms(budget.table("card"))
print(
    f"Terra at P95 {terra_ms:,.0f} ms, plus the rest of the path {rest_ms:,.0f} ms: {terra_ms + rest_ms:,.0f} ms."
)

# %% [markdown] name="faster-note"
# And one claim that made the rounds, with the number on the card that it goes back to:

# %% name="faster"
published.show("waits.terra_card", "waits.faster", "card.ttfat_ceiling", "card.single_request")

# %% [markdown] name="faster-note-2"
# The claim is the first less the ceiling, so it compares two things that are not alike: what a vendor's machines gave, and the point
# at which the makers stopped loading their own. With fewer callers PhoneLLM would be faster, with more slower. It is not the distance
# to the time of a single request, which stands last.

# %% [markdown] name="ex-3-card"
# ### Exercise 3: who fits under the line?
#
# difficulty ●○○ · importance ●●○ · 5 minutes
#
# `models` is a table with the columns `model`, `ttfat_p50_ms` and `ttfat_p95_ms`. Return the names, as a list, of those whose
# P95 is at most `line_ms`. A model whose P95 nobody has published has not shown that it fits.


# %% name="ex-3" tags=["exercise"]
def fits(models: pd.DataFrame, line_ms: float) -> list[str]:
    """Names of the models whose TTFAT at P95 is known and at most ``line_ms``."""
    # --- your code: one comparison; what does it say of a missing number?
    return list(models.loc[models["ttfat_p95_ms"] <= line_ms, "model"])
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
exercise = check.Exercise(
    "01-3",
    hints=(
        "Which rows satisfy the condition? A missing number is NaN, and every comparison with NaN is False.",
        '`models.loc[condition, "model"]` gives the names where the condition on `models["ttfat_p95_ms"]` holds; '
        "`list(...)` makes a list of them.",
    ),
)
exercise.case(
    "five models and a line of 857 ms",
    fits,
    args=(
        pd.DataFrame(
            {
                "model": ["steady", "long tail", "on the line", "unknown", "slow"],
                "ttfat_p50_ms": [500, 400, 700, 300, 1200],
                "ttfat_p95_ms": [800, 1100, 857, np.nan, 1600],
            }
        ),
        857,
    ),
    expect=["steady", "on the line"],
    mistakes=[
        (["steady", "long tail", "on the line", "unknown"], "You took P50. Half of the turns are slower than that."),
        (["steady", "on the line", "unknown"], "A model without a number has not shown that it fits; leave it out."),
        (["steady"], "*At most*: a model that is just on the line fits."),
        (["long tail", "slow"], "Those are the ones that do not fit."),
        (["long tail", "unknown", "slow"], "Those are the ones that do not fit, and the unknown one."),
        (lambda found: isinstance(found, pd.Series | pd.DataFrame), "Return a plain list of names: `list(...)`."),
    ],
)  # fmt: skip
exercise.verdict()
fits = exercise.use(fits)

# %% name="who-fits"
llm_line_ms = published.value("card.llm_line")
for line_ms, words in ((left_ms, "what subtraction leaves"), (llm_line_ms, "the makers' line for the model")):
    print(
        f"{line_ms:,.0f} ms, {words}: {len(fits(board, line_ms))} models: {', '.join(fits(board, line_ms))}"
    )

# %% name="near-misses"
over = board[~board["model"].isin(fits(board, left_ms))].sort_values("ttfat_p95_ms")
over[["model", "score", "ttfat_p50_ms", "ttfat_p95_ms", "origin"]].assign(
    over_by_ms=over["ttfat_p95_ms"] - left_ms
)

# %% [markdown] name="models-note-3"
# Now be careful. Everyone on the list has the same P95, "about" the ceiling: as we read the card, these
# are the models that were loaded until they got there. So the list does not say that they are equally fast. It says that each of them, served on
# machines of one's own, *can be held* at a P95 that fits, by giving each machine no more callers than that allows. How
# many that is differs, and with it the price. That is the trade of the whole course: you choose the wait, and the wait
# decides how many callers share a machine (lesson 07) and what a minute costs (lesson 08).
#
# For the others you get the wait that the vendor's machines give you. And whether a score is worth more than a second
# of silence is a decision that no table takes off you. You have heard what a second is.

# %% [markdown] name="recap"
# ## Recap
#
# - Voice-to-voice time is the silence that the caller hears, and it can be measured from a recording alone.
# - You have a tolerance of your own, with its own precision. The published limit is a target, not a law.
# - A limit is put on P95, because the tail moves farther than the mean, and callers remember the tail.
# - One slow turn in twenty means a slow turn in most calls of twenty turns. If turns are alike, fewer calls are hit, and
#   harder.
# - TTFAT is one stage. The rest of the path takes its share first.
# - "About" at a ceiling says where somebody stopped loading a machine, not how fast a model is.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "01-q1",
    "A vendor writes that its model's P95 TTFAT is below the limit of this course. Will your callers be content?",
    [
        quiz.Option(
            "Yes: the limit is kept", why="The limit is for the whole path; this is one stage of it."
        ),
        quiz.Option(
            "Only if the rest of the path fits into what the model leaves",
            right=True,
            why="Hearing, endpointing, speaking and the network come on top, and under your load.",
        ),
        quiz.Option(
            "No: a P95 says nothing about callers", why="It says how long the slow turns of that stage are."
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "01-q2",
    "Two agents have the same share of slow turns. One's slow turns are spread evenly, the other's come together in a "
    "few calls. Which one has more calls without any slow turn?",
    [
        quiz.Option(
            "The one whose slow turns come together", right=True, why="They hit few calls, many times each."
        ),
        quiz.Option(
            "The one whose slow turns are spread", why="Spread out, they hit as many calls as they can."
        ),
        quiz.Option(
            "Both the same: the share is the same", why="The share is of turns. Calls are another unit."
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "01-q3",
    "Your agent's mean wait has not changed since last month, and callers complain more. What do you look at first?",
    [
        quiz.Option("Nothing: the mean is the same", why="The same mean can hide a tail twice as long."),
        quiz.Option(
            "The slowest turn of the month",
            why="That is one accident, and the longer the month the worse it is.",
        ),
        quiz.Option(
            "The P95 of turns, and how the slow ones fall on calls",
            right=True,
            why="The tail can grow while the mean stays, and whole calls may be bad.",
        ),
    ],
)

# %% name="progress"
progress.show("01")

# %% [markdown] name="next"
# ## Next
#
# **02 · Download the model** fetches what you will serve, or plans it. If you would rather follow the
# silence, **06 · Take the budget apart** goes on where section 6 stopped; it takes our
# recorded runs where you have none yet.
