"""Which units a fold takes: the oldest, up to what the counts or the target say, never what is protected.

System, pinned and sealed messages, the newest user message and the newest step stay; so do the first user message
where it is short, messages without an answer, and earlier records that have not outgrown their share. Of the rest
the newest units stay. Keeping what an agent may use next (the newest read of an edited file, a failing command, the
plan) before other units was measured and did not beat recency: see docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from refold.conversation.message import is_user_turn
from refold.conversation.turn import Unit, find_turns
from refold.conversation.view import Item, View
from refold.stages.extract.layout import heading_of
from refold.stages.fold.options import FoldOptions
from refold.stages.fold.room import count_lasting, count_unit, part_of, summary_room
from refold.stages.score import important_units
from refold.stages.span import free_runs, is_record
from refold.stages.stage import Goal
from refold.stages.verify.check import SIZE_SHARE_MAX

# A first message larger than this share of the room is not worth its cached place.
FIRST_USER_SHARE = 0.1
# A record of fewer tokens at the end of the earlier ones is a line or two: the next record takes it in.
SMALL_RECORD_TOKENS = 140
OPEN_HEADINGS = tuple(name for layout in ("note", "sections") for name in heading_of("open", layout).values())
# A large unit stays shortened if what it may have is at least this share of the target, and so many tokens.
SHORTENED_SHARE_MIN, SHORTENED_TOKENS_MIN = 0.15, 150


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The units to fold, in runs, and perhaps one large unit that stays if its results are cut by ``over`` tokens.

    ``room`` is what was set aside for the records.
    """

    spans: list[list[Unit]]
    room: int = 0
    shortened: Unit | None = None
    over: int = 0


def choose_units(fold: FoldOptions, view: View, goal: Goal, room: int | None = None) -> UnitChoice:
    """Return the units to fold: those before the newest user message and those after it are separate runs.

    ``room`` is what the records are expected to take, if that is known.
    """
    if view.tokens <= goal.target and not goal.force:
        return UnitChoice([])
    spoken = sum(1 for item in view.items if item.role != "system")
    if spoken <= fold.min_messages or _offload_sufficed(fold, view, goal):
        return UnitChoice([])
    runs = foldable_runs(fold, view, goal)
    if fold.keeps_by_count:
        border = _find_border(fold, view)
        return UnitChoice(_without_empty([[unit for unit in run if unit.stop <= border] for run in runs]))
    return _choose_by_target(view, goal, runs, summary_room(fold, view, goal, runs) if room is None else room)


def _offload_sufficed(fold: FoldOptions, view: View, goal: Goal) -> bool:
    """S2.2: nothing is folded if offloading freed enough, or brought the view under the threshold; it must fit."""
    enough = fold.offload_freed_min
    if enough is None or view.tokens > goal.hard:
        return False
    return goal.tokens_freed >= enough or (view.tokens < goal.soft and not goal.force)


def foldable_runs(fold: FoldOptions, view: View, goal: Goal) -> list[list[Unit]]:
    """Return all that may be folded, in runs, whether the target asks for it or not."""
    kept = _first_user(fold, view, goal)
    if fold.importance_threshold is not None:
        important = important_units(view, fold.importance_threshold, fold.score)
        kept |= {view.units[number].start for number in important}
    if not goal.force and view.tokens <= goal.hard:
        kept |= _find_unread(view)
    runs = [[unit for unit in run if unit.start not in kept] for run in free_runs(view)]
    return _without_empty([_leave_standing(fold, view, goal, run) for run in runs])


def _leave_standing(fold: FoldOptions, view: View, goal: Goal, run: list[Unit]) -> list[Unit]:
    """Return what of a run may be folded: earlier records stay as they are, cached, until they grow too large."""
    if not fold.stands(goal):
        return run
    folds = [(at, view.items[unit.start]) for at, unit in enumerate(run) if view.items[unit.start].is_fold]
    # A line that a later rung left has no content: its originals are read again, and those of later records with it.
    # So are those of a record that lists an ask as open: the answer came after it.
    records = [at for at, _ in takewhile(lambda one: is_record(one[1]) and not _names_open_ask(one[1]), folds)]
    # Small records at the end are cheap to write again, and one of a line or two tells nothing beside the next.
    while records and count_unit(view, run[records[-1]]) < SMALL_RECORD_TOKENS:
        records.pop()
    last = max(records, default=-1)
    standing = sum(count_unit(view, unit) for unit in run[: last + 1])
    lasting = count_lasting(view)
    most = min(fold.summary_tokens_max, part_of(fold, goal.hard - lasting, fold.summary_share))
    # Half of the target belongs to what stays verbatim, and a record that keeps new content out must shrink.
    fits = standing <= (goal.target - lasting) // 2 and view.tokens - _count_free(view) + standing <= goal.hard
    return run[last + 1 :] if fits and standing <= fold.standing_share * most else run


def _names_open_ask(item: Item) -> bool:
    """Tell whether a record ends with a person's message and lists it as open."""
    text, last = item.edits[0].text, item.messages[-1]
    return last.role == "user" and any(f"\n## {name}\nU> " in text for name in OPEN_HEADINGS)


def _count_free(view: View) -> int:
    return sum(count_unit(view, unit) for unit in view.free_units())


def _first_user(fold: FoldOptions, view: View, goal: Goal) -> set[int]:
    """Return where the first user message is if it stays, so that the prefix up to it remains cached.

    Counts say exactly what stays, and it is not among that.
    """
    if not fold.keep_first_user or fold.keeps_by_count:
        return set()
    first = next((at for at, item in enumerate(view.items) if item.role != "system"), None)
    if first is None or view.items[first].is_fold:
        return set()
    item = view.items[first]
    fits = item.tokens <= goal.hard * FIRST_USER_SHARE
    return {first} if fits and is_user_turn(item.role, item.parts) else set()


def _find_border(fold: FoldOptions, view: View) -> int:
    """Return the index from which everything stays: the earliest that any count asks for."""
    end = len(view.items)
    borders = [end]
    if fold.keep_messages is not None:
        borders.append(end - fold.keep_messages)
    if fold.keep_turns is not None:
        borders.append(_start_of_newest(fold.keep_turns, find_turns(view.items), end))
    if fold.keep_units is not None:
        borders.append(_start_of_newest(fold.keep_units, [unit.start for unit in view.units], end))
    return max(0, min(borders))


def _start_of_newest(count: int, starts: Sequence[int], end: int) -> int:
    """Return where the newest ``count`` begin: at the start if there are fewer, at the end if ``count`` is 0."""
    if not count:
        return end
    return starts[-count] if count <= len(starts) else 0


def _choose_by_target(view: View, goal: Goal, runs: Sequence[Sequence[Unit]], room: int) -> UnitChoice:
    """Keep the newest units as far as they and the records fit the target; the last of them may be shortened."""
    target = min(goal.target, view.tokens // 2) if goal.force and view.tokens <= goal.target else goal.target
    newest = [unit for run in reversed(runs) for unit in reversed(run)]
    gone = sum(count_unit(view, unit) for unit in newest)
    left = target - (view.tokens - gone)
    kept: set[int] = set()
    for unit in newest:
        size = count_unit(view, unit)
        if size + min(room, int((gone - size) * SIZE_SHARE_MAX)) > left:
            free = left - min(room, int(gone * SIZE_SHARE_MAX))
            if _can_shorten(view, unit, free, target):
                spans = [[one for one in run if one.start not in kept and one is not unit] for run in runs]
                return UnitChoice(_without_empty(spans), room, unit, size - free)
            break
        kept.add(unit.start)
        gone -= size
        left -= size
    return UnitChoice(_without_empty([[unit for unit in run if unit.start not in kept] for run in runs]), room)


def _can_shorten(view: View, unit: Unit, free: int, target: int) -> bool:
    """Tell whether a unit is worth keeping in so many tokens: its results are most of it, and can give way."""
    if free < max(SHORTENED_TOKENS_MIN, SHORTENED_SHARE_MIN * (target - count_lasting(view))):
        return False
    items = view.items[unit.start : unit.stop]
    results = [part for item in items if not item.is_fold for part in item.parts if part.kind == "result"]
    rest = count_unit(view, unit) - sum(view.lens.count_text(part.text) for part in results)
    return bool(results) and rest + SHORTENED_TOKENS_MIN * len(results) <= free


def _find_unread(view: View) -> set[int]:
    """Return the places of the messages after the assistant's last one: they are not answered yet."""
    spoken = (at for at in range(len(view.items) - 1, -1, -1) if view.items[at].role == "assistant")
    return set(range(next(spoken, -1) + 1, len(view.items)))


def _without_empty(runs: Iterable[list[Unit]]) -> list[list[Unit]]:
    return [run for run in runs if run]
