"""The sessions of a ledger as replay reads them: originals only, newest sessions first, within limits."""

from __future__ import annotations

from dataclasses import replace

from refold.ledger.encode import load_json
from refold.ledger.ledger import Ledger
from refold.readers.session import Session
from refold.replay.probes import find_probes

SESSIONS_MAX = 12
MESSAGES_MAX = 4_000
# A session of a few messages says nothing about folding.
MESSAGES_MIN = 8


def read_stored(ledger: Ledger, sessions_max: int = SESSIONS_MAX) -> list[Session]:
    """Return the sessions that changed last and are long enough to tell something, with the values they used again."""
    found: list[Session] = []
    for row in ledger.list_sessions(limit=sessions_max * 10):
        ids = ledger.read_path(row.id).ids[:MESSAGES_MAX]
        if len(ids) < MESSAGES_MIN:
            continue
        stored = [message for message in ledger.read_messages(row.id, ids) if not message.is_forgotten]
        session = Session(
            id=row.id,
            messages=tuple(load_json(message.raw) for message in stored),
            format=row.wire,
            times=tuple(message.created_at for message in stored),
            model=row.model,
            bytes=sum(len(message.raw) for message in stored),
        )
        found.append(replace(session, probes=find_probes(session)))
        if len(found) == sessions_max:
            break
    return found
