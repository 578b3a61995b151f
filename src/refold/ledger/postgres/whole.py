"""A whole session, read at one moment and put in again as it was: the rows of all tables, each in its order."""

from __future__ import annotations

from refold.ledger.codec import dump_json, encode_column
from refold.ledger.message_row import check_chain
from refold.ledger.postgres import edit_rows, log_rows, message_rows, session_rows
from refold.ledger.postgres.message_rows import Known
from refold.ledger.postgres.path_rows import ask_tail, change_path
from refold.ledger.postgres.sql import Db, run
from refold.ledger.records import Splice, WholeSession
from refold.ledger.session_row import Found

_ALL = 1 << 62


def read_whole(db: Db, found: Found) -> WholeSession:
    """Return all of a session."""
    key = found.key
    return WholeSession(
        row=found.row,
        messages=tuple(message_rows.list_messages(db, key, 0, _ALL)),
        path=message_rows.read_path(db, found.row.id).ids,
        edits=tuple(edit_rows.read_edits(db, key, active_only=False)),
        batches=tuple(edit_rows.read_batches(db, key)),
        facts=tuple(log_rows.read_facts(db, key, _ALL)),
        events=tuple(log_rows.read_events(db, key, 0, _ALL)),
        usages=tuple(reversed(log_rows.read_usage(db, key, _ALL))),
    )


def put_whole(db: Db, whole: WholeSession, now: float) -> bool:
    """Add all of a session; False if there is one of that name."""
    row = whole.row
    check_chain(whole.messages)
    if not session_rows.make_session(db, row.id, row.created_at):
        return False
    found = session_rows.need_session(db, row.id)
    key = found.key
    known: dict[str, Known] = {}
    new = message_rows.add_messages(db, key, 0, whole.messages, known)
    splices = [Splice(0, 0, whole.path)] if whole.path else []
    counted = {message.id: message.tokens for message in new}
    length, tokens = change_path(db, found, splices, known, counted, ask_tail(db, row.id))
    batches = {batch.id: edit_rows.add_batch(db, key, batch) for batch in whole.batches}
    seqs = {message_id: one.seq for message_id, one in known.items()}
    for stored in whole.edits:
        edit_rows.add_edit(db, key, stored, seqs, batches[stored.batch_id] if stored.batch_id else None)
    for fact in whole.facts:
        log_rows.add_facts(db, key, batches[fact.batch_id] or 0, [fact.fact], fact.created_at)
    log_rows.add_events(db, key, whole.events)
    for usage in whole.usages:
        log_rows.add_usage(db, key, usage)
    run(
        db,
        "UPDATE session SET updated_at = %s, wire = %s, model = %s, settings = %s, seq_last = %s, path_version = %s, "
        "edits_version = %s, message_count = %s, tokens = %s, compression_count = %s WHERE key = %s",
        (
            now,
            encode_column(row.wire),
            encode_column(row.model),
            dump_json(dict(row.settings)),
            len(new),
            row.path_version,
            row.edits_version,
            length,
            tokens,
            len(batches),
            key,
        ),
    )
    return True
