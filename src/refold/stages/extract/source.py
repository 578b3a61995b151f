"""The source of one fold: its items, its originals, the earlier folds it takes in, and what stays around it.

Only collects; what is written for it is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Self

from refold.conversation.author import read_said
from refold.conversation.message import Message, Role, is_notice, is_user_turn, read_as_result
from refold.conversation.reason import Reason
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, FoldRecord, Item, View
from refold.stages.extract.story import Span, read_span
from refold.stages.extract.summary import Extract, ExtractOptions, extract_summary, write_extract
from refold.stages.stage import Goal, covered_messages, earlier_folds, items_of, name_place


@dataclass(frozen=True, slots=True)
class Source:
    """The messages that one fold replaces, and those around them."""

    items: tuple[Item, ...]
    kept: tuple[Item, ...]
    messages: tuple[Message, ...]
    fresh: tuple[Message, ...]
    previous: tuple[FoldRecord, ...]
    seen: str
    role_before: Role | None
    role_after: Role | None
    # The message before which the fold is placed.
    before: str
    # Earlier requests of people and what stays in view: a summary needs to know what the work is about.
    asked: str = ""
    # Ids of tool results that are sent as user text, and of notices.
    observed: frozenset[str] = frozenset()
    # The assistant spoke right after the span: it has begun to answer whatever was asked last in it.
    is_answered: bool = False

    @classmethod
    def read(
        cls,
        view: View,
        span: Sequence[Unit],
        spans: Sequence[Sequence[Unit]],
        edits: Sequence[Edit],
        place: int,
    ) -> Self:
        """Collect the originals of a span, the folds it takes in, and the text that stays in view.

        ``place`` is the item that its fold replaces, or before which it is placed.
        """
        taken = {at for one in spans for unit in one for at in range(unit.start, unit.stop)}
        kept = [at for at in range(len(view.items)) if at not in taken]
        items = items_of(view, span)
        first = span[0].start
        before = next((view.items[at].role for at in reversed(kept) if at < place), None)
        after = next((view.items[at].role for at in kept if at >= place), None)
        messages = covered_messages(view, items)
        # A fold without facts, artifacts and a model's words (the window's) knows nothing that could be carried on.
        known = [item for item in items if item.is_fold and says_more(item)]
        behind = {message.id for item in known for message in item.messages}
        seen = "\n".join(part.text for at in kept for part in view.items[at].parts)
        return cls(
            items=tuple(items),
            kept=tuple(view.items[at] for at in kept),
            messages=messages,
            fresh=tuple(message for message in messages if message.id not in behind),
            previous=tuple(fold for item in known if (fold := item.edits[0].fold) is not None),
            seen="\n".join((seen, *(edit.text for edit in edits))),
            role_before=before,
            role_after=after,
            before=name_place(view.items[place]),
            asked="\n".join(_read_ask(view, at) for at in kept if at < first).strip(),
            observed=_find_observed(view, messages),
            is_answered=has_answer(view, messages),
        )

    @property
    def spoken(self) -> tuple[Message, ...]:
        """The originals as a summary reads them: a tool result sent as user text is a result, nobody's words."""
        return self._read(self.messages)

    @property
    def spoken_fresh(self) -> tuple[Message, ...]:
        """The same of the originals that no earlier fold tells of."""
        return self._read(self.fresh)

    def _read(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(read_as_result(one) if one.id in self.observed else one for one in messages)

    def count_untold(self, view: View) -> int:
        """Return the tokens behind this fold that no model has summed up yet."""
        behind = {message.id for message in self.messages}
        by_model = [edit for edit in view.edits if edit.fold is not None and edit.fold.by == "llm"]
        summed = {one for edit in by_model if behind.issuperset(edit.covers) for one in edit.covers}
        return sum(view.lens.plain(message).tokens for message in self.messages if message.id not in summed)

    def extract(self, view: View, options: ExtractOptions, goal: Goal) -> Extract:
        known = frozenset(message.id for message in self.messages) - {message.id for message in self.fresh}
        count = view.lens.count_text
        return extract_summary(
            self.spoken,
            self.previous,
            replace(options, instructions=goal.instructions),
            count,
            language=goal.language,
            known=known,
            seen=self.seen,
            secrets=goal.secrets,
            is_answered=self.is_answered,
        )

    def read_span(self, goal: Goal) -> Span:
        """Read what was said and done."""
        return read_span(self.spoken, self.spoken_fresh, self.previous, goal.language, is_answered=self.is_answered)

    def write(self, view: View, extract: Extract, options: ExtractOptions, goal: Goal, words: str) -> Extract:
        """Return the extract with a model's words in the place of its sections; facts and index stay mechanical."""
        span = self.read_span(goal)
        options = replace(options, instructions=goal.instructions)
        written = write_extract(extract.fold, span, options, view.lens.count_text, seen=self.seen, words=words)
        return Extract(replace(written.fold, by="llm"), written.text)

    def fold(self, view: View, extract: Extract, *, stage: str, role: Role, reason: Reason) -> Edit:
        """Return the edit that puts an extract in the place of the items, with its exact size."""
        earlier = earlier_folds(self.items)
        edit = Edit(
            kind="fold",
            stage=stage,
            covers=tuple(message.id for message in self.messages),
            text=extract.text,
            role=view.lens.format.allow_role(role, self.role_before, self.role_after),
            reason=reason,
            level=1 + max((fold.level for fold in earlier), default=-1),
            made_from=tuple(fold.id for fold in earlier),
            tokens_before=sum(item.tokens for item in self.items),
            fold=extract.fold,
            before="" if self.before == self.messages[0].id else self.before,
        )
        return replace(edit, tokens_after=view.lens.fold(edit, self.messages).tokens)


def _read_ask(view: View, at: int) -> str:
    item = view.items[at]
    if item.is_fold or not is_user_turn(item.role, item.parts) or view.is_observed(at):
        return ""
    return read_said(item, "user")


def _find_observed(view: View, messages: Sequence[Message]) -> frozenset[str]:
    """Return the ids of the messages of a span that nobody said: tool results sent as user text, and notices."""
    first = next((one.id for one in view.messages if one.role != "system"), "")
    found: set[str] = set()
    # A span that begins with a result has its answer right before it: only the first message must be a person's.
    before: Role = "assistant"
    for message in messages:
        is_after = before == "assistant" and message.id != first
        is_result = message.role == "user" and is_after and view.lens.is_observation(message)
        if is_result or is_notice(message.role, message.parts):
            found.add(message.id)
            continue
        before = message.role
    return frozenset(found)


def has_answer(view: View, messages: Sequence[Message]) -> bool:
    """Return whether the assistant spoke right after these messages; later it may have answered another request."""
    last = messages[-1].id
    after = list(takewhile(lambda one: one.id != last, reversed(view.messages)))
    return next((one.role == "assistant" for one in reversed(after) if one.role != "system"), False)


def says_more(item: Item) -> bool:
    """Return whether a fold knows more than that something is gone, as the line of a later rung does."""
    fold = item.edits[0].fold
    return fold is not None and bool(fold.facts or fold.artifacts or fold.by == "llm")


def find_turn_range(view: View, items: Sequence[Item]) -> tuple[int, int]:
    """Return the first and the last turn of a span, counted over the whole conversation from 1."""
    wanted = {message.id for item in items for message in item.messages}
    turn, met = 0, []
    for message in view.messages:
        turn += message.starts_turn and not (turn and view.lens.is_observation(message))
        if message.id in wanted:
            met.append(max(1, turn))
    return met[0], met[-1]
