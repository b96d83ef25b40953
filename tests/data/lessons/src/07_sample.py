# %% [markdown] name="title"
# # A sample lesson
#
# You will time one reply, with **two exercises** and a question.

# %% name="setup" tags=["setup"]
from helpers import check, progress, quiz

CHUNKS = [(180.0, ""), (212.5, "Hello"), (230.0, " there")]

# %% [markdown] name="ex-1-card"
# ### Exercise 1: time the first token
#
# difficulty ●○○ · importance ●●● · 5 minutes
#
# A chunk is a pair: milliseconds since the request was sent, and text. Write the timer.


# %% name="ex-1" tags=["exercise"]
def is_token(text: str) -> bool:
    """Whether a chunk's text holds something to read."""
    # --- your code: say whether there is any text
    return text != ""
    # --- end


def first_token_ms(chunks: list[tuple[float, str]]) -> float | None:
    """Milliseconds from sending to the first chunk with text; None if no chunk has any."""
    # --- your code: go through the chunks in order and return the time of the first that is a token
    for at_ms, text in chunks:
        if is_token(text):
            return at_ms
    return None
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "07-1",
    hints=(
        "Look at the chunks: which of them would the caller hear anything of?",
        "Go through the pairs with `for at_ms, text in chunks`; return at the first non-empty `text`.",
    ),
)
exercise.case(
    "role-only first chunk",
    first_token_ms,
    args=(CHUNKS,),
    expect=212.5,
    mistakes={
        180.0: "You timed the role-only chunk: it carries no text.",
        230.0: "You timed the last chunk, which is the end of the reply.",
    },
)
exercise.case("no text at all", first_token_ms, args=([(180.0, "")],), expect=None)
exercise.case("an empty text is no token", is_token, args=("",), expect=False)
exercise.verdict()
first_token_ms = exercise.use(first_token_ms)

# %% name="ex-1-after"
print(f"TTFT: {first_token_ms(CHUNKS):.1f} ms")

# %% [markdown] name="ex-2-card"
# ### Exercise 2: count them

# %% name="ex-2" tags=["exercise"]
# --- your code: how many chunks of CHUNKS carry text? Set the number
answer = 2
# --- end

# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "07-2", hints=("Which chunk carries none?", "Count those with a text that is not empty.")
)
exercise.value("chunks with text", answer, expect=2, mistakes={3: "You counted the role-only chunk too."})
exercise.verdict()
answer = exercise.use(answer, reference=2)

# %% name="ex-2-solution" tags=["solution"]
# One line would do as well:
sum(text != "" for _, text in CHUNKS)

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "07-q1",
    "Which chunk ends the wait that TTFT measures?",
    [
        quiz.Option(
            "The first chunk of the stream", why="It may only name the role: there is no text in it yet."
        ),
        quiz.Option(
            "The first chunk with answer or reasoning text, whatever the server sends before it to keep the "
            "connection alive",
            right=True,
            why="That is the first token. What comes before, `role` or keep-alive, says nothing.",
        ),
        quiz.Option("The last chunk", why="That is the end-to-end time."),
    ],
)

# %% name="progress"
progress.show("07")
