"""Text as a column of PostgreSQL can hold it: no NUL, no lone surrogate, one spelling for each text. Pure.

Both are written as escapes, and so is the backslash that begins an escape. Nearly every text stays as it is, so that
people read their tables; equal texts stay equal and different ones different.
"""

from __future__ import annotations

import re

_ODD = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def encode_column(text: str) -> str:
    """Return a text as it is stored."""
    return _ODD.sub(_escape, text)


def decode_column(stored: str) -> str:
    """Return the text that ``encode_column`` was given."""
    return _ESCAPE.sub(_unescape, stored) if "\\" in stored else stored


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\\":
        return "\\\\"
    return "\\0" if character == "\0" else f"\\u{ord(character):04x}"


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code == "\\":
        return "\\"
    return "\0" if code == "0" else chr(int(code[1:], 16))
