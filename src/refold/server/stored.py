"""Preparing from what the ledger has: only what is new is added, and the view goes into the client's own bytes.

These functions block; the gateway runs them in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from refold.manager import ContextCompressionManager
from refold.manager.session import FORGOTTEN
from refold.prepared import PreparedContext
from refold.server.identity import KnownSession
from refold.server.outgoing import splice_body
from refold.server.places import Places
from refold.server.reading import ReadRequest
from refold.server.reporting import run_all


@dataclass(frozen=True, slots=True)
class Spliced:
    """A request with a view in it, and the tokens of the original messages."""

    body: bytes = field(repr=False)
    tokens: int


def append_new(
    session: KnownSession, request: ReadRequest, manager: ContextCompressionManager, due: list[Callable[[], None]]
) -> None:
    """Store what is due, then what a request brings that is new."""
    run_all(due)
    due.clear()
    if request.messages:
        manager.append(session.id, request.messages, format=request.wire.name)


def prepare_stored(
    session: KnownSession, request: ReadRequest, manager: ContextCompressionManager, due: list[Callable[[], None]]
) -> PreparedContext:
    """Add what is new and prepare, in one go: a change of threads costs more than either."""
    append_new(session, request, manager, due)
    return manager.prepare_context_sync(session.id, **describe_stored(request))


def describe_stored(request: ReadRequest) -> dict[str, Any]:
    """Return a request as the manager takes it when all messages are in the ledger."""
    return {
        "system_prompt": "" if request.system is None else request.system,
        "tools": request.tools,
        "model": request.model or None,
        "format": request.wire.name,
    }


def splice_view(
    session: KnownSession,
    request: ReadRequest,
    manager: ContextCompressionManager,
    prepared: PreparedContext,
    places: Places,
) -> Spliced | None:
    """Return the client's bytes with the view in them; None if it is not plain which message is which."""
    row = manager.ledger.read_session(session.id)
    items = manager.read_view(session.id)
    is_same = len(items) == len(prepared.messages) and all(
        item.raw is raw for item, raw in zip(items, prepared.messages, strict=True)
    )
    # What was forgotten must not come back from the bytes of a client that still has it.
    if row is None or FORGOTTEN in row.settings or not is_same:
        return None
    written = splice_body(places, items, request)
    return None if written is None else Spliced(written, row.tokens)
