"""Exact counts with the public vocabularies, offline.

The encoder is loaded at the first count, once per process. Text is always ordinary text: a string that looks like a
special token counts as the characters it has. Input that no encoder takes (lone surrogates) is repaired first, the
same way every time. A huge text never makes the encoder slow: long runs of one character are counted by period.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from refold.errors import ConfigError

if TYPE_CHECKING:
    from splintr import AnyTokenizer

# Checked id for id against the reference encoder: counts are exact.
EXACT_ENCODINGS = ("cl100k_base", "o200k_base")
# The vocabularies of open models. We have no reference to check them against, so they carry a small margin.
OPEN_VOCABULARIES = ("llama3", "qwen3", "deepseek_v3", "glm4", "kimi_k2", "mistral_v3")

_LONG_CHARS = 32_768  # Texts from here on are searched for runs; a shorter one cannot be slow.
_PROBE_CHARS = 16_384  # A run of _LONG_CHARS covers at least one whole probe, wherever it starts.
_RUN_KEPT_CHARS = 4_096  # What stays of a run; more than any context of a token can reach.
_CUT_REACH_CHARS = 65_536
# Between an ASCII letter or digit and a blank every pre-tokenizer splits, whatever stands around.
_SAFE_CUT = re.compile(r"(?<=[A-Za-z0-9])(?=[ \n])")
_SPECIAL_OPENS = "<|"  # Every special token of the exact encodings begins with this.


class _Run(NamedTuple):
    """A stretch of one character: text[start:end]."""

    start: int
    end: int


def clean_text(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD and surrogate pairs joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@cache
def _load(encoding_name: str) -> AnyTokenizer:
    from splintr import Tokenizer  # Half the time of a first count; nobody who only imports refold should pay it.

    return Tokenizer.from_pretrained(encoding_name)


class Encoding:
    """One vocabulary. ``count`` returns how many tokens a text has."""

    def __init__(self, name: str) -> None:
        if name not in EXACT_ENCODINGS and name not in OPEN_VOCABULARIES:
            known = ", ".join((*EXACT_ENCODINGS, *OPEN_VOCABULARIES))
            raise ConfigError(f"tokenizer {name!r} is not known; use one of {known}, or 'chars/4'")
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
        if len(text) >= _LONG_CHARS and self.is_exact:
            runs = _find_runs(text)
            if runs:
                return self._count_with_runs(text, runs)
        return self._count_plain(text)

    def _count_plain(self, text: str) -> int:
        # The flat form (four bytes a token) builds no list of ints, but reads special tokens.
        if not self.is_exact or _SPECIAL_OPENS in text:
            return len(_load(self.name).encode_ordinary(text))
        if self._flat is None:
            self._flat = _load(self.name).encode_flat
        return len(self._flat(text)) >> 2

    def _count_with_runs(self, text: str, runs: list[_Run]) -> int:
        total = 0
        done = 0
        for group in _group_runs(text, runs):
            left, right, inside = group
            total += self._count_plain(text[done:left]) if left > done else 0
            shifted = [_Run(run.start - left, run.end - left) for run in inside]
            total += self._count_by_period(text[left:right], shifted)
            done = right
        return total + (self._count_plain(text[done:]) if done < len(text) else 0)

    def _count_by_period(self, text: str, runs: list[_Run]) -> int:
        """Count a text whose runs are shortened by whole tokens, and add those tokens again.

        A sequence of tokens is *the* encoding of its piece if and only if every two neighbours would also encode to
        themselves alone. So where a token stands next to its own copy, one more copy may be put between them: the
        result is again an encoding, of the longer text. Where no such place is found, the text is counted as it is.
        """
        tokenizer = _load(self.name)
        kept: list[str] = []
        places: list[tuple[int, int, int]] = []  # first and last byte of what is left of a run, and its token
        added = at = size = 0
        for run in runs:
            character = text[run.start]
            token, period = _find_period(tokenizer, character)
            if not period:
                return self._count_plain(text)
            length = _RUN_KEPT_CHARS + (run.end - run.start - _RUN_KEPT_CHARS) % period
            added += (run.end - run.start - length) // period
            before = text[at : run.start]
            size += len(before.encode())
            kept += (before, character * length)
            places.append((size, size + length * len(character.encode()), token))
            size = places[-1][1]
            at = run.end
        ids = tokenizer.encode_ordinary("".join((*kept, text[at:])))
        if not _has_neighbours(tokenizer, ids, places):
            return self._count_plain(text)
        return len(ids) + added


def _find_runs(text: str) -> list[_Run]:
    """Return the long runs of one character, in order; looks at one place in every 16,384."""
    runs: list[_Run] = []
    end = 0
    for at in range(0, len(text) - _PROBE_CHARS, _PROBE_CHARS):
        if at < end or text[at] != text[at + 1] or text[at] != text[at + 99]:
            continue
        character = text[at]
        block = character * _PROBE_CHARS
        if text[at : at + _PROBE_CHARS] != block or character.isnumeric():
            continue  # Numbers are split in threes: short pieces, never slow.
        before = text[max(end, at - _PROBE_CHARS) : at]
        start = at - (len(before) - len(before.rstrip(character)))
        end = at + _PROBE_CHARS
        while text.startswith(block, end):
            end += _PROBE_CHARS
        after = text[end : end + _PROBE_CHARS]
        end += len(after) - len(after.lstrip(character))
        runs.append(_Run(start, end))
    return runs


def _group_runs(text: str, runs: list[_Run]) -> list[tuple[int, int, list[_Run]]]:
    """Put each run between two safe cuts, as near as there are any; runs with no cut between them go together."""
    groups: list[tuple[int, int, list[_Run]]] = []
    done = 0
    for run in runs:
        if run.start < done:
            groups[-1][2].append(run)
            left = groups[-1][0]
        else:
            left = done
            for cut in _SAFE_CUT.finditer(text, max(done, run.start - _CUT_REACH_CHARS), run.start):
                left = cut.start()
            groups.append((left, 0, [run]))
        after = _SAFE_CUT.search(text, run.end)
        done = after.start() if after else len(text)
        groups[-1] = (left, done, groups[-1][2])
    return groups


def _find_period(tokenizer: AnyTokenizer, character: str) -> tuple[int, int]:
    """Return the token that fills a long run of a character, and how many of it the token holds; 0 if none does."""
    ids = tokenizer.encode_ordinary(character * _RUN_KEPT_CHARS)
    token = ids[len(ids) // 2]
    unit = character.encode()
    piece = tokenizer.decode_token_bytes(token)
    period = len(piece) // len(unit)
    return token, period if piece == unit * period else 0


def _has_neighbours(tokenizer: AnyTokenizer, ids: list[int], places: list[tuple[int, int, int]]) -> bool:
    """Tell whether in every place (first byte, last byte, token) the token stands next to its own copy."""
    sizes: dict[int, int] = {}
    waiting = iter(places)
    first, last, token = next(waiting)
    offset = 0
    previous = -1
    for current in ids:
        size = sizes.get(current)
        if size is None:
            size = sizes[current] = len(tokenizer.decode_token_bytes(current))
        if current == token == previous and offset - size >= first and offset + size <= last:
            found = next(waiting, None)
            if found is None:
                return True
            first, last, token = found
        previous = current
        offset += size
    return False
