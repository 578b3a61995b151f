"""How long the records of a fold may be: shares of the room, in a small room more, never all of it.

Every token of a record is read again with every request, and content that it leaves out may be needed. The shares were
chosen on recorded sessions. Nothing here reads a text.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.conversation.turn import Unit, newest_step
from refold.conversation.view import View
from refold.stages.fold.options import FoldOptions
from refold.stages.span import items_of
from refold.stages.stage import Goal

# The least a summary gets, however small the room: a frame and a line or two.
SUMMARY_TOKENS_MIN = 60
# With so many tokens a record can tell what happened; it gets them if they are a small part of the room.
READABLE_TOKENS = 200
LEAST_PART = 6
# A fold that a count or a person asks for gets this much, even if it then frees little.
FORCED_TOKENS_MIN = 160
# However tight it is, a part of what is left stays free for the next step.
TIGHT_SHARE = 0.8
# What summaries may take of a small room to have their least.
SMALL_ROOM_SHARE = 0.3
# However small the room, a record that stays cached should be able to hold a few dozen values.
FRESH_TOKENS_MIN = 320
# So many of the newest units stay verbatim before a record may have its whole share: four exchanges of a chat.
RECENT_UNITS = 8


def summary_room(fold: FoldOptions, view: View, goal: Goal, runs: Sequence[Sequence[Unit]]) -> int:
    """Return the tokens that summaries may have in all: a share of what the unfoldable leaves of the target."""
    return share_room(fold, view, goal, runs, fold.summary_share, fold.summary_tokens_max)


def part_of(fold: FoldOptions, room: int, share: float) -> int:
    """Return a share of a room: of a small one more, because a record of a few lines holds hardly a value."""
    return max(int(room * share), min(fold.summary_tokens_least, int(room * SMALL_ROOM_SHARE)))


def share_room(
    fold: FoldOptions, view: View, goal: Goal, runs: Sequence[Sequence[Unit]], share: float, tokens_max: int
) -> int:
    """Return the tokens that a part of the summaries may have, given its share of the room."""
    free = sum(item.tokens for run in runs for item in items_of(view, run))
    fixed = view.tokens - free
    room = goal.hard - fixed
    # New messages move on with the next request and the summary stays, so they do not reduce its share.
    lasting = room + _count_passing(view)
    standing = int(_count_standing(fold, view, goal, runs) * share / fold.summary_share)
    part = min(part_of(fold, lasting + standing, share), tokens_max)
    wanted = min(part - standing, int(room * TIGHT_SHARE))
    if fold.stands(goal):
        # Most of the room is left for the folds to come.
        wanted = max(int(wanted * fold.fresh_share), min(wanted, FRESH_TOKENS_MIN))
    # The target binds, unless the unfoldable alone nearly fills it: then a summary takes a part of what is left.
    recent = _count_recent(view, runs, (goal.target - fixed) // 2)
    fair = goal.target - fixed - recent if recent else max(goal.target - fixed, int(wanted * TIGHT_SHARE))
    # It shrinks further only if that makes the view fit; with even less room a later rung must act anyway.
    least = max(find_least(goal), min(READABLE_TOKENS, room // LEAST_PART))
    if least // 3 <= room < least:
        least = room
    return min(tokens_max, max(least, min(wanted, fair)))


def _count_recent(view: View, runs: Sequence[Sequence[Unit]], tokens_max: int) -> int:
    """Return the tokens of the newest units that stay verbatim, within half of what the target leaves."""
    tokens = 0
    for unit in [unit for run in runs for unit in run][: -RECENT_UNITS - 1 : -1]:
        if (size := count_unit(view, unit)) > tokens_max - tokens:
            break
        tokens += size
    return tokens


def count_unit(view: View, unit: Unit) -> int:
    """Return the tokens of a unit in the view."""
    return sum(item.tokens for item in view.items[unit.start : unit.stop])


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
