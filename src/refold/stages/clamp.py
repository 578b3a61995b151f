"""clamp: the last resort. A text that is too large on its own is cut in the middle and marked with its handle.

Only this stage may touch the newest step and pinned messages: as the last rung when the view is over *hard*, and as
the first one on new content that would push everything else out of the view. The system prompt and the newest user
message are not cut (unless ``newest_user`` allows it): if they alone are too large, the caller gets a typed error.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from refold.conversation import because
from refold.conversation.message import Part, is_trajectory, mark, message_handle
from refold.conversation.view import Edit, View, amend
from refold.stages.stage import Goal, When, count_part, drop_part, items_of, replace_part, seen_part, split_at_asks
from refold.stages.truncate import OutputText, Truncate
from refold.stages.window import fold_units

_TRIES = 12
_NO_LIMIT = 1 << 40
_LINES_CHARS_MIN = 400
_FRAME_TOKENS = 8
# A record of one line, for each of the runs around the task and the newest user message.
_LINE_TOKENS = 150
# A cut that fills this share of the room is good enough: the search for a longer one stops.
_FILLED = 0.95

# An agent cannot open a handle everywhere; it can read again.
_HOW = "(no room for all of it at once: read the rest in smaller parts)"


@dataclass(frozen=True, slots=True)
class _Piece:
    """One part that may be cut: where it is and how large."""

    at: int
    part: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Clamp:
    """Cut the largest parts down to one common size until the view fits; if that fails, fold even the newest step."""

    name: ClassVar[str] = "clamp"
    when: ClassVar[When] = "hard"
    is_last_resort: ClassVar[bool] = True  # It may cut even what is protected.

    tokens_min: int = 48
    newest_user: bool = False

    def propose(self, view: View, goal: Goal) -> list[Edit]:
        """Return the cuts that bring the view to *hard*, or the closest that is possible."""
        edits = self.cut_oversize(view, range(len(view.items)), view.tokens - goal.hard)
        if _tokens_with(view, edits) <= goal.hard:
            return edits
        thinner = [*edits, *self._drop_thinking(view)]
        if _tokens_with(view, thinner) <= goal.hard:
            return thinner
        return self._fold_rest(view, goal) or thinner

    def cut_oversize(
        self,
        view: View,
        places: Collection[int],
        over: int,
        *,
        tokens_min: int = 0,
        kinds: Sequence[str] = ("result", "all"),
    ) -> list[Edit]:
        """Return cuts of these items that free about ``over`` tokens, of results first, none below ``tokens_min``."""
        least = max(tokens_min, self.tokens_min)
        edits: list[Edit] = []
        for which in kinds:
            pieces = [piece for piece in self._find_pieces(view, which) if piece.at in places and piece.tokens > least]
            edits = replace(self, tokens_min=least)._cut(view, pieces, view.tokens - over)
            if _tokens_with(view, edits) <= view.tokens - over:
                break
        return edits

    def _find_pieces(self, view: View, which: str) -> list[_Piece]:
        pieces: list[_Piece] = []
        for at, item in enumerate(view.items):
            is_kept = at == view.newest_user and not self.newest_user and not is_trajectory(item.message.parts)
            if item.is_fold or item.role == "system" or item.message.is_sealed or is_kept:
                continue
            for part in range(len(item.message.parts)):
                seen = seen_part(item, part)
                if seen is None or seen.kind in ("thinking", "opaque") or (which == "result" and seen.kind != "result"):
                    continue
                tokens = count_part(view, seen)
                if tokens > self.tokens_min:
                    pieces.append(_Piece(at, part, tokens))
        return pieces

    def _cut(self, view: View, pieces: Sequence[_Piece], hard: int) -> list[Edit]:
        """Cut every piece that is larger than a common size: the one that makes the view fit, at least the minimum."""
        size = _common_size([piece.tokens for piece in pieces], view.tokens - hard, self.tokens_min)
        edits: list[Edit] = []
        sources: dict[_Piece, OutputText] = {}
        for _ in range(_TRIES):
            edits = [edit for piece in pieces if (edit := self._cut_piece(view, piece, size, sources)) is not None]
            over = _tokens_with(view, edits) - hard
            if over <= 0 or size <= self.tokens_min:
                break
            size = max(self.tokens_min, size - max(1, over // max(1, len(edits))) - 1)
        return edits

    def _cut_piece(self, view: View, piece: _Piece, size: int, sources: dict[_Piece, OutputText]) -> Edit | None:
        item = view.items[piece.at]
        seen = seen_part(item, piece.part)
        if seen is None or piece.tokens <= size:
            return None
        original = item.message.parts[piece.part]
        handle = message_handle(item.message, piece.part)
        tokens = piece.tokens if original is seen else count_part(view, original)
        if piece not in sources:
            sources[piece] = OutputText(original.text, original.name, is_cut_again=True)
        text = _Cutter(view, original, handle, sources[piece]).shorten(tokens, size)
        reason = because.PIECE_TOO_LARGE(tokens=piece.tokens)
        return replace_part(item, piece.part, text, view=view, stage=self.name, reason=reason)

    def _drop_thinking(self, view: View) -> list[Edit]:
        edits: list[Edit] = []
        for item in view.items:
            if item.is_fold or item.role != "assistant" or item.message.is_sealed:
                continue
            kinds = {part.kind for part in item.message.parts}
            if "thinking" not in kinds or kinds == {"thinking"}:
                continue
            for at, part in enumerate(item.message.parts):
                if part.kind == "thinking":
                    edit = drop_part(item, at, view=view, stage=self.name, reason=because.NO_ROOM_TO_THINK())
                    edits += [edit] if edit else []
        return edits

    def _fold_rest(self, view: View, goal: Goal) -> list[Edit]:
        """Fold all but the system messages and the newest user message: the newest step alone does not fit."""

        def may_go(at: int) -> bool:
            item = view.items[at]
            return at != view.newest_user and (item.is_fold or not (item.role == "system" or item.message.is_sealed))

        whole = [unit for unit in view.units if all(map(may_go, range(unit.start, unit.stop)))]
        room = goal.hard - _LINE_TOKENS - view.tokens + sum(item.tokens for item in items_of(view, whole))
        for wanted in (view.loading, {view.task_at}):
            kept = [unit for unit in whole if not wanted.isdisjoint(range(unit.start, unit.stop))]
            tokens = sum(item.tokens for item in items_of(view, kept))
            if tokens < room:
                whole, room = [unit for unit in whole if unit not in kept], room - tokens
        runs = split_at_asks(view, whole)
        reason = because.STEP_TOO_LARGE()
        sizes = [sum(item.tokens for item in items_of(view, run)) for run in runs]
        # The record describes the step in the room there is; without room it is one line.
        room = goal.hard - (view.tokens - sum(sizes)) - _FRAME_TOKENS * len(runs)
        return [
            fold_units(
                view,
                run,
                goal,
                stage=self.name,
                role="user",
                reason=reason,
                tokens_max=max(0, room) * size // sum(sizes),
            )
            for run, size in zip(runs, sizes, strict=True)
        ]


def _tokens_with(view: View, edits: Sequence[Edit]) -> int:
    return amend(view, edits).tokens if edits else view.tokens


def _common_size(sizes: Sequence[int], over: int, least: int) -> int:
    """Return the size to which all larger pieces have to come down to free ``over`` tokens, not below ``least``."""
    ranked = sorted(sizes, reverse=True)
    total = 0
    for count, size in enumerate(ranked, start=1):
        total += size
        below = ranked[count] if count < len(ranked) else least
        if total - count * below >= over:
            return max(least, (total - over) // count)
    return least


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts one part to a size. Its text is read once, for all attempts."""

    view: View
    part: Part
    handle: str
    source: OutputText

    def shorten(self, tokens: int, size: int) -> str:
        """Return head and tail of the part within ``size`` tokens, the cut marked with its exact length."""
        part = self.part
        if part.kind == "media" or not part.text:
            return f"[{part.name or part.kind}, too large for the budget: {mark(self.handle)}]"
        best, low, high = _cut_middle(part, 0, self.handle), 0.0, min(1.0, size / max(1, tokens))
        share = high
        # Cuts fall on lines, and tokens do not follow characters evenly: bisect for the longest cut that fits.
        for _ in range(_TRIES):
            text = self._cut(int(len(part.text) * share))
            if (found := self.view.lens.count_text(text)) <= size:
                best, low = text, share
                if found >= size * _FILLED or share == high:
                    break
            else:
                high = share
            share = (low + high) / 2
        return best

    def _cut(self, chars: int) -> str:
        """Cut like truncate if there is room: at line breaks, and with the lines that report failures."""
        if self.part.kind == "call" or chars < _LINES_CHARS_MIN:
            return _cut_middle(self.part, chars, self.handle)
        stage = Truncate(chars_max=chars, bytes_max=_NO_LIMIT, lines_max=_NO_LIMIT)
        text = stage.cut_read(self.source, self.handle)
        place = mark(self.handle)
        return text.replace(place, f"{place} {_HOW}", 1) if self.part.kind == "result" else text


def _cut_middle(part: Part, keep: int, handle: str) -> str:
    head, tail = keep // 2, keep - keep // 2
    cut = len(part.text) - keep
    marker = f"... [truncated {cut} characters] ... {mark(handle)}"
    end = part.text[len(part.text) - tail :] if tail else ""
    if part.kind != "call":
        return "\n".join(piece for piece in (part.text[:head], marker, end) if piece)
    # Arguments must stay a JSON object: the provider parses them.
    return json.dumps({"truncated": f"{part.text[:head]} {marker} {end}".strip()}, ensure_ascii=False)
