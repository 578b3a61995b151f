"""Whether two texts speak of the same matter: commands, paths and sentences, compared without their accidents."""

from __future__ import annotations

import re
from functools import lru_cache

from refold.reading.rules import lazy_form, lazy_rule

_QUOTED = re.compile(r"""["'`]""")
# Everything before the last of these in a command sets the scene: a folder, an environment.
_SCENE = lazy_rule("tools", "form", "scene", "is")
# How much of the output is looked at is no part of what was run.
_OUTPUT = lazy_rule("tools", "form", "output", "is")
# A number or a Latin word ends where Chinese begins: there are no blanks between them.
_WORD = re.compile(r"[A-Za-z_](?:[^\W\u3400-\u9fff]|[.'/-])*|\d(?:[^\W\u3400-\u9fff]|[.,:/-])*|[\u3400-\u9fff]+")
_HAN = re.compile(r"[\u3400-\u9fff]")
_GRAMMAR = lazy_form("grammar")
_NO = lazy_form("negative")


@lru_cache(4096)
def command_key(command: str) -> str:
    """Return what two runs of one command share: without folder, environment, filters of output and spacing."""
    lines = [line for line in command[:2000].split("\n") if not line.lstrip().startswith("#")]
    text = " ".join(_SCENE.sub("", "\n".join(lines).strip()).split())
    while (cut := _OUTPUT.sub("", text)) != text:
        text = cut
    return text[:400] or " ".join(command.split())[:400]


@lru_cache(8192)
def matter_words(text: str) -> frozenset[str]:
    """Return the words that a sentence is about: no grammar, English without plural and tense, Chinese as pairs."""
    words: set[str] = set()
    for match in _WORD.finditer(text[:2000]):
        word = match.group().lower().rstrip(".'/-")
        if _HAN.match(word):
            words.update(word[at : at + 2] for at in range(len(word) - 1))
        elif len(word) > 1 and not _GRAMMAR.fullmatch(word):
            words.add(_stem(word))
    return frozenset(words)


def share_matter(one: str, other: str) -> float:
    """Return how much of the shorter text's words the other one has, 0 to 1."""
    left, right = matter_words(one), matter_words(other)
    return len(left & right) / (min(len(left), len(right)) or 1)


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
