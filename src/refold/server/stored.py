"""Preparing from what the ledger has: only what is new is added, and the view goes into the client's own bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.ledger.records import SessionRow
from refold.manager import ContextCompressionManager
from refold.manager.append import Request
from refold.manager.prepare import Billed, WentOn
from refold.manager.session import FORGOTTEN
from refold.prepared import PreparedContext
from refold.server.identity import KnownSession
from refold.server.limits import Limits
from refold.server.outgoing import Outgoing, splice_body
from refold.server.places import Places
from refold.server.reading import ReadRequest
from refold.server.reporting import store_billed


@dataclass(frozen=True, slots=True)
class Ready:
    """A session as it goes upstream. ``reason`` tells of a compression that was just made."""

    tokens: int
    messages: int
    edits: int = 0
    reason: Reason = NO_REASON
    items: Sequence[Item] = field(default=(), repr=False)
    row: SessionRow | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Spliced:
    """Where a request's messages stand, and, if the view differs, its bytes with the tokens of the original."""

    places: Places | None = field(repr=False)
    written: tuple[bytes, int] | None = field(default=None, repr=False)


def describe_stored(request: ReadRequest, limits: Limits) -> dict[str, Any]:
    """Return a request as the manager takes it when all messages are in the ledger."""
    return {
        "system_prompt": "" if request.system is None else request.system,
        "tools": request.tools,
        "model": request.model or None,
        "format": request.wire.name,
        "window": limits.window,
        "reserve": limits.reserve,
    }


def go_on(
    manager: ContextCompressionManager,
    session: KnownSession,
    request: ReadRequest,
    limits: Limits,
    due: Sequence[Billed],
) -> WentOn | None:
    """Store what is due and what a request brings that is new, if that can be at once. Does not wait."""
    wanted = Request(
        session.id,
        request.messages,
        "" if request.system is None else request.system,
        request.tools,
        request.model or None,
        request.wire.name,
        limits.window,
        limits.reserve,
        (request.known, _find_last(request)),
    )
    return manager.go_on(wanted, due)


def append_new(
    manager: ContextCompressionManager, session: KnownSession, request: ReadRequest, due: list[Billed]
) -> None:
    """Store what is due, then what a request brings that is new. Blocks."""
    store_billed(manager, session.id, due)
    if request.messages:
        manager.append(session.id, request.messages, format=request.wire.name)


def read_ready(manager: ContextCompressionManager, session: KnownSession, prepared: PreparedContext) -> Ready | None:
    """Return what was prepared with the items of its view; None if the view is no longer that one. Blocks."""
    report = prepared.report
    if report is None:
        return None
    reason = report.reason if report.stages else NO_REASON
    if not prepared.edits:
        return Ready(prepared.total_tokens, report.messages_before, 0, reason)
    row, items = manager.ledger.read_session(session.id), manager.read_view(session.id)
    is_same = len(items) == len(prepared.messages) and all(
        item.raw is raw for item, raw in zip(items, prepared.messages, strict=True)
    )
    if not is_same:
        return None
    return Ready(prepared.total_tokens, report.messages_before, len(prepared.edits), reason, items, row)


def splice_view(ready: Ready, request: ReadRequest, places: Places) -> bytes | None:
    """Return the client's bytes with the view in them; None if it is not plain which message is which."""
    # What was forgotten must not come back from the bytes of a client that still has it.
    if ready.row is None or FORGOTTEN in ready.row.settings:
        return None
    return splice_body(places, ready.items, request)


def make_outgoing(
    session: KnownSession,
    request: ReadRequest,
    ready: Ready,
    body: bytes,
    written: tuple[bytes, int] | None,
    generation: int,
) -> Outgoing:
    """Return what goes upstream for a session that is ready; ``written`` if that is not what came."""
    session.synced = request.digests
    return Outgoing(
        body if written is None else written[0],
        ready.reason or (because.SENT_UNCHANGED() if written is None else because.SENT_KEPT()),
        session,
        request,
        generation,
        tokens_before=ready.tokens if written is None else max(ready.tokens, written[1]),
        tokens_after=ready.tokens,
        edits=ready.edits,
    )


def find_ready(went: WentOn | None) -> Ready | None:
    """Return a session that went on and may go upstream as it is."""
    if went is None or not went.is_ready:
        return None
    return Ready(went.tokens, went.messages, len(went.edits), NO_REASON, went.items if went.edits else (), went.row)


def _find_last(request: ReadRequest) -> str:
    """Return the digest of the last message that a request has in common with the one before."""
    at = request.known - request.lead - 1
    return request.digests[at] if at >= 0 else request.lead_digests[-1]
