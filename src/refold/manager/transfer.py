"""A session as one JSON value: taken out of a ledger with all that belongs to it, and put into another one.

What comes out goes in byte for byte: messages with their ids, the path, edits in force or undone, settings. What comes
in is checked: ids must follow from content, and an existing session is never written over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refold.conversation.edit import Edit
from refold.conversation.message import chain_id
from refold.errors import FormatError
from refold.formats import digest_message
from refold.ledger.encode import decode_edit, dump_json, encode_edit, load_json
from refold.ledger.ledger import Batch, Event, Ledger, Splice, StoredEdit, StoredMessage

MARK = "refold_session"
VERSION = 1
_PAGE = 1_000


def export_session(ledger: Ledger, session_id: str) -> dict[str, object]:
    """Return all of a session as plain values; FormatError if there is no such session."""
    row = ledger.read_session(session_id)
    if row is None:
        raise FormatError(f"there is no session {session_id!r}; 'refold sessions' lists those there are")
    messages: list[StoredMessage] = []
    while page := ledger.list_messages(session_id, after=messages[-1].seq if messages else 0, limit=_PAGE):
        messages += page
    batches = {batch.id: batch for batch in ledger.read_batches(session_id)}
    return {
        MARK: VERSION,
        "id": row.id,
        "wire": row.wire,
        "model": row.model,
        "settings": dict(row.settings),
        "created_at": row.created_at,
        "messages": [_tell_message(message) for message in messages],
        "path": list(ledger.read_path(session_id).ids),
        "edits": [_tell_edit(one) for one in ledger.read_edits(session_id, active_only=False)],
        "batches": [
            {
                "id": batch.id,
                "reason": batch.reason,
                "tokens_before": batch.tokens_before,
                "tokens_after": batch.tokens_after,
                "created_at": batch.created_at,
            }
            for batch in batches.values()
        ],
    }


def _tell_message(message: StoredMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "parent": message.parent,
        "digest": message.digest,
        "role": message.role,
        "raw": None if message.is_forgotten else load_json(message.raw),
        "tokens": message.tokens,
        "created_at": message.created_at,
    }


def _tell_edit(one: StoredEdit) -> dict[str, object]:
    return {
        "id": one.edit.id,
        "covers": list(one.edit.covers),
        "batch": one.batch_id,
        "is_active": one.is_active,
        "created_at": one.created_at,
        "edit": load_json(encode_edit(one.edit)),
    }


def import_session(ledger: Ledger, value: object, *, now: float, session_id: str | None = None) -> str:
    """Put an exported session into a ledger, under its own id or another; return the id."""
    given = _check(value)
    name = session_id or given["id"]
    if not isinstance(name, str) or not name:
        raise FormatError("the exported session has no id; give one with --as")
    if ledger.read_session(name) is not None:
        raise FormatError(f"there is a session {name!r} already; give another name with --as, or delete it first")
    try:
        messages = [_read_message(one, at) for at, one in enumerate(given["messages"])]
        edits = [_read_edit(one) for one in given["edits"]]
        path = tuple(str(one) for one in given["path"])
        batches = [dict(one) for one in given["batches"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"this is not a session that 'refold export' wrote: {type(error).__name__}: {error}"
        ) from None
    ledger.open_session(name, now)
    try:
        _store(ledger, name, given, (messages, path), edits, batches, now)
    except BaseException:
        ledger.delete_session(name)
        raise
    return name


def _store(
    ledger: Ledger,
    name: str,
    given: Mapping[str, Any],
    chain: tuple[Sequence[StoredMessage], Sequence[str]],
    edits: Sequence[StoredEdit],
    batches: Sequence[Mapping[str, Any]],
    now: float,
) -> None:
    messages, path = chain
    ids = {message.id for message in messages}
    if not ids.issuperset(path):
        raise FormatError("the path of this session names messages that it does not have")
    arrival = [one.edit for one in edits if not one.batch_id]
    splices = (Splice(0, 0, tuple(path)),) if path else ()
    version = ledger.read_path(name).version
    ledger.append(name, messages, splices, version=version, now=now, arrival=arrival)
    changes = {"wire": str(given["wire"]), "model": str(given["model"]), "settings": dict(given["settings"])}
    ledger.update_session(name, changes, now)
    known: list[Edit] = list(arrival)
    for batch in batches:
        members = tuple(one.edit for one in edits if one.batch_id == batch["id"])
        if not members:
            continue
        covered = {message_id for edit in members for message_id in edit.covers}
        made = Batch(
            id=str(batch["id"]),
            edits=members,
            reason=str(batch["reason"]),
            facts=tuple(fact for edit in members if edit.fold for fact in edit.fold.facts),
            expects=tuple(edit.id for edit in known if not covered.isdisjoint(edit.covers)),
            tokens_before=int(batch["tokens_before"]),
            tokens_after=int(batch["tokens_after"]),
            created_at=float(batch["created_at"]),
        )
        if not ledger.commit(name, made, now=now):
            raise FormatError(f"the compression {made.id} of this session rests on messages that it does not have")
        known += members
    undone = [one.edit.id for one in edits if not one.is_active]
    if undone:
        ledger.switch_edits(name, undone, on=False, now=now, event=Event("imported", now, {"undone": len(undone)}))
    ledger.add_event(name, Event("imported", now, {"messages": len(messages), "from": str(given["id"])}))


def _check(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get(MARK) != VERSION:
        raise FormatError("this is not a session that 'refold export' wrote")
    missing = [
        key for key in ("id", "wire", "model", "settings", "messages", "path", "edits", "batches") if key not in value
    ]
    if missing:
        raise FormatError(f"the exported session has no {', '.join(missing)}")
    return value


def _read_message(one: Mapping[str, Any], at: int) -> StoredMessage:
    raw = one["raw"]
    if raw is None:
        raise FormatError(f"messages[{at}] was forgotten; a session with gaps cannot be imported")
    digest = digest_message(raw, None, f"messages[{at}]")
    if digest != one["digest"] or chain_id(one["parent"], digest) != one["id"]:
        raise FormatError(f"messages[{at}] is not what its id says: it was changed after the export")
    return StoredMessage(
        id=one["id"],
        parent=one["parent"],
        digest=digest,
        role=one["role"],
        raw=dump_json(raw),
        tokens=int(one["tokens"]),
        created_at=float(one["created_at"]),
    )


def _read_edit(one: Mapping[str, Any]) -> StoredEdit:
    edit = decode_edit(dump_json(one["edit"]), tuple(one["covers"]))
    if edit.id != one["id"]:
        raise FormatError(f"the edit {one['id']} is not what its id says: it was changed after the export")
    return StoredEdit(edit, str(one["batch"]), bool(one["is_active"]), float(one["created_at"]))
