"""dedupe: if a file is read again, or an output or a notice repeats, replace the older copy by a pointer to the newer.

If the two differ a little, the pointer includes the diff; if they differ more, the count of different lines; if they
have little in common, both stay. The newer copy is never touched. Work is linear: copies are found by their
text and by their call, never by comparing all with all.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import is_notice, mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.turn import count_common
from refold.conversation.view import Edit, View
from refold.patterns import lazy_regex
from refold.reading.fields import read_json
from refold.stages.gist import Observation, describe_call, describe_size, find_observations
from refold.stages.stage import Goal, When, check_options, replace_part, take_until_met

_DIFF_SPAN_MAX = 200  # Lines between the first and last difference that are compared; others are only counted.
_DIFF_LINE_CHARS = 300
_NUMBER = lazy_regex(r"\d+")


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Point from results of ``chars_min`` or more to a newer one with the same text, or of the same call.

    ``alike_min`` is the share of lines that two results of one call must have in common; ``diff_lines_max`` how many
    lines of difference are shown.
    """

    name: ClassVar[str] = "dedupe"
    when: ClassVar[When] = "batch"

    chars_min: int = 200
    alike_min: float = 0.5
    diff_lines_max: int = 12

    def __post_init__(self) -> None:
        check_options(self)

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the pointers of notices, and of results until the target would be met, oldest first."""
        notices = self._point_notices(view, goal.language)
        left = replace(goal, target=goal.target + sum(edit.tokens_freed for edit in notices))
        return [*notices, *take_until_met(view, left, self._point_copies(view, goal.language))]

    def _point_notices(self, view: View, language: Language) -> list[Edit]:
        """Point from each notice to the newest of the same words, whatever its numbers: it is in view once."""
        newest: dict[str, str] = {}
        edits: list[Edit] = []
        for at in range(len(view.items) - 1, -1, -1):
            item = view.items[at]
            if item.is_fold or len(item.message.parts) != 1 or not is_notice(item.role, item.message.parts):
                continue
            words = _NUMBER.sub("0", item.message.parts[0].text)
            here = mark(message_handle(item.message))
            if words not in newest or at in view.protected:
                newest.setdefault(words, here)
                continue
            same = "较新的通知与此相同" if language == "zh" else "the same notice came again"
            text = f"[{same}: {' '.join(dict.fromkeys((newest[words], here)))}]"
            edit = replace_part(item, 0, text, view=view, stage=self.name, reason=because.NEWER_MESSAGE())
            edits += [edit] if edit is not None else []
        return edits[::-1]

    def _point_copies(self, view: View, language: Language) -> list[Edit]:
        """Walk from the newest result to the oldest, so that every pointer names a copy that stays."""
        by_text: dict[str, Observation] = {}
        by_call: dict[tuple[str, str], Observation] = {}
        edits: list[Edit] = []
        for seen in reversed(find_observations(view)):
            if len(seen.result.text) < self.chars_min or seen.result.inside:
                continue
            call = _sign_call(seen)
            newer = by_text.get(seen.result.text) or (by_call.get(call) if call else None)
            edit = self._point(view, seen, newer, language) if newer else None
            if edit is not None:
                edits.append(edit)
                continue
            by_text.setdefault(seen.result.text, seen)
            if call:
                by_call.setdefault(call, seen)
        return edits[::-1]

    def _point(self, view: View, older: Observation, newer: Observation, language: Language) -> Edit | None:
        text = self._describe(older, newer, language) if older.may_replace(view, self.name, self.chars_min) else None
        if text is None:
            return None
        reason = because.NEWER_RESULT()
        return replace_part(older.item, older.part, text, view=view, stage=self.name, reason=reason)

    def _describe(self, older: Observation, newer: Observation, language: Language) -> str | None:
        """Return the replacement of the older copy; None if the two are too different to point."""
        here, there = (mark(message_handle(seen.item.message, seen.part)) for seen in (older, newer))
        what = describe_call(older.tool, older.call.text if older.call else "")
        size = describe_size(older.result.text, language)
        if older.result.text == newer.result.text:
            same = "与较新的结果相同" if language == "zh" else "same as the newer result"
            return f"[{what} → {same} {there}; {size} {here}]"
        old, new = older.result.text.split("\n"), newer.result.text.split("\n")
        common = sum((Counter(old) & Counter(new)).values())
        if common < self.alike_min * max(len(old), len(new)):
            return None
        gone, come = len(old) - common, len(new) - common
        # A diff has at least these lines; if they are too many, no diff is made.
        diff = self._diff(old, new) if gone + come <= self.diff_lines_max else None
        if diff is None:
            if language == "zh":
                return f"[{what} → 已变化：{gone:,} 行仅在此处，{come:,} 行仅在较新的结果 {there}; {size} {here}]"
            changed = f"changed: {gone:,} lines only here, {come:,} only in the newer result"
            return f"[{what} → {changed} {there}; {size} {here}]"
        if language == "zh":
            head = f"[{what} → 与较新的结果 {there} 相同，仅有以下差异（- 此处，+ 较新）；{size} {here}:"
            return "\n".join((head, *diff, f"差异结束 {here}]"))
        head = f"[{what} → same as the newer result {there} but for these lines (- here, + newer); {size} {here}:"
        return "\n".join((head, *diff, f"end of the difference {here}]"))

    def _diff(self, old: list[str], new: list[str]) -> list[str] | None:
        """Return a unified diff without context; None if it is not short."""
        head = count_common(old, new)
        tail = count_common(old[head:][::-1], new[head:][::-1])
        old_span, new_span = old[head : len(old) - tail], new[head : len(new) - tail]
        if max(len(old_span), len(new_span)) > _DIFF_SPAN_MAX:
            return None
        # Only the span that differs is compared; its line numbers are shifted to those of the whole text.
        matcher = difflib.SequenceMatcher(None, old_span, new_span, autojunk=False)
        lines: list[str] = []
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "equal":
                continue
            lines.append(f"@@ -{head + a + 1},{b - a} +{head + c + 1},{d - c} @@")
            lines += [f"-{line}" for line in old_span[a:b]]
            lines += [f"+{line}" for line in new_span[c:d]]
        shown = [line for line in lines if not line.startswith("@@ ")]
        is_short = len(shown) <= self.diff_lines_max and all(len(line) <= _DIFF_LINE_CHARS for line in shown)
        return lines if is_short else None


def _sign_call(seen: Observation) -> tuple[str, str] | None:
    """Return a key that is equal for equal calls: the tool and its arguments, in any order of keys."""
    if seen.call is None:
        return None
    parsed = read_json(seen.call.text)
    arguments = seen.call.text if parsed is None else json.dumps(parsed, sort_keys=True)
    return seen.call.name, arguments
