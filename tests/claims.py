"""What the lessons' text may say, and what it must then be true of: for all lessons.

A lesson's own claims stand in ``claims_NN.py`` beside this file, in the same form.
"""

from __future__ import annotations

from helpers import published, stats

# What the text may say -> what it must then be true of. One line for each claim; all lessons share them.
CLAIMS = {
    r"1500 ms": lambda: published.value("card.limit") == 1500,
    r"31\.6 billion": lambda: round(published.value("phonellm.parameters") / 1e9, 1) == 31.6,
    r"135 million": lambda: round(published.value("smollm2.parameters") / 1e6) == 135,
    r"1/235": lambda: (
        abs(published.value("phonellm.parameters") / published.value("smollm2.parameters") / 235 - 1) < 0.01
    ),
    r"150 words a minute": lambda: published.value("assumption.speech_words") == 150,
    r"about 200( tokens)?": lambda: (
        round(published.value("assumption.speech_words") * published.value("assumption.tokens_per_word"))
        == 200
    ),
    r"60,000 ms": lambda: True,  # a minute, by definition
    r"temperature 0|Temperature 0": lambda: True,  # a setting, not a finding
    r"B200": lambda: True,  # a name
    r"at most 5 %|chance of 95 %": lambda: stats.samples_needed(0.95, 0.95, sides=1) == 59,
    r"19 times in 20": lambda: True,  # 95 %, in words
    r"chance of 36 % none": lambda: round(0.95**20, 2) == 0.36,
    r"59 is enough": lambda: stats.samples_needed(0.95, 0.95, sides=1) == 59,
    r"at least 95 of 100 samples": lambda: stats.percentile([1.0] * 99, 0.95).confidence == 0.95,
    r"58 is one short": lambda: stats.samples_needed(0.95, 0.95, sides=1) - 1 == 58,
    r"20 requests|20 lie|timed 20|one of 20|of 20 is|twenty": lambda: (
        stats.percentile([1.0] * 20, 0.95).high == float("inf")
    ),
    r"456 ms, 95 % of 480": lambda: 0.95 * 480 == 456,
    r"480 ms": lambda: True,  # the number that the question itself makes up
    r"more often than once in three tries": lambda: 0.95**20 > 1 / 3,
    r"each 100 new tokens": lambda: True,  # a unit
}
# Numbers that mean no fact of the world.
HARMLESS = (
    r"\b(?:0\d|1[01])\b(?: · |\*\*)?",  # a lesson's number
    r"^## \d+\.|\(section \d\)",  # a section's number
    r"[Ee]xercises? \d",
    r"Question \d",
    r"\b\d+ minutes",  # checked below
    r"P\d\d",
    r"95th percentile",
    r"95 of 100 turns|5 of 100 take",  # what P95 means
    r"order 1234",
    r"hints? in three steps",
    r"SmolLM2|PhoneLLM Alpha 1",
    r"99 at 95 % confidence|95 at 95 % confidence|at 95 % confidence",
    r"`[^`]*`",  # code
    r"aiperf 0|n - 1",
    r"[Mm]ultiply by 1000|60 divided|60 s, and a second is 1000 ms|60 times",  # units
    r"A 0 would|a 0 would|time of 0|; 0 is|0 is the moment|tokens have 20 steps|five fence posts",
)
