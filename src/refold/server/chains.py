"""Chains of responses: requests that bring only what is new, because the provider holds the rest.

If every turn of a chain passed through a gateway on this ledger, the whole conversation is known and stored. The
request is forwarded unchanged while it fits; when it must be compressed, it is sent without the chain, with a prepared
input. A chain whose beginning was not seen, or which contains items that only the provider holds, is stored and left
alone. Requests refer to the rest by ``previous_response_id``, by a ``conversation``, or by the ids of items
(``item_reference``). Once a conversation was sent without the provider's copy, that copy lacks a turn: from then on
the whole conversation is sent.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from refold.conversation.message import frozen
from refold.errors import RefoldError
from refold.formats.streamed import StreamedAnswer
from refold.ledger.records import SessionRow
from refold.ledger.sql.ledger import Ledger
from refold.manager.session_state import HELD, RESPONSES
from refold.server.auth import TENANT_MARK, make_id
from refold.server.body import ReadRequest, Unreadable, dump_json, parse_json
from refold.server.outgoing import Outgoing
from refold.server.session_lookup import find_provider_conversation, name_provided
from refold.server.settings import INLINE_BYTES_MAX, LARGE_BYTES

log = logging.getLogger("refold.server")
BYTES_MAX = 32_000_000
STORING_S, CHANGED_MAX = 0.1, 100
_RENAMED_MAX = 1_000
# Items of responses that a client may refer to: how many, and how large one may be.
ITEMS_MAX, ITEM_BYTES_MAX = 4_000, 16_384
_SIGNS = (b'"previous_response_id"', b'"conversation"', b'"item_reference"')
_PREVIOUS = re.compile(rb'"previous_response_id"\s*:\s*"([^"\\]{1,200})"')
# The provider does not store this response, so it cannot be continued by its id.
_NOT_HELD = re.compile(rb'"store"\s*:\s*false')
# Items that can be sent again; everything else exists only at the provider.
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_REPLAYABLE = frozenset(("message", "reasoning", *_CALLS, *(f"{kind}_output" for kind in _CALLS)))
# A session's settings hold its newest responses, and only answers up to this length.
STORED_MAX, STORED_BYTES_MAX = 4, 64_000
# Some proxies write their routes into the id of a response.
RESPONSE_ID_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Chained:
    """A request of a chain: as received, and with all of the conversation that was seen.

    ``conversation`` is the provider's id of it, if that continues the chain. ``is_detached``: the provider's copy lacks
    a turn.
    """

    original: bytes = field(repr=False)
    whole: bytes = field(repr=False)
    is_replayable: bool
    is_partial: bool = False
    conversation: str = ""
    is_detached: bool = False

    def is_added_by(self, outgoing: Outgoing) -> bool:
        """Return whether the provider adds this request to its own copy of the conversation."""
        return bool(self.conversation) and outgoing.body is self.original

    def settle(self, prepared: Outgoing) -> Outgoing:
        """Return the request that goes upstream: the original one, unless it was compressed and can be replayed."""
        if self.is_detached or (prepared.edits and self.is_replayable and prepared.session is not None):
            return prepared
        return replace(prepared, body=self.original)


@frozen
class KnownResponse:
    """A response that may be continued: the request that it answers, and its own items.

    ``is_partial``: the beginning of the chain was not seen. ``is_detached``: the provider's copy lacks a turn.
    """

    sent: bytes = field(repr=False)
    output: Sequence[Any] = field(repr=False)
    is_partial: bool = False
    is_detached: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.sent) + 2_000 * len(self.output)


class Chains:
    """Recent responses by id, within a limit in bytes; older ones from the ledger. For one event loop."""

    def __init__(self, ledger: Ledger | None = None, bytes_max: int = BYTES_MAX, sessions_max: int = 2_000) -> None:
        self._ledger = ledger
        self._bytes_max = bytes_max
        self._sessions_max = sessions_max
        self._bytes = 0
        self._known: OrderedDict[tuple[str, str], KnownResponse] = OrderedDict()
        self._items: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._renamed: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def unroll(self, tenant: str, body: bytes) -> Chained | None:
        """Return a chained request with its conversation, as far as that was seen; None if it is not chained."""
        if len(body) > LARGE_BYTES or not any(sign in body for sign in _SIGNS):
            return None
        try:
            asked = parse_json(body) if len(body) <= INLINE_BYTES_MAX else await asyncio.to_thread(parse_json, body)
        except Unreadable:
            return None
        items = self._resolve_items(tenant, asked) if isinstance(asked, dict) else None
        if items is None:
            return None
        asked = {**asked, "input": items}
        before, conversation = asked.get("previous_response_id"), find_provider_conversation(asked)
        if before and isinstance(before, str):
            known = await self._find(tenant, before)
        elif conversation:
            known = await self._find_conversation(tenant, conversation)
            if known is None or known.is_partial:
                return None
        elif b'"item_reference"' in body:
            known = KnownResponse(b"{}", [])
        else:
            return None
        if known is None or len(known.sent) + len(body) <= INLINE_BYTES_MAX:
            return _join(body, asked, known)
        return await asyncio.to_thread(_join, body, asked, known)

    def _resolve_items(self, tenant: str, asked: dict[str, Any]) -> list[Any] | None:
        """Return a request's items with those that it only refers to; None if one of them is not known."""
        items: list[Any] = []
        for item in _list_items(asked.get("input")) or [None]:
            if isinstance(item, dict) and item.get("type") == "item_reference":
                item = self._items.get((tenant, str(item.get("id"))))
            if item is None:
                return None
            items.append(item)
        return items

    def _keep_items(self, tenant: str, items: Sequence[Any]) -> None:
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("id"), str) and len(dump_json(item)) <= ITEM_BYTES_MAX:
                self._items[tenant, item["id"]] = item
        while len(self._items) > ITEMS_MAX:
            self._items.popitem(last=False)

    async def _find(self, tenant: str, response_id: str) -> KnownResponse | None:
        known = self._known.get((tenant, response_id))
        if known is not None:
            self._known.move_to_end((tenant, response_id))
            return known
        if self._ledger is None or len(response_id) > RESPONSE_ID_CHARS_MAX:
            return None
        found = await self._look_up(read_response, tenant, response_id, self._sessions_max)
        if found is not None:
            return found
        # Another gateway may be about to store it, in a session that it has just changed.
        await asyncio.sleep(STORING_S)
        return await self._look_up(read_response, tenant, response_id, CHANGED_MAX)

    async def _find_conversation(self, tenant: str, conversation: str) -> KnownResponse | None:
        """Return the known part of a conversation at the provider; None if its beginning was not seen."""
        known = self._known.get((tenant, conversation))
        if known is not None or self._ledger is None:
            return known
        return await self._look_up(_read_conversation, tenant, conversation)

    async def _look_up(self, read: Callable[..., KnownResponse | None], *wanted: object) -> KnownResponse | None:
        """Return what the ledger has of a chain; None if it has nothing, or cannot be read."""
        try:
            return await asyncio.to_thread(read, self._ledger, *wanted)
        except RefoldError as error:
            log.warning("a chain could not be looked up", extra={"fields": {"error": type(error).__name__}})
            return None

    def begin(self, tenant: str, created: Mapping[str, Any], body: bytes) -> None:
        """Note that a conversation was created at the provider, with the items in this request."""
        conversation = str(created.get("id") or "") if created.get("object") == "conversation" else ""
        try:
            asked = parse_json(body) if len(body) <= LARGE_BYTES else None
        except Unreadable:
            asked = None
        items = (asked.get("items") if isinstance(asked, dict) else None) or []
        if conversation and isinstance(items, list):
            self._keep((tenant, conversation), KnownResponse(dump_json({"input": items}), []))

    def distrust(self, tenant: str, conversation: str) -> None:
        """Note that the provider's copy of a conversation has changed in an unknown way."""
        self._keep((tenant, conversation), KnownResponse(b"{}", [], is_partial=True))

    def continue_conversation(
        self, tenant: str, chained: Chained, answered: StreamedAnswer, *, is_detached: bool
    ) -> None:
        """Note the answer to a request of a conversation; if it broke off, the provider may or may not have it."""
        known = KnownResponse(chained.whole, list(answered.output), is_detached=is_detached)
        if answered.response_id and known.size <= self._bytes_max // 4:
            self._keep((tenant, chained.conversation), known)
        elif not is_detached:
            self.distrust(tenant, chained.conversation)
        if is_detached and not chained.is_detached:
            log.warning(
                "a conversation continues without the provider's copy of it",
                extra={"fields": {"conversation": chained.conversation}},
            )

    def rename(self, tenant: str, shown: str, held: str) -> None:
        """Note that the client knows a response by another id than the provider, after a recall in a stream."""
        if shown and held and shown != held:
            self._renamed[tenant, shown] = held
            while len(self._renamed) > _RENAMED_MAX:
                self._renamed.popitem(last=False)

    def resolve(self, tenant: str, body: bytes) -> bytes:
        """Return a request that names its previous response as the provider does."""
        found = _PREVIOUS.search(body) if self._renamed else None
        held = self._renamed.get((tenant, found[1].decode("utf-8", "replace"))) if found is not None else None
        if found is None or held is None:
            return body
        return body[: found.start(1)] + held.encode() + body[found.end(1) :]

    def remember(self, tenant: str, whole: bytes, answered: StreamedAnswer, *, is_partial: bool = False) -> bool:
        """Remember a response, with the conversation that it answers; False if the provider cannot continue it."""
        if not answered.response_id:
            return False
        known = KnownResponse(whole, list(answered.output), is_partial)
        if known.size > self._bytes_max // 4 or _NOT_HELD.search(whole):
            return False
        self._keep_items(tenant, answered.output)
        if (tenant, answered.response_id) not in self._known:
            self._keep((tenant, answered.response_id), known)
        return True

    def _keep(self, key: tuple[str, str], known: KnownResponse) -> None:
        before = self._known.pop(key, None)
        self._known[key] = known
        self._bytes += known.size - (before.size if before is not None else 0)
        while self._bytes > self._bytes_max:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.size


def store_response(
    ledger: Ledger, session_id: str, request: ReadRequest, answered: StreamedAnswer, *, names: Mapping[str, bool]
) -> None:
    """Store a response by its ``names``, each with whether the provider's copy lacks the turn. Blocks."""
    output = dump_json(answered.output)
    if len(output) > STORED_BYTES_MAX:
        return
    entry = {
        "count": request.count,
        "last": request.digests[-1] if request.digests else request.lead_digests[-1],
        "output": output.decode("utf-8", "surrogatepass"),
    }
    entries = [{"id": name, **entry, **({"detached": True} if lacks else {})} for name, lacks in names.items()]

    def add(stored: object) -> object:
        kept = [one for one in _list_entries(stored) if one["id"] not in names]
        return [*kept, *entries][-STORED_MAX:]

    ledger.change_setting(session_id, RESPONSES, add, time.time())


def read_response(ledger: Ledger, tenant: str, response_id: str, sessions_max: int) -> KnownResponse | None:
    """Return a stored response of a tenant from the sessions that changed last; None if there is none. Blocks."""
    # The store looks for the id: reading the stored responses of thousands of sessions takes seconds.
    holding = dump_json(response_id)
    for row in ledger.list_sessions(limit=sessions_max, prefix=make_id(tenant, ""), holding=holding):
        if row.id.startswith(TENANT_MARK) == bool(tenant) and _find_entry(row, response_id) is not None:
            found = _read_entry(ledger, row, response_id)
            return found[0] if found is not None else None
    return None


def _read_conversation(ledger: Ledger, tenant: str, conversation: str) -> KnownResponse | None:
    row = ledger.read_session(make_id(tenant, name_provided(conversation)))
    found = _read_entry(ledger, row, conversation) if row is not None and HELD not in row.settings else None
    return found[0] if found is not None and found[1] else None


def _find_entry(row: SessionRow, response_id: str) -> dict[str, Any] | None:
    return next((entry for entry in _list_entries(row.settings.get(RESPONSES)) if entry["id"] == response_id), None)


def _list_entries(stored: object) -> list[dict[str, Any]]:
    """Return the valid stored responses: an imported session may hold anything."""
    kinds = {"id": str, "count": int, "last": str, "output": str}
    return [
        one
        for one in (stored if isinstance(stored, list) else ())
        if isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in kinds.items())
    ]


def _read_entry(ledger: Ledger, row: SessionRow, response_id: str) -> tuple[KnownResponse, bool] | None:
    """Return a session's stored response, and whether nothing was stored after its request. Blocks."""
    entry = _find_entry(row, response_id)
    if entry is None:
        return None
    path, count = ledger.read_path(row.id), entry["count"]
    if not 0 < count <= len(path.ids) or path.digests[count - 1] != entry["last"]:
        return None
    messages = ledger.read_messages(row.id, path.ids[:count])
    if len(messages) < count or any(message.is_forgotten for message in messages):
        return None
    try:
        output = parse_json(entry["output"].encode("utf-8", "surrogatepass"))
    except Unreadable:
        return None
    if not isinstance(output, list):
        return None
    sent = dump_json({"input": [parse_json(message.raw) for message in messages]})
    return KnownResponse(sent, output, HELD in row.settings, bool(entry.get("detached"))), count == len(path.ids)


def _join(body: bytes, asked: dict[str, Any], known: KnownResponse | None) -> Chained:
    """Return a chained request with the conversation that it continues, as far as that is known."""
    new = _list_items(asked.get("input")) or []
    rest = {name: value for name, value in asked.items() if name not in ("previous_response_id", "conversation")}
    if known is None:
        return Chained(body, dump_json({**rest, "input": new}), is_replayable=False, is_partial=True)
    items = [*(_list_items(parse_json(known.sent).get("input")) or ()), *known.output, *new]
    is_replayable = not known.is_partial and all(_can_replay(item) for item in items)
    conversation = find_provider_conversation(asked)
    return Chained(
        body, dump_json({**rest, "input": items}), is_replayable, known.is_partial, conversation, known.is_detached
    )


def _list_items(given: object) -> list[Any] | None:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else None


def _can_replay(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type") or ("message" if "role" in item else "")
    return isinstance(kind, str) and kind in _REPLAYABLE
