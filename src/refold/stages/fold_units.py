"""Options of a fold: the units that it takes, and how long its records may be. Nothing here reads a text.

A fold takes the oldest units, up to what the counts or the target say, never what is protected. System, pinned and
sealed messages, the newest user message and the newest step stay; so do the first user message where it is short,
messages without an answer, and earlier records that have not outgrown their share. Of the rest the newest units stay.
Keeping what an agent may use next (the newest read of an edited file, a failing command, the plan) before other units
was measured and did not beat recency: see docs/notebook.md.

Every token of a record is read again with every request, and content that it leaves out may be needed. So records get
shares of the room, more in a small room and never all of it. The shares were chosen on recorded sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar, Literal

from refold.conversation.message import Message, Role, is_notice, is_user_turn
from refold.conversation.turn import Unit, find_rounds, find_turns, newest_step
from refold.conversation.view import Item, View
from refold.stages.prompts import PromptStyle
from refold.stages.record.frame import heading_of
from refold.stages.record.record import Style
from refold.stages.score import ScoreOptions, important_units
from refold.stages.stage import Goal, check_options, free_runs, is_record, items_of
from refold.stages.summarise import SIZE_SHARE_MAX


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """``keep_*`` counts say what stays; without them the goal's target does.

    Where importance keeps older messages, they and the recent rounds are at most ``rounds_max``, with room for the
    rounds until the next fold; the least important and oldest go first.

    Summaries may have ``summary_share`` of the room. In a chat it is less than half, or ``summary_tokens_least``
    where that is more. With ``standing_share`` a new fold leaves the earlier ones as they are, cached, until they
    fill that share of the summaries' room. ``closing`` adds a sentence that says what the text above it is. With
    ``by_compressor`` a manager has its ``compressor`` write the summary. With ``is_paced`` a model is asked once for
    as many tokens as lie between trigger and target; for fewer the summary is extracted.
    """

    name: ClassVar[str] = "fold"

    keep_messages: int | None = None
    keep_turns: int | None = None
    keep_rounds: int | None = None
    rounds_max: int | None = None
    min_messages: int = 0
    importance_threshold: float | None = None
    keep_first_user: bool = True
    offload_freed_min: int | None = None
    role: Role = "user"
    opening: str = ""
    closing: bool = False
    style: Style = "note"
    summariser: Literal["extract", "llm"] = "extract"
    summary_tokens_max: int = 10_000
    summary_share: float = 0.3
    summary_tokens_least: int = 0
    summary_chars_max: int = 0
    index_tokens_max: int = 8_000
    index_share: float = 0.3
    standing_share: float = 0.0
    tool_chars_max: int = 2_000
    prompt_chars_max: int = 200_000
    prompt_tokens_max: int = 100_000
    prompt_style: PromptStyle = "note"
    prompt: str = ""
    ask_facts: bool = False
    by_compressor: bool = False
    extract_opening: str = ""
    is_paced: bool = False
    on_failure: Literal["extract", "keep"] = "extract"
    # The weights of importance; in a config they are a block of their own.
    score: ScoreOptions = field(default=ScoreOptions(), metadata={"block": "score"})

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def keeps_by_count(self) -> bool:
        """True if a number of messages, turns or rounds says what stays."""
        return any(count is not None for count in (self.keep_messages, self.keep_turns, self.keep_rounds))

    def stands(self, goal: Goal) -> bool:
        """Return whether earlier folds stay as they are. Counts, and a model's summaries, take them in."""
        return bool(self.standing_share) and not (goal.force or self.keeps_by_count or self.summariser == "llm")


# The least a summary gets, however small the room: a frame and a line or two.
SUMMARY_TOKENS_MIN = 60
# With so many tokens a record can tell what happened; it gets them if they are a small part of the room.
READABLE_TOKENS = 200
LEAST_PART = 6
# A fold that a count or a person asks for gets this much, even if it then frees little.
FORCED_TOKENS_MIN = 160
# However tight it is, a part of what is left stays free for the next step.
TIGHT_SHARE = 0.8
# In a room of fewer tokens the newest steps need what a longer record would take, and the next fold is near.
SMALL_ROOM_TOKENS = 1_500
SMALL_ROOM_SHARE = 0.3
FRESH_SHARE = 0.6
# In a chat every message is words, and only the record keeps them; the result of a tool can be fetched again.
CHAT_ROOM_SHARE = 0.5
# In a larger room a longer record would crowd the conversation out: all records have so much of it, and of the target.
CHAT_SHARE, CHAT_TARGET_SHARE = 0.45, 0.6
# However small the room, a record that stays cached should be able to hold a few dozen values.
FRESH_TOKENS_MIN = 320
# The weight of a token of an earlier record, and of a tool's output, beside one of a message when spans share the room.
RECORD_WEIGHT = 6
TOOL_WEIGHT = 0.7
# So many of the newest units stay verbatim before a record may have its whole share: four exchanges of a chat.
RECENT_UNITS = 8
# They take at most so much of what the target leaves; a record may have the rest.
RECENT_SHARE = 0.4
# So many tool results, in all and for each message of a person: an agent that works by itself.
WORK_RESULTS_MIN, RESULTS_PER_ASK = 12, 3.5
# Records that stand have at least this much of their fair share of the room, and leave as much of theirs to new ones.
UNEVEN_SHARE = 0.35
# About so many tokens of a tool's output can tell something, and so many of another message.
TOLD_RESULT_TOKENS, TOLD_TOKENS = 60, 300


def summary_room(fold: FoldOptions, view: View, goal: Goal, runs: Sequence[Sequence[Unit]]) -> int:
    """Return the tokens that summaries may have in all: a share of what the unfoldable leaves of the target."""
    return share_room(fold, view, goal, runs, share=fold.summary_share, tokens_max=fold.summary_tokens_max)


def part_of(fold: FoldOptions, room: int, share: float, *, is_chat: bool) -> int:
    """Return a share of a room: in a chat less than half, in a small one more, as nothing else keeps its words."""
    if is_chat:
        return max(int(room * min(share, CHAT_SHARE)), min(fold.summary_tokens_least, int(room * CHAT_ROOM_SHARE)))
    return int(room * (min(share, SMALL_ROOM_SHARE) if room < SMALL_ROOM_TOKENS else share))


def share_room(
    fold: FoldOptions, view: View, goal: Goal, runs: Sequence[Sequence[Unit]], *, share: float, tokens_max: int
) -> int:
    """Return the tokens that a part of the summaries may have, given its share of the room."""
    free = sum(item.tokens for run in runs for item in items_of(view, run))
    fixed = view.tokens - free
    room = goal.hard - fixed
    # New messages move on with the next request and the summary stays, so they do not reduce its share.
    lasting = room + _count_passing(view)
    standing = int(_count_standing(fold, view, goal, runs) * share / fold.summary_share)
    is_chat = not has_tools(view)
    part = min(part_of(fold, lasting + standing, share, is_chat=is_chat), tokens_max)
    wanted = min(part - standing, int(room * TIGHT_SHARE))
    if fold.stands(goal) and not is_chat and lasting + standing < SMALL_ROOM_TOKENS:
        wanted = max(int(wanted * FRESH_SHARE), min(wanted, FRESH_TOKENS_MIN))
    # The target binds, unless the unfoldable alone nearly fills it: then a summary takes a part of what is left.
    recent = _count_recent(view, runs, int((goal.target - fixed) * RECENT_SHARE))
    fair = goal.target - fixed - recent
    if is_chat:
        least = min(fold.summary_tokens_least, int((lasting + standing) * CHAT_ROOM_SHARE))
        fair = max(least, int((goal.target - fixed + standing) * CHAT_TARGET_SHARE)) - standing
    elif not recent:
        fair = max(fair, int(wanted * TIGHT_SHARE))
    elif works_alone(view):
        # An agent working alone depends on its record: a large newest step must not shrink it.
        fair = max(fair, wanted)
    # It shrinks further only if that makes the view fit; with even less room a later rung must act anyway.
    least = max(find_least(goal), min(READABLE_TOKENS, room // LEAST_PART))
    if least // 3 <= room < least:
        least = room
    return min(tokens_max, max(least, min(wanted, fair)))


def has_tools(view: View) -> bool:
    """Return whether any tool was used."""
    return any(_is_result(view, message) for message in view.messages)


def _is_result(view: View, message: Message) -> bool:
    """Return whether a message brings results of tools: in Anthropic's format, or as text, its role is ``user``."""
    is_result = message.role == "tool" or any(part.kind == "result" for part in message.parts)
    return is_result or (message.role == "user" and view.lens.is_observation(message))


def works_alone(view: View) -> bool:
    """Return whether an agent works by itself: several tool results for each message of a person."""
    results = sum(_is_result(view, message) for message in view.messages)
    asks = sum(message.starts_turn and not _is_result(view, message) for message in view.messages)
    return results >= max(WORK_RESULTS_MIN, RESULTS_PER_ASK * asks)


def _count_recent(view: View, runs: Sequence[Sequence[Unit]], tokens_max: int) -> int:
    """Return the tokens of the newest units that stay verbatim, as far as they fit."""
    tokens = 0
    for unit in [unit for run in runs for unit in run][: -RECENT_UNITS - 1 : -1]:
        if (size := count_unit(view, unit)) > tokens_max - tokens:
            break
        tokens += size
    return tokens


def count_unit(view: View, unit: Unit) -> int:
    """Return the tokens of a unit in the view."""
    return sum(item.tokens for item in view.items[unit.start : unit.stop])


def weigh_span(view: View, span: Sequence[Unit]) -> float:
    """Return how much there is to tell of a span: a token of a record tells more than a word, a tool's output less."""
    weight = 1.0
    for item in items_of(view, span):
        kind = RECORD_WEIGHT if item.is_fold else TOOL_WEIGHT if _is_result(view, item.message) else 1.0
        weight += item.tokens * kind
    return weight


def _count_standing(fold: FoldOptions, view: View, goal: Goal, runs: Sequence[Sequence[Unit]]) -> int:
    """Return the tokens of the folds that stay as they are."""
    if not fold.stands(goal):
        return 0
    taken = {at for run in runs for unit in run for at in range(unit.start, unit.stop)}
    return sum(item.tokens for at, item in enumerate(view.items) if item.is_fold and at not in taken)


def count_lasting(view: View) -> int:
    """Return the tokens of the system prompt and the tools."""
    return view.fixed_tokens + sum(item.tokens for item in view.items if not item.is_fold and item.role == "system")


def _count_passing(view: View) -> int:
    """Return the tokens of the newest step and of what the compression at hand must leave as it is."""
    step = newest_step(view.items)
    passing = set(range(step.start, step.stop)) if step else set()
    passing |= {at for at, item in enumerate(view.items) if not item.is_fold and item.message.id in view.held}
    return sum(view.items[at].tokens for at in passing)


def find_least(goal: Goal) -> int:
    """Return the tokens below which a record says nothing."""
    return FORCED_TOKENS_MIN if goal.force else SUMMARY_TOKENS_MIN


# A first message larger than this share of the room is not worth its cached place.
FIRST_USER_SHARE = 0.1
# Notices at the beginning stay if they take at most this share of the room: instructions of a project, its environment.
SETUP_SHARE = 0.25
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
        kept |= _find_important(fold, view, fold.importance_threshold)
    if not goal.force and view.tokens <= goal.hard:
        kept |= _find_unread(view)
    runs = [[unit for unit in run if unit.start not in kept] for run in free_runs(view)]
    return _without_empty(_leave_standing(fold, view, goal, _without_empty(runs)))


def _find_important(fold: FoldOptions, view: View, threshold: float) -> set[int]:
    """Return where the important units begin; of those before the recent rounds no more than ``rounds_max`` allows."""
    scores = {view.units[at].start: score for at, score in important_units(view, threshold, fold.score).items()}
    if fold.rounds_max is None or not fold.keeps_by_count:
        return set(scores)
    border = _find_border(fold, view)
    # As many rounds as are recent may come before the next fold.
    most = max(0, fold.rounds_max - 2 * (fold.keep_rounds or 0))
    old = sorted((start for start in scores if start < border), key=lambda start: (scores[start], start), reverse=True)
    return set(scores) - set(old[most:])


def _leave_standing(fold: FoldOptions, view: View, goal: Goal, runs: Sequence[list[Unit]]) -> list[list[Unit]]:
    """Return what of the runs may be folded: earlier records stay as they are, cached, until they grow too large."""
    if not fold.stands(goal):
        return list(runs)
    counts = [_count_records(view, run) for run in runs]
    if works_alone(view):
        # The runs share the room: tokens of one run's records are not available to the next.
        standing = [unit for run, count in zip(runs, counts, strict=True) for unit in run[:count]]
        new = [unit for run, count in zip(runs, counts, strict=True) for unit in run[count:]]
        keeps = _may_stand(fold, view, goal, standing) and not _is_uneven(
            view, _count_most(fold, view, goal), standing, new
        )
        return [run[count:] if keeps else run for run, count in zip(runs, counts, strict=True)]
    stand = [_may_stand(fold, view, goal, run[:count]) for run, count in zip(runs, counts, strict=True)]
    return [run[count:] if keeps else run for run, count, keeps in zip(runs, counts, stand, strict=True)]


def _count_records(view: View, run: Sequence[Unit]) -> int:
    """Return how many units at the beginning of a run would stay, up to its last record."""
    folds = [(at, view.items[unit.start]) for at, unit in enumerate(run) if view.items[unit.start].is_fold]
    # A line that a later rung left has no content: its originals are read again, and those of later records with it.
    # So are those of a record that lists an ask as open: the answer came after it.
    records = [at for at, _ in takewhile(lambda one: is_record(one[1]) and not _is_current(one[1]), folds)]
    # Small records at the end are cheap to write again, and one of a line or two tells nothing beside the next.
    while records and count_unit(view, run[records[-1]]) < SMALL_RECORD_TOKENS:
        records.pop()
    return max(records, default=-1) + 1


def _may_stand(fold: FoldOptions, view: View, goal: Goal, units: Sequence[Unit]) -> bool:
    """Return whether earlier records leave enough of the room to new ones and to what stays verbatim."""
    standing = sum(count_unit(view, unit) for unit in units)
    lasting = count_lasting(view)
    most = _count_most(fold, view, goal)
    # Half of the target belongs to what stays verbatim, and a record that keeps new content out must shrink.
    free = sum(count_unit(view, unit) for unit in view.free_units())
    fits = standing <= (goal.target - lasting) // 2 and view.tokens - free + standing <= goal.hard
    return fits and standing <= fold.standing_share * most


def _count_most(fold: FoldOptions, view: View, goal: Goal) -> int:
    """Return the tokens that all records may have in the room beside the system prompt."""
    room = goal.hard - count_lasting(view)
    return min(fold.summary_tokens_max, part_of(fold, room, fold.summary_share, is_chat=not has_tools(view)))


def _is_uneven(view: View, most: int, standing: Sequence[Unit], new: Sequence[Unit]) -> bool:
    """Return whether earlier records have, or leave to new ones, much less room than is fair for their steps."""
    if not standing or not new:
        return False
    tokens = sum(count_unit(view, unit) for unit in standing)
    told, untold = (sum(_weigh_unit(view, unit) for unit in units) for units in (standing, new))
    fair = most * told / max(1, told + untold)
    is_squeezed = tokens < min(fair, told) * UNEVEN_SHARE
    return is_squeezed or most - tokens < (most - fair) * UNEVEN_SHARE


def _weigh_unit(view: View, unit: Unit) -> int:
    """Return about how many tokens of a unit's originals tell something: of a tool's output a few lines."""
    messages = (message for item in view.items[unit.start : unit.stop] for message in item.messages)
    sizes = ((_is_result(view, message), view.lens.plain(message).tokens) for message in messages)
    return sum(min(size, TOLD_RESULT_TOKENS if is_result else TOLD_TOKENS) for is_result, size in sizes)


def _is_current(item: Item) -> bool:
    """Return whether a record states how things were at the time of the last fold."""
    fold = item.edits[0].fold
    return (fold is not None and fold.is_current) or _names_open_ask(item)


def _names_open_ask(item: Item) -> bool:
    """Return whether a record ends with a person's message and lists it as open."""
    text, last = item.edits[0].text, item.messages[-1]
    return last.role == "user" and any(f"\n## {name}\nU> " in text for name in OPEN_HEADINGS)


def _first_user(fold: FoldOptions, view: View, goal: Goal) -> set[int]:
    """Return where the first user message is if it stays, so that the prefix up to it remains cached.

    Notices before it stay, too: a project's instructions and the environment come once, unless they change. Counts say
    exactly what stays, and neither is among that.
    """
    if not fold.keep_first_user or fold.keeps_by_count:
        return set()
    spoken = [at for at, item in enumerate(view.items) if item.role != "system"]
    notices = list(takewhile(lambda at: _is_notice(view.items[at]), spoken))
    later = {_name_kind(item) for item in view.items[notices[-1] + 1 :] if _is_notice(item)} if notices else set()
    room = goal.hard * SETUP_SHARE
    fits = sum(view.items[at].tokens for at in notices) <= room
    kept = {at for at in notices if fits and _name_kind(view.items[at]) not in later}
    first = next((at for at in spoken if at not in notices), None)
    if first is None or view.items[first].is_fold:
        return kept
    item = view.items[first]
    is_small = item.tokens <= goal.hard * FIRST_USER_SHARE
    return kept | ({first} if is_small and is_user_turn(item.role, item.parts) else set())


def _is_notice(item: Item) -> bool:
    return not item.is_fold and is_notice(item.role, item.parts)


def _name_kind(item: Item) -> str:
    """Return the first line of a notice, which those of its kind have in common."""
    return item.parts[0].text.lstrip().partition("\n")[0] if item.parts else ""


def _find_border(fold: FoldOptions, view: View) -> int:
    """Return the index from which everything stays: the earliest that any count asks for."""
    end = len(view.items)
    borders = [end]
    if fold.keep_messages is not None:
        borders.append(end - fold.keep_messages)
    if fold.keep_turns is not None:
        borders.append(_start_of_newest(fold.keep_turns, find_turns(view.items), end))
    if fold.keep_rounds is not None:
        borders.append(_start_of_newest(fold.keep_rounds, find_rounds(view.items), end))
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
    if not goal.force and not has_tools(view):
        # The record of a chat takes no room from its last exchanges.
        fixed = view.tokens - gone
        target = max(target, fixed + room + _count_recent(view, runs, (target - fixed) // 2))
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
    if not goal.force and not has_tools(view):
        kept -= _find_split(view, newest, kept)
    return UnitChoice(_without_empty([[unit for unit in run if unit.start not in kept] for run in runs]), room)


def _find_split(view: View, newest: Sequence[Unit], kept: set[int]) -> set[int]:
    """Return the oldest kept unit of a chat if it answers a message that is folded: a record ends with the answer."""
    oldest = max((at for at, unit in enumerate(newest) if unit.start in kept), default=-1)
    if oldest < 1 or oldest + 1 == len(newest):
        return set()
    answer, asked = newest[oldest], newest[oldest + 1]
    is_split = view.items[answer.start].role == "assistant" and view.items[asked.stop - 1].role == "user"
    return {answer.start} if is_split and asked.stop == answer.start else set()


def _can_shorten(view: View, unit: Unit, free: int, target: int) -> bool:
    """Return whether a unit is worth keeping in so many tokens: its results are most of it, and can give way."""
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
