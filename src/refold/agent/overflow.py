"""What an agent does when a provider says that a request is too long.

It compresses without asking any model, and tries again with something that is not what was refused. If the request
should have fitted, the provider's window is smaller than announced: it counts as that small from then on, in this
session also after a restart, and whoever listens is told.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from refold.budget import Budget
from refold.conversation import because
from refold.conversation.reason import Reason
from refold.errors import ContextOverflow
from refold.manager import ContextCompressionManager

SETTING = "agent_windows"
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


def lower_window(manager: ContextCompressionManager, session_id: str, model: str, lowered: Lowered) -> None:
    """Let the model's window count as this small, now and when the session is opened again."""
    set_window(manager, model, lowered.after)
    row = manager.ledger.read_session(session_id)
    known = row.settings.get(SETTING) if row is not None else None
    windows = {**(known if isinstance(known, Mapping) else {}), model: lowered.after}
    manager.ledger.update_session(session_id, {"settings": {SETTING: windows}}, time.time())


def restore_window(manager: ContextCompressionManager, session_id: str, model: str) -> int | None:
    """Take over what an earlier run learned of a model's window; return it if there is something."""
    row = manager.ledger.read_session(session_id)
    known = row.settings.get(SETTING) if row is not None else None
    window = known.get(model) if isinstance(known, Mapping) else None
    if isinstance(window, bool) or not isinstance(window, int) or window < WINDOW_MIN:
        return None
    set_window(manager, model, window)
    return window


def set_window(manager: ContextCompressionManager, model: str, window: int) -> None:
    """Set the window of one model, those of others as they are."""
    known = manager.config.window
    others = dict(known) if isinstance(known, dict) else {} if known is None else {"*": known}
    if others.get(model) != window:
        manager.configure(window={**others, model: window})
