"""A server that refuses what goes beyond the OpenAI API, and a client that keeps the key to itself."""

from __future__ import annotations

import dataclasses
import json

import openai
import pytest

from helpers import engine, extras, latency, sdk, streaming
from tests import fakeserver

KEY = "sk-very-secret-key-0123456789"
REPLY = [
    (0.0, fakeserver.ROLE),
    (0.0, fakeserver.chunk(content="Yes")),
    (0.0, fakeserver.chunk(finish_reason="stop")),
    (0.0, fakeserver.DONE),
]


def strict(body: dict) -> fakeserver.Script:
    """Answers 400 to a field that the OpenAI API does not have."""
    unknown = [name for name in body if name in extras.FIELDS]
    if unknown:
        text = json.dumps({"error": {"message": f"Unrecognized request argument: {unknown[0]}"}})
        return fakeserver.Script([(0.0, text.encode())], status=400, content_type="application/json")
    return fakeserver.Script(REPLY)


def test_a_server_that_refuses_extra_fields_is_found_out_and_gets_none():
    with fakeserver.serve(strict) as running:
        server = running.as_server()
        assert extras.refused(server)
        request = streaming.chat_request("Hello", thinking_token_budget=5)
        assert latency.measure(streaming.ask(server, request)).error is not None
        plain = dataclasses.replace(server, plain=True)
        assert latency.measure(streaming.ask(plain, request)).answer == "Yes"
        stream = sdk.client(plain).chat.completions.create(**sdk.arguments(plain, request))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Yes"


def test_a_server_that_takes_them_gets_them():
    with fakeserver.serve(REPLY) as running:
        server = running.as_server()
        assert not extras.refused(server)
        streaming.ask(server, "Hello")
        assert running.bodies[-1]["chat_template_kwargs"] == {"enable_thinking": False}


def test_connect_notes_it(monkeypatch):
    monkeypatch.setattr(engine.api, "choose_model", lambda server, wanted: "m")
    monkeypatch.setenv("PHONELLM_BASE_URL", "http://127.0.0.1:9/v1")
    for answer in (True, False):
        monkeypatch.setattr(engine.extras, "refused", lambda server, answer=answer: answer)
        assert engine.connect(lambda line: None).plain is answer


def test_a_key_that_the_server_quotes_is_not_in_the_clients_error():
    text = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    script = fakeserver.Script([(0.0, text)], status=401, content_type="application/json")
    with fakeserver.serve(script) as running:
        server = running.as_server(api_key=KEY)
        with pytest.raises(openai.AuthenticationError) as caught:
            sdk.client(server).chat.completions.create(
                **sdk.arguments(server, streaming.chat_request("Hello"))
            )
    assert KEY not in str(caught.value)
    assert "[key]" in str(caught.value)


def test_a_proxy_for_the_web_does_not_catch_what_stays_here(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with fakeserver.serve(REPLY) as running:
        server = running.as_server()
        stream = sdk.client(server).chat.completions.create(
            **sdk.arguments(server, streaming.chat_request("Hi"))
        )
        assert len(list(stream)) == 3
