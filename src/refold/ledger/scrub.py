"""Removing the words of forgotten messages from notes about them: events, reasons, titles. Pure.

We write these notes, but they may quote: a sentence that a check dropped, or a provider's error. A text that shares a
word with the forgotten messages is replaced whole; losing a note is better than keeping a secret. Figures, times, ids
and file names stay, so that bills and logs still add up.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from refold.conversation.reason import CATALOGUE
from refold.ledger.codec import load_json

GONE = "[forgotten]"
_WORD = re.compile(r"[^\W_]{3,}")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
# Fields that hold names, ids and hashes, and never a sentence.
_NAMES = frozenset(
    {
        "model", "strength", "stages", "memory", "edits", "edit", "files", "handles", "batch", "by", "changes", "role",
        "type", "id", "call_id", "tool_call_id",
    }
)  # fmt: skip
# Words of our own sentences. They reveal nothing about a message that also uses them.
_OURS = frozenset(
    {
        "the", "and", "for", "was", "not", "were", "are", "has", "had", "that", "this", "with", "from", "than", "then",
        "been", "below", "above", "over", "under", "after", "before", "into", "message", "messages", "token", "tokens",
        "window", "budget", "view", "room", "user", "newest", "last", "first", "more", "less", "left", "nothing",
        "added", "taken", "back", "compressed", "compression", "compressions", "summary", "summaries", "fold", "folded",
        "hard", "soft", "warn", "trigger", "reached", "limit", "model", "request", "provider", "session", "rounds",
        "ratio", "person", "asked", "which", "could", "compress", "compressing", "another", "process", "does", "fit",
        "cache", "cold", "cut", "off", "answer", "finish", "reason", "length", "recall", "refused", "long", "tuned",
        "failed",
    }
)  # fmt: skip


class Words:
    """The words of the texts to forget. If one of the texts is already erased, every word counts."""

    def __init__(self, bodies: Iterable[bytes | None]) -> None:
        self._is_all = False
        known: set[str] = set()
        for body in bodies:
            if body is None:
                self._is_all = True
            else:
                known.update(*map(_split, _list_texts(load_json(body))))
        self._known = known
        self._sorted = sorted(known)

    def are_in(self, text: str) -> bool:
        """Return whether a text has one of the words; its last word may be cut short."""
        if self._is_all:
            return bool(text)
        words = _split(text)
        return not self._known.isdisjoint(words) or any(self._begins(word) for word in words[-1:])

    def _begins(self, word: str) -> bool:
        at = bisect_left(self._sorted, word)
        return at < len(self._sorted) and self._sorted[at].startswith(word)

    def take_out(self, value: Any) -> Any:
        """Return a JSON value with every text that has one of the words replaced; the same object if there is none."""
        if isinstance(value, str):
            return GONE if value != GONE and self.are_in(value) else value
        if isinstance(value, Mapping):
            changed: Any = {key: held if key in _NAMES else self.take_out(held) for key, held in value.items()}
            if isinstance(value.get("values"), Mapping) and str(value.get("code")) in CATALOGUE:
                changed["code"] = value["code"]  # A reason: the code is ours, only the values may quote.
        elif isinstance(value, list):
            changed = [self.take_out(held) for held in value]
        else:
            return value
        return value if changed == value else changed


def _split(text: str) -> list[str]:
    folded = text.casefold()
    # Chinese has no spaces: any two consecutive characters count as a word.
    pairs = [run[at : at + 2] for run in _CJK.findall(folded) for at in range(max(1, len(run) - 1))]
    return pairs + [word for word in _WORD.findall(folded) if word not in _OURS]


def _list_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            if key not in _NAMES:
                yield from _list_texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _list_texts(held)
