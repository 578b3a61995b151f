"""The canonical form of a message, and its digest: two messages with the same digest are the same.

It ignores marks for caches, null fields and key order. A string equals one text part, all spellings of empty content
are equal, and arguments are compared as parsed JSON. Everything else counts, also fields unknown to this version. The
canonical form is for hashing only; it is never sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import orjson

from refold.conversation.message import digest_of
from refold.errors import FormatError

DEPTH_MAX = 200
_ARGUMENTS_DEPTH_MAX = 100  # Arguments are a few levels down in their message.
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
# orjson reads integers over 64 bits as floats, so that two ids could become one.
_LONG_NUMBER = re.compile(r"[0-9]{19}")
# Longer arguments are not parsed: that takes long, blocks other threads, and nothing reads their content.
ARGUMENTS_CHARS_MAX = 4_000_000
_LEVELS = 2  # Blocks are in a message, in a result, in a document; nothing nests further.
# A string without an end runs to the end of the text: searching for its end again from each quote would be quadratic.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[\[{\]}]")
_TEXT_TYPES = frozenset(("text", "input_text", "output_text"))
_STRINGS = frozenset((str,))
_CACHE_MARKS = frozenset(("cache_control", "cache_breakpoint"))  # Anthropic's, and CrewAI's, which it never sends.
# Fields that may hold something to normalise; a message without them is hashed as it is.
_TOUCHED_KEYS = frozenset(("cache_control", "tool_calls", "function_call", "arguments", "output", "type"))


def digest_message(raw: dict[str, Any], where: str = "message") -> str:
    """Return the content hash of a provider's message."""
    return digest_of(write_canonical(raw, where))


def write_canonical(raw: dict[str, Any], where: str = "message") -> bytes:
    """Return the canonical form of a provider's message as bytes."""
    # Most messages hold only strings: nothing to normalise, and no number that JSON cannot represent.
    is_strings = raw.get("content") and _STRINGS.issuperset(map(type, raw.values()))
    if is_strings and _TOUCHED_KEYS.isdisjoint(raw):
        try:
            return orjson.dumps(raw, option=_OPTIONS)
        except TypeError:
            return _dump_slowly(raw, where)
    return _dump(_canonical_message(raw), where)


def parse_arguments(text: str) -> Any:
    """Return the arguments of a call as JSON; the text itself where it is not an object or a list, or is very long."""
    is_nested = text.count("{") + text.count("[") > _ARGUMENTS_DEPTH_MAX
    if len(text) > ARGUMENTS_CHARS_MAX or (is_nested and find_depth(text) > _ARGUMENTS_DEPTH_MAX):
        return text
    try:
        value = json.loads(text) if _LONG_NUMBER.search(text) else orjson.loads(text)
    except ValueError:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
    return value if isinstance(value, dict | list) else text


def find_depth(text: str) -> int:
    """Return how deep a JSON text nests, without parsing it."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def check_depth(value: object, where: str) -> None:
    """Raise FormatError if a value nests deeper than any provider's message does."""
    layer: list[object] = [value]
    for _ in range(DEPTH_MAX):
        layer = [inner for outer in layer for inner in list_children(outer)]
        if not layer:
            return
    raise FormatError(
        "{where} nests deeper than {depth_max} levels; flatten it or leave it out", where=where, depth_max=DEPTH_MAX
    )


def list_children(value: object) -> Iterable[object]:
    """Return the values inside a JSON value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _canonical_message(raw: dict[str, Any]) -> dict[str, Any]:
    form = {key: value for key, value in raw.items() if value is not None and key not in _CACHE_MARKS}
    if form.get("type") == "message":
        del form["type"]  # Responses: a message item may leave its type out.
    for key in ("content", "output"):
        if key in form:
            form[key] = _canonical_content(form[key])
            if not form[key]:
                del form[key]
    if isinstance(form.get("arguments"), str):
        form["arguments"] = parse_arguments(form["arguments"])
    calls = form.get("tool_calls")
    if isinstance(calls, list):
        form["tool_calls"] = [_canonical_call(call) for call in calls]
        if not calls:
            del form["tool_calls"]
    if isinstance(form.get("function_call"), dict):
        form["function_call"] = _with_arguments(form["function_call"])
    return form


def _canonical_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    form = {key: value for key, value in call.items() if key != "cache_control"}
    if isinstance(form.get("function"), dict):
        form["function"] = _with_arguments(form["function"])
    return form


def _with_arguments(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments")
    return {**function, "arguments": parse_arguments(arguments)} if isinstance(arguments, str) else function


def _canonical_content(content: Any, levels: int = _LEVELS) -> Any:
    if not isinstance(content, list):
        return content
    blocks = [_canonical_block(block, levels) for block in content]
    if len(blocks) == 1 and _is_bare_text(blocks[0]):
        return blocks[0]["text"]
    return blocks


def _canonical_block(block: Any, levels: int) -> Any:
    if not isinstance(block, dict):
        return block
    form = {key: value for key, value in block.items() if value is not None and key != "cache_control"}
    if form.get("type") == "output_text":
        # Providers add these empty; clients often resend the text without them.
        form = {key: value for key, value in form.items() if value or key not in ("annotations", "logprobs")}
    if levels and isinstance(form.get("content"), str | list):
        form["content"] = _canonical_content(form["content"], levels - 1)
        if not form["content"]:
            del form["content"]
    return form


def _is_bare_text(block: Any) -> bool:
    is_bare = isinstance(block, dict) and block.keys() == {"type", "text"}
    return is_bare and isinstance(block["type"], str) and block["type"] in _TEXT_TYPES


def _dump(form: dict[str, Any], where: str) -> bytes:
    try:
        data = orjson.dumps(form, option=_OPTIONS)
    except TypeError:
        return _dump_slowly(form, where)
    # orjson writes NaN as null: the two must not be the same message.
    return _dump_slowly(form, where) if b"null" in data and has_nan(form) else data


def _dump_slowly(form: dict[str, Any], where: str) -> bytes:
    """Write what orjson refuses: lone surrogates, integers over 64 bits, NaN."""
    check_depth(form, where)
    try:
        return json.dumps(form, sort_keys=True, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as error:
        raise FormatError(
            "{where} is not JSON ({error}); give plain dicts, lists, strings and numbers", where=where, error=error
        ) from error


def has_nan(value: object) -> bool:
    """Return whether a JSON value holds NaN or infinity."""
    waiting = [value]
    for one in waiting:  # The list grows during the loop.
        if isinstance(one, float):
            if one - one != 0:
                return True
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
    return False
