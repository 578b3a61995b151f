"""A story: messages in the order they were said, and the facts in them that matter later.

Writers add messages and, right after one, ``remember`` what a reader must still know at the end. A fact whose answer
is not literally in its message is refused, so a facts file can never drift away from its session.
"""

from __future__ import annotations

import json
import random
import string
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]
ALPHANUMERIC = string.ascii_letters + string.digits
BASE64 = ALPHANUMERIC + "+/"
HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Fact:
    """One thing worth recalling: where it was said first, and why somebody will ask."""

    question: str
    answer: str
    message_index: int
    why: str


class Story:
    """Collects messages and facts; its random source is seeded by the writer and by nothing else."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.messages: list[Message] = []
        self.facts: list[Fact] = []

    def add(self, message: Message) -> int:
        """Append a message and return its index."""
        self.messages.append(message)
        return len(self.messages) - 1

    def remember(self, question: str, answer: str, why: str, index: int | None = None) -> None:
        """Record a fact stated by the newest message, or by the one at ``index``."""
        at = len(self.messages) - 1 if index is None else index
        if answer not in read_text(self.messages[at]):
            raise ValueError(f"fact {question!r}: {answer!r} is not in message {at}; fix the answer or the index")
        self.facts.append(Fact(question, answer, at, why))

    def draw(self, length: int, alphabet: str = ALPHANUMERIC) -> str:
        """A random string, for ids."""
        return "".join(self.rng.choice(alphabet) for _ in range(length))

    def draw_base64(self, length: int) -> str:
        """Base64 text of about ``length`` characters, padded as an encoder would pad it."""
        return self.draw(length // 4 * 4 - 2, BASE64) + self.rng.choice("AQgw") + "="


def read_text(value: Any) -> str:
    """All text inside a JSON value, one string per line: what a person reading the message would see."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(read_text(item) for item in value.values())
    if isinstance(value, list):
        return "\n".join(read_text(item) for item in value)
    return "" if value is None else str(value)


def write_facts(path: Path, facts: list[Fact]) -> None:
    """Write the facts beside their session, oldest first."""
    ordered = sorted(facts, key=lambda fact: fact.message_index)
    rows = [asdict(fact) for fact in ordered]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n")


def write_body(path: Path, body: Message) -> None:
    """Write a request body as JSON, readable line by line."""
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n")


def write_lines(path: Path, messages: list[Message]) -> None:
    """Write one message object per line."""
    text = "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in messages)
    path.write_text(text, encoding="utf-8", newline="\n")
