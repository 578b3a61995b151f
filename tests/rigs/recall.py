"""Stored sessions for the tests of recall: real ledgers, real messages, no doubles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refold.formats import make_format
from refold.ledger.align import chain_tail
from refold.ledger.codec import dump_json
from refold.ledger.place import index_path
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from refold.recall.options import RecallOptions
from refold.recall.recall import Recall

WORDS_ONLY = RecallOptions(embeddings="off")


class Workspace:
    """A ledger and recall beside it, in one folder."""

    def __init__(self, folder: Path, options: RecallOptions = WORDS_ONLY) -> None:
        self.ledger = SqliteLedger(folder / "ledger.db")
        self.recall = Recall(self.ledger, index_path(folder / "ledger.db"), options)

    def add(self, session_id: str, raws: Sequence[dict[str, Any]], now: float = 1.0) -> list[str]:
        """Store messages at the end of a session; return their ids."""
        form = make_format("openai-chat")
        row = self.ledger.open_session(session_id, now)
        self.ledger.update_session(session_id, {"wire": "openai-chat"}, now)
        path = self.ledger.read_path(session_id)
        messages = [form.parse(raw) for raw in raws]
        tail = path.ids[-1] if path.ids else ""
        links = chain_tail(tail, [message.digest for message in messages], len(path.ids))
        stored = [
            StoredMessage(link.id, link.parent, message.digest, message.role, dump_json(raw), created_at=now)
            for link, message, raw in zip(links, messages, raws, strict=True)
        ]
        splice = Splice(len(path.ids), len(path.ids), tuple(link.id for link in links))
        version = self.ledger.append(session_id, stored, [splice], version=row.path_version, now=now)
        assert version is not None
        return [link.id for link in links]

    def say(self, session_id: str, *texts: str, now: float = 1.0) -> list[str]:
        """Store texts, said by user and assistant in turn; return the ids."""
        roles = ("user", "assistant")
        return self.add(session_id, [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)], now)

    def find(self, session_id: str, query: str, limit: int | None = None) -> list[str]:
        """Return the texts that are found, without what belongs to them."""
        return [one.text for one in self.recall.recall(session_id, query, limit)]

    def handle(self, session_id: str, message_id: str) -> str:
        """Return a message's handle."""
        return f"m:{self.ledger.read_messages(session_id, [message_id])[0].digest[:8]}"
