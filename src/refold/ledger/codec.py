"""Encoding: provider objects, edits and text in a form that every store keeps and reads back equal. Pure.

JSON is written and read by orjson, and by the standard library where orjson would lose something: lone surrogates,
integers over 64 bits, NaN. Text that is not valid UTF-8 is stored as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, get_args

import orjson

from refold.conversation.message import Role
from refold.conversation.reason import Reason, is_plain, read_reason
from refold.conversation.view import Artifact, Edit, EditKind, Fact, FactKind, FoldRecord
from refold.errors import FormatError
from refold.formats.canonical import has_nan, list_children

PLAIN_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
# orjson reads integers over 64 bits as floats. A regular expression for 19 digits takes three times as long as reading.
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * 19
EDIT_NUMBER_MAX = 1_000_000_000


def dump_json(value: object) -> bytes:
    """Return a JSON value as bytes; FormatError if it is not JSON."""
    try:
        data = orjson.dumps(value, option=PLAIN_ONLY)
    except TypeError:
        return _dump_slowly(value)
    # orjson writes NaN and infinity as null, which would load back as something else.
    return _dump_slowly(value) if b"null" in data and has_nan(value) else data


def load_json(data: bytes) -> Any:
    """Return the value that ``dump_json`` wrote."""
    if _LONG_NUMBER in data.translate(_DIGITS):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)


def _dump_slowly(value: object) -> bytes:
    try:
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            "the ledger stores only JSON ({error}); use plain dicts, lists, strings, numbers", error=error
        ) from error
    if _has_odd_key(value):
        raise FormatError("the ledger stores only JSON, whose keys are strings; rename the other keys")
    return data


def _has_odd_key(value: object) -> bool:
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return True
    return any(map(_has_odd_key, list_children(value)))


def checksum(digest: bytes, body: bytes) -> bytes:
    """Return a checksum that ties the raw bytes of a message to its digest."""
    return blake2b(body, key=digest, digest_size=8).digest()


def encode_text(text: str) -> str | bytes:
    """Return text for a column of SQLite: bytes if it has lone surrogates, which are not valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(stored: str | bytes) -> str:
    """Return the text that ``encode_text`` was given."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def encode_reason(reason: Reason) -> str:
    """Return a reason for a text column: its code and values as JSON."""
    return dump_json(reason.to_json()).decode()


def decode_reason(stored: str) -> Reason:
    """Return the reason of a text column: code and values, or the sentence of an earlier version."""
    try:
        value = load_json(stored.encode("utf-8", "surrogatepass"))
    except ValueError:
        value = None
    return read_reason(value if isinstance(value, dict) and "code" in value else stored)


def encode_edit(edit: Edit) -> bytes:
    """Return an edit without its id and the ids it covers, which have columns of their own."""
    payload = _list_fields(edit)
    del payload["id"], payload["covers"]
    payload["reason"] = edit.reason.to_json()
    if edit.fold is not None:
        payload["fold"] = _list_fields(edit.fold)
    try:
        # The encoder writes facts and artifacts itself: an index has thousands.
        data = orjson.dumps(payload, option=PLAIN_ONLY & ~orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return _dump_edit_slowly(edit, payload)
    # The weight of an artifact is the only number here that may be NaN.
    return _dump_edit_slowly(edit, payload) if b'"weight":null' in data else data


def _dump_edit_slowly(edit: Edit, payload: dict[str, Any]) -> bytes:
    if edit.fold is not None:
        payload["fold"] |= {
            "facts": [_list_fields(fact) for fact in edit.fold.facts],
            "artifacts": [_list_fields(artifact) for artifact in edit.fold.artifacts],
        }
    return _dump_slowly(payload)


def _list_fields(value: Edit | FoldRecord | Fact | Artifact) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def decode_edit(data: bytes, covers: tuple[str, ...], edit_id: str = "") -> Edit:
    """Return the edit; without an id, the id is computed from the content."""
    payload = load_json(data)
    payload["made_from"] = tuple(payload["made_from"])
    payload["reason"] = read_reason(payload["reason"])
    if payload["fold"] is not None:
        payload["fold"] = _decode_fold(payload["fold"])
    return Edit(covers=covers, id=edit_id, **payload)


def _decode_fold(stored: dict[str, Any]) -> FoldRecord:
    first, last = stored["turn_range"]
    return FoldRecord(
        handle=stored["handle"],
        summary=stored["summary"],
        facts=tuple(Fact(**fact) for fact in stored["facts"]),
        artifacts=tuple(Artifact(**artifact) for artifact in stored["artifacts"]),
        key_points=tuple(stored["key_points"]),
        turn_range=(first, last),
        by=stored["by"],
    )


def find_invalid(edit: Any) -> Iterator[str]:
    """Yield the fields of a plugin's or an imported edit that the ledger could not store or read back."""
    if edit.kind not in get_args(EditKind) or edit.role not in get_args(Role):
        yield "kind or role"
    if not isinstance(edit.covers, tuple) or len(set(map(str, edit.covers))) < len(edit.covers):
        yield "covers: a message is listed twice"
    if edit.part is not None and (type(edit.part) is not int or not 0 <= edit.part <= EDIT_NUMBER_MAX):
        yield "part"
    texts = (edit.stage, edit.text, edit.before, *edit.covers)
    yield from ("text" for one in texts if not isinstance(one, str))
    if not isinstance(edit.reason, Reason) or not is_plain(edit.reason):
        yield "reason"
    numbers = (edit.level, edit.tokens_before, edit.tokens_after, edit.tokens_covered)
    yield from ("number" for one in numbers if type(one) is not int or abs(one) > EDIT_NUMBER_MAX)
    if not isinstance(edit.made_from, tuple) or not all(isinstance(one, str) for one in edit.made_from):
        yield "made_from"
    if edit.fold is not None:
        yield from _find_invalid_fold(edit.fold)


def _find_invalid_fold(fold: Any) -> Iterator[str]:
    if not isinstance(fold, FoldRecord):
        yield "fold"
        return
    pairs: tuple[tuple[Any, type], ...] = ((fold.facts, Fact), (fold.artifacts, Artifact), (fold.key_points, str))
    pairs += ((fold.turn_range, int),)
    if not all(isinstance(held, tuple) and all(isinstance(one, kind) for one in held) for held, kind in pairs):
        yield "list in its fold"
        return
    if not all(abs(one) <= EDIT_NUMBER_MAX for one in fold.turn_range) or not all(
        fact.kind in get_args(FactKind) for fact in fold.facts
    ):
        yield "number or kind of fact in its fold"
    texts = [fold.handle, fold.summary, fold.by]
    texts += [text for fact in fold.facts for text in (fact.kind, fact.text, fact.handle)]
    texts += [text for one in fold.artifacts for text in (one.sort, one.value, one.handle, one.note)]
    if not all(isinstance(text, str) for text in texts) or len(fold.turn_range) != 2:
        yield "text in its fold"
    if not all(isinstance(one.weight, int | float) for one in fold.artifacts):
        yield "weight in its fold"
    counts = [one.alike for one in fold.artifacts]
    if not all(isinstance(count, int) for count in counts) or not all(
        0 <= count <= EDIT_NUMBER_MAX for count in counts
    ):
        yield "number of like values in its fold"
