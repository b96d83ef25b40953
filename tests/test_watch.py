"""The server's own page over time: what is read from it, and how a server without one is left alone."""

import asyncio
import math
import time

import pytest
from aiohttp import web

from helpers import watch
from helpers.settings import Server

SERVER = Server("http://127.0.0.1:1/v1", "m", name="made up")


def page(running=1, waiting=0, queries=0, hits=0, tokens=0, steps=0, engine=0):
    label = f'{{engine="{engine}",model_name="m"}}'
    return (
        "# HELP vllm:num_requests_running Number of requests.\n"
        f"vllm:num_requests_running{label} {running}\n"
        f"vllm:num_requests_waiting{label} {waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{engine="0",reason="capacity"}} 99\n'
        f"vllm:prefix_cache_queries_total{label} {queries}\n"
        f"vllm:prefix_cache_hits_total{label} {hits}\n"
        f"vllm:iteration_tokens_total_sum{label} {tokens}\n"
        f"vllm:iteration_tokens_total_count{label} {steps}\n"
        f"vllm:generation_tokens_total{label} 1.5e+03\n"
        f'vllm:iteration_tokens_total_bucket{{engine="0",le="1.0"}} 77\n'
    )


def table(*texts):
    return watch.table([watch.Sample(float(at_s), text) for at_s, text in enumerate(texts)], SERVER)


def test_counts_are_since_the_first_page_and_shares_since_the_page_before():
    frame = table(
        page(running=1, queries=1000, hits=900, tokens=500, steps=50),
        page(running=3, waiting=2, queries=1100, hits=950, tokens=900, steps=60),
        page(running=0, queries=1500, hits=950, tokens=930, steps=75),
    )
    assert list(frame["running"]) == [1, 3, 0]
    assert list(frame["waiting"]) == [0, 2, 0]
    assert list(frame["prefix_queries"]) == [0, 100, 500]
    assert list(frame["prefix_hits"]) == [0, 50, 50]
    assert list(frame["hit_share"].iloc[1:]) == [0.5, 0.0]
    assert list(frame["steps"]) == [0, 10, 25]
    assert list(frame["tokens_per_step"].iloc[1:]) == [40, 2]
    assert math.isnan(frame["tokens_per_step"].iloc[0])
    assert set(frame["origin"]) == {"measured"}
    assert list(frame.columns) == list(watch.COLUMNS)


def test_several_engines_behind_one_page_are_summed():
    frame = table(page(running=2, engine=0) + page(running=3, engine=1))
    assert frame["running"].iloc[0] == 5


def test_nothing_happened_is_no_share():
    frame = table(page(queries=10, steps=5), page(queries=10, steps=5))
    assert math.isnan(frame["hit_share"].iloc[1])
    assert math.isnan(frame["tokens_per_step"].iloc[1])


def test_a_server_that_began_anew_counts_from_there():
    frame = table(page(queries=1000), page(queries=1100), page(queries=30), page(queries=50))
    assert list(frame["prefix_queries"]) == [0, 100, 130, 150]


def test_what_a_server_does_not_say_is_not_a_number():
    frame = table(
        "vllm:num_requests_running 4\n", "vllm:num_requests_running 5\nbroken line\nvllm:x{ NaNsense\n"
    )
    assert list(frame["running"]) == [4, 5]
    assert frame[["waiting", "prefix_hits", "tokens_per_step"]].isna().all(axis=None)


def test_no_page_gives_the_columns_all_the_same():
    frame = watch.table([], SERVER)
    assert frame.empty
    assert list(frame.columns) == list(watch.COLUMNS)


async def serving(handler, until, **changes):
    """Sample a server with this handler until a condition holds; the samples, and whether it ended itself."""
    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = Server(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "m", **changes)
    kept = []
    task = asyncio.create_task(watch.sample(server, time.perf_counter_ns(), kept, every_s=0.01))
    try:
        while not task.done() and not until(kept):
            await asyncio.sleep(0.005)
        return kept, task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


def test_pages_are_sampled_with_the_key_and_in_order():
    keys = []

    async def metrics(request):
        keys.append(request.headers.get("Authorization"))
        return web.Response(text=page(running=len(keys)))

    kept, ended = asyncio.run(serving(metrics, lambda kept: len(kept) >= 3, api_key="secret"))
    assert not ended
    assert [sample.at_s for sample in kept] == sorted(sample.at_s for sample in kept)
    assert set(keys) == {"Bearer secret"}
    assert "running" in watch.table(kept, SERVER)


@pytest.mark.parametrize("answer", [(404, "no"), (200, "<html>hello</html>"), (401, page())])
def test_a_server_without_such_a_page_is_left_alone(answer):
    asked = []

    async def refuses(request):
        asked.append(1)
        return web.Response(status=answer[0], text=answer[1])

    kept, ended = asyncio.run(serving(refuses, lambda kept: len(asked) > 10))
    assert ended
    assert (len(asked), kept) == (3, [])


def test_one_bad_page_is_no_reason_to_stop():
    answers = iter([page(), "?", page(), "?", "?", page()] + [page()] * 100)

    async def sometimes(request):
        return web.Response(text=next(answers))

    kept, ended = asyncio.run(serving(sometimes, lambda kept: len(kept) >= 4))
    assert not ended
    assert len(kept) >= 4


def test_a_server_that_cuts_is_asked_again():
    asked = []

    async def cuts(request):
        asked.append(1)
        if len(asked) < 6:
            request.transport.abort()
        return web.Response(text=page())

    kept, ended = asyncio.run(serving(cuts, lambda kept: bool(kept)))
    assert kept
    assert not ended
