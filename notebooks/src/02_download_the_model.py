# %% [markdown] name="title"
# # 02 · Download the model
#
# PhoneLLM is a folder of files on the Hugging Face Hub, and a large one. Before you fetch it you want to know what
# is in it, what you may do with it, whether it fits and how long it takes. And you want the download to survive
# being cut off. You practise all of that on a small repository, from a hub on this machine that breaks when you tell
# it to.
#
# | | |
# |---|---|
# | **You will** | read the file list and the licence; make a plan; fetch a part of a repository; kill a download and let it go on; find one flipped byte |
# | **You will learn** | what the Hub's client does for you and what it does not: revisions, patterns, the cache, resuming, checksums |
# | **You need** | lesson 00; no engine, and no network (with one, the real file list is fetched: a few MB at most) |
# | **Time** | 30 minutes, of which the cells run for less than one |

# %% name="setup" tags=["setup"]
import hashlib
import tempfile
from pathlib import Path

import pandas as pd
from huggingface_hub import HfApi, hf_hub_download, snapshot_download

from helpers import check, figures, hub, hub_drill, practice_hub, progress, published, quiz
from helpers.settings import CourseError

# %% name="options"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole

# %% [markdown] name="inside"
# ## 1. What is in the repository
#
# The model is published twice: in BF16, two bytes for each parameter, and in NVFP4, where most parameters take
# four bits.

# %% name="published-sizes"
published.show("hub.bf16_size", "hub.bf16_shards", "hub.nvfp4_size", "hub.nvfp4_shards")

# %% [markdown] name="inside-2"
# Now the list of files. With a network it comes from the Hub; without one, from `data/hub`, which holds what is
# known from public sources. Lengths that nobody published stay empty there.

# %% name="look"
phone = hub.look(hub.REPO)
small = hub.look(hub.NVFP4, revision=None)
phone.files[["file", "files", "bytes", "kind", "origin"]].style.format(thousands=",", na_rep="")

# %% name="by-kind"
hub.by_kind(phone)[["kind", "files", "bytes", "origin", "source"]].style.format(thousands=",", na_rep="")

# %% [markdown] name="kinds"
# Almost all of it is weights, cut into shards, so that a download can be split and no single file gets huge. The rest
# is small, and you will need it sooner than the weights:
#
# - `config.json` describes the architecture: lesson 03.
# - The tokenizer and `chat_template.jinja` turn a conversation into numbers: lesson 04.
# - The `.py` files are **code**. A server started with `--trust-remote-code` runs them on your machine. That is one
#   more reason to know exactly which version you fetched.

# %% [markdown] name="licence"
# ## 2. The licence, in plain words
#
# Two licences lie on top of each other. Pipecat's own work (the fine-tuning) is under BSD-2-Clause. Underneath, the
# weights come from NVIDIA's Nemotron, and the NVIDIA Nemotron Open Model License still applies to them.
#
# | you want to | what that asks of you |
# |---|---|
# | run it for your own callers | read both texts; the duties named below are about passing it on |
# | pass the weights on: a copy, a container image with them inside, a fine-tuned version | both texts and NVIDIA's notices go along: `LICENSE`, `LICENSE_NVIDIA.txt` |
# | complain that it does not work | BSD-2-Clause gives no warranty |
#
# This is our reading in a few words, not legal advice. Both texts are among the first files you fetch.

# %% [markdown] name="plan"
# ## 3. A plan
#
# Three numbers decide: bytes, free disk, bandwidth. Sizes of files are given in **bytes**, bandwidth in **bits** a
# second, and both in powers of ten. Mixing them up is the usual mistake.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: how many minutes?
#
# difficulty ●○○ · importance ●●○ · 3 minutes
#
# A line of so many Mbit/s (a million bits a second), a download of so many bytes: how many minutes, if the line does
# what it says?


# %% name="ex-1" tags=["exercise"]
def download_minutes(size_bytes: float, mbit_per_s: float) -> float:
    """Minutes to fetch ``size_bytes`` over a line of ``mbit_per_s`` megabits a second."""
    # --- your code: bytes to bits, bits to seconds, seconds to minutes
    bits = size_bytes * 8
    seconds = bits / (mbit_per_s * 1_000_000)
    return seconds / 60
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
exercise = check.Exercise(
    "02-1",
    hints=(
        "How many bits are in a byte, and how many seconds in a minute?",
        "Bits are `size_bytes * 8`; a second takes `mbit_per_s * 1_000_000` of them; divide seconds by 60.",
    ),
)
exercise.case(
    "63.17 GB at 200 Mbit/s",
    download_minutes,
    args=(63.17e9, 200),
    expect=42.113,
    tolerance=1e-3,
    mistakes=[
        (lambda m: 5.2 < m < 5.3, "That is for a line of so many megabytes a second. A byte has eight bits."),
        (lambda m: 2500 < m < 2550, "That is in seconds."),
        (lambda m: 40 < m < 40.3, "Disks and lines count in powers of ten: a megabit is a million bits."),
        (lambda m: 0.6 < m < 0.7, "You divided by eight. There are more bits than bytes."),
        (lambda m: 0.7 < m < 0.8, "That is in hours."),
        (lambda m: m > 5e6, "A megabit is a million bits: multiply `mbit_per_s` by a million."),
        (lambda m: m == 42, "Do not round: the exact number is wanted."),
    ],
)
exercise.case("19.4 GB at 1000 Mbit/s", download_minutes, args=(19.4e9, 1000), expect=2.5867, tolerance=1e-3)
exercise.verdict()
download_minutes = exercise.use(download_minutes)

# %% name="figure-minutes" tags=["figure"]
lines = [20, 50, 100, 200, 500, 1000, 2500, 10_000]
rows = [
    (label, mbit, download_minutes(of.bytes, mbit))
    for label, of in (("BF16", phone), ("NVFP4", small))
    for mbit in lines
]
frame = pd.DataFrame(rows, columns=["label", "mbit_per_s", "minutes"]).assign(
    origin="modelled", source="published sizes over a line that does what it says"
)
figures.show(figures.download_minutes, frame, title="From an evening to a minute")

# %% [markdown] name="own-line"
# And yours? If the Hub can be reached, the next cell times a small piece of a file. (A new connection starts slowly,
# so a long download is rather faster than that.) If it cannot, it takes the number you type.

# %% name="bandwidth"
MY_MBIT_PER_S = 200  # type yours: any speed test says it
measured = hub.measure_mbit_per_s(phone)
plan = hub.plan(phone, mbit_per_s=measured or MY_MBIT_PER_S, measured=measured is not None)
plan.table()

# %% [markdown] name="practice"
# ## 4. Practise on a small one
#
# From here on you work with a small repository. It comes from a hub in this notebook, which speaks the real one's
# protocol on an address of this machine. The client is the real one, `huggingface_hub`; all it needs to be told is
# another `endpoint`. (`token=False`: no token leaves this machine by mistake.)

# %% name="start-hub"
practice = practice_hub.start()
folder = tempfile.TemporaryDirectory()  # gone when the kernel ends; your own cache stays as it is
cache = Path(folder.name) / "hub"
here = {"endpoint": practice.endpoint, "token": False, "cache_dir": cache}
print(practice.repo, "at", practice.endpoint)

# %% name="info"
api = HfApi(endpoint=practice.endpoint, token=False)
info = api.model_info(practice.repo, files_metadata=True)
print("commit", info.sha)
pd.DataFrame(
    [(s.rfilename, s.size, s.lfs is not None) for s in info.siblings], columns=["file", "bytes", "in LFS"]
)

# %% [markdown] name="lfs"
# Large and binary files are in LFS: git itself keeps only a pointer to them, and the content lies in a store of its
# own. That matters twice below, for resuming and for checksums. (The real Hub keeps them in Xet, a store that cuts
# files into chunks; it can still hand them out as plain files, as here.)
#
# The client can tell you what it *would* do:

# %% name="dry-run"
dry = snapshot_download(practice.repo, dry_run=True, **here)
print(f"{sum(file.file_size for file in dry if file.will_download):,} bytes would be fetched")
print("sent so far:", practice.sent_bytes(), "bytes")

# %% [markdown] name="pin"
# ## 5. Pin the revision
#
# A repository has branches and tags, like any in git. `main` is a branch: it moves with each push. Watch it move.

# %% name="before-push"
before = hf_hub_download(practice.repo, "chat_template.jinja", **here)
practice.move_main()  # the author pushes a new commit
after = hf_hub_download(practice.repo, "chat_template.jinja", **here)
print(Path(before).read_text(), "--- after the push:", Path(after).read_text(), sep="\n")

# %% [markdown] name="pin-2"
# Same name, another template: the default of `enable_thinking` is now `true`, so the model thinks before it answers,
# unless told not to. Your TTFAT has changed overnight and you changed nothing. Tags can be moved too. Only a commit,
# 40 hexadecimal digits, always means the same bytes. That is why the course says which commit it means:

# %% name="pinned"
print("PhoneLLM in this course:", hub.REVISION)
pinned = practice.older  # for the practice repository: the commit before the push
again = hf_hub_download(practice.repo, "chat_template.jinja", revision=pinned, **here)
print("the pinned one is the old one:", Path(again).read_bytes() == Path(before).read_bytes())

# %% [markdown] name="patterns"
# ## 6. Take only what you need
#
# To read a config you do not need the weights. Patterns choose: `allow_patterns` keeps what fits, `ignore_patterns`
# leaves out what fits. A `*` stands for any letters, a slash too, and a pattern must fit the whole name.

# %% name="listing"
listing = hub.listing(practice.repo, pinned, endpoint=practice.endpoint)
listing.files[["file", "bytes", "kind"]]

# %% [markdown] name="ex-2-card"
# ### Exercise 2: everything but weights and pictures
#
# difficulty ●○○ · importance ●●○ · 4 minutes
#
# Write the list of patterns to ignore, so that exactly the weights and the picture are left out. The index,
# `model.safetensors.index.json`, is no weights: it says which tensor lies in which shard, and stays.

# %% name="ex-2" tags=["exercise"]
# --- your code: a list of patterns
ignore = ["*.safetensors", "*.png"]
# --- end

# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
table = listing.files
wanted = set(table.loc[~table["kind"].isin(["weights", "pictures"]), "file"])


def kept(patterns) -> set:
    return set(hub.select(table, ignore=patterns)["file"])


exercise = check.Exercise(
    "02-2",
    hints=(
        "How do the names of the shards end, and how does the picture's?",
        "Two patterns in a list, each a `*` and then the ending.",
    ),
)
exercise.value(
    "what is left",
    ignore,
    expect=lambda patterns: kept(patterns) == wanted,
    mistakes=[
        (
            lambda patterns: "model.safetensors.index.json" not in kept(patterns),
            "Your patterns leave out the index too: it does not end like a shard.",
        ),
        (
            lambda patterns: len(kept(patterns)) == len(table),
            "Nothing was left out. A pattern must fit the whole name: begin it with a `*`.",
        ),
        (
            lambda patterns: any(name.endswith(".safetensors") for name in kept(patterns)),
            "The weights are still there.",
        ),
        (lambda patterns: "images/calls.png" in kept(patterns), "The picture is still there."),
        (lambda patterns: kept(patterns) < wanted, "You left out more than weights and picture."),
    ],
)
exercise.verdict()
ignore = exercise.use(ignore)

# %% name="small-part"
path = snapshot_download(practice.repo, revision=pinned, ignore_patterns=ignore, **here)
print(f"{practice.sent_bytes():,} of {listing.bytes:,} bytes fetched")
sorted(file.relative_to(path).as_posix() for file in Path(path).rglob("*") if file.is_file())

# %% [markdown] name="break"
# ## 7. Break it off
#
# Large downloads get interrupted: the network fails, the laptop's lid is shut, the memory is full. What is left then?
# We try it the hard way: a second process downloads, the hub holds back the rest of the last shard, and the process is
# killed outright.

# %% name="kill"
broken_cache = Path(folder.name) / "broken"
broken = hub_drill.break_off(practice, broken_cache)
print(f"{broken.sent_bytes:,} bytes came; {broken.whole_bytes:,} of them are in whole files")
hub.unfinished(practice.repo, broken_cache)

# %% [markdown] name="incomplete"
# The unfinished file has its own ending, so nothing takes it for a shard. What counts as there, and what does not:

# %% name="not-there"
last_shard = "model-00002-of-00002.safetensors"
print("complete copy:", hub.local(practice.repo, practice.newer, cache=broken_cache))
print("the shard:    ", hub.find(practice.repo, last_shard, cache=broken_cache))
print("config.json:  ", hub.find(practice.repo, "config.json", cache=broken_cache).name)

# %% [markdown] name="resume"
# Now the same call once more, and what the hub was asked for:

# %% name="go-on"
practice.forget()
hub.download(practice.repo, practice.newer, yes=True, endpoint=practice.endpoint, cache=broken_cache)
asked = practice.requests()
asked[asked["bytes"].gt(0) & asked["at"].eq("store")][["path", "status", "range", "bytes"]]

# %% [markdown] name="range"
# One request, for the rest of one file: `Range: bytes=...-` says from which byte on, counted from zero, and the
# answer is `206`, partial content. That is all there is to resuming.
#
# The client can do that too, within one run. But each of its runs writes to a new temporary file, so after a kill
# it starts every unfinished file anew. Here are both ways, broken off at the same place:

# %% name="compare"
both = hub_drill.compare(practice, Path(folder.name) / "ways")
figures.show(
    figures.second_run, both, title="Killed in the middle of the last shard: what the second run fetches"
)

# %% [markdown] name="compare-2"
# A shard of PhoneLLM has almost 5 GB, and the client fetches up to eight files at once: a kill at a bad moment means
# up to 39 GB fetched twice. So `hub.download` keeps the part. It is short: read `helpers/hub_fetch.py`. On a very fast
# line the client alone may be the better choice, because it can use Xet: `hub.download(..., resume=False)`.

# %% [markdown] name="checksum"
# ## 8. The right length is not enough
#
# Let the store send one wrong byte in a shard. The length is right.

# %% name="flip"
practice.fail("flip", file=last_shard, after_bytes=1_000_000)
path = snapshot_download(practice.repo, revision=pinned, force_download=True, **here)  # even what is there
print(f"the client is content: {Path(path, last_shard).stat().st_size:,} bytes")

# %% [markdown] name="flip-2"
# No error. Over plain HTTP the client compares lengths, and nothing else. One flipped bit in a weight may go
# unnoticed for weeks, or spoil every answer. So compare checksums. The list of files has one for each: SHA-256 for
# a file in LFS, and for any other the name that git gives it.

# %% name="verify"
hub.verify(listing, cache=cache)[["file", "algorithm", "expected", "found", "right"]].assign(
    expected=lambda rows: rows["expected"].str[:12], found=lambda rows: rows["found"].str[:12]
)

# %% [markdown] name="verify-2"
# There it is. The client has a command for the same check, `hf cache verify`, and a function; you only have to call
# it:

# %% name="client-verify"
result = api.verify_repo_checksums(practice.repo, revision=pinned, cache_dir=cache)
[mismatch["path"] for mismatch in result.mismatches]

# %% [markdown] name="ex-3-card"
# ### Exercise 3: git's name for a file
#
# difficulty ●●○ · importance ●●○ · 5 minutes
#
# Git does not hash the content alone. It hashes a header and then the content: the word `blob`, a space, the length in
# bytes as digits, one zero byte. The name is the SHA-1 of all that, as hexadecimal digits.


# %% name="ex-3" tags=["exercise"]
def git_name(content: bytes) -> str:
    """The 40 hexadecimal digits by which git names a file with this content."""
    # --- your code: header and content through hashlib.sha1
    header = b"blob " + str(len(content)).encode() + b"\0"
    return hashlib.sha1(header + content).hexdigest()
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
hello = b"hello\n"
exercise = check.Exercise(
    "02-3",
    hints=(
        "What goes through the hash first, and what after it?",
        "`header = b'blob ' + str(len(content)).encode() + b'\\0'`, then `hashlib.sha1(header + content)`.",
    ),
)
exercise.case(
    "a file that says hello",
    git_name,
    args=(hello,),
    expect="ce013625030ba8dba906f756967f9e9ca394464a",
    mistakes=[
        (
            lambda name: name == hashlib.sha1(hello).hexdigest(),
            "That is the content alone: the header is missing.",
        ),
        (
            lambda name: name == hashlib.sha1(b"blob 6" + hello).hexdigest(),
            "The zero byte between header and content is missing.",
        ),
        (
            lambda name: name == hashlib.sha1(hello + b"blob 6\0").hexdigest(),
            "The header goes before the content.",
        ),
        (
            lambda name: name == hashlib.sha1(b"blob 5\0hello").hexdigest(),
            "The line break at the end belongs to the content.",
        ),
        (
            lambda name: name == hashlib.sha1(b"blob 60" + hello).hexdigest(),
            'That is a digit. The byte zero is written `b"\\0"`.',
        ),
        (
            lambda name: name == hashlib.sha1(b"blob " + bytes(6) + b"\0" + hello).hexdigest(),
            "`bytes(6)` is six zero bytes. The length as digits: `str(len(content)).encode()`.",
        ),
        (
            lambda name: name == hashlib.sha1(f"blob 6\0{hello}".encode()).hexdigest(),
            "An f-string writes bytes with a b and quotes around them. Encode the header alone, then add `content`.",
        ),
        (lambda name: len(name) == 64, "That looks like SHA-256; git uses SHA-1 here."),
        (lambda name: isinstance(name, bytes), "Those are the raw bytes: `hexdigest()` gives digits."),
    ],
)
exercise.case("an empty file", git_name, args=(b"",), expect="e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
exercise.verdict()
git_name = exercise.use(git_name)

# %% name="names-are-checksums"
config = hub.find(practice.repo, "config.json", revision=pinned, cache=cache)
print("git_name says: ", git_name(config.read_bytes()))
print("name in cache: ", config.resolve().name)

# %% [markdown] name="cache"
# The same! The client stores each file under its checksum. So the cache can be checked with no network at all.
#
# `hub.download` checks every file before it counts, and deletes and fetches again what is wrong, and only that:

# %% name="mend"
practice.mend()  # the store is well again
practice.forget()
hub.download(practice.repo, pinned, yes=True, endpoint=practice.endpoint, cache=cache)
print(
    f"fetched again: {practice.sent_bytes():,} bytes;",
    "all right:",
    hub.verify(listing, cache=cache)["right"].all(),
)

# %% [markdown] name="layout"
# ## 9. The cache
#
# This is the client's own layout. `blobs` holds each content once; `snapshots` shows a commit with its file names,
# as links to the blobs. Two commits that share a file share its blob.

# %% name="tree"
print(hub.layout(practice.repo, cache))

# %% name="twice"
practice.forget()
snapshot_download(practice.repo, revision=pinned, **here)
print("the second download fetched", practice.sent_bytes(), "bytes")

# %% [markdown] name="where"
# PhoneLLM would go to `workspace/hub`, or to your own Hugging Face cache if `HF_HOME` or `HF_HUB_CACHE` is set. The
# course deletes nothing there but a file that failed its checksum.

# %% [markdown] name="no"
# ## 10. When the hub says no
#
# The usual refusals, made to order, and what `hub` tells you about each:

# %% name="refusals"
for fault in ("401 gated", "401 token", "404 repository", "404 revision", "429", "503"):
    practice.fail(fault, wait_s=30)
    try:
        hub.listing(practice.repo, pinned, endpoint=practice.endpoint)
    except CourseError as error:
        print(f"--- {fault}\n{error}\n")

# %% [markdown] name="no-2"
# Two of them surprise people. A misspelt name gets the same answer as a private repository, so that nobody can find
# out what exists: to a request without a token that answer is `401`. And `429` says how long to wait: waiting is the
# whole cure.
#
# That is all from the practice hub; the next cell stops it. To run a cell above again after that, begin with the cell
# under "Practise on a small one": it starts a new hub.

# %% name="stop-hub"
practice.stop()

# %% [markdown] name="which"
# ## 11. The real one
#
# Which of the two? BF16 is the original; its 63 GB must fit into the GPU's memory, with room for the callers. NVFP4 is
# less than a third of that, and was made for GPUs that compute in four bits, such as the B200. Lesson 03 counts what
# fits where. With no such GPU at hand you need neither: the course goes on with its small model.
#
# First the small files, less than 20 MB. With a network, this cell shows a plan and fetches nothing:

# %% name="small-files"
SMALL = ["*.json", "*.jinja", "*.txt", "*.py", "*.md", "LICENSE*"]
try:
    hub.download(allow=SMALL)
except CourseError as error:  # no network here
    print(error)

# %% [markdown] name="yes"
# Below the plan it shows a line that fetches. Type that line into a cell of your own, if you like: then you have the
# real `config.json` and the real template here. (Without a network there is no plan and no line; go on, lesson 03 has
# the config.) The whole model goes the same way. **It never starts by itself**: only `yes=True` starts it.
#
# `hub.download(mbit_per_s=200)` shows the plan, `hub.download(yes=True)` fetches; for the NVFP4 version it is
# `hub.download(hub.NVFP4, None, yes=True)`. Stop it when you like, and call it again. It is done when this says where:

# %% name="is-it-here"
print("PhoneLLM on this disk:", hub.local() or "no complete copy")

# %% [markdown] name="recap"
# ## Recap
#
# - A repository is mostly weights; config, tokenizer, template, code and licence are small, and you can fetch them
#   alone.
# - Two licences apply. When you pass the weights on, both texts and the notices go along.
# - Plan: bytes times eight over bits a second, and the disk.
# - Pin a commit. Branches and tags move, and code moves with them.
# - A killed download goes on where it stopped only if somebody kept the part.
# - The right length is not the right content. Compare checksums; in the cache, each file's name is its checksum.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "02-q1",
    "A shard has exactly the length that the list says. Is it right?",
    [
        quiz.Option(
            "Yes: a broken download is shorter", why="A broken one is. A spoilt one may have any length."
        ),
        quiz.Option(
            "Yes: the client has compared checksums",
            why="Over plain HTTP it compares lengths. You saw it accept a wrong byte.",
        ),
        quiz.Option(
            "Not known until its checksum is compared",
            right=True,
            why="Only the content's hash tells. The list has one for every file.",
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "02-q2",
    "Your server starts with the branch `main` of a model repository. What can change overnight?",
    [
        quiz.Option(
            "Weights, template and code, at the next download",
            right=True,
            why="A branch moves. With `--trust-remote-code` even the code that runs on your machine.",
        ),
        quiz.Option(
            "Nothing: published models are frozen", why="Only a commit is frozen. A branch is a name."
        ),
        quiz.Option("Only the README", why="A push can change any file."),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "02-q3",
    "You want to know the chat template's default for thinking. What do you fetch?",
    [
        quiz.Option("The whole repository", why="The weights say nothing about the template."),
        quiz.Option("The first shard", why="Shards hold numbers only."),
        quiz.Option(
            "One file, with a pattern or `hf_hub_download`",
            right=True,
            why="`chat_template.jinja` is a small file of its own.",
        ),
        quiz.Option("Nothing: it is in `config.json`", why="The template is a file of its own here."),
    ],
)

# %% name="progress"
progress.show("02")

# %% [markdown] name="next"
# ## Next
#
# **03 · Inspect config.json** counts every parameter from the shapes, and shows what fits on which GPU.
