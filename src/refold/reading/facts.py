"""Facts: preferences, decisions, things to do and key results, each one verbatim sentence with its handle.

Meant to be few and right rather than many: a short sentence of a kind that the rules name, no question, no guess and
no announcement. What a summary says is hearsay and never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refold.conversation.view import Fact, FactKind
from refold.reading.events import ReadEvent, Statement, Utterance
from refold.reading.rules import find_kinds
from refold.reading.words import PASTED_CHARS

FACT_CHARS_MIN, FACT_CHARS_MAX = 4, 240
FACTS_MAX = 60

# The kinds of rules that make a fact, the first that fits.
_PERSON: tuple[tuple[str, FactKind], ...] = (
    ("todo", "todo"),
    ("decision", "decision"),
    ("rule", "preference"),
    ("preference", "preference"),
    ("fact", "key"),
)
_ASSISTANT: tuple[tuple[str, FactKind], ...] = (
    ("todo", "todo"),
    ("conclusion", "decision"),
    ("decision", "decision"),
    ("cause", "decision"),
    ("key", "key"),
)
_UNSURE = ("guess", "intent")


def find_facts(events: Iterable[ReadEvent], handle: str) -> Iterator[Fact]:
    """Yield the facts in what a person or the assistant says in one message; a long text of a person is pasted."""
    said = [event for event in events if isinstance(event, Utterance | Statement)]
    if said and isinstance(said[0], Utterance) and said[-1].stop > PASTED_CHARS:
        return
    for event in said:
        if (kind := classify_fact(event)) is not None:
            # A clause before a question ends with a comma.
            yield Fact(kind, event.text.rstrip("，；,;"), handle)


def classify_fact(event: Utterance | Statement) -> FactKind | None:
    """Return what kind of fact a sentence is, or None."""
    text = event.text
    if not FACT_CHARS_MIN <= len(text) <= FACT_CHARS_MAX or text[-1] in ":：":
        return None
    if text.startswith("[ ] "):
        return "todo"
    if isinstance(event, Utterance):
        kinds = find_kinds(text, "person")
        is_told = event.kind != "question" and "question" not in kinds
        return next((fact for kind, fact in _PERSON if kind in kinds), None) if is_told else None
    kinds = find_kinds(text, "assistant")
    if event.kind == "question" or (event.kind in _UNSURE and "todo" not in kinds):
        return None
    return next((fact for kind, fact in _ASSISTANT if kind in kinds), None)


def merge_facts(earlier: Iterable[Fact], later: Iterable[Fact]) -> list[Fact]:
    """Return earlier and later facts, each sentence once, where it was said last; the newest if there are too many."""
    merged: dict[str, Fact] = {}
    for fact in (*earlier, *later):
        merged.pop(fact.text, None)
        merged[fact.text] = fact
    return list(merged.values())[-FACTS_MAX:]
