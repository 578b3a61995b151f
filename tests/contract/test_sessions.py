"""Sessions: named by any text, listed, set up, erased."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from refold.errors import FormatError, SessionNotFound
from refold.ledger.records import Event, SessionRow, StoredUsage
from refold.ledger.sql.ledger import Ledger
from tests.contract.conftest import OpenLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, make_mask, read_texts, send

ODD_NAMES = [
    "../../etc/passwd", "a:b", "C:\\x", " ", "会话一", "a\0b", "'; DROP TABLE session; --", "\ud800", "🙂", "x" * 256,
    "%", "A", "a", "é", "e\u0301",
]  # fmt: skip


def test_any_text_names_a_session_and_no_two_texts_the_same(ledger: Ledger) -> None:
    for number, name in enumerate(ODD_NAMES):
        send(ledger, [f"text {number}"], session=name)
    assert [read_texts(ledger, name) for name in ODD_NAMES] == [[f"text {number}"] for number in range(len(ODD_NAMES))]
    assert {row.id for row in ledger.list_sessions()} == set(ODD_NAMES)
    assert is_sound(ledger)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_session_id_that_is_empty_or_too_long_is_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(FormatError, match="1 to 256 characters"):
        ledger.open_session(name, NOW)


def test_a_session_that_is_not_there_reads_as_nothing(ledger: Ledger) -> None:
    assert ledger.read_session("no") is None
    assert ledger.read_path("no").ids == ()
    assert ledger.read_messages("no") == ledger.read_messages("no", ["00" * 16]) == []
    assert ledger.list_messages("no") == ledger.find_messages("no", "00") == []
    assert ledger.read_edits("no") == ledger.read_batches("no") == []
    assert ledger.read_events("no") == ledger.read_events(None) == []
    assert ledger.read_facts("no") == ledger.read_facts(None) == ledger.read_usage("no") == []
    assert ledger.list_sessions() == []
    assert ledger.delete_session("no") is False
    assert ledger.verify() == ledger.verify("no") == []
    ledger.release_lease("no", "me")


def test_changing_a_session_that_is_not_there_is_an_error_that_names_it(ledger: Ledger) -> None:
    ledger.open_session("other", NOW)
    attempts = [
        lambda: ledger.append("gone", [], [], version=0, now=NOW),
        lambda: ledger.update_session("gone", {"model": "m"}, NOW),
        lambda: ledger.add_event("gone", Event("x", NOW)),
        lambda: ledger.add_usage("gone", StoredUsage(NOW)),
        lambda: ledger.acquire_lease("gone", "me", seconds=1, now=NOW),
        lambda: ledger.switch_edits("gone", [], on=True, now=NOW, event=Event("x", NOW)),
        lambda: ledger.forget("gone", [], NOW),
        lambda: commit(ledger, make_mask("00" * 16), session="gone"),
    ]
    for attempt in attempts:
        with pytest.raises(SessionNotFound, match="gone"):
            attempt()


def test_opening_a_session_twice_changes_nothing(ledger: Ledger) -> None:
    first = ledger.open_session(SESSION, NOW)
    assert first == SessionRow(SESSION, NOW, NOW)
    assert ledger.open_session(SESSION, NOW + 5) == first == ledger.read_session(SESSION)


def test_the_last_changed_session_is_listed_first(ledger: Ledger) -> None:
    for number, name in enumerate("abc"):
        send(ledger, ["hello"], session=name, now=NOW + number)
    send(ledger, ["hello", "again"], session="a", now=NOW + 9)
    assert [row.id for row in ledger.list_sessions()] == ["a", "c", "b"]
    assert [row.id for row in ledger.list_sessions(limit=1, offset=1)] == ["c"]


def test_sessions_are_found_by_what_their_settings_hold(ledger: Ledger) -> None:
    for name in "abc":
        ledger.open_session(name, NOW)
        ledger.update_session(name, {"settings": {"at": f"place-{name}", "quote": 'a "b" é'}}, NOW + ord(name))
    assert [row.id for row in ledger.list_sessions(holding=b'"place-b"')] == ["b"]
    assert [row.id for row in ledger.list_sessions(holding="é".encode())] == ["c", "b", "a"]
    assert [row.id for row in ledger.list_sessions(holding=b"place", prefix="a")] == ["a"]
    assert ledger.list_sessions(holding=b'"place-b"', limit=1) == []
    assert ledger.list_sessions(holding=b"%") == []


def test_changes_of_one_setting_at_the_same_time_are_all_made(open_ledger: OpenLedger) -> None:
    ledgers = [open_ledger(), open_ledger()]
    ledgers[0].open_session(SESSION, NOW)

    def add(number: int) -> bool:
        return ledgers[number % 2].change_setting(SESSION, "n", lambda before: [*(before or []), number], NOW)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(add, range(24)))
    row = ledgers[0].read_session(SESSION)
    assert row is not None
    assert sorted(row.settings["n"]) == list(range(24))
    assert not ledgers[0].change_setting("no", "n", str, NOW)


def test_settings_are_merged_key_by_key_and_none_takes_one_away(ledger: Ledger) -> None:
    ledger.open_session(SESSION, NOW)
    ledger.update_session(SESSION, {"wire": "anthropic", "model": "claude", "settings": {"auto": "off", "n": 1}}, NOW)
    ledger.update_session(SESSION, {"settings": {"n": None, "名": ["\ud800", 2**70]}}, NOW + 1)
    row = ledger.read_session(SESSION)
    assert row is not None
    assert (row.wire, row.model, row.updated_at) == ("anthropic", "claude", NOW + 1)
    assert row.settings == {"auto": "off", "名": ["\ud800", 2**70]}
    with pytest.raises(ValueError, match="tokens"):
        ledger.update_session(SESSION, {"tokens": 1}, NOW)


def test_a_deleted_session_leaves_no_trace_and_others_stay(ledger: Ledger) -> None:
    for name in ("gone", "kept"):
        ids = send(ledger, ["a", "b", "c"], session=name)
        assert commit(ledger, make_fold(ids[:2]), make_mask(ids[2]), session=name)
        ledger.add_usage(name, StoredUsage(NOW))
        assert ledger.acquire_lease(name, "me", seconds=9, now=NOW)
    assert ledger.delete_session("gone") is True
    assert ledger.read_session("gone") is None
    assert [row.id for row in ledger.list_sessions()] == ["kept"]
    assert {event.session_id for event in ledger.read_events(None)} == {"kept"}
    assert {fact.session_id for fact in ledger.read_facts(None)} <= {"kept"}
    assert read_texts(ledger, "kept") == ["a", "b", "c"]
    assert is_sound(ledger)
    assert send(ledger, ["a"], session="gone")
    assert ledger.read_edits("gone", active_only=False) == ledger.read_usage("gone") == []
    assert ledger.acquire_lease("gone", "you", seconds=9, now=NOW)


def test_a_test_write_leaves_no_trace(ledger: Ledger) -> None:
    ledger.check_write()
    send(ledger, ["hello"])
    before = ledger.read_session(SESSION)
    ledger.check_write()
    ledger.check_write()
    assert ledger.read_session(SESSION) == before
    assert ledger.verify() == []


def test_the_bytes_of_sessions_are_measured_by_how_their_ids_begin(ledger: Ledger) -> None:
    assert ledger.measure() == 0
    send(ledger, ["hello" * 100], session="@a/1")
    send(ledger, ["hello" * 100, "more" * 100], session="@a/2")
    send(ledger, ["hello" * 100], session="@b/1")
    one = ledger.measure("@b/")
    assert one > 500
    assert ledger.measure("@a/") > 2 * one
    assert ledger.measure() == ledger.measure("@a/") + one
    assert ledger.measure("@c/") == 0
