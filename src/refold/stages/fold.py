"""fold: old units become one summary with facts and an index of exact values; every original stays behind a handle.

Cuts fall only between units. Units before the newest user message and units after it get separate folds;
system, pinned and sealed messages stay in place. A new fold takes adjacent earlier ones in. The stage never touches
what is protected, and proposes nothing that is not smaller than what it replaces unless it is forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from refold.budget.trigger import Foldable
from refold.conversation import because
from refold.conversation.reason import Reason, join_reasons
from refold.conversation.turn import Unit
from refold.conversation.view import Edit, View
from refold.reading.facts import merge_facts
from refold.stages.clamp import Clamp
from refold.stages.fold_units import (
    FoldOptions,
    UnitChoice,
    choose_units,
    count_lasting,
    count_unit,
    find_least,
    foldable_runs,
    has_tools,
    share_room,
    summary_room,
    weigh_span,
)
from refold.stages.prompts import Demands, PromptRoom
from refold.stages.record.frame import CLOSING
from refold.stages.record.record import RecordOptions, WrittenRecord
from refold.stages.record.source import Source, find_turn_range
from refold.stages.stage import Goal, Proposal, Proposed, When, free_runs, items_of
from refold.stages.summarise import SIZE_SHARE_MAX, ModelWords, SummaryRequest

# The least tokens in which a model can say anything.
WORDS_TOKENS_MIN = 80
# The frame and the handle take this much of a summary that is bounded by characters as a whole.
FRAME_CHARS = 80
# A lone earlier record is rewritten only if it has outgrown its room by this factor.
OUTGROWN = 1.25
# Records that take less than this share of the room that was set aside for them leave it to what stays verbatim.
ROOM_USED_MIN = 0.7
# A span gets so many tokens, or half of its own, however large the others are: a bare frame tells nothing.
SPAN_TOKENS_MIN = 140
# The record that states how things are now has this share of the room, and at least so many tokens. The units that it
# replaces have at least CARRIER_FACTOR times as many.
STATE_SHARE, STATE_TOKENS_MIN, CARRIER_FACTOR = 0.06, 240, 1.6
# A fold that saves less is not worth a broken prefix, unless the view would not fit.
SAVED_TOKENS_MIN = 40


@dataclass(frozen=True, slots=True)
class Fold(FoldOptions):
    """Fold the oldest units, as many as the options and the goal say."""

    when: ClassVar[When] = "batch"
    may_be_forced: ClassVar[bool] = True  # By a person or a count, although the tokens do not require it.

    def propose(self, view: View, goal: Goal) -> list[Edit] | Proposal:
        """Return one fold for each run of old units; with a model configured, ask it for the words first."""
        choice = choose_units(self, view, goal)
        goal.check()
        if self.summariser == "llm" and choice.spans:
            return self._ask_model(view, goal, choice.spans, self._shorten(view, choice))
        edits = self._fold_choice(view, goal, choice)
        records = sum(edit.tokens_after for edit in edits if edit.kind == "fold")
        if not records or choice.room * ROOM_USED_MIN <= records:
            return edits
        # The records took much less than was set aside for them: more can stay verbatim.
        more = choose_units(self, view, goal, room=records * 5 // 4)
        again = edits if more.spans == choice.spans else self._fold_choice(view, goal, more)
        return again if view.tokens - _count_freed(again) <= goal.target else edits

    def count_foldable(self, view: View, goal: Goal) -> Foldable:
        """Return what a fold by count would take now. A fold that takes only an earlier record changes nothing."""
        spans = choose_units(self, view, goal).spans
        new = [item for span in spans for item in items_of(view, span) if not item.is_fold]
        return Foldable(len(new), sum(item.tokens for item in new), any(item.is_fold for item in view.items))

    def _fold_choice(self, view: View, goal: Goal, choice: UnitChoice) -> list[Edit]:
        return [*self._fold_spans(view, goal, choice.spans), *self._shorten(view, choice)]

    def _shorten(self, view: View, choice: UnitChoice) -> list[Edit]:
        """Cut the results of the one unit that is too large to stay whole and too new to go."""
        if choice.shortened is None:
            return []
        places = range(choice.shortened.start, choice.shortened.stop)
        cuts = Clamp().cut_oversize(view, places, choice.over, kinds=("result",))
        return [replace(edit, stage=self.name, id="") for edit in cuts]

    def _fold_spans(self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]]) -> list[Edit]:
        """Fold spans into records that are written from the state of the work; the last record has the state."""
        planned = self._plan_spans(view, goal, spans)
        if planned and self.stands(goal):
            planned[-1:] = self._split_current(view, goal, *planned[-1])
            spans = [span for span, _ in planned]
        planned[:-1] = [(span, replace(options, with_state=False)) for span, options in planned[:-1]]
        edits: list[Edit] = []
        left = 0
        for span, options in planned:
            source = Source.read(view, span, spans, edits, self._find_place(view, span))
            size = sum(item.tokens for item in source.items)
            most = max(options.tokens_max, min(options.tokens_max + left, int(size * SIZE_SHARE_MAX)))
            # A record may use what the one before it did not need.
            record = source.write(view, self._open_extract(replace(options, tokens_max=most)), goal)
            edit = self._make_edit(view, source, record, _bind_force(goal, view, span, spans))
            if edit is not None:
                left = max(0, left + options.tokens_max - edit.tokens_after)
                edits.append(edit)
        return edits

    def _split_current(
        self, view: View, goal: Goal, span: Sequence[Unit], options: RecordOptions
    ) -> list[tuple[Sequence[Unit], RecordOptions]]:
        """Split the newest units off a span: their record states how things are now, and the next fold rewrites it.

        The record of the other units stays as it is, cached. The first record of a conversation is not split.
        """
        if not any(item.is_fold and (fold := item.edits[0].fold) and fold.is_current for item in view.items):
            return [(span, options)]
        room = max(STATE_TOKENS_MIN, int((goal.hard - count_lasting(view)) * STATE_SHARE))
        carried, at = 0, len(span)
        while at > 1 and carried < room * CARRIER_FACTOR:
            at -= 1
            carried += count_unit(view, span[at])
        left = options.tokens_max - room
        is_small = at == len(span) or left < STATE_TOKENS_MIN
        if is_small or not has_tools(view) or sum(count_unit(view, unit) for unit in span[:at]) < left + room:
            return [(span, options)]
        story, current = (find_turn_range(view, items_of(view, units)) for units in (span[:at], span[at:]))
        return [
            (span[:at], replace(options, tokens_max=left, with_state=False, turn_range=story)),
            (span[at:], replace(options, tokens_max=room, turn_range=current)),
        ]

    def _ask_model(
        self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]], shortened: Sequence[Edit]
    ) -> Proposal:
        """Ask once, for the note on the largest span; rules write the others, and it if no words can be trusted."""
        edits: list[Edit] = []
        notes: list[Reason] = []
        is_failed = False
        planned = self._plan_spans(view, goal, spans)
        largest = max(
            (span for span, _ in planned),
            key=lambda span: sum(item.tokens for item in items_of(view, span)),
            default=(),
        )
        for span, options in planned:
            source = Source.read(view, span, spans, edits, self._find_place(view, span))
            record = source.write(view, self._open_extract(options), goal)
            little = self.is_paced and not goal.force and source.count_untold(view) < goal.soft - goal.target
            if little or (self.prompt_style == "note" and span is not largest):
                plain = self._make_edit(view, source, record, goal)
                edits += [plain] if plain is not None else []
                notes += [because.BY_RULES(because=because.LITTLE_NEW())] if little else []
                continue
            demands = self._make_demands(options)
            room = PromptRoom(self.tool_chars_max, self.prompt_chars_max, self.prompt_tokens_max, view.lens.count_text)
            kept = self._list_kept(view, goal, span)
            told = yield from SummaryRequest(source, view, goal, demands, room, self.opening, kept).ask()
            paid = replace(record, fold=replace(record.fold, usage=told.usage))
            plain = self._make_edit(view, source, paid, _bind_force(goal, view, span, spans))
            told = _carry_on(told, source, view, goal, options=self._open_extract(options))
            edit = self._write_told(view, goal, source, options, told) if told.text else None
            if edit is not None and plain is not None and _only_plain_fits(view, goal, (*edits, edit), (*edits, plain)):
                edit = None
            if edit is not None:
                edits.append(edit)
                notes += [because.BY_MODEL(), *told.notes, *_note_index(edit, told)]
                is_failed = is_failed or bool(told.failure)
                continue
            if told.declined:
                edits += [plain] if plain is not None else []
                continue
            is_broken = bool(told.failure) and not told.failure.holds(because.ANSWER_LONG)
            is_failed = is_failed or is_broken
            why = told.failure if is_broken else because.NO_GAIN()
            # S2.7: the history stays as it is, unless it would not fit.
            if self.on_failure == "keep" and view.tokens <= goal.hard:
                notes.append(because.NO_SUMMARY(because=why))
                if is_broken and self.prompt_style == "note":
                    return Proposed([], join_reasons(notes), is_failed)
                continue
            notes.append(because.BY_RULES(because=why))
            if plain is not None:
                edits.append(plain)
        return Proposed([*edits, *(shortened if edits else ())], join_reasons(notes), is_failed)

    def _find_place(self, view: View, span: Sequence[Unit]) -> int:
        """Return where the fold of a span goes: where the span begins, but before important units that stay."""
        first = span[0].start
        runs = [] if self.importance_threshold is None else free_runs(view)
        return next((run[0].start for run in runs if any(unit.start == first for unit in run)), first)

    def _list_kept(self, view: View, goal: Goal, span: Sequence[Unit]) -> tuple[object, ...] | None:
        """Return what stays after a span, for a compressor that writes the summary; None if a prompt asks for it.

        A compressor takes messages and a count: it knows neither a person's instructions nor another prompt.
        """
        if not self.by_compressor or goal.instructions or self.prompt:
            return None
        return tuple(item.raw for item in view.items[span[-1].stop :])

    def _open_extract(self, options: RecordOptions) -> RecordOptions:
        return replace(options, opening=self.extract_opening) if self.extract_opening else options

    def _make_demands(self, options: RecordOptions) -> Demands:
        """Return the demands on a model's summary: what the index does not hold, unless counts decide what stays."""
        index = 0 if self.keeps_by_count else min(options.index_tokens_max, options.tokens_max // 2)
        tokens = max(WORDS_TOKENS_MIN, options.tokens_max - index)
        if self.prompt_tokens_max:
            # A model with a small window needs room for its answer, too.
            tokens = min(tokens, max(WORDS_TOKENS_MIN, self.prompt_tokens_max // 4))
        chars = self.summary_chars_max
        if options.whole_chars_max:
            chars = max(chars // 2, chars - FRAME_CHARS)
        return Demands(self.prompt_style, tokens, chars, self.prompt, self.ask_facts)

    def _write_told(
        self, view: View, goal: Goal, source: Source, options: RecordOptions, told: ModelWords
    ) -> Edit | None:
        """Return the fold with a model's words; None if it would not be smaller than what it replaces."""
        left = max(0, options.tokens_max * 6 // 5 - view.lens.count_text(told.text))
        options = replace(options, index_tokens_max=min(options.index_tokens_max, left))
        written = source.write(view, options, goal, told.text)
        facts = tuple(replace(fact, handle=written.fold.handle) for fact in told.facts)
        merged = tuple(merge_facts(facts, written.fold.facts))
        fold = replace(written.fold, facts=merged, dropped=told.dropped, usage=told.usage)
        # A model's words must always be shorter than what they replace; only the rules' record may be forced.
        return self._make_edit(view, source, WrittenRecord(fold, written.text), replace(goal, force=False))

    def _plan_spans(
        self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]]
    ) -> list[tuple[Sequence[Unit], RecordOptions]]:
        """Share the room for summaries out among the spans by what there is to tell; leave out what is not worth it."""
        runs = foldable_runs(self, view, goal)
        total = summary_room(self, view, goal, runs)
        index = share_room(self, view, goal, runs, share=self.index_share, tokens_max=self.index_tokens_max)
        sizes = [sum(item.tokens for item in items_of(view, span)) for span in spans]
        weights = [weigh_span(view, span) for span in spans]
        planned = []
        for span, size, weight in zip(spans, sizes, weights, strict=True):
            least = max(find_least(goal), min(SPAN_TOKENS_MIN, size // 2))
            share = max(min(least, total), int(total * weight / sum(weights)))
            items = items_of(view, span)
            if len(items) == 1 and items[0].is_fold and size <= share * OUTGROWN and not goal.force:
                continue
            options = RecordOptions(
                tokens_max=min(share, max(find_least(goal), int(size * SIZE_SHARE_MAX))),
                index_tokens_max=min(self.index_tokens_max, index * share // max(1, total)),
                style=self.style,
                opening=self.opening,
                closing=CLOSING[goal.language] if self.closing else "",
                chars_max=self.summary_chars_max,
                turn_range=find_turn_range(view, items),
                states_task=self.keeps_by_count,
                check=goal.check,
            )
            planned.append((span, options))
        return planned

    def _make_edit(self, view: View, source: Source, record: WrittenRecord, goal: Goal) -> Edit | None:
        """Return the fold, or None if it would not be smaller than what it replaces."""
        edit = source.fold(view, record, stage=self.name, role=self.role, reason=goal.reason or because.FOLDED())
        least = min(SAVED_TOKENS_MIN, edit.tokens_before // 10) if view.tokens <= goal.hard else 0
        return edit if goal.force or edit.tokens_after + least < edit.tokens_before else None


def _carry_on(told: ModelWords, source: Source, view: View, goal: Goal, *, options: RecordOptions) -> ModelWords:
    """Return the words of an answer that was cut off, or of the earlier note if there is none, with the rules' own."""
    earlier = "\n".join(fold.summary for fold in source.previous if fold.by == "llm")
    kept = told.text if told.is_partial else earlier if told.failure else ""
    if not kept or not source.fresh:
        return told
    fresh = replace(source, messages=source.fresh, previous=()).write(view, options, goal)
    lines = dict.fromkeys((*kept.splitlines(), *fresh.fold.summary.splitlines()))
    text = "\n".join(lines).strip()
    if view.lens.count_text(text) > options.tokens_max:
        # One failure after another would make the note longer and longer; the rules' record of it all has a limit.
        return told
    why = (because.NOTE_KEPT(because=told.failure),) if told.failure else ()
    return replace(told, text=text, notes=(*told.notes, *why))


def _count_freed(edits: Sequence[Edit]) -> int:
    return sum(edit.tokens_freed for edit in edits)


def _bind_force(goal: Goal, view: View, span: Sequence[Unit], spans: Sequence[Sequence[Unit]]) -> Goal:
    """Force only the largest span: small spans whose records would be longer than they are stay as they are."""
    sizes = {id(one): sum(item.tokens for item in items_of(view, one)) for one in spans}
    return replace(goal, force=goal.force and sizes[id(span)] == max(sizes.values()))


def _only_plain_fits(view: View, goal: Goal, told: Sequence[Edit], plain: Sequence[Edit]) -> bool:
    """Return whether the view fits with the rules' record but not with a model's longer words."""
    left, shorter = (view.tokens - _count_freed(edits) for edits in (told, plain))
    return left > goal.hard >= shorter


def _note_index(edit: Edit, told: ModelWords) -> list[Reason]:
    """Say how many exact values the index adds to a model's words."""
    artifacts = edit.fold.artifacts if edit.fold else ()
    added = sum(1 for artifact in artifacts if artifact.value in edit.text and artifact.value not in told.text)
    return [because.VALUES_ADDED(values=added)] if added else []
