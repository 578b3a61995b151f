"""Parts: the readable pieces of a message.

A format reads a provider's message into parts so that stages can look at it. Parts are for
reading only: the message keeps the provider's own object, and that object is what goes out.
A part must never be used to rebuild a message that nobody changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "thinking", "call", "result", "media", "opaque"]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message.

    ``text`` is what a reader sees: the words, the thinking, the arguments of a call as JSON text, the
    text of a result. ``payload`` is the provider's own block, ``inside`` the media within a result.
    """

    kind: Kind
    text: str = ""
    name: str = ""
    call_id: str = ""
    payload: object = None
    inside: tuple[Part, ...] = ()
    is_error: bool = False
