"""Messages, and the view that the model sees of them. The lowest layer: it knows no provider, no store, no clock."""

from refold.conversation.message import Message, Part
from refold.conversation.reason import say
from refold.conversation.view import Artifact, Edit, Fact, Lens, View, amend, apply, extend

__all__ = ["Artifact", "Edit", "Fact", "Lens", "Message", "Part", "View", "amend", "apply", "extend", "say"]
