"""Originals as recall reads them: the text of a stored message, whole, the same that ``expand`` pages through.

Offsets of passages count in this text. A message that its format cannot read is shown as the JSON it came as: nothing
that is stored is out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from refold.conversation.format import Format
from refold.conversation.handle import DIGITS
from refold.conversation.message import Message, join_parts
from refold.errors import FormatError
from refold.ledger.codec import load_json
from refold.ledger.records import StoredMessage


@dataclass(frozen=True, slots=True)
class Original:
    """What was said in one message, ready to be read."""

    id: str
    digest: str
    role: str
    text: str
    name: str = ""
    seq: int = 0
    created_at: float = 0.0
    parts: tuple[str, ...] = ()

    @property
    def handle(self) -> str:
        """The short name that placeholders carry."""
        return f"m:{self.digest[:DIGITS]}"


def read_original(stored: StoredMessage, form: Format) -> Original:
    """Return a stored message as text; a forgotten one has none."""
    if stored.is_forgotten:
        return Original(stored.id, stored.digest, stored.role, "", "", stored.seq, stored.created_at)
    try:
        # The parts alone: hashing the content again, as ``parse`` does, costs as much as all the rest.
        raw = load_json(stored.raw)
        parts = form.parse_parts(raw)
    except (FormatError, ValueError, RecursionError):
        text = stored.raw.decode("utf-8", "replace")
        return Original(stored.id, stored.digest, stored.role, text, "", stored.seq, stored.created_at, (text,))
    name = raw.get("name") if isinstance(raw, dict) else None
    names = dict.fromkeys((name if isinstance(name, str) else "", *(one.name for one in parts if one.kind == "result")))
    return Original(
        stored.id,
        stored.digest,
        stored.role,
        join_parts(Message(raw, stored.role, parts, stored.digest, stored.id)),
        " ".join(filter(None, names)),
        stored.seq,
        stored.created_at,
        tuple(part.text for part in parts),
    )
