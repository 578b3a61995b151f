"""The port to a provider's wire format: how the engine reads a message and writes a changed one.

Implementations live in ``refold.formats``. They are pure. ``parse`` then ``render`` without changes gives
back the very object that came in; an object that came in is never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from refold.conversation.message import Message, Role
from refold.conversation.part import Part


class Spoken(Protocol):
    """Anything with a role and parts: a message, or an item of a view."""

    @property
    def role(self) -> Role: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...


class Format(Protocol):
    """One provider's wire format."""

    @property
    def name(self) -> str: ...

    def parse(self, raw: object, parent: str = "", where: str = "message", *, digest: str = "") -> Message:
        """Read one provider message; raise FormatError that names ``where`` if it is not one.

        ``digest`` is its content hash where the caller has computed it already.
        """
        ...

    def parse_parts(self, raw: object) -> tuple[Part, ...]:
        """Read the parts of a provider object that ``render`` or ``write_summary`` made."""
        ...

    def render(self, message: Message, changes: Mapping[int, str | None]) -> object | None:
        """Return the provider object with parts replaced (str) or left out (None); None if nothing is left.

        A changed call keeps its id and name and valid JSON arguments; a changed result keeps its call id.
        """
        ...

    def write_summary(self, text: str, role: Role) -> object:
        """Return a provider object that carries a summary."""
        ...

    def allow_role(self, wanted: Role, before: Role | None, after: Role | None) -> Role:
        """Return the role a summary may have between these neighbours, ``wanted`` if it is legal."""
        ...

    def find_faults(self, items: Sequence[Spoken]) -> list[str]:
        """Return what the provider would reject in this sequence, one short stable line each; [] if valid."""
        ...

    def read_system(self, system: object) -> str:
        """Return the text of a system prompt that stands apart from the messages (str, blocks or None)."""
        ...
