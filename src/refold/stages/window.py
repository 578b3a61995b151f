"""window: keeps only the last turns, and replaces everything before them with a small summary made without a model.

It is the second to last rung and runs only when the view is over *hard*. It asks no model and cannot fail: every unit
that is not protected may be folded. One handle leads to everything it hides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Message, Role, fold_handle, mark
from refold.conversation.reason import Language, Reason
from refold.conversation.turn import Unit, find_turns
from refold.conversation.view import Edit, FoldRecord, View
from refold.stages.record.record import RecordOptions, WrittenRecord
from refold.stages.record.source import Source
from refold.stages.stage import BARE, Goal, When, free_runs, is_record, items_of

_ROLE_NAMES: dict[Language, dict[Role, str]] = {
    "en": {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool results"},
    "zh": {"system": "系统", "user": "用户", "assistant": "助手", "tool": "工具结果"},
}


_FRAME_TOKENS = 5
# With more earlier records than this, a new one takes them in.
RECORDS_MAX = 2
# Tokens of the one line that replaces messages where there is no room for a record.
_LINE_TOKENS = 60
_EXTRACT_TOKENS_MIN = 160
_REASON = because.WINDOWED()


@dataclass(frozen=True, slots=True)
class Window:
    """Fold all but the newest units; with ``keep_turns``, all but those turns.

    Earlier records stay as long as they are few and the view fits with them. A new record may use the room that the
    target leaves, at most ``summary_tokens_max``. If the target leaves no room, it may use ``summary_share`` of the
    target, if that fits.
    """

    name: ClassVar[str] = "window"
    when: ClassVar[When] = "hard"

    keep_turns: int | None = None
    role: Role = "user"
    summary_tokens_max: int = 5_000
    summary_share: float = 0.15

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return one fold for each run of old units, as much as it takes to come down to the target."""
        border = self._find_border(view)
        runs = free_runs(view)
        spoken = [[unit for unit in run if not is_record(view.items[unit.start])] for run in runs]
        records = sum(map(len, runs)) - sum(map(len, spoken))
        if records <= RECORDS_MAX and view.tokens - _count_tokens(view, spoken) + _LINE_TOKENS * len(runs) <= goal.hard:
            runs = [run for run in spoken if run]
        edits: list[Edit] = []
        least = _LINE_TOKENS if goal.is_late else min(self.summary_tokens_max, int(goal.target * self.summary_share))
        # The turns to keep are folded only if the view would not fit with them; then some room stays free.
        old = [[unit for unit in run if unit.stop <= (border or 0)] for run in runs]
        is_enough = border is not None and view.tokens - _count_tokens(view, old) + least <= goal.hard
        left = view.tokens + least - (goal.hard if is_enough else goal.target)
        over = view.tokens - goal.hard
        for run in runs:
            units = _choose_units(view, run, left, border or 0)
            edit = self._fold_units(view, goal, units, least=least, over=over) if units else None
            if edit is not None and edit.tokens_freed < over and len(units) < len(run):
                # In a small window the line that replaces them takes more than its share of the room.
                units = _choose_units(view, run, left + edit.tokens_after, border or 0)
                edit = self._fold_units(view, goal, units, least=least, over=over)
            if edit is not None:
                edits.append(edit)
                left -= edit.tokens_freed
                over -= edit.tokens_freed
        return edits

    def _fold_units(self, view: View, goal: Goal, units: Sequence[Unit], *, least: int, over: int) -> Edit:
        gone = _count_tokens(view, [units])
        # The record gets the room that the target leaves; a longer one would make clamp cut the newest step.
        wanted = max(least, gone - over - (goal.hard - goal.target))
        return fold_units(
            view,
            units,
            goal,
            stage=self.name,
            role=self.role,
            reason=_REASON,
            tokens_max=0 if goal.is_late else min(self.summary_tokens_max, wanted, gone - max(1, over) - _FRAME_TOKENS),
        )

    def _find_border(self, view: View) -> int | None:
        """Return where the turns to keep begin; None if ``keep_turns`` is not set."""
        if self.keep_turns is None:
            return None
        turns = find_turns(view.items)
        return turns[-self.keep_turns] if 0 < self.keep_turns <= len(turns) else 0


def _count_tokens(view: View, runs: Iterable[Sequence[Unit]]) -> int:
    return sum(item.tokens for run in runs for item in items_of(view, run))


def _choose_units(view: View, run: Sequence[Unit], left: int, border: int) -> list[Unit]:
    """Return the units before the border, and more of the oldest while there are tokens ``left`` to free."""
    chosen: list[Unit] = []
    for unit in run:
        if left <= 0 and unit.stop > border:
            break
        chosen.append(unit)
        left -= sum(view.items[at].tokens for at in range(unit.start, unit.stop))
    return chosen


def fold_units(
    view: View, units: Sequence[Unit], goal: Goal, *, stage: str, role: Role, reason: Reason, tokens_max: int = 0
) -> Edit:
    """Return the fold of these units: a record if it has room, else one line that says what left the view."""
    source = Source.read(view, units, [units], (), units[0].start)
    record = _write_summary(view, source, goal, tokens_max)
    return source.fold(view, record, stage=stage, role=role, reason=reason)


def _write_summary(view: View, source: Source, goal: Goal, tokens_max: int) -> WrittenRecord:
    if tokens_max >= _EXTRACT_TOKENS_MIN:
        record = source.write(view, RecordOptions(tokens_max=tokens_max, index_tokens_max=tokens_max // 4), goal)
        if view.lens.count_text(record.text) <= tokens_max:
            return record
    text = describe_span(source.messages, goal.language)
    return WrittenRecord(FoldRecord(handle=fold_handle(source.messages), summary=text, by=BARE), text)


def describe_span(messages: Sequence[Message], language: Language) -> str:
    """Return one marked line that says how many messages of which roles left the view, and their handle."""
    counts = Counter(message.role for message in messages)
    names = _ROLE_NAMES[language]
    listed = ", ".join(f"{names[role]} {count}" for role, count in sorted(counts.items()))
    handle = mark(fold_handle(messages))
    if language == "zh":
        return f"[较早的对话共 {len(messages)} 条消息（{listed}）已移出视图；原文见 {handle}]"
    return f"[{len(messages)} earlier messages ({listed}) are out of view; the originals: {handle}]"
