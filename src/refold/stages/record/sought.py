"""The line of a result that answers what was looked for: it shares rare words with the task and with its own call.

An agent that reads without a word leaves no finding behind. The one line of a long output that has the task's words and
a number is most likely what it read the output for. Nothing is claimed: the line is quoted behind its call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from refold.memo import Memo
from refold.reading.same import matter_words

# Texts beyond these sizes are not searched: a task of so many words names everything, a larger result is data.
WORDS_MAX, RESULT_CHARS_MAX = 80, 200_000
LINE_CHARS = range(8, 241)
WORD_CHARS_MIN = 4
# A word on more lines of a result than this does not tell one of them from the others.
RARE_LINES = 2
SHARED_MIN = 2
_FOUND: Memo[str] = Memo(4_000_000, len)


def choose_sought(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the words that results are searched for, in the order of a fixed alphabet."""
    words = {word for text in texts for word in matter_words(text)}
    telling = [word for word in words if len(word) >= WORD_CHARS_MIN or not word.isascii() or not word.isalpha()]
    return tuple(sorted(telling)) if len(telling) <= WORDS_MAX else ()


def find_sought(text: str, words: tuple[str, ...], call: str) -> str:
    """Return the line of a result that shares most rare words with the task and the call; empty if none stands out."""
    words = tuple(sorted({*words, *choose_sought([call[:200]])}))
    if not words or not text.count("\n") >= SHARED_MIN or len(text) > RESULT_CHARS_MAX:
        return ""
    return _FOUND.recall(lambda: _search(text, words), text, words)


def _search(text: str, words: tuple[str, ...]) -> str:
    words = tuple(sorted(words, key=len, reverse=True))
    found = [(line.strip(), _find_words(line.lower(), words)) for line in text.split("\n")]
    lines = Counter(word for _, met in found for word in met)
    best, most = "", float(SHARED_MIN) - 0.5
    for line, met in found:
        rare = sum(1 / lines[word] for word in met if lines[word] <= RARE_LINES)
        if rare > most and len(line) in LINE_CHARS and any(sign.isdigit() for sign in line):
            best, most = line, rare
    return best


def _find_words(line: str, words: Iterable[str]) -> list[str]:
    """Return the words that a line has, longest first; a part of one of them is not counted as another."""
    met: list[str] = []
    for word in words:
        if word in line:
            met.append(word)
            line = line.replace(word, "\n")
    return met
