# %% [markdown] name="title"
# # 04 · Serve it with vLLM
#
# Serving a model is one command. Understanding that command, and knowing what to do when it fails, is this lesson. You
# read a recipe flag by flag, watch what the server does with a conversation, and then break servers of your own, on
# purpose, and mend them.
#
# | | |
# |---|---|
# | **You will** | read a live server's pages and its log; render chat templates; make a tool call with both its turns; start servers that fail, find out why, and start one that works; kill one in mid-sentence |
# | **You will learn** | what each flag of a B200 recipe is for; what temperature, thinking and parsers do to what a caller hears; how to read a vLLM log from the right end |
# | **You need** | lesson 00 |
# | **Time** | 60 minutes, of which the cells run for about two |

# %% name="setup" tags=["setup"]
import json
import re
import time
from dataclasses import replace

import pandas as pd

from helpers import api, check, drills, engine, figures, known_problems, latency, practice_serve, progress
from helpers import prompts, published, quiz, recipes, serve, server_log, streaming, templates

# %% name="connect"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole
server = engine.connect()

# %% [markdown] name="pages"
# ## 1. What a server tells about itself
#
# A vLLM server has a page for each question you ask first. *Are you there?* Status 200 and an empty page mean yes:

# %% name="health"
try:
    print("healthy:", repr(api.page(server, "/health")))
except api.Refused as error:  # not every hosted server has this page
    print("This server has no such page." if error.status == 404 else error)

# %% [markdown] name="models-note"
# *What do you serve?* The name in `id` is the one to send in requests. It is what `--served-model-name` says; without
# that flag, all that stood behind `--model`, be it a long path. `max_model_len` is the longest that prompt and answer together may be.

# %% name="models"
entries = json.loads(api.page(server, "/v1/models"))["data"]
entry = next(entry for entry in entries if entry["id"] == server.model)
limit = entry.get("max_model_len")  # vLLM's own field; other servers need not have it
pd.Series({"id": entry["id"], "max_model_len": limit})

# %% [markdown] name="metrics-note"
# *How are you?* `/metrics` is a page for a monitoring system (Prometheus), and a table for us. These are the rows to
# look at first: a queue, a full cache and a cache that never hits are the three usual reasons for a slow server.

# %% name="metrics"
WATCH = {
    "vllm:num_requests_running": "being answered now",
    "vllm:num_requests_waiting": "queued: they wait for a place",
    "vllm:kv_cache_usage_perc": "share of the KV cache in use",
    "vllm:prefix_cache_queries_total": "prompt tokens looked up in the prefix cache",
    "vllm:prefix_cache_hits_total": "of those, found there",
}
try:
    metrics = api.metrics(server)
    rows = metrics[metrics["name"].isin(WATCH)]
    print(rows.assign(meaning=rows["name"].map(WATCH))[["name", "value", "meaning"]].to_string(index=False))
except api.Refused as error:
    print("This server has no such page." if error.status == 404 else error)

# %% [markdown] name="log-note"
# *What happened?* That is in the log. A line of it names the process, the level, the time, the place in vLLM's source,
# and then says something. Here are the lines of this server's start that mean something, and what. Read the column on
# the right as a checklist: on a rented GPU these are the lines you wait for.

# %% name="log"
start = drills.engine_log(server)
log = server_log.frame(start.text)
server_log.explained(log)

# %% [markdown] name="startup-note"
# `at_s` counts seconds from the first line. Where do they go? (The log has whole seconds only, and calls the memory
# "GPU KV cache" on a CPU, too.)

# %% name="figure-startup" tags=["figure"]
phases = server_log.startup(log, before_s=start.before_s, origin=start.origin, server=start.server)
figures.show(figures.startup_phases, phases, title="Where the time of a start goes")

# %% [markdown] name="startup-2"
# A small model on a CPU spends its start on importing Python packages, once in each process. A large one on a GPU adds
# long bars of its own: reading the weights from disk, compiling, recording graphs. The phases and their lines in the
# log are the same, and so is the lesson: *started* is not *ready*.

# %% [markdown] name="recipe"
# ## 2. The recipe, flag by flag
#
# This is the command behind this notebook, as a table. Every flag of the course's recipes has a reason and a source.

# %% name="recipe-embedded"
recipes.table("embedded")[["flag", "value", "why"]]

# %% [markdown] name="recipe-b200-note"
# And this is a recipe for PhoneLLM itself on one B200, with most of its weights in four bits each (NVFP4). The course was made
# without a B200. So the table says of every flag who published it, and whether we ran it or only checked that vLLM
# knows it.

# %% name="recipe-b200"
recipes.table("b200-nvfp4")

# %% [markdown] name="recipe-b200-read"
# Three groups. *Right answers*: the MoE back end, the type of the KV cache, the type of the Mamba state. Get the first
# wrong and the model talks fluent nonsense (section 10). *Speed and room*: context length, share of the memory, prefix
# cache, and `--max-num-seqs`, which decides from when on callers queue. *What the caller hears*: template, temperature,
# parsers. That third group is the subject of the next three sections.

# %% name="recipe-numbers"
published.show("serve.nvfp4_kv_bf16_delta", "serve.nvfp4_kv_fp8_delta", "serve.nvfp4_kv_bf16_cost")

# %% [markdown] name="recipe-seqs-note"
# A cache in eight bits costs far more quality than weights in four, so this recipe keeps it in sixteen and pays
# with room. And this is what `--max-num-seqs` can do to a number. In the second row more requests came than the server lets
# in at once, so most of the "time to first token" was waiting in line:

# %% name="recipe-seqs"
published.show("serve.alone_ttft_p50", "serve.queue_ttft_p50")

# %% [markdown] name="recipe-compare-note"
# Other machines, same model. A flag in one column only is a question worth asking:

# %% name="recipe-compare"
recipes.compare("b200-bf16", "b200-nvfp4", "h100-bf16", "l40s-fp8")

# %% [markdown] name="template"
# ## 3. From messages to a prompt
#
# You send messages; the model reads one long text. The **chat template**, a small program that comes with the model,
# makes the text. This is PhoneLLM's manner:

# %% name="template-render"
phonellm = templates.phonellm()
hello = prompts.conversation(prompts.HELLO)
print("template:", phonellm.source, "\n")
print(phonellm.render(hello))

# %% [markdown] name="template-2"
# If that says *reconstruction*, it is our own, written from what is publicly known about the template; the first lines of
# `data/phonellm/chat_template.jinja` say what is known and what is guessed. Once you have downloaded the model (lesson
# 02), this cell uses the real file.
#
# Look at the last two lines. The template opens the assistant's turn, and in it a **think pair**: `<think>`. The model
# goes on from there, so it thinks, and the caller waits. A request can send `enable_thinking: false`. Then the template
# writes the pair itself, empty and already closed, all on one line, and the model goes on with the answer.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: the end of the prompt
#
# difficulty ●○○ · importance ●●● · 5 minutes
#
# Write what the template adds behind the last message, with thinking on and off. Line breaks count: they are tokens, and
# a model that was trained with one and served without it answers worse.


# %% name="ex-1" tags=["exercise"]
def prompt_end(thinking: bool) -> str:
    """The opening of the assistant's turn, as the template writes it."""
    # --- your code: the opening line, then the think pair: open, or empty and closed
    opening = "<|im_start|>assistant\n"
    return opening + ("<think>\n" if thinking else "<think></think>")
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "04-1",
    hints=(
        "Both begin with the same line. What stands behind it in the text printed above?",
        "Thinking on: the opening line, a line break, `<think>`, a line break. Off: `<think></think>` behind the "
        "first line break, and nothing after it.",
    ),
)
no_opening = (
    lambda text: not text.startswith("<|im_start|>assistant\n"),
    "Begin with `<|im_start|>assistant` and a line break. What stands before belongs to the last message.",
)
own = templates.embedded()  # the course's own template: the same endings, whatever PhoneLLM's file says
exercise.case(
    "thinking on",
    prompt_end,
    args=(True,),
    expect=own.ending(hello),
    mistakes=[
        (
            lambda text: text.rstrip("\n") == own.ending(hello).rstrip("\n"),
            "Count the line breaks at the end.",
        ),
        (lambda text: "</think>" in text, "That pair is closed: the model could not think in it."),
        (
            lambda text: "<think>" not in text,
            "The think pair is missing: thinking is on unless switched off.",
        ),
        no_opening,
    ],
)
exercise.case(
    "thinking off",
    prompt_end,
    args=(False,),
    expect=own.ending(hello, enable_thinking=False),
    mistakes=[
        (
            lambda text: "</think>" not in text and "<think>" in text,
            "Left open like that, the model goes on with a thought.",
        ),
        (
            lambda text: "think" not in text,
            "Without any pair the model may open one itself. The template writes an empty pair.",
        ),
        (lambda text: "<think>\n" in text, "The empty pair has nothing in it, no line break either."),
        (lambda text: text.endswith("\n"), "Nothing follows the pair: the answer begins right there."),
        no_opening,
    ],
)
exercise.verdict()
prompt_end = exercise.use(prompt_end)

# %% name="template-endings"
print("PhoneLLM, thinking off:", repr(phonellm.ending(hello, enable_thinking=False)))
print("embedded, thinking off:", repr(own.ending(hello, enable_thinking=False)))
print("yours:                 ", repr(prompt_end(False)))

# %% [markdown] name="template-history"
# One more rule, and it saves money. Thoughts of earlier turns are dropped from the history (`truncate_history_thinking`):
# the pair stays, empty. A long call does not carry its old thoughts along.

# %% name="template-truncate"
earlier = [
    *hello,
    {
        "role": "assistant",
        "reasoning": "The caller is waiting for a bicycle.",
        "content": "Your order number?",
    },
    {"role": "user", "content": "1234."},
]
for drop in (True, False):
    text = phonellm.render(earlier, truncate_history_thinking=drop)
    print(f"truncate_history_thinking={drop}: {text.split('<|im_start|>')[3]!r}")

# %% [markdown] name="temperature"
# ## 4. Who sets the temperature?
#
# Temperature 0 takes the likeliest token each time; above it, tokens are drawn by chance. Ask the same question three
# times without saying a temperature, and three times with `temperature=0`:

# %% name="temperature-try"
silent = streaming.chat_request(hello, max_tokens=12)
del silent["temperature"]
zero = streaming.chat_request(hello, max_tokens=12, temperature=0)
for name, request in {"not sent": silent, "sent, 0": zero}.items():
    said = [latency.measure(streaming.ask(server, request)).answer for _ in range(3)]
    print(f"{name}: {len(said)} replies, {len(set(said))} different, such as {said[0]!r}")

# %% [markdown] name="temperature-2"
# Nobody sent a temperature, and yet one was used. vLLM looks in three places, in this order: the request; the model's
# `generation_config.json` (which it reads unless told not to, with `--generation-config`); its own default, which is to
# sample. PhoneLLM's file says `do_sample: true`; its card says temperature 0, because it was trained for that. vLLM does
# not read that word of the file, only a temperature. Where neither you nor the file names one, it samples all the same.
#
# So say it, twice: in every request, as `streaming.chat_request` does, and at the server, for clients that forget:
# `--override-generation-config '{"temperature":0}'`. Section 8 shows that flag at work.

# %% [markdown] name="tools"
# ## 5. A tool call is two requests
#
# A phone agent looks things up. The request offers a tool; the model answers with its name and arguments; *your* code runs
# it; a second request carries the result, and only its answer is spoken.

# %% name="tool-ask"
question = prompts.conversation("Where is order 1234?")
offer = {"tools": [prompts.ORDER_TOOL], "tool_choice": "required"}
first = streaming.ask(server, streaming.chat_request(question, max_tokens=60, **offer))
pieces = [
    piece
    for event in first.events
    if event.data != "[DONE]"
    for choice in json.loads(event.data)["choices"]
    for piece in choice["delta"].get("tool_calls") or []
]
pieces[:3]

# %% [markdown] name="tool-parse-note"
# The call comes in pieces: first an id and the name, then the arguments, a few letters at a time. They are JSON only when
# all are there. (`required` makes the small model call; left to itself, it never would. PhoneLLM decides by itself.)

# %% name="tool-parse"
call = {"id": "made-up", "name": "find_order", "arguments": '{"order": "1234"}'}
if pieces:
    call = {"id": pieces[0]["id"], "name": pieces[0]["function"]["name"]}
    call["arguments"] = "".join(piece["function"].get("arguments") or "" for piece in pieces)
else:
    print("This server called no tool. We go on with a call of our own.")
try:
    wanted = json.loads(call["arguments"])["order"]
except (ValueError, KeyError, TypeError):  # cut off, or not what the tool takes
    print(f"This server made a call that cannot be run: {call['arguments']!r}. We mend it.")
    wanted, call["arguments"] = "1234", '{"order": "1234"}'
print(call["name"], call["arguments"])


# %% name="tool-run"
def find_order(order: str) -> dict:
    """What a shop's own system would look up."""
    return {"order": order, "status": "in the workshop", "ready": "Friday"}


begun = time.perf_counter()
result = find_order(wanted)
tool_ms = (time.perf_counter() - begun) * 1000
result

# %% [markdown] name="ex-2-card"
# ### Exercise 2: the second turn
#
# difficulty ●●○ · importance ●●● · 7 minutes
#
# Write the messages of the second request: all that was said so far, then the assistant's call, then the tool's result.
# The two new messages have these shapes:
#
#     {"role": "assistant", "content": "", "tool_calls": [
#         {"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}]}
#     {"role": "tool", "tool_call_id": ..., "content": ...}
#
# `arguments` and `content` are text, not objects.


# %% name="ex-2" tags=["exercise"]
def second_turn(messages: list[dict], call: dict, result: dict) -> list[dict]:
    """Messages for the request that follows a tool call. ``call`` has ``id``, ``name`` and ``arguments`` (text)."""
    # --- your code: the old messages, the assistant's call, the tool's result as JSON text
    function = {"name": call["name"], "arguments": call["arguments"]}
    made = {"id": call["id"], "type": "function", "function": function}
    return [
        *messages,
        {"role": "assistant", "content": "", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)},
    ]
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
exercise = check.Exercise(
    "04-2",
    hints=(
        "The model remembers nothing: its own call must be in the messages too, or the result answers no question.",
        "Return a new list: `[*messages, {...}, {...}]`. The result becomes text with `json.dumps(result)`; both new "
        "messages carry the call's id.",
    ),
)
asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And order 77?"}]
made = {"id": "call-a", "name": "find_order", "arguments": '{"order": "0077"}'}


def shape(messages: list[dict]) -> list[str]:
    """The roles, in order."""
    return [message["role"] for message in messages]


exercise.case(
    "the whole list",
    second_turn,
    args=(asked, made, {"status": "sent"}),
    expect=lambda got: (
        shape(got) == ["system", "user", "assistant", "tool"]
        and got[:2] == asked
        and got[2]["tool_calls"][0]["id"] == got[3]["tool_call_id"] == "call-a"
        and got[2]["tool_calls"][0]["type"] == "function"
        and got[2]["tool_calls"][0]["function"] == {"name": "find_order", "arguments": '{"order": "0077"}'}
        and json.loads(got[3]["content"]) == {"status": "sent"}
    ),
    mistakes=[
        (lambda got: isinstance(got, dict | str), "Return a list: all messages, old and new."),
        (
            lambda got: got[:1] == [asked],
            "A list in a list. Unpack the old messages: `[*messages, ...]`.",
        ),
        (lambda got: shape(got)[-1] == "user", "A tool's result has a role of its own: `tool`."),
        (
            lambda got: shape(got) == ["system", "user", "tool"],
            "The assistant's own call is missing. Without it the result answers a question that nobody asked.",
        ),
        (
            lambda got: shape(got) == ["assistant", "tool"],
            "The model remembers nothing: send the old messages too.",
        ),
        (lambda got: shape(got)[-2:] == ["tool", "assistant"], "First the call, then its result."),
        (
            lambda got: "tool_call_id" not in got[3],
            "The tool's message must say which call it answers: `tool_call_id`.",
        ),
        (lambda got: isinstance(got[3]["content"], dict), "`content` is text: `json.dumps(result)`."),
        (
            lambda got: got[3]["content"] == str({"status": "sent"}),
            "That is Python, not JSON: use `json.dumps`.",
        ),
        (
            lambda got: isinstance(got[2]["tool_calls"][0]["function"]["arguments"], dict),
            "`arguments` goes back as it came: as text.",
        ),
        (
            lambda got: isinstance(got[2]["tool_calls"], dict),
            "`tool_calls` is a list: a model may call two at once.",
        ),
        (
            lambda got: not got[2].get("tool_calls"),
            "The call goes into `tool_calls`, not into `content`.",
        ),
        (
            lambda got: "function" not in got[2]["tool_calls"][0],
            "Look at the shape in the card: name and arguments stand inside `function`.",
        ),
        (
            lambda got: got[2]["tool_calls"][0].get("type") != "function",
            "The call lacks its `type`, which is `function`.",
        ),
        (
            lambda got: got[2]["tool_calls"][0]["function"]["arguments"] == json.dumps(made["arguments"]),
            "`arguments` is text already; `json.dumps` put it in quotes once more.",
        ),
        (
            lambda got: got[2]["tool_calls"][0]["id"] != "call-a" or got[3]["tool_call_id"] != "call-a",
            "Both new messages carry the id of the call that was given: `call['id']`.",
        ),
    ],
)
exercise.verdict()
second_turn = exercise.use(second_turn)

# %% [markdown] name="tool-second-note"
# Now the second request. The small model could not make a sentence of the result, so structured output gives it one to
# say. The words are ours; the time is the server's.

# %% name="tool-second"
messages = second_turn(list(question), call, result)
sentence = {"choice": ["Your order is in the workshop and will be ready on Friday."]}
after = {"tools": offer["tools"], "tool_choice": "none", "structured_outputs": sentence}
reply = streaming.ask(server, streaming.chat_request(messages, max_tokens=30, **after))
call_row, row = latency.measure(first), latency.measure(reply)
waits = {"the call": call_row.e2e_ms, "the tool": tool_ms, "the answer": row.ttfat_ms}
cached = "an unknown number" if row.cached_tokens is None else row.cached_tokens
print(f"{row.answer}\n{cached} of {row.prompt_tokens or 'the'} prompt tokens came from the cache\n")
pd.Series(waits, dtype=float).rename("the caller waits, ms").round(1)

# %% [markdown] name="tool-time"
# The caller hears nothing until all three are over: the *whole* call, not its first token; the tool; and the first token
# of the answer. Two requests, one silence. (The second prompt begins with the first one, so much of it is in the prefix
# cache; vLLM counts that in blocks.)
#
# How does the text of a call become those fields? Each model writes calls in its own way, and a **tool parser** reads
# it. The same conversation, in the two ways:

# %% name="tool-formats"
for template in (phonellm, own):
    text = template.render(messages, tools=offer["tools"], enable_thinking=False)
    written = text[text.rindex("<tool_call>") : text.rindex("</tool_call>")] + "</tool_call>"
    print(f"{template.name}:\n{written}\n")

# %% [markdown] name="tool-formats-2"
# XML here, JSON there: `--tool-call-parser qwen3_coder` for PhoneLLM, `hermes` for the small model. With the wrong one the
# server starts and runs, and the raw text of the call is sent as the answer. A voice would read it aloud.

# %% [markdown] name="tool-thinking-note"
# A trap to know. Take the first request again, with thinking **on**:

# %% name="tool-thinking"
thinks = streaming.chat_request(question, max_tokens=60, thinking=True, **offer)
row = latency.measure(streaming.ask(server, thinks))
print(f"tool call: {row.tool_call!r}\nreasoning: {row.reasoning[:70]!r}\nanswer: {row.answer[:70]!r}")

# %% [markdown] name="tool-thinking-2"
# `required`, and no call. While the model thinks, vLLM does not enforce anything; it waits for the end of the thinking. It
# recognises that end by *one token*, the id of `</think>`, in what was generated or in the prompt. The small model never writes
# one, so it thinks for ever. And on a model where `</think>` is not a single token, even thinking **off** would not help: the
# closed pair would be in the prompt, unseen. If a model calls no tools on your server, look at this first.

# %% [markdown] name="drills"
# ## 6. Failure drills: requests
#
# Failures are easiest to read when one has seen them before. The first two need no server of your own. *The model's name
# is wrong*, the first thing that happens to everybody:

# %% name="drill-name"
wrong = streaming.chat_request("Is anybody there?", max_tokens=4, model="phonellm-alpha-l")
error = streaming.ask(server, wrong).error
print(error.message if error else "This server takes any name.")
fixed = streaming.chat_request("Is anybody here?", max_tokens=4, model=server.model)
print("fixed:", streaming.ask(server, fixed).error or "answered")

# %% [markdown] name="drill-long-note"
# *The conversation has grown too long.* A call goes on, the history with it, and one day prompt and answer together are
# longer than `max_model_len`:

# %% name="drill-long"
for lines in ((limit or 4096) // 20, (limit or 4096) // 60):
    system = f"{prompts.AGENT}\n{prompts.rules(lines)}"
    long_call = streaming.ask(
        server, streaming.chat_request(prompts.conversation("Hello?", system=system), max_tokens=8)
    )
    print(f"{lines} rules:", long_call.error.message if long_call.error else "answered")

# %% [markdown] name="drill-long-2"
# Refused at once, with the numbers: a 400 is the request's fault, so sending it again is no help. The fix is on your side: drop the
# oldest turns (keep the system prompt, for its sake and the prefix cache's), or start the server with a larger
# `--max-model-len` if the memory is there.

# %% [markdown] name="starts"
# ## 7. Failure drills: starts
#
# Now a server of your own, beside the shared one: the same model, with changed flags. This command has **three** mistakes.
# vLLM finds them one at a time, so each start that fails is the proof that the mistake before it is mended. (Where no
# second server can run, you see what we recorded.)

# %% name="start-1"
changes = {
    "--tool-call-parser": "hermess",
    "--port": drills.port_of(server),  # the port of the server that is running
    "VLLM_CPU_KVCACHE_SPACE": "100000",  # GiB of memory for the KV cache
}
parser = drills.run("parser", changes, server)
print(parser.tail())

# %% [markdown] name="start-2-note"
# A stack trace, and the last line says it all: it even lists the parsers that there are. Mend that, and go on.

# %% name="start-2"
changes["--tool-call-parser"] = "hermes"
port = drills.run("port", changes, server)
print(port.tail())

# %% [markdown] name="start-3-note"
# The parser is right now, and the port is taken. A caution: the other server went on answering at that port the whole
# time. Had you only asked `/health` there, it would have said "fine", of the wrong server. Mend it: without `--port`, the
# drill takes a free one.

# %% name="start-3"
changes.pop("--port", None)
memory = drills.run("memory", changes, server)
print(memory.tail())

# %% [markdown] name="start-4-note"
# This time it took longer, and the last line is no help: "See root cause above". What failed was another process. It
# told its story further up; the one that waited for it told it again; and the last word has the one that only noticed.

# %% [markdown] name="ex-3-card"
# ### Exercise 3: find the cause
#
# difficulty ●●○ · importance ●●● · 7 minutes
#
# Write the function that you will wish for at three in the morning: from a log to the **first** error in it.
# `server_log.frame(log)["message"]` gives you the messages, without the process and time before them. An error's message
# *begins* with its name, such as `ValueError: `.


# %% name="ex-3" tags=["exercise"]
def cause(log: str) -> str | None:
    """The first message of a log that begins with the name of an error and a colon; None if there is none."""
    # --- your code: go through the messages in order; re.match looks at the beginning only
    for message in server_log.frame(log)["message"]:
        if re.match(r"\w+Error: ", message):
            return message
    return None
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
exercise = check.Exercise(
    "04-3",
    hints=(
        "From the top, and stop at the first. What tells an error from a line that only mentions one?",
        'Loop over `server_log.frame(log)["message"]` and return the first with '
        r'`re.match(r"\w+Error: ", message)`.',
    ),
)
last = [
    (
        lambda got: "See root cause above" in str(got),
        "That line says itself where to look: above. Take the first.",
    ),
    (
        lambda got: "ulimit" in str(got) or "Errno 24" in str(got),
        "That is a warning that quotes an error. An error's message begins with its name: `re.match`, not `re.search`.",
    ),
    (lambda got: "raise " in str(got), "That is the line of source that raised it; the message comes below."),
    (lambda got: "pid=" in str(got), "Only the message: take it from `server_log.frame(log)`."),
    (
        lambda got: "failed to start" in str(got),
        "That something failed, not what. Look for the name of an error, whatever the line's level is.",
    ),
    (
        lambda got: re.fullmatch(r"\w+Error: ?", str(got)),
        "Return the whole message, not only what the pattern matched.",
    ),
    (lambda got: got is None, "There is one: `re.match` from the beginning of each message."),
]
for name, words in {
    "port": "the port is taken",
    "parser": "no such parser",
    "memory": "too little memory",
}.items():
    recorded_log = drills.recorded_start(name).log
    exercise.case(words, cause, args=(recorded_log,), expect=server_log.cause(recorded_log), mistakes=last)
exercise.case("a log without any error", cause, args=("INFO: Application startup complete.",), expect=None)
exercise.verdict()
cause = exercise.use(cause)

# %% name="causes"
for outcome in (parser, port, memory):
    print(f"{outcome.drill}: {(cause(outcome.log) or 'nothing found')[:140]}")

# %% [markdown] name="memory-2"
# There it is, with both numbers: what was asked for, and what is there. On a GPU the words are others ("No available memory
# for the cache blocks", "CUDA out of memory"), the place in the log is the same. The fix, too: ask for less. There that is
# `--gpu-memory-utilization`, `--max-model-len`, `--max-num-seqs`, or smaller weights (lesson 03 counts what fits).

# %% [markdown] name="session"
# ## 8. A server that starts
#
# All three mistakes are mended. This start will work, and it has three flags changed on purpose: no reasoning parser; the
# think marks are named instead, so that a request can still limit the thinking; and the temperature is set at the server.

# %% name="session-start"
marks = {"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}
session = drills.session(
    {
        "--reasoning-parser": None,  # leave it out
        "--reasoning-config": json.dumps(marks),
        "--override-generation-config": json.dumps({"temperature": 0}),
    },
    server,
)
try:
    print("ready:", session.ready())
except ConnectionError as error:
    print("at once after the start:", error)

# %% [markdown] name="session-wait-note"
# The first drill of this section came for free: a *request before the server is ready*. Nobody listens yet, so the
# connection is refused. A hosted endpoint that was asleep answers 503 instead, for minutes. Both mean: wait, ask again,
# and give up some time.

# %% [markdown] name="ex-4-card"
# ### Exercise 4: wait until it is ready
#
# difficulty ●●● · importance ●●● · 8 minutes
#
# Ask `ready()` again and again, with a pause of `pause_s` in between, until it says True: return the seconds that it took.
# A `ConnectionError` means "not yet". Not ready within `timeout_s`: return `None`. Take time from `clock()` and pause with
# `sleep(...)`: the check hands you a clock of its own, so that nobody has to wait.


# %% name="ex-4" tags=["exercise"]
def wait_until_ready(ready, timeout_s: float, pause_s: float = 0.5, clock=time.monotonic, sleep=time.sleep):
    """Seconds until ``ready()`` was True, or None if it was not within ``timeout_s``."""
    # --- your code: note the time; ask; catch ConnectionError; pause; stop when the time is up
    begun = clock()
    while clock() - begun < timeout_s:
        try:
            if ready():
                return clock() - begun
        except ConnectionError:
            pass  # nobody listens yet
        sleep(pause_s)
    return None
    # --- end


# %% name="ex-4-check" tags=["check"]
# Check of exercise 4: run this cell after yours.
exercise = check.Exercise(
    "04-4",
    hints=(
        "Three ways out of one question: True, False, ConnectionError. Two of them mean the same.",
        "`while clock() - begun < timeout_s:` and in it `try: if ready(): return clock() - begun`, `except "
        "ConnectionError: pass`, then `sleep(pause_s)`. After the loop `return None`.",
    ),
)


def given(startup: practice_serve.Startup, timeout_s: float) -> dict:
    """The arguments, all on this server's own clock."""
    clocks = {"clock": startup.clock, "sleep": startup.sleep}
    return {"ready": startup.ready, "timeout_s": timeout_s, "pause_s": 1.0} | clocks


exercise.case(
    "refused for 15 s, not ready until 20 s",
    wait_until_ready,
    kwargs=given(practice_serve.Startup(15, 20), 120),
    expect=lambda seconds: seconds is not True and 20 <= seconds < 22,
    mistakes=[
        (lambda seconds: seconds is True, "Return the seconds it took, not whether it worked."),
        (
            lambda seconds: seconds is None,
            "You gave up too early: only after `timeout_s` on the given clock.",
        ),
        (lambda seconds: 15 <= seconds < 20, "It listened, but `ready()` still said False: go on asking."),
        (lambda seconds: seconds < 1, "Is that the time on the given clock? Use `clock()`, not `time`."),
    ],
)
exercise.case(
    "never ready",
    wait_until_ready,
    kwargs=given(practice_serve.Startup(5, 10_000), 30),
    expect=None,
    mistakes=[
        (lambda seconds: seconds is False, "Return `None` if it was not ready in time."),
        (lambda seconds: isinstance(seconds, float), "It was never ready: there is no such time."),
    ],
)
exercise.case(
    "ready at once",
    wait_until_ready,
    kwargs=given(practice_serve.Startup(0, 0), 30),
    expect=lambda seconds: seconds is not True and 0 <= seconds < 1,
    mistakes=[
        (lambda seconds: seconds is True, "Return the seconds it took, not whether it worked."),
        (lambda seconds: seconds >= 1, "Ask first, pause afterwards."),
    ],
)
exercise.verdict()
wait_until_ready = exercise.use(wait_until_ready)

# %% name="session-wait"
waited = wait_until_ready(session.ready, timeout_s=300)
print(
    f"ready {session.ready_s} s after its start ({session.origin})"
    if waited is not None
    else "not ready in time"
)

# %% [markdown] name="parser-note"
# *Without a reasoning parser.* The same request to both servers: think for ten tokens, then answer.

# %% name="parser-off"
think = streaming.chat_request(hello, max_tokens=30, thinking=True, thinking_token_budget=10)
session.ask("warm up", think)
replies = {"with parser": streaming.ask(server, think), "without": session.ask("thinks", think)}
rows = {name: latency.measure(reply) for name, reply in replies.items()}
columns = {"ttft_ms": "TTFT, ms", "ttfat_ms": "TTFAT, ms", "reasoning": "reasoning", "answer": "content"}
pd.DataFrame({name: vars(row) for name, row in rows.items()}).loc[list(columns)].rename(index=columns)

# %% name="figure-parser" tags=["figure"]
chunks = latency.chunk_table(replies)
figures.show(figures.stream_timeline, chunks, title="The same thoughts, told apart and not")

# %% [markdown] name="parser-2"
# Without the parser the thoughts *are* the answer: a voice would speak them, and the mark `</think>` too. And look at
# the clocks. TTFT and TTFAT have become the same number, and a fine one. It is a lie: the caller's answer begins where
# it began before. A dashboard would not notice.
#
# For PhoneLLM the parser is `nano_v3`, a file in the model's repository, loaded with `--reasoning-parser-plugin`. Reports
# disagree about serving without any: some saw a literal `</think>` even with thinking off, others served that way and saw
# none. `known_problems.think_leak(server)` tests yours.

# %% [markdown] name="temperature-server-note"
# *The temperature, set at the server.* The request of section 4 that sends none, three times:

# %% name="temperature-server"
said = [latency.measure(session.ask("silent", silent)).answer for _ in range(3)]
print(f"{len(said)} replies, {len(set(said))} different, such as {said[0]!r}")

# %% [markdown] name="kill-note"
# *Killed in mid-stream.* When memory runs out, the system ends the largest process without a word: the one that holds the
# model. We do the same, while it is speaking:

# %% name="kill"
story = streaming.chat_request(hello, max_tokens=300, ignore_eos=True)
broken = session.kill_in_midstream(story)
session.stop()
pd.Series(vars(broken)).drop("exit_code").to_frame(session.origin)

# %% [markdown] name="kill-2"
# The stream had begun with status 200, so no status tells of the failure: half a sentence comes, then an error in the
# middle of the stream. The caller has heard the half. The next request gets a 500, and then the server is gone. Its log:

# %% name="kill-log"
said = server_log.frame(session.log())
fatal = said[said["message"].str.contains("exited unexpectedly|EngineDeadError|Shutting down")]
for row in fatal.drop_duplicates("message").itertuples():
    print(f"{row.process} {row.level}: {row.message}")
print("exit code:", broken.exit_code)

# %% [markdown] name="kill-3"
# No cause in it, and there cannot be one: the process had no time to say anything. The system's log has it (`dmesg`, "Out of
# memory"). And mind the exit code: it is that of an orderly end, so a service manager told to "restart on failure" would
# leave the server down. Tell it to restart always.
#
# Recovery has two halves. Someone restarts the server. And the client notices, and asks another one at once:


# %% name="failover"
def ask_one_of(servers: list, request: dict) -> tuple[int, streaming.Timeline]:
    """The first good answer, and how many servers were tried for it."""
    for tried, one in enumerate(servers, 1):
        reply = streaming.ask(one, request)
        if reply.error is None:
            return tried, reply
    return len(servers), reply


gone = replace(server, base_url="http://127.0.0.1:9/v1", name="the dead one")
tried, reply = ask_one_of([gone, server], zero)
print(f"answered by server {tried}: {latency.measure(reply).answer!r}")

# %% [markdown] name="failover-2"
# (Nobody listens at that port, as nobody does at a dead server's.) What has been spoken already cannot be taken back, so an
# agent says a short "sorry, once more" and begins the sentence anew. Lesson 10 puts a router in this place.

# %% [markdown] name="b200"
# ## 9. The way to a B200
#
# The same on a rented GPU is one command, `make serve PROFILE=b200-nvfp4`. It prints what it runs, and where the machine
# does not fit it says what is missing. Ready to paste:

# %% name="b200-command"
recipe = recipes.load("b200-nvfp4")
print(recipes.shell(recipe))

# %% name="b200-missing" tags=["needs-gpu"]
for line in serve.missing(recipe) or ["nothing: type make serve PROFILE=b200-nvfp4 in a terminal"]:
    print("missing here:", line)

# %% [markdown] name="b200-files"
# `deploy/` holds the recipe for the unquantised weights (`b200-bf16`) as a container, for SkyPilot and for Modal; its
# README says how each is started and stopped, and who can reach it. Whatever you use: before a server can be reached from
# outside, set a key. Without one, whoever finds the address uses your GPU.
#
# Then let the lessons measure it: `export PHONELLM_BASE_URL=http://HOST:8000/v1`, and `make lab`.

# %% [markdown] name="problems"
# ## 10. Known problems, and how to test for them
#
# What others ran into with this model and its family, the most dangerous first. The first one is why a recipe names its
# MoE back end: the server runs, it is fast, the text is fluent, and it is wrong. No latency shows that.

# %% name="problems-table"
known_problems.table()[["problem", "affects", "what_to_do", "how_to_test"]]

# %% [markdown] name="problems-test-note"
# More than half of them can be tested on any server that runs. Two of these tests, on the one behind this notebook:

# %% name="problems-test"
known_problems.check(server, known_problems.think_leak, known_problems.temperature_default)

# %% [markdown] name="wrong-text-note"
# And the dangerous one: questions that have one answer each, at temperature 0. On a small model it says nothing, because
# that cannot do sums, whatever its kernels do. On your own PhoneLLM, run it after every start.

# %% name="wrong-text" tags=["needs-gpu"]
if "smollm2" in server.model:
    print("This is the small model. Set PHONELLM_BASE_URL to your PhoneLLM, and run this cell there.")
else:
    print(pd.Series(vars(known_problems.wrong_text(server))))

# %% [markdown] name="recap"
# ## Recap
#
# - Health, models, metrics, log: four pages answer most questions about a server.
# - Each flag has a reason, a source, and a "verified by whom". Ask for all three.
# - The template decides whether the model thinks; thinking is on unless you switch it off.
# - Send temperature 0 in each request, and set it at the server as well.
# - A tool call is two requests and one silence. Parsers turn text into fields; without the right one a voice reads markup aloud.
# - Read a log from the top: the first error is the cause. The last line is often only the messenger.
# - Started is not ready, a taken port answers "healthy", and a stream that began with 200 can still break.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "04-q1",
    "The last line of the log is `RuntimeError: Engine core initialization failed. See root cause above.` What now?",
    [
        quiz.Option(
            "Search the web for that line",
            why="Every failure of the engine's process ends in that line: it says nothing about yours.",
        ),
        quiz.Option(
            "Start it again; it may work", why="It will fail in the same way, and cost another start."
        ),
        quiz.Option(
            "Go up to the first error in the log",
            right=True,
            why="The process in which it happened told it first, with numbers; the others pass it on.",
        ),
        quiz.Option(
            "Reinstall vLLM", why="The engine ran far enough to say why it stopped. Read that first."
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "04-q2",
    "A server runs without a reasoning parser, with thinking on. Its TTFAT is excellent. What do you make of it?",
    [
        quiz.Option(
            "Nothing: the first token of a thought is counted as the answer",
            right=True,
            why="Without a parser the thoughts arrive as content. What the caller waits for starts after them.",
        ),
        quiz.Option(
            "The parser was slow, so it is better without",
            why="A parser only sorts text; it takes no time to speak of.",
        ),
        quiz.Option(
            "The model does not think any more",
            why="It does: the template opened a thought, and the model goes on with it. You can read it in the content.",
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "04-q3",
    "You start a second server, and `/health` at its port says 200 at once. Is it ready?",
    [
        quiz.Option("Yes: 200 means healthy", why="Healthy, yes. But who answered?"),
        quiz.Option(
            "No: the answer must come from another server that has the port",
            right=True,
            why="Nothing is ready within a second. The new one cannot have the port, and will end with an error.",
        ),
        quiz.Option("No: 200 is a failure", why="200 is the good one; look at who sent it."),
        quiz.Option(
            "One cannot know", why="One can: look at the log, at the time it took, and at who has the port."
        ),
    ],
)

# %% name="progress"
progress.show("04")

# %% [markdown] name="next"
# ## Next
#
# **05 · Measure TTFT**: a stopwatch around a request looks like the easiest thing in the world. It is not.
