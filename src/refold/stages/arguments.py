"""Arguments: the JSON text of an old tool call with its long values left out.

Works on the text itself, so that keys, numbers, spaces and short values stay byte for byte, and valid JSON stays
valid JSON. It must never return text that is not a JSON object, whatever came in.
"""

from __future__ import annotations

import json
import re

from refold.conversation.reason import Language
from refold.stages.gist import disarm_marks, first_line, read_json

# Possessive, and a string without an end runs to the end of the text: no text is read twice.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.S)
_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HEAD_CHARS = 60


def shorten_arguments(text: str, mark: str, language: Language, chars_min: int) -> str:
    """Return a JSON object in which every value of ``chars_min`` characters or more is a note that names the mark."""
    if not isinstance(read_json(text), dict):
        return f'{{"arguments": {_write_string(_note(text, mark, language))}}}'
    shorter = _shorten_strings(text, mark, language, chars_min)
    return _shorten_members(shorter, mark, language, chars_min)


def _shorten_strings(text: str, mark: str, language: Language, chars_min: int) -> str:
    """Replace each long string value, however deep; keys stay."""
    pieces: list[str] = []
    done = 0
    for match in _STRING.finditer(text):
        start, stop = match.span()
        if stop - start < chars_min + 2 or _is_key(text, stop):
            continue
        value: str = json.loads(match[0])
        if len(value) < chars_min:
            continue
        pieces += [text[done:start], _write_string(_note(value, mark, language))]
        done = stop
    return "".join((*pieces, text[done:]))


def _shorten_members(text: str, mark: str, language: Language, chars_min: int) -> str:
    """Replace each member of the outermost object that is long without one long string: lists, numbers, trees."""
    decoder = json.JSONDecoder()
    pieces: list[str] = []
    done = 0
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key = _STRING.match(text, at)
        assert key, "valid JSON has a key here"
        start = _skip(text, _skip(text, key.end()) + 1)
        value, stop = decoder.raw_decode(text, start)
        # A list of many notes is still long; four short strings of the size we keep are not.
        if isinstance(value, list | dict) and stop - start >= 4 * chars_min:
            pieces += [text[done:start], _write_string(_note(text[start:stop], mark, language, head=False))]
            done = stop
        at = _skip(text, stop)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return "".join((*pieces, text[done:]))


def _note(value: str, mark: str, language: Language, *, head: bool = True) -> str:
    shown = disarm_marks(first_line(value, _HEAD_CHARS).rstrip("…")) if head else ""
    unit = "字符" if language == "zh" else "characters"
    return f"{shown}…[{len(value):,} {unit} {mark}]"


def _write_string(value: str) -> str:
    # Half a surrogate pair cannot be sent raw, only escaped.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(value, ensure_ascii=False))


def _is_key(text: str, at: int) -> bool:
    return text.startswith(":", _skip(text, at))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found
    return found.end()
