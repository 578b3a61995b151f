"""Erasing for good, and verifying what is stored.

``forget`` is the only operation that erases content: in the ledger, in offloaded files, in daily pages. The stub it
leaves has the shape of the message (roles, call ids, names) and none of its words, so the view stays valid. It cannot
reach exports, backups or what was sent to a provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from refold.conversation.message import Message
from refold.conversation.view import Lens
from refold.errors import ConfigError, LedgerError
from refold.formats import digest_message
from refold.ledger.place import find_file, find_place
from refold.ledger.records import Finding, SessionRow, StoredMessage
from refold.ledger.salvage import Salvaged, salvage
from refold.ledger.scrub import GONE, Words
from refold.manager.commit import find_files, remove_others, write_named
from refold.manager.lease import leased
from refold.manager.notices import read_all_events
from refold.manager.session import BRAKE, FORCED, FORGOTTEN, RESPONSES, parse_stored
from refold.manager.store import Keeper, Slot
from refold.manager.undo import with_descendants
from refold.memory import MarkdownSync, is_section_of
from refold.recall.expand import find_handle
from refold.stages.offload import OffloadFile

# Settings that hold sentences: why compressions stopped, what forces the next, what a person called the session.
_SENTENCES = (BRAKE, FORCED, "title")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was erased: messages, sections of daily pages, and what could not be."""

    messages: int
    sections: int = 0
    warnings: tuple[str, ...] = ()


def forget(keeper: Keeper, session_id: str, handle: str | None, pages: MarkdownSync) -> Forgotten:
    """Erase what is behind a handle, or a whole session."""
    row = keeper.need_row(session_id)
    if handle is None:
        sections, warnings = _erase_sections(session_id, pages, _list_entries(keeper, session_id, None))
        delete(keeper, session_id)
        return Forgotten(row.messages, sections, (*warnings, *_find_unreadable(keeper.workspace)))
    with keeper.held(session_id) as slot, leased(keeper, session_id):
        stored = _same_content(keeper, row, find_handle(keeper.ledger, row, handle))
        ids = [one.id for one in stored]
        stubs = _make_stubs(keeper, row, stored)
        entries = _list_entries(keeper, session_id, set(ids))
        now = keeper.clock()
        known = row.settings.get(FORGOTTEN)
        merged = {**(known if isinstance(known, dict) else {}), **stubs}
        changes = {FORGOTTEN: merged, RESPONSES: None, **_scrub_settings(row, Words(one.raw or None for one in stored))}
        keeper.ledger.update_session(session_id, {"settings": changes}, now)
        count = keeper.ledger.forget(session_id, ids, now)
        slot.session = None
        session = keeper.open_stored(slot, session_id)
        warnings = remove_others(keeper, session_id, write_named(keeper, session, session.edits))
        keeper.find_folder(session_id).remove_leftovers()
        sections, problems = _erase_sections(session_id, pages, entries)
        return Forgotten(count, sections, (*warnings, *problems, *_find_unreadable(keeper.workspace)))


def delete(keeper: Keeper, session_id: str) -> bool:
    """Erase a session from the ledger, with its folder of files."""
    with keeper.held(session_id) as slot:
        is_gone = keeper.ledger.delete_session(session_id)
        keeper.find_folder(session_id).remove_all()
        slot.session = None
        slot.sent = None
        return is_gone


def verify(keeper: Keeper, session_id: str | None, *, repair: bool) -> list[Finding]:
    """Return what differs in the ledger and in offloaded files; ``repair`` rebuilds what is derived."""
    findings = keeper.ledger.verify(session_id, repair=repair, digest=_digest)
    for row in _list_rows(keeper, session_id):
        findings += _verify_files(keeper, row, repair=repair)
    return findings


def salvage_ledger(keeper: Keeper) -> Salvaged:
    """Copy what can be read of a damaged ledger file into a new one beside it."""
    place = find_place(keeper.ledger, keeper.config.ledger)
    if place is not None and place.kind != "file":
        raise ConfigError("only a ledger in a file can be salvaged; restore the server's database from a backup")
    keeper.ledger.close()
    path = find_file(keeper.workspace, place)
    when = datetime.fromtimestamp(keeper.clock(), UTC)
    target = path.with_name(f"{path.stem}.salvaged-{when:%Y%m%d-%H%M%S}{path.suffix}")
    return salvage(path, target, _digest, keeper.clock())


def _verify_files(keeper: Keeper, row: SessionRow, *, repair: bool) -> list[Finding]:
    if not any(one.edit.stage == "offload" for one in keeper.ledger.read_edits(row.id)):
        return []
    with keeper.held(row.id) as slot:
        try:
            if not _find_wrong(keeper, slot, row.id):
                return []
        except LedgerError as error:
            return [Finding(row.id, f"the view cannot be computed: {error}", is_derived=False)]
        # Perhaps another process is changing the view at this moment, and its files. Under the lease none is.
        with leased(keeper, row.id):
            wrong = _find_wrong(keeper, slot, row.id)
            if repair and wrong:
                keeper.find_folder(row.id).write(wrong)
        return [
            Finding(row.id, f"the view names {file.path}, which is missing or not what was offloaded", is_derived=True)
            for file in wrong
        ]


def _find_wrong(keeper: Keeper, slot: Slot, session_id: str) -> list[OffloadFile]:
    """Return the files that the view names as it is now, with what has to be in them, where that is not so."""
    row = keeper.ledger.read_session(session_id)
    if row is None:
        return []
    session = keeper.open(slot, row)
    folder = keeper.find_folder(session_id)
    return [file for file in find_files(session.make_view(keeper.ledger)) if folder.read(file.path) != file.text]


def _list_rows(keeper: Keeper, session_id: str | None) -> list[SessionRow]:
    if session_id is not None:
        row = keeper.ledger.read_session(session_id)
        return [row] if row else []
    rows: list[SessionRow] = []
    while page := keeper.ledger.list_sessions(limit=1_000, offset=len(rows)):
        rows += page
    return rows


def _digest(raw: object) -> str:
    if not isinstance(raw, dict):
        raise LedgerError("a stored message is not a JSON object")
    return digest_message(raw)


def _same_content(keeper: Keeper, row: SessionRow, found: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return every message with the content of one of these: what leaked once may stand in several places."""
    same = [one for stored in found for one in keeper.ledger.find_messages(row.id, stored.digest, limit=10_000)]
    return list({one.id: one for one in same}.values())


def _make_stubs(keeper: Keeper, row: SessionRow, stored: Sequence[StoredMessage]) -> dict[str, object]:
    """Return what stands in the place of each message: its shape without its words."""
    lens = keeper.make_lens(row)
    return {one.id: _strip(parse_stored(one, row, lens), lens) for one in stored if not one.is_forgotten}


def _strip(message: Message, lens: Lens) -> object:
    changes: dict[int, str | None] = {}
    for number, part in enumerate(message.parts):
        if part.kind in ("text", "result"):
            changes[number] = GONE
        elif part.kind == "call":
            changes[number] = '{"forgotten": true}'
        else:
            changes[number] = None
    raw = lens.format.render(message, changes)
    if not isinstance(raw, dict):
        return lens.format.write_summary(GONE, message.role)
    # Fields that no part stands for could hold anything.
    known = {"role", "content", "type", "tool_calls", "tool_call_id", "name", "call_id", "arguments", "output", "id"}
    return {key: value for key, value in raw.items() if key in known}


def _find_unreadable(workspace: Path) -> list[str]:
    """Name what was put aside because it could not be read: nobody knows what is in it."""
    found = sorted((workspace / ".compression").glob("*.unreadable"))
    return [f"{path} was damaged and put aside; it may hold what is forgotten: look, or delete it" for path in found]


def _scrub_settings(row: SessionRow, words: Words) -> dict[str, object]:
    """Return what changes in the settings that hold sentences."""
    held = {name: row.settings.get(name) for name in _SENTENCES}
    changed = {name: words.take_out(value) for name, value in held.items()}
    # A title is a person's own: rather none than one that says nothing.
    return {name: None if value == GONE else value for name, value in changed.items() if value is not held[name]}


def _list_entries(keeper: Keeper, session_id: str, ids: set[str] | None) -> list[tuple[str, str]]:
    """Return date and time of the page sections made by compressions that covered any of these messages, or all."""
    times: list[tuple[str, str]] = []
    touched = None
    if ids is not None:
        stored = keeper.ledger.read_edits(session_id, active_only=False)
        covering = [one.edit.id for one in stored if not ids.isdisjoint(one.edit.covers)]
        gone = set(with_descendants(stored, covering))
        touched = {one.created_at for one in stored if one.edit.id in gone}
    for event in read_all_events(keeper.ledger, session_id):
        memory = event.fields.get("memory")
        if event.kind != "compressed" or not isinstance(memory, dict):
            continue
        if touched is None or event.created_at in touched:
            times.append((str(memory.get("date", "")), str(memory.get("time", ""))))
    return times


def _erase_sections(session_id: str, pages: MarkdownSync, entries: Sequence[tuple[str, str]]) -> tuple[int, list[str]]:
    removed = 0
    problems: list[str] = []
    for date, time in entries:
        try:
            removed += pages.remove_sections(
                date,
                lambda section, time=time: is_section_of(section, session_id, time),  # type: ignore[misc]
            )
        except (LedgerError, OSError) as error:
            problems.append(f"the page of {date} still has the summary of {time}: {error}")
    return removed, problems
