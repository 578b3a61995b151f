"""Notes: what compressions said about a session, to be searched beside the originals. Writes nothing."""

from __future__ import annotations

from refold.ledger.port import Ledger

NOTE_CHARS_MAX = 20_000


def list_notes(ledger: Ledger, session_id: str) -> list[tuple[str, str, str]]:
    """Return (kind, handle, text) of every summary in force and every fact, each text once."""
    found: dict[str, tuple[str, str, str]] = {}
    for stored in ledger.read_edits(session_id):
        fold = stored.edit.fold
        if fold is not None and fold.summary.strip():
            found.setdefault(fold.summary, ("summary", fold.handle, fold.summary[:NOTE_CHARS_MAX]))
    for fact in ledger.read_facts(session_id):
        text = fact.fact.text
        if text.strip():
            found.setdefault(text, ("fact", fact.fact.handle, text[:NOTE_CHARS_MAX]))
    return list(found.values())
