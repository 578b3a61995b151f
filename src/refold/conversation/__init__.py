"""Messages, and the view that the model sees of them. The lowest layer: it knows no provider, no store, no clock."""

from refold.conversation import because
from refold.conversation.message import Format, Message, Part, Role, Spoken
from refold.conversation.reason import NO_REASON, Reason, read_reason, say, text_reason
from refold.conversation.view import Artifact, Edit, Fact, FoldRecord, Item, Lens, View, amend, apply, extend

__all__ = [
    "NO_REASON",
    "Artifact",
    "Edit",
    "Fact",
    "FoldRecord",
    "Format",
    "Item",
    "Lens",
    "Message",
    "Part",
    "Reason",
    "Role",
    "Spoken",
    "View",
    "amend",
    "apply",
    "because",
    "extend",
    "read_reason",
    "say",
    "text_reason",
]
