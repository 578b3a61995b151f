"""One more request of a session, stored in one transaction: messages, usage and settings, or none of them."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from refold.conversation.message import digest_of
from refold.ledger.align import chain_path, chain_tail
from refold.ledger.records import Extension, SessionRow, StoredUsage, extend_row
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from tests.contract.conftest import OpenLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send, store


@pytest.fixture
def quick(ledger: Ledger) -> SqliteLedger:
    if not isinstance(ledger, SqliteLedger):
        pytest.skip("about the file: a server is never asked from an event loop")
    return ledger


def make_extension(ledger: Ledger, *new: str, session: str = SESSION, **fields: object) -> Extension:
    """New messages after all that is on the path."""
    path = ledger.read_path(session)
    chained = chain_path(path, [*path.digests, *(digest_of(text.encode()) for text in new)])
    texts = [*read_texts(ledger, session), *new]
    row = ledger.read_session(session)
    assert row is not None
    return Extension(row, store(chained, texts), NOW + 1, **fields)  # type: ignore[arg-type]


def test_messages_usage_and_settings_are_stored_together(ledger: Ledger) -> None:
    send(ledger, ["a", "bb"])
    ledger.update_session(SESSION, {"settings": {"kept": 1, "gone": 2}}, NOW)
    usage = StoredUsage(NOW, "m", 7, 3)
    wanted = make_extension(ledger, "ccc", "d", usages=[usage], settings={"gone": None, "new": [3]})
    rows = ledger.extend([wanted], may_wait=True)
    assert rows == [ledger.read_session(SESSION)]
    assert rows[0] is not None
    assert (rows[0].messages, rows[0].tokens, rows[0].settings) == (4, 7, {"kept": 1, "new": [3]})
    assert rows[0].path_version == wanted.seen.path_version + 1
    assert read_texts(ledger) == ["a", "bb", "ccc", "d"]
    assert ledger.read_usage(SESSION) == [usage]
    assert is_sound(ledger)


def test_several_sessions_go_into_one_transaction_and_one_that_changed_stops_no_other(ledger: Ledger) -> None:
    for name in ("one", "two", "three"):
        send(ledger, ["a"], session=name)
    wanted = [make_extension(ledger, f"b of {name}", session=name) for name in ("one", "two", "three")]
    send(ledger, ["a", "somebody else"], session="two")
    rows = ledger.extend(wanted, may_wait=True)
    assert rows is not None
    assert [row is not None for row in rows] == [True, False, True]
    assert read_texts(ledger, "two") == ["a", "somebody else"]
    assert read_texts(ledger, "three") == ["a", "b of three"]
    assert is_sound(ledger)


def test_a_session_continues_twice_in_one_transaction(ledger: Ledger) -> None:
    send(ledger, ["a"])
    first = make_extension(ledger, "b")
    link = chain_tail(first.messages[-1].id, [digest_of(b"c")])[0]
    message = replace(first.messages[0], id=link.id, parent=link.parent, digest=digest_of(b"c"))
    second = Extension(replace(first.seen, path_version=first.seen.path_version + 1), [message], NOW)
    rows = ledger.extend([first, second], may_wait=True)
    assert rows is not None
    assert all(rows)
    assert len(ledger.read_path(SESSION).ids) == 3
    assert is_sound(ledger)


@pytest.mark.parametrize("together", [True, False])
def test_what_follows_a_message_that_was_not_stored_is_not_stored_either(ledger: Ledger, *, together: bool) -> None:
    send(ledger, ["a"])
    first = make_extension(ledger, "b")
    link = chain_tail(first.messages[-1].id, [digest_of(b"c")])[0]
    message = replace(first.messages[0], id=link.id, parent=link.parent, digest=digest_of(b"c"))
    second = Extension(extend_row(first.seen, first), [message], NOW, [StoredUsage(NOW)])
    send(ledger, ["a", "somebody else"])  # The session now has the version that the first one would have given it.
    if together:
        assert ledger.extend([first, second], may_wait=True) == [None, None]
    else:
        assert ledger.extend([first], may_wait=True) == [None]
        assert ledger.extend([second], may_wait=True) == [None]
    assert read_texts(ledger) == ["a", "somebody else"]
    assert ledger.read_usage(SESSION) == []
    assert is_sound(ledger)


@pytest.mark.parametrize("change", ["edit", "model", "delete"])
def test_a_session_that_is_not_as_it_was_seen_is_left_alone(ledger: Ledger, change: str) -> None:
    ids = send(ledger, ["a", "b", "c"])
    wanted = make_extension(ledger, "d", usages=[StoredUsage(NOW)])
    if change == "edit":
        assert commit(ledger, make_fold(ids[:2]))
    elif change == "model":
        ledger.update_session(SESSION, {"model": "other"}, NOW)
    else:
        ledger.delete_session(SESSION)
    assert ledger.extend([wanted], may_wait=True) == [None]
    assert ledger.read_usage(SESSION) == []
    assert len(ledger.read_path(SESSION).ids) == (0 if change == "delete" else 3)
    assert is_sound(ledger)


def test_a_path_that_was_cut_back_continues_with_what_it_had_before(ledger: Ledger) -> None:
    send(ledger, ["a", "b", "c"])
    send(ledger, ["a"])
    rows = ledger.extend([make_extension(ledger, "x")], may_wait=True)
    assert rows is not None
    assert rows[0] is not None
    send(ledger, ["a"])
    rows = ledger.extend([make_extension(ledger, "b", "c", "d")], may_wait=True)
    assert rows == [ledger.read_session(SESSION)]
    assert read_texts(ledger) == ["a", "b", "c", "d"]
    assert len(ledger.list_messages(SESSION)) == 5
    assert is_sound(ledger)


def test_sessions_that_simply_continue_and_others_are_stored_together(ledger: Ledger) -> None:
    send(ledger, ["a"], session="plain")
    send(ledger, ["a", "b", "c"], session="cut back")
    send(ledger, ["a"], session="cut back")
    send(ledger, ["a"], session="only usage\udc80\0")
    wanted = [
        make_extension(ledger, "x" * 70_000, "b", session="plain"),
        make_extension(ledger, "b", "new", session="cut back"),
        make_extension(ledger, session="only usage\udc80\0", usages=[StoredUsage(NOW, "m\0\udc80", 5)]),
        make_extension(ledger, "never", session="plain"),
    ]
    rows = ledger.extend(wanted, may_wait=True)
    assert rows is not None
    assert [row is not None for row in rows] == [True, True, True, False]
    assert rows[:3] == [ledger.read_session(one.seen.id) for one in wanted[:3]]
    assert read_texts(ledger, "plain") == ["a", "x" * 70_000, "b"]
    assert read_texts(ledger, "cut back") == ["a", "b", "new"]
    assert ledger.read_usage("only usage\udc80\0") == [StoredUsage(NOW, "m\0\udc80", 5)]
    assert is_sound(ledger)


def test_a_server_is_never_asked_from_an_event_loop_and_a_locked_session_holds_up_no_other(
    ledger: Ledger, open_ledger: OpenLedger
) -> None:
    if isinstance(ledger, SqliteLedger):
        pytest.skip("about the server: a writer has the whole file to itself")
    for name in ("locked", "free"):
        send(ledger, ["a"], session=name)
    wanted = [make_extension(ledger, "b", session=name) for name in ("locked", "free")]
    assert ledger.extend(wanted) is None
    from refold.ledger.postgres import PostgresLedger
    from refold.ledger.postgres_server import WRITE, Connection

    other = open_ledger()
    assert isinstance(other, PostgresLedger)

    def extend_meanwhile(connection: Connection) -> list[SessionRow | None] | None:
        connection.execute("SELECT 1 FROM session WHERE id = 'locked' FOR UPDATE").fetchall()
        return ledger.extend(wanted, may_wait=True)

    rows = other._server.run(extend_meanwhile, WRITE)
    assert rows is not None
    assert [row is not None for row in rows] == [False, True]
    assert read_texts(ledger, "free") == ["a", "b"]
    assert ledger.extend(wanted[:1], may_wait=True) == [ledger.read_session("locked")]
    assert is_sound(ledger)


def test_it_does_not_wait_for_another_writer_unless_it_may(quick: SqliteLedger) -> None:
    send(quick, ["a"])
    wanted = make_extension(quick, "b")
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with quick._file.write():
            is_held.set()
            may_end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait(60)
    try:
        assert quick.extend([wanted]) is None
    finally:
        may_end.set()
    rows = quick.extend([wanted], may_wait=True)
    holder.join()
    assert rows is not None
    assert read_texts(quick) == ["a", "b"]


def test_the_log_is_moved_into_the_file_by_a_thread(quick: SqliteLedger) -> None:
    send(quick, ["a"])
    for number in range(400):
        extension = make_extension(quick, f"{number} " + "x" * 20_000)
        assert quick.extend([extension], may_wait=False) or quick.extend([extension], may_wait=True)
        if quick._file._helper is not None:
            break
    helper = quick._file._helper
    assert helper is not None
    helper.join(60)
    assert not helper.is_alive()
    assert is_sound(quick)


def test_sessions_are_listed_by_how_their_ids_begin(ledger: Ledger) -> None:
    for at, name in enumerate(["@a/1", "@a/2", "@ab/1", "@a", "b", "@a/é", "@A/1"]):
        send(ledger, ["x"], session=name, now=NOW + at)
    assert [row.id for row in ledger.list_sessions(prefix="@a/")] == ["@a/é", "@a/2", "@a/1"]
    assert [row.id for row in ledger.list_sessions(prefix="@a/", limit=1, offset=1)] == ["@a/2"]
    assert ledger.list_sessions(prefix="@c/") == []
    with pytest.raises(ValueError, match="prefix"):
        ledger.list_sessions(prefix="会")
