"""The way back to every original of a stored session: read from the ledger when asked for, never held in memory."""

from __future__ import annotations

from refold.conversation.handle import mark, read_handle
from refold.conversation.message import Message
from refold.conversation.view import Lens
from refold.errors import HandleUnknown
from refold.formats import make_format
from refold.ledger.ledger import SessionRow, StoredMessage
from refold.manager.keeper import Keeper
from refold.manager.session import parse_stored
from refold.prepared import Originals


class StoredOriginals(Originals):
    """Originals of one session, by handle."""

    def __init__(self, keeper: Keeper, session_id: str) -> None:
        super().__init__(())
        self._keeper = keeper
        self._session_id = session_id

    def find(self, handle: str) -> list[Message]:
        """Return the messages behind a handle: one, or all that a fold stands for."""
        row = self._keeper.need_row(self._session_id)
        return _parse(row, find_stored(self._keeper, row, handle), self._keeper)


def find_stored(keeper: Keeper, row: SessionRow, handle: str) -> list[StoredMessage]:
    """Return the stored messages behind a handle, each content once; HandleUnknown if there are none."""
    name = read_handle(handle)
    if name is None:
        raise HandleUnknown(f"{handle[:80]!r} is not a handle; handles look like {mark('m:4f2a91c3')}")
    if name.startswith("f:"):
        folds = {
            one.edit.fold.handle: one.edit.covers
            for one in keeper.ledger.read_edits(row.id, active_only=False)
            if one.edit.fold is not None and one.edit.fold.handle.startswith(name)
        }
        found = keeper.ledger.read_messages(row.id, next(iter(folds.values()))) if len(folds) == 1 else []
    else:
        same = keeper.ledger.find_messages(row.id, name.removeprefix("m:").partition(".")[0])
        found = list({stored.digest: stored for stored in same}.values())
    if not found:
        raise HandleUnknown(f"nothing in this session has the handle {mark(name)}; asking again will not help")
    return found


def _parse(row: SessionRow, stored: list[StoredMessage], keeper: Keeper) -> list[Message]:
    counter = keeper.find_counter(row, row.model)
    lens = Lens(make_format(row.wire or "openai-chat"), counter.count_parts, counter.count_text)
    return [parse_stored(one, row, lens) for one in stored]
