"""Tokens of what no compression touches, system prompt and tools: counted once as long as they stay the same."""

from __future__ import annotations

from collections import OrderedDict

from refold.formats import make_format
from refold.server.managers import Managers
from refold.server.reading import ReadRequest
from refold.tokens import counter_for
from refold.tokens.counter import REPLY_TOKENS

KEPT = 256


class FixedCounter:
    """Counts the fixed part of requests, for what the headers tell."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._known: OrderedDict[tuple[str, str], int] = OrderedDict()

    def count(self, request: ReadRequest) -> int:
        """Return the tokens of a request's system prompt and tools."""
        key = request.model, request.system_digest
        known = self._known.get(key)
        if known is None:
            counter = counter_for(request.model or None, self._managers.main.config.tokenizer)
            text = make_format(request.wire.name).read_system(request.system)
            known = self._known[key] = REPLY_TOKENS + counter.count_text(text) + counter.count_tools(request.tools)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return known
