"""What a sentence claims: paths, identifiers, codes and numbers of three digits or more, spelt letter for letter.

Wider than the artifact index on purpose: a claim too many costs one sentence of a summary, one too few lets
something invented in. Linear in the text.
"""

from __future__ import annotations

import re
import unicodedata

# Latin, Greek and Cyrillic letters: a name must not escape by an accent or a look-alike.
LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u052f"
_RUN = re.compile(rf"[{LETTERS}0-9_./\\:@#$%&=?~+\-]{{2,400}}")
_QUOTED = re.compile(r"`([^`\s]{2,120})`")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"[-+$#~]?\d+(?:\.\d+)*%?")
_LETTER = re.compile(rf"[{LETTERS}]")
_HUMP = re.compile(r"[a-z][A-Z]")
# 2nd, 10k, 30ms, 5x, 3pm, 16GB, 90s: amounts with a small number say nothing that could be looked up.
_AMOUNT = re.compile(r"\d{1,2}(?:\.\d)?(?:st|nd|rd|th|x|[kKmMgGtT]i?[bB]?|s|ms|min|h|hrs?|d|am|pm|px|em|rem|%)")
_COUNTED = re.compile(r"\d{1,2}(?:-[a-z]+)+")
# Choices that people write with a slash; any other pair of words may be a folder.
_PAIRS = re.compile(
    r"and/or|yes/no|read/write|input/output|client/server|true/false|on/off|he/she|his/her|n/a|w/o|i/o|tcp/ip|ci/cd|"
    r"start/stop|before/after|pass/fail|frontend/backend|request/response|push/pull|add/remove|key/value|in/out|"
    r"success/failure|up/down|left/right|sync/async|user/assistant|open/close|either/or|pros/cons|create/update|"
    r"enable/disable|local/remote|start/end|min/max|date/time",
    re.I,
)
_DOTTED_LETTERS = re.compile(rf"(?:[{LETTERS}]\.)+[{LETTERS}]?")
_EDGES_LEFT = ":;?!&=+.%,-"
_EDGES_RIGHT = ":;?!&=+.%,-/\\#$@~"
_FLAG = re.compile(r"--[A-Za-z][\w-]*")


def normalise(text: str) -> str:
    """Return a text with width and look-alike forms of digits made plain, and what cannot be seen left out."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")


def join_thousands(text: str) -> str:
    """Return a text with 12,345 written as 12345."""
    return _THOUSANDS.sub("", text) if "," in text else text


def find_claims(text: str) -> list[str]:
    """Return every claim of a text, each once, in order; numbers without their thousands' commas."""
    plain = join_thousands(normalise(text))
    found: dict[str, None] = {}
    for quoted in _QUOTED.findall(plain):
        word = trim(quoted)
        if _LETTER.search(word) or is_number(word):
            found[word] = None
    for run in _RUN.findall(plain):
        for word in _split_run(run):
            if is_claim(word):
                found[word] = None
    return list(found)


def trim(word: str) -> str:
    """Return a word without the punctuation around it; the dashes of an option and the root of a path stay."""
    right = word.rstrip(_EDGES_RIGHT)
    return right if _FLAG.fullmatch(right) else right.lstrip(_EDGES_LEFT)


def _split_run(run: str) -> list[str]:
    if "://" in run or "::" in run:
        return [trim(run)]
    if "=" in run or ":" in run or "&" in run:
        return [trim(piece) for piece in re.split(r"[=:&]+", run)]
    return [trim(run)]


def is_number(word: str) -> bool:
    """Tell whether a word is a number, a version or a date of digits with three of them or more."""
    return bool(_NUMBER.fullmatch(word)) and sum(char.isdigit() for char in word) >= 3


def is_claim(word: str) -> bool:
    """Tell whether a word names something that its source must have, letter for letter."""
    if len(word) < 2:
        return False
    if not _LETTER.search(word):
        return sum(char.isdigit() for char in word) >= 3
    if any(mark in word for mark in ("_", "@", "\\", "#", "$", "::", "~")) or word.startswith("--"):
        return True
    if "/" in word:
        return not _PAIRS.fullmatch(word)
    if "." in word:
        return not _DOTTED_LETTERS.fullmatch(word) and not _AMOUNT.fullmatch(word)
    return _is_code(word) or bool(_HUMP.search(word))


def _is_code(word: str) -> bool:
    """Letters and digits mixed: an id, a code, a name with a number; not an amount or a short everyday one."""
    digits = sum(char.isdigit() for char in word)
    if not digits or _AMOUNT.fullmatch(word) or _COUNTED.fullmatch(word):
        return False
    return digits >= 3 or len(word) >= 5
