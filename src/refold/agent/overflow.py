"""What an agent does when a provider says that a request is too long.

It compresses without asking any model, and retries with a context that differs from the refused one. If the request
should have fitted, the provider's window is smaller than announced: the session's window is lowered for good
(``manager.set_window``), and an event reports it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from refold.budget import Budget
from refold.conversation import because
from refold.conversation.reason import Reason
from refold.errors import ContextOverflow

WINDOW_MIN = 256
# A request this far below the limit that we knew was refused because the limit is another one.
_CLEARLY_BELOW = 0.85
_STEP_DOWN = 0.75


@dataclass(frozen=True, slots=True)
class Lowered:
    """A window that turned out smaller."""

    before: int
    after: int
    reason: Reason


def digest_messages(messages: Sequence[object]) -> bytes:
    """Return what tells two requests of one session apart."""
    return hashlib.blake2b(orjson.dumps(messages), digest_size=16).digest()


def judge_window(error: ContextOverflow, tokens: int, budget: Budget) -> Lowered | None:
    """Return the window that a refusal shows, if it is smaller than what we took it for."""
    told = error.tokens_max
    if told is not None and WINDOW_MIN <= told < budget.window:
        return Lowered(budget.window, told, because.WINDOW_STATED(tokens=told))
    if told is None and tokens < _CLEARLY_BELOW * budget.hard:
        after = max(WINDOW_MIN, int(tokens * 0.9))
        return Lowered(budget.window, after, because.WINDOW_REJECTED(tokens=tokens))
    return None


def step_down(tokens: int, budget: Budget) -> Lowered:
    """Return a window below what was refused, for when nothing else changes the request."""
    after = max(WINDOW_MIN, int(tokens * _STEP_DOWN))
    return Lowered(budget.window, min(after, budget.window), because.WINDOW_REJECTED(tokens=tokens))
