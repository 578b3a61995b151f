"""Encoding: provider objects, edits and text in a form that every store keeps and reads back equal. Pure.

JSON is written and read by orjson, and by the standard library where orjson would lose something: lone surrogates,
integers over 64 bits, NaN. Text that is not valid UTF-8 is stored as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import orjson

from refold.conversation.reason import Reason, is_plain, read_reason
from refold.conversation.view import Artifact, Edit, Fact, FoldRecord
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
        is_current=stored.get("is_current", False),
        dropped=tuple(stored.get("dropped", ())),
        usage=tuple(stored.get("usage", (0, 0, 0))),
    )


def find_invalid(edit: Any) -> Iterator[str]:
    """Yield the fields of a plugin's or an imported edit that the ledger could not store or read back."""
    yield from (name for name, hint in _read_hints(Edit).items() if not _fits(getattr(edit, name), hint))
    if len(set(map(str, edit.covers))) < len(edit.covers):
        yield "covers: a message is listed twice"
    if (type(edit.part) is int and edit.part < 0) or (isinstance(edit.reason, Reason) and not is_plain(edit.reason)):
        yield "part or reason"
    if isinstance(edit.fold, FoldRecord) and any(artifact.alike < 0 for artifact in edit.fold.artifacts):
        yield "number of like values in its fold"


@cache
def _read_hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of the type that a field declares, and a whole number small enough to be stored."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin is UnionType:
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        hints = [inner[0]] * len(value) if isinstance(value, tuple) and inner[1:] == (...,) else inner
        return isinstance(value, tuple) and len(value) == len(hints) and all(map(_fits, value, hints))
    if hint is int:
        return type(value) is int and abs(value) <= EDIT_NUMBER_MAX
    if hint in (FoldRecord, Fact, Artifact) and isinstance(value, hint):
        return all(_fits(getattr(value, name), one) for name, one in _read_hints(hint).items())
    return isinstance(value, int | float if hint is float else hint)
