"""The limit of lesson 07 in real-time live calls, with its interval: what lesson 08 turns into a price.

The search of lesson 07 runs in time-lapse, because there few callers load a server as many do. What is sold
is calls in real time. :mod:`helpers.limits_converted` turns the one into the other at the load that the
search found; a run in real time is held against it, and what that run proves counts more.

:func:`keep` writes a limit of your own under ``workspace/runs/``; :func:`latest` finds the newest, or else
the one that was recorded for the course.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from helpers import settings, sweeps
from helpers.arguments import number
from helpers.conditions import conditions
from helpers.found import Found
from helpers.limits_converted import Pauses, at_level, check, pauses
from helpers.settings import CourseError, Server, cannot_write, workspace
from helpers.sweeps import Sweep
from helpers.workload import Workload

NAME = "07-limit"
FORMAT = 1
STAMP = re.compile(rf"{NAME}-(\d{{8}}-\d{{6}})(?:-(\d+))?")


@dataclass(frozen=True)
class Limit:
    """How many people can be on the phone before the promise is broken, in real time.

    Attributes:
        live_calls: best estimate, in real-time live calls.
        low: so many surely keep the promise; 0 if that can be said of no number.
        high: so many surely break it; None if that can be said of no number.
        origin: ``measured`` by the learner, or ``recorded`` for the course.
        server: what was measured.
        date: when.
        how: how the number came about, in sentences.
    """

    live_calls: float
    low: float
    high: float | None
    origin: str
    server: str
    date: str
    how: str

    def __post_init__(self) -> None:
        """Refuse what cannot be a limit, such as a damaged file's."""
        number("live_calls", self.live_calls, above=0)
        number("low", self.low, least=0, most=self.live_calls)
        if self.high is not None:
            number("high", self.high, least=self.live_calls)
        if self.origin not in ("measured", "recorded"):
            raise CourseError(f"origin={self.origin!r}: a limit is measured or recorded.")

    def sentence(self) -> str:
        """The limit with its interval, where it was found, and how."""
        low = f"{self.low:.0f} surely keep the promise" if self.low else "no number surely keeps the promise"
        high = f"{self.high:.0f} surely break it" if self.high is not None else "no number surely breaks it"
        return (
            f"About {_calls(self.live_calls)} in real time ({low}, {high}); {self.origin} on "
            f"{self.server}, {self.date}. {self.how}"
        )


def derived(
    found: Found,
    *,
    kind: Workload,
    tables: Sequence[pd.DataFrame],
    real_time: pd.DataFrame,
    tested: Sweep | None = None,
    origin: str,
    server: str,
    date: str,
) -> Limit:
    """The limit in real time that follows from a search in time-lapse.

    Args:
        found: the search's answer.
        kind: the calls in real time, without tools.
        tables: the search's measurements, as :func:`helpers.sweeps.measure` kept them.
        real_time: requests of such calls, such as the first run's.
        tested: a sweep in real time near the answer, if there is one. What it proves about a level replaces
            the search's converted bound on that side: it is in the unit that counts.
        origin, server, date: of the measurement.

    Raises:
        CourseError: the search found no level that keeps the promise, or calls in real time are missing.
    """
    if not found.live_calls:
        raise CourseError(f"There is no limit to keep or to convert. {found.sentence()}")
    curve = None
    with suppress(CourseError):  # it was stopped before anything was measured
        curve = None if tested is None else sweeps.curve(tested, found.limit_ms, metric=found.metric)
    beside = pauses(kind, real_time)
    at = at_level(tables, found.live_calls, beside)
    low, high = _converted_bounds(found, at["live_calls"], tables, beside)
    proved_low, proved_high = _proved(curve)
    if proved_low:
        low, high = proved_low, high if high > proved_low else math.inf
    if proved_high < math.inf:
        low, high = low if low < proved_high else 0.0, proved_high
    # Live calls are whole, and rounding may not make a bound surer than it is. A bound that was proved in
    # real time outweighs the converted estimate.
    low = float(math.floor(low + 1e-9))
    highest = None if math.isinf(high) else float(math.ceil(high - 1e-9))
    best = max(float(round(at["live_calls"])), low, 1.0)
    best = best if highest is None else min(best, max(highest - 1, low, 1.0))
    return Limit(
        live_calls=best,
        low=min(low, best),
        high=highest,
        origin=origin,
        server=server,
        date=date,
        how=_how(found, at, best, proved_low, proved_high)
        + ("" if curve is None else _checked(check(kind, tested))),
    )


def _converted_bounds(
    found: Found, answer: float, tables: Sequence[pd.DataFrame], beside: Pauses
) -> tuple[float, float]:
    """The search's bounds, each converted at its own load. Where that turns their order around, because the
    server slows down all at once there, they keep their distance from the answer in proportion."""
    low, high = 0.0, math.inf
    if found.low:
        low = at_level(tables, found.low, beside)["live_calls"]
        low = low if low <= answer else answer * found.low / found.live_calls
    if found.high is not None:
        high = at_level(tables, found.high, beside)["live_calls"]
        high = high if high > answer else answer * found.high / found.live_calls
    return low, high


def _proved(curve: pd.DataFrame | None) -> tuple[float, float]:
    """What a sweep proves: the largest level that surely keeps the promise, the smallest that surely breaks
    it. A level at which the client itself was late proves nothing."""
    if curve is None:
        return 0.0, math.inf
    sure = curve[curve["trusted"].astype(bool)]
    high = sure.loc[sure["verdict"] == "fails", "live_calls"].min()
    high = math.inf if pd.isna(high) else float(high)
    low = sure.loc[(sure["verdict"] == "holds") & (sure["live_calls"] < high), "live_calls"].max()
    return (0.0 if pd.isna(low) else float(low)), high


def _how(found: Found, at: dict[str, float], best: float, proved_low: float, proved_high: float) -> str:
    said = [
        f"Converted from a search in time-lapse, whose answer was {_calls(found.live_calls)} there "
        f"(P{found.q * 100:g} of {found.metric} at most {found.limit_ms:g} ms): at that load a call in real "
        f"time would have a request in flight for {at['duty_cycle']:.0%} of its time, so the "
        f"{at['in_flight']:.1f} requests in flight are {_calls(at['live_calls'])}."
    ]
    if proved_low or proved_high < math.inf:
        kept = f"surely kept the promise at {proved_low:.0f}" if proved_low else ""
        broke = f"surely broke it at {proved_high:.0f}" if proved_high < math.inf else ""
        said.append(f"In real time the server {' and '.join(part for part in (kept, broke) if part)}.")
        if best != max(1.0, round(at["live_calls"])):
            said.append("What was seen in real time outweighs what was converted.")
    elif found.low or found.high is not None:
        said.append("The bounds are the search's, converted likewise.")
    return " ".join(said)


def _calls(count: float) -> str:
    return f"{count:.0f} live call{'' if round(count) == 1 else 's'}"


def _checked(checked: pd.DataFrame) -> str:
    if checked.empty:
        return ""
    return f" For the runs in real time the conversion is right to within {checked['off'].abs().max():.0%}."


# --- kept and found again ---------------------------------------------------------------------------------


def keep(
    found: Found,
    server: Server,
    *,
    kind: Workload,
    tables: Sequence[pd.DataFrame],
    real_time: pd.DataFrame,
    tested: Sweep | None = None,
) -> str:
    """Keep the limit under ``workspace/runs/`` and return its name, such as ``07-limit-20261201-101500``.
    Never overwrites: each has its own name.

    Args:
        found, kind, tables, real_time, tested: as in :func:`derived`.
        server: the server that was measured.

    Raises:
        CourseError: there is no limit to keep, the server only replays, or the folder cannot be written in.
    """
    if server.origin != "measured":
        raise CourseError(
            "This search was replayed, so its limit is none of yours. limits.recorded() has the course's."
        )
    about = conditions(server, NAME)
    limit = derived(
        found,
        kind=kind,
        tables=tables,
        real_time=real_time,
        tested=tested,
        origin=server.origin,
        server=about["server"]["name"] or server.model,
        date=about["date"],
    )
    probes = json.loads(found.probes.to_json(orient="records"))
    content = {"format": FORMAT, "limit": asdict(limit), "workload": kind.sentence(), "conditions": about}
    text = json.dumps(content | {"search": found.sentence(), "probes": probes}, indent=1)
    stem = f"{NAME}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        path = workspace("runs", f"{stem}{suffix}.json")
        try:
            file = path.open("x", encoding="utf-8")  # "x": never onto an existing file
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(error) from error
        try:
            with file:
                file.write(text)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise cannot_write(error) from error
        return path.stem
    raise CourseError("Too many limits were kept within one second; wait a moment and try again.")


def latest() -> Limit:
    """The newest limit that the learner kept, or, without any, the course's own (:func:`recorded`). A kept
    file that is damaged is named in a warning and passed over."""
    for path in reversed(_kept()):
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError, CourseError) as error:
            warnings.warn(f"{path} cannot be read ({error}); an older limit is taken.", stacklevel=2)
    return recorded()


@cache
def recorded() -> Limit:
    """The limit of the small engine, from what is recorded for lesson 07: the search in time-lapse and the
    sweep in real time under ``data/runs``."""
    real_time = sweeps.kept_sweep(sweeps.REAL_TIME)
    found, tables = sweeps.recorded_search()
    about = sweeps.kept_table(sweeps.SEARCH).attrs["conditions"]
    return derived(
        found,
        kind=sweeps.lesson_workloads()[0],
        tables=tables,
        real_time=real_time.requests,
        tested=real_time,
        origin="recorded",
        server=about["server"]["name"],
        date=about["date"],
    )


def _kept() -> list[Path]:
    """The kept files, oldest first."""
    there = [
        (match[1], int(match[2] or 1), path)
        for path in (settings.WORKSPACE / "runs").glob(f"{NAME}-*.json")
        if (match := STAMP.fullmatch(path.stem))
    ]
    return [path for *_, path in sorted(there)]


def _read(path: Path) -> Limit:
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["format"] > FORMAT:
        raise CourseError("it was written by a newer version of the course; type: git pull")
    return Limit(**content["limit"])
