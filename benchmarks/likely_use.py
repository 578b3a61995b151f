"""A variant of the ladder, for ``bench_replay.py --keep likely``: folds keep what is likely to be used next.

Kept first, in up to a third of the target: the newest read of each file that was written or is named in the newest four
units, the newest step that failed, and the newest plan. Everything else is kept by recency, as refold does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refold.conversation.view import Item, View
from refold.ladder.plan import Outcome, Plan, prepare
from refold.ladder.rereads import ItemKinds
from refold.ladder.run import drive
from refold.reading.calls import read_call
from refold.reading.events import Action, FileChange
from refold.replay.policy import LadderPolicy

RECENT_UNITS = 4
LIKELY_SHARE = 1 / 3
PLAN_WORDS = ("todo", "plan")


class LikelyPolicy(LadderPolicy):
    """The ladder of a preset, which folds around the units that are likely to be used again."""

    def run(self, plan: Plan) -> Outcome:
        """Run the ladder; if it folds, fold again from the same view with the likely units held."""
        plain = super().run(plan)
        if not any(edit.kind == "fold" for edit in plain.edits):
            return plain
        tokens_max = int(plan.budget.above(self._room.fixed_tokens).target * LIKELY_SHARE)
        likely = frozenset(find_likely(self._view, tokens_max))
        held = replace(plan, trigger=plain.trigger, unsent=plan.unsent | likely)
        return drive(prepare(self._view, held), self._answer)


def find_likely(view: View, tokens_max: int) -> Iterator[str]:
    """Yield the ids of the messages that are likely to be used next, newest units first, within a limit."""
    kinds = ItemKinds().update(view.items)
    touched = [list(_find_touched(item)) for item in view.items]
    recent = view.units[-RECENT_UNITS].start if len(view.units) >= RECENT_UNITS else 0
    near = "\n".join(part.text for item in view.items[recent:] for part in item.parts if part.text)
    written = {path for found in touched for how, path in found if how != "read"}
    wanted = {path for found in touched for _, path in found if path in written or path in near}
    kept: set[str] = set()
    for unit in reversed(view.units):
        places = range(unit.start, unit.stop)
        found = {path for at in places for how, path in touched[at] if how == "read" and path in wanted}
        found |= {"failure" for at in places if kinds[at] == "error"}
        found |= {"plan" for at in places if _is_plan(view.items[at])}
        tokens = sum(view.items[at].tokens for at in places)
        if any(view.items[at].is_fold for at in places) or not found - kept or tokens > tokens_max:
            continue
        kept |= found
        if unit.start < recent:
            tokens_max -= tokens
            yield from (view.items[at].message.id for at in places)


def _find_touched(item: Item) -> Iterator[tuple[str, str]]:
    for part in item.parts if not item.is_fold else ():
        if part.kind == "call":
            for event in read_call(part, 0):
                if isinstance(event, FileChange):
                    yield "written", event.path
                elif isinstance(event, Action) and event.verb == "read":
                    yield from (("read", path) for path in event.targets)


def _is_plan(item: Item) -> bool:
    return any(part.kind == "call" and any(word in part.name.lower() for word in PLAN_WORDS) for part in item.parts)
