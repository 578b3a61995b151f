"""What a model is asked when a conversation is archived: a short summary (S0.6), and the key facts (S0.7).

Both put the conversation behind a line that says it is a record, and keep within a limit of characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from refold.conversation.language import Language
from refold.conversation.message import Message
from refold.stages.prompts.record import write_record

_SUMMARY = {
    "en": (
        "Sum up the conversation below in three to five sentences, in the third person and without judging. Keep every "
        "decision, agreement and open task, and what the user needs and prefers. Answer with the summary only."
    ),
    "zh": (
        "请把下面的对话概括成三到五句话，用第三人称客观叙述。决定、约定和未完成的事项都要保留，"
        "用户的需求和偏好也要保留。只输出摘要本身。"
    ),
}
_FACTS = {
    "en": (
        "List the key facts of the conversation below, one on each line, nothing else: what the user likes or is used "
        "to, what was decided together, what is still to be done, and background or limits that matter later."
    ),
    "zh": (
        "请列出下面对话中的关键事实，每行一条，不要输出别的内容：用户的喜好和习惯、双方作出的决定、"
        "尚未完成的事项、以后用得到的背景和限制。"
    ),
}


def write_archive_prompt(messages: Sequence[Message], *, language: Language, chars_max: int = 200_000) -> str:
    """Return the question for a summary of three to five sentences."""
    return f"{_SUMMARY[language]}\n\n{write_record(messages, language=language, chars_max=chars_max)}"


def write_facts_prompt(messages: Sequence[Message], *, language: Language, chars_max: int = 200_000) -> str:
    """Return the question for key facts, one a line."""
    return f"{_FACTS[language]}\n\n{write_record(messages, language=language, chars_max=chars_max)}"
