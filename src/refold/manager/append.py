"""Appending: find the new messages of a history, determine format and model, and store them.

Rendering on arrival depends only on the message, the configuration and the language (L10). The result is stored with
its message in one transaction and never changes (L6). If another process appends first, the loser reads and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from refold.budget import read_tokens
from refold.config import CompressionConfig
from refold.config.values import leave_room, window_of
from refold.conversation import because
from refold.conversation.message import Message, frozen
from refold.conversation.view import Edit
from refold.errors import ConfigError, FormatError
from refold.formats import Beside, Intake, detect, parse_messages, read_output_limit
from refold.ledger.align import chain_path
from refold.ledger.codec import dump_json, load_json
from refold.ledger.records import Extension, MessagePath, SessionRow, Splice, StoredMessage, extend_row, merge_settings
from refold.manager.flow import Flow, Rounds
from refold.manager.history import restore_history, restore_tail
from refold.manager.session import OpenSession, digest_raw
from refold.manager.store import Keeper
from refold.manager.usage import ReportedUsage, describe_reports
from refold.stages.stage import ArrivalStage, render_arrival
from refold.stages.truncate import Truncate
from refold.tokens import model_info


@frozen
class Request:
    """A request to prepare a context. ``messages`` is the whole history, or None for the messages in the ledger.

    ``window`` and ``reserve`` override the model's and the configured ones. ``digests`` are the content hashes of the
    messages if they are known. With ``follows``, the number of earlier messages and the digest of the last one,
    ``messages`` are only the later ones. ``reports`` are usage reports that are not stored yet. ``origins`` are
    positions in the client's history if originals replaced records of ours (see ``history``).
    """

    session_id: str
    messages: Sequence[object] | None = None
    system: object = ""
    tools: object = None
    model: str | None = None
    format: str | None = None
    window: int | None = None
    reserve: int | None = None
    follows: tuple[int, str] | None = None
    digests: Sequence[str] | None = None
    reports: Sequence[ReportedUsage] = ()
    origins: Sequence[int] | None = None

    def add_kept(self, kept: Mapping[str, Any]) -> Request:
        """Return the request with the system prompt and tools of an imported session, if it has none of its own."""
        if self.messages is not None or self.system or self.tools is not None or not kept:
            return self
        return replace(self, system=kept.get("system") or "", tools=kept.get("tools"))


def check_session(session_id: object) -> str:
    """Return a session id; raise FormatError if it is invalid."""
    if not isinstance(session_id, str) or not 1 <= len(session_id) <= 256:
        raise FormatError(
            "a session id must be a string of 1 to 256 characters, not {session_id!r}", session_id=str(session_id)[:40]
        )
    return session_id


def choose_messages(messages: object, current_messages: object) -> object:
    """Return the messages; raise ConfigError if both names of the argument are used."""
    if messages is not None and current_messages is not None:
        raise ConfigError("give either messages= or current_messages=; they are one argument with two names")
    return messages if messages is not None else current_messages


def make_request(
    config: CompressionConfig,
    session_id: str,
    intake: Intake,
    beside: Beside,
    *,
    window: int | str | None = None,
    reserve: int | str | None = None,
) -> Request:
    """Return the request; raise ConfigError if a number is invalid. A body's ``max_tokens`` may lower the reserve."""
    window, reserve = read_room(window, "window"), read_room(reserve, "reserve")
    whole = beside.complete(intake)
    named = whole.model, whole.format
    if reserve is None and (wanted := read_output_limit(intake.body)):
        reserve = leave_room(config, whole.model, wanted, window)
    return Request(check_session(session_id), intake.raws, whole.system or "", whole.tools, *named, window, reserve)


def read_room(value: object, name: str) -> int | None:
    """Return a window or reserve in tokens; raise ConfigError if it is no such number."""
    if value is None:
        return None
    tokens = read_tokens(value, name)
    if tokens < 0:
        raise ConfigError("{name} is {tokens}; give a number of tokens of 0 or more", name=name, tokens=tokens)
    return tokens


def check_messages(messages: object) -> Sequence[object]:
    """Return the messages if they are a list; raise FormatError otherwise."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise FormatError("messages must be a list of messages, not {kind}", kind=type(messages).__name__)
    return messages


def take_in(keeper: Keeper, session: OpenSession, request: Request) -> Flow[Request]:
    """Store the caller's messages in a held session; return the request, with originals in place of our records."""
    given = None if request.messages is None else check_messages(request.messages)
    given_digests = request.digests or (session.prints.digest_all(given) if given else ())
    rounds = Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, request, given, notes_room=True)
        keeper.open(session, row)
        if given is None:
            return request
        raws, digests, taken = given, given_digests, request
        if list(digests[: len(session.digests)]) != session.digests:
            restored = restore_history(keeper.ledger, session, raws, digests)
            if restored is not None:
                raws, digests = [one.raw for one in restored], [one.digest for one in restored]
                origins = [one.origin for one in restored]
                taken = replace(request, messages=raws, digests=digests, origins=origins)
        if _change_wire(keeper, session, raws[len(session.ids) :], partial(list, raws)):
            continue
        is_stored = _take_history(keeper, session, raws, digests)
        if is_stored and session.path_version >= 0:
            _settle_versions(keeper, session)
            return taken
        session.drop()
        if not is_stored:
            yield rounds.refuse(row, because.HISTORY_REFUSED(messages=len(raws)))


def append_new(keeper: Keeper, session: OpenSession, request: Request) -> Flow[OpenSession]:
    """Add the messages of a request at the end of a held session."""
    raws, rounds = request.messages or (), Rounds(keeper, request.session_id)
    while True:
        rounds.begin()
        row = _find_row(keeper, request, raws)
        keeper.open(session, row)
        if _change_wire(keeper, session, raws, lambda: [*_read_raws(keeper, request.session_id), *raws]):
            continue
        digests = [digest_raw(raw, at) for at, raw in enumerate(raws)]
        restored = restore_tail(keeper.ledger, session, raws, digests)
        if _append(keeper, session, [one.raw for one in restored], [one.digest for one in restored]):
            _settle_versions(keeper, session)
            if any(one.origin < 0 for one in restored):
                session.drop()  # A fold may cover these originals again: the next use reloads the session.
            return session
        session.drop()
        yield rounds.refuse(row, because.MESSAGES_REFUSED(messages=len(raws)))


def truncate(keeper: Keeper, session_id: str, length: int) -> Flow[int]:
    """Keep the first ``length`` messages of the path; return how many were removed."""
    rounds, length = Rounds(keeper, session_id), max(0, length)
    while True:
        rounds.begin()
        path, now = keeper.ledger.read_path(session_id), keeper.clock()
        if len(path.ids) <= length:
            return 0
        splice = Splice(length, len(path.ids), ())
        if keeper.ledger.append(session_id, (), (splice,), version=path.version, now=now) is not None:
            keeper.sessions.drop(session_id)
            return len(path.ids) - length
        yield rounds.lose()


def _change_wire(
    keeper: Keeper, session: OpenSession, tail: Sequence[object], read_all: Callable[[], Sequence[object]]
) -> bool:
    """Switch the session's format if new messages show that it was detected wrongly; return whether it changed."""
    known = session.row.wire
    if not tail or session.state.named_wire:
        return False  # The format that a caller names outweighs any sign in the messages.
    if not _differs(tail, known):
        return False
    wire = detect(read_all()).name
    if wire == known:
        return False
    keeper.ledger.update_session(session.id, {"wire": wire}, keeper.clock())
    return True


def _read_raws(keeper: Keeper, session_id: str) -> list[object]:
    return [load_json(stored.raw) for stored in keeper.ledger.read_messages(session_id) if not stored.is_forgotten]


def _find_row(
    keeper: Keeper, request: Request, raws: Sequence[object] | None, *, notes_room: bool = False
) -> SessionRow:
    """Return the session's row with the format and model of this request; create the row if it does not exist."""
    row = keeper.ledger.read_session(request.session_id)
    if row is None:
        row = keeper.make_row(request.session_id)
    changes: dict[str, object] = {}
    model = request.model or row.model or keeper.config.model or ""
    if model != row.model:
        changes["model"] = model
    if request.format is not None or not row.wire:
        wire = _find_wire(raws or (), request, model)
        if wire != row.wire and (raws or request.format is not None):
            if row.wire and row.messages:
                _check_readable(keeper, row, wire)
            changes["wire"] = wire
        elif not row.wire:
            row = replace(row, wire=wire)
    settings = _find_room(keeper, request, replace(row, model=model)) if notes_room else {}
    if request.format is not None and not row.settings.get("named_wire"):
        settings["named_wire"] = True
    if settings:
        changes["settings"] = settings
    if changes:
        keeper.ledger.update_session(request.session_id, changes, keeper.clock())
        merged = merge_settings(row.settings, settings)
        row = replace(row, model=model, wire=str(changes.get("wire", row.wire)), settings=merged)
    return row


def _find_room(keeper: Keeper, request: Request, row: SessionRow) -> dict[str, object]:
    """Return the window and reserve of a request if they changed; ``status`` shows them in other processes."""
    window = request.window or window_of(keeper.config, row.model)
    reserve = request.reserve if request.reserve is not None else keeper.config.reserve
    # Without a null at the end: where JSON has one, it is searched for NaN before it is stored.
    room = None if window is None and request.reserve is None else [window] if reserve is None else [window, reserve]
    return {} if room == row.settings.get("room") else {"room": room}


def _check_readable(keeper: Keeper, row: SessionRow, wire: str) -> None:
    """Raise FormatError if a format cannot read the stored messages: the session could not be opened again."""
    form = detect((), name=wire)
    try:
        for raw in _read_raws(keeper, row.id):
            form.parse(raw, "", "a stored message")
    except FormatError as error:
        raise FormatError(
            "session {id!r} holds {wire} messages, and this request is in {wire2}: give it another session",
            id=row.id[:40],
            wire=row.wire,
            wire2=wire,
        ) from error


def _settle_versions(keeper: Keeper, session: OpenSession) -> None:
    """Adopt the versions after our own append; if anything else changed, the next use reloads the session."""
    row = keeper.ledger.read_session(session.id)
    if row is None or row.path_version != session.path_version:
        return
    is_ours = row.edits_version - session.row.edits_version in (0, 1)
    if is_ours and row.compression_count == session.row.compression_count:
        session.row = row


def _take_history(keeper: Keeper, session: OpenSession, raws: Sequence[object], digests: Sequence[str]) -> bool:
    """Make the path equal to the client's history, storing only what is new; False if another process changed it."""
    known, now = len(session.digests), keeper.clock()
    if list(digests[:known]) == session.digests:
        return _append(keeper, session, raws[known:], digests[known:], start=known)
    path = MessagePath(tuple(session.ids), tuple(session.digests), session.path_version)
    chained = chain_path(path, digests)
    new = [
        session.lens.format.parse(raws[link.at], link.parent, f"messages[{link.at}]", digest=digests[link.at])
        for link in chained.new
    ]
    arrival = _render_all(keeper, session, new)
    stored = [_store(message, link.parent, session, now) for message, link in zip(new, chained.new, strict=True)]
    version = keeper.ledger.append(
        session.id, stored, chained.splices, version=session.path_version, now=now, arrival=arrival
    )
    session.unsent.update(message.id for message in new)
    session.path_version = -1  # Positions moved: the next use reloads the session.
    return version is not None


def _append(
    keeper: Keeper, session: OpenSession, raws: Sequence[object], digests: Sequence[str], *, start: int = 0
) -> bool:
    """Add messages, the first at ``start`` in the request, at the end; False if another process changed the path."""
    if not raws:
        return True
    now, place = keeper.clock(), len(session.ids)
    new = parse_messages(session.lens.format, raws, _tail(session), start=start, digests=digests)
    arrival = _render_all(keeper, session, new)
    stored = _store_tail(session, new, now)
    splice = Splice(place, place, tuple(message.id for message in new))
    version = keeper.ledger.append(
        session.id, stored, (splice,), version=session.path_version, now=now, arrival=arrival
    )
    if version is None:
        return False
    session.path_version = version
    session.extend(new, arrival)
    return True


def _store_tail(session: OpenSession, messages: Sequence[Message], now: float) -> list[StoredMessage]:
    parents = [_tail(session), *(message.id for message in messages)]
    return [_store(message, parent, session, now) for message, parent in zip(messages, parents, strict=False)]


def extend_open(keeper: Keeper, session: OpenSession, request: Request) -> Extension | None:
    """Append new messages to a session in memory; return the extension, which the caller must store.

    None, with nothing changed, if this needs the ledger: nothing is new, the history does not continue the session in
    memory, or a message is rendered on arrival.
    """
    if not session.is_loaded or request.messages is None or not _is_alike(keeper, session, request):
        return None
    raws = check_messages(request.messages)
    whole = session.prints.digest_all(raws) if request.digests is None else request.digests
    if request.follows is not None:
        tail, digests, start = raws, whole, 0
    else:
        known = len(session.digests)
        if len(whole) <= known or list(whole[:known]) != session.digests:
            return None
        tail, digests, start = raws[known:], whole[known:], known
        is_named = request.format is not None or session.state.named_wire
        if not is_named and _differs(tail, session.row.wire):
            return None
    messages = parse_messages(session.lens.format, tail, _tail(session), start=start, digests=digests)
    if any(render_arrival(keeper.arrival_stages, message) for message in messages):
        return None
    now = keeper.clock()
    stored = _store_tail(session, messages, now)
    extension = Extension(session.row, stored, now)
    if request.reports:
        usages, settings = describe_reports(keeper, session, session.row, request.reports)
        extension = Extension(session.row, stored, now, usages, settings)
    session.row = extend_row(session.row, extension)
    session.path_version = session.row.path_version
    session.counter = keeper.counting.find_counter(session.row.model, session.state)
    session.extend(messages, ())
    session.ahead += len(messages)
    return extension


def _is_alike(keeper: Keeper, session: OpenSession, request: Request) -> bool:
    """Return whether a request matches the format, the model and the last message of the session in memory."""
    row = session.row
    if request.follows is not None and request.follows != (len(session.ids), (session.digests or [""])[-1]):
        return False  # Another process appended to it: the new messages do not follow its last one.
    model = request.model or row.model or keeper.config.model or ""
    is_settled = row.path_version == session.path_version
    return is_settled and bool(row.wire) and request.format in (None, row.wire) and model == row.model


def store_extensions(
    keeper: Keeper, extensions: Sequence[Extension], *, may_wait: bool = False
) -> list[SessionRow | None] | None:
    """Store extensions in one transaction; return the new rows, None if another writer is busy.

    The row of a session that another process changed is None. What is not stored is dropped from memory.
    """
    try:
        rows = keeper.ledger.extend(extensions, may_wait=may_wait)
    except BaseException:
        for extension in extensions:
            keeper.sessions.drop(extension.seen.id)
        raise
    for row, extension in zip(rows or (), extensions, strict=False):
        if row is None:
            keeper.sessions.drop(extension.seen.id)
    return rows


def _tail(session: OpenSession) -> str:
    return session.ids[-1] if session.ids else ""


def _render_all(keeper: Keeper, session: OpenSession, messages: Sequence[Message]) -> list[Edit]:
    """Return the arrival edits of new messages, in the language of the conversation."""
    stages = keeper.arrival_stages
    if not stages:
        return []
    if any(part.kind == "result" for message in messages for part in message.parts):
        language = keeper.config.language or session.find_language(messages)
        stages = [stage.speak(language) if isinstance(stage, Truncate) else stage for stage in stages]
    return [edit for message in messages for edit in _render_new(message, stages, session)]


def _render_new(message: Message, stages: Sequence[ArrivalStage], session: OpenSession) -> list[Edit]:
    """Return the arrival edits of a message, with their tokens; none that was undone or does not make it smaller."""
    edits = [edit for edit in render_arrival(stages, message) if edit.id not in session.switched_off]
    if not edits:
        return edits
    # Each edit counts what it adds to those before it, so that the figures of a message with several results add up.
    sizes = [session.counter.count_parts(message.role, message.parts, message.name)]
    for made in range(1, len(edits) + 1):
        rendered = session.lens.edited(message, edits[:made])
        sizes.append(rendered.tokens if rendered else 0)
    if sizes[-1] >= sizes[0]:  # L4
        return []
    return [
        replace(edit, tokens_before=before, tokens_after=after)
        for edit, (before, after) in zip(edits, pairwise(sizes), strict=True)
    ]


def _store(message: Message, parent: str, session: OpenSession, now: float) -> StoredMessage:
    return StoredMessage(
        id=message.id,
        parent=parent,
        digest=message.digest,
        role=message.role,
        raw=dump_json(message.raw),
        tokens=session.lens.plain(message).tokens,
        created_at=now,
    )


def _find_wire(raws: Sequence[object], request: Request, model: str) -> str:
    """Return the format of a session's first messages: the named one, else the detected one."""
    if request.format is not None:
        return detect((), name=request.format).name
    # A system prompt that is plain text proves nothing: our own interface takes it as a separate argument.
    hint = "" if model_info(model or None).family == "claude" else None
    system = request.system if request.system and not isinstance(request.system, str) else hint
    return detect(raws, system=system, tools=request.tools).name


def _differs(raws: Sequence[object], wire: str) -> bool:
    """Return whether new messages are in another format; plain ones fit either, depending on the system prompt."""
    without, beside = detect(raws).name, detect(raws, system="").name
    return without == beside and without != wire
