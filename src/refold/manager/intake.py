"""Taking messages in: which are new, what becomes of them on arrival, and storing both in one transaction.

Arrival is a pure function of message and config (L10); what it makes is stored and replayed for ever (L6). Nothing is
shown that is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refold.conversation.edit import Edit
from refold.conversation.message import Message
from refold.errors import FormatError
from refold.formats import detect, digest_message
from refold.ledger.chain import Link, chain_path, chain_tail
from refold.ledger.encode import dump_json
from refold.ledger.ledger import Ledger, Splice, StoredMessage
from refold.manager.session import OpenSession
from refold.stages.arrival import render_arrival
from refold.stages.stage import ArrivalStage
from refold.tokens import model_info


def check_messages(messages: object) -> Sequence[object]:
    """Return what was handed in if it is a list of messages; FormatError else."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise FormatError(f"messages must be a list of messages, not {type(messages).__name__}")
    return messages


def take_history(
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
    session.path_version = -1  # Positions moved: whoever goes on loads it anew.
    return version is not None


def take_new(
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
        arrival += render_new(message, stages, session)
    return messages, arrival


def render_new(message: Message, stages: Sequence[ArrivalStage], session: OpenSession) -> list[Edit]:
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


def find_wire(
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
