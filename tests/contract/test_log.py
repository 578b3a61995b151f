"""Events, facts, usage, leases."""

from __future__ import annotations

from refold.conversation.view import Fact
from refold.ledger.records import Event, StoredUsage
from refold.ledger.sql.ledger import Ledger
from tests.contract.conftest import OpenLedger
from tests.rigs.talk import NOW, SESSION, make_batch, make_fold, send


def test_events_come_back_in_order_and_page_by_id(ledger: Ledger) -> None:
    for name in ("a", "b"):
        ledger.open_session(name, NOW)
    ids = [ledger.add_event("ab"[number % 2], Event(f"kind {number}", NOW, {"n": number})) for number in range(6)]
    assert ids == sorted(set(ids))
    assert [event.fields["n"] for event in ledger.read_events("a")] == [0, 2, 4]
    assert [event.session_id for event in ledger.read_events(None, after=ids[3])] == ["a", "b"]
    assert [event.id for event in ledger.read_events(None, after=ids[1], limit=2)] == ids[2:4]
    assert ledger.read_events("a", after=ids[-1]) == []


def test_the_newest_events_are_read_backwards_from_the_end(ledger: Ledger) -> None:
    assert ledger.read_newest_events(None) == []
    for name in ("a", "b"):
        ledger.open_session(name, NOW)
    ids = [ledger.add_event("ab"[number % 2], Event("x", NOW, {"n": number})) for number in range(6)]
    assert [event.id for event in ledger.read_newest_events(None)] == ids[-1:]
    assert [event.id for event in ledger.read_newest_events(None, limit=4)] == ids[:1:-1]
    assert [event.fields["n"] for event in ledger.read_newest_events("a", limit=2)] == [4, 2]
    assert ledger.read_newest_events("a", limit=1) == ledger.read_events("a", after=ids[3])
    assert ledger.read_newest_events("unknown", limit=5) == []


def test_events_keep_any_json(ledger: Ledger) -> None:
    ledger.open_session(SESSION, NOW)
    fields = {"名": "\ud800", "big": 2**100, "list": [1.5, None, True], "": {}}
    ledger.add_event(SESSION, Event("odd\0kind", NOW, fields))
    (event,) = ledger.read_events(SESSION)
    assert (event.kind, event.fields) == ("odd\0kind", fields)


def test_a_fact_found_again_is_stored_once_and_each_session_has_its_own(ledger: Ledger) -> None:
    for name in ("a", "b"):
        ids = send(ledger, ["x", "y"], session=name)
        for number in range(2):
            batch = make_batch(
                make_fold(ids[number : number + 1]), name=f"b{number}", facts=[Fact("key", "π \ud800", f"m:{number}")]
            )
            assert ledger.commit(name, batch, now=NOW + number)
    found = [(fact.session_id, fact.batch_id, fact.fact) for fact in ledger.read_facts(None)]
    assert found == [("a", "b0", Fact("key", "π \ud800", "m:0")), ("b", "b0", Fact("key", "π \ud800", "m:0"))]
    assert len(ledger.read_facts("a")) == len(ledger.read_facts(None, limit=1)) == 1


def test_the_newest_usage_comes_first(ledger: Ledger) -> None:
    ledger.open_session(SESSION, NOW)
    reports = [StoredUsage(NOW + number, "gpt", number, 2, 3, 4, 5, 6, 7) for number in range(3)]
    for usage in reports:
        ledger.add_usage(SESSION, usage)
    assert ledger.read_usage(SESSION) == [reports[2]]
    assert ledger.read_usage(SESSION, limit=10) == reports[::-1]


def test_a_lease_is_one_owners_until_it_is_given_back_or_runs_out(open_ledger: OpenLedger) -> None:
    one, two = open_ledger(), open_ledger()
    one.open_session(SESSION, NOW)
    assert one.acquire_lease(SESSION, "one", seconds=10, now=NOW)
    assert not two.acquire_lease(SESSION, "two", seconds=10, now=NOW + 9)
    assert one.acquire_lease(SESSION, "one", seconds=10, now=NOW + 9)
    assert not two.acquire_lease(SESSION, "two", seconds=10, now=NOW + 11)
    two.release_lease(SESSION, "two")
    assert not two.acquire_lease(SESSION, "two", seconds=10, now=NOW + 11)
    one.release_lease(SESSION, "one")
    assert two.acquire_lease(SESSION, "two", seconds=10, now=NOW + 11)
    assert one.acquire_lease(SESSION, "one", seconds=10, now=NOW + 21)
    one.open_session("other", NOW)
    assert two.acquire_lease("other", "two", seconds=10, now=NOW)


def test_anybody_can_see_that_a_session_is_leased(open_ledger: OpenLedger) -> None:
    one, two = open_ledger(), open_ledger()
    one.open_session(SESSION, NOW)
    assert not two.is_leased(SESSION, now=NOW)
    assert one.acquire_lease(SESSION, "one", seconds=10, now=NOW)
    assert two.is_leased(SESSION, now=NOW + 9)
    assert not two.is_leased(SESSION, now=NOW + 10)
    one.release_lease(SESSION, "one")
    assert not two.is_leased(SESSION, now=NOW + 9)
    assert not two.is_leased("never seen", now=NOW)
