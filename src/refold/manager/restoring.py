"""Offloaded results whose place-holder a client sent back as its history: what they were, before a summary (S2.5).

Our own edits hide nothing from a summary: the ledger has every original. Only a client that keeps the prepared
context as its own history hands us ``Tool result is at: PATH`` as a message. Then the file is read through the
session's own folder, which reads nothing else: any other path is text.
"""

from __future__ import annotations

from collections.abc import Iterable

from refold.conversation.message import Message
from refold.offload import OffloadFolder
from refold.stages.offload import read_path

UNAVAILABLE = "[Content unavailable: {path}]"
FILES_MAX = 500


def restore_results(messages: Iterable[Message], folder: OffloadFolder) -> dict[str, str]:
    """Return the content of offloaded results by the text that stands in their place."""
    restored: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            path = read_path(part.text) if part.kind == "result" else ""
            if not path.startswith(f"{folder.relative}/") or part.text in restored:
                continue
            if len(restored) >= FILES_MAX:
                return restored
            content = folder.read(path)
            restored[part.text] = UNAVAILABLE.format(path=path) if content is None else content
    return restored
