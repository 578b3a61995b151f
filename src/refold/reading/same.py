"""Whether two texts speak of the same matter: commands, paths and sentences, compared without their accidents."""

from __future__ import annotations

import re
from functools import lru_cache

_QUOTED = re.compile(r"""["'`]""")
# Everything before the last of these in a command sets the scene: a folder, an environment.
_SCENE = re.compile(
    r"^(?:(?:cd|source|export|set|pushd|\.)\s[^\n&;]*(?:&&|;|\n)\s*|[A-Z_][A-Z0-9_]*=\S*\s+|(?:sudo|time|timeout\s+\S+|nice|env)\s+)+"
)
# How much of the output is looked at is no part of what was run.
_TAIL = re.compile(
    r" ?(?:2?>&? ?\S+|\| ?(?:head|tail|grep|less|cat|tee|sed|awk|wc|sort|uniq)\b(?:[^|'\"]|'[^']*'|\"[^\"]*\")*"
    r"|\|\| ?(?:true|echo\b.*)|; ?echo\b.*)$"
)
_WORD = re.compile(r"[A-Za-z_][\w.'/-]*|\d[\w.,:/-]*|[\u3400-\u9fff]+")
_HAN = re.compile(r"[\u3400-\u9fff]")
_GRAMMAR_WORDS = (
    "a|an|and|are|as|at|be|been|but|by|can|could|did|do|does|for|from|had|has|have|"
    "he|her|here|him|his|how|i|if|in|into|is|it|its|just|let|me|my|now|of|on|or|our|"
    "out|please|she|should|so|some|that|the|their|them|then|there|these|they|this|to|too|"
    "up|us|was|we|were|what|when|where|which|who|will|with|would|you|your|also|always|"
    "never|not|no|don't|doesn't|must|need|want|i'll|i'm|it's|that's|let's|very|really|"
    "still|only|all|any|use|using|make|keep|add"
)
_GRAMMAR = frozenset(_GRAMMAR_WORDS.split("|"))
_NO = re.compile(
    r"\b(?:not|no|never|none|cannot|without|fails?|failed|failing|broken|wrong|missing|isn't|aren't|wasn't|doesn't"
    r"|don't|didn't|can't|won't|couldn't|unable|still)\b|不|没|未|无法|失败|错误|别",
    re.IGNORECASE,
)


@lru_cache(4096)
def command_key(command: str) -> str:
    """Return what two runs of one command share: without folder, environment, filters of output and spacing."""
    lines = [line for line in command[:2000].split("\n") if not line.lstrip().startswith("#")]
    text = " ".join(_SCENE.sub("", "\n".join(lines).strip()).split())
    while (cut := _TAIL.sub("", text)) != text:
        text = cut
    return text[:400] or " ".join(command.split())[:400]


@lru_cache(4096)
def matter_words(text: str) -> frozenset[str]:
    """Return the words that a sentence is about: no grammar, English without plural and tense, Chinese as pairs."""
    words: set[str] = set()
    for match in _WORD.finditer(text[:2000]):
        word = match.group().lower().rstrip(".'/-")
        if _HAN.match(word):
            words.update(word[at : at + 2] for at in range(len(word) - 1))
        elif len(word) > 1 and word not in _GRAMMAR:
            words.add(_stem(word))
    return frozenset(words)


def share_matter(one: str, other: str, *, of_longer: bool = False) -> float:
    """Return how much of the shorter (or longer) text's words the other one has, 0 to 1."""
    left, right = matter_words(one), matter_words(other)
    size = max(len(left), len(right)) if of_longer else min(len(left), len(right))
    return len(left & right) / size if size else 0.0


@lru_cache(4096)
def is_negative(text: str) -> bool:
    """Return whether a sentence denies something or speaks of a failure."""
    return bool(_NO.search(text))


def same_path(one: str, other: str) -> bool:
    """Return whether two paths may name one file: equal, or one is the end of the other, as with a working folder."""
    one, other = tidy_path(one), tidy_path(other)
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


def covers_path(folder: str, path: str) -> bool:
    """Return whether what a command names (a file, a folder, or everything) contains this path."""
    folder = tidy_path(folder)
    return folder in ("", ".", "*", ":/", "--all") or same_path(folder, path) or f"/{folder}/" in f"/{tidy_path(path)}"


@lru_cache(4096)
def tidy_path(path: str) -> str:
    """Return a path without quotes, a leading ``./`` and a trailing slash."""
    path = _QUOTED.sub("", path).strip()
    while path.startswith("./") and len(path) > 2:
        path = path[2:]
    return path.rstrip("/") if len(path) > 1 else path


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and word.isalpha():
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if word.isalpha() and len(word) > 3 else word
