"""Any value as JSON text, for counting and for reading: never fails, and is the same everywhere."""

from __future__ import annotations

import json

import orjson


def write_json(value: object) -> str:
    """Return anything as JSON text; what neither JSON nor Python can write counts as the name of its type."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def read_text(value: object) -> str:
    """Return a string as it is, nothing for null, and JSON for all else."""
    if isinstance(value, str):
        return value
    return "" if value is None else write_json(value)
