"""mask: replace old observations by one line each that says what they were, how large, and how to get them back.

Old large arguments of tool calls lose their long values and stay a JSON object: keys, numbers, spaces and short values
stay byte for byte. Old pictures become a phrase; only their header is read, and no block, however strange, raises an
error. Every line it writes is a line of the original or carries a handle. It never touches the newest units, and never
a fold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part, mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, Item, View
from refold.reading.fields import read_json
from refold.reading.values import find_values
from refold.stages.gist import (
    describe_call,
    describe_size,
    disarm_marks,
    find_observations,
    first_line,
    tell_outcome,
)
from refold.stages.stage import Goal, When, check_options, count_part, replace_part, seen_part, take_until_met
from refold.tokens.images import decode_head, read_size

# Kinds of values that a later step is most likely to use again. Measured: see docs/reference/stages/mask.md.
_WEIGHTS = {"id": 1.4, "file": 1.3, "email": 1.3, "date": 1.2, "identifier": 1.0, "url": 0.9, "money": 1.0, "name": 0.8}
_WEIGHT = 0.6
_VALUES_MAX = 80
_VALUE_CHARS = 80
_CALL_CHARS = 600


@dataclass(frozen=True, slots=True)
class Mask:
    """Keep the newest ``keep`` units that hold calls, results or media; mask what is older and large enough.

    The line of a masked result names up to ``values`` of its exact values that the view shows nowhere else, or
    ``values_share`` of them where they are many.
    """

    name: ClassVar[str] = "mask"
    when: ClassVar[When] = "batch"

    keep: int = 3
    tokens_min: int = 80
    arguments_tokens_min: int = 150
    value_chars_min: int = 160
    media: bool = True
    values: int = 16
    values_share: float = 0.4

    def __post_init__(self) -> None:
        check_options(self)

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return replacements, oldest first, until the target would be met."""
        return take_until_met(view, goal, self._mask_parts(view, goal.language))

    def _mask_parts(self, view: View, language: Language) -> Iterator[Edit | None]:
        writer = _Writer(self, view, language)
        reason = because.OLD_OBSERVATION()
        for at in range(self._find_border(view)):
            item = view.items[at]
            if item.is_fold or at in view.protected:
                continue
            for index in range(len(item.message.parts)):
                if text := writer.write(at, index):
                    yield replace_part(item, index, text, view=view, stage=self.name, reason=reason)

    def _find_border(self, view: View) -> int:
        """Return the first index that is not masked."""
        kept = 0
        for unit in reversed(view.units):
            if not _holds_observation(view.items, unit):
                continue
            if kept == self.keep:
                return unit.stop
            kept += 1
        return 0


class _Writer:
    """Writes the placeholders of one view, and remembers which values they show."""

    def __init__(self, options: Mask, view: View, language: Language) -> None:
        self._options = options
        self._view = view
        self._language = language
        self._calls = {(seen.at, seen.part): seen.call for seen in find_observations(view)}
        self._shown = _find_shown(view) if options.values else set()

    def write(self, at: int, index: int) -> str | None:
        """Return the placeholder for one part of an item; None if the part does not change."""
        item, options = self._view.items[at], self._options
        part, seen = item.message.parts[index], seen_part(item, index)
        edit = item.edited_parts().get(index)
        if seen is None or (edit is not None and edit.stage == Mask.name):
            return None
        handle = mark(message_handle(item.message, index))
        if part.kind == "result":
            return self._write_result(seen, part, self._calls.get((at, index)), handle)
        if part.kind == "call" and self._view.lens.count_text(seen.text) >= options.arguments_tokens_min:
            return shorten_arguments(part.text, handle, self._language, options.value_chars_min)
        if seen.kind == "media" and options.media:
            return f"[{_describe_media(part, self._language)} {handle}]"
        return None

    def _write_result(self, seen: Part, part: Part, call: Part | None, handle: str) -> str | None:
        options = self._options
        if self._view.lens.count_text(seen.text) >= options.tokens_min:
            values = self._choose_values(part.text) if options.values else []
            return mask_line(part, call, handle, self._language, values=values)
        if seen.inside and options.media and count_part(self._view, seen) >= options.tokens_min:
            # The result's text stays: only its pictures are large.
            pictures = [f"[{_describe_media(media, self._language)} {handle}]" for media in seen.inside]
            return "\n".join((part.text, *pictures) if part.text else pictures)
        return None

    def _choose_values(self, text: str) -> list[str]:
        """Return the exact values of a text that are worth a place in its line, and count them as shown."""
        found = find_values(text)
        ranked = sorted(found.items(), key=lambda pair: -_WEIGHTS.get(pair[0][0], _WEIGHT) * min(pair[1], 4))
        most = max(self._options.values, min(_VALUES_MAX, int(self._options.values_share * len(found))))
        new = [value for (_, value), _ in ranked if len(value) <= _VALUE_CHARS and value not in self._shown]
        chosen = list(dict.fromkeys(new))[:most]
        self._shown.update(chosen)
        return chosen


def mask_line(result: Part, call: Part | None, handle: str, language: Language, *, values: Sequence[str]) -> str:
    """Return the line that replaces a result, followed by the lines that say how the tool failed, if it did."""
    tool = (call.name if call else "") or result.name
    facts = [describe_size(result.text, language), *(_describe_media(media, language) for media in result.inside)]
    if result.is_error:
        facts.insert(0, "出错" if language == "zh" else "error")
    line = f"[{describe_call(tool, call.text if call else '')} → {', '.join(facts)}"
    if values:
        line += f"{'；其中：' if language == 'zh' else '; in it: '}{' '.join(values)}"
    return "\n".join((f"{line} {handle}]", *tell_outcome(result, call)))


def _find_shown(view: View) -> set[str]:
    """Return the exact values that the view shows outside of results, where masking cannot remove them."""
    texts = (
        part.text
        for item in view.items
        for part in item.parts
        if part.kind == "text" or (part.kind == "call" and len(part.text) <= _CALL_CHARS)
    )
    return {value for text in texts for _, value in find_values(text)}


def _holds_observation(items: Sequence[Item], unit: Unit) -> bool:
    return any(
        part.kind in ("call", "result", "media") for item in items[unit.start : unit.stop] for part in item.parts
    )


# Possessive, and a string without an end runs to the end of the text: no text is read twice.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.S)
_SPACE = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN_CHARS = 60


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
        if stop - start < chars_min + 2 or text.startswith(":", _skip(text, stop)):
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
    shown = disarm_marks(first_line(value, _SHOWN_CHARS).rstrip("…")) if head else ""
    unit = "字符" if language == "zh" else "characters"
    return f"{shown}…[{len(value):,} {unit} {mark}]"


def _write_string(value: str) -> str:
    # Half a surrogate pair cannot be sent raw, only escaped.
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(value, ensure_ascii=False))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found
    return found.end()


_DEPTH_MAX = 4
_NAME_CHARS = 60
_DATA_KEYS = ("data", "file_data", "url", "image_url", "image_base64")
_NAME_KEYS = ("filename", "title", "file_id")
_WORDS: dict[str, dict[Language, str]] = {
    "image": {"en": "image", "zh": "图片"},
    "audio": {"en": "audio", "zh": "音频"},
    "video": {"en": "video", "zh": "视频"},
    "document": {"en": "document", "zh": "文档"},
}


def _describe_media(part: Part, language: Language) -> str:
    """Return what a media part was: its kind, name or address, pixels and size, as far as its block says."""
    strings = list(_find_strings(part.payload, _DEPTH_MAX))
    data = next((text for key, text in strings if key in _DATA_KEYS), "")
    kind = _find_kind(part, strings, data)
    facts = [_WORDS[kind][language]]
    facts += [first_line(text, _NAME_CHARS) for key, text in strings if key in _NAME_KEYS][:1]
    if data.startswith(("http:", "https:", "file:")):
        facts.append(first_line(data, _NAME_CHARS * 2))
        return ", ".join(facts)
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    size = read_size(decode_head(encoded)) if kind == "image" else None
    if size:
        facts.append(f"{size.width}×{size.height}")
    if encoded:
        facts.append(_write_bytes(len(encoded) * 3 // 4 - encoded[-2:].count("=")))
    return ", ".join(facts)


def _find_kind(part: Part, strings: list[tuple[str, str]], data: str) -> str:
    hints = [text for key, text in strings if key in ("type", "media_type", "mime_type")]
    hint = " ".join((part.name, data[:40] if data.startswith("data:") else "", *(text[:60] for text in hints))).lower()
    for word in ("image", "audio", "video"):
        if word in hint:
            return word
    return "document"


def _find_strings(value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every string in a block with its key, outermost first."""
    if not isinstance(value, Mapping) or not depth:
        return
    for key, inner in value.items():
        if isinstance(inner, str):
            yield str(key), inner
    for inner in value.values():
        yield from _find_strings(inner, depth - 1)


def _write_bytes(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.0f} KB"
    return f"{count / 1024 / 1024:.1f} MB"
