"""Exact counts with the public vocabularies, offline.

The encoder is loaded at the first count, once per process. Text is always ordinary text: a string that looks like a
special token counts as the characters it has. Input that no encoder takes (lone surrogates) is repaired first, the
same way every time. What a huge text needs is in ``giant``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from refold.errors import ConfigError
from refold.tokens.giant import GIANT_CHARS, count_giant

if TYPE_CHECKING:
    from splintr import AnyTokenizer

# Checked id for id against the reference encoder: counts are exact.
EXACT_ENCODINGS = ("cl100k_base", "o200k_base")
# The vocabularies of open models. We have no reference to check them against, so they carry a small margin.
OPEN_VOCABULARIES = ("llama3", "qwen3", "deepseek_v3", "glm4", "kimi_k2", "mistral_v3")

_SPECIAL_OPENS = "<|"  # Every special token of the exact encodings begins with this.


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD and surrogate pairs joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@cache
def _load(encoding_name: str) -> AnyTokenizer:
    from splintr import Tokenizer  # Most of a first count; nobody who only imports refold should pay for it.

    return Tokenizer.from_pretrained(encoding_name)


class Encoding:
    """One vocabulary. ``count`` returns how many tokens a text has."""

    def __init__(self, name: str) -> None:
        if name not in EXACT_ENCODINGS and name not in OPEN_VOCABULARIES:
            known = ", ".join((*EXACT_ENCODINGS, *OPEN_VOCABULARIES))
            raise ConfigError(f"tokenizer {name!r} is not known; use one of {known}, 'estimate' or 'chars/4'")
        self.name = name
        self.is_exact = name in EXACT_ENCODINGS
        self._flat: Callable[[str], bytes] | None = None

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, read as ordinary text throughout."""
        if not text:
            return 0
        try:
            return self._count(text)
        except UnicodeEncodeError:
            return self._count(clean_text(text))

    def _count(self, text: str) -> int:
        if not self.is_exact:
            return len(_load(self.name).encode_ordinary(text))
        if len(text) >= GIANT_CHARS:
            return count_giant(text, _load(self.name), self._encode)
        return len(self._encode(text)) >> 2

    def _encode(self, text: str) -> bytes:
        """Return the ids of a text, four bytes each."""
        # The flat form builds no list of ints, which is half the time, but it reads special tokens.
        if _SPECIAL_OPENS in text:
            return array("I", _load(self.name).encode_ordinary(text)).tobytes()
        if self._flat is None:
            self._flat = _load(self.name).encode_flat
        # The encoder leaves the UTF-8 form behind on every string that is not ASCII, for as long as the string lives:
        # a copy takes it away with it.
        return self._flat(text if text.isascii() else f"{text[:1]}{text[1:]}")
