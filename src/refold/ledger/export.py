"""A whole session as one JSON value, for export and import. Pure.

The order depends only on the content, so two ledgers with the same session export the same bytes, whatever the store.
Imported data is untrusted and fully validated: every id must follow from its content, be unique and resolve, and every
number and text must be one that a store can hold. Otherwise a FormatError says where the problem is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar, get_args

from refold.conversation.message import ROOT, Role, chain_id
from refold.conversation.reason import Reason, read_reason
from refold.conversation.view import Fact, FactKind
from refold.errors import FormatError
from refold.formats import digest_message, make_format
from refold.ledger.codec import decode_edit, dump_json, encode_edit, find_invalid, load_json
from refold.ledger.records import (
    Event,
    SessionRow,
    StoredBatch,
    StoredEdit,
    StoredFact,
    StoredMessage,
    StoredUsage,
    WholeSession,
    check_id,
)

MARK = "refold_session"
VERSION = 2
NUMBER_MAX = 1 << 53
TIME_MAX = 253_402_300_799.0  # The last second of the year 9999.
_KEYS = ("id", "wire", "model", "settings", "created_at", "messages", "path", "edits", "batches")
_FIRST_VERSION = 1  # It had no lists of facts, events and usage.
_LOGS = ("facts", "events", "usage")

T = TypeVar("T")


def dump_session(whole: WholeSession) -> dict[str, object]:
    """Return a session as plain JSON values; a forgotten message has ``null`` for its content."""
    return {
        MARK: VERSION,
        **_pick(whole.row, "id", "wire", "model"),
        "settings": dict(whole.row.settings),
        "created_at": whole.row.created_at,
        "messages": [
            {
                **_pick(message, "id", "parent", "digest", "role"),
                "raw": None if message.is_forgotten else load_json(message.raw),
                **_pick(message, "tokens", "created_at"),
            }
            for message in whole.messages
        ],
        "path": list(whole.path),
        "edits": [
            {
                "id": edit.edit.id,
                "covers": list(edit.edit.covers),
                "batch": edit.batch_id,
                **_pick(edit, "is_active", "created_at"),
                "edit": load_json(encode_edit(edit.edit)),
            }
            for edit in whole.edits
        ],
        "batches": [
            {
                "id": batch.id,
                "reason": batch.reason.to_json(),
                **_pick(batch, "tokens_before", "tokens_after", "created_at"),
            }
            for batch in whole.batches
        ],
        "facts": [
            {**_pick(fact.fact, "kind", "text", "handle"), "batch": fact.batch_id, "created_at": fact.created_at}
            for fact in whole.facts
        ],
        "events": [{**_pick(event, "kind", "created_at"), "fields": dict(event.fields)} for event in whole.events],
        "usage": [asdict(usage) for usage in whole.usages],
    }


def _pick(one: object, *names: str) -> dict[str, object]:
    return {name: getattr(one, name) for name in names}


def load_session(value: object, session_id: str | None = None) -> WholeSession:
    """Return the session that ``dump_session`` wrote, under its own id or another; FormatError if it is invalid."""
    try:
        return _read(value, session_id)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise FormatError("this is not a session that 'refold export' wrote: {why}", why=why) from None


def _read(value: object, session_id: str | None) -> WholeSession:
    given = _check_keys(value)
    name = given["id"] if session_id is None else session_id
    if not isinstance(name, str) or not name:
        raise FormatError("the exported session has no id; give one with --as")
    check_id(name)
    wire = _text(given["wire"], "wire")
    if wire:
        make_format(wire)
    row = SessionRow(
        id=name,
        created_at=_time(given["created_at"], "created_at"),
        updated_at=0.0,
        wire=wire,
        model=_text(given["model"], "model"),
        settings=_object(given["settings"], "settings"),
    )
    messages = _read_messages(given["messages"])
    ids = {message.id for message in messages}
    path = tuple(_text(one, f"path[{at}]") for at, one in enumerate(_list(given["path"], "path")))
    _check_known(path, ids, "path")
    batches = _read_all(given["batches"], "batches", _read_batch)
    check_once((batch.id for batch in batches), "batches")
    made = {batch.id for batch in batches}
    edits = _read_all(given["edits"], "edits", _read_edit)
    check_once((edit.edit.id for edit in edits), "edits")
    for at, one in enumerate(edits):
        _check_known(one.edit.covers, ids, f"edits[{at}].covers")
        if one.batch_id:
            _check_batch(one.batch_id, made, f"edits[{at}]")
    facts = _read_all(given["facts"], "facts", _read_fact)
    for at, fact in enumerate(facts):
        _check_batch(fact.batch_id, made, f"facts[{at}]")
    check_once(((one.fact.kind, one.fact.text) for one in facts), "facts")
    events = _read_all(given["events"], "events", _read_event)
    usages = _read_all(given["usage"], "usage", _read_usage)
    return WholeSession(row, messages, path, edits, batches, facts, events, usages)


def _check_keys(value: object) -> dict[str, Any]:
    version = value.get(MARK) if isinstance(value, dict) else None
    if not isinstance(value, dict) or type(version) is not int or version < _FIRST_VERSION:
        raise FormatError("this is not a session that 'refold export' wrote")
    if version > VERSION:
        raise FormatError(
            "this session was exported by a newer refold (version {version}); upgrade to import it", version=version
        )
    missing = [key for key in (*_KEYS, *(_LOGS if version > _FIRST_VERSION else ())) if key not in value]
    if missing:
        raise FormatError("the exported session has no {listed}", listed=", ".join(missing))
    if version > _FIRST_VERSION:
        return value
    return {**value, "facts": _find_facts(value), "events": [], "usage": []}


def _find_facts(value: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return the facts of a version 1 export, which are in its folds, as their batches stored them."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for one in value["edits"]:
        for fact in (one["edit"].get("fold") or {}).get("facts", ()) if one["batch"] else ():
            stored = {**fact, "batch": one["batch"], "created_at": one["created_at"]}
            found.setdefault((str(fact["kind"]), str(fact["text"])), stored)
    return list(found.values())


def _read_messages(given: object) -> tuple[StoredMessage, ...]:
    messages: list[StoredMessage] = []
    seen = {ROOT}
    for at, one in enumerate(_list(given, "messages")):
        message = _read_message(one, f"messages[{at}]", at + 1)
        if message.parent not in seen:
            raise FormatError("messages[{at}] comes before its parent, or its parent is missing", at=at)
        if message.id in seen:
            raise FormatError("messages[{at}] appears twice", at=at)
        seen.add(message.id)
        messages.append(message)
    return tuple(messages)


def _read_message(one: Mapping[str, Any], where: str, seq: int) -> StoredMessage:
    raw, digest, role = one["raw"], one["digest"], one["role"]
    if raw is not None and (not isinstance(raw, dict) or digest_message(raw, where) != digest):
        raise FormatError("{where} is not what its id says: it was changed after the export", where=where)
    if chain_id(one["parent"], digest) != one["id"]:
        raise FormatError("{where} is not what its id says: it was changed after the export", where=where)
    if role not in get_args(Role):
        raise FormatError("{where} has the unknown role {role!r}", where=where, role=str(role)[:40])
    return StoredMessage(
        id=one["id"],
        parent=one["parent"],
        digest=digest,
        role=role,
        raw=b"" if raw is None else dump_json(raw),
        tokens=_number(one["tokens"], f"{where}.tokens"),
        created_at=_time(one["created_at"], f"{where}.created_at"),
        is_forgotten=raw is None,
        seq=seq,
    )


def _read_edit(one: Mapping[str, Any], where: str) -> StoredEdit:
    _reason(one["edit"]["reason"], where)
    edit = decode_edit(dump_json(one["edit"]), tuple(_list(one["covers"], f"{where}.covers")))
    invalid = next(find_invalid(edit), "")
    if invalid:
        raise FormatError("{where} has an invalid {invalid}", where=where, invalid=invalid)
    if edit.id != one["id"]:
        raise FormatError("{where} is not what its id says: it was changed after the export", where=where)
    if type(one["is_active"]) is not bool:
        raise FormatError("{where}.is_active must be true or false", where=where)
    return StoredEdit(edit, _text(one["batch"], f"{where}.batch"), one["is_active"], _time(one["created_at"], where))


def _read_batch(one: Mapping[str, Any], where: str) -> StoredBatch:
    name = _text(one["id"], f"{where}.id")
    if not 1 <= len(name) <= 256:
        raise FormatError("{where}.id has {count} characters; it must have 1 to 256", where=where, count=len(name))
    before, after = (_number(one[key], f"{where}.{key}") for key in ("tokens_before", "tokens_after"))
    return StoredBatch(name, _reason(one["reason"], where), before, after, _time(one["created_at"], where), (), False)


def _read_fact(one: Mapping[str, Any], where: str) -> StoredFact:
    if one["kind"] not in get_args(FactKind):
        raise FormatError("{where} is of the unknown kind {kind!r}", where=where, kind=str(one["kind"])[:40])
    fact = Fact(one["kind"], _text(one["text"], where), _text(one["handle"], where))
    return StoredFact(fact, "", _text(one["batch"], where), _time(one["created_at"], where))


def _read_event(one: Mapping[str, Any], where: str) -> Event:
    return Event(_text(one["kind"], where), _time(one["created_at"], where), _object(one["fields"], where))


def _read_usage(one: Mapping[str, Any], where: str) -> StoredUsage:
    counts = [column.name for column in fields(StoredUsage) if column.name not in ("created_at", "model")]
    figures = {name: _number(one[name], f"{where}.{name}") for name in counts}
    return StoredUsage(_time(one["created_at"], where), _text(one["model"], where), **figures)


def _read_all(given: object, what: str, read: Callable[[Mapping[str, Any], str], T]) -> tuple[T, ...]:
    return tuple(read(one, f"{what}[{at}]") for at, one in enumerate(_list(given, what)))


def _list(given: object, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise FormatError("{where}: expected a list", where=where)
    return given


def _object(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise FormatError("{where}: expected an object", where=where)
    # As a store would return it: nesting too deep to be read back fails here.
    loaded: dict[str, Any] = load_json(dump_json(given))
    return loaded


def _text(given: object, where: str) -> str:
    if not isinstance(given, str):
        raise FormatError("{where}: expected a string", where=where)
    return given


def _reason(given: object, where: str) -> Reason:
    """Return a reason: code and values, or the sentence of an earlier version."""
    is_coded = isinstance(given, Mapping) and isinstance(given.get("code"), str)
    if not is_coded and not isinstance(given, str):
        raise FormatError("{where}: a reason must be a string, or a code with values", where=where)
    return read_reason(given)


def _number(given: object, where: str) -> int:
    if type(given) is not int or not 0 <= given <= NUMBER_MAX:
        raise FormatError("{where} must be a whole number from 0 to {number_max:,}", where=where, number_max=NUMBER_MAX)
    return given


def _time(given: object, where: str) -> float:
    # NaN fails both comparisons.
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= TIME_MAX:
        raise FormatError("{where}: the time must be a number of seconds since 1970", where=where)
    return float(given)


def check_once(names: Iterable[object], where: str) -> None:
    """Raise FormatError if a name is in a list twice."""
    seen: set[object] = set()
    for at, name in enumerate(names):
        if name in seen:
            raise FormatError("{where}[{at}] appears twice", where=where, at=at)
        seen.add(name)


def _check_known(names: tuple[str, ...], ids: set[str], where: str) -> None:
    check_once(names, where)
    if not ids.issuperset(names):
        raise FormatError("{where} names messages that are not in the session", where=where)


def _check_batch(name: str, known: set[str], where: str) -> None:
    if name not in known:
        raise FormatError("{where} belongs to a batch that is not in the session", where=where)
