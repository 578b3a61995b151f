"""What is read out of an answer on its way to the client: the provider's usage, and how the answer ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Answered:
    """Figures of one answer. ``usage`` is the provider's own object, its pieces put together."""

    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    error_text: str = ""

    def add_usage(self, usage: object) -> None:
        """Take over what a piece of an answer says of usage; later figures win, absent ones stay."""
        if isinstance(usage, Mapping):
            self.usage.update({str(key): value for key, value in usage.items() if value is not None})

    @property
    def has_usage(self) -> bool:
        """True if the provider said what it counted for the input."""
        return any(isinstance(self.usage.get(name), int) for name in ("prompt_tokens", "input_tokens"))
