"""headroom's pipeline in library mode, with its trained model off.

As its documentation asks of callers with their own loop, the previous request counts as frozen: its messages are handed
in as they were sent, and only what came since is compressed.
"""

from __future__ import annotations

from typing import Any


class Headroom:
    """Compresses what is new with each request."""

    def __init__(self, allowance: Any) -> None:
        self._allowance = allowance
        self._sent: list[dict[str, Any]] = []

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the previous request and what headroom makes of the new messages."""
        from headroom import compress

        given = [*self._sent, *new]
        made = compress(
            given,
            model="gpt-4o",
            model_limit=self._allowance.tokens,
            kompress_model="disabled",
            frozen_message_count=len(self._sent),
        ).messages
        if len(made) != len(given):
            self._sent = [dict(one) for one in made]
        else:
            self._sent = [old if one == old else dict(one) for one, old in zip(made, given, strict=True)]
        return list(self._sent)
