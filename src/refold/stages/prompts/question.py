"""The whole question: demands, the user's wishes, the record so far to be updated, and the messages since.

Anchored: a new summary updates the earlier one with what was archived since, it does not start from nothing. The
question asked again after an answer that would not do says what was wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from refold.conversation.edit import Fold
from refold.conversation.language import Language
from refold.conversation.message import Message
from refold.stages.extract.frame import neutralise
from refold.stages.prompts.demands import Demands, write_demands
from refold.stages.prompts.record import Restored, cut_middle, fit_record

INSTRUCTIONS_CHARS_MAX = 4_000
EARLIER_SHARE = 0.4
ASKED_CHARS_MAX, ASKED_SHARE = 4_000, 0.1
_EARLIER = {
    "en": "The record so far. Update it with the conversation below: keep what still holds, correct what changed.",
    "zh": "此前的记录。请用下面的对话更新它：仍然成立的保留，有变化的改正。",
}
_EARLIER_END = {"en": "End of the record so far.", "zh": "此前的记录结束。"}
_ASKED = {
    "en": "What the user asked before, which stays in view and need not be repeated:",
    "zh": "用户此前提出的要求（仍在上下文中，不必重复）：",
}
_WISHES = {"en": "The user asks in addition: ", "zh": "用户另外要求："}
_REPAIR = {
    "en": (
        "Your last answer could not be used: {reason}. Write it again, complete, as plain text in the form asked for "
        "above, shorter than before, with nothing that does not stand in the conversation."
    ),
    "zh": (
        "上一次的回答不能使用：{reason}。请重新完整地写一遍，按上面要求的形式输出纯文本，比上次更短，不要写对话里没有的内容。"
    ),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and the demands at its beginning: an answer that repeats them is an echo."""

    prompt: str
    demands: str


@dataclass(frozen=True, slots=True)
class Room:
    """How much a prompt may hold: characters of each tool text and of the record, tokens of the whole."""

    tool_chars_max: int = 2_000
    chars_max: int = 200_000
    tokens_max: int = 0
    count: Callable[[str], int] = field(default=len)


def write_question(
    messages: Sequence[Message],
    previous: Sequence[Fold],
    demands: Demands,
    room: Room,
    *,
    language: Language,
    instructions: str = "",
    restored: Restored | None = None,
    asked_before: str = "",
) -> Question:
    """Return the question for a summary of ``messages`` that updates the ``previous`` folds' own."""
    asked = write_demands(demands, language)
    blocks = [asked]
    if instructions.strip():
        blocks.append(f"{_WISHES[language]}{neutralise(cut_middle(instructions.strip(), INSTRUCTIONS_CHARS_MAX))}")
    if asked_before:
        shown = cut_middle(asked_before, min(ASKED_CHARS_MAX, int(room.chars_max * ASKED_SHARE)))
        blocks.append(f"{_ASKED[language]}\n{neutralise(shown)}")
    earlier = "\n".join(fold.summary for fold in previous if fold.summary)
    if earlier:
        shortened = cut_middle(earlier, int(room.chars_max * EARLIER_SHARE))
        if room.tokens_max:
            shortened = cut_middle(shortened, int(room.tokens_max * EARLIER_SHARE * 2))
        blocks.append(f"{_EARLIER[language]}\n{neutralise(shortened)}\n{_EARLIER_END[language]}")
    left = max(1, room.tokens_max - room.count("\n\n".join(blocks)) - 8) if room.tokens_max else 0
    blocks.append(
        fit_record(
            messages,
            language=language,
            chars_max=room.chars_max,
            tool_chars_max=room.tool_chars_max,
            tokens_max=left,
            count=room.count,
            restored=restored,
        )
    )
    return Question("\n\n".join(blocks), asked)


def write_repair(question: Question, reason: str, language: Language) -> str:
    """Return the question asked once more, with what was wrong with the last answer."""
    return f"{question.prompt}\n\n{_REPAIR[language].format(reason=neutralise(reason))}"
