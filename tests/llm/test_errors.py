"""Errors, sorted by who must act: every provider's words, every client's exceptions."""

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from refold.errors import ConfigError, ContextOverflow, ProviderError, RateLimited, Unavailable
from refold.llm.errors import classify, classify_response, find_overflow, find_retry_after, show_url

# What providers answer to a request that does not fit, one on each line, with the limit that the words state, if any.
# The others only sound alike: compressing would not help.
ANSWERS = list(map(json.loads, Path(__file__).with_name("overflows.jsonl").read_text("utf-8").splitlines()))
OVERFLOWS = [
    pytest.param(*map(row.get, ("status", "body", "limit")), id=row["who"]) for row in ANSWERS if "limit" in row
]
OTHERS = [pytest.param(row["status"], row["body"], id=row["who"]) for row in ANSWERS if "limit" not in row]


@pytest.mark.parametrize(("status", "body", "limit"), OVERFLOWS)
def test_an_overflow_is_known_in_every_providers_words(status: int, body: Any, limit: int | None) -> None:
    for form in (body, json.dumps(body), json.dumps(body).encode()):
        error = classify_response(status, form)
        assert isinstance(error, ContextOverflow), error
        assert error.tokens_max == limit


@pytest.mark.parametrize(("status", "body"), OTHERS)
def test_an_error_that_only_sounds_like_an_overflow_is_not_one(status: int, body: Any) -> None:
    assert not isinstance(classify_response(status, body), ContextOverflow)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ProviderError),
        (401, ProviderError),
        (402, ProviderError),
        (403, ProviderError),
        (404, ProviderError),
        (408, Unavailable),
        (422, ProviderError),
        (429, RateLimited),
        (500, Unavailable),
        (501, ProviderError),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (529, Unavailable),
    ],
)
def test_a_status_says_whether_trying_again_may_help(status: int, kind: type[Exception]) -> None:
    assert type(classify_response(status, "no")) is kind


def test_nobody_waits_for_an_empty_account() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    error = classify_response(429, body)
    assert type(error) is ProviderError
    assert "no credit" in str(error)


def test_retry_after_is_read_as_seconds_as_a_date_and_as_milliseconds() -> None:
    now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert find_retry_after({"Retry-After": "2.5"}) == 2.5
    assert find_retry_after({"retry-after": date}, now.timestamp()) == 90.0
    assert find_retry_after({"retry-after": date}, now.timestamp() + 1_000) == 0.0
    assert find_retry_after({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    for nonsense in ("", "soon", "-1", "nan", "inf", "9" * 400 + "x", "Mon, 99 Foo 2026"):
        assert find_retry_after({"retry-after": nonsense}) is None


def test_a_pause_that_is_only_written_in_the_message_is_found() -> None:
    told = classify_response(429, {"error": {"message": "Rate limit reached. Please try again in 1.5s."}})
    assert isinstance(told, RateLimited)
    assert told.retry_after_s == 1.5
    gemini = classify_response(
        429, {"error": {"message": "quota", "details": [{"retryDelay": "x"}, "retryDelay: 34s"]}}
    )
    assert isinstance(gemini, RateLimited)
    assert gemini.retry_after_s == 34.0


def test_no_key_comes_out_in_a_message() -> None:
    key = "plainkey" + "-without-any-known-shape"
    other = "sk-" + "proj-" + "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8"
    body = {"error": {"message": f"Incorrect API key provided: {key}. You also sent {other}."}}
    error = classify_response(401, body, source="m at http://x", secrets=(key,))
    assert key not in str(error)
    assert other not in str(error)
    assert "check the key" in str(error)


def test_an_address_is_shown_without_what_may_be_secret_in_it() -> None:
    assert show_url("https://user:pass@host.example:8443/v1?key=abc#frag") == "https://host.example:8443/v1"
    for odd in ("", "host", "http://", "http://[::1", "https://host:port/"):
        assert show_url(odd).startswith("(")


class OwnClientTimeout(TimeoutError): ...


class OwnClientError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("my client says no")
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), Unavailable),
        (OwnClientTimeout("x"), Unavailable),
        (ConnectionResetError("reset"), Unavailable),
        (BrokenPipeError(), Unavailable),
        (json.JSONDecodeError("bad", "{", 1), Unavailable),
        (OwnClientError(503), Unavailable),
        (OwnClientError(429), RateLimited),
        (OwnClientError(401), ProviderError),
        (ValueError("prompt is too long: 9 tokens > 8 maximum"), ContextOverflow),
        (RuntimeError("boom"), ProviderError),
        (KeyError("content"), ProviderError),
    ],
)
def test_exceptions_of_any_client_are_sorted_by_their_shape(error: Exception, kind: type[Exception]) -> None:
    assert type(classify(error)) is kind


def test_our_own_errors_come_back_as_they_are() -> None:
    ours = ConfigError("x")
    assert classify(ours) is ours


def test_hostile_bodies_are_sorted_quickly_and_briefly() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"error": [deep]}
    bodies = [
        deep,
        {"error": {"message": "maximum context length is " + "9" * 1_000_000}},
        "prompt is too long: " + "1," * 500_000,
        {"error": {"message": "Request too large for " * 50_000}},
        {"error": {"message": ["not", "a", "string"], "code": None}},
        {"error": None, "message": 7},
        b"\xff\xfe\x00",
        None,
        [],
        42,
    ]
    start = time.thread_time()
    for body in bodies:
        assert len(str(classify_response(400, body))) < 1_000
    assert time.thread_time() - start < 5  # An endless search would take minutes.


def test_a_limit_of_absurd_length_is_ignored() -> None:
    found = find_overflow("maximum context length is " + "9" * 40)
    assert found is not None
    assert found.tokens_max is None


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429])
def test_a_status_that_says_something_else_is_not_an_overflow_whatever_the_words(status: int) -> None:
    body = {"error": {"message": "This model's maximum context length is 8192 tokens; your plan does not include it."}}
    assert not isinstance(classify_response(status, body), ContextOverflow)
    assert isinstance(classify_response(400, body), ContextOverflow)
