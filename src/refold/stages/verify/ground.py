"""The ground a summary stands on: every word of its source, and the question whether something stands there.

Read from the originals, calls and results included, never from an earlier summary. Built once per fold; a question
is asked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from refold.conversation.message import Message
from refold.stages.gist import read_json
from refold.stages.verify.claims import is_number, join_thousands, normalise

_PARSE_CHARS_MAX = 400_000
_DEPTH_MAX = 20
TRIES_MAX = 5_000
_INNER = re.compile(r"[0-9A-Za-z_\u00c0-\u024f\u0370-\u052f]")
_SPOKEN = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
Voice = Literal["user", "assistant", "tool"]
_PRODUCT = re.compile(r"[A-Z][A-Za-z]+")


def split_words(text: str) -> list[str]:
    """Return the words of a text, lower case, without signs; each Chinese character is one."""
    return _SPOKEN.findall(normalise(text).lower())


class Ground:
    """What was said, as text to look things up in."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = normalise("\n".join(texts))
        joined = join_thousands(self._text)
        self._joined = joined if joined != self._text else ""
        self._lower: str | None = None
        self._plain: str | None = None
        self._known: dict[str, bool] = {}

    @classmethod
    def of_voice(cls, messages: Iterable[Message], voice: Voice, also: Iterable[str] = ()) -> Ground:
        """Return what one side said: the text of ``user`` or ``assistant`` messages, or what tools gave back."""
        if voice == "tool":
            return cls([part.text for message in messages for part in message.parts if part.kind == "result"])
        said = [
            part.text for message in messages if message.role == voice for part in message.parts if part.kind == "text"
        ]
        return cls([*said, *also])

    @classmethod
    def of_messages(cls, messages: Iterable[Message], also: Iterable[str] = ()) -> Ground:
        """Return the ground of these messages; ``also`` is other text that may be quoted."""
        return cls([*(text for message in messages for text in _read_texts(message)), *also])

    def has(self, claim: str) -> bool:
        """Tell whether a claim stands in the source as a whole word."""
        known = self._known.get(claim)
        if known is None:
            known = self._known[claim] = self._look_up(claim)
        return known

    def has_text(self, text: str) -> bool:
        """Tell whether a text stands in the source as it is."""
        return normalise(text) in self._text

    def has_run(self, words: Sequence[str]) -> bool:
        """Tell whether words stand in the source one after the other, whatever is between them but other words."""
        if self._plain is None:
            self._plain = f" {' '.join(split_words(self._text))} "
        return f" {' '.join(words)} " in self._plain

    def _look_up(self, claim: str) -> bool:
        if is_number(claim):
            bare = claim.strip("$#~%+-")
            return _finds(self._text, bare, _is_whole_number) or _finds(self._joined, bare, _is_whole_number)
        if _finds(self._text, claim, _is_whole_word):
            return True
        if self._joined and _finds(self._joined, claim, _is_whole_word):
            return True
        if _PRODUCT.fullmatch(claim):
            # GitHub for github is a spelling, not an invention; a name that code would use is taken by the letter.
            if self._lower is None:
                self._lower = self._text.lower()
            return _finds(self._lower, claim.lower(), _is_whole_word)
        return False


def _finds(text: str, wanted: str, is_whole: Callable[[str, int, int], bool]) -> bool:
    at = text.find(wanted)
    # Text made to be slow has it at every place, and nowhere whole: then it counts as absent, which drops a sentence.
    for _ in range(TRIES_MAX):
        if at < 0:
            return False
        if is_whole(text, at, at + len(wanted)):
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_whole_word(text: str, start: int, stop: int) -> bool:
    before = start > 0 and _INNER.match(text[start]) and _INNER.match(text[start - 1])
    after = stop < len(text) and _INNER.match(text[stop - 1]) and _INNER.match(text[stop])
    return not before and not after


def _is_whole_number(text: str, start: int, stop: int) -> bool:
    """A number is not part of a longer one: neither of its digits nor of its decimals."""
    if start and (text[start - 1].isdigit() or (text[start - 1] == "." and text[start - 2 : start - 1].isdigit())):
        return False
    follows = text[stop : stop + 2]
    return not (follows[:1].isdigit() or (follows[:1] == "." and follows[1:].isdigit()))


def _read_texts(message: Message) -> Iterable[str]:
    for part in message.parts:
        if part.name:
            yield part.name
        yield part.text
        if part.kind == "call" and "\\" in part.text:
            yield part.text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
            if len(part.text) <= _PARSE_CHARS_MAX:
                yield from _list_strings(read_json(part.text))


def _list_strings(value: object, depth: int = 0) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH_MAX and isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _list_strings(inner, depth + 1)
    elif depth < _DEPTH_MAX and isinstance(value, list):
        for inner in value:
            yield from _list_strings(inner, depth + 1)
