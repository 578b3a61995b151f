"""What the ledger writes: provider objects and edits as JSON bytes that load back equal.

orjson writes and reads all it can hold without loss; the standard library does the rest: lone surrogates, integers
over 64 bits, NaN. Text for a column is text wherever UTF-8 can hold it, and bytes where it cannot.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from refold.conversation.edit import Artifact, Edit, Fact, Fold
from refold.conversation.reason import Reason, read_reason
from refold.errors import FormatError

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # orjson reads integers over 64 bits as floats.


def dump_json(value: object) -> bytes:
    """Return a JSON value as bytes; FormatError if it is none."""
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return _dump_slowly(value)
    # orjson writes NaN and infinity as null, which would load back as something else.
    return _dump_slowly(value) if b"null" in data and _has_nan(value) else data


def load_json(data: bytes) -> Any:
    """Return the value of JSON bytes that ``dump_json`` wrote."""
    if _LONG_NUMBER.search(data):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)


def _dump_slowly(value: object) -> bytes:
    try:
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"the ledger keeps JSON only ({error}); give plain dicts, lists, strings, numbers") from error
    if _has_odd_key(value):
        raise FormatError("the ledger keeps JSON only, and there a key is a string; rename the keys that are not")
    return data


def _children(value: object) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _has_nan(value: object) -> bool:
    if isinstance(value, float):
        return value - value != 0
    return any(map(_has_nan, _children(value)))


def _has_odd_key(value: object) -> bool:
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return True
    return any(map(_has_odd_key, _children(value)))


def encode_text(text: str) -> str | bytes:
    """Return a text as a column can hold it: lone surrogates are not UTF-8, so a text with some is bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(stored: str | bytes) -> str:
    """Return the text that ``encode_text`` was given."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def encode_reason(reason: Reason) -> str:
    """Return a reason as a text column holds it: JSON of its code and values."""
    return dump_json(reason.to_json()).decode()


def decode_reason(stored: str) -> Reason:
    """Return the reason of a text column: code and values, or the sentence that an earlier version wrote."""
    try:
        value = load_json(stored.encode("utf-8", "surrogatepass"))
    except ValueError:
        value = None
    return read_reason(value if isinstance(value, dict) and "code" in value else stored)


def encode_edit(edit: Edit) -> bytes:
    """Return all of an edit but its id and what it covers."""
    payload = _tell_fields(edit)
    del payload["id"], payload["covers"]
    payload["reason"] = edit.reason.to_json()
    if edit.fold is not None:
        payload["fold"] = _tell_fields(edit.fold) | {
            "facts": [_tell_fields(fact) for fact in edit.fold.facts],
            "artifacts": [_tell_fields(artifact) for artifact in edit.fold.artifacts],
        }
    try:
        data = orjson.dumps(payload, option=_OPTIONS)
    except TypeError:
        return _dump_slowly(payload)
    # The weight of an artifact is the only number here that may be none.
    return _dump_slowly(payload) if b'"weight":null' in data else data


def _tell_fields(value: Edit | Fold | Fact | Artifact) -> dict[str, Any]:
    # Not ``asdict``: it copies every value, and an index has thousands.
    return {name: getattr(value, name) for name in value.__slots__}


def decode_edit(data: bytes, covers: tuple[str, ...], edit_id: str = "") -> Edit:
    """Return the edit; without an id, the id is computed from what it does."""
    payload = load_json(data)
    payload["made_from"] = tuple(payload["made_from"])
    payload["reason"] = read_reason(payload["reason"])
    if payload["fold"] is not None:
        payload["fold"] = _decode_fold(payload["fold"])
    return Edit(covers=covers, id=edit_id, **payload)


def _decode_fold(stored: dict[str, Any]) -> Fold:
    first, last = stored["turn_range"]
    return Fold(
        handle=stored["handle"],
        summary=stored["summary"],
        facts=tuple(Fact(**fact) for fact in stored["facts"]),
        artifacts=tuple(Artifact(**artifact) for artifact in stored["artifacts"]),
        key_points=tuple(stored["key_points"]),
        turn_range=(first, last),
        by=stored["by"],
    )
