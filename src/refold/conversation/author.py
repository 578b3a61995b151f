"""Whose words a part of a message has. Facts, rules, quotations and labels go by this, never by a message's role alone.

On Anthropic's wire a tool's result is a part of a user message; frameworks without tool messages send results as user
text; people attach documents and pictures. Only the text that a person typed is the person's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from refold.conversation.message import Message, Part, Spoken, is_record
from refold.conversation.speaker import is_notice_only

# "system" is the program around the model: its prompt, its notices, and records of folded messages.
Author = Literal["user", "assistant", "tool", "document", "system"]
# Tells whether a user message is a tool's result that a framework sends as text.
IsObserved = Callable[[Message], bool]


def find_author(role: str, part: Part, *, is_observed: bool = False) -> Author:
    """Return whose words a part has, in a message with this role.

    ``is_observed``: the message is a tool's result that a framework sends as user text (``Lens.is_observation``).
    """
    if part.kind == "result" or role == "tool":
        return "tool"
    if part.kind == "media":
        return "document"
    if role == "assistant":
        return "tool" if part.kind == "opaque" else "assistant"
    if role != "user" or part.kind == "opaque":
        return "system"
    if is_observed:
        return "tool"
    return "system" if is_record((part,)) or is_notice_only((part.text,)) else "user"


def read_said(message: Spoken, author: Author) -> str:
    """Return what an author said in a message, in words: no calls, no thinking; empty if there is nothing."""
    said = (part for part in message.parts if part.kind == "text" and part.text.strip())
    return "\n".join(part.text for part in said if find_author(message.role, part) == author).strip()


def find_common_author(authors: Iterable[Author]) -> Author:
    """Return the author of a passage: the only one, or of several one who is no person, a tool first."""
    found = set(authors)
    ranked: tuple[Author, ...] = ("tool", "document", "system", "assistant", "user")
    return next((one for one in ranked if one in found), "system")
