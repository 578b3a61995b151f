"""Whether a view still has what is expected: retained, recoverable, mutated, stale or missing.

*Retained*: the text is in view, letter for letter but for white space, and beside its owner if it has one; a long text
may be cut where the cut is marked. *Recoverable*: it is not, but the view has a handle that leads to the original.
*Mutated*: the compressor wrote it with another number, name or negation. *Stale*: the view has only what it replaced.
*Missing*: nothing in view leads to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from refold.conversation.message import Message, Part, find_marks
from refold.conversation.view import Item
from refold.evaluation.expect import Expectation
from refold.reading.values import find_values
from refold.replay.record import read_texts

Verdict = Literal["retained", "recoverable", "mutated", "stale", "missing"]
VERDICTS: tuple[Verdict, ...] = ("retained", "recoverable", "mutated", "stale", "missing")
# A longer text counts as retained if this share of it is there before a marked cut.
WHOLE_CHARS, CUT_SHARE = 120, 0.5
# So many characters of a text are enough to recognise it in a view.
HEAD_CHARS_MIN, HEAD_SHARE, HEAD_WORDS_MIN = 16, 0.3, 3
# An owner is beside its value if no more than this is between them.
BESIDE_CHARS = 160
SMALL_NUMBER_CHARS = 4
# Kinds of values that a compressor has no reason to write by itself.
INVENTED = frozenset(("file", "id", "identifier", "url", "email", "money", "number"))
_WORD = re.compile(r"[$€£¥#@]?\w[\w$€£¥%./:@#+-]*+|[^\s\w]")
_CUT = re.compile(r"\s*(?:…|\.\.\.|\[|⟨|\(\+)")
_EXACT = re.compile(r"[\d/_$€£¥%@]|\w\.\w")
_NEGATIONS = frozenset(
    [
        "not",
        "no",
        "never",
        "none",
        "cannot",
        "without",
        "don't",
        "doesn't",
        "didn't",
        "isn't",
        "aren't",
        "wasn't",
        "won't",
        "can't",
        "不",
        "没",
        "未",
        "别",
        "勿",
        "无",
    ]
)
# A placeholder counts what it left out; those numbers are the compressor's own.
_PLACEHOLDER = re.compile(r"⟨[^⟨⟩\n]*+⟩|\b[mf]:[0-9a-f]{4,32}(?:\.\d+)?|\[[^\[\]\n]*+\]|×\d+|\+\d+")


@dataclass(frozen=True, slots=True)
class SentView:
    """What was sent: its text, the text that the compressor wrote, and which originals are in it or behind it."""

    text: str
    written: str
    said: str
    plain: frozenset[int]
    behind: frozenset[int]


def read_view(items: Sequence[Item], originals: Sequence[Message]) -> SentView:
    """Return what a request shows of the originals before it."""
    positions: dict[str, list[int]] = {}
    for at, message in enumerate(originals):
        positions.setdefault(message.digest, []).append(at)
    texts: list[str] = []
    written: list[str] = []
    plain: set[int] = set()
    behind: set[int] = set()
    for item in items:
        text = _read_parts(item.parts)
        texts.append(text)
        here = {at for message in item.messages for at in positions.get(message.digest, ())}
        if not item.edits and len(item.messages) == 1 and here:
            plain |= here
            continue
        written.append(text)
        if find_marks(text):
            behind |= here
    said = _flatten("\n".join(_read_parts(message.parts) for message in originals)) if written else ""
    whole, own = _flatten("\n".join(texts)), _flatten("\n".join(written))
    return SentView(whole, own, said, frozenset(plain), frozenset(behind))


def judge(expected: Expectation, view: SentView) -> Verdict:
    """Return what has become of one expected text in a view."""
    if expected.position in view.plain:
        return "retained"
    text = _flatten(expected.text)
    if _is_beside(text, expected.owner, view.text):
        return "retained"
    if any(_flatten(old) in view.text for old in expected.old):
        return "stale"
    found = _compare_written(text, view)
    if found is not None:
        return found
    return "recoverable" if expected.position in view.behind else "missing"


def find_invented(view: SentView) -> list[str]:
    """Return exact values that the compressor wrote and that no original has."""
    return sorted(
        {
            value
            for sort, value in find_values(_PLACEHOLDER.sub(" ", view.written))
            if sort in INVENTED and (sort != "number" or len(value) > SMALL_NUMBER_CHARS) and value not in view.said
        }
    )


def _is_beside(text: str, owner: str, view: str) -> bool:
    """Return whether a view has a text, and its owner close to one of its places."""
    at = view.find(text)
    if at < 0 or not owner:
        return at >= 0
    words = [word.lower() for word in re.findall(r"\w+", owner)] or [owner.lower()]
    while at >= 0:
        around = view[max(0, at - BESIDE_CHARS) : at + len(text) + BESIDE_CHARS].lower()
        if any(word in around for word in words):
            return True
        at = view.find(text, at + 1)
    return False


def _compare_written(text: str, view: SentView) -> Verdict | None:
    """Return ``retained`` for a long text up to a marked cut, ``mutated`` for one that goes on as no original does."""
    written = view.written
    head = text[: max(HEAD_CHARS_MIN, int(len(text) * HEAD_SHARE))]
    # Two paths of one folder begin alike; only a sentence can be recognised by its beginning.
    if len(text) < 2 * HEAD_CHARS_MIN or len(_WORD.findall(head)) < HEAD_WORDS_MIN:
        return None
    verdict: Verdict | None = None
    at = written.find(head)
    while at >= 0:
        same = _count_same(text, written[at : at + len(text)])
        rest = written[at + same : at + len(text) + 8]
        if len(text) > WHOLE_CHARS and same >= len(text) * CUT_SHARE and _CUT.match(rest):
            return "retained"
        is_other = not _CUT.match(rest) and _contradicts(text, written, same, at)
        if is_other and written[at : at + same + len(rest.split(" ")[0])] not in view.said:
            verdict = "mutated"
        at = written.find(head, at + 1)
    return verdict


def _contradicts(text: str, written: str, same: int, at: int) -> bool:
    """Return whether the first word that differs is a number, a name or a negation in one of the two texts."""
    start = max(text.rfind(" ", 0, same), text.rfind("，", 0, same)) + 1
    one, other = _WORD.match(text, start), _WORD.match(written, at + start)
    if one is None or other is None:
        return False
    pair = (one.group().lower(), other.group().lower())
    both_exact = all(_EXACT.search(word) for word in pair)
    return pair[0] != pair[1] and (both_exact or any(word in _NEGATIONS or word[:1] in _NEGATIONS for word in pair))


def _count_same(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _flatten(text: str) -> str:
    return " ".join(text.split())


def _read_parts(parts: Iterable[Part]) -> str:
    """Return the text of parts; the arguments of a call as they are and with their strings decoded."""
    return "\n".join(text for part in parts for text in (part.name, part.text, *read_texts([part])))
