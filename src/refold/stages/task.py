"""The task of a conversation in less room: its beginning, its end, its commands, and how to finish.

The message that states the work stays whole and in place (L8) while it takes at most ``TASK_SHARE`` of the room. A
larger one is cut between paragraphs. What is left out is marked with its exact length and the handle of the original;
every other line is verbatim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refold.conversation import because
from refold.conversation.message import mark, message_handle
from refold.conversation.reason import Language
from refold.conversation.view import Edit, View
from refold.patterns import lazy_regex
from refold.reading.sentences import find_ends
from refold.stages.stage import count_part, replace_part, seen_part

# The message that states the work may take this share of the room beside the system prompt.
TASK_SHARE = 0.35
# Commands and how to finish take at most this share of a task that is cut; its beginning and its end have the rest.
_COMMANDS_SHARE = 0.5
# Longer paragraphs are split, and fenced blocks of twice this length are no commands.
_PARAGRAPH_CHARS = 600
# A mark for text that is left out takes about so many tokens.
_MARK_TOKENS = 16
_STAGE = "clamp"

_FENCE = lazy_regex(r"^ {0,3}(```+|~~~+)[^\n]*$", 8)  # re.MULTILINE
_BREAK = lazy_regex(r"\n[ \t]*\n")
_FINISH = lazy_regex(
    r"\b(?:submit|submission|finish(?:ed|es)?|when (?:you are|you're|you have|you've|done|completed?|everything|all)"
    r"|once (?:you are|you're|you have|you've|done|complete)|final (?:answer|output|step)|deliver(?:able)?s?"
    r"|hand (?:in|back)|acceptance criteria|definition of done|report back|exactly the following)\b"
    r"|提交|完成后|完成时|结束时|结束后|最后一步|最终(?:答案|输出|结果)|验收|交付",
    2,
)


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph or a fenced block of a text, from ``start`` up to ``stop``."""

    start: int
    stop: int
    is_fenced: bool = False


def shorten_task(view: View, at: int, tokens_max: int, language: Language) -> Edit | None:
    """Return the edit that brings the task to ``tokens_max``; None if it is small enough or has no text to cut."""
    item = view.items[at]
    texts = [number for number, part in enumerate(item.message.parts) if part.kind == "text"]
    sizes = {number: count_part(view, seen) for number in texts if (seen := seen_part(item, number)) is not None}
    if item.tokens <= tokens_max or not sizes:
        return None
    part = max(sizes, key=lambda number: sizes[number])
    room = tokens_max - (item.tokens - sizes[part])
    handle = message_handle(item.message, part)
    text = cut_task(item.message.parts[part].text, room, handle=handle, count=view.lens.count_text, language=language)
    reason = because.PIECE_TOO_LARGE(tokens=item.tokens)
    return replace_part(item, part, text, view=view, stage=_STAGE, reason=reason)


def cut_task(text: str, tokens_max: int, *, handle: str, count: Callable[[str], int], language: Language) -> str:
    """Return a task in at most about ``tokens_max`` tokens: how to finish, commands, then its beginning and end."""
    blocks = _split_blocks(text)
    sizes = [count(text[block.start : block.stop]) for block in blocks]
    kept: dict[int, _Block] = {}
    left = room = tokens_max - 2 * _MARK_TOKENS
    for at in _rank_commands(text, blocks):
        if at not in kept and sizes[at] + _MARK_TOKENS <= left - tokens_max * (1 - _COMMANDS_SHARE):
            kept[at] = blocks[at]
            left -= sizes[at] + (0 if at - 1 in kept or at + 1 in kept else _MARK_TOKENS)
    # Commands are mostly near the end: the beginning, which says what is wanted, catches up first.
    _keep_ends(text, blocks, sizes, kept, spent=[0, room - left], left=left)
    return _join_blocks(text, [kept[at] for at in sorted(kept)], handle, language)


def _keep_ends(
    text: str, blocks: list[_Block], sizes: list[int], kept: dict[int, _Block], *, spent: list[int], left: int
) -> None:
    """Add blocks from both ends, the end that has less first, while there is room; the last of each may be cut."""
    first, last = 0, len(blocks) - 1
    while first <= last and left > 0:
        side = int(spent[0] > spent[1])
        at = last if side else first
        first, last = first + 1 - side, last - side
        if at in kept:
            continue
        size = sizes[at]
        if size > left:
            # The other end has its part, too.
            size = left if spent[1 - side] or first > last else left // 2
        kept[at] = _cut_block(text, blocks[at], size / max(1, sizes[at]), from_end=side == 1)
        left -= size
        spent[side] += size


def _cut_block(text: str, block: _Block, share: float, *, from_end: bool) -> _Block:
    """Return the beginning or the end of a block, cut between sentences if there is one to cut at."""
    if share >= 1:
        return block
    chars = int((block.stop - block.start) * share)
    if from_end:
        start = block.stop - chars
        ends = (text.find("\n", start, block.stop) + 1, next(find_ends(text, start, block.stop), 0))
        return _Block(min((end for end in ends if end), default=start), block.stop)
    stop = block.start + chars
    last = max(text.rfind("\n", block.start, stop) + 1, *find_ends(text, block.start, stop), 0)
    return _Block(block.start, last or stop)


def _rank_commands(text: str, blocks: list[_Block]) -> list[int]:
    """Return the blocks that say how to finish, each with the fenced block after it, then the other fenced blocks."""
    finish = [at for at, block in enumerate(blocks) if _FINISH.search(text, block.start, block.stop)]
    after = [at + 1 for at in finish if at + 1 < len(blocks) and blocks[at + 1].is_fenced]
    fenced = [at for at, block in enumerate(blocks) if block.is_fenced]
    # The end of a task says how to finish more often than its beginning.
    ranked = [*sorted({*finish, *after}, reverse=True), *reversed(fenced)]
    return list(dict.fromkeys(ranked))


def _split_blocks(text: str) -> list[_Block]:
    """Split a text into fenced blocks and the paragraphs between them; blank space belongs to the block before it."""
    blocks: list[_Block] = []
    start, opened = 0, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            blocks += _split_paragraphs(text, start, fence.start())
            opened, start = fence[1], fence.start()
        elif fence[0].strip() == opened:
            block = _Block(start, fence.end(), is_fenced=True)
            blocks += [block] if block.stop - start <= 2 * _PARAGRAPH_CHARS else _split_long(text, block)
            opened, start = None, fence.end()
    return [*blocks, *_split_paragraphs(text, start, len(text))]


def _split_paragraphs(text: str, start: int, stop: int) -> list[_Block]:
    blocks: list[_Block] = []
    for found in _BREAK.finditer(text, start, stop):
        if text[start : found.end()].strip():
            blocks.append(_Block(start, found.end()))
            start = found.end()
    blocks += [_Block(start, stop)] if text[start:stop].strip() else []
    return [piece for block in blocks for piece in _split_long(text, block)]


def _split_long(text: str, block: _Block) -> list[_Block]:
    """Split a long paragraph between sentences, so that both of its ends can be kept."""
    pieces: list[_Block] = []
    start = block.start
    while block.stop - start > _PARAGRAPH_CHARS:
        piece = _cut_block(text, _Block(start, start + 2 * _PARAGRAPH_CHARS), 0.5, from_end=False)
        pieces.append(piece)
        start = piece.stop
    return [*pieces, _Block(start, block.stop)]


def _join_blocks(text: str, kept: list[_Block], handle: str, language: Language) -> str:
    pieces: list[str] = []
    start = stop = 0
    for block in [*kept, _Block(len(text), len(text))]:
        if text[stop : block.start].strip():
            pieces += [text[start:stop].strip("\n"), _note_gap(text[stop : block.start], handle, language)]
            start = block.start
        stop = block.stop
    return "\n".join(piece for piece in (*pieces, text[start:stop].strip("\n")) if piece)


def _note_gap(gap: str, handle: str, language: Language) -> str:
    if language == "zh":
        return f"[省略 {len(gap):,} 字符，原文见 {mark(handle)}]"
    return f"[{len(gap):,} characters left out: {mark(handle)}]"
