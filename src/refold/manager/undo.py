"""Undo, redo and pin; erasing for good; verifying what is stored.

Edits are switched off and on, never changed (L7). ``forget`` is the only operation that erases: the ledger, offloaded
files, memory pages and summaries lose the words, and the messages keep their shape.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from refold.conversation.message import Message
from refold.conversation.reason import NO_REASON
from refold.conversation.turn import find_units
from refold.conversation.view import Edit, Item, Lens, View
from refold.errors import ConfigError, HandleUnknown, LedgerError
from refold.formats import digest_message
from refold.ledger.place import find_file, find_place
from refold.ledger.records import Event, Finding, SessionRow, StoredBatch, StoredEdit, add_descendants
from refold.ledger.salvage import Salvaged, salvage
from refold.ledger.sql.forget import GONE, Words
from refold.ledger.sql.ledger import Ledger, list_all_sessions, read_all_events
from refold.manager.notices import Notice
from refold.manager.session import OpenSession, parse_stored
from refold.manager.session_state import RESPONSES, SessionState
from refold.manager.store import Keeper
from refold.memory import MarkdownSync, is_section_of
from refold.recall.originals import find_handle
from refold.stages.offload import OffloadFile, files_of, offloaded_path

REDO_MAX = 50
# Settings that hold sentences: why compressions stopped, what forces the next one, the session's title.
_SENTENCES = ("brake", "forced", "title")


# The edits to switch, and the groups of edits that can be redone afterwards.
Choice = tuple[tuple[str, ...], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Switched:
    """The result of an undo or redo: the edits by id, and the view's tokens before and after."""

    edits: tuple[str, ...]
    tokens_before: int = 0
    tokens_after: int = 0


def _choose_undo(ledger: Ledger, session: OpenSession, edit_id: str | None) -> Choice:
    """Choose the last compression, or an edit or batch by its id, with all edits made from them."""
    stored = ledger.read_edits(session.id)
    batches = [batch for batch in ledger.read_batches(session.id) if batch.is_active]
    if edit_id is None and not batches:
        raise HandleUnknown("there is no compression of {session!r} to undo", session=session.id)
    chosen = batches[-1].edits if edit_id is None else _find_named(session.id, stored, batches, edit_id)
    ids = with_descendants(stored, chosen)
    return ids, [*map(list, session.state.redo), list(ids)][-REDO_MAX:]


def with_descendants(stored: Sequence[StoredEdit], chosen: Sequence[str]) -> tuple[str, ...]:
    """Return these edits and all that were made from them, in the order they were made."""
    gone = add_descendants(chosen, {one.edit.id: one.edit.made_from for one in stored})
    return tuple(one.edit.id for one in stored if one.edit.id in gone)


def _find_named(
    session_id: str, stored: Sequence[StoredEdit], batches: Sequence[StoredBatch], name: str
) -> Sequence[str]:
    wanted = name.strip().lower()
    found = [one.edit.id for one in stored if wanted and one.edit.id.startswith(wanted)]
    folds = [one.edit.id for one in stored if one.edit.fold and one.edit.fold.handle == wanted.strip("⟨⟩")]
    choices: list[Sequence[str]] = [[one] for one in found + folds]
    choices += [batch.edits for batch in batches if wanted and batch.id.startswith(wanted)]
    if not choices:
        raise HandleUnknown(
            "{session!r} has no edit {name!r} in force; 'refold show --edits' lists all of them",
            session=session_id,
            name=name[:40],
        )
    if len(choices) > 1:
        raise HandleUnknown("{name!r} matches {count} edits; give more of the id", name=name[:40], count=len(choices))
    return choices[0]


def _choose_redo(ledger: Ledger, session: OpenSession, edit_id: str | None) -> Choice:
    """Choose the last undo, or the group of one undone edit with all groups that it was made from."""
    groups = session.state.redo
    if not groups:
        raise HandleUnknown("nothing of {session!r} can be redone: the last change was not an undo", session=session.id)
    wanted = (edit_id or "").strip().lower()
    chosen = {at for at, group in enumerate(groups) if wanted and any(one.startswith(wanted) for one in group)}
    if edit_id is None:
        chosen = {len(groups) - 1}
    elif not chosen:
        raise HandleUnknown("no undone edit is called {edit_id!r}, or a compression followed", edit_id=edit_id[:40])
    made_from = {edit.edit.id: edit.edit.made_from for edit in ledger.read_edits(session.id, active_only=False)}
    more = chosen if edit_id is not None else set()
    while more:
        needed = {source for at in more for one in groups[at] for source in made_from.get(one, ())}
        more = {at for at, group in enumerate(groups) if not needed.isdisjoint(group)} - chosen
        chosen |= more
    ids = tuple(dict.fromkeys(one for at in sorted(chosen) for one in groups[at]))
    return ids, [list(group) for at, group in enumerate(groups) if at not in chosen]


def switch(keeper: Keeper, session_id: str, edit_id: str | None, *, on: bool) -> Switched:
    """Undo the last compression or one edit by its id; redo the last undo or one undone edit with ``on``."""
    keeper.need_row(session_id)
    with keeper.sessions.held(session_id) as session, keeper.leases.held(session_id):
        keeper.open(session)
        ids, groups = (_choose_redo if on else _choose_undo)(keeper.ledger, session, edit_id)
        now, before = keeper.clock(), session.item_tokens + session.fixed_tokens
        kind, fields = "redone" if on else "undone", {"edits": list(ids)}
        stored = keeper.ledger.read_edits(session_id, active_only=False)
        shown = [one.edit for one in stored if (on if one.edit.id in ids else one.is_active)]
        named = _write_named(keeper, session, shown)
        event = Event(kind, now, {**fields, "tokens_before": before})
        keeper.ledger.switch_edits(session_id, ids, on=on, now=now, event=event)
        keeper.ledger.update_session(session_id, {"settings": {"redo": groups or None}}, now)
        session.drop()
        after = keeper.open(session).item_tokens + session.fixed_tokens
        keeper.complain(session_id, _remove_others(keeper, session_id, named))
        keeper.tell(Notice(kind, session_id, NO_REASON, before, after, now, fields=fields), is_logged=False)
        return Switched(ids, before, after)


def _find_files(view: View) -> list[OffloadFile]:
    """Return the files that a view names, with the content they must have."""
    shown = [edit for item in view.items for edit in item.edits if offloaded_path(edit)]
    return files_of(shown, view.messages)


def _write_named(keeper: Keeper, session: OpenSession, edits: Sequence[Edit]) -> set[str]:
    """Write the files that the session's view would name under these edits; return their paths."""
    if not any(offloaded_path(edit) for edit in edits):
        return set()
    files = _find_files(session.make_view(keeper.ledger, edits=edits))
    keeper.find_folder(session.id).write(files)
    return {file.path for file in files}


def _remove_others(keeper: Keeper, session_id: str, named: Collection[str]) -> list[str]:
    """Remove the session's files that nothing names; return a warning for each that remains."""
    folder = keeper.find_folder(session_id)
    return folder.remove(path for path in folder.list_files() if path not in named)[1]


def pin(keeper: Keeper, session_id: str, handle: str, *, on: bool) -> tuple[str, ...]:
    """Pin or unpin the messages on the path that a handle names; a pinned message leaves the fold that hides it."""
    row = keeper.need_row(session_id)
    with keeper.sessions.held(session_id) as session:
        keeper.open(session)
        digests = {stored.digest for stored in find_handle(keeper.ledger, row, handle)}
        named = {one for one, digest in zip(session.ids, session.digests, strict=True) if digest in digests}
        if not named:
            raise HandleUnknown(
                "{handle!r} is no longer part of {session_id!r}", handle=handle[:40], session_id=session_id
            )
        pinned = session.state.pinned | named if on else session.state.pinned - named
        kept = [one for one in session.ids if one in pinned]
        keeper.update_settings(session, pinned=kept or None)
        if on and not named.isdisjoint(one for item in session.items if item.is_fold for one in item.edits[0].covers):
            with keeper.leases.held(session_id):
                keeper.open(session)
                _bring_back(keeper, session, named)
        return tuple(kept)


def _bring_back(keeper: Keeper, session: OpenSession, named: set[str]) -> None:
    """Show messages again that folds hide, each with the calls and results it belongs to."""
    view = session.make_view(keeper.ledger)
    units = ([message.id for message in view.messages[unit.start : unit.stop]] for unit in find_units(view.messages))
    wanted = {one for ids in units if not named.isdisjoint(ids) for one in ids}
    whole: list[str] = []
    smaller: list[Edit] = []
    for item in view.items:
        back = [message for message in item.messages if message.id in wanted]
        if not item.is_fold or not back:
            continue
        fold, covers = item.edits[0], tuple(one for one in item.ids if one not in wanted)
        if not covers:
            whole += _trace_back(session, fold.id)
            continue
        tokens = sum(view.lens.plain(one).tokens for one in back)
        smaller.append(
            replace(
                fold,
                covers=covers,
                level=fold.level + 1,
                made_from=(fold.id,),
                tokens_before=fold.tokens_after - tokens,
                tokens_covered=max(0, fold.tokens_covered - tokens),
                id="",
            )
        )
    now, ledger = keeper.clock(), keeper.ledger
    event = Event("pinned", now, {"messages": sorted(wanted), "edits": whole})
    if smaller:
        ledger.append(
            session.id, (), (), version=session.path_version, now=now, arrival=tuple(smaller), events=(event,)
        )
    if whole:
        ledger.switch_edits(session.id, whole, on=False, now=now, event=event)
    session.drop()


def _trace_back(session: OpenSession, edit_id: str) -> list[str]:
    """Return the ids of an edit and of all that it was made from."""
    made_from = {edit.id: edit.made_from for edit in session.edits}
    found = [edit_id]
    for one in found:
        found += [source for source in made_from.get(one, ()) if source not in found]
    return found


def read_view(keeper: Keeper, session_id: str) -> list[Item]:
    """Return the items of a session's view, without their originals."""
    keeper.need_row(session_id)
    with keeper.sessions.held(session_id) as session:
        return list(keeper.open(session).items)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Counts of erased messages and sections of daily pages; ``warnings`` name what could not be erased."""

    messages: int
    sections: int = 0
    warnings: tuple[str, ...] = ()


def forget(keeper: Keeper, session_id: str, handle: str | None, pages: MarkdownSync) -> Forgotten:
    """Erase the messages behind a handle, or a whole session."""
    row = keeper.need_row(session_id)
    if handle is None:
        sections, warnings = _erase_sections(session_id, pages, _list_entries(keeper, session_id, None))
        delete(keeper, session_id)
        return Forgotten(row.messages, sections, (*warnings, *_find_unreadable(keeper.workspace)))
    with keeper.sessions.held(session_id) as session, keeper.leases.held(session_id):
        named = find_handle(keeper.ledger, row, handle)
        # Every message with the content of one of these: leaked text may be in several places.
        same = [message for each in named for message in keeper.ledger.find_messages(row.id, each.digest, limit=10_000)]
        stored = list({one.id: one for one in same}.values())
        ids, lens = [one.id for one in stored], keeper.make_lens(row)
        stubs = {one.id: _strip(parse_stored(one, row, lens), lens) for one in stored if not one.is_forgotten}
        entries = _list_entries(keeper, session_id, set(ids))
        now = keeper.clock()
        merged = {**SessionState.read(row.settings).stubs, **stubs}
        scrubbed = _scrub_settings(row, Words(one.raw or None for one in stored))
        changes = {"forgotten": merged, RESPONSES: None, **scrubbed}
        keeper.ledger.update_session(session_id, {"settings": changes}, now)
        count = keeper.ledger.forget(session_id, ids, now)
        session.drop()
        keeper.open(session)
        warnings = _remove_others(keeper, session_id, _write_named(keeper, session, session.edits))
        keeper.find_folder(session_id).remove_leftovers()
        sections, problems = _erase_sections(session_id, pages, entries)
        return Forgotten(count, sections, (*warnings, *problems, *_find_unreadable(keeper.workspace)))


def delete(keeper: Keeper, session_id: str) -> bool:
    """Erase a session from the ledger, with its folder of files."""
    with keeper.sessions.held(session_id) as session:
        is_gone = keeper.ledger.delete_session(session_id)
        keeper.find_folder(session_id).remove_all()
        session.drop()
        session.sent = None
        return is_gone


def verify(keeper: Keeper, session_id: str | None, *, repair: bool) -> list[Finding]:
    """Return the inconsistencies in the ledger and in offloaded files; ``repair`` rebuilds derived data."""
    findings = keeper.ledger.verify(session_id, repair=repair, digest=_digest)
    rows = list_all_sessions(keeper.ledger) if session_id is None else [keeper.ledger.read_session(session_id)]
    return findings + [file for row in rows if row for file in _verify_files(keeper, row, repair=repair)]


def salvage_ledger(keeper: Keeper) -> Salvaged:
    """Copy the readable part of a damaged ledger file into a new one beside it."""
    place = find_place(keeper.ledger, keeper.config.ledger)
    if place is not None and place.kind != "file":
        raise ConfigError("only a ledger in a file can be salvaged; restore the server's database from a backup")
    keeper.ledger.close()
    path = find_file(keeper.workspace, place)
    when = datetime.fromtimestamp(keeper.clock(), UTC)
    target = path.with_name(f"{path.stem}.salvaged-{when:%Y%m%d-%H%M%S}{path.suffix}")
    return salvage(path, target, _digest, keeper.clock())


def _verify_files(keeper: Keeper, row: SessionRow, *, repair: bool) -> list[Finding]:
    if not any(edit.edit.stage == "offload" for edit in keeper.ledger.read_edits(row.id)):
        return []
    with keeper.sessions.held(row.id) as session:
        try:
            if not _find_wrong(keeper, session):
                return []
        except LedgerError as error:
            return [Finding(row.id, f"the view cannot be computed: {error}", is_derived=False)]
        # Another process may be changing the view and its files right now. Under the lease none can.
        with keeper.leases.held(row.id):
            wrong = _find_wrong(keeper, session)
            if repair and wrong:
                keeper.find_folder(row.id).write(wrong)
        return [
            Finding(row.id, f"the view names {file.path}, which is missing or not what was offloaded", is_derived=True)
            for file in wrong
        ]


def _find_wrong(keeper: Keeper, session: OpenSession) -> list[OffloadFile]:
    """Return the files named by the current view whose content is missing or wrong, with the right content."""
    row = keeper.ledger.read_session(session.id)
    if row is None:
        return []
    keeper.open(session, row)
    folder = keeper.find_folder(session.id)
    return [file for file in _find_files(session.make_view(keeper.ledger)) if folder.read(file.path) != file.text]


def _digest(raw: object) -> str:
    if not isinstance(raw, dict):
        raise LedgerError("a stored message is not a JSON object")
    return digest_message(raw)


def _strip(message: Message, lens: Lens) -> object:
    """Return the stub that replaces a message: its shape without its words."""
    left = {"text": GONE, "result": GONE, "call": '{"forgotten": true}'}
    raw = lens.format.render(message, {at: left.get(part.kind) for at, part in enumerate(message.parts)})
    if not isinstance(raw, dict):
        return lens.format.write_summary(GONE, message.role)
    # Fields that are not part of any block could hold anything.
    known = {"role", "content", "type", "tool_calls", "tool_call_id", "name", "call_id", "arguments", "output", "id"}
    return {key: value for key, value in raw.items() if key in known}


def _find_unreadable(workspace: Path) -> list[str]:
    """Return a warning for each file that was set aside as unreadable: its content is unknown."""
    found = sorted((workspace / ".compression").glob("*.unreadable"))
    return [f"{path} is damaged and may contain forgotten text: check it, or delete it" for path in found]


def _scrub_settings(row: SessionRow, words: Words) -> dict[str, object]:
    """Return the changed settings among those that hold sentences."""
    held = {name: row.settings.get(name) for name in _SENTENCES}
    changed = {name: words.take_out(value) for name, value in held.items()}
    # A person chose the title: no title is better than a meaningless one.
    return {name: None if value == GONE else value for name, value in changed.items() if value is not held[name]}


def _list_entries(keeper: Keeper, session_id: str, ids: set[str] | None) -> list[tuple[str, str]]:
    """Return date and time of the page sections made by compressions that covered any of these messages, or all."""
    touched = None
    if ids is not None:
        stored = keeper.ledger.read_edits(session_id, active_only=False)
        covering = [one.edit.id for one in stored if not ids.isdisjoint(one.edit.covers)]
        gone = set(with_descendants(stored, covering))
        touched = {one.created_at for one in stored if one.edit.id in gone}
    made = [event for event in read_all_events(keeper.ledger, session_id) if event.kind == "compressed"]
    pages = [event.fields.get("memory") for event in made if touched is None or event.created_at in touched]
    return [(str(page.get("date", "")), str(page.get("time", ""))) for page in pages if isinstance(page, dict)]


def _erase_sections(session_id: str, pages: MarkdownSync, entries: Sequence[tuple[str, str]]) -> tuple[int, list[str]]:
    removed = 0
    problems: list[str] = []
    for date, time in entries:
        try:
            removed += pages.remove_sections(date, partial(is_section_of, session_id=session_id, time=time))
        except (LedgerError, OSError) as error:
            problems.append(f"the page of {date} still has the summary of {time}: {error}")
    return removed, problems
