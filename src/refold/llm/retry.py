"""Retries with exponential backoff for transient errors: RateLimited and Unavailable.

All attempts and pauses of one summary share one time-out, so a caller never waits longer than stated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from refold.errors import ConfigError, ProviderError, RateLimited, Unavailable
from refold.llm.errors import classify
from refold.llm.port import TIMEOUT_S

Result = TypeVar("Result")
ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one summary. The pause doubles from ``delay_s`` up to ``delay_max_s``."""

    attempts_max: int = 3
    timeout_s: float = TIMEOUT_S
    delay_s: float = 0.5
    delay_max_s: float = 8.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts_max <= ATTEMPTS_MAX:
            raise ConfigError(f"attempts_max is {self.attempts_max}; give 1 to {ATTEMPTS_MAX}")
        if not 0 < self.timeout_s <= 3_600:
            raise ConfigError(f"timeout_s is {self.timeout_s:g}; give seconds above 0, 3,600 at most")
        if self.delay_s < 0 or self.delay_max_s < self.delay_s:
            raise ConfigError("delay_s must be 0 or more, and delay_max_s no less than delay_s")


async def attempt(call: Callable[[], Awaitable[Result]], limits: Limits, *, key: str = "") -> Result:
    """Await a call and retry it after transient errors; raise the last error with the number of attempts."""
    until = time.monotonic() + limits.timeout_s
    for number in range(1, limits.attempts_max + 1):
        error = await _try_once(call, until, limits, key)
        if not isinstance(error, _Failed):
            return error
        failure = error.error
        pause = choose_pause(failure, number, limits.delay_s, limits.delay_max_s)
        if pause is None or number == limits.attempts_max or time.monotonic() + pause >= until:
            raise _tell_attempts(failure, number) from None
        await asyncio.sleep(pause)
    raise AssertionError("unreachable: the last attempt returns or raises")


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


async def _try_once(call: Callable[[], Awaitable[Result]], until: float, limits: Limits, key: str) -> Result | _Failed:
    left = max(0.0, until - time.monotonic())
    clock = asyncio.timeout(left)
    try:
        async with clock:
            return await call()
    except Exception as error:  # noqa: BLE001 - a client may raise anything; classify sorts it
        if clock.expired():
            return _Failed(Unavailable(f"no answer within {limits.timeout_s:g} s; raise the time-out or ask for less"))
        return _Failed(classify(error, secrets=(key,)))


def choose_pause(error: Exception, number: int, delay_s: float, delay_max_s: float) -> float | None:
    """Return the seconds to wait after a failed attempt, the first being 1; None if a retry cannot help.

    The pause doubles with each attempt and is at least what the provider asks for. Jitter only adds to it, so that
    clients which failed together do not return together.
    """
    if not isinstance(error, RateLimited | Unavailable):
        return None
    pause = min(delay_max_s, delay_s * 2.0 ** (number - 1)) * random.uniform(1.0, 1.25)
    return max(pause, error.retry_after_s or 0.0)


def _tell_attempts(error: Exception, number: int) -> Exception:
    if number > 1 and isinstance(error, ProviderError) and error.args:
        error.args = (f"{error.args[0]} ({number} attempts)", *error.args[1:])
    return error
