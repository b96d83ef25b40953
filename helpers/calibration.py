"""Every published point against every prediction of it, and one correction factor for each GPU and format.

``data/calibration.csv`` holds what others measured on this model or its base, each row with its conditions
and source. :func:`table` puts beside each what our own model (:mod:`helpers.capacity`), aiconfigurator and
dynamo.replay say. A factor is fitted on one named point for each model, GPU and format: the time per token
at the load nearest to eight requests in flight, or, where the table has none, the only number that it has
(NVFP4 on a B200). (That rule was chosen with some uncorrected ratios already known, and
before any corrected error was.) All other runs are a test; further numbers of the very run on which a factor
was fitted are not. Points that come out wrong stay wrong, with a word on what is known about them
(:data:`OPEN`). Of each source every level is in the table that we could read there; which runs others chose
to publish still decides whether the goal is met.

Metrics: ``ttft_ms`` and ``tpot_ms`` are means (or the source does not say), ``..._p50_ms``, ``..._p95_ms``
and ``..._p99_ms`` percentiles over requests, ``tok_s`` tokens of all answers in a second,
``stream_tok_s_p50`` of one stream.
"""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pandas as pd

from helpers import predictors, scheduler
from helpers.machine_model import machine
from helpers.origins import validate
from helpers.scheduler import Ask
from helpers.settings import DATA, CourseError

FILE = DATA / "calibration.csv"
OURS = "our model"
GOAL = 0.25  # median error that we set out for
KEYS = ["gpu", "precision"]
OPERATING_POINT = ["gpu", "precision", "gpus", "engine", "concurrency", "isl", "osl"]
MOST_REQUESTS = 2000  # of a simulated benchmark: enough for its P99

# id (or its beginning) -> what is known about a point that no model meets, or that cannot be predicted
OPEN: dict[str, str] = {
    "baseten.listing": "hardware and limits are not in the record, so nothing can be predicted; Little's "
    "law says that all requests were in the server",
    "sglang.b200.bf16": "a token took far longer than the model says, and more so than in FP8 on the same "
    "machine, though the model knows that the weights are twice the bytes; the kernels for the experts and "
    "the engine's limits are not stated",
    "vultr.nvfp4.peak": "slower than FP8 on a GPU of its own would be, by every model; which kernels ran is "
    "not stated",
    "baseten.sglang.h100": "this engine reached about half of vLLM's speed on the same GPU; aiconfigurator's "
    "tables of SGLang's own kernels say so too, a model of the GPU alone cannot",
    "baseten.sglang.2h100": "less than half of vLLM's throughput, as on one H100",
    "l40s.fp8": "one request alone already waited longer than its steps take: HTTP is in it, and likely a "
    "proxy, and prompts that share their beginning wake fewer experts than a model of independent tokens "
    "says",
    "vultr.fp8.c1.ttft_ms": "one request alone waited more than twice as long as each of eight; by our "
    "reading a first request that had to compile something is in this mean of 50",
    "vultr.fp8.c32": "tokens took longer, and fewer came in a second, than the levels on either side would "
    "let one expect; the source does not say why",
    "vultr.fp8.c512": "400 prompts were sent, so it is one burst and never 512 in flight",
    "vultr.fp8.c1024": "400 prompts were sent, so it is the same burst as at 512, once more",
    "baseten.rtx.c128": "the first token came after more than a minute, with as many seats as requests; "
    "something queued that the source does not name",
}


@cache
def _read() -> pd.DataFrame:
    frame = pd.read_csv(FILE, dtype={"date": str})
    columns = ("id", "gpu", "precision", "metric", "known", "fit", "conditions", "source", "date")
    frame[["gpu", "precision"]] = frame[["gpu", "precision"]].fillna("")
    return validate(frame, required=columns, numeric=("value", "concurrency"), used_by="data/calibration.csv")


def points() -> pd.DataFrame:
    """What others measured: one row a number.

    Returns:
        A frame with ``id``, ``gpu`` (empty: not known), ``gpus``, ``precision``, ``engine``, ``concurrency``
        in ``unit``, ``isl`` and ``osl`` (tokens in and out), ``run_requests``, ``shape`` (``closed``: each
        request follows an answer; ``burst``: all at once), ``lengths`` (``fixed`` or ``uniform`` up to twice
        the mean), ``max_num_seqs``, ``metric``, ``value``, ``metric_unit``, ``known`` (are the conditions:
        yes, partly, no), ``fit`` (yes: the factor is fitted here), ``conditions``, ``source``, ``date`` and
        ``origin`` (published).
    """
    return _read().copy()


def table() -> pd.DataFrame:
    """Every prediction against every published point.

    Returns:
        The rows of :func:`points` that a model predicts something for, once for each model, with ``model``,
        ``published`` and ``predicted`` (in ``metric_unit``), ``ratio`` (predicted over published), ``factor``
        (by which the model's times are multiplied; 1 where no point of this GPU and format is its fit),
        ``corrected`` and ``corrected_ratio``, ``error`` (how far the corrected one is off, as a share of the
        published one: 0.25 is 25 %, too much or too little alike; the speed of one stream counts as time per
        token, so its error is that of the time) and ``raw_error`` (the same without the correction),
        ``fitted`` (this point was used for the factor, so its error says nothing), ``same_run`` (another
        number of the run with that point, so no test either), ``test`` (neither, and predicted),
        ``known``, ``why`` (an open question, or empty) and ``origin`` (modelled). A point that a model cannot
        do has a NaN and says so in ``why``.
    """
    known = points().rename(columns={"value": "published"})
    frames = [
        known.assign(model=OURS, predicted=[_ours(row) for row in known.to_dict("records")]),
        _from_tool(known, predictors.recorded_points(), "aiconfigurator"),
        _from_tool(known, predictors.recorded_replay(), "dynamo.replay"),
    ]
    frame = pd.concat(frames, ignore_index=True)
    frame["ratio"] = frame["predicted"] / frame["published"]
    speed = frame["metric_unit"] == "tok/s"
    # How much more time was needed than predicted: for a speed the other way round.
    frame["_slower"] = np.where(speed, frame["ratio"], 1 / frame["ratio"])
    frame["fitted"] = (frame["fit"] == "yes") & frame["predicted"].notna()
    fits = frame[frame["fitted"]].set_index(["model", *KEYS])["_slower"]
    run = frame[["model", *OPERATING_POINT]].apply(tuple, axis=1)
    frame["same_run"] = run.isin(set(run[frame["fitted"]])) & ~frame["fitted"]
    keys = list(zip(frame["model"], frame["gpu"], frame["precision"], strict=True))
    frame["factor"] = [float(fits.get(key, 1.0)) for key in keys]
    frame["corrected"] = np.where(
        speed, frame["predicted"] / frame["factor"], frame["predicted"] * frame["factor"]
    )
    frame["corrected_ratio"] = frame["corrected"] / frame["published"]
    frame["error"] = _error(frame["metric"], frame["corrected_ratio"])
    frame["raw_error"] = _error(frame["metric"], frame["ratio"])
    frame["test"] = ~frame["fitted"] & ~frame["same_run"] & frame["predicted"].notna()
    frame["why"] = [
        _why(row["id"], row["gpu"], row["predicted"], row["model"]) for row in frame.to_dict("records")
    ]
    frame = frame.drop(columns=["_slower"]).assign(origin="modelled")
    return validate(frame, used_by="calibration.table")


def factors(frame: pd.DataFrame | None = None) -> pd.DataFrame:
    """The correction factors: ``model``, ``gpu``, ``precision``, ``factor`` (times are multiplied by it),
    ``point`` (where it was fitted), ``tests`` (further points of this GPU and format), ``median_error`` on
    them (NaN without any) and ``origin`` (modelled)."""
    frame = table() if frame is None else frame
    rows = []
    for row in frame[frame["fitted"]].to_dict("records"):
        same = (frame[["model", *KEYS]] == [row["model"], row["gpu"], row["precision"]]).all(axis=1)
        others = frame[same & frame["test"]]["error"]
        rows.append(
            {name: row[name] for name in ("model", *KEYS, "factor")}
            | {"point": row["id"], "tests": len(others), "median_error": float(others.median())}
        )
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="calibration.factors")


def factor(gpu: str, precision: str, model: str = OURS) -> float:
    """One correction factor.

    Raises:
        CourseError: no published point of this GPU and format is there to fit it on.
    """
    found = factors()
    row = found[(found["gpu"] == gpu) & (found["precision"] == precision) & (found["model"] == model)]
    if row.empty:
        raise CourseError(
            f"Nothing published lets us correct {model} for a {gpu} in {precision}. There are: "
            f"{', '.join(sorted(set(found['gpu'] + ' ' + found['precision'])))}. Go on with 1, and say so."
        )
    return float(row["factor"].iloc[0])


def summary(frame: pd.DataFrame | None = None) -> pd.DataFrame:
    """How wrong each model is, on runs that it was not fitted on. A model without such a run has no row.

    Returns:
        One row a model and kind of number (``time per token``, ``time to first token``, ``throughput``,
        ``conditions known``, ``all``): ``points``, ``median_error`` and ``worst_error`` after correction,
        ``raw_median_error`` before it, ``within_goal`` (whether the median is at most :data:`GOAL`) and
        ``origin`` (modelled).
    """
    frame = table() if frame is None else frame
    tests = frame[frame["test"]].copy()
    tests["kind"] = tests["metric"].map(_kind)
    rows = []
    for model in frame["model"].unique():
        for kind in ("time per token", "time to first token", "throughput", "conditions known", "all"):
            chosen = {"all": tests["model"] == model, "conditions known": tests["known"] == "yes"}
            of_it = tests[(tests["model"] == model) & chosen.get(kind, tests["kind"] == kind)]
            if of_it.empty:
                continue
            rows.append(
                {
                    "model": model,
                    "kind": kind,
                    "points": len(of_it),
                    "median_error": float(of_it["error"].median()),
                    "worst_error": float(of_it["error"].max()),
                    "raw_median_error": float(of_it["raw_error"].median()),
                    "within_goal": bool(of_it["error"].median() <= GOAL),
                }
            )
    return validate(pd.DataFrame(rows).assign(origin="modelled"), used_by="calibration.summary")


def _kind(metric: str) -> str:
    if metric.startswith("ttft"):
        return "time to first token"
    return "throughput" if metric == "tok_s" else "time per token"


def _error(metric: pd.Series, ratio: pd.Series) -> pd.Series:
    """How far off a prediction is, in the unit of its kind: a stream's speed is told as time per token."""
    stream = metric.str.startswith("stream")
    return (ratio.where(~stream, 1 / ratio) - 1).abs()


def _why(name: str, gpu: str, predicted: float, model: str) -> str:
    known = next((words for start, words in OPEN.items() if name.startswith(start)), "")
    if known or not pd.isna(predicted):
        return known
    return f"{model} has no tables for this" if gpu else "the hardware is not known"


def _from_tool(known: pd.DataFrame, found: pd.DataFrame, model: str) -> pd.DataFrame:
    """The points with a tool's prediction: a mean stands for a median where it gives no other."""
    by_point = found.drop_duplicates(OPERATING_POINT).set_index(OPERATING_POINT)
    predicted = []
    for row in known.to_dict("records"):
        key = tuple(row[name] for name in OPERATING_POINT)
        values = by_point.loc[key] if key in by_point.index else pd.Series(dtype=float)
        predicted.append(_metric(values, row["metric"]))
    return known.assign(model=model, predicted=predicted)


def _metric(values: pd.Series, metric: str) -> float:
    """A metric of a row of a tool's table; tails are NaN where the tool has means only."""
    if metric == "stream_tok_s_p50":
        return 1000 / _metric(values, "tpot_p50_ms")
    fallback = metric.replace("_p50", "")
    return float(values.get(metric, values.get(fallback, np.nan)))


def _ours(row: dict) -> float:
    """What our model says of one point; NaN if the hardware is not known."""
    if not row["gpu"]:
        return np.nan
    names = (*OPERATING_POINT[:3], *OPERATING_POINT[4:], "run_requests", "shape", "lengths", "max_num_seqs")
    return _benchmark(*(row[name] for name in names))[row["metric"]]


@cache
def _benchmark(
    gpu: str,
    precision: str,
    gpus: int,
    concurrency: int,
    isl: int,
    osl: int,
    run_requests: float,
    shape: str,
    lengths: str,
    seats: float,
) -> dict[str, float]:
    """A benchmark in virtual time, in the shape in which it was published: all of its first requests start at
    once, and each later one follows an answer."""
    where = machine(gpu, precision, gpus=gpus)
    limits = where.limits(max_num_seqs=int(seats), cache=0)
    chance = Random("lengths")

    def ask() -> Ask:
        if lengths == "uniform":
            return Ask(chance.randint(1, 2 * isl - 1), chance.randint(1, 2 * osl - 1))
        return Ask(isl, osl)

    total = int(min(run_requests, max(MOST_REQUESTS, concurrency)))
    lines = [[ask() for _ in range(i, total, concurrency)] for i in range(min(concurrency, total))]
    found = scheduler.run(lines, where.step_ms, limits)
    rows = found.requests
    tokens = float(rows["completion_tokens"].sum())
    return {
        "ttft_ms": float(rows["ttft_ms"].mean()),
        "ttft_p50_ms": float(rows["ttft_ms"].quantile(0.5)),
        "ttft_p95_ms": float(rows["ttft_ms"].quantile(0.95)),
        "ttft_p99_ms": float(rows["ttft_ms"].quantile(0.99)),
        "tpot_ms": float(rows["tpot_ms"].mean()),
        "tpot_p50_ms": float(rows["tpot_ms"].median()),
        "tok_s": tokens / found.span_s,
        "stream_tok_s_p50": 1000 / float(rows["tpot_ms"].median()),
    }
