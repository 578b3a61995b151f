"""The way back to every original of a stored session: read from the ledger when asked for, never held in memory."""

from __future__ import annotations

from refold.conversation.handle import read_handle
from refold.conversation.message import Message
from refold.manager.keeper import Keeper
from refold.manager.session import parse_stored
from refold.prepared import Originals
from refold.recall.expand import find_handle


class StoredOriginals(Originals):
    """Originals of one session, by handle."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        super().__init__(())
        self._keeper = keeper
        self._session_id = session_id

    def find(self, handle: str) -> list[Message]:
        """Return the messages behind a handle: each content once, or all that a fold stands for."""
        row = self._keeper.need_row(self._session_id)
        lens = self._keeper.make_lens(row)
        found = find_handle(self._keeper.ledger, row, handle)
        if not (read_handle(handle) or "").startswith("f:"):
            found = list({stored.digest: stored for stored in found}.values())
        return [parse_stored(stored, row, lens) for stored in found]
