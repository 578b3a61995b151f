"""merge: replace a message that a newer one repeats by a pointer and the sentences that only the older one has.

Off by default. It looks only at plain messages: text of user or assistant, no calls, no results. A user's words are
merged only if they differ in nothing but spaces and case. Candidates come from an index over the rarest words, so
the work stays close to linear. It must never hide a sentence that the newer message does not have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.view import Edit, Item, View
from refold.reading.sentences import split_sentences
from refold.stages.gist import describe_size
from refold.stages.stage import Goal, When, check_options, replace_part, seen_part, take_until_met

_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_HAN_RUN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+")
_WORDS_MAX = 4_000  # A longer message is compared only as a whole.
_CANDIDATES_MAX = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Plain:
    """A plain message: where it is, its text as it would be compared, and its set of words."""

    at: int
    item: Item
    text: str
    folded: str
    words: frozenset[str]


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge messages of ``chars_min`` or more whose sets of words are alike (Jaccard) by ``alike_min`` or more."""

    name: ClassVar[str] = "merge"
    when: ClassVar[When] = "batch"

    chars_min: int = 80
    alike_min: float = 0.8

    def __post_init__(self) -> None:
        check_options(self)

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the pointers, oldest first, until the target would be met."""
        reason = because.NEWER_MESSAGE()
        pointers = (
            replace_part(
                older.item, 0, _describe(older, newer, goal.language), view=view, stage=self.name, reason=reason
            )
            for older, newer in self._find_pairs(view)
        )
        return take_until_met(view, goal, pointers)

    def _find_pairs(self, view: View) -> list[tuple[_Plain, _Plain]]:
        """Return each message to merge and the newer one it points to, oldest first; the newer one is never merged."""
        plain = [found for at, item in enumerate(view.items) if (found := self._read_plain(at, item)) is not None]
        counts = Counter(word for one in plain for word in one.words)
        whole: dict[tuple[str, str], _Plain] = {}
        by_word: dict[str, list[_Plain]] = {}
        pairs: list[tuple[_Plain, _Plain]] = []
        for one in reversed(plain):
            key = (one.item.role, one.folded)
            rare = self._rarest_words(one, counts)
            newer = whole.get(key) or self._find_alike(one, rare, by_word)
            if newer is not None and one.at not in view.protected:
                pairs.append((one, newer))
                continue
            whole.setdefault(key, one)
            if one.item.role == "assistant":
                for word in rare:
                    by_word.setdefault(word, []).append(one)
        return pairs[::-1]

    def _read_plain(self, at: int, item: Item) -> _Plain | None:
        if item.is_fold or item.role not in ("user", "assistant") or len(item.message.parts) != 1 or item.edits:
            return None
        part = seen_part(item, 0)
        if part is None or part.kind != "text" or len(part.text) < self.chars_min or item.message.is_sealed:
            return None
        folded = " ".join(part.text.casefold().split())
        return _Plain(at, item, part.text, folded, _split_words(folded))

    def _rarest_words(self, one: _Plain, counts: Counter[str]) -> list[str]:
        """Return the words of which at least one is shared by any two messages that are alike enough."""
        if len(one.words) > _WORDS_MAX or not one.words:
            return []
        ranked = sorted(one.words, key=lambda word: (counts[word], word))
        return ranked[: len(ranked) - math.ceil(self.alike_min * len(ranked)) + 1]

    def _find_alike(self, one: _Plain, rare: list[str], by_word: dict[str, list[_Plain]]) -> _Plain | None:
        if one.item.role != "assistant":
            return None
        tried: set[int] = set()
        best: tuple[float, int, _Plain] | None = None
        for word in rare:
            for other in by_word.get(word, ())[:_CANDIDATES_MAX]:
                if other.at in tried or len(tried) >= _CANDIDATES_MAX:
                    continue
                tried.add(other.at)
                shared = len(one.words & other.words)
                alike = shared / (len(one.words) + len(other.words) - shared)
                if alike >= self.alike_min and (best is None or (alike, other.at) > best[:2]):
                    best = (alike, other.at, other)
        return best[2] if best else None


def _split_words(folded: str) -> frozenset[str]:
    """Return words, and pairs of neighbours where Chinese is written without spaces."""
    words: set[str] = set()
    for word in _WORD.findall(folded):
        runs = _HAN_RUN.findall(word)
        if not runs:
            words.add(word)
        for run in runs:
            words.update(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return frozenset(words)


def _describe(older: _Plain, newer: _Plain, language: Language) -> str:
    here, there = (mark(message_handle(one.item.message, 0)) for one in (older, newer))
    size = describe_size(older.text, language)
    known = {" ".join(one.text.casefold().split()) for one in split_sentences(newer.text, with_blocks=False)}
    sentences = (one.text for one in split_sentences(older.text, with_blocks=False))
    own = [sentence for sentence in sentences if " ".join(sentence.casefold().split()) not in known]
    if language == "zh":
        head = f"[与较新的消息 {there} 意思相同" + ("，除了以下句子" if own else "") + f"；{size} {here}]"
    else:
        head = f"[says the same as the newer message {there}" + (" but for what follows" if own else "")
        head += f"; {size} {here}]"
    return "\n".join((head, *own))
