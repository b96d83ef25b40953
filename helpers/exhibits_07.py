"""Figures of lesson 07: calls, load and its limit as recorded, three traps, and a modelled B200."""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd

from helpers import b200, calibration, figures, published, search, showcases, simulated, sweeps
from helpers.exhibit import Exhibit, Lazily
from helpers.settings import Server

ANSWER_TOKENS = (64, 128, 192)
LAPSE = "live calls, time-lapse"


def timeline() -> pd.DataFrame:
    """The calls of the lowest level of the recorded sweep in real time."""
    sweep = sweeps.kept_sweep(sweeps.REAL_TIME)
    return sweep.at(int(sweep.levels["live_calls"].min()))


def curve() -> pd.DataFrame:
    """The recorded sweep in time-lapse, a row a level."""
    return sweeps.curve(sweeps.kept_sweep(sweeps.SWEEP), sweeps.LIMIT_MS)


def over_time() -> pd.DataFrame:
    """Waits, and the server's own pages, of the recorded sweep."""
    return sweeps.over_time(sweeps.kept_sweep(sweeps.SWEEP))


def little() -> pd.DataFrame:
    """Little's law on the recorded sweep, and on a published run."""
    own = sweeps.little(sweeps.kept_sweep(sweeps.SWEEP))
    ours = own.assign(
        label=[f"{level:g} live" for level in own["live_calls"]],
        rate_x_time=own["rate_per_s"] * own["mean_time_s"],
        in_flight=own["mean_in_flight"],
    )
    record = published.table("load.queue_in_flight", "load.queue_requests_per_s", "load.queue_e2e")
    flying, per_second, e2e_s = record["value"]
    theirs = record.iloc[[0]].assign(label="published run", rate_x_time=per_second * e2e_s, in_flight=flying)
    columns = ["label", "rate_x_time", "in_flight", "origin", "server", "source", "date"]
    return pd.concat([ours, theirs], ignore_index=True).reindex(columns=columns)


def burst() -> pd.DataFrame:
    """First turns of callers who all begin at once, and of as many who do not."""
    at_once = sweeps.kept_sweep(sweeps.BURST).measured
    spread = sweeps.kept_sweep(sweeps.SWEEP).at(sweeps.BURST_LEVEL)
    named = [at_once.assign(run="all at once"), spread.assign(run="spread")]
    both = pd.concat([part[part["turn"] == 0] for part in named], ignore_index=True)
    both[sweeps.CLOCK] = sweeps.waits_ms(both)
    server = both["server"].iloc[0]
    return showcases.summary(both, metric=sweeps.CLOCK).assign(server=server)


def longer() -> pd.DataFrame:
    """The same arrivals with longer answers, by two clocks."""
    frame = showcases.longer_answers_under_a_cap(ANSWER_TOKENS)
    clocks = {"from sending": "ttft_ms", "from when due": "due_to_ttft_ms"}
    parts = [showcases.summary(frame, metric=at).assign(clock=clock) for clock, at in clocks.items()]
    order = {f"{tokens} tokens": number for number, tokens in enumerate(ANSWER_TOKENS)}
    return pd.concat(parts).sort_values("run", kind="stable", key=lambda runs: runs.map(order))


def omission() -> pd.DataFrame:
    """A server that stands still now and then, by a client that waits, by its plan, by one that does not.

    What the patient client meant to send at a steady pace and sent only when the answer before was there, is
    held against that pace in the middle row.
    """
    frame = showcases.coordinated_omission()
    patient, on_time = (rows for _, rows in frame.groupby("run", sort=False))
    plan_s, service_s = on_time["due_s"].to_numpy(), patient["ttft_ms"].to_numpy() / 1000
    waited_ms = (simulated.fifo(plan_s, service_s) + service_s - plan_s) * 1000
    planned = patient.assign(run="the same, from its plan", ttft_ms=waited_ms)
    return showcases.summary(pd.concat([patient, planned, on_time]))


@cache
def found() -> search.Found:
    """The recorded search for the limit, gone through again: its measurements are handed out as it asks."""
    server = Server("", "", origin="recorded")
    return search.limit(
        sweeps.measure(server, sweeps.lesson_workloads()[1], kept=sweeps.SEARCH),
        limit_ms=sweeps.LIMIT_MS,
        metric=sweeps.CLOCK,
        low=sweeps.first_level(curve(), sweeps.LIMIT_MS),
        **sweeps.SEARCH_SETTINGS,
    )


def probes() -> pd.DataFrame:
    """The measurements of that search."""
    server = sweeps.kept_table(sweeps.SEARCH)["server"].iloc[0]
    return found().probes.assign(server=server)


def search_options() -> dict[str, Any]:
    """The level that was found, and the headline."""
    title = "Where the search spent its calls"
    return {"answer": found().live_calls or None, "unit": LAPSE, "title": title}


EXHIBITS: tuple[Exhibit, ...] = (
    Exhibit(
        "07-call-timeline",
        figures.call_timeline,
        timeline,
        "A live call is not a request in flight: most of it is talking, listening and thinking.",
        {"title": "When does the model work?"},
    ),
    Exhibit(
        "07-latency-curve",
        figures.latency_curve,
        curve,
        "As callers are added the tail breaks first: P95 passes the limit where the median is still far "
        "from it.",
        {"unit": LAPSE, "title": "P95 breaks before P50"},
    ),
    Exhibit(
        "07-saturation",
        figures.saturation,
        over_time,
        "The server's own pages say why answers come later: each step carries more tokens, and everybody "
        "waits for it.",
        {"unit": LAPSE, "title": "What the callers wait for, and why"},
    ),
    Exhibit(
        "07-little",
        figures.little_check,
        little,
        "Requests a second times seconds each are the requests in flight, on our run and on a published one.",
        {"title": "Little's law, on our run and on theirs"},
    ),
    Exhibit(
        "07-burst",
        figures.percentiles_by_run,
        burst,
        "Callers who all begin in one second queue behind each other, as real callers do not.",
        {"title": "First turns of twelve callers"},
    ),
    Exhibit(
        "07-longer-answers",
        figures.percentiles_by_run,
        longer,
        "With a cap on requests in flight, longer answers make TTFT fall: the waiting has moved to the "
        "client.",
        {"title": "Timed from sending, TTFT falls as answers get longer"},
    ),
    Exhibit(
        "07-omission",
        figures.percentiles_by_run,
        omission,
        "A client that waits for each answer does not ask while the server stands still, and so does not "
        "see it.",
        {"title": "The same server, and who was asked"},
    ),
    Exhibit(
        "07-search-path",
        figures.search_path,
        probes,
        "A search spends its calls near the limit, and ends with a fresh run at its answer.",
        Lazily(search_options),
    ),
    Exhibit(
        "07-calibration",
        figures.predictions,
        calibration.table,
        "How far three models are from what others measured: time per token can be predicted, TTFT hardly.",
        {"title": "Predicted against published"},
    ),
    Exhibit(
        "07-b200-curves",
        figures.live_call_curves,
        b200.recorded_curves,
        "Modelled, not measured: the live calls that one B200 would carry before the P95 of TTFAT passes "
        "the limit.",
        {"title": "A modelled B200: P95 TTFAT against live calls"},
    ),
    Exhibit(
        "07-b200-cases",
        figures.capacity_cases,
        b200.recorded_cases,
        "Modelled: which assumption moves the answer most.",
        {"title": "What moves the answer (modelled)"},
    ),
)
