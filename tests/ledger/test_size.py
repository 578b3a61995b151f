"""A session costs what it holds itself: other sessions in the same file do not count.

Counted in pages of the database that are looked at, which do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from refold.conversation.message import ROOT, digest_of
from refold.ledger.align import chain_tail
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import NOW, SESSION, commit, make_fold, send

AT_ONCE = 10_000


def fill(ledger: SqliteLedger, sessions: int, messages: int) -> None:
    """Store many messages in other sessions."""
    digests = [digest_of(f"filler {number}".encode()) for number in range(messages)]
    links = chain_tail(ROOT, digests)
    stored = [StoredMessage(link.id, link.parent, digests[link.at], "user", b'{"a":1}', 1, NOW) for link in links]
    for session in range(sessions):
        version = ledger.open_session(f"other {session}", NOW).path_version
        for at in range(0, messages, AT_ONCE):
            piece = stored[at : at + AT_ONCE]
            splices = [Splice(at, at, tuple(message.id for message in piece))]
            version = ledger.append(f"other {session}", piece, splices, version=version, now=NOW) or 0


def count_pages(ledger: SqliteLedger, call: Callable[[], object]) -> int:
    """Pages looked at by a call."""
    with ledger._file._use() as db:
        kinds = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        for kind in kinds:
            db.status(kind, True)
    call()
    with ledger._file._use() as db:
        return sum(db.status(kind)[0] for kind in kinds)


def measure(file: Path) -> dict[str, int]:
    ledger = SqliteLedger(file)
    texts = [f"message {number}" for number in range(20)]
    ids = send(ledger, texts)
    commit(ledger, make_fold(ids[:5]))
    ledger.close()
    ledger.read_session(SESSION)
    return {
        "open": count_pages(ledger, lambda: ledger.open_session(SESSION, NOW)),
        "path": count_pages(ledger, lambda: ledger.read_path(SESSION)),
        "append": count_pages(ledger, lambda: send(ledger, [*texts, "one more"])),
        "messages": count_pages(ledger, lambda: ledger.read_messages(SESSION)),
        "edits": count_pages(ledger, lambda: ledger.read_edits(SESSION)),
        "find": count_pages(ledger, lambda: ledger.find_messages(SESSION, "ab")),
        "events": count_pages(ledger, lambda: ledger.read_events(SESSION)),
        "list": count_pages(ledger, lambda: ledger.list_sessions(limit=10)),
    }


def compare(tmp_path: Path, sessions: int, messages: int) -> None:
    alone = measure(tmp_path / "alone.db")
    crowded = SqliteLedger(tmp_path / "crowded.db")
    fill(crowded, sessions, messages)
    crowded.close()
    beside = measure(tmp_path / "crowded.db")
    # Trees are a level or two deeper; nothing else may grow.
    assert {name: pages for name, pages in beside.items() if pages > 4 * alone[name] + 10} == {}


def test_twenty_thousand_messages_of_others_do_not_matter(tmp_path: Path) -> None:
    compare(tmp_path, 10, 2_000)


@pytest.mark.slow
def test_a_million_messages_of_others_do_not_matter(tmp_path: Path) -> None:
    compare(tmp_path, 20, 50_000)


def test_appending_to_a_long_session_costs_what_appending_to_a_short_one_does(tmp_path: Path) -> None:
    def cost(messages: int) -> int:
        ledger = SqliteLedger(tmp_path / f"{messages}.db")
        fill(ledger, 1, messages)
        path = ledger.read_path("other 0")
        (link,) = chain_tail(path.ids[-1], [digest_of(b"new")])
        new = StoredMessage(link.id, link.parent, digest_of(b"new"), "user", b"{}", 1, NOW)
        splices = [Splice(messages, messages, (link.id,))]
        pages = count_pages(ledger, lambda: ledger.append("other 0", [new], splices, version=path.version, now=NOW))
        ledger.close()
        return pages

    assert cost(20_000) <= cost(100) + 20


def test_a_trim_and_a_moved_reminder_cost_what_they_change(tmp_path: Path) -> None:
    def cost(messages: int) -> int:
        ledger = SqliteLedger(tmp_path / f"{messages}.db")
        fill(ledger, 1, messages)
        path = ledger.read_path("other 0")
        moved = path.ids[-5]
        splices = [
            Splice(0, 3, ()),
            Splice(messages - 5, messages - 4, ()),
            Splice(messages - 2, messages - 2, (moved,)),
        ]
        pages = count_pages(ledger, lambda: ledger.append("other 0", [], splices, version=path.version, now=NOW))
        assert ledger.verify("other 0") == []
        ledger.close()
        return pages

    assert cost(20_000) <= cost(100) + 20


def test_appending_to_a_path_in_a_thousand_pieces_costs_no_more(tmp_path: Path) -> None:
    def cost(pieces: int) -> int:
        ledger = SqliteLedger(tmp_path / f"{pieces}.db")
        fill(ledger, 1, pieces * 2)
        path = ledger.read_path("other 0")
        scattered = Splice(0, len(path.ids), path.ids[::2])
        version = ledger.append("other 0", [], [scattered], version=path.version, now=NOW)
        assert version is not None
        splices = [Splice(pieces, pieces, (path.ids[-1],))]
        pages = count_pages(ledger, lambda: ledger.append("other 0", [], splices, version=version, now=NOW))
        assert ledger.read_path("other 0").ids == (*path.ids[::2], path.ids[-1])
        ledger.close()
        return pages

    assert cost(5_000) <= cost(100) + 20
