"""Several loads one after the other: the curve of a server, and what happened in it meanwhile.

:func:`run` takes a server through a few levels of live calls with :func:`helpers.load.run` and keeps the
requests, the server's own pages and each level's verdict on itself in a :class:`Sweep`. From one follow
:func:`curve` (a row a level: percentiles with intervals, goodput) and :func:`over_time` (what the client saw
and what the server says of itself, on one axis of time). :func:`measure` is what :func:`helpers.search.limit`
asks for.

A server that only replays cannot queue: it answers each request as fast as it once did, however many come at
once. For it, sweeps and searches that were recorded under load take the place of new ones (``kept``), and
every row says so. They are made anew by::

    python -m helpers.sweeps record     # about a quarter of an hour; quiet machine, please
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import arguments, calls, engine, load, published, recorded, search, slo, stats, workload
from helpers.found import Found
from helpers.origins import validate
from helpers.settings import CourseError, Server
from helpers.workload import Workload

LIMIT_MS = published.value("card.ttfat_ceiling")
CLOCK = "due_to_ttfat_ms"  # the limit is about the time since the caller's last word
SWEEP, REAL_TIME, BURST, SEARCH = "07-sweep", "07-real-time", "07-burst", "07-search"
FIRST = "07_concurrency_and_the_limit"  # request by request, for the replaying server
PACE = 5.0
BURST_LEVEL = 12
GAP_S = 2.0  # on the common axis of time, between one level and the next
SEARCH_SETTINGS = {"high": 64, "most": 64, "confirm": 64, "budget": 500, "tighten": False}
"""The search of lesson 07. A recorded one must be replayed with the settings that it was recorded with."""

KEPT = (
    "run",
    "call",
    "turn",
    "phase",
    "outcome",
    "error",
    "live_calls",
    "due_s",
    "sent_s",
    "first_answer_s",
    "ended_s",
    "call_began_s",
    "heard_s",
    "wait_ms",
    "ttfat_ms",
    CLOCK,
    "e2e_ms",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "origin",
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sweep:
    """Loads at several levels.

    Attributes:
        requests: the requests of all levels, see :class:`helpers.load_run.LoadRun`; ``live_calls`` tells the
            levels apart. Of a recorded sweep only the columns in :data:`KEPT`, and ``server``.
        pages: the server's own numbers, see :func:`helpers.watch.table`, and ``live_calls``.
        levels: one row a level: ``live_calls``, ``seconds`` (measured), ``lag_p95_ms`` (how late the client
            itself was), ``trusted``, ``why_not``, ``ended``, ``origin``, ``server``.
    """

    requests: pd.DataFrame
    pages: pd.DataFrame
    levels: pd.DataFrame

    @property
    def measured(self) -> pd.DataFrame:
        """The requests without those of the warm-ups."""
        return self.requests[self.requests["phase"] == "measured"].reset_index(drop=True)

    def at(self, live_calls: int) -> pd.DataFrame:
        """The measured requests of one level.

        Raises:
            CourseError: it is not among them, or has no measured request.
        """
        rows = self.measured[self.measured["live_calls"] == live_calls]
        if rows.empty:
            raise CourseError(
                f"The sweep has no level of {live_calls} live calls with a measured request. "
                f"{self.how_it_ended()}"
            )
        return rows.reset_index(drop=True)

    def nearest(self, live_calls: int) -> int:
        """The measured level nearest to this one: a sweep that was stopped may lack some.

        Raises:
            CourseError: no level has a measured request.
        """
        there = self.measured["live_calls"].unique()
        if not len(there):
            raise CourseError(f"The sweep has no level with a measured request. {self.how_it_ended()}")
        return int(min(there, key=lambda level: abs(level - live_calls)))

    def how_it_ended(self) -> str:
        """Its levels, how the last of them ended, and what to do."""
        listed = ", ".join(f"{level:g}" for level in self.levels["live_calls"])
        return (
            f"It tried: {listed}. The last one ended: {self.levels['ended'].iloc[-1]}. If the server is "
            "gone, start it again: engine.connect() starts the embedded one. Then run the sweep again."
        )


def run(
    server: Server,
    kind: Workload,
    levels: Sequence[int],
    *,
    seconds: float,
    warmup_s: float = 4.0,
    seed: int = 0,
    kept: str | None = None,
    say: Say | None = None,
    **how: Any,
) -> Sweep:
    """Take a server through some levels of live calls, one after the other.

    Args:
        server: where to.
        kind: the calls.
        levels: live calls, in the order in which they are tried.
        seconds: measured at each level, after its warm-up.
        warmup_s: seconds before that.
        seed: which callers; each level has others.
        kept: name of a recorded sweep that takes the place of a new one where the server only replays.
        say: gets a line of progress, see :func:`helpers.load.run`.
        **how: more for :func:`helpers.load.run`, such as ``burst=True``.

    Raises:
        CourseError: the arguments make no load. Nothing that the server does raises: a level that went wrong
            is in ``levels`` with how it ended, and if the server is gone or you stopped it, the rest is left
            out.
    """
    if server.origin != "measured" and kept:
        (say or print)(f"This server only replays, and nothing can queue in it: here is {kept}, recorded.\n")
        return kept_sweep(kept)
    levels = _checked(levels)
    loads = []
    for number, level in enumerate(levels):
        made = load.run(
            server,
            kind,
            live_calls=level,
            seconds=seconds,
            warmup_s=warmup_s,
            seed=seed + number,
            say=say,
            **how,
        )
        loads.append(made)
        if made.ended.startswith(("server gone", "stopped by you")):
            break
    return Sweep(
        requests=pd.concat([made.requests for made in loads], ignore_index=True),
        pages=pd.concat(
            [made.pages.assign(live_calls=float(made.about["live_calls"])) for made in loads],
            ignore_index=True,
        ),
        levels=pd.DataFrame([_level(made, server) for made in loads]),
    )


def _checked(levels: Iterable[int]) -> tuple[int, ...]:
    """All of them before the first is measured: a wrong one at the end would cost those before it."""
    levels = tuple(levels) if isinstance(levels, Iterable) else ()
    if not levels:
        raise CourseError("There is no level to try. Give some, such as levels=(1, 4, 8).")
    for number, level in enumerate(levels):
        load.check_lines(level)
        if level in levels[:number]:
            raise CourseError(f"{level} live calls are among the levels twice. Give each level once.")
    return levels


def waits_ms(requests: pd.DataFrame, *, metric: str = CLOCK) -> pd.Series:
    """What each caller waited, in ms, as :mod:`helpers.slo` counts it: infinite for a request that failed,
    and one that was cut by the end of the run keeps the time it has."""
    failed = requests["error"].notna() & ~requests["error"].isin(["", "cut"])
    return pd.to_numeric(requests[metric]).fillna(math.inf).mask(failed, math.inf)


def _level(made: load.LoadRun, server: Server) -> dict[str, object]:
    measured = made.measured
    # As load_run.doubt does: else the column and the sentence beside it name two numbers.
    since_s = measured["due_s"].min() if len(measured) else made.about["warmup_s"]
    lag = made.lag.loc[made.lag["at_s"] >= since_s, "lag_ms"]
    # A run that was stopped early has measured for less than was asked.
    last_s = float(measured["due_s"].max()) - float(made.about["warmup_s"]) if len(measured) else 0.0
    return {
        "live_calls": made.about["live_calls"],
        "seconds": made.about["seconds"] if made.ended == "time" else last_s,
        "lag_p95_ms": stats.percentile(lag, 0.95).value if len(lag) else math.nan,
        "trusted": made.trusted,
        "why_not": made.why_not,
        "ended": made.ended,
        "origin": server.origin,
        "server": server.name or server.base_url,
    }


def curve(sweep: Sweep, limit_ms: float, *, metric: str = CLOCK) -> pd.DataFrame:
    """One row a level: what a caller waits for, with an interval, and how much of it was in time.

    Columns: ``live_calls``, ``n`` (calls: the independent unit), ``turns``, ``failed``, ``p50_ms``,
    ``p95_ms`` with ``low_ms`` and ``high_ms`` (95 % interval, calls as the unit; infinite where so few calls
    set no bound), ``share`` within the limit, ``verdict``, ``requests_per_s`` and ``goodput_per_s``,
    ``in_flight`` (mean), ``duty_cycle``, ``trusted``, ``origin``, ``server``. A level without a measured
    request is left out.
    """
    rows = []
    for level in sweep.levels.to_dict("records"):
        asked = sweep.requests[sweep.requests["live_calls"] == level["live_calls"]]
        part = asked[asked["phase"] == "measured"]
        if part.empty or not level["seconds"] > 0:
            continue
        p95 = slo.p95_interval(part, metric=metric)
        found = slo.attainment(part, limit_ms, metric=metric)
        rate = slo.goodput(part, limit_ms, level["seconds"], metric=metric).iloc[0]
        rows.append(
            {
                "live_calls": level["live_calls"],
                "n": found.n_calls,
                "turns": found.n_turns,
                "failed": found.failed,
                "p50_ms": slo.p95_interval(part, q=0.5, metric=metric).value,
                "p95_ms": p95.value,
                "low_ms": p95.low,
                "high_ms": p95.high,
                "share": found.share,
                "verdict": found.verdict(),
                "requests_per_s": rate["requests_per_s"],
                "goodput_per_s": rate["goodput_per_s"],
                "in_flight": calls.mean_in_flight(part),
                "duty_cycle": calls.duty_cycle(asked),
                "trusted": level["trusted"],
                "origin": level["origin"],
                "server": level["server"],
            }
        )
    if not rows:
        raise CourseError(f"No level has a measured request. {sweep.how_it_ended()}")
    return validate(pd.DataFrame(rows), used_by="sweeps.curve")


def beside(live_calls: int, tested: Sweep, limit_ms: float) -> str:
    """How far a prediction was tested, in a sentence; empty if it was tested as it is.

    A sweep that was recorded before, or that went no higher than it may, has other levels than the predicted
    one. Then the nearest of them says what can be said.

    Args:
        live_calls: the prediction.
        tested: the sweep in the unit of the prediction.
        limit_ms: of the promise.
    """
    if not len(tested.measured):
        return f"Nothing was measured, so the prediction is untested. {tested.how_it_ended()}"
    rows = curve(tested, limit_ms).sort_values("live_calls")
    levels = [int(level) for level in rows["live_calls"]]
    if live_calls in levels:
        return ""
    listed = ", ".join(f"{level}" for level in levels)
    said = f"The predicted {live_calls} live calls were not tried; the runs here had {listed}."
    slow = rows[(rows["share"] < 0.95) & (rows["live_calls"] <= live_calls)]
    if len(slow):
        first = slow.iloc[0]
        return (
            f"{said} Already at {first['live_calls']:g} only {first['share']:.0%} of the turns were in time, "
            "so the prediction is too high."
        )
    if live_calls > levels[-1]:
        return f"{said} At {levels[-1]} the promise was still kept: the prediction may be right, or too high."
    return f"{said} Read the rows on either side of it."


def first_level(levels: pd.DataFrame, limit_ms: float) -> int:
    """Where a search may begin after a sweep (:func:`curve`): at the highest level whose P95 is no more than
    half of the limit, with no worse one below it; else at 1. Low levels are dear, since few lines take long
    for many calls."""
    ordered = levels.sort_values("live_calls")
    easy = (ordered["p95_ms"] <= limit_ms / 2).cummin()
    return int(ordered.loc[easy, "live_calls"].max()) if easy.any() else 1


def over_time(sweep: Sweep, *, metric: str = CLOCK) -> pd.DataFrame:
    """What the client saw and what the server says of itself, on one axis of time.

    Returns:
        A row a value: ``at_s`` (the levels follow one another, :data:`GAP_S` apart), ``series``, ``value``,
        ``live_calls``, ``origin``, ``server``. The series: ``TTFAT`` (ms, a row a request, when it was due;
        infinite if it failed), ``in flight`` (requests the client waits for, a row a change),
        ``running`` and ``waiting`` (requests, the server's count), ``tokens per step``, ``prefix hits``
        (share of the prompt tokens that were found in the cache).
    """
    parts: list[pd.DataFrame] = []
    begin_s = 0.0
    theirs = {
        "running": "running",
        "waiting": "waiting",
        "tokens_per_step": "tokens per step",
        "hit_share": "prefix hits",
    }
    for level in sweep.levels.to_dict("records"):
        part = sweep.requests[sweep.requests["live_calls"] == level["live_calls"]]
        pages = sweep.pages[sweep.pages["live_calls"] == level["live_calls"]]
        if part.empty:
            continue
        counted = calls.in_flight(part.assign(run=str(level["live_calls"])))
        waited = waits_ms(part, metric=metric)
        found = [
            pd.DataFrame({"at_s": part["due_s"], "series": "TTFAT", "value": waited}),
            pd.DataFrame(
                {"at_s": counted["at_s"], "series": "in flight", "value": counted["in_flight"].astype(float)}
            ),
        ]
        found += [
            pd.DataFrame({"at_s": pages["at_s"], "series": name, "value": pages[column]}).dropna()
            for column, name in theirs.items()
        ]
        one = pd.concat([frame for frame in found if len(frame)], ignore_index=True)
        one["at_s"] += begin_s
        parts.append(
            one.assign(live_calls=level["live_calls"], origin=level["origin"], server=level["server"])
        )
        begin_s = max(begin_s + float(part["ended_s"].max()), float(one["at_s"].max())) + GAP_S
    if not parts:
        raise CourseError(f"No level has a request. {sweep.how_it_ended()}")
    return pd.concat(parts, ignore_index=True)


def little(sweep: Sweep) -> pd.DataFrame:
    """Little's law on each level, see :func:`helpers.calls.little`: with ``live_calls``, ``origin``,
    ``server``. A window from the first sending to the last ending, warm-up included."""
    rows = []
    for level in sweep.levels.to_dict("records"):
        part = sweep.requests[sweep.requests["live_calls"] == level["live_calls"]]
        pages = sweep.pages[sweep.pages["live_calls"] == level["live_calls"]]
        if len(part):
            rows.append(calls.little(part, pages))
    if not rows:
        raise CourseError(f"No level has a request. {sweep.how_it_ended()}")
    return pd.concat(rows, ignore_index=True)


# --- for a search -----------------------------------------------------------------------------------------


def measure(
    server: Server,
    kind: Workload,
    *,
    warmup_s: float = 3.0,
    most_s: float = 45.0,
    seed: int = 1000,
    kept: str | None = None,
    say: Say | None = None,
    keep: list[pd.DataFrame] | None = None,
) -> search.Measure:
    """What :func:`helpers.search.limit` asks for: new calls at a level, each time others.

    Args:
        server: where to.
        kind: the calls.
        warmup_s: seconds before each measurement.
        most_s: seconds after which a measurement ends with the calls that it has.
        seed: of the first measurement; each later one takes the next.
        kept: name of a recorded search whose measurements are handed out where the server only replays.
        say: gets the progress of each load; silent by default.
        keep: gets every table, in the order of measuring.

    Raises:
        CourseError: at once, if the times make no load. Later the measuring raises one if the server answers
            nothing at all.
    """
    arguments.number("warmup_s", warmup_s, least=0, example="3 (seconds)")
    arguments.number("most_s", most_s, above=0, example="25 (seconds)")
    if server.origin != "measured" and kept:
        return _kept_measure(kept, keep)
    number = 0

    def take(live_calls: int, count: int) -> pd.DataFrame:
        nonlocal number
        made = load.run(
            server,
            kind,
            live_calls=live_calls,
            max_calls=count,
            seconds=most_s,
            warmup_s=warmup_s,
            seed=seed + number,
            say=say or (lambda line: None),
        )
        number += 1
        if made.measured.empty:
            if made.ended == "stopped by you":
                raise KeyboardInterrupt
            ended = made.ended.removeprefix("server gone: ")
            raise CourseError(f"No request was measured at {live_calls} live calls ({ended}).")
        made.requests.attrs |= {"ended": made.ended, "why_not": made.why_not}
        if keep is not None:
            keep.append(made.requests)
        return made.requests

    return take


def last(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The last of the tables that :func:`measure` kept.

    Raises:
        CourseError: a search that measured nothing has none.
    """
    if not tables:
        raise CourseError("The search has measured nothing yet. Run it again, and let it run for longer.")
    return tables[-1]


def _kept_measure(name: str, keep: list[pd.DataFrame] | None) -> search.Measure:
    frame = kept_table(name)
    left = {
        level: [probe for _, probe in rows.groupby("probe")] for level, rows in frame.groupby("live_calls")
    }

    def take(live_calls: int, count: int) -> pd.DataFrame:
        if not left.get(live_calls):
            raise CourseError(
                f"The recorded search {name} has no further measurement at {live_calls} live calls. "
                "Run the search as it was recorded, or on a live server."
            )
        found = left[live_calls].pop(0).reset_index(drop=True)
        if keep is not None:
            keep.append(found)
        return found

    return take


# --- recorded ---------------------------------------------------------------------------------------------


def kept_table(name: str) -> pd.DataFrame:
    """A recorded table under ``data/runs/`` with ``server`` in each row, from its conditions."""
    frame = recorded.load_table(name)
    about = frame.attrs["conditions"]
    frame = frame.assign(server=f"{about['server']['name']}, {about['date']}")
    if "error" in frame:
        frame = frame.astype({"error": object})
    return frame


def kept_sweep(name: str) -> Sweep:
    """A recorded sweep.

    Raises:
        CourseError: there is none of this name.
    """
    levels = kept_table(f"{name}-levels")
    levels["why_not"] = levels["why_not"].astype(object).fillna("")  # CSV cannot tell "" from nothing
    return Sweep(kept_table(name), kept_table(f"{name}-pages"), levels)


@cache
def recorded_search() -> tuple[Found, tuple[pd.DataFrame, ...]]:
    """The recorded search for the limit, gone through again (its measurements are handed out as it asks), and
    its measurements."""
    tables: list[pd.DataFrame] = []
    found = search.limit(
        _kept_measure(SEARCH, tables),
        limit_ms=LIMIT_MS,
        metric=CLOCK,
        low=first_level(curve(kept_sweep(SWEEP), LIMIT_MS), LIMIT_MS),
        **SEARCH_SETTINGS,
    )
    return found, tuple(tables)


def keep_sweep(
    name: str, sweep: Sweep, server: Server, workload_sentence: str, *, folder: Path | None = None
) -> None:
    """Write a sweep to ``data/runs/`` as three tables: ``name``, ``name-pages`` and ``name-levels``."""
    for suffix, frame in {"": slim(sweep.requests), "-pages": sweep.pages, "-levels": sweep.levels}.items():
        if suffix:
            frame = frame.drop(columns="server")
        recorded.save_table(
            f"{name}{suffix}",
            _rounded(frame),
            server=server,
            workload=workload_sentence,
            replace_old=True,
            folder=folder,
        )


def slim(requests: pd.DataFrame) -> pd.DataFrame:
    """The columns that a recorded table keeps."""
    return requests[[column for column in (*KEPT, "probe") if column in requests.columns]]


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """A tenth of a millisecond is finer than any of the clocks' noise, and a digit is a byte a row."""
    places = {
        name: 1 if name.endswith("_ms") else 4
        for name in frame.select_dtypes("float").columns
        if name != "live_calls"
    }
    return frame.round(places)


def lesson_workloads() -> tuple[Workload, Workload]:
    """The calls of lesson 07 for the small engine: in real time, and in time-lapse."""
    real_time = workload.load().short()
    return real_time, real_time.scaled(pace=PACE, pauses=1 / PACE)


def record(say: Say = print, *, seconds: float = 40.0) -> None:
    """Make the recorded runs of lesson 07 anew on the embedded engine: a first small run request by request,
    a sweep in time-lapse and one in real time, and a search."""
    server = engine.connect()
    if server.origin != "measured":
        raise CourseError("Sweeps can only be recorded on a live server, and this one replays.")
    real_time, time_lapse = lesson_workloads()
    load.run(
        server, time_lapse, live_calls=4, seconds=8.0, warmup_s=2.0, seed=99
    )  # warm: the cache, the engine
    began = time.monotonic()
    with recorded.recording(FIRST, server) as path:
        load.run(server, real_time, live_calls=4, seconds=20.0, warmup_s=6.0)
    recorded.finish(FIRST, replace_old=True, source=path, workload=f"4 live calls; {real_time.sentence()}")
    sweep = run(server, time_lapse, (1, 4, 6, 8, 10, 12, 16, 20), seconds=seconds)
    keep_sweep(SWEEP, sweep, server, f"{seconds:g} s a level; {time_lapse.sentence()}")
    levels = curve(sweep, LIMIT_MS)
    say(levels.round(2).to_string())
    sweep = run(server, real_time, (8, 24, 40, 56), seconds=seconds, warmup_s=8.0)
    keep_sweep(REAL_TIME, sweep, server, f"{seconds:g} s a level; {real_time.sentence()}")
    say(curve(sweep, LIMIT_MS).round(2).to_string())
    sweep = run(server, time_lapse, (BURST_LEVEL,), seconds=8.0, warmup_s=0.0, seed=50, burst=True)
    keep_sweep(BURST, sweep, server, f"all first requests at once; {time_lapse.sentence()}")
    tables: list[pd.DataFrame] = []
    found = search.limit(
        measure(server, time_lapse, keep=tables),
        limit_ms=LIMIT_MS,
        metric=CLOCK,
        low=first_level(levels, LIMIT_MS),
        say=say,
        **SEARCH_SETTINGS,
    )
    say(found.sentence())
    probes = pd.concat([table.assign(probe=number) for number, table in enumerate(tables)], ignore_index=True)
    sentence = f"a search for the limit of {LIMIT_MS:g} ms; {time_lapse.sentence()}"
    recorded.save_table(SEARCH, _rounded(slim(probes)), server=server, workload=sentence, replace_old=True)
    say(f"recorded in {(time.monotonic() - began) / 60:.1f} minutes")


def main(words: list[str]) -> int:
    """``python -m helpers.sweeps record``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.sweeps", description="Sweeps of lesson 07.")
    parser.add_argument("action", choices=["record"], help="make data/runs/07-... anew")
    parser.add_argument("--seconds", type=float, default=40.0, help="a level of a sweep")
    options = parser.parse_args(words)
    try:
        record(seconds=options.seconds)
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
