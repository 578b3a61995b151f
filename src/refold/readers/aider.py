"""Chat histories of aider (``.aider.chat.history.md``): Markdown, a chat under each heading with its time.

Lines after ``####`` are the person's, lines after ``>`` aider's own; everything else is the model's answer.
"""

from __future__ import annotations

import re
from datetime import datetime

from refold.readers.chat import ChatBuilder
from refold.readers.session import Session

KIND = "aider"
NAME = ".aider.chat.history.md"
_STARTED = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)$", re.MULTILINE)
_MODEL = re.compile(r"^> (?:Main model|Model): (\S+)")


def read_text(text: str, name: str) -> list[Session]:
    """Read the chats of a file; a chat without an answer is left out."""
    pieces = _STARTED.split(text)[1:]
    sessions = [
        _read_chat(chat, f"{name}#{number}", datetime.fromisoformat(started).timestamp())
        for number, (started, chat) in enumerate(zip(pieces[::2], pieces[1::2], strict=True), 1)
    ]
    return [session for session in sessions if any(one["role"] == "assistant" for one in session.messages)]  # type: ignore[index]


def _read_chat(chat: str, name: str, started: float) -> Session:
    builder, said, speaker = ChatBuilder(KIND), list[str](), ""

    def close() -> None:
        text = "\n".join(said).strip()
        if speaker == "user":
            builder.add_user(text, started)
        elif speaker == "assistant" and text:
            builder.add_answer(text, (), started)
        said.clear()

    for line in chat.split("\n"):
        if found := _MODEL.match(line):
            builder.model = found.group(1)
        if line.startswith("> "):
            continue
        now = (
            "user" if line.startswith("####") else ("assistant" if line.strip() or speaker == "assistant" else speaker)
        )
        if now != speaker:
            close()
            speaker = now
        said.append(line.removeprefix("####").strip() if now == "user" else line)
    close()
    return builder.finish(name)
