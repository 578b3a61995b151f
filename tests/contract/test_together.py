"""Several at once on one record: threads of one handle, and handles as processes have them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from refold.ledger.records import Event
from refold.ledger.sql.ledger import Ledger
from tests.contract.conftest import OpenLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_fold, read_texts, send

THREADS = 6
ROUNDS = 12


def run_threads(works: Sequence[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def guard(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_threads_of_one_handle_lose_nothing(ledger: Ledger) -> None:
    def grow(name: str) -> Callable[[], None]:
        def work() -> None:
            texts: list[str] = []
            for number in range(ROUNDS):
                texts.append(f"{name} {number}")
                send(ledger, texts, session=name)

        return work

    run_threads([grow(f"s{number}") for number in range(THREADS)])
    for number in range(THREADS):
        assert read_texts(ledger, f"s{number}") == [f"s{number} {at}" for at in range(ROUNDS)]
    assert is_sound(ledger)


def test_of_many_that_commit_the_same_span_at_once_one_wins(open_ledger: OpenLedger) -> None:
    ledgers = [open_ledger() for _ in range(THREADS)]
    ids = send(ledgers[0], list("abcdef"))
    won: list[int] = []

    def try_it(number: int) -> None:
        if commit(ledgers[number], make_fold(ids[:4], f"by {number}"), name=f"b{number}"):
            won.append(number)

    run_threads([lambda number=number: try_it(number) for number in range(THREADS)])  # type: ignore[misc]
    assert len(won) == 1
    assert [stored.id for stored in ledgers[0].read_batches(SESSION)] == [f"b{won[0]}"]
    assert is_sound(ledgers[0])


def test_of_many_that_want_the_lease_at_once_one_gets_it(open_ledger: OpenLedger) -> None:
    ledgers = [open_ledger() for _ in range(THREADS)]
    ledgers[0].open_session(SESSION, NOW)
    got: list[int] = []

    def try_it(number: int) -> None:
        if ledgers[number].acquire_lease(SESSION, f"owner {number}", seconds=10, now=NOW):
            got.append(number)

    run_threads([lambda number=number: try_it(number) for number in range(THREADS)])  # type: ignore[misc]
    assert len(got) == 1


def test_whoever_follows_the_log_misses_no_event(open_ledger: OpenLedger) -> None:
    ledgers = [open_ledger() for _ in range(4)]
    for number in range(4):
        ledgers[0].open_session(f"s{number}", NOW)
    seen: list[int] = []
    is_done = threading.Event()

    def write(number: int) -> None:
        for at in range(25):
            ledgers[number].add_event(f"s{number}", Event(f"{number} {at}", NOW))

    def follow() -> None:
        after = 0
        while True:
            was_done = is_done.is_set()
            page = ledgers[0].read_events(None, after=after, limit=7)
            seen.extend(event.id for event in page)
            after = page[-1].id if page else after
            if was_done and not page:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    run_threads([lambda number=number: write(number) for number in range(4)])  # type: ignore[misc]
    is_done.set()
    follower.join(60)
    assert not follower.is_alive()
    assert seen == [event.id for event in ledgers[0].read_events(None)]
    assert len(seen) == 100


def test_one_session_made_by_many_at_once_is_one(open_ledger: OpenLedger) -> None:
    ledgers = [open_ledger() for _ in range(THREADS)]
    run_threads([lambda ledger=ledger: ledger.open_session(SESSION, NOW) for ledger in ledgers])  # type: ignore[misc]
    assert [row.id for row in ledgers[0].list_sessions()] == [SESSION]


def test_a_handle_that_was_closed_opens_again_when_it_is_used(ledger: Ledger) -> None:
    send(ledger, ["a"])
    ledger.close()
    ledger.close()
    assert read_texts(ledger) == ["a"]
    ledger.close()
    assert send(ledger, ["a", "b"])
