"""Export and import: a session survives the way from any store to any other byte for byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import CompressionConfig, ContextCompressionManager
from refold.errors import FormatError
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from refold.manager.status import export_session, import_session
from tests.contract.conftest import STORES, OpenLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_batch, make_fold, make_mask, send
from tests.rigs.transfers import FOLDING, OFFLOADING, export_bytes, handle_of, make_session, open_manager

KINDS = {"folding": FOLDING, "offloading": OFFLOADING}
LATER = 2_000_000_000.0


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Ledger]:
    """Another ledger, in a file."""
    ledger = SqliteLedger(tmp_path / "elsewhere.db")
    yield ledger
    ledger.close()


def show(manager: ContextCompressionManager) -> list[object]:
    return [item.raw for item in manager.read_view(SESSION)]


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_a_session_with_all_that_one_can_have_comes_back_byte_for_byte(
    ledger: Ledger, elsewhere: Ledger, tmp_path: Path, config: CompressionConfig
) -> None:
    manager = make_session(tmp_path / "one", ledger, SESSION, config)
    out = export_bytes(ledger, SESSION)
    told = json.loads(out)
    assert {one["is_active"] for one in told["edits"]} == {True, False}
    assert any(one["raw"] is None for one in told["messages"])
    assert {event["kind"] for event in told["events"]} >= {"compressed", "undone", "redone", "forgotten", "tuned"}
    assert len(told["usage"]) == 12
    assert len(told["messages"]) == len(told["path"]) + 1
    assert told["settings"]["pinned"]
    assert import_session(elsewhere, told, now=LATER) == SESSION
    assert export_bytes(elsewhere, SESSION) == out
    assert is_sound(elsewhere)
    ledger.delete_session(SESSION)
    import_session(ledger, json.loads(export_bytes(elsewhere, SESSION)), now=LATER)
    assert export_bytes(ledger, SESSION) == out
    assert is_sound(ledger)
    manager.close()


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_an_imported_session_shows_the_same_and_continues_in_the_same_way(
    ledger: Ledger, elsewhere: Ledger, tmp_path: Path, config: CompressionConfig
) -> None:
    one = make_session(tmp_path / "one", ledger, SESSION, config)
    import_session(elsewhere, export_session(ledger, SESSION), now=LATER)
    other = open_manager(tmp_path / "other", elsewhere, config)
    other.verify(SESSION, repair=True)
    assert other.verify() == []
    assert show(one) == show(other)
    assert one.undo(SESSION).edits == other.undo(SESSION).edits
    assert show(one) == show(other)
    assert one.redo(SESSION).edits == other.redo(SESSION).edits
    assert show(one) == show(other)
    assert other.verify() == []
    one.close()
    other.close()


def test_a_session_of_another_name_has_its_files_in_its_own_folder(
    ledger: Ledger, elsewhere: Ledger, tmp_path: Path
) -> None:
    one = make_session(tmp_path / "one", ledger, "s/1", OFFLOADING)
    name = import_session(elsewhere, export_session(ledger, "s/1"), now=LATER, session_id="../copy", root="kept/files")
    config = OFFLOADING.replace(offload={"folder": "kept/files"})
    other = open_manager(tmp_path / "other", elsewhere, config)
    other.verify(name, repair=True)
    assert other.verify() == []
    files = sorted(path.name for path in (tmp_path / "other" / "kept/files").rglob("*.txt"))
    assert files == sorted(path.name for path in (tmp_path / "one" / "offloaded").rglob("*.txt"))
    assert files
    other.undo(name)
    other.redo(name)
    assert other.verify() == []
    # And back again under its first name.
    ledger.delete_session("s/1")
    out = export_bytes(elsewhere, name)
    import_session(ledger, json.loads(out), now=LATER, session_id="s/1")
    elsewhere.delete_session(name)
    import_session(elsewhere, export_session(ledger, "s/1"), now=LATER, session_id=name, root="kept/files")
    back, first = (sorted(json.loads(content)["edits"], key=str) for content in (export_bytes(elsewhere, name), out))
    assert [one["edit"]["text"] for one in back] == [one["edit"]["text"] for one in first]
    one.close()
    other.close()


def test_from_file_to_server_to_file(tmp_path: Path) -> None:
    made, server, back = (STORES[kind](tmp_path / f"{at}") for at, kind in enumerate(("sqlite", "postgres", "sqlite")))
    for folder in ("0", "2"):
        (tmp_path / folder).mkdir()
    make_session(tmp_path / "workspace", made, SESSION, FOLDING)
    out = export_bytes(made, SESSION)
    for ledger in (server, back):
        import_session(ledger, json.loads(out), now=LATER)
        assert export_bytes(ledger, SESSION) == out
        assert is_sound(ledger)
    for ledger in (made, server, back):
        ledger.close()


def test_a_name_that_is_taken_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    manager = open_manager(tmp_path, ledger, FOLDING)
    manager.append(SESSION, [{"role": "user", "content": text} for text in "abc"])
    before, told = export_bytes(ledger, SESSION), export_session(ledger, SESSION)
    whole = ledger.read_whole(SESSION)
    assert whole is not None
    with pytest.raises(FormatError, match="session 's1' already exists"):
        import_session(ledger, {**told, "events": []}, now=LATER)
    assert not ledger.put_whole(whole, LATER)
    assert export_bytes(ledger, SESSION) == before
    assert ledger.read_whole("nobody") is None
    manager.close()


def test_what_is_stored_again_is_what_was_read(ledger: Ledger, elsewhere: Ledger) -> None:
    ids = send(ledger, list("abcdef"))
    send(ledger, ["a", "b", "x"])
    assert ledger.commit(SESSION, make_batch(make_fold(ids[:2])), now=NOW)
    ledger.forget(SESSION, [ids[3]], NOW)
    whole = ledger.read_whole(SESSION)
    assert whole is not None
    assert elsewhere.put_whole(whole, whole.row.updated_at)
    again = elsewhere.read_whole(SESSION)
    assert again is not None
    assert again.row == whole.row
    assert (again.messages, again.path, again.edits) == (whole.messages, whole.path, whole.edits)
    assert (again.batches, again.facts, again.usages) == (whole.batches, whole.facts, whole.usages)
    assert [(one.kind, one.fields) for one in again.events] == [(one.kind, one.fields) for one in whole.events]
    assert is_sound(elsewhere)


def test_a_session_exported_without_facts_and_events_is_still_imported(ledger: Ledger, tmp_path: Path) -> None:
    manager = make_session(tmp_path / "one", ledger, SESSION, FOLDING)
    told = export_session(ledger, SESSION)
    old = {key: value for key, value in told.items() if key not in ("facts", "events", "usage")} | {"refold_session": 1}
    assert import_session(ledger, old, now=LATER, session_id="copy") == "copy"
    new = export_session(ledger, "copy")
    assert (new["messages"], new["path"], new["edits"]) == (told["messages"], told["path"], told["edits"])
    assert manager.expand("copy", handle_of(ledger, "copy", 2)) == manager.expand(
        SESSION, handle_of(ledger, SESSION, 2)
    )
    assert is_sound(ledger)
    manager.close()


def test_an_export_is_of_one_moment_while_others_write(open_ledger: OpenLedger) -> None:
    one, other = open_ledger(), open_ledger()
    texts = [f"message {number}" for number in range(60)]
    send(one, texts[:2])
    stops = threading.Event()

    def write() -> None:
        for count in range(3, len(texts)):
            ids = send(other, texts[:count])
            commit(other, make_mask(ids[-1]), name=f"b{count}")
        stops.set()

    writer = threading.Thread(target=write)
    writer.start()
    exports = []
    while not stops.is_set() and len(exports) < 200:
        exports.append(json.loads(export_bytes(one, SESSION)))
    writer.join(60)
    for told in exports:
        assert len(told["messages"]) == len(told["path"])
        assert len(told["edits"]) == len(told["batches"]) == len(told["events"])
        assert len(told["path"]) - 2 - len(told["edits"]) in (0, 1)
    assert is_sound(one)
