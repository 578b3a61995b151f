"""``litellm.compress``: before each request the least relevant messages become stubs, by BM25. It keeps no state.

It counts by its own means. A message without content is handed in as empty text, because it fails on ``null``.
"""

from __future__ import annotations

from typing import Any

TRIGGER_SHARE = 0.75
TARGET_SHARE = 0.5


class Compress:
    """Compresses the whole history at each request."""

    def __init__(self, allowance: Any) -> None:
        self._allowance = allowance
        self._messages: list[dict[str, Any]] = []

    def prepare(self, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what ``compress`` leaves of all messages so far."""
        import litellm

        self._messages += new
        system = [one for one in self._messages if one["role"] == "system"]
        beside = self._allowance.count(system)
        room = self._allowance.tokens - beside
        given = [{**one, "content": one.get("content") or ""} for one in self._messages]
        made = litellm.compress(
            messages=given,
            model="gpt-4o",
            compression_trigger=max(1, int(beside + TRIGGER_SHARE * room)),
            compression_target=max(1, int(beside + TARGET_SHARE * room)),
        )
        sent = made["messages"]
        if len(sent) != len(given):
            return [dict(one) for one in sent]
        return [
            raw if one.get("content") == mine["content"] else dict(one)
            for one, mine, raw in zip(sent, given, self._messages, strict=True)
        ]
