"""fold: old units become one summary with facts and an index of exact values; every original stays behind a handle.

Cuts fall only between units. What lies before the newest user message and what lies after it get folds of their own;
system, pinned and sealed messages stay in place. A new fold takes adjacent earlier ones in. The stage never touches
what is protected, and proposes nothing that is not smaller than what it replaces unless it is forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import ClassVar, Literal

from refold.conversation.edit import Edit
from refold.conversation.message import Role, is_user_turn
from refold.conversation.turn import Unit, find_turns, newest_step
from refold.conversation.view import View
from refold.stages.extract.facts import merge_facts
from refold.stages.extract.source import Source, find_turn_range, says_more
from refold.stages.extract.summary import Extract, ExtractOptions, Style
from refold.stages.options import check_options
from refold.stages.prompts import Demands, PromptStyle
from refold.stages.prompts.question import Room
from refold.stages.score import ScoreOptions, important_units
from refold.stages.span import earlier_folds, find_head, free_runs, items_of
from refold.stages.stage import Goal, Proposal, Proposed, When
from refold.stages.summarise import Told, ask_words

# The least a summary gets, however small the room: a frame and a line or two.
SUMMARY_TOKENS_MIN = 60
# Who asks for a fold by a count gets one that says something, be it that little is freed.
FORCED_TOKENS_MIN = 160
# A model's words need more to say anything.
WORDS_TOKENS_MIN = 80
# A first message larger than this share of the room is not worth its cached place.
FIRST_USER_SHARE = 0.1
# A fold that stands alone is written again only if it has outgrown its room by this much.
OUTGROWN = 1.25
# A fold that saves less is not worth a broken prefix, unless the view would not fit.
SAVED_TOKENS_MIN = 40
# A summary longer than this share of what it replaces sums nothing up.
SIZE_SHARE_MAX = 0.7
TIGHT_SHARE = 0.8
# What summaries may take of a small room to have their least.
SMALL_ROOM_SHARE = 0.3
# However small the room, a fold that stands should be able to hold a few dozen values.
FRESH_TOKENS_MIN = 320
# Room that a standing fold does not need for values is better left to the folds after it than filled with words.
STANDING_WORDS_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold the oldest units; ``keep_*`` counts say what stays, without them the goal's target does.

    Summaries may have ``summary_share`` of the room, of a small one more, up to ``summary_tokens_least``. With
    ``standing_share`` a new fold leaves the earlier ones as they are, cached, until they fill that share of the
    summaries' room; each takes ``fresh_share`` of what is left of it.
    """

    name: ClassVar[str] = "fold"
    when: ClassVar[When] = "batch"

    keep_messages: int | None = None
    keep_turns: int | None = None
    keep_units: int | None = None
    min_messages: int = 0
    importance_threshold: float | None = None
    keep_first_user: bool = True
    offload_freed_min: int | None = None
    role: Role = "user"
    opening: str = ""
    style: Style = "sections"
    summariser: Literal["extract", "llm"] = "extract"
    summary_tokens_max: int = 10_000
    summary_share: float = 0.3
    summary_tokens_least: int = 0
    summary_chars_max: int = 0
    index_tokens_max: int = 8_000
    index_share: float = 0.3
    standing_share: float = 0.0
    fresh_share: float = 0.4
    tool_chars_max: int = 2_000
    prompt_chars_max: int = 200_000
    prompt_tokens_max: int = 100_000
    prompt_style: PromptStyle = "sections"
    prompt: str = ""
    ask_facts: bool = False
    extract_opening: str = ""
    on_failure: Literal["extract", "keep"] = "extract"
    # What importance goes by; in a config it is a block of its own.
    score: ScoreOptions = field(default=ScoreOptions(), metadata={"block": "score"})

    def __post_init__(self) -> None:
        check_options(self)

    def propose(self, view: View, goal: Goal) -> list[Edit] | Proposal:
        """Return one fold for each run of old units; with a model configured, ask it for the words first."""
        spans = self.choose_spans(view, goal)
        if self.summariser == "llm" and spans:
            return self._ask_model(view, goal, spans)
        return self._fold_spans(view, goal, spans)

    def choose_spans(self, view: View, goal: Goal) -> list[list[Unit]]:
        """Return the units to fold, in runs: those before the newest user message, and those after it."""
        if view.tokens <= goal.target and not goal.force:
            return []
        spoken = sum(1 for item in view.items if item.role != "system")
        if spoken <= self.min_messages or self._offload_sufficed(view, goal):
            return []
        runs = self._foldable_runs(view, goal)
        if self._keeps_by_count:
            border = self._find_border(view)
            return _without_empty([[unit for unit in run if unit.stop <= border] for run in runs])
        return self._choose_by_target(view, goal, runs)

    @property
    def _keeps_by_count(self) -> bool:
        return any(count is not None for count in (self.keep_messages, self.keep_turns, self.keep_units))

    def _offload_sufficed(self, view: View, goal: Goal) -> bool:
        """S2.2: nothing is folded if the stages before freed enough, unless the view would not fit at all."""
        enough = self.offload_freed_min
        return enough is not None and goal.tokens_freed >= enough and view.tokens <= goal.hard

    def _foldable_runs(self, view: View, goal: Goal) -> list[list[Unit]]:
        kept = self._first_user(view, goal)
        if self.importance_threshold is not None:
            important = important_units(view, self.importance_threshold, self.score)
            kept |= {view.units[number].start for number in important}
        if not goal.force and view.tokens <= goal.hard:
            kept |= _find_unread(view)
        runs = [[unit for unit in run if unit.start not in kept] for run in free_runs(view)]
        return _without_empty([self._leave_standing(view, goal, run) for run in runs])

    def _leave_standing(self, view: View, goal: Goal, run: list[Unit]) -> list[Unit]:
        """Return what of a run may be folded: earlier folds stay as they are, cached, until they grow too large."""
        if not self._stands(goal):
            return run
        folds = [(at, view.items[unit.start]) for at, unit in enumerate(run) if view.items[unit.start].is_fold]
        # The one line that a later rung left has no values: it is read anew, and what follows it with it.
        records = [at for at, _ in takewhile(lambda one: says_more(one[1]), folds)]
        last = max(records, default=-1)
        standing = sum(item.tokens for item in items_of(view, run[: last + 1]))
        most = min(self.summary_tokens_max, self._part_of(goal.hard - _count_lasting(view), self.summary_share))
        return run[last + 1 :] if standing <= self.standing_share * most else run

    def _stands(self, goal: Goal) -> bool:
        """Tell whether earlier folds stay as they are. Counts, and a model's summaries, take them in."""
        return bool(self.standing_share) and not (goal.force or self._keeps_by_count or self.summariser == "llm")

    def _count_standing(self, view: View, goal: Goal, runs: Iterable[Iterable[Unit]]) -> int:
        """Return the tokens of the folds that stay as they are."""
        if not self._stands(goal):
            return 0
        taken = {at for run in runs for unit in run for at in range(unit.start, unit.stop)}
        return sum(item.tokens for at, item in enumerate(view.items) if item.is_fold and at not in taken)

    def _first_user(self, view: View, goal: Goal) -> set[int]:
        """Return where the first user message is if it stays, so that the prefix up to it remains cached.

        Counts say exactly what stays, and it is not among that.
        """
        if not self.keep_first_user or self._keeps_by_count:
            return set()
        first = next((at for at, item in enumerate(view.items) if item.role != "system"), None)
        if first is None or view.items[first].is_fold:
            return set()
        item = view.items[first]
        fits = item.tokens <= goal.hard * FIRST_USER_SHARE
        return {first} if fits and is_user_turn(item.role, item.parts) else set()

    def _find_border(self, view: View) -> int:
        """Return the index from which everything stays: the earliest that any count asks for."""
        borders = [len(view.items)]
        if self.keep_messages is not None:
            borders.append(len(view.items) - self.keep_messages)
        if self.keep_turns is not None:
            turns = find_turns(view.items)
            borders.append(
                turns[-self.keep_turns] if 0 < self.keep_turns <= len(turns) else 0 if self.keep_turns else borders[0]
            )
        if self.keep_units is not None:
            units = view.units
            borders.append(
                units[-self.keep_units].start
                if 0 < self.keep_units <= len(units)
                else 0
                if self.keep_units
                else borders[0]
            )
        return max(0, min(borders))

    def _choose_by_target(self, view: View, goal: Goal, runs: Sequence[Sequence[Unit]]) -> list[list[Unit]]:
        """Take the oldest units until what is kept and the summaries fit the target."""
        target = min(goal.target, view.tokens // 2) if goal.force and view.tokens <= goal.target else goal.target
        room = self._summary_room(view, goal, runs)
        gone = 0
        chosen: list[list[Unit]] = []
        for run in runs:
            taken: list[Unit] = []
            for unit in run:
                if view.tokens - gone + min(room, int(gone * SIZE_SHARE_MAX)) <= target:
                    break
                taken.append(unit)
                gone += sum(view.items[at].tokens for at in range(unit.start, unit.stop))
            chosen.append(taken)
        return _without_empty(chosen)

    def _summary_room(self, view: View, goal: Goal, runs: Iterable[Iterable[Unit]]) -> int:
        """Return the tokens that summaries may have in all: a share of what the unfoldable leaves of the target."""
        return self._share_room(view, goal, runs, self.summary_share, self.summary_tokens_max)

    def _part_of(self, room: int, share: float) -> int:
        """Return a share of a room: of a small one more, because a record of a few lines holds hardly a value."""
        return max(int(room * share), min(self.summary_tokens_least, int(room * SMALL_ROOM_SHARE)))

    def _share_room(self, view: View, goal: Goal, runs: Iterable[Iterable[Unit]], share: float, tokens_max: int) -> int:
        free = sum(item.tokens for run in runs for item in items_of(view, run))
        fixed = view.tokens - free
        room = goal.hard - fixed
        # The newest step moves on with the next request, the summary stays: what passes takes nothing of its share.
        lasting = room + _count_passing(view)
        standing = int(self._count_standing(view, goal, runs) * share / self.summary_share)
        part = min(self._part_of(lasting + standing, share), tokens_max)
        wanted = min(part - standing, int(room * TIGHT_SHARE))
        if self._stands(goal):
            # Most of the room is left for the folds to come.
            wanted = max(int(wanted * self.fresh_share), min(wanted, FRESH_TOKENS_MIN))
        # The target binds, unless the unfoldable alone nearly fills it: then a summary takes a part of what is left.
        fair = max(goal.target - fixed, int(wanted * TIGHT_SHARE))
        # It shrinks further only where that decides whether the view fits; below that a later rung must act anyway.
        least = _find_least(goal)
        if least // 3 <= room < least:
            least = room
        return min(tokens_max, max(least, min(wanted, fair)))

    def _fold_spans(self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]]) -> list[Edit]:
        edits: list[Edit] = []
        for span, options in self._plan_spans(view, goal, spans):
            source = Source.read(view, span, spans, edits, self._find_place(view, span))
            extract = source.extract(view, self._open_extract(options), goal)
            edit = self._make_edit(view, source, extract, _bind_force(goal, view, span, spans))
            if edit is not None:
                edits.append(edit)
        return edits

    def _ask_model(self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]]) -> Proposal:
        """Ask for each summary; where no words can be trusted the extract takes their place, and the note says why."""
        edits: list[Edit] = []
        notes: list[str] = []
        is_failed = False
        for span, options in self._plan_spans(view, goal, spans):
            source = Source.read(view, span, spans, edits, self._find_place(view, span))
            extract = source.extract(view, self._open_extract(options), goal)
            demands = self._make_demands(options)
            room = Room(self.tool_chars_max, self.prompt_chars_max, self.prompt_tokens_max, view.lens.count_text)
            told = yield from ask_words(source, view, goal, demands, room, self.opening)
            plain = self._make_edit(view, source, extract, _bind_force(goal, view, span, spans))
            edit = self._write_told(view, goal, source, extract, options, told) if told.text else None
            if edit is not None and plain is not None and _only_plain_fits(view, goal, (*edits, edit), (*edits, plain)):
                edit = None
            if edit is not None:
                edits.append(edit)
                notes.append("; ".join(("summary by a model", *told.notes, *_note_index(edit, told))))
                continue
            is_failed = True
            why = told.failure or "with the answer the context would not be small enough"
            # S2.7: the history stays as it is, unless it would not fit.
            if self.on_failure == "keep" and view.tokens <= goal.hard:
                notes.append(f"no summary: {why}")
                continue
            notes.append(f"extractive summary: {why}")
            if plain is not None:
                edits.append(plain)
        return Proposed(edits, "; ".join(notes), is_failed)

    def _find_place(self, view: View, span: Sequence[Unit]) -> int:
        """Return where the fold of a span stands: where it begins, but before the important ones that stay (S1.3)."""
        return span[0].start if self.importance_threshold is None else find_head(view, span)

    def _open_extract(self, options: ExtractOptions) -> ExtractOptions:
        return replace(options, opening=self.extract_opening) if self.extract_opening else options

    def _make_demands(self, options: ExtractOptions) -> Demands:
        """Say what the model is to write: what the index does not take, unless counts say what stays (S2.6)."""
        index = 0 if self._keeps_by_count else min(options.index_tokens_max, options.tokens_max // 2)
        tokens = max(WORDS_TOKENS_MIN, options.tokens_max - index)
        if self.prompt_tokens_max:
            # A model with a small window needs room for its answer, too.
            tokens = min(tokens, max(WORDS_TOKENS_MIN, self.prompt_tokens_max // 4))
        return Demands(self.prompt_style, tokens, self.summary_chars_max, self.prompt, self.ask_facts)

    def _write_told(
        self, view: View, goal: Goal, source: Source, extract: Extract, options: ExtractOptions, told: Told
    ) -> Edit | None:
        """Return the fold with a model's words; None if it would not be smaller than what it stands for."""
        left = max(0, options.tokens_max * 6 // 5 - view.lens.count_text(told.text))
        written = source.write(
            view, extract, replace(options, index_tokens_max=min(options.index_tokens_max, left)), goal, told.text
        )
        facts = tuple(replace(fact, handle=written.fold.handle) for fact in told.facts)
        fold = replace(written.fold, facts=tuple(merge_facts(facts, written.fold.facts)))
        # A model's words must always be shorter than what they replace; only the extract may be forced.
        return self._make_edit(view, source, Extract(fold, written.text), replace(goal, force=False))

    def _plan_spans(
        self, view: View, goal: Goal, spans: Sequence[Sequence[Unit]]
    ) -> list[tuple[Sequence[Unit], ExtractOptions]]:
        """Share the room for summaries out among the spans by what they replace; leave out what is not worth it."""
        runs = self._foldable_runs(view, goal)
        total = self._summary_room(view, goal, runs)
        index = self._share_room(view, goal, runs, self.index_share, self.index_tokens_max)
        sizes = [sum(item.tokens for item in items_of(view, span)) for span in spans]
        planned = []
        for span, size in zip(spans, sizes, strict=True):
            share = max(min(_find_least(goal), total), total * size // max(1, sum(sizes)))
            items = items_of(view, span)
            if len(items) == 1 and items[0].is_fold and size <= share * OUTGROWN and not goal.force:
                continue
            options = ExtractOptions(
                tokens_max=min(share, max(_find_least(goal), int(size * SIZE_SHARE_MAX))),
                index_tokens_max=min(self.index_tokens_max, index * share // max(1, total)),
                style=self.style,
                opening=self.opening,
                chars_max=self.summary_chars_max,
                words_share=STANDING_WORDS_SHARE if self._stands(goal) else 1.0,
                turn_range=find_turn_range(view, items),
            )
            planned.append((span, options))
        return planned

    def _make_edit(self, view: View, source: Source, extract: Extract, goal: Goal) -> Edit | None:
        """Return the fold, or None if it would not be smaller than what it stands for."""
        earlier = earlier_folds(source.items)
        edit = Edit(
            kind="fold",
            stage=self.name,
            covers=tuple(message.id for message in source.messages),
            text=extract.text,
            role=view.lens.format.allow_role(self.role, source.role_before, source.role_after),
            reason=goal.reason or "old units folded",
            level=1 + max((fold.level for fold in earlier), default=-1),
            made_from=tuple(fold.id for fold in earlier),
            tokens_before=sum(item.tokens for item in source.items),
            fold=extract.fold,
            before="" if source.before == source.messages[0].id else source.before,
        )
        after = view.lens.fold(edit, source.messages).tokens
        least = min(SAVED_TOKENS_MIN, edit.tokens_before // 10) if view.tokens <= goal.hard else 0
        if after + least >= edit.tokens_before and not goal.force:
            return None
        return replace(edit, tokens_after=after)


def _find_least(goal: Goal) -> int:
    return FORCED_TOKENS_MIN if goal.force else SUMMARY_TOKENS_MIN


def _bind_force(goal: Goal, view: View, span: Sequence[Unit], spans: Sequence[Sequence[Unit]]) -> Goal:
    """Let force hold for the largest span only: who asks for a compression does not ask for small ones that grow."""
    sizes = {id(one): sum(item.tokens for item in items_of(view, one)) for one in spans}
    return replace(goal, force=goal.force and sizes[id(span)] == max(sizes.values()))


def _find_unread(view: View) -> set[int]:
    """Return where the messages stand that came after the assistant spoke last: nobody has answered them yet."""
    spoken = (at for at in range(len(view.items) - 1, -1, -1) if view.items[at].role == "assistant")
    return set(range(next(spoken, -1) + 1, len(view.items)))


def _count_lasting(view: View) -> int:
    """Return the tokens of the system prompt and the tools."""
    return view.fixed_tokens + sum(item.tokens for item in view.items if not item.is_fold and item.role == "system")


def _count_passing(view: View) -> int:
    """Return the tokens of the newest step."""
    step = newest_step(view.items)
    return sum(view.items[at].tokens for at in range(step.start, step.stop)) if step else 0


def _without_empty(runs: Iterable[list[Unit]]) -> list[list[Unit]]:
    return [run for run in runs if run]


def _only_plain_fits(view: View, goal: Goal, told: Sequence[Edit], plain: Sequence[Edit]) -> bool:
    """Tell whether the view fits with the extract but not with a model's longer words."""
    left, shorter = (view.tokens - sum(edit.tokens_freed for edit in edits) for edits in (told, plain))
    return left > goal.hard >= shorter


def _note_index(edit: Edit, told: Told) -> list[str]:
    """Say how many exact values the index adds to a model's words."""
    artifacts = edit.fold.artifacts if edit.fold else ()
    added = sum(1 for one in artifacts if one.value in edit.text and one.value not in told.text)
    return [f"{added} exact values added"] if added else []
