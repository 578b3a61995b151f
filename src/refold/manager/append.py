"""Appending: find what is new in a history, settle format and model, and store it.

Rendering on arrival is a pure function of message and configuration (L10). It is stored with its message in one
transaction and replayed for ever (L6). Nothing is shown before it is stored. Another process may append to the same
session at any time: the loser reads the session again and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from refold.conversation import because
from refold.conversation.edit import Edit
from refold.conversation.message import Message
from refold.errors import ConfigError, FormatError
from refold.formats import detect, digest_message
from refold.ledger.chain import Link, chain_path, chain_tail
from refold.ledger.codec import dump_json, load_json
from refold.ledger.port import Ledger
from refold.ledger.records import SessionRow, Splice, StoredMessage
from refold.manager.flow import Flow, Rounds
from refold.manager.session import OpenSession
from refold.manager.store import Keeper, Slot
from refold.stages.arrival import render_arrival
from refold.stages.stage import ArrivalStage
from refold.tokens import model_info

# The setting that holds the system prompt and the tools of an imported conversation.
KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants prepared. ``messages`` is the whole history, or None for what the ledger has.

    ``window`` and ``reserve`` hold for this call only, in the place of the model's and of the settings'.
    """

    session_id: str
    messages: Sequence[object] | None = None
    system: object = ""
    tools: object = None
    model: str | None = None
    format: str | None = None
    window: int | None = None
    reserve: int | None = None
    follows: tuple[int, str] | None = None  # How many messages there were before, and the digest of the last.

    def add_kept(self, settings: Mapping[str, object]) -> Request:
        """Return the request with the system prompt and tools that an imported session brought, if it has none."""
        kept = settings.get(KEPT)
        if self.messages is not None or self.system or self.tools is not None or not isinstance(kept, Mapping):
            return self
        return replace(self, system=kept.get("system") or "", tools=kept.get("tools"))


def check_session(session_id: object) -> str:
    """Return the name of a session; FormatError if it is none."""
    if not isinstance(session_id, str) or not 1 <= len(session_id) <= 256:
        raise FormatError(f"a session id is a text of 1 to 256 characters, not {str(session_id)[:40]!r}")
    return session_id


def make_request(
    session_id: str,
    messages: Sequence[Any] | None,
    current_messages: Sequence[Any] | None,
    system: object,
    tools: object,
    model: str | None,
    wire: str | None,
    window: int | None,
    reserve: int | None,
) -> Request:
    """Return what was asked for; ConfigError if it was asked for twice, or with a window that is none."""
    if messages is not None and current_messages is not None:
        raise ConfigError("give either messages= or current_messages=; they are one argument with two names")
    given = messages if messages is not None else current_messages
    for name, value in (("window", window), ("reserve", reserve)):
        if value is not None and (type(value) is not int or value < 0):
            raise ConfigError(f"{name} is a whole number of tokens, not {str(value)[:40]!r}")
    return Request(check_session(session_id), given, system, tools, model, wire, window, reserve)


def check_messages(messages: object) -> Sequence[object]:
    """Return what was handed in if it is a list of messages; FormatError else."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise FormatError(f"messages must be a list of messages, not {type(messages).__name__}")
    return messages


def take_in(keeper: Keeper, slot: Slot, request: Request) -> Flow[OpenSession]:
    """Return the session with all that the caller handed in stored and shown."""
    raws = None if request.messages is None else check_messages(request.messages)
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, request, raws)
        session = keeper.open(slot, row)
        if raws is None:
            return session
        # A caller that names the format knows it better than any sign in the messages.
        if request.format is None and _change_wire(keeper, session, raws[len(session.ids) :], lambda: raws):
            continue
        is_stored = _take_history(session, keeper.ledger, raws, keeper.arrival_stages(), keeper.clock())
        if is_stored and session.path_version >= 0:
            _settle_versions(keeper, session)
            return session
        slot.session = None
        if not is_stored:
            yield rounds.refuse(row, because.HISTORY_REFUSED(messages=len(raws)))


def append_new(
    keeper: Keeper, slot: Slot, session_id: str, raws: Sequence[object], wire: str | None
) -> Flow[OpenSession]:
    """Add messages at the end of a session."""
    rounds = Rounds(keeper, session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, Request(session_id, format=wire), raws)
        session = keeper.open(slot, row)
        if wire is None and _change_wire(keeper, session, raws, lambda: [*_read_raws(keeper, session_id), *raws]):
            continue
        if _take_new(session, keeper.ledger, raws, keeper.arrival_stages(), keeper.clock()):
            _settle_versions(keeper, session)
            return session
        slot.session = None
        yield rounds.refuse(row, because.MESSAGES_REFUSED(messages=len(raws)))


def _change_wire(
    keeper: Keeper, session: OpenSession, tail: Sequence[object], read_all: Callable[[], Sequence[object]]
) -> bool:
    """Switch the session's format if new messages show that it was taken for another; True if it was."""
    known = session.row.wire
    if not tail or _find_wire(tail, known, model="", system=None, tools=None, name=None) is None:
        return False
    wire = detect(read_all()).name
    if wire == known:
        return False
    keeper.ledger.update_session(session.id, {"wire": wire}, keeper.clock())
    return True


def _read_raws(keeper: Keeper, session_id: str) -> list[object]:
    return [load_json(stored.raw) for stored in keeper.ledger.read_messages(session_id) if not stored.is_forgotten]


def _find_row(keeper: Keeper, request: Request, raws: Sequence[object] | None) -> SessionRow:
    """Return the session's row, made if messages come for it, with the format and model that hold now."""
    row = keeper.ledger.read_session(request.session_id)
    if row is None:
        row = keeper.make_row(request.session_id)
    changes: dict[str, object] = {}
    model = request.model or row.model or keeper.config.model or ""
    if model != row.model:
        changes["model"] = model
    if request.format is not None or not row.wire:
        wire = _find_wire(raws or (), "", model=model, system=request.system, tools=request.tools, name=request.format)
        if wire != row.wire and (raws or request.format is not None):
            changes["wire"] = wire
        elif not row.wire:
            row = replace(row, wire=wire or "")
    if changes:
        keeper.ledger.update_session(request.session_id, changes, keeper.clock())
        row = replace(row, model=model, wire=str(changes.get("wire", row.wire)))
    return row


def _settle_versions(keeper: Keeper, session: OpenSession) -> None:
    """Take over the versions after our own append; if they say more than that, the next one loads anew."""
    row = keeper.ledger.read_session(session.id)
    if row is None or row.path_version != session.path_version:
        return
    is_ours = row.edits_version - session.row.edits_version in (0, 1)
    if is_ours and row.compression_count == session.row.compression_count:
        session.row = row


def _take_history(
    session: OpenSession, ledger: Ledger, raws: Sequence[object], stages: Sequence[ArrivalStage], now: float
) -> bool:
    """Make the path what was handed in, storing only what is new; False if another process changed it meanwhile.

    If anything but the end of the path changes, the session has to be loaded anew; its version says so.
    """
    digests = session.prints.digest_all(raws, session.digests, _digest_raw)
    known = len(session.digests)
    if digests[:known] == session.digests:
        links = chain_tail(_tail(session), digests[known:], known)
        is_stored = _append(session, ledger, raws, links, stages, now)
        session.prints.settle()
        return is_stored
    chained = chain_path(session.path(), digests)
    new, arrival = _parse_new(session, raws, chained.new, stages)
    stored = [_store(message, link, session, now) for message, link in zip(new, chained.new, strict=True)]
    version = ledger.append(session.id, stored, chained.splices, version=session.path_version, now=now, arrival=arrival)
    session.unsent.update(message.id for message in new)
    session.path_version = -1  # Positions moved: whoever goes on loads it anew.
    return version is not None


def _take_new(
    session: OpenSession, ledger: Ledger, raws: Sequence[object], stages: Sequence[ArrivalStage], now: float
) -> bool:
    """Add messages at the end of the path; False if another process changed it meanwhile."""
    digests = [_digest_raw(raw, at) for at, raw in enumerate(raws)]
    known = len(session.ids)
    links = chain_tail(_tail(session), digests, known)
    return _append(session, ledger, raws, links, stages, now, start=known)


def _append(
    session: OpenSession,
    ledger: Ledger,
    raws: Sequence[object],
    links: Sequence[Link],
    stages: Sequence[ArrivalStage],
    now: float,
    start: int = 0,
) -> bool:
    if not links:
        return True
    new, arrival = _parse_new(session, raws, links, stages, start)
    stored = [_store(message, link, session, now) for message, link in zip(new, links, strict=True)]
    place = links[0].at
    splice = Splice(place, place, tuple(link.id for link in links))
    version = ledger.append(session.id, stored, (splice,), version=session.path_version, now=now, arrival=arrival)
    if version is None:
        return False
    session.path_version = version
    session.extend(new, arrival)
    return True


def _tail(session: OpenSession) -> str:
    return session.ids[-1] if session.ids else ""


def _digest_raw(raw: object, at: int) -> str:
    if not isinstance(raw, dict):
        raise FormatError(f"messages[{at}] is {type(raw).__name__}, expected an object with a role")
    return digest_message(raw, None, f"messages[{at}]")


def _parse_new(
    session: OpenSession, raws: Sequence[object], links: Sequence[Link], stages: Sequence[ArrivalStage], start: int = 0
) -> tuple[list[Message], list[Edit]]:
    messages: list[Message] = []
    arrival: list[Edit] = []
    for link in links:
        at = link.at - start
        message = session.lens.format.parse(raws[at], link.parent, f"messages[{at}]")
        messages.append(message)
        arrival += _render_new(message, stages, session)
    return messages, arrival


def _render_new(message: Message, stages: Sequence[ArrivalStage], session: OpenSession) -> list[Edit]:
    """Return the edits of a message that just came, with their tokens; none if they would not make it smaller.

    A message may come again after its edit was undone: what is switched off stays so.
    """
    edits = [edit for edit in render_arrival(stages, message) if edit.id not in session.switched_off]
    if not edits:
        return edits
    before = session.counter.count_parts(message.role, message.parts, message.name)
    rendered = session.lens.edited(message, edits)
    after = rendered.tokens if rendered else 0
    if after >= before:  # L4
        return []
    return [replace(edit, tokens_before=before, tokens_after=after) for edit in edits]


def _store(message: Message, link: Link, session: OpenSession, now: float) -> StoredMessage:
    return StoredMessage(
        id=message.id,
        parent=link.parent,
        digest=message.digest,
        role=message.role,
        raw=dump_json(message.raw),
        tokens=session.counter.count_parts(message.role, message.parts, message.name),
        created_at=now,
    )


def _find_wire(
    raws: Sequence[object], known: str, *, model: str, system: object, tools: object, name: str | None
) -> str | None:
    """Return the format that new messages are in, if they say more than what is known; None if they do not."""
    if name is not None:
        return detect((), name=name).name
    if not known:
        # A system prompt that is text says nothing: our own interface takes it apart from the messages.
        hint = "" if model_info(model or None).family == "claude" else None
        return detect(raws, system=system if system and not isinstance(system, str) else hint, tools=tools).name
    # Plain messages read as the one or the other, depending on the system prompt alone: they say nothing.
    without, beside = detect(raws).name, detect(raws, system="").name
    return without if without == beside and without != known else None
