"""Streamed answers: put together while they pass, so that the whole answer can be stored when the stream ends."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

from refold.formats.intake import to_plain
from refold.formats.streamed import BlockAnswer, ChatAnswer, ResponseAnswer, StreamedAnswer
from refold.manager.managed import ManagedSession


class StreamedReply:
    """The answer of one stream, whose events show the format; it is stored once."""

    def __init__(self) -> None:
        self._answer: StreamedAnswer | None = None
        self._is_stored = False

    def add(self, event: Any) -> None:
        """Add one event; unknown ones are ignored."""
        raw = event if isinstance(event, dict) else to_plain(event)
        if not isinstance(raw, dict):
            return
        self._answer = self._answer or _start_answer(raw)
        if self._answer is not None:
            self._answer.add(raw)

    def take(self, *, is_closed: bool = False) -> dict[str, Any] | None:
        """Return the arguments of ``session.commit`` as soon as the answer is whole, and only then.

        Many readers stop before the last event: once the stream ``is_closed``, an answer with a finish reason is whole.
        """
        answer = self._answer
        if answer is None or self._is_stored or not (answer.is_ended or (is_closed and answer.finish_reason)):
            return None
        self._is_stored = True
        return {
            "reply": answer.message,
            "usage": answer.usage or None,
            "finish_reason": answer.finish_reason or None,
        }


def _start_answer(event: dict[str, Any]) -> StreamedAnswer | None:
    """Return an empty answer of the format that an event belongs to; None if it may belong to any, as a ping does."""
    kind = str(event.get("type", ""))
    if "choices" in event:
        return ChatAnswer()
    if kind.startswith("response."):
        return ResponseAnswer()
    return BlockAnswer() if kind.startswith(("message_", "content_block_")) else None


def follow(stream: Iterator[Any], session: ManagedSession) -> Iterator[Any]:
    """Yield a stream's events; store the answer once it is complete, even if the stream is not read to its end."""
    reply = StreamedReply()
    try:
        for event in stream:
            reply.add(event)
            if whole := reply.take():
                session.commit(**whole)
            yield event
    finally:
        if whole := reply.take(is_closed=True):
            session.commit(**whole)


async def follow_async(stream: AsyncIterator[Any], session: ManagedSession) -> AsyncIterator[Any]:
    """The same as ``follow``, for async streams."""
    reply = StreamedReply()
    try:
        async for event in stream:
            reply.add(event)
            if whole := reply.take():
                await session.commit_async(**whole)
            yield event
    finally:
        if whole := reply.take(is_closed=True):
            await session.commit_async(**whole)


def store(answer: Any, session: ManagedSession) -> Any:
    """Store an answer and return it; a streamed one is stored when it ends, by the stream that is returned."""
    if hasattr(answer, "http_response"):  # A raw response of the providers' SDKs, which keeps what it parsed.
        store(answer.parse(), session)
    elif hasattr(answer, "_iterator"):  # A stream of the providers' SDKs, which applications know by its class.
        answer._iterator = follow(answer._iterator, session)
    elif hasattr(answer, "__next__"):
        return follow(answer, session)
    else:
        session.commit(answer)
    return answer


async def store_async(answer: Any, session: ManagedSession) -> Any:
    """The same as ``store``, for callers with an event loop."""
    if hasattr(answer, "http_response"):
        parsed = answer.parse()
        await store_async(await parsed if inspect.isawaitable(parsed) else parsed, session)
    elif hasattr(answer, "_iterator"):
        answer._iterator = follow_async(answer._iterator, session)
    elif hasattr(answer, "__anext__"):
        return follow_async(answer, session)
    else:
        await session.commit_async(answer)
    return answer
