"""Three ways to fool yourself with a load test, and one published run explained: small models.

Each of the first three functions returns a frame with a row a request (``origin`` is ``modelled``), at once;
there is no server. The column ``run`` says what differs between the runs of a frame; :func:`summary` makes
the percentiles.

- :func:`coordinated_omission`: a client that waits for each answer before it asks again does not ask while
  the server stands still, and so does not see it.
- :func:`start_burst`: callers who all begin in the same second queue behind each other as callers do not.
- :func:`longer_answers_under_a_cap`: with a cap on requests in flight, longer answers make TTFT *fall*: the
  waiting has moved to the client, where TTFT does not count it.
- :func:`published_queue`: Little's law on somebody else's run.

Sources: G. Tene, "How NOT to Measure Latency" (talk, 2013), who gave coordinated omission its name; J. D. C.
Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9 (1961).
"""

from __future__ import annotations

import heapq

import numpy as np
import pandas as pd

from helpers import published
from helpers.origins import validate
from helpers.simulated import fifo
from helpers.stats import percentile


def coordinated_omission(
    *,
    requests: int = 20_000,
    service_ms: float = 4.0,
    pause_ms: float = 1000.0,
    every: int = 2000,
    per_second: float = 200.0,
) -> pd.DataFrame:
    """A server that stands still now and then, seen by a client that waits for it and by one that does not.

    Args:
        requests: how many are sent by each.
        service_ms: time to answer one.
        pause_ms: added to every ``every``-th request: a garbage collection, a compilation.
        every: requests from pause to pause.
        per_second: at which fixed rate the second client sends, whatever the server does.

    Returns:
        Columns ``run`` (``waits for each answer``, ``arrivals on time``), ``due_s``, ``sent_s``, ``ttft_ms``
        (from sending), ``due_to_ttft_ms`` (from when it was due), ``origin``. The second client's requests
        are all sent when due; they wait in the server, in order of arrival.
    """
    service_s = np.full(requests, service_ms / 1000)
    service_s[every - 1 :: every] += pause_ms / 1000
    one_after_another = np.cumsum(service_s) - service_s
    on_time = np.arange(requests) / per_second
    waited_s = fifo(on_time, service_s) - on_time
    return pd.concat(
        [
            _run("waits for each answer", one_after_another, one_after_another, service_s),
            _run("arrivals on time", on_time, on_time, waited_s + service_s),
        ],
        ignore_index=True,
    )


def start_burst(
    *,
    live_calls: int = 32,
    turns: int = 5,
    prefill_ms: float = 60.0,
    pause_s: float = 15.0,
    seed: int = 0,
) -> pd.DataFrame:
    """The same callers, once all beginning at the same moment, once spread over a turn's time.

    The server reads one prompt at a time, ``prefill_ms`` each; a caller's next turn is due an exponentially
    distributed time (mean ``pause_s``: hear the answer, think, speak) after the first token of the last.

    Returns:
        Columns as in :func:`coordinated_omission`, and ``turn`` (from 0); ``run`` is ``all at once`` or
        ``spread``.
    """
    random = np.random.default_rng(seed)
    pauses_s = random.exponential(pause_s, (live_calls, turns))
    starts_s = random.uniform(0, pause_s, live_calls)
    runs = []
    for name, begins_s in (("all at once", np.zeros(live_calls)), ("spread", starts_s)):
        line = [(float(begins_s[caller]), caller, 0) for caller in range(live_calls)]
        heapq.heapify(line)
        free_s, rows = 0.0, []
        while line:
            due_s, caller, turn = heapq.heappop(line)
            free_s = max(due_s, free_s) + prefill_ms / 1000
            rows.append((due_s, free_s - due_s, turn))
            if turn + 1 < turns:
                heapq.heappush(line, (free_s + pauses_s[caller, turn], caller, turn + 1))
        due, waited, turn_numbers = (np.array(column) for column in zip(*rows, strict=True))
        runs.append(_run(name, due, due, waited, turn=turn_numbers.astype(int)))
    return pd.concat(runs, ignore_index=True)


def longer_answers_under_a_cap(
    answer_tokens: tuple[int, ...] = (64, 128, 192, 256, 512),
    *,
    cap: int = 16,
    per_second: float = 4.0,
    requests: int = 2000,
    prefill_ms: float = 200.0,
    token_ms: float = 20.0,
    seed: int = 0,
) -> pd.DataFrame:
    """The same arrivals with longer and longer answers, and a client that keeps at most ``cap`` in flight.

    The server reads one prompt at a time (``prefill_ms``) and then writes all answers side by side
    (``token_ms`` a token). The client holds back what is over the cap, in order of arrival.

    Returns:
        Columns as in :func:`coordinated_omission`, and ``answer_tokens``, ``ended_s``; ``run`` names the
        length. The arrivals (Poisson, ``per_second``) are the same in all runs.
    """
    random = np.random.default_rng(seed)
    due_s = np.cumsum(random.exponential(1 / per_second, requests))
    runs = []
    for tokens in answer_tokens:
        slots = [0.0] * cap  # when each place in flight is free again
        prefill_free_s = 0.0
        sent_s, first_s = np.empty(requests), np.empty(requests)
        for i, due in enumerate(due_s):
            sent_s[i] = max(due, slots[0])
            prefill_free_s = first_s[i] = max(sent_s[i], prefill_free_s) + prefill_ms / 1000
            heapq.heapreplace(slots, first_s[i] + (tokens - 1) * token_ms / 1000)
        ended_s = first_s + (tokens - 1) * token_ms / 1000
        name = f"{tokens} tokens"
        runs.append(_run(name, due_s, sent_s, first_s - sent_s, answer_tokens=tokens, ended_s=ended_s))
    return pd.concat(runs, ignore_index=True)


def summary(frame: pd.DataFrame, *, metric: str = "ttft_ms", by: str = "run") -> pd.DataFrame:
    """P50, P95 and P99 of each run, in the order of the frame.

    Returns:
        Columns ``by``, ``n``, ``p50_ms``, ``p95_ms``, ``p99_ms``, ``max_ms``, ``origin``.
    """
    rows = []
    for name, part in frame.groupby(by, sort=False):
        times_ms = part[metric]
        row = {by: name, "n": len(part)}
        row |= {f"p{q}_ms": percentile(times_ms, q / 100).value for q in (50, 95, 99)}
        rows.append(row | {"max_ms": float(times_ms.max()), "origin": part["origin"].iloc[0]})
    return validate(pd.DataFrame(rows), used_by="showcases.summary")


def published_queue() -> pd.DataFrame:
    """Little's law on a published run: 32 requests in flight, and a TTFT at P50 of more than ten seconds.

    In flight = requests a second x seconds each: once for whole requests, as a check of the record, and once
    for the part of a request before its first token: so many of those in flight are waiting, on average. What
    is left is being answered, and the answer is what the server lets in at a time. Means are called for and
    the record gives medians; with nearly equal requests they differ little.

    Returns:
        Columns ``what``, ``value``, ``unit``, ``how``, ``origin``, ``source``, ``date``: rows of the record
        (``published``) and what follows from them (``modelled``).
    """
    record = published.table(
        "load.queue_in_flight",
        "load.queue_requests_per_s",
        "load.queue_e2e",
        "serve.queue_ttft_p50",
        "serve.alone_ttft_p50",
        "load.alone_tpot",
        "load.queue_answer_tokens",
    )
    asked, rate, e2e_s, ttft_ms, alone_ms, tpot_ms, tokens = record["value"]
    alone_s = (alone_ms + (tokens - 1) * tpot_ms) / 1000
    waiting = rate * ttft_ms / 1000
    rows = [
        ("requests in flight, by Little's law", rate * e2e_s, "requests", "rate x seconds each"),
        ("as many as were asked for, times", rate * e2e_s / asked, "", "the row above / in flight"),
        ("of them before their first token", waiting, "requests", "rate x TTFT"),
        ("of them being answered", rate * e2e_s - waiting, "requests", "the rest"),
        ("a request alone takes", alone_s, "s", "TTFT alone + 255 tokens x TPOT alone"),
        (
            "of the TTFT, more than a request alone has",
            (ttft_ms - alone_ms) / ttft_ms * 100,
            "%",
            "1 - TTFT alone / TTFT",
        ),
        ("time per token among so many", (e2e_s * 1000 - ttft_ms) / (tokens - 1), "ms", "(E2E - TTFT) / 255"),
    ]
    computed = pd.DataFrame(rows, columns=["what", "value", "unit", "how"])
    computed = computed.assign(origin="modelled", source="computed from the rows above", date="")
    given = record.assign(how=record["conditions"]).reset_index(drop=True)
    columns = ["what", "value", "unit", "how", "origin", "source", "date"]
    frame = pd.concat([given[columns], computed[columns]], ignore_index=True)
    return validate(frame, required=columns, used_by="showcases.published_queue")


def _run(
    name: str, due_s: np.ndarray, sent_s: np.ndarray, ttft_s: np.ndarray, **columns: object
) -> pd.DataFrame:
    frame = pd.DataFrame({"run": name, "due_s": due_s, "sent_s": sent_s, "ttft_ms": ttft_s * 1000})
    frame["due_to_ttft_ms"] = frame["ttft_ms"] + (frame["sent_s"] - frame["due_s"]) * 1000
    return frame.assign(**columns, origin="modelled")
