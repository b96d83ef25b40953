"""Plain pages of a server, and what a learner is told when there is none, or a wrong one."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time

import pytest

from helpers import api, engine
from helpers.settings import CourseError, Server

KEY = "sk-never-to-be-seen-0123456789"
MODELS = json.dumps({"object": "list", "data": [{"id": "first"}, {"id": "second"}]})
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 2.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4.0
vllm:time_to_first_token_seconds_count{engine="0"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0"} 0.9
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 1.0
vllm:time_to_first_token_seconds_count{engine="1"} 1.0
vllm:time_to_first_token_seconds_sum{engine="1"} 0.05
"""


@contextlib.contextmanager
def answering(pages=None, *, status=200, text="", headers=()):
    """A server that answers these paths, and every other with this status and text. Gives its address and
    the list of (path, headers) that it saw."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            code, body = (200, pages[self.path]) if pages and self.path in pages else (status, text)
            self.send_response(code)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *rest):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(api, "on_page", [])


@pytest.fixture
def connect(monkeypatch):
    """engine.connect() as a learner with these variables would call it."""

    def connect(address, *, model=None, key=None):
        for name, value in (("BASE_URL", address), ("MODEL", model), ("API_KEY", key)):
            monkeypatch.delenv(f"PHONELLM_{name}", raising=False)
            if value is not None:
                monkeypatch.setenv(f"PHONELLM_{name}", value)
        return engine.connect(lambda line: None)

    return connect


def refusal(connect, address, **rest) -> str:
    """What the learner is told; each such text ends with something to do, and holds no key."""
    with pytest.raises(CourseError) as caught:
        connect(address, key=KEY, **rest)
    text = str(caught.value)
    assert KEY not in text
    assert KEY not in repr(caught.value.__cause__)
    assert "\n" in text, "what happened, and on its own line what to do"
    return text


# ---------------------------------------------------------------- an address that works


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1//", "/v1?x=1", "/v1#part"])
def test_the_address_may_end_as_people_write_it(connect, end):
    with answering({"/v1/models": MODELS}) as (address, _):
        server = connect(f"  {address}{end} ")
    assert server == Server(f"{address}/v1", "first", None, "measured", "first at 127.0.0.1")
    assert api.root(server) == address


def test_a_path_before_v1_is_kept(connect):
    with answering({"/team/a/v1/models": MODELS}) as (address, _):
        assert connect(f"{address}/team/a").base_url == f"{address}/team/a/v1"


def test_the_wanted_model_is_taken(connect):
    with answering({"/v1/models": MODELS}) as (address, _):
        assert connect(address, model="second").model == "second"


def test_an_empty_model_variable_is_as_none(connect):
    with answering({"/v1/models": MODELS}) as (address, _):
        assert connect(address, model="").model == "first"


def test_the_key_goes_to_the_server_and_is_not_shown(connect):
    with answering({"/v1/models": MODELS}) as (address, seen):
        server = connect(address, key=f" {KEY}\n")
    assert seen[0][1]["Authorization"] == f"Bearer {KEY}"
    assert server.api_key == KEY
    assert KEY not in repr(server)
    assert KEY not in str(server)


def test_no_key_no_header(connect):
    with answering({"/v1/models": MODELS}) as (address, seen):
        connect(address)
    assert "Authorization" not in seen[0][1]


def test_a_proxy_for_the_world_does_not_catch_this_machine(connect, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering({"/v1/models": MODELS}) as (address, _):
        assert connect(address).model == "first"


def test_listeners_get_each_page_and_no_key():
    with answering({"/x": "hello"}) as (address, _):
        server = Server(f"{address}/v1", "m", KEY)
        api.on_page.append(lambda *call: calls.append(call))
        calls: list = []
        assert api.page(server, "/x") == "hello"
    assert calls == [(server, "/x", "hello")]


# ---------------------------------------------------------------- and those that do not


def test_nothing_listens_there(connect):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        text = refusal(connect, f"http://127.0.0.1:{probe.getsockname()[1]}/v1")
    assert "No answer from" in text
    assert "refused" in text
    assert "Is the server up" in text
    assert "curl http://127.0.0.1:" in text


def test_a_name_that_does_not_exist(connect):
    text = refusal(connect, "http://no-such-host.invalid:8000/v1")
    assert "No answer from http://no-such-host.invalid:8000/v1/models" in text
    assert "PHONELLM_BASE_URL" in text


def test_something_else_than_http_answers(connect):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            link, _ = other.accept()
            with link:
                link.recv(1000)
                link.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        text = refusal(connect, f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join()
    assert "No answer from" in text


def test_an_answer_that_is_cut_off(connect):
    with answering({"/v1/models": "half"}, headers=[("Content-Length", "4000")]) as (address, _):
        text = refusal(connect, address)
    assert "No answer from" in text


def test_https_where_there_is_only_http(connect):
    with answering({"/v1/models": MODELS}) as (address, _):
        assert "No answer from" in refusal(connect, address.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ["refused the key (HTTP 401)", "Set PHONELLM_API_KEY", "restart the kernel"]),
        (403, ["refused the key (HTTP 403)", "Set PHONELLM_API_KEY"]),
        (404, ["does not exist there (HTTP 404)", "PHONELLM_BASE_URL should end"]),
        (502, ["not ready yet (HTTP 502)", "in a minute"]),
        (503, ["not ready yet (HTTP 503)", "waking up", "Run this cell again in a minute"]),
        (504, ["not ready yet (HTTP 504)"]),
        (429, ["answered HTTP 429", "run this cell again"]),
        (500, ["answered HTTP 500", "server's log"]),
    ],
)
def test_what_a_status_means(connect, status, words):
    with answering(status=status, text=f"you sent {KEY}") as (address, _):
        text = refusal(connect, address)
    assert f"{address}/v1/models" in text
    assert [word for word in words if word not in text] == []


def test_the_status_is_there_for_code_too():
    with answering(status=503) as (address, _), pytest.raises(api.Refused) as caught:
        api.page(Server(f"{address}/v1", "m"), "/health")
    assert caught.value.status == 503


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_key_is_not_sent_on_to_another_server(connect, status):
    with answering({"/v1/models": MODELS}) as (other, seen):
        moved = [("Location", f"{other}/v1/models")]
        with answering(status=status, headers=moved) as (address, _):
            text = refusal(connect, address)
    assert seen == []
    assert f"sends on to {other}/v1/models (HTTP {status})" in text
    assert "PHONELLM_BASE_URL" in text


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (f"http://me:{KEY}@else.where/v1/models", "http://else.where/v1/models "),
        (f"http://else.where/login?next=/x&key={KEY}", "http://else.where/login "),
        (f"/keys/{KEY}/models#part", "/keys/***/models "),
        (f"//me:{KEY}@else.where/x", "//else.where/x "),
        (f"ftp://me:{KEY}@else.where/x", "ftp://else.where/x "),
    ],
)
def test_a_redirect_is_shown_without_its_secrets(connect, place, told):
    with answering(status=302, headers=[("Location", place)]) as (address, _):
        text = refusal(connect, address)
    assert f"sends on to {told}(HTTP 302)" in text
    assert "me:" not in text
    assert "next=" not in text


@contextlib.contextmanager
def dribbling(head: bytes):
    """A server that sends this and then a byte every now and then, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            link, _ = listening.accept()
            with link, contextlib.suppress(OSError):
                link.recv(4000)
                link.sendall(head)
                while not over.wait(0.02):
                    link.sendall(b"x")

        over = threading.Event()
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "m")
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Header: "])
def test_a_page_that_never_ends_is_given_up(head):
    with dribbling(head) as server:
        begun = time.monotonic()
        with pytest.raises(api.Refused, match=r"(?s)(within 0\.3 s|timed out).*Try: curl"):
            api.page(server, "/metrics", timeout_s=0.3)
        assert time.monotonic() - begun < 20


def test_a_page_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(api, "MOST_BYTES", 2**20)
    with answering({"/a": "x" * 2**20, "/b": "x" * (2**20 + 1)}) as (address, _):
        server = Server(f"{address}/v1", "m")
        assert len(api.page(server, "/a")) == 2**20
        with pytest.raises(api.Refused, match=r"(?s)longer than 1 MB.*Check PHONELLM_BASE_URL"):
            api.page(server, "/b")


def test_what_is_no_name_of_a_model_is_left_out():
    entries = [{"id": None}, {"id": 3}, "x", None, {"name": "y"}, {"id": ""}, {"id": "good"}]
    with answering({"/v1/models": json.dumps({"data": entries})}) as (address, _):
        assert api.models(Server(f"{address}/v1", "m")) == ["good"]


@pytest.mark.parametrize(
    "text",
    ["<html>Welcome!</html>", "", "[]", '"x"', "null", "{}", '{"data": 3}', '{"data": [{"name": "m"}]}'],
)
def test_an_answer_that_is_no_list_of_models(connect, text):
    with answering({"/v1/models": text}) as (address, _):
        told = refusal(connect, address)
    assert "not an OpenAI-compatible server" in told
    assert "Check PHONELLM_BASE_URL" in told


def test_a_model_that_is_not_there(connect):
    with answering({"/v1/models": MODELS}) as (address, _):
        text = refusal(connect, address, model="third")
    assert "does not serve a model named 'third'. It serves: first, second." in text
    assert "Set PHONELLM_MODEL" in text


def test_no_model_yet(connect):
    with answering({"/v1/models": '{"data": []}'}) as (address, _):
        assert "serves no model yet" in refusal(connect, address)


# ---------------------------------------------------------------- metrics


def test_metrics_as_a_frame():
    with answering({"/metrics": METRICS}) as (address, _):
        frame = api.metrics(Server(f"{address}/v1", "m"))
    assert list(frame.columns) == ["name", "labels", "value", "kind"]
    running = frame[frame["name"] == "vllm:num_requests_running"].iloc[0]
    assert (running["labels"], running["value"], running["kind"]) == ({"model_name": "m"}, 2.0, "gauge")


def test_a_histogram_is_summed_over_engines():
    with answering({"/metrics": METRICS}) as (address, _):
        table = api.histogram(api.metrics(Server(f"{address}/v1", "m")), "vllm:time_to_first_token_seconds")
    assert table.to_dict("list") == {"le": [0.1, float("inf")], "count": [4.0, 5.0]}


def test_a_histogram_that_is_not_there():
    with answering({"/metrics": METRICS}) as (address, _):
        frame = api.metrics(Server(f"{address}/v1", "m"))
    with pytest.raises(CourseError, match="no histogram named nope"):
        api.histogram(frame, "nope")


@pytest.mark.parametrize(
    "text",
    [
        "<html>Welcome!</html>",
        "<!doctype html>\n<p class='a'>\n3 4\n</p>",
        '{"detail": "no"}',
        "no such page",
    ],
)
def test_a_page_that_is_no_metrics_is_refused(text):
    told = r"(?s)/metrics is not a Prometheus page.*Check PHONELLM"
    with answering({"/metrics": text}) as (address, _), pytest.raises(api.Refused, match=told) as caught:
        api.metrics(Server(f"{address}/v1", "m"))
    assert caught.value.status == 200


def test_buckets_without_an_edge_are_left_out():
    page = 'h_bucket{le="0.5"} 1\nh_bucket{le="x"} 2\nh_bucket 3\nh_bucket{le="+Inf"} 4\ni_bucket 1\n'
    with answering({"/metrics": page}) as (address, _):
        frame = api.metrics(Server(f"{address}/v1", "m"))
    assert api.histogram(frame, "h").to_dict("list") == {"le": [0.5, float("inf")], "count": [1.0, 4.0]}
    with pytest.raises(CourseError, match="no bucket with an edge"):
        api.histogram(frame, "i")


def test_an_empty_metrics_page_keeps_its_columns():
    with answering({"/metrics": ""}) as (address, _):
        assert list(api.metrics(Server(f"{address}/v1", "m")).columns) == ["name", "labels", "value", "kind"]


def test_the_real_engine_has_the_histogram_of_the_lessons(live_server):
    table = api.histogram(api.metrics(live_server), "vllm:time_to_first_token_seconds")
    assert table["le"].is_monotonic_increasing
    assert table["count"].is_monotonic_increasing
    assert api.models(live_server) == [live_server.model]
