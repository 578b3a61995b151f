"""Chains of responses that the provider holds (``previous_response_id``), as far as the gateway has seen them.

A request in a chain brings only what is new. If every turn of the chain came through here, the whole conversation is
known: it is stored like any other, and the request goes on as it came while it fits. When it has to be compressed, it
goes on without the chain, with a prepared input. A chain that was not seen from its beginning, or that holds what only
the provider has (results of its own tools), is left alone; a warning says so once.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from refold.server.outgoing import Outgoing
from refold.server.reading import Unreadable, dump_json, parse_json
from refold.server.wires import Answered

log = logging.getLogger("refold.server")
BYTES_MAX = 32_000_000
_WARNED_MAX = 1_000
# The provider does not hold this response, so nobody can continue it by its id.
_NOT_HELD = re.compile(rb'"store"\s*:\s*false')
# Items that can be sent again: everything else lives at the provider.
_REPLAYABLE = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
    )
)


@dataclass(frozen=True, slots=True)
class Chained:
    """A request of a chain: as it came, and with the whole conversation in it."""

    original: bytes = field(repr=False)
    whole: bytes = field(repr=False)
    is_replayable: bool

    def settle(self, prepared: Outgoing) -> Outgoing:
        """Return what goes upstream: the request as it came, unless it had to be compressed and can be replayed."""
        if prepared.edits and self.is_replayable and prepared.session is not None:
            return prepared
        return replace(prepared, body=self.original)


class Chains:
    """The responses of the last requests by id, within a limit in bytes. For one event loop."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], tuple[bytes, list[Any]]] = OrderedDict()
        self._warned: OrderedDict[tuple[str, str], None] = OrderedDict()

    def unroll(self, tenant: str, body: bytes) -> Chained | None:
        """Return a request of a chain with its whole conversation; None if it is in none that is known."""
        if b'"previous_response_id"' not in body:
            return None
        try:
            asked = parse_json(body)
        except Unreadable:
            return None
        before = asked.get("previous_response_id") if isinstance(asked, dict) else None
        new = _list_items(asked.get("input")) if isinstance(before, str) else None
        if not isinstance(before, str) or new is None:
            return None
        known = self._known.get((tenant, before))
        if known is None:
            self._warn(tenant, before, "a chain of responses was not seen from its beginning")
            return None
        self._known.move_to_end((tenant, before))
        sent, output = known
        items = [*(_list_items(parse_json(sent).get("input")) or ()), *output, *new]
        is_replayable = all(_can_replay(item) for item in items)
        if not is_replayable:
            self._warn(tenant, before, "a chain of responses holds what only the provider has")
        rest = {name: value for name, value in asked.items() if name != "previous_response_id"}
        return Chained(body, dump_json({**rest, "input": items}), is_replayable)

    def remember(self, tenant: str, whole: bytes, answered: Answered) -> None:
        """Remember a response, with the whole conversation that it answers."""
        if not answered.response_id or _NOT_HELD.search(whole):
            return
        size = len(whole) + 2_000 * len(answered.output)
        if size > self._bytes_max // 4:
            return
        key = (tenant, answered.response_id)
        if key not in self._known:
            self._known[key] = (whole, list(answered.output))
            self._bytes += size
        while self._bytes > self._bytes_max:
            _, (sent, output) = self._known.popitem(last=False)
            self._bytes -= len(sent) + 2_000 * len(output)

    def _warn(self, tenant: str, response_id: str, why: str) -> None:
        if (tenant, why) in self._warned:
            return
        self._warned[tenant, why] = None
        while len(self._warned) > _WARNED_MAX:
            self._warned.popitem(last=False)
        log.warning(f"{why}; its requests pass through", extra={"fields": {"response": response_id[:80]}})


def _list_items(given: object) -> list[Any] | None:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else None


def _can_replay(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    return (item.get("type") or ("message" if "role" in item else "")) in _REPLAYABLE
