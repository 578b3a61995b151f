"""Tokens of a text: exact counts with public vocabularies, offline, and estimates for other tokenizers.

The encoder is loaded at the first count. Text is always ordinary text, also where it looks like a special token; lone
surrogates are repaired first. The encoder's time grows with the text, also in a run of one character.

An estimate corrects the exact count of o200k for other scripts and digits, because large vocabularies cut English and
code alike. It leans to the high side; ``margin`` says by how much it may be too low, and ``Calibration`` narrows that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from refold.errors import ConfigError

# Checked id for id against the reference encoder: counts are exact.
EXACT_ENCODINGS = ("cl100k_base", "o200k_base")
# The vocabularies of open models. We have no reference to check them against, so they carry a small margin.
OPEN_VOCABULARIES = ("llama3", "qwen3", "deepseek_v3", "glm4", "kimi_k2", "mistral_v3")

# The encoder lets other threads run only while it encodes a batch: a longer text is a batch of one.
SHARED_CHARS = 4_096
_CHUNK_CHARS = 65_536  # Elsewhere other threads may have to wait while this much is encoded.
_SPECIAL_OPENS = "<|"  # Every special token of the exact encodings begins with this.


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD and surrogate pairs joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Vocabulary(Protocol):
    """The methods of the encoder library that we call. Its own types come only with some of its versions."""

    def encode_ordinary(self, text: str, /) -> list[int]: ...
    def encode_flat(self, text: str, /) -> bytes: ...
    def encode_batch_flat(self, texts: list[str], /) -> tuple[bytes, bytes]: ...


@cache
def load_vocabulary(encoding_name: str) -> Vocabulary:
    from splintr import Tokenizer  # Slow to import: most of the time of a first count.

    loaded: Vocabulary = Tokenizer.from_pretrained(encoding_name)
    return loaded


class Encoding:
    """One vocabulary. ``count`` returns how many tokens a text has."""

    def __init__(self, name: str) -> None:
        if name not in EXACT_ENCODINGS and name not in OPEN_VOCABULARIES:
            known = ", ".join((*EXACT_ENCODINGS, *OPEN_VOCABULARIES))
            raise ConfigError(
                "tokenizer {name!r} is not known; use one of {known}, 'estimate' or 'chars/4'", name=name, known=known
            )
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
        # Special tokens of open vocabularies have many forms; those of the exact ones all begin alike.
        if not self.is_exact or _SPECIAL_OPENS in text:
            ordinary = load_vocabulary(self.name).encode_ordinary
            return sum(len(ordinary(piece)) for piece in cut_safely(text))
        # Flat ids, four bytes each, take half the time of a list, but special tokens are read as such.
        if self._flat is None:
            self._flat = load_vocabulary(self.name).encode_flat
        # The encoder caches the UTF-8 form on every string that is not ASCII, for as long as the string lives. Encoding
        # a copy lets that memory go with the copy.
        plain = text if text.isascii() else f"{text[:1]}{text[1:]}"
        is_short = len(text) < SHARED_CHARS
        return len(self._flat(plain) if is_short else load_vocabulary(self.name).encode_batch_flat([plain])[0]) >> 2


# Between an ASCII letter or digit and a blank, between a letter and a digit, and between an ideograph and a Chinese
# mark there is always a split, whatever the context: no piece crosses it.
_SAFE_CUT = re.compile(r"(?<=[A-Za-z0-9])(?=[ \n])|(?<=[A-Za-z])(?=[0-9])|(?<=[\u4e00-\u9fa5])(?=[，。！？；：])")


def cut_safely(text: str) -> Iterator[str]:
    """Yield a long text in chunks that together have its tokens; whole where nothing splits it."""
    start = 0
    while cut := _SAFE_CUT.search(text, start + _CHUNK_CHARS):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class Profile:
    """The difference of a family's tokenizer from o200k: a factor, tokens per extra byte and per digit, the margin."""

    factor: float
    per_wide_byte: float
    per_digit: float
    margin: float


# Measured in 2026-11 against the vocabularies of Llama 3, Qwen 3, DeepSeek V3, GLM 4, Kimi K2, Mistral, Gemma 3 and
# of an early Claude, on English, Chinese, JSON, logs, code, base64 (see tests). Arabic and Hindi may exceed the
# margin with vocabularies that hardly know them; reported usage corrects that.
PROFILES: dict[str, Profile] = {
    "claude": Profile(factor=1.2, per_wide_byte=0.2, per_digit=0.0, margin=0.25),
    "gemini": Profile(factor=1.1, per_wide_byte=0.0, per_digit=0.6, margin=0.15),
    "generic": Profile(factor=1.1, per_wide_byte=0.05, per_digit=0.2, margin=0.25),
}


class Estimate:
    """An estimator of one family, with the same ``count`` as an exact encoding."""

    def __init__(self, family: str) -> None:
        self.family = family if family in PROFILES else "generic"
        self.name = f"estimate:{self.family}"
        self.profile = PROFILES[self.family]
        self._ruler = Encoding("o200k_base")

    def count(self, text: str) -> int:
        """Return about how many tokens a text has, rounded up."""
        if not text:
            return 0
        profile = self.profile
        tokens = self._ruler.count(text) * profile.factor
        if profile.per_digit or not text.isascii():
            # A lone surrogate is three bytes here, as the character that replaces it is.
            utf8 = text.encode("utf-8", "surrogatepass")
            tokens += (len(utf8) - len(text)) * profile.per_wide_byte
            if profile.per_digit:
                tokens += (len(utf8) - len(utf8.translate(None, _DIGITS))) * profile.per_digit
        return math.ceil(tokens)
