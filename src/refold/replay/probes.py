"""Probes: exact values that a call took from an earlier result or user message, and whether recall would find them.

If an export names its probes, those are used. A value counts once per step; its distance is to the newest earlier copy
that is not the assistant's own. Finding them is linear in the recording. ``RecallCheck`` asks the product's own search
for a value that left the view, by words alone, so that the answer is the same on any machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from refold.conversation.message import Message
from refold.errors import RefoldError
from refold.formats import parse_messages
from refold.formats.detect import make_format
from refold.ledger.chain import chain_tail
from refold.ledger.codec import dump_json
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from refold.readers.session import Probe, Session
from refold.recall import Recall, RecallOptions, index_path
from refold.stages.extract.values import find_values

VALUE_CHARS_MIN = 4
PROBES_MAX = 5_000
HITS_MAX = 10
_SESSION = "replayed"
_NOW = 1.0


def find_probes(session: Session) -> tuple[Probe, ...]:
    """Return the values that calls of this session reuse; none if its messages cannot be read."""
    try:
        messages = parse_messages(make_format(session.format), session.messages)
    except RefoldError:
        return ()
    sources: dict[str, list[int]] = {}
    spoken: set[str] = set()
    probes: list[Probe] = []
    for at, message in enumerate(messages):
        used: dict[str, str] = {}
        for part in message.parts:
            if part.kind == "call":
                used |= {value: sort for sort, value in find_values(part.text.replace("\\n", "\n").replace('\\"', '"'))}
        for value, sort in used.items():
            places = sources.get(value)
            if places and len(value) >= VALUE_CHARS_MIN:
                is_hard = len(places) == 1 and value not in spoken
                probes.append(Probe(at, value, sort, at - places[-1], is_hard))
        spoken.update(used)
        for part in message.parts:
            if part.kind == "result" or (part.kind == "text" and message.role == "user"):
                for _, value in find_values(part.text):
                    places = sources.setdefault(value, [])
                    if not places or places[-1] != at:
                        places.append(at)
            elif part.kind == "text" and message.role == "assistant":
                spoken.update(value for _, value in find_values(part.text))
        if len(probes) >= PROBES_MAX:
            break
    return tuple(probes[:PROBES_MAX])


def add_probes(session: Session) -> Session:
    """Return the session with probes: its own, or those that are found in it."""
    return session if session.probes else replace(session, probes=find_probes(session))


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
