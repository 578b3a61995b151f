"""What goes upstream for a request: the bytes that came, or those bytes with other messages in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from refold.conversation.reason import NO_REASON, Reason
from refold.conversation.view import Item
from refold.server.identity import KnownSession
from refold.server.places import Places
from refold.server.reading import ReadRequest
from refold.server.storing import Ticket


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
