"""Small requests for JSON: what comes back, and that a key goes no further than the address it was given to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from refold.llm.http import request_json
from refold.server.beacon import ask_gateway
from refold.testing import ScriptedProvider

LIMITS = {"timeout_s": 5.0, "bytes_max": 10_000}


class Failing(BaseHTTPRequestHandler):
    """Answers with an error in the form that its path names."""

    def do_GET(self) -> None:
        self.send_response(500)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write({"/chunks": b"no size", "/deep": b"[" * 100_000}.get(self.path, b"<p>\xff"))

    def log_message(self, *_: object) -> None: ...


class Redirecting(BaseHTTPRequestHandler):
    """Sends every request on to another address, and keeps the paths that it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def redirecting() -> Iterator[tuple[str, list[str]]]:
    Redirecting.asked = []
    with serving(Redirecting) as url:
        yield url, Redirecting.asked


def test_an_answer_is_its_status_and_its_value() -> None:
    with ScriptedProvider(key="right") as provider:
        status, listed = request_json(f"{provider.url}/v1/models", headers={"x-api-key": "right"}, **LIMITS)
        assert (status, listed["data"][0]["id"]) == (200, "scripted-1")
        status, refused = request_json(f"{provider.url}/v1/models", headers={"x-api-key": "wrong"}, **LIMITS)
        assert (status, "API key" in str(refused)) == (401, True)
        body = {"model": "scripted-1", "input": ["one"]}
        status, embedded = request_json(f"{provider.url}/v1/embeddings", body, {"x-api-key": "right"}, **LIMITS)
        assert (status, len(embedded["data"])) == (200, 1)


def test_a_redirection_is_reported_and_never_followed(redirecting: tuple[str, list[str]]) -> None:
    url, asked = redirecting
    assert request_json(f"{url}/first", headers={"authorization": "Bearer secret"}, **LIMITS) == (302, None)
    assert asked == ["/first"]


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ScriptedProvider() as provider:
        assert request_json(f"{provider.url}/v1/models", is_local=True, **LIMITS)[0] == 200
        with pytest.raises(OSError, match="refused"):
            request_json(f"{provider.url}/v1/models", **LIMITS)


@pytest.mark.parametrize(("address", "error"), [("http://127.0.0.1:9/", OSError), ("nowhere", ValueError)])
def test_no_answer_and_no_address_are_different_errors(address: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        request_json(address, **LIMITS)


def test_an_error_with_any_body_is_its_status() -> None:
    with serving(Failing) as url:
        assert request_json(f"{url}/page", **LIMITS) == (500, None)
        assert request_json(f"{url}/deep", **{**LIMITS, "bytes_max": 1_000_000}) == (500, None)
        assert ask_gateway(f"{url}/deep") == (500, {})


def test_an_error_that_breaks_off_is_no_answer() -> None:
    with serving(Failing) as url:
        with pytest.raises(OSError, match="IncompleteRead"):
            request_json(f"{url}/chunks", **LIMITS)
        assert ask_gateway(f"{url}/chunks") == (0, {})
