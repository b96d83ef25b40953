# %% [markdown] name="title"
# # 03 · Inspect config.json
#
# Before anybody downloads the weights of PhoneLLM, one small text file says nearly everything about what the model
# will cost: how large it is, how much of it works for a token, what a caller takes up in memory, and on which GPU it
# fits. In this lesson you read all that from the file, and check it.
#
# | | |
# |---|---|
# | **You will** | draw the layers; count every parameter and hold your count against transformers; see what a batch does to a mixture of experts; work out what a request keeps in memory, and watch a tiny model do it; see what fits on which GPU |
# | **You will learn** | to read any config of this family, with its traps, and to tell stored parameters from active ones |
# | **You need** | a little Python. No engine and no GPU: this lesson starts neither |
# | **Time** | 55 minutes, of which the cells run for less than one |

# %% name="setup" tags=["setup"]
import pandas as pd

from helpers import architecture, check, experts, figures, hardware, memory, panels, parameters
from helpers import progress, published, quiz, tiny

# %% name="wide-tables"
pd.set_option("display.max_colwidth", None)  # show long texts in tables whole

# %% [markdown] name="file"
# ## 1. The file
#
# `config.json` stands beside the weights and tells a program how to build the model before it loads them. Here are
# the fields that decide its shape, and where we have them from. (PhoneLLM is a fine-tuned model: its shape is that of
# the model it was made from, and so is this file. `data/models/README.md` says what was compared.)

# %% name="open"
arch = architecture.phonellm()
config = arch.raw
shape = """hybrid_override_pattern num_hidden_layers hidden_size vocab_size tie_word_embeddings
num_attention_heads num_key_value_heads head_dim n_routed_experts num_experts_per_tok moe_intermediate_size
moe_shared_expert_intermediate_size mamba_num_heads mamba_head_dim ssm_state_size n_groups conv_kernel"""
pd.DataFrame({"value": {name: config[name] for name in shape.split()}})

# %% name="where-from"
architecture.sources().loc[["phonellm-alpha-1"], ["source", "date"]]

# %% [markdown] name="picture"
# ## 2. The layers in one picture
#
# The first field is a string with one letter for each layer. A token goes through all of them, from left to right.

# %% name="figure-layers" tags=["figure"]
layers = architecture.layer_table(arch)
total = parameters.total(arch)
figures.show(figures.model_layers, layers, total=total, title=f"PhoneLLM's {len(layers)} layers")

# %% [markdown] name="letters"
# Three kinds of layer, each with one job:
#
# - **M**, Mamba-2: mixes a token with what came before. It keeps one running state, of the same size however
#   long the text gets.
# - **E**, a mixture of experts: many small networks, of which a router picks a few for each token, and one shared
#   network that always works. Nearly all of the model is here, and nearly all of that rests at any moment.
# - **\***, attention: looks back at every earlier token. For that it keeps a cache that grows with the text. Only
#   the six tall ones do. (Their numbers count from zero, as Python does.)
#
# (A public description of this family has E and \* the wrong way round. You can tell by counting: the letter of the
# experts must be the frequent one, or the model would be far smaller.)
#
# Is it true that nearly all of it is in the experts? You need not believe the picture. Count.

# %% [markdown] name="attention"
# ## 3. Count by hand
#
# A **parameter** is one number that the model has learned; the weights are these numbers. Inside the model a token is
# a vector of `hidden` numbers (`hidden_size` in the file): each layer takes such a vector and gives back another.
#
# A layer is a handful of matrices. A matrix that turns a vector of `n` numbers into one of `m` has `n * m` parameters.
# (Some add a **bias**, one more number for each of the `m`.) Every layer also begins with a **norm**: one scale for
# each of the `hidden` numbers.
#
# Attention looks at the text several times at once; each of these is a **head**, and works with vectors of `head_dim`
# numbers. There are four matrices. **Q** makes a query for each head, **O** leads back from all heads. **K** and **V**
# make keys and values, but for fewer heads, `kv_heads`, because several query heads share one. None has a bias.

# %% [markdown] name="ex-1-card"
# ### Exercise 1: one attention layer
#
# difficulty ●○○ · importance ●●● · 4 minutes
#
# How many parameters has one attention layer?


# %% name="ex-1" tags=["exercise"]
def attention_parameters(hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Parameters of one attention layer: Q and O, K and V, norm."""
    # --- your code: two matrices with all heads, two with kv_heads, and the norm
    q_and_o = 2 * hidden * heads * head_dim
    k_and_v = 2 * hidden * kv_heads * head_dim
    norm = hidden
    return q_and_o + k_and_v + norm
    # --- end


# %% name="ex-1-check" tags=["check"]
# Check of exercise 1: run this cell after yours.
h, qo, kv = 2688, 2688 * 32 * 128, 2688 * 2 * 128  # hidden; Q or O; K or V
exercise = check.Exercise(
    "03-1",
    hints=(
        "Which two matrices have to do with all heads, and which two only with the shared ones?",
        "Q and O have `hidden * heads * head_dim` each, K and V `hidden * kv_heads * head_dim` each; add `hidden` "
        "for the norm.",
    ),
)
exercise.case(
    "PhoneLLM's attention layer",
    attention_parameters,
    args=(2688, 32, 2, 128),
    expect=2 * qo + 2 * kv + h,
    tolerance=0,  # to the last parameter
    mistakes={
        2 * qo + 2 * kv: "You forgot the norm: one scale for each number of the hidden vector.",
        4 * qo + h: "K and V have `kv_heads` heads, not `heads`: that is what makes the cache small.",
        4 * qo: "K and V have `kv_heads` heads, not `heads`. And the norm is missing.",
        qo + 2 * kv + h: "There is a matrix on the way out, too: O, as large as Q.",
        2 * qo + kv + h: "K and V are two matrices.",
        qo + kv + h: "There are four matrices: Q and O of one size, K and V of another.",
        4 * h * h + h: "The heads together are wider than the hidden vector here: use `heads * head_dim`.",
        4
        * h
        ** 2: "The heads together are wider than `hidden`: use `heads * head_dim`. And the norm is missing.",
        qo + kv: "There are four matrices: Q and O of one size, K and V of another. And the norm is missing.",
        2 * qo
        + 2 * kv
        + 1: "The norm is not one number: it is one scale for each number of the hidden vector.",
        2 * (qo + kv) // 128 + h: "Each head has `head_dim` numbers, not one.",
        2 * (qo + kv) // h + h: "A matrix has `n * m` parameters: what goes in, `hidden`, counts too.",
        (qo + 2 * kv) // h + h: "A matrix has `n * m` parameters: what goes in, `hidden`, counts too.",
    },
)
exercise.case("a small one", attention_parameters, args=(8, 4, 1, 4), expect=328)
exercise.verdict()
attention_parameters = exercise.use(attention_parameters)

# %% [markdown] name="moe"
# Now the large ones. An expert is two matrices, up to `expert_width` and down again, with a squared ReLU between
# them. (Many other models have a third matrix, a gate. This one has none.) The shared expert has the same form with a
# width of its own. The **router** is a matrix that gives each expert a score, plus one correction for each expert, which
# keeps the experts evenly busy.

# %% [markdown] name="ex-2-card"
# ### Exercise 2: one mixture of experts
#
# difficulty ●●○ · importance ●●● · 6 minutes
#
# Count all experts of one such layer, used or not.


# %% name="ex-2" tags=["exercise"]
def moe_parameters(hidden: int, experts: int, expert_width: int, shared_width: int) -> int:
    """Parameters of one mixture-of-experts layer: routed experts, shared expert, router, norm."""
    # --- your code: two matrices an expert, two for the shared one; router matrix and corrections; norm
    routed = experts * 2 * hidden * expert_width
    shared = 2 * hidden * shared_width
    router = experts * hidden + experts
    norm = hidden
    return routed + shared + router + norm
    # --- end


# %% name="ex-2-check" tags=["check"]
# Check of exercise 2: run this cell after yours.
h, one, shared = 2688, 2688 * 1856, 2688 * 3712  # hidden; one matrix of an expert; one of the shared expert
router, right = 128 * (2688 + 1), 128 * 2 * 2688 * 1856 + 2 * 2688 * 3712 + 128 * (2688 + 1) + 2688
exercise = check.Exercise(
    "03-2",
    hints=(
        "Four parts: all routed experts, the shared one, what chooses among them, and the norm.",
        "`experts * 2 * hidden * expert_width`, plus `2 * hidden * shared_width`, plus `experts * hidden + experts` "
        "for the router, plus `hidden`.",
    ),
)
exercise.case(
    "PhoneLLM's mixture of experts",
    moe_parameters,
    args=(2688, 128, 1856, 3712),
    expect=right,
    tolerance=0,  # to the last parameter
    mistakes={
        right
        + 128 * one
        + shared: "You counted three matrices an expert, as in a gated network. Here there are two.",
        right + 128 * one: "You counted three matrices an expert, as in a gated network. Here there are two.",
        right - 128 * one - shared: "An expert leads up and down again: two matrices.",
        right - h: "You forgot the norm.",
        right - 128: "You forgot the router's corrections, one for each expert.",
        right - 128 - h: "You forgot the router's corrections, one for each expert, and the norm.",
        right
        - router: "Something has to choose the experts: the router's matrix and its corrections are missing.",
        right - 2 * shared: "The shared expert is missing.",
        right
        - 2 * shared
        - router
        - h: "Those are the routed experts. Shared expert, router and norm are missing.",
        right - router - h: "Those are the experts. The router and the norm are missing.",
        right - 127: "The router has one correction for each expert.",
        right + 127 * 2 * shared: "There is one shared expert in the layer, not one for each routed expert.",
        right - 122 * 2 * one: "You counted the experts that one token uses. All of them have to be stored.",
    },
)
exercise.case("a small one", moe_parameters, args=(8, 4, 6, 10), expect=588)
exercise.verdict()
moe_parameters = exercise.use(moe_parameters)

# %% [markdown] name="mamba"
# And a Mamba-2 layer. Its parts, with `inner = heads * head_dim`:
#
# | part | size |
# |---|---|
# | in-projection, a matrix | from `hidden` to everything the layer needs: a gate (`inner`), the signal (`inner`), two vectors B and C (`groups * state` each), and one time step for each head |
# | convolution | over the signal, B and C: for each of those channels `kernel` weights and one bias |
# | A, D and the bias of the time step | one number for each head, three times |
# | a second norm | `inner` |
# | out-projection, a matrix | from `inner` back to `hidden` |
# | the norm that every layer begins with | `hidden` |
#
# The config also has a field `expand`. In other Mamba models `expand * hidden_size` is the inner width. Here it is not:

# %% name="expand-trap"
print("expand * hidden_size               =", config["expand"] * config["hidden_size"])
print("mamba_num_heads * mamba_head_dim   =", config["mamba_num_heads"] * config["mamba_head_dim"])

# %% [markdown] name="ex-3-card"
# ### Exercise 3: one Mamba-2 layer
#
# difficulty ●●● · importance ●●○ · 7 minutes
#
# Count the six lines of the table.


# %% name="ex-3" tags=["exercise"]
def mamba_parameters(hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int) -> int:
    """Parameters of one Mamba-2 layer: the six lines of the table above."""
    # --- your code: inner width and channels of the convolution first, then one line for each part
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    in_projection = hidden * (inner + channels + heads)
    convolution = channels * (kernel + 1)
    per_head = 3 * heads
    out_projection = inner * hidden
    return in_projection + convolution + per_head + inner + out_projection + hidden
    # --- end


# %% name="ex-3-check" tags=["check"]
# Check of exercise 3: run this cell after yours.
h, inner, channels, wrong = 2688, 64 * 64, 64 * 64 + 2 * 8 * 128, 2 * 2688  # wrong: expand * hidden_size
right = h * (inner + channels + 64) + channels * 5 + 3 * 64 + inner + inner * h + h
exercise = check.Exercise(
    "03-3",
    hints=(
        "Two widths come up again and again: `inner`, and the channels of the convolution.",
        "`channels = inner + 2 * groups * state`; the in-projection is `hidden * (inner + channels + heads)`, the "
        "convolution `channels * (kernel + 1)`.",
    ),
)
exercise.case(
    "PhoneLLM's Mamba-2 layer",
    mamba_parameters,
    args=(2688, 64, 64, 8, 128, 4),
    expect=right,
    tolerance=0,  # to the last parameter
    mistakes={
        right - h * inner: "A matrix is missing: the gate in the in-projection, or the out-projection.",
        right - h * 64: "The in-projection also makes one time step for each head.",
        right - channels: "The convolution has a bias: `kernel + 1` numbers for each channel.",
        right - channels + 1: "The convolution has one bias for each channel, not one in all.",
        right - 5 * 2 * 8 * 128: "The convolution goes over B and C too.",
        right - h * 63: "The in-projection makes one time step for each head, not one in all.",
        right - inner: "The second norm is missing, the one inside the layer.",
        right - h: "The norm that the layer begins with is missing.",
        right - h - inner: "Both norms are missing.",
        right - 2 * 64: "A, D and the bias of the time step: three numbers for each head.",
        right - 3 * 64: "A, D and the bias of the time step are missing: three numbers for each head.",
        right - (h + 5) * 8 * 128: "B and C are two: `2 * groups * state`.",
        right - (h + 5) * 2 * 7 * 128: "B and C exist once for each group.",
        right
        + (2 * h + h + 5 + 1)
        * (wrong - inner): "The inner width is `heads * head_dim`, not `expand * hidden`.",
    },
)
exercise.case("a small one", mamba_parameters, args=(8, 2, 4, 1, 4, 4), expect=374)
exercise.verdict()
mamba_parameters = exercise.use(mamba_parameters)

# %% [markdown] name="all"
# ## 4. All of them
#
# Now put your three functions to work. What is left are the two tables of the vocabulary, one to read tokens
# (`embedding`) and one to write them (`lm_head`), and a last norm.

# %% name="your-total"
c = config
hidden = c["hidden_size"]
each = {
    "M": mamba_parameters(
        hidden,
        c["mamba_num_heads"],
        c["mamba_head_dim"],
        c["n_groups"],
        c["ssm_state_size"],
        c["conv_kernel"],
    ),
    "E": moe_parameters(
        hidden,
        c["n_routed_experts"],
        c["moe_intermediate_size"],
        c["moe_shared_expert_intermediate_size"],
    ),
    "*": attention_parameters(hidden, c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]),
}
yours = sum(each[letter] for letter in c["hybrid_override_pattern"]) + 2 * c["vocab_size"] * hidden + hidden
print(f"{yours:,} parameters")

# %% name="by-block"
parameters.by_block(arch).style.format(thousands=",")

# %% [markdown] name="meta"
# Is that what a program makes of the same file? transformers can build a model on PyTorch's **meta** device: all shapes
# and no memory, so it takes seconds. (Where transformers is not installed, you see the count that we recorded.)

# %% name="on-meta"
meta = parameters.on_meta(arch)
print(f"{meta.parameters:,} parameters and {meta.buffers:,} entries in buffers ({meta.origin})")
print(f"together {meta.parameters + meta.buffers:,}; the arithmetic says {total:,}")

# %% [markdown] name="meta-2"
# The two agree to the last number, once you see where the difference is. The router's corrections are not trained by
# gradient descent but nudged during training, so PyTorch keeps them as **buffers**, which a sum over
# `model.parameters()` leaves out. They are in the files all the same. Both totals circulate; now you know why.

# %% name="buffers"
print(arch.layers.count("moe"), "layers *", c["n_routed_experts"], "experts =", meta.buffers)

# %% [markdown] name="active"
# ## 5. How much of it works
#
# A token goes to a few experts of each layer only. The parameters that it does use are called **active**. Three numbers
# are published for this model:

# %% name="active-published"
published.show("arch.active_without_embedding", "arch.active_with_embedding", "arch.active_card")

# %% name="active-counted"
counts = {
    "active, embedding table included": parameters.active(arch),
    "active, without the embedding table": parameters.active(arch, embedding=False),
    "active, without embedding and output": parameters.active(arch, embedding=False, lm_head=False),
    "stored": total,
}
pd.DataFrame({"parameters": [f"{count:,}" for count in counts.values()], "origin": "modelled"}, index=counts)

# %% [markdown] name="active-2"
# Two of the three are explained. The embedding table is the difference: a token reads a single row of it, so one count
# leaves it out. The third number, on the card, names no rule. It could be the largest count with its digits cut off
# instead of rounded; nobody says so. Before you compare two models by active parameters, ask how they were counted.

# %% [markdown] name="batch"
# ## 6. What a batch does to it
#
# To make one token, a GPU reads from its memory every weight that the token uses. With few callers this reading is
# what takes the time. So a model of which a tenth works should be as fast as one of a tenth of the size. For *one*
# caller that is so.
#
# But a server works for many at once: one **step** makes one token for each of them, and every token picks its own 6
# of 128 experts. **Write down a guess**: how many different experts of a layer does a step touch with 16 callers?
# With 64?
#
# The chance that a token leaves out a certain expert is 1 - 6/128. That a whole batch leaves it out: that number to the
# power of the batch.

# %% name="distinct"
batches = [1, 2, 4, 8, 16, 32, 64, 128, 256]
chosen, of_all = arch.moe.num_experts_per_tok, arch.moe.n_routed_experts
formula = pd.DataFrame({"batch": batches, "router": "formula", "origin": "modelled"})
formula["distinct"] = of_all * (1 - (1 - chosen / of_all) ** formula["batch"])
formula[["batch", "distinct", "origin"]].round(1)

# %% [markdown] name="simulate"
# That assumes that tokens choose independently and that all experts are equally popular. Neither needs to be true. So
# let a router choose: the same form as the model's (a score for each expert through a sigmoid, the best ones win), with
# random weights, since the real ones are in the download. In the second run some experts are more popular than others;
# in the third the callers' tokens resemble each other.

# %% name="routers"
routers = {
    "simulated, all alike": {},
    "simulated, some experts more popular": {"skew": 1.0},
    "simulated, similar tokens": {"similarity": 0.3},
}
runs = [experts.simulate(batches, trials=10, **how).assign(router=name) for name, how in routers.items()]
points = pd.concat(runs).groupby(["router", "batch", "origin"], sort=False)["distinct"].mean().reset_index()

# %% name="figure-distinct" tags=["figure"]
figures.show(
    figures.distinct_experts,
    pd.concat([formula, points]),
    experts=of_all,
    title="A batch soon touches most of the experts",
)

# %% [markdown] name="distinct-2"
# How far off was your guess? With 16 callers a step already touches more than half of the experts, if the router is
# even. An uneven one touches fewer, and then a few busy experts do most of the work. How uneven the real router is, its
# weights would have to say; the corrections that you counted are there to make it even.
#
# What that means for the bytes that a step reads:

# %% name="bytes"
steps = experts.bytes_per_step(arch, batches)  # 2 bytes a weight: BF16
steps["step_gb"] = steps["total_gb"]
steps["dense_gb"] = 2 * parameters.active(arch, embedding=False) / 1e9
b200 = hardware.table().loc["B200"]

# %% name="figure-bytes" tags=["figure"]
figures.show(
    figures.bytes_per_step,
    steps,
    bandwidth_tb_s=b200["bandwidth_tb_s"],
    machine="B200",
    title="A step reads more as the batch grows; each token's part gets smaller",
)

# %% name="bytes-numbers"
alone, full = steps["step_gb"].iloc[0], steps.set_index("batch")["step_gb"][64]
print(
    f"alone: {alone:.1f} GB; a batch of 64: {full:.1f} GB, {full / alone:.1f} times as much for 64 times the tokens"
)
print(
    f"at {b200['bandwidth_tb_s']:g} TB/s: {alone / b200['bandwidth_tb_s']:.2f} ms and {full / b200['bandwidth_tb_s']:.1f} ms (modelled)"
)

# %% [markdown] name="bytes-2"
# Two things are true at once. Batching still pays: 64 callers cost far less than 64 times one. And the advantage over a
# **dense** model, one without experts, in which every token uses every weight, melts. At that batch a step reads nearly
# the whole model. A dense model as large as the active part would still read only that part, as for one caller. So
# "only so many billions active" is a promise for one caller.
#
# The milliseconds are a **floor**, not a forecast: they count nothing but reading weights at the bandwidth of the data
# sheet. A real step takes longer.

# %% [markdown] name="request"
# ## 7. What a request keeps
#
# While a request runs, the server keeps what the model has to remember of it. Attention remembers a **key** and a
# **value** for every token, in every attention layer and for every KV head: the KV cache. A Mamba layer remembers one
# state for each of its heads, `head_dim * state` numbers, and the last few inputs of its convolution.

# %% [markdown] name="ex-4-card"
# ### Exercise 4: the memory of a caller
#
# difficulty ●●○ · importance ●●● · 6 minutes
#
# How many bytes does each token add, in the whole model? (BF16: two bytes a number.) And how large is one request's
# Mamba state? Its numbers are float32, four bytes; leave the convolution's inputs out.


# %% name="ex-4" tags=["exercise"]
def kv_bytes_per_token(layers: str, kv_heads: int, head_dim: int) -> int:
    """Bytes of KV cache that one token adds; ``layers`` is the pattern of letters."""
    # --- your code: keys and values, for each KV head, in each attention layer, two bytes a number
    return 2 * kv_heads * head_dim * 2 * layers.count("*")
    # --- end


def state_bytes(layers: str, heads: int, head_dim: int, state: int) -> int:
    """Bytes of Mamba state of one request, without the convolution's inputs."""
    # --- your code: one state for each head, in each Mamba layer, four bytes a number
    return heads * head_dim * state * 4 * layers.count("M")
    # --- end


# %% name="ex-4-check" tags=["check"]
# Check of exercise 4: run this cell after yours.
pattern = architecture.phonellm().pattern
kv, state = 2 * 2 * 128 * 2 * 6, 64 * 64 * 128 * 4 * 23
exercise = check.Exercise(
    "03-4",
    hints=(
        "Which layers have a KV cache at all, and how many KV heads has each?",
        "Multiply: 2 for key and value, `kv_heads`, `head_dim`, 2 bytes, `layers.count('*')`. The state: `heads * "
        "head_dim * state`, 4 bytes, `layers.count('M')`.",
    ),
)
exercise.case(
    "PhoneLLM's KV cache",
    kv_bytes_per_token,
    args=(pattern, 2, 128),
    expect=kv,
    mistakes=[
        (
            kv // 2,
            "One factor of two is missing. There are a key and a value, and each number has two bytes.",
        ),
        (kv // 4, "Two factors of two are missing: a key and a value, and two bytes a number."),
        (kv * 2, "BF16 has two bytes a number, not four."),
        (kv // 6, "That is one layer. Six layers have a cache."),
        (kv // 6 * 52, "Only the attention layers keep a cache."),
        (kv // 6 * 23, "You counted the wrong letter: attention is the star."),
        (kv // 6 * 29, "Mamba layers have no KV cache."),
    ],
)
exercise.case("a small one", kv_bytes_per_token, args=("M*E*", 1, 8), expect=64)
exercise.case(
    "PhoneLLM's Mamba state",
    state_bytes,
    args=(pattern, 64, 64, 128),
    expect=state,
    mistakes=[
        (state // 2, "The state is kept in float32: four bytes a number."),
        (state // 4, "Numbers are not bytes: four bytes each."),
        (state // 23, "That is one layer."),
        (state // 64, "One factor is missing: each head has `head_dim * state` numbers."),
        (state // 23 * 6, "You counted the attention layers."),
        (state // 23 * 52, "Only the Mamba layers keep a state."),
        (lambda result: abs(result - 46) < 0.1, "That is in MiB; bytes were asked for."),
    ],
)
exercise.verdict()
kv_bytes_per_token = exercise.use(kv_bytes_per_token)
state_bytes = exercise.use(state_bytes)

# %% name="request-numbers"
a, m = arch.attention, arch.mamba
per_token = kv_bytes_per_token(arch.pattern, a.num_key_value_heads, a.head_dim)
state = state_bytes(arch.pattern, m.mamba_num_heads, m.mamba_head_dim, m.ssm_state_size)
whole = memory.mamba_state_bytes(arch)
print(
    f"{per_token:,} bytes a token; state {state / 2**20:.1f} MiB, {whole / 2**20:.1f} MiB with the convolution's inputs"
)
print(
    f"in a model with KV cache for all {a.num_attention_heads} heads in all {len(arch.layers)} layers: "
    f"{2 * a.num_attention_heads * a.head_dim * 2 * len(arch.layers):,} bytes a token"
)

# %% name="figure-request" tags=["figure"]
lengths = [64, 256, 1024, 4096, 16384, 65536, arch.max_position_embeddings]
held = pd.DataFrame({"tokens": lengths, "origin": "modelled"})
held["kv_bytes"] = held["tokens"] * memory.kv_bytes_per_token(arch)
held["mamba_bytes"] = memory.mamba_state_bytes(arch)
figures.show(figures.request_memory, held, title="A short call is mostly Mamba state")

# %% [markdown] name="request-2"
# How long is that on the telephone?

# %% name="crossing-minutes"
speech = published.value("assumption.speech_words") * published.value("assumption.tokens_per_word")
print(
    f"{memory.crossing_tokens(arch):,.0f} tokens, at {speech:.0f} tokens a minute: {memory.crossing_tokens(arch) / speech:.0f} minutes of speech"
)

# %% [markdown] name="request-3"
# A system prompt shortens that, but most calls stay below the crossing. So a caller takes up nearly the same however
# long the call has lasted, which is comfortable for planning. The price: the state is there in full for every caller,
# even for one who has only said "hello".

# %% [markdown] name="fits"
# ## 8. What fits
#
# Weights, requests and some room for the program itself have to fit into a GPU's memory. Mind the units: GPUs are sold
# in GB (powers of ten), programs count in GiB (powers of two).

# %% name="gb-gib"
print(
    f"weights in BF16: {memory.weight_bytes(arch, 'BF16') / 1e9:.2f} GB = {memory.weight_bytes(arch, 'BF16') / 2**30:.2f} GiB"
)

# %% [markdown] name="formats"
# Weights can be stored smaller. **FP8** has one byte a weight; **NVFP4** half a byte, plus a scale for every group of
# 16 weights. Neither is used for everything: the makers of the NVFP4 version left attention, Mamba and output as they
# were. So our sizes are a model. This is how far it is from the files that exist (for NVFP4 the furthest: more of that
# file must be stored small than its makers' words say):

# %% name="against-published"
memory.against_published()[["modelled_gb", "published_gb", "difference_percent", "source", "date"]].round(2)

# %% name="figure-fits" tags=["figure"]
tokens = 4096
fits = memory.fits(arch, tokens=tokens)
figures.show(figures.what_fits, fits, title=f"What fits on one GPU, with requests of {tokens:,} tokens")

# %% name="fits-table"
fits[["gpu", "format", "weights_gib", "left_gib", "requests", "why", "origin"]].round(1)

# %% name="fits-assumptions"
print(
    f"kept back: everything above {memory.GPU_MEMORY_UTILIZATION:.0%} of the memory, and {memory.OVERHEAD_GIB:g} GiB of the rest"
)

# %% [markdown] name="fits-2"
# "Not in hardware" means that the GPU has no arithmetic for that format: the weights are unpacked before each
# multiplication. It saves memory, and it may cost time.
#
# On the largest GPU more than a thousand callers would fit. Long before that many their answers would come too late:
# **memory is not what limits a voice agent there, latency is** (lesson 07). On a GPU that the weights nearly fill, it
# may be the other way round.
#
# Your own GPU, or one that you think of renting. (Do not wonder that a single token is read no faster in NVFP4 than in
# FP8: what every token uses, attention, Mamba and the output, was left in BF16 there. With a full batch it is.)

# %% name="own-gpu"
gpu_panel = panels.own_gpu(arch)

# %% [markdown] name="tiny"
# ## 9. Watch it happen
#
# Formulas are cheap. So here is a model of the same architecture, so tiny that it runs on any processor, with random
# weights. transformers runs it on texts of growing length, and we weigh its cache after each, byte by byte. (Its pattern
# has one letter more, `-`: a plain network, or MLP, that every token uses whole. PhoneLLM has none; some of its family
# do.)

# %% name="tiny-config"
small = tiny.config()
small["hybrid_override_pattern"], f"{parameters.total(architecture.read(small)):,} parameters"

# %% name="watch"
grown = tiny.watch(lengths=(64, 128, 256, 512, 1024))
grown

# %% name="figure-cache" tags=["figure"]
figures.show(figures.cache_growth, grown, title="The KV cache grows, the Mamba state stays")

# %% [markdown] name="tiny-2"
# Every byte is where the formulas put it. (transformers keeps one column of the convolution's inputs more than vLLM
# does. The formula here counts it.)

# %% [markdown] name="traps"
# ## 10. Traps
#
# **A missing field is not an empty one.** transformers fills what a config does not say with the defaults of its class,
# and those describe another model. No error, no warning:

# %% name="class-defaults"
defaults = parameters.class_defaults()
defaults[~defaults["same"]]

# %% name="default-models"
parameters.default_models(arch).style.format(thousands=",")

# %% [markdown] name="traps-2"
# Our reader refuses instead, and names the field. Try it:

# %% name="missing-field"
broken = {name: value for name, value in config.items() if name != "num_key_value_heads"}
try:
    architecture.read(broken)
except architecture.CourseError as error:
    print(error)

# %% [markdown] name="spellings"
# **The layers have two spellings.** Older files have the string of letters. Newer versions of transformers write a list
# `layers_block_type` instead, and newer still with other words in it. The same model:

# %% name="two-spellings"
words = {"M": "linear_attention", "E": "moe", "*": "full_attention"}
newer = {name: value for name, value in config.items() if name != "hybrid_override_pattern"}
newer["layers_block_type"] = [words[letter] for letter in config["hybrid_override_pattern"]]
print(newer["layers_block_type"][:6], "...")
print("the same layers:", architecture.read(newer).layers == arch.layers)

# %% [markdown] name="more-traps"
# **A field may be there and do nothing.** The file has a `rope_theta`, the constant of a position code, yet attention in
# this model uses no position code at all; the Mamba layers know the order. `expand` you have met. And some descriptions
# count two shared experts where the file says one: it is one of double width, which is the same number of parameters.

# %% name="does-nothing"
{
    name: config[name]
    for name in ("rope_theta", "expand", "n_shared_experts", "moe_shared_expert_intermediate_size")
}

# %% [markdown] name="own"
# ## 11. Your own config
#
# All of the above works for any config of the family (`"model_type": "nemotron_h"`). Three come with the course:

# %% name="examples"
pd.concat([panels.summary(architecture.example(name)) for name in architecture.examples()], axis=1)

# %% [markdown] name="own-2"
# (Multi-token prediction: extra layers that guess several tokens ahead. They are counted apart.)
#
# Choose one, or give your own: a path, the text, or a file. (Without widgets: `architecture.read("path/config.json")`
# and `panels.summary` of that.)

# %% name="own-config"
config_panel = panels.own_config()

# %% [markdown] name="recap"
# ## Recap
#
# - The config alone gives every parameter, to the last one; buffers are why two totals circulate.
# - Nearly all parameters are in experts, and one token uses few of them. A batch uses nearly all.
# - A request keeps a KV cache that grows, in few layers, and a Mamba state that does not.
# - Memory says how many callers fit. It does not say how many can be served in time.
# - Read the file, not the defaults; and ask of each count how it was made.

# %% name="question-1" tags=["quiz"]
# Question 1: run this cell to see it.
quiz.ask(
    "03-q1",
    "A server goes from one caller to 64. What happens to the weights that one step reads?",
    [
        quiz.Option(
            "They stay the same: each token still uses 6 experts of a layer",
            why="Each token does, but each its own. Together they touch nearly all.",
        ),
        quiz.Option(
            "They grow, to nearly the whole model",
            right=True,
            why="With 64 tokens nearly every expert is chosen by somebody, if the router is even.",
        ),
        quiz.Option(
            "They grow 64 times",
            why="A weight that several tokens need is read once for all of them; and there are only so many weights.",
        ),
    ],
)

# %% name="question-2" tags=["quiz"]
# Question 2: run this cell to see it.
quiz.ask(
    "03-q2",
    "Why do two totals circulate for the same model?",
    [
        quiz.Option("One is rounded", why="Both are exact."),
        quiz.Option(
            "One counts active parameters only", why="That would be a tenth of it, not a few thousand less."
        ),
        quiz.Option(
            "One counts the embedding table once, the other twice",
            why="Reading and writing tokens have a table each here, and both totals count both.",
        ),
        quiz.Option(
            "One counts the router's corrections, the other does not",
            right=True,
            why="PyTorch keeps them as buffers, and a sum over `model.parameters()` leaves buffers out.",
        ),
    ],
)

# %% name="question-3" tags=["quiz"]
# Question 3: run this cell to see it.
quiz.ask(
    "03-q3",
    "A call has 1,000 tokens so far. What takes up most of its memory on the GPU?",
    [
        quiz.Option(
            "Its Mamba state",
            right=True,
            why="It is there in full from the first token. The KV cache passes it only at several thousand tokens.",
        ),
        quiz.Option("Its KV cache", why="It is still small: few layers keep one, and with few heads."),
        quiz.Option("Its share of the weights", why="Weights are there once, for all callers together."),
    ],
)

# %% name="progress"
progress.show("03")

# %% [markdown] name="next"
# ## Next
#
# **04 · Serve it with vLLM** goes through the recipe flag by flag, and there you will meet these numbers again: as
# the memory that the server reports when it starts.
