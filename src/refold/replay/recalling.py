"""Would recall have found it? A value that left the view is asked for, by itself, among all that was said before.

The search is the product's own, over a ledger of its own in a folder that goes when the replay ends. It is set up only
for a session in which a value was missing. Words alone are searched, so that the answer is the same on any machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from refold.conversation.message import Message
from refold.ledger.chain import chain_tail
from refold.ledger.encode import dump_json
from refold.ledger.ledger import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from refold.recall import Recall, RecallOptions, index_path

HITS_MAX = 10
_SESSION = "replayed"
_NOW = 1.0


class RecallCheck:
    """Searches one session as far as it has come. ``messages`` is all of it; what lies ahead is never searched."""

    def __init__(self, messages: Sequence[Message], wire: str) -> None:
        self._messages = messages
        self._wire = wire
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._recall: Recall | None = None
        self._stored = 0
        self._last_id = ""

    def __enter__(self) -> RecallCheck:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._recall is not None:
            self._recall.close()
            self._recall.ledger.close()
        if self._folder is not None:
            self._folder.cleanup()

    def finds(self, value: str, before: int) -> bool:
        """Tell whether one of the first ten answers shows the value verbatim."""
        recall = self._catch_up(before)
        return any(value in hit.text for hit in recall.recall(_SESSION, value, HITS_MAX))

    def _catch_up(self, before: int) -> Recall:
        recall = self._recall or self._open()
        new = self._messages[self._stored : before]
        if new:
            ledger = recall.ledger
            links = chain_tail(self._last_id, [message.digest for message in new], self._stored)
            stored = [
                StoredMessage(
                    link.id, link.parent, message.digest, message.role, dump_json(message.raw), created_at=_NOW
                )
                for link, message in zip(links, new, strict=True)
            ]
            splice = Splice(self._stored, self._stored, tuple(link.id for link in links))
            version = ledger.read_path(_SESSION).version
            ledger.append(_SESSION, stored, [splice], version=version, now=_NOW)
            self._stored, self._last_id = before, links[-1].id
        return recall

    def _open(self) -> Recall:
        self._folder = tempfile.TemporaryDirectory(prefix="refold-replay-")
        path = Path(self._folder.name) / "replay.db"
        ledger = SqliteLedger(path, synchronous="off")
        ledger.open_session(_SESSION, _NOW)
        ledger.update_session(_SESSION, {"wire": self._wire}, _NOW)
        self._recall = Recall(ledger, index_path(path), RecallOptions(limit=HITS_MAX, embeddings="off"))
        return self._recall
