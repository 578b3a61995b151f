"""What the fields of an edit must be so that every store keeps it and every reader reads it again. Pure.

For edits that we did not make: those of plugins and those of an imported file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from refold.conversation.edit import Artifact, EditKind, Fact, FactKind, Fold
from refold.conversation.message import Role
from refold.conversation.reason import Reason, is_plain

NUMBER_MAX = 1_000_000_000


def find_odd(edit: Any) -> Iterator[str]:
    """Name what is not of its type: the ledger would refuse it in the middle of a request, or never read it again."""
    if edit.kind not in get_args(EditKind) or edit.role not in get_args(Role):
        yield "kind or role"
    if not isinstance(edit.covers, tuple) or len(set(map(str, edit.covers))) < len(edit.covers):
        yield "covers: a message stands in it twice"
    if edit.part is not None and (type(edit.part) is not int or not 0 <= edit.part <= NUMBER_MAX):
        yield "part"
    texts = (edit.stage, edit.text, edit.before, *edit.covers)
    yield from ("text" for one in texts if not isinstance(one, str))
    if not isinstance(edit.reason, Reason) or not is_plain(edit.reason):
        yield "reason"
    numbers = (edit.level, edit.tokens_before, edit.tokens_after)
    yield from ("number" for one in numbers if type(one) is not int or abs(one) > NUMBER_MAX)
    if not isinstance(edit.made_from, tuple) or not all(isinstance(one, str) for one in edit.made_from):
        yield "made_from"
    if edit.fold is not None:
        yield from _find_odd_fold(edit.fold)


def _find_odd_fold(fold: Any) -> Iterator[str]:
    if not isinstance(fold, Fold):
        yield "fold"
        return
    pairs: tuple[tuple[Any, type], ...] = ((fold.facts, Fact), (fold.artifacts, Artifact), (fold.key_points, str))
    pairs += ((fold.turn_range, int),)
    if not all(isinstance(held, tuple) and all(isinstance(one, kind) for one in held) for held, kind in pairs):
        yield "list in its fold"
        return
    if not all(abs(one) <= NUMBER_MAX for one in fold.turn_range) or not all(
        fact.kind in get_args(FactKind) for fact in fold.facts
    ):
        yield "number or kind of fact in its fold"
    texts = [fold.handle, fold.summary, fold.by]
    texts += [text for fact in fold.facts for text in (fact.kind, fact.text, fact.handle)]
    texts += [text for one in fold.artifacts for text in (one.sort, one.value, one.handle, one.note)]
    if not all(isinstance(text, str) for text in texts) or len(fold.turn_range) != 2:
        yield "text in its fold"
    if not all(isinstance(one.weight, int | float) for one in fold.artifacts):
        yield "weight in its fold"
