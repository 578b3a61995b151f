"""A recorded conversation, stored as if it had been sent through refold request by request, at its own times.

It has folds, a timeline and a bill then, whichever face imported it. No model is called and nothing leaves the machine;
we count the usage ourselves. A recording that has grown continues where it ended, and one that was changed is played
anew.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from refold.budget import Tariff
from refold.errors import FormatError, RefoldError
from refold.formats import digest_message
from refold.ledger.codec import dump_json
from refold.manager.manager import ContextCompressionManager
from refold.manager.session_state import TITLE, SessionState
from refold.manager.status import describe_origin
from refold.prepared import PreparedContext
from refold.readers.session import Session
from refold.tokens import model_info

STEP_S = 20.0
HOUR_S = 3_600.0
MODEL_CHARS_MAX = 200
# The setting of a session that was played from a recording: only such a session is replaced by a newer recording.
RECORDED = "recorded"


def play_recorded(manager: ContextCompressionManager, session_id: str, session: Session) -> None:
    """Play a recording into the manager's ledger; of one that is stored already, only what was added since."""
    if not session.messages:
        raise FormatError("the conversation has no messages")
    ledger = manager.ledger
    messages: list[Any] = list(session.messages)
    digests = [digest_message(message) for message in messages]
    row = ledger.read_session(session_id)
    known = list(ledger.read_path(session_id).digests) if row is not None else []
    if known and digests[: len(known)] != known:
        if row is None or not row.settings.get(RECORDED):
            raise FormatError(
                "there is a session {name!r} already, and it is another conversation; delete it first", name=session_id
            )
        manager.delete_session(session_id)  # Its name stays, if somebody gave it one.
        known = []
    if len(known) == len(digests):
        return
    # No model is called, and the clock is that of the recording.
    config = manager.config.replace(summariser="extract", background=False)
    clock = _Recorded(session)
    player = ContextCompressionManager(config, manager.workspace_path, ledger=ledger, clock=clock)
    try:
        # The model first: messages are counted by its tokenizer as they arrive.
        ledger.open_session(session_id, clock())
        ledger.update_session(session_id, {"model": session.model[:MODEL_CHARS_MAX]}, clock())
        _play(player, session_id, session, clock, start=len(known))
    except BaseException:
        if not known:
            with suppress(RefoldError):
                player.delete_session(session_id)
        raise
    title = SessionState.read(row.settings).title if row is not None else ""
    origin = {**describe_origin(session), RECORDED: True, **({TITLE: title} if title else {})}
    ledger.update_session(session_id, {"settings": origin}, clock())


def _play(
    manager: ContextCompressionManager, session_id: str, session: Session, clock: _Recorded, *, start: int
) -> None:
    messages = list(session.messages)
    info = model_info(session.model or None)
    tariff = Tariff.of_model(info)
    sent, sent_at = 0, 0.0
    answers = [at for at, one in enumerate(messages) if at >= max(1, start) and _is_answer(one)]
    for at in [*answers, len(messages)]:
        clock.at = at - 1
        if at > start:
            manager.append(session_id, messages[start:at], format=session.format)
        start = at
        if at == len(messages) or _is_answer(messages[at - 1]):
            continue  # The same answer continues: one request produced both messages.
        prepared = manager.prepare_context_sync(
            session_id, system_prompt=session.system or "", tools=session.tools, model=session.model or None
        )
        kept = 0 if is_changed(prepared) else min(sent, prepared.total_tokens)
        cached = tariff.cached_tokens(kept, max(0.0, clock() - sent_at))
        usage = make_usage(prepared, cached, messages[at], is_written=bool(info.cache.breakpoints))
        manager.observe_usage(session_id, usage)
        sent, sent_at = prepared.total_tokens, clock()


def _is_answer(message: Any) -> bool:
    """Return whether a message was written by the model, in any wire format."""
    if not isinstance(message, dict):
        return False
    return message.get("role") == "assistant" or message.get("type") in ("function_call", "reasoning")


def is_changed(prepared: PreparedContext) -> bool:
    """Return whether a compression ran for this request, which changes the cached prefix."""
    return prepared.report is not None and bool(prepared.report.stages)


def make_usage(prepared: PreparedContext, cached: int, answer: Any, *, is_written: bool = False) -> dict[str, Any]:
    """Return the usage that a provider would report, by our own count."""
    return {
        "prompt_tokens": prepared.total_tokens,
        "completion_tokens": len(dump_json(answer)) // 4,
        "prompt_tokens_details": {"cached_tokens": cached},
        "cache_creation_input_tokens": prepared.total_tokens - cached if is_written else 0,
    }


class _Recorded:
    """The clock of a recording: the time of the current message; without times, evenly spaced until an hour ago."""

    def __init__(self, session: Session) -> None:
        count = len(session.messages)
        begin = time.time() - HOUR_S - STEP_S * count
        self._times = session.times if len(session.times) == count else [begin + STEP_S * at for at in range(count)]
        self._last = 0.0
        self.at = 0

    def __call__(self) -> float:
        # Two requests at the same time could not be distinguished.
        now = self._times[max(0, min(self.at, len(self._times) - 1))]
        self._last = max(now, self._last + 0.001)
        return self._last
