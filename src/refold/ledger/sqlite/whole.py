"""A whole session, read at one moment and put in again as it was: the rows of all tables, each in its order."""

from __future__ import annotations

import apsw

from refold.ledger.codec import dump_json, encode_text
from refold.ledger.records import Splice, WholeSession
from refold.ledger.session_row import Found
from refold.ledger.sqlite import edit_rows, log_rows, message_rows, session_rows
from refold.ledger.sqlite.path_rows import change_path

_ALL = 1 << 62


def read_whole(db: apsw.Connection, found: Found) -> WholeSession:
    """Return all of a session."""
    key = found.key
    return WholeSession(
        row=found.row,
        messages=tuple(message_rows.list_messages(db, key, 0, _ALL)),
        path=message_rows.read_path(db, key, found.row.path_version).ids,
        edits=tuple(edit_rows.read_edits(db, key, active_only=False)),
        batches=tuple(edit_rows.read_batches(db, key)),
        facts=tuple(log_rows.read_facts(db, key, _ALL)),
        events=tuple(log_rows.read_events(db, key, 0, _ALL)),
        usages=tuple(reversed(log_rows.read_usage(db, key, _ALL))),
    )


def put_whole(db: apsw.Connection, whole: WholeSession, now: float) -> bool:
    """Add all of a session; False if there is one of that name."""
    row = whole.row
    if session_rows.find_session(db, row.id) is not None:
        return False
    session_rows.make_session(db, row.id, row.created_at)
    key = session_rows.need_session(db, row.id).key
    seq_last = message_rows.add_messages(db, key, 0, whole.messages)
    splices = [Splice(0, 0, whole.path)] if whole.path else []
    length, tokens = change_path(db, key, 0, splices)
    batches = {batch.id: edit_rows.add_batch(db, key, batch) for batch in whole.batches}
    seqs = {message.id: seq for seq, message in enumerate(whole.messages, 1)}
    for stored in whole.edits:
        edit_rows.add_edit(db, key, stored, seqs, batches[stored.batch_id] if stored.batch_id else None)
    for fact in whole.facts:
        log_rows.add_facts(db, key, batches[fact.batch_id] or 0, [fact.fact], fact.created_at)
    log_rows.add_events(db, key, whole.events)
    for usage in whole.usages:
        log_rows.add_usage(db, key, usage)
    db.execute(
        "UPDATE session SET updated_at = ?, wire = ?, model = ?, settings = ?, seq_last = ?, path_version = ?, "
        "edits_version = ?, message_count = ?, tokens = ?, compression_count = ? WHERE key = ?",
        (
            now,
            encode_text(row.wire),
            encode_text(row.model),
            dump_json(dict(row.settings)),
            seq_last,
            row.path_version,
            row.edits_version,
            length,
            tokens,
            len(batches),
            key,
        ),
    )
    return True
