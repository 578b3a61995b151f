"""What one more request of a session brings, in one transaction: messages, usage, settings; or nothing of it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from refold.conversation.message import digest_of
from refold.ledger.align import chain_path, chain_tail
from refold.ledger.port import Ledger
from refold.ledger.records import Extension, StoredUsage
from refold.ledger.sqlite import SqliteLedger
from tests.contract.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send, store


@pytest.fixture
def quick(ledger: Ledger) -> SqliteLedger:
    if not hasattr(ledger, "extend"):
        pytest.skip("this store has no quick way: it is asked from threads only")
    assert isinstance(ledger, SqliteLedger)
    return ledger


def make_extension(ledger: Ledger, *new: str, session: str = SESSION, **fields: object) -> Extension:
    """New messages after all that is on the path."""
    path = ledger.read_path(session)
    chained = chain_path(path, [*path.digests, *(digest_of(text.encode()) for text in new)])
    texts = [*read_texts(ledger, session), *new]
    row = ledger.read_session(session)
    assert row is not None
    return Extension(row, store(chained, texts), NOW + 1, **fields)  # type: ignore[arg-type]


def test_messages_usage_and_settings_are_stored_together(quick: SqliteLedger) -> None:
    send(quick, ["a", "bb"])
    quick.update_session(SESSION, {"settings": {"kept": 1, "gone": 2}}, NOW)
    usage = StoredUsage(NOW, "m", 7, 3)
    wanted = make_extension(quick, "ccc", "d", usages=[usage], settings={"gone": None, "new": [3]})
    rows = quick.extend([wanted])
    assert rows == [quick.read_session(SESSION)]
    assert rows[0] is not None
    assert (rows[0].messages, rows[0].tokens, rows[0].settings) == (4, 7, {"kept": 1, "new": [3]})
    assert rows[0].path_version == wanted.seen.path_version + 1
    assert read_texts(quick) == ["a", "bb", "ccc", "d"]
    assert quick.read_usage(SESSION) == [usage]
    assert is_sound(quick)


def test_several_sessions_go_into_one_transaction_and_one_that_changed_stops_no_other(quick: SqliteLedger) -> None:
    for name in ("one", "two", "three"):
        send(quick, ["a"], session=name)
    wanted = [make_extension(quick, f"b of {name}", session=name) for name in ("one", "two", "three")]
    send(quick, ["a", "somebody else"], session="two")
    rows = quick.extend(wanted)
    assert rows is not None
    assert [row is not None for row in rows] == [True, False, True]
    assert read_texts(quick, "two") == ["a", "somebody else"]
    assert read_texts(quick, "three") == ["a", "b of three"]
    assert is_sound(quick)


def test_a_session_goes_on_twice_in_one_transaction(quick: SqliteLedger) -> None:
    send(quick, ["a"])
    first = make_extension(quick, "b")
    link = chain_tail(first.messages[-1].id, [digest_of(b"c")])[0]
    message = replace(first.messages[0], id=link.id, parent=link.parent, digest=digest_of(b"c"))
    second = Extension(replace(first.seen, path_version=first.seen.path_version + 1), [message], NOW)
    rows = quick.extend([first, second])
    assert rows is not None
    assert all(rows)
    assert len(quick.read_path(SESSION).ids) == 3
    assert is_sound(quick)


@pytest.mark.parametrize("change", ["edit", "model", "delete"])
def test_a_session_that_is_not_as_it_was_seen_is_left_alone(quick: SqliteLedger, change: str) -> None:
    ids = send(quick, ["a", "b", "c"])
    wanted = make_extension(quick, "d", usages=[StoredUsage(NOW)])
    if change == "edit":
        assert commit(quick, make_fold(ids[:2]))
    elif change == "model":
        quick.update_session(SESSION, {"model": "other"}, NOW)
    else:
        quick.delete_session(SESSION)
    assert quick.extend([wanted]) == [None]
    assert quick.read_usage(SESSION) == []
    assert len(quick.read_path(SESSION).ids) == (0 if change == "delete" else 3)
    assert is_sound(quick)


def test_a_path_that_was_cut_back_goes_on_with_what_it_had_before(quick: SqliteLedger) -> None:
    send(quick, ["a", "b", "c"])
    send(quick, ["a"])
    rows = quick.extend([make_extension(quick, "x")])
    assert rows is not None
    assert rows[0] is not None
    send(quick, ["a"])
    rows = quick.extend([make_extension(quick, "b", "c", "d")])
    assert rows == [quick.read_session(SESSION)]
    assert read_texts(quick) == ["a", "b", "c", "d"]
    assert len(quick.list_messages(SESSION)) == 5
    assert is_sound(quick)


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
        if quick._file._mover is not None:
            break
    mover = quick._file._mover
    assert mover is not None
    mover.join(60)
    assert not mover.is_alive()
    assert is_sound(quick)


def test_sessions_are_listed_by_how_their_ids_begin(ledger: Ledger) -> None:
    for at, name in enumerate(["@a/1", "@a/2", "@ab/1", "@a", "b", "@a/é", "@A/1"]):
        send(ledger, ["x"], session=name, now=NOW + at)
    assert [row.id for row in ledger.list_sessions(prefix="@a/")] == ["@a/é", "@a/2", "@a/1"]
    assert [row.id for row in ledger.list_sessions(prefix="@a/", limit=1, offset=1)] == ["@a/2"]
    assert ledger.list_sessions(prefix="@c/") == []
    with pytest.raises(ValueError, match="prefix"):
        ledger.list_sessions(prefix="会")
