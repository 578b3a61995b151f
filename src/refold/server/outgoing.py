"""What goes upstream for a request: the bytes that came, or those bytes with other messages in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from refold.conversation import because
from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.manager.write_behind import Ticket
from refold.server.identity import KnownSession
from refold.server.places import Places
from refold.server.reading import ReadRequest


@dataclass(slots=True)
class Outgoing:
    """What goes upstream for a request. ``session`` is None for one that passes through.

    ``is_over``: it is the smallest there is and still over the budget. ``output``: the room for the answer that the
    client asked for, and what it was lowered to.
    """

    body: bytes = field(repr=False)
    reason: Reason = NO_REASON
    session: KnownSession | None = None
    request: ReadRequest | None = field(default=None, repr=False)
    generation: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    edits: int = 0
    seconds: float = 0.0
    is_failed_open: bool = False
    is_over: bool = False
    output: tuple[int, int] | None = None
    ticket: Ticket | None = field(default=None, repr=False)

    def own_headers(self) -> list[tuple[str, object]]:
        """Return what the answer's headers say of it, without their prefix."""
        headers: list[tuple[str, object]] = []
        if self.session is not None:
            headers.append(("session", self.session.name))
        if self.tokens_after:
            headers.append(("tokens", f"{self.tokens_before}->{self.tokens_after}"))
            headers.append(("edits", str(self.edits)))
        if self.output is not None:
            headers.append(("max-tokens", f"{self.output[0]}->{self.output[1]}"))
        headers.append(("reason", self.reason.to_header()))
        return headers


def find_pieces(items: Sequence[Item], request: ReadRequest) -> list[int | object] | None:
    """Return a view as places in the client's own request and as objects that compression made; None if it is not
    plain which of the client's messages an item is."""
    digests = (*request.lead_digests, *request.digests)
    pieces: list[int | object] = []
    at = 0
    for item in items:
        if item.edits:
            pieces.append(item.raw)
            continue
        while at < len(digests) and digests[at] != item.message.digest:
            at += 1
        if at == len(digests):
            return None
        pieces.append(at)
        at += 1
    return pieces


def splice_body(places: Places, items: Sequence[Item], request: ReadRequest) -> bytes | None:
    """Return the client's bytes with a view in the place of the messages; None if that cannot be done."""
    if len(places.spans) != request.count:
        return None
    pieces = find_pieces(items, request)
    if pieces is None or any(isinstance(piece, int) and piece >= len(places.spans) for piece in pieces):
        return None
    return places.write(pieces)


@dataclass(frozen=True, slots=True)
class Ready:
    """A session as it goes upstream. ``reason`` is set if a compression was just made.

    ``items`` is its view if anything in it is edited, ``original_tokens`` what the request would have without edits.
    """

    tokens: int
    messages: int
    edits: int = 0
    reason: Reason = NO_REASON
    items: Sequence[Item] = field(default=(), repr=False)
    original_tokens: int = 0
    has_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Spliced:
    """Where a request's messages are, and its bytes with the view in them if the view differs."""

    places: Places | None = field(repr=False)
    written: bytes | None = field(default=None, repr=False)


def make_outgoing(
    session: KnownSession, request: ReadRequest, ready: Ready, body: bytes, written: bytes | None
) -> Outgoing:
    """Return what goes upstream for a session that is ready; ``written`` if that is not the client's ``body``."""
    session.synced = request.digests
    return Outgoing(
        body if written is None else written,
        ready.reason or (because.SENT_UNCHANGED() if written is None else because.SENT_KEPT()),
        session,
        request,
        session.generation,
        tokens_before=ready.tokens if written is None else max(ready.tokens, ready.original_tokens),
        tokens_after=ready.tokens,
        edits=ready.edits,
    )
