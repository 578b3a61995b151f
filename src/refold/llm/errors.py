"""Maps any error of a provider or its SDK to ours: overflow, rate limit, unavailable, or permanent.

Exceptions are recognised by shape (status, body, class names), so no SDK is imported. Messages contain no keys: text
that a provider quotes back is masked.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from refold.errors import ContextOverflow, ProviderError, RateLimited, RefoldError, Unavailable
from refold.llm.overflow import Overflow, find_overflow
from refold.llm.redact import redact_text

MESSAGE_CHARS_MAX = 400
TEXTS_MAX = 64
_DEPTH_MAX = 6
_SECRET_CHARS_MIN = 6
_NEXT = {
    400: "the request is wrong, not the network",
    401: "check the key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "check the model's name and the address",
}
# Transient statuses. Some gateways answer 409 or 425 while they start.
_PASSING = frozenset({408, 409, 425, *range(500, 600)}) - {501, 505}
_TIMEOUTS = {"TimeoutError", "APITimeoutError", "TimeoutException", "ReadTimeout", "ConnectTimeout", "PoolTimeout"}
_CONNECTION = {"APIConnectionError", "ConnectionError", "TransportError", "NetworkError", "ProtocolError", "OSError"}
_GARBLED = {"APIResponseValidationError", "JSONDecodeError", "UnicodeDecodeError", "DecodingError"}
_NO_CREDIT = re.compile(r"insufficient_quota|exceeded your current quota|credit balance is too low|billing", re.I)
_WAIT = re.compile(r"rate_limit|rate limit|too many requests|throttl|resource_exhausted", re.I)
_BUSY = re.compile(r"overloaded|server_error|api_error|unavailable|internal error|timed? ?out", re.I)
_TRY_IN = re.compile(r"(?:try again in|retry(?: after| in)|retryDelay\W++)\s*+(\d++(?:\.\d++)?)\s*+(ms|s|m)\b", re.I)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0}


def classify(error: BaseException, *, source: str = "the provider", secrets: Sequence[str] = ()) -> RefoldError:
    """Return the matching RefoldError; a RefoldError is returned unchanged."""
    if isinstance(error, RefoldError):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    body = getattr(error, "body", None)
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    if isinstance(status, int) and status >= 400:
        headers = getattr(response, "headers", None) or {}
        return classify_response(status, body or str(error), headers, source=source, secrets=secrets)
    told = _clean(_tell(body) or str(error), secrets)
    if names & _TIMEOUTS:
        return Unavailable(f"{source} did not answer in time")
    if names & _GARBLED:
        return Unavailable(f"{source} sent an answer that cannot be read ({type(error).__name__}); try again")
    if names & _CONNECTION:
        cause = type(error.__cause__ or error).__name__
        return Unavailable(f"the connection to {source} failed ({cause}); check the address, or try again")
    # The rest: an error inside a stream that began with 200, or an exception of a custom client.
    texts = " ".join([str(error), *_list_texts(body)])
    overflow = find_overflow(texts)
    if overflow is not None:
        return _tell_overflow(source, told, overflow)
    if _WAIT.search(texts):
        return RateLimited(f"{source} asks to wait: {told}", retry_after_s=_find_pause(texts, {}))
    if body is not None and _BUSY.search(texts):
        return Unavailable(f"{source} failed: {told}", retry_after_s=_find_pause(texts, {}))
    return ProviderError(f"{source} failed ({type(error).__name__}): {told}")


def classify_response(
    status: int,
    body: object,
    headers: Mapping[str, str] | None = None,
    *,
    source: str = "the provider",
    secrets: Sequence[str] = (),
    is_quoted: Callable[[str], bool] = lambda _: False,
) -> ProviderError:
    """Return the error for an HTTP response; ``body`` may be parsed or raw.

    ``is_quoted`` checks whether the request contained a text: a limit that it stated itself is ignored.
    """
    payload = _parse(body)
    texts = " ".join(_list_texts(payload))
    told = _clean(_tell(payload) or texts, secrets)
    overflow = find_overflow(texts, status, is_quoted)
    if overflow is not None or status == 413:
        found = overflow or Overflow()
        return _tell_overflow(source, told, replace(found, tokens_max=found.tokens_max or _read_stated(payload)))
    if status == 429 and _NO_CREDIT.search(texts):
        return ProviderError(f"{source} refused (429): {told}; the account has no credit")
    pause = _find_pause(texts, headers or {})
    if status == 429:
        return RateLimited(f"{source} asks to wait (429): {told}", retry_after_s=pause)
    if status in _PASSING:
        return Unavailable(f"{source} is not available ({status}): {told}", retry_after_s=pause)
    following = f"; {_NEXT[status]}" if status in _NEXT else ""
    return ProviderError(f"{source} refused ({status}): {told}{following}")


def show_url(url: str) -> str:
    """Return a URL without user, password and query."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(unreadable address)"
    return f"{parts.scheme}://{host}{port}{parts.path}" if host else "(no address)"


def find_retry_after(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Return the Retry-After of a response in seconds (from milliseconds, seconds or a date); None if absent."""
    found = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    milliseconds = _read_number(found.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1_000
    text = found.get("retry-after", "")
    seconds = _read_number(text)
    if seconds is not None or not text:
        return seconds
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, at - (time.time() if now_s is None else now_s))


def _read_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _find_pause(texts: str, headers: Mapping[str, str]) -> float | None:
    told = find_retry_after(headers)
    if told is not None:
        return told
    written = _TRY_IN.search(texts)
    return float(written[1]) * _UNITS_S[written[2].lower()] if written else None


def _tell_overflow(source: str, told: str, overflow: Overflow) -> ContextOverflow:
    return ContextOverflow(
        f"the request does not fit the window of {source}: {told}",
        tokens_max=overflow.tokens_max,
        counts_output=overflow.counts_output,
        is_quoted=overflow.is_quoted,
    )


def _parse(body: object) -> object:
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", errors="replace")
    if isinstance(body, str):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def _tell(body: object) -> str:
    """Return the human-readable message, wherever the provider put it."""
    for _ in range(_DEPTH_MAX):
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, Mapping):
            break
        inner = next((body[key] for key in ("error", "message", "detail", "msg", "error_msg") if body.get(key)), None)
        body = inner
    return body if isinstance(body, str) else ""


def _list_texts(body: object, depth: int = 0) -> Iterator[str]:
    """Yield every string in a body, codes and nested errors included."""
    if isinstance(body, str):
        yield body
    elif depth < _DEPTH_MAX and isinstance(body, Mapping):
        for value in list(body.values())[:TEXTS_MAX]:
            yield from _list_texts(value, depth + 1)
    elif depth < _DEPTH_MAX and isinstance(body, list):
        for value in body[:TEXTS_MAX]:
            yield from _list_texts(value, depth + 1)


def _read_stated(body: object) -> int | None:
    """Return the window from llama.cpp's ``n_ctx`` field."""
    error = body.get("error") if isinstance(body, Mapping) else None
    stated = error.get("n_ctx") if isinstance(error, Mapping) else None
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else None


def _clean(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SECRET_CHARS_MIN:
            text = text.replace(secret, "[key]")
    text = " ".join(redact_text(text[: MESSAGE_CHARS_MAX * 4]).split())
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}…"
