"""Provider errors: which RefoldError an exception or response means, context overflow in every wording, and retries.

Exceptions are recognised by shape (status, body, class names), so no SDK is imported. Keys in quoted text are masked.
Most providers report a context overflow in a sentence; output limits and tokens per minute are not overflows, because
compressing would not help. Only RateLimited and Unavailable are retried, and all attempts share one time-out.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from refold.errors import ContextOverflow, ProviderError, RateLimited, RefoldError, Sentence, Unavailable
from refold.llm.port import TIMEOUT_S
from refold.llm.redact import redact_text
from refold.patterns import lazy_regex

MESSAGE_CHARS_MAX = 400
TEXTS_MAX = 64
_DEPTH_MAX = 6
_SECRET_CHARS_MIN = 6
_NEXT = {
    400: Sentence("the request is wrong, not the network"),
    401: Sentence("check the key"),
    402: Sentence("the account has no credit"),
    403: Sentence("the key may not use this model"),
    404: Sentence("check the model's name and the address"),
}
# Transient statuses. Some gateways answer 409 or 425 while they start.
_PASSING = frozenset({408, 409, 425, *range(500, 600)}) - {501, 505}
_TIMEOUTS = {"TimeoutError", "APITimeoutError", "TimeoutException", "ReadTimeout", "ConnectTimeout", "PoolTimeout"}
_CONNECTION = {"APIConnectionError", "ConnectionError", "TransportError", "NetworkError", "ProtocolError", "OSError"}
_GARBLED = {"APIResponseValidationError", "JSONDecodeError", "UnicodeDecodeError", "DecodingError"}
_NO_CREDIT = lazy_regex(r"insufficient_quota|exceeded your current quota|credit balance is too low|billing", re.I)
_WAIT = lazy_regex(r"rate_limit|rate limit|too many requests|throttl|resource_exhausted", re.I)
_BUSY = lazy_regex(r"overloaded|server_error|api_error|unavailable|internal error|timed? ?out", re.I)
_TRY_IN = lazy_regex(r"(?:try again in|retry(?: after| in)|retryDelay\W++)\s*+(\d++(?:\.\d++)?)\s*+(ms|s|m)\b", re.I)
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
    message = _clean(_find_message(body) or str(error), secrets)
    if names & _TIMEOUTS:
        return Unavailable("{source} did not answer in time", source=source)
    if names & _GARBLED:
        kind = type(error).__name__
        return Unavailable("{source} sent an answer that cannot be read ({kind}); try again", source=source, kind=kind)
    if names & _CONNECTION:
        cause = type(error.__cause__ or error).__name__
        return Unavailable(
            "the connection to {source} failed ({cause}); check the address, or try again", source=source, cause=cause
        )
    # The rest: an error inside a stream that began with 200, or an exception of a custom client.
    texts = " ".join([str(error), *_list_texts(body)])
    overflow = find_overflow(texts, source=source, message=message)
    if overflow is not None:
        return overflow
    if _WAIT.search(texts):
        return RateLimited(
            "{source} asks to wait: {message}", source=source, message=message, retry_after_s=_find_pause(texts, {})
        )
    if body is not None and _BUSY.search(texts):
        return Unavailable(
            "{source} failed: {message}", source=source, message=message, retry_after_s=_find_pause(texts, {})
        )
    kind = type(error).__name__
    return ProviderError("{source} failed ({kind}): {message}", source=source, kind=kind, message=message)


def classify_response(
    status: int,
    body: object,
    headers: Mapping[str, str] | None = None,
    *,
    source: str = "the provider",
    secrets: Sequence[str] = (),
    is_quoted: Callable[[str], bool] = lambda _: False,
) -> ProviderError:
    """Return the error of an HTTP response; ``is_quoted`` says whether the request itself held a text."""
    payload = _parse(body)
    texts = " ".join(_list_texts(payload))
    message = _clean(_find_message(payload) or texts, secrets)
    overflow = find_overflow(texts, status, is_quoted, source=source, message=message)
    if overflow is not None:
        overflow.tokens_max = overflow.tokens_max or _read_stated(payload)
        return overflow
    if status == 429 and _NO_CREDIT.search(texts):
        return ProviderError(
            "{source} refused (429): {message}; the account has no credit", source=source, message=message
        )
    pause = _find_pause(texts, headers or {})
    if status == 429:
        return RateLimited(
            "{source} asks to wait (429): {message}", source=source, message=message, retry_after_s=pause
        )
    if status in _PASSING:
        return Unavailable(
            "{source} is not available ({status}): {message}",
            source=source,
            status=status,
            message=message,
            retry_after_s=pause,
        )
    if status not in _NEXT:
        return ProviderError("{source} refused ({status}): {message}", source=source, status=status, message=message)
    return ProviderError(
        "{source} refused ({status}): {message}; {following}",
        source=source,
        status=status,
        message=message,
        following=_NEXT[status],
    )


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
    stated = find_retry_after(headers)
    if stated is not None:
        return stated
    written = _TRY_IN.search(texts)
    return float(written[1]) * _UNITS_S[written[2].lower()] if written else None


def _parse(body: object) -> object:
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", errors="replace")
    if isinstance(body, str):
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return body
    return body


def _find_message(body: object) -> str:
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


_N = r"(?P<limit>\d[\d,_]{0,15})"
CHARS_MAX = 20_000

# Tried in order; those that state the limit come first.
_WORDINGS = (
    rf"(?<![\d,]){_N} maximum context length",  # Mistral
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, xAI, Fireworks, SGLang
    rf"maximum (?:context|prompt|model|sequence) length\W{{0,3}}(?:is|of|:)?(?: only)? ?{_N}",
    rf"configured limit of {_N} tokens",  # OpenAI, newer models
    rf"prompt is too long:? [\d,]{{1,15}}(?: tokens)? > {_N}",  # Anthropic
    rf"exceed context limit: [\d,]{{1,15}} \+ [\d,]{{1,15}} > {_N}",  # Anthropic, with its output
    rf"token count.{{0,60}}exceeds the maximum number of tokens allowed \(?{_N}",  # Gemini
    rf"input token count is [\d,]{{1,15}} but model only supports up to {_N}",  # Vertex
    rf"input length should be \[\d+, ?{_N}\]",  # DashScope
    rf"exceeded model token limit:? {_N}",  # Moonshot
    rf"available context size \({_N} tokens",  # llama.cpp
    rf"context length (?:of|is) only {_N}",  # LM Studio, vLLM
    rf"longer than the (?:maximum model length|model's context length|context length)(?: of)?\W{{0,2}}{_N}",
    rf"while limit is {_N}",  # Cerebras
    rf"max_new_tokens.{{0,4}} must be <= {_N}",  # Together, text-generation-inference
    rf"inputs.{{0,4}} must have less than {_N} tokens",
    rf"prompt token count of [\d,]{{1,15}} exceeds the limit of {_N}",  # GitHub Copilot
    rf"too large for .{{1,80}} model\. max size: {_N} tokens",  # GitHub Models
    rf"max input tokens: {_N}",  # Bedrock
    rf"tokens in the prompt cannot exceed {_N}",  # Cohere
    rf"cannot exceed the total tokens limit {_N}",  # watsonx
    # Without a limit
    r"prompt is too long",
    r"input is too long",
    r"request exceeds the maximum size",
    r"exceeds? (?:the |your |this )?(?:model'?s? )?(?:maximum )?context (?:window|length|size|limit)",
    r"exceeds the available context size",
    r"context window exceeds limit",  # MiniMax
    r"context[_ ](?:length|window)[_ ]exceeded",
    r"greater than the context length",
    r"reduce the length of the (?:messages|prompt|input)",
    r"exceed_context_size_error|model_max_prompt_tokens_exceeded|tokens_limit_reached|request_too_large",
    r"exceed max message tokens",  # Volcengine
    r"too many (?:input )?tokens(?! per|, please wait)",
    r"string too long\. expected a string with maximum length",
    r"(?:prompt|输入|提示词|上下文|消息).{0,12}(?:超长|过长)",
    r"(?:超过|超出).{0,16}(?:上下文|最大).{0,6}(?:长度|限制|token)",
)
# The output limit counts towards the window: Anthropic; OpenAI, vLLM and the like.
_COUNTS_OUTPUT = lazy_regex(
    r"max_(?:completion_|output_)?tokens\W{0,4}(?:or \W?max_\w{1,20}\W? )?(?:exceed|is too large)"
    r"|\d in the (?:completion|output)\b",
    re.I,
)
_PATTERNS = tuple(lazy_regex(wording, re.I | re.S) for wording in _WORDINGS)
# A request over the tokens-per-minute limit can never pass; OpenAI and Groq answer 429 or 413.
_OVER_MINUTE = lazy_regex(rf"request too large for .{{1,200}}limit:? {_N},? requested", re.I | re.S)


def find_overflow(
    text: str,
    status: int = 400,
    is_quoted: Callable[[str], bool] = lambda _: False,
    *,
    source: str = "the provider",
    message: str = "",
) -> ContextOverflow | None:
    """Return the overflow that a text reports, or None; ``is_quoted`` says whether the request held a text."""

    def make(**found: Any) -> ContextOverflow:
        return ContextOverflow(
            "the request does not fit the window of {source}: {message}", source=source, message=message, **found
        )

    text = text[:CHARS_MAX]
    over_minute = _OVER_MINUTE.search(text)
    if over_minute:
        is_said = is_quoted(over_minute[0])
        return make(is_quoted=True) if is_said else make(tokens_max=_read_limit(over_minute), is_quota=True)
    if status in (401, 402, 403, 404, 429):
        return None
    otherwise = make() if status == 413 else None
    for pattern in _PATTERNS:
        found = pattern.search(text)
        if found is None:
            continue
        if is_quoted(found[0]):
            otherwise = make(is_quoted=True)
            continue
        return make(tokens_max=_read_limit(found), counts_output=bool(_COUNTS_OUTPUT.search(text)))
    return otherwise


def _read_limit(found: re.Match[str]) -> int | None:
    limit = found.groupdict().get("limit")
    return int(limit.replace(",", "").replace("_", "")) if limit and len(limit) < 16 else None


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits of one summary, as the settings check them. The pause doubles from ``delay_s`` up to ``delay_max_s``."""

    attempts_max: int = 3
    timeout_s: float = TIMEOUT_S
    delay_s: float = 0.5
    delay_max_s: float = 8.0


async def attempt(call: Callable[[], Awaitable[Result]], limits: RetryLimits, *, key: str = "") -> Result:
    """Await a call and retry it after transient errors; raise the last error with the number of attempts."""
    until = time.monotonic() + limits.timeout_s
    for number in range(1, limits.attempts_max + 1):
        try:
            return await _try_once(call, until, limits, key)
        except RefoldError as error:
            pause = choose_pause(error, number, limits.delay_s, limits.delay_max_s)
            if pause is None or number == limits.attempts_max or time.monotonic() + pause >= until:
                raise _add_attempts(error, number) from None
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _try_once(call: Callable[[], Awaitable[Result]], until: float, limits: RetryLimits, key: str) -> Result:
    clock = asyncio.timeout(max(0.0, until - time.monotonic()))
    try:
        async with clock:
            return await call()
    except Exception as error:  # noqa: BLE001 - a client may raise anything; classify sorts it
        if clock.expired():
            raise Unavailable(
                "no answer within {seconds:g} s; raise the time-out or ask for less", seconds=limits.timeout_s
            ) from None
        raise classify(error, secrets=(key,)) from None


def choose_pause(error: Exception, number: int, delay_s: float, delay_max_s: float) -> float | None:
    """Return the seconds to wait after a failed attempt, the first being 1; None if a retry cannot help.

    The pause doubles with each attempt and is at least what the provider asks for. Jitter only adds to it, so that
    clients which failed together do not return together.
    """
    if not isinstance(error, RateLimited | Unavailable):
        return None
    pause = min(delay_max_s, delay_s * 2.0 ** (number - 1)) * random.uniform(1.0, 1.25)
    return max(pause, error.retry_after_s or 0.0)


def _add_attempts(error: Exception, number: int) -> Exception:
    if number > 1 and isinstance(error, ProviderError) and error.args:
        counted = Sentence("{message} ({number} attempts)", message=error.args[0], number=number)
        error.args = (counted, *error.args[1:])
    return error
