"""Rows of edits and batches: committed together, switched on and off, never changed.

The messages that an edit covers are stored as runs of numbers. So a fold over ten thousand messages is one row, and
the edits over a message are one range of an index.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from refold.conversation.view import Edit
from refold.ledger.codec import decode_edit, decode_reason, encode_edit, encode_reason, load_json
from refold.ledger.records import Batch, ContextSummary, Event, StoredBatch, StoredEdit, StoredFact
from refold.ledger.sql.database import Database, NewEdit, Span, find_runs, meets
from refold.ledger.sql.messages import KnownMessage, ask_known, read_ids, read_known
from refold.ledger.sql.sessions import add_events, ask_locked, read_locked

_ACTIVE = " AND is_active = TRUE"


@dataclass(frozen=True, slots=True)
class EditRow:
    """An edit as it is stored, with its key and the runs that it covers."""

    key: int
    id: str
    batch: int | None
    batch_id: str
    is_active: bool
    covered: int
    created_at: float
    payload: bytes
    spans: tuple[Span, ...]

    def list_covers(self, ids: Sequence[str], low: int) -> tuple[str, ...]:
        """Return the ids of the covered messages, given all ids from number ``low`` on."""
        return tuple(message_id for first, last in self.spans for message_id in ids[first - low : last - low + 1])


def list_covered(edits: Iterable[Edit]) -> list[str]:
    """Return the ids of all messages that these edits cover, each once."""
    return list(dict.fromkeys(message_id for edit in edits for message_id in edit.covers))


def find_covered(
    edits: Iterable[Edit], known: Mapping[str, KnownMessage], forgotten: Container[str] = ()
) -> dict[str, int] | None:
    """Return the number of each covered message; None if one is missing, or forgotten and not in ``forgotten``."""
    seqs: dict[str, int] = {}
    for message_id in list_covered(edits):
        if message_id not in known or (known[message_id].is_forgotten and message_id not in forgotten):
            return None
        seqs[message_id] = known[message_id].seq
    return seqs


def find_edits_over(db: Database, session: int, seqs: Iterable[int], *, active_only: bool = True) -> set[str]:
    """Return the ids of the edits that cover any of these messages."""
    wanted = sorted(set(seqs))
    if not wanted:
        return set()
    runs = find_runs(wanted)
    sql = (
        "SELECT edit.id, first, last FROM cover JOIN edit ON edit.key = cover.edit "
        f"WHERE cover.session = ? AND last >= ? AND first <= ?{_ACTIVE if active_only else ''}"
    )
    rows = db.fetch_all(sql, (session, wanted[0], wanted[-1]))
    return {db.decode(edit_id) for edit_id, first, last in rows if meets(runs, first, last)}


def commit(
    db: Database, session_id: str, batch: Batch, *, now: float, events: Sequence[Event], owner: str | None
) -> bool:
    """Store a batch with its edits, facts and events; False if what it was based on has changed."""
    locked = ask_locked(db, session_id)
    stored = ask_known(db, session_id, list_covered(batch.edits))
    key = read_locked(db, locked, session_id).key
    if owner is not None:
        sql = "SELECT 1 FROM lease WHERE session = ? AND owner = ? AND expires_at > ?"
        if db.fetch_one(sql, (key, db.encode(owner), now)) is None:
            return False
    seqs = find_covered(batch.edits, read_known(stored), frozenset(batch.forgotten))
    if seqs is None or find_edits_over(db, key, seqs.values()) != set(batch.expects):
        return False
    batch_key = add_batch(db, key, batch)
    if batch_key is None:
        return False
    add_edits(db, key, batch.edits, seqs=seqs, batch=batch_key, now=now)
    for fact in batch.facts:
        db.insert_fact(key, StoredFact(fact, session_id, batch.id, now), batch=batch_key)
    add_events(db, key, events)
    db.run(
        "UPDATE session SET compression_count = compression_count + 1, edits_version = edits_version + 1, "
        "updated_at = ? WHERE key = ?",
        (now, key),
    )
    return True


def add_batch(db: Database, session: int, batch: Batch | StoredBatch) -> int | None:
    """Add the row of a batch; return its key, or None if the session has a batch of this id."""
    key = db.fetch_value(
        "INSERT INTO batch (session, id, reason, tokens_before, tokens_after, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session, id) DO NOTHING RETURNING key",
        (
            session,
            db.encode(batch.id),
            db.encode(encode_reason(batch.reason)),
            batch.tokens_before,
            batch.tokens_after,
            batch.created_at,
        ),
    )
    return None if key is None else int(key)


def add_edits(
    db: Database, session: int, edits: Iterable[Edit], *, seqs: Mapping[str, int], batch: int | None, now: float
) -> int:
    """Add active edits; return how many changed. A batch reactivates a known edit; arrival leaves it as it is."""
    encoded = [(db.encode(edit.id), edit) for edit in edits]
    rows = db.run_each(
        "SELECT id, key FROM edit WHERE session = ? AND id = ANY(?)",
        (session,),
        dict.fromkeys(key for key, _ in encoded),
    )
    known: dict[str | bytes, int] = dict(rows.fetchall())
    changed = 0
    new: dict[str | bytes, NewEdit] = {}  # An edit that is twice in one batch is added once.
    for edit_id, edit in encoded:
        if edit_id not in known:
            new.setdefault(edit_id, make_new(StoredEdit(edit, "", True, now), seqs, batch))
        elif batch is not None:
            sql = "UPDATE edit SET is_active = TRUE, batch = ?, payload = ?, created_at = ? WHERE key = ?"
            db.run(sql, (batch, encode_edit(edit), now, known[edit_id]))
            changed += 1
    db.insert_edits(session, list(new.values()))
    return changed + len(new)


def add_arrival(
    db: Database, session: int, edits: Iterable[Edit], *, known: Mapping[str, KnownMessage], now: float
) -> int:
    """Add edits made on arrival; return how many. An edit of a forgotten message is left out: it holds its text."""
    found = [(edit, find_covered([edit], known)) for edit in edits]
    seqs = {message_id: seq for _, covered in found if covered for message_id, seq in covered.items()}
    return add_edits(
        db, session, [edit for edit, covered in found if covered is not None], seqs=seqs, batch=None, now=now
    )


def make_new(stored: StoredEdit, seqs: Mapping[str, int], batch: int | None) -> NewEdit:
    """Return an edit that the session does not have, as it is inserted."""
    return stored, batch, find_runs(seqs[message_id] for message_id in stored.edit.covers)


def switch_edits(db: Database, session: int, ids: Iterable[str], *, on: bool) -> int:
    """Switch edits on or off; return how many changed."""
    sql = "UPDATE edit SET is_active = ? WHERE session = ? AND is_active <> ? AND id = ANY(?) RETURNING 1"
    return len(db.run_each(sql, (on, session, on), dict.fromkeys(map(db.encode, ids))).fetchall())


def read_rows(db: Database, session: int, *, active_only: bool) -> list[EditRow]:
    """Return the rows of a session's edits, in the order they were made."""
    which = _ACTIVE if active_only else ""
    covers = db.run(
        "SELECT cover.edit, first, last FROM cover CROSS JOIN edit ON edit.key = cover.edit "
        f"WHERE cover.session = ?{which} ORDER BY cover.edit, place",
        (session,),
    )
    edits = db.run(
        "SELECT edit.key, edit.id, edit.batch, coalesce(batch.id, ''), is_active, covered, edit.created_at, payload "
        f"FROM edit LEFT JOIN batch ON batch.key = edit.batch WHERE edit.session = ?{which} "
        "ORDER BY edit.created_at, edit.key",
        (session,),
    )
    spans: dict[int, list[Span]] = {}
    for key, first, last in covers.fetchall():
        spans.setdefault(key, []).append((first, last))
    return [
        EditRow(
            key=key,
            id=db.decode(edit_id),
            batch=batch,
            batch_id=db.decode(batch_id),
            is_active=bool(is_active),
            covered=covered,
            created_at=created_at,
            payload=payload,
            spans=tuple(spans.get(key, ())),
        )
        for key, edit_id, batch, batch_id, is_active, covered, created_at, payload in edits.fetchall()
    ]


def read_summaries(db: Database, session: int, limit: int) -> list[ContextSummary]:
    """Return the newest summaries, the newest first, without decoding the values and facts beside them."""
    sql = (
        "SELECT id, is_active, created_at, payload FROM edit WHERE session = ? AND kind = 'fold' "
        "ORDER BY key DESC LIMIT ?"
    )
    found: list[ContextSummary] = []
    replaced: set[str] = set()
    for edit_id, is_active, created_at, payload in db.fetch_all(sql, (session, limit)):
        name, stored = db.decode(edit_id), load_json(payload)
        fold, is_in_force = stored["fold"], bool(is_active) and name not in replaced
        # What a fold is made from is older, so it comes later here.
        replaced.update(stored["made_from"] if is_active else ())
        if fold is not None:
            (first, last), points = fold["turn_range"], tuple(fold["key_points"])
            covered = (int(created_at * 1000), (first, last), fold["summary"], points)
            found.append(ContextSummary(*covered, name, fold["handle"], bool(is_active), is_in_force))
    return found


def read_edits(db: Database, session: int, *, active_only: bool) -> list[StoredEdit]:
    """Return a session's edits, in the order they were made."""
    rows = read_rows(db, session, active_only=active_only)
    if not rows:
        return []
    low = min(span[0] for row in rows for span in row.spans)
    ids = read_ids(db, session, low, max(span[1] for row in rows for span in row.spans))
    return [
        StoredEdit(
            decode_edit(row.payload, row.list_covers(ids, low), row.id), row.batch_id, row.is_active, row.created_at
        )
        for row in rows
    ]


def read_batches(db: Database, session: int) -> list[StoredBatch]:
    """Return a session's batches, in the order they were committed."""
    sql = "SELECT batch, id, is_active FROM edit WHERE session = ? AND batch IS NOT NULL ORDER BY key"
    edits = db.run(sql, (session,))
    sql = "SELECT key, id, reason, tokens_before, tokens_after, created_at FROM batch WHERE session = ? ORDER BY key"
    batches = db.run(sql, (session,))
    members: dict[int, list[tuple[str, bool]]] = {}
    for key, edit_id, is_active in edits.fetchall():
        members.setdefault(key, []).append((db.decode(edit_id), bool(is_active)))
    return [
        StoredBatch(
            id=db.decode(batch_id),
            reason=decode_reason(db.decode(reason)),
            tokens_before=before,
            tokens_after=after,
            created_at=created_at,
            edits=tuple(edit_id for edit_id, _ in members.get(key, ())),
            is_active=any(is_active for _, is_active in members.get(key, ())),
        )
        for key, batch_id, reason, before, after, created_at in batches.fetchall()
    ]
