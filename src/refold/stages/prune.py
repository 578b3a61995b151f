"""prune: drop old thinking as a whole, and messages without content if the view stays valid without them.

Thinking is dropped, never changed, and the newest step keeps its own. An assistant message that calls tools always
stays. In the Responses format, reasoning belongs to its call and stays with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.view import Edit, Item, View, amend
from refold.stages.stage import Goal, When, drop_part, seen_part

_CHECKS_MAX = 64
_EMPTY = because.SAYS_NOTHING()


@dataclass(frozen=True, slots=True)
class Prune:
    """Drop ``thinking`` before the newest step, and ``empty`` messages and texts."""

    name: ClassVar[str] = "prune"
    when: ClassVar[When] = "batch"

    thinking: bool = True
    empty: bool = True

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the drops, oldest first, until the target would be met."""
        groups: list[list[Edit]] = []
        left = view.tokens - goal.target
        # A provider that pairs reasoning items with calls refuses a call whose reasoning is gone.
        with_thinking = self.thinking and "responses" not in view.lens.format.name
        for at, item in enumerate(view.items):
            if left <= 0 and not goal.force:
                break
            if item.is_fold or at in view.protected:
                continue
            drops = self._drop_parts(view, item, with_thinking=with_thinking)
            freed = _count_freed(view, item, drops) if drops else 0
            if freed > 0:
                groups.append(drops)
                left -= freed
        return [edit for group in _keep_valid(view, groups) for edit in group]

    def _drop_parts(self, view: View, item: Item, *, with_thinking: bool) -> list[Edit]:
        if not item.message.parts:
            # This edit makes formats leave out a message that has no parts.
            return [Edit("drop", self.name, item.ids, part=0, reason=_EMPTY, tokens_before=item.tokens)] * self.empty
        parts = [seen_part(item, index) for index in range(len(item.message.parts))]
        idle = [at for at, part in enumerate(parts) if part and part.kind == "text" and not part.text.strip()]
        thoughts = [at for at, part in enumerate(parts) if part and part.kind == "thinking"]
        chosen = (thoughts if with_thinking else []) + (idle if self.empty else [])
        stays = any(part is not None and at not in chosen for at, part in enumerate(parts))
        if not stays and not self.empty:
            return []
        reason = because.OLD_THINKING() if thoughts and with_thinking else _EMPTY
        drops = (drop_part(item, at, view=view, stage=self.name, reason=reason) for at in sorted(chosen))
        return [edit for edit in drops if edit is not None]


def _count_freed(view: View, item: Item, drops: Sequence[Edit]) -> int:
    after = view.lens.edited(item.message, (*item.edits, *drops))
    return item.tokens - (after.tokens if after else 0)


def _keep_valid(view: View, groups: Sequence[list[Edit]]) -> list[list[Edit]]:
    """Return the groups of drops that cause no new fault; a group that does is halved and tried again."""
    known = Counter(view.lens.format.find_faults(view.items))
    kept: list[list[Edit]] = []
    waiting = [list(groups)]
    for _ in range(_CHECKS_MAX):
        if not waiting:
            break
        some = waiting.pop()
        if not some:
            continue
        after = amend(view, [edit for group in (*kept, *some) for edit in group])
        if not Counter(after.lens.format.find_faults(after.items)) - known:
            kept += some
        elif len(some) > 1:
            waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
    return kept
