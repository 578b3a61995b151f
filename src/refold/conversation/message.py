"""Messages: what was said, kept as it came.

A message holds the provider's object untouched (``raw``), its parts for reading, the digest of its
content and an id that chains it to its parent. Nothing here changes ``raw``, ever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from refold.conversation.part import Part

Role = Literal["system", "user", "assistant", "tool"]

ROOT = ""
RECORD_OPENS = "⟦"
# How frameworks without tool messages begin a result: ReAct, smolagents, OpenHands, models with tags of their own.
_OBSERVATION = re.compile(
    r"\s*+(?:Call id: [^\n]{0,200}\n)?+(?:"
    r"Observations?|(?:Tool|Function)(?: call)? (?:result|output|response)s?|Execution (?:log|result)s?"
    r"|观察(?:结果)?|工具(?:结果|输出|返回)|执行结果)(?: (?:of|from|for) [^\n:]{0,80}| \d{1,4})?\s*+[:：]"
    r"|\s*+<(?:tool_response|tool_result|function_results?|observation|execution_result)\b"
    r"|\s*+\[[^\]\n]{1,200}\] Result:",
    re.IGNORECASE,
)
_RECORD = re.compile(r"⟦[^⟦⟧]{0,600}⟨f:[0-9a-f]{4,}")
_ID_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One provider message. ``is_sealed`` marks one that no edit may touch (a provider's own compaction)."""

    raw: object
    role: Role
    parts: tuple[Part, ...]
    digest: str
    id: str
    name: str = ""
    is_sealed: bool = False

    @property
    def starts_turn(self) -> bool:
        """True for a real user message; one that brings tool results starts no turn."""
        return is_user_turn(self.role, self.parts)


def is_user_turn(role: str, parts: Iterable[Part]) -> bool:
    """Tell whether a message with this role and these parts is a person speaking; a record of ours is not."""
    if role != "user":
        return False
    parts = tuple(parts)
    return not any(part.kind == "result" for part in parts) and not is_record(parts)


def is_record(parts: Iterable[Part]) -> bool:
    """Tell whether a message is a record that stands for folded messages, also one of another session."""
    first = next(iter(parts), None)
    return first is not None and first.text.startswith(RECORD_OPENS) and bool(_RECORD.match(first.text))


def is_observation(parts: Iterable[Part]) -> bool:
    """Tell whether a user's message looks like a tool's result that a framework sends as text."""
    text = next((part.text for part in parts if part.kind == "text"), "")
    return bool(_OBSERVATION.match(text[:400]))


def is_trajectory(parts: Iterable[Part]) -> bool:
    """Tell whether a message carries a whole run of tool calls as text, as DSPy writes it."""
    return any("[[ ## observation_" in part.text for part in parts if part.kind == "text")


def join_parts(message: Message) -> str:
    """Return the exact text of a message's parts, one below the other, calls with their names."""
    return "\n".join(f"{part.name}({part.text})" if part.kind == "call" else part.text for part in message.parts)


def digest_of(canonical: bytes) -> str:
    """Return the content hash of a message's canonical form, in hex."""
    # SHA-256 has instructions of its own on today's processors: on large tool results three times as fast as BLAKE2.
    return hashlib.sha256(canonical).hexdigest()[: 2 * _ID_BYTES]


def chain_id(parent: str, digest: str) -> str:
    """Return the id of a message with this content after this parent."""
    return hashlib.blake2b(f"{parent}/{digest}".encode(), digest_size=_ID_BYTES).hexdigest()
