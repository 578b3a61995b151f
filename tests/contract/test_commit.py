"""Compressions: committed whole or not at all, switched off and on, seen in the flags of messages."""

from __future__ import annotations

from refold.conversation import because
from refold.conversation.reason import text_reason
from refold.conversation.view import Artifact, Edit, Fact, FoldRecord
from refold.ledger.records import Event
from refold.ledger.sql.ledger import Ledger
from tests.contract.conftest import OpenLedger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_batch, make_fold, make_mask, send


def read_flags(ledger: Ledger) -> str:
    return "".join("x" if message.is_compressed else "." for message in ledger.read_messages(SESSION))


def read_count(ledger: Ledger) -> int:
    row = ledger.read_session(SESSION)
    assert row is not None
    return row.compression_count


def test_an_edit_comes_back_equal_with_all_it_knows(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    fold = FoldRecord(
        handle="f:1", summary="摘要 \ud800", facts=(Fact("decision", "use SQLite", "m:12345678"),),
        artifacts=(Artifact("file", "a.py", "m:1", "written", 0.5),), key_points=("one", "two"), turn_range=(1, 2),
        by="model",
    )  # fmt: skip
    why = because.OVER_SOFT(tokens=90, limit=80)
    edits = (
        Edit("fold", "fold", ids[:3], text="⟨f:1⟩ \ud800", role="assistant", reason=why, level=2,
             made_from=("00", "11"), tokens_before=9, tokens_after=2, fold=fold),
        Edit("drop", "prune", (ids[3],), part=1),
        Edit("fold", "merge", (ids[2], ids[0]), text="out of order"),
    )  # fmt: skip
    assert commit(ledger, *edits)
    stored = ledger.read_edits(SESSION)
    assert [item.edit for item in stored] == list(edits)
    assert [item.edit.id for item in stored] == [edit.id for edit in edits]
    assert {(item.batch_id, item.is_active, item.created_at) for item in stored} == {("b1", True, NOW)}
    (summary,) = ledger.read_summaries(SESSION)
    assert (summary.handle, summary.content, summary.is_in_force) == (fold.handle, fold.summary, True)
    assert is_sound(ledger)


def test_a_commit_brings_edits_facts_events_and_flags_together(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    batch = make_batch(make_fold(ids[:2]), facts=[Fact("todo", "buy milk", "m:1"), Fact("todo", "buy milk", "m:2")])
    assert ledger.commit(SESSION, batch, now=NOW, events=[Event("compressed", NOW, {"tokens": [90, 10]})])
    assert read_flags(ledger) == "xx.."
    assert [fact.fact for fact in ledger.read_facts(SESSION)] == [Fact("todo", "buy milk", "m:1")]
    assert [(event.kind, event.fields) for event in ledger.read_events(SESSION)] == [
        ("compressed", {"tokens": [90, 10]})
    ]
    (stored,) = ledger.read_batches(SESSION)
    assert (stored.id, stored.reason, stored.tokens_before, stored.tokens_after) == (
        "b1",
        text_reason("tokens"),
        90,
        10,
    )
    assert (stored.edits, stored.is_active) == ((batch.edits[0].id,), True)
    assert read_count(ledger) == 1


def test_of_two_compressions_of_one_span_the_second_is_refused_and_sees_the_first(open_ledger: OpenLedger) -> None:
    one, two = open_ledger(), open_ledger()
    ids = send(one, list("abcdef"))
    winner, loser = make_fold(ids[:4], "first"), make_fold(ids[2:5], "second")
    assert commit(one, winner, name="b1")
    assert not commit(two, loser, name="b2")
    assert [item.edit for item in two.read_edits(SESSION)] == [winner]
    assert [event.fields for event in two.read_events(SESSION)] == [{"batch": "b1"}]
    assert read_count(two) == 1
    assert commit(two, loser, name="b2", expects=[winner.id])
    assert read_count(one) == 2
    assert is_sound(one)


def test_a_commit_holds_though_the_chain_has_grown_meanwhile(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    send(ledger, list("abcdefg"))
    assert commit(ledger, make_fold(ids[:3]))
    assert read_flags(ledger) == "xxx...."


def test_a_compression_that_expects_more_than_is_there_is_refused(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    mask = make_mask(ids[0])
    assert commit(ledger, mask, name="b1")
    ledger.switch_edits(SESSION, [mask.id], on=False, now=NOW, event=Event("undone", NOW))
    assert not commit(ledger, make_fold(ids[:2]), name="b2", expects=[mask.id])
    assert commit(ledger, make_fold(ids[:2]), name="b2")


def test_a_compression_of_messages_that_are_not_there_is_refused(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    assert not commit(ledger, make_fold([ids[0], "00" * 16]))
    ledger.forget(SESSION, [ids[1]], NOW)
    assert not commit(ledger, make_fold(ids[:2]))
    assert ledger.read_edits(SESSION, active_only=False) == []
    assert read_count(ledger) == 0


def test_the_same_batch_is_committed_once(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    assert commit(ledger, make_fold(ids[:2]))
    assert not commit(ledger, make_fold(ids[2:]))
    assert read_count(ledger) == 1


def test_only_the_holder_of_the_lease_commits(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    batch = make_batch(make_fold(ids[:2]))
    assert not ledger.commit(SESSION, batch, now=NOW, owner="me")
    assert ledger.acquire_lease(SESSION, "me", seconds=5, now=NOW)
    assert not ledger.commit(SESSION, batch, now=NOW, owner="you")
    assert not ledger.commit(SESSION, batch, now=NOW + 6, owner="me")
    assert ledger.commit(SESSION, batch, now=NOW + 4, owner="me")


def test_switching_a_fold_off_and_on_gives_back_the_flags(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    fold = make_fold(ids[:3])
    commit(ledger, fold)
    event = Event("undone", NOW)
    assert ledger.switch_edits(SESSION, [fold.id, "unknown"], on=False, now=NOW, event=event) == 1
    assert read_flags(ledger) == "...."
    assert ledger.read_edits(SESSION) == []
    assert [item.is_active for item in ledger.read_edits(SESSION, active_only=False)] == [False]
    assert not ledger.read_batches(SESSION)[0].is_active
    assert ledger.switch_edits(SESSION, [fold.id], on=False, now=NOW, event=event) == 0
    assert ledger.switch_edits(SESSION, [fold.id], on=True, now=NOW, event=event) == 1
    assert read_flags(ledger) == "xxx."
    assert is_sound(ledger)


def test_an_edit_that_was_undone_can_be_made_again(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    fold = make_fold(ids[:3])
    commit(ledger, fold, name="b1")
    ledger.switch_edits(SESSION, [fold.id], on=False, now=NOW, event=Event("undone", NOW))
    assert commit(ledger, fold, name="b2")
    assert [(item.batch_id, item.is_active) for item in ledger.read_edits(SESSION)] == [("b2", True)]
    assert is_sound(ledger)


def test_an_arrival_edit_that_a_person_undid_stays_undone_when_the_message_comes_again(ledger: Ledger) -> None:
    ids = send(ledger, list("ab"))
    edit = make_mask(ids[1])
    version = ledger.read_path(SESSION).version
    ledger.append(SESSION, [], [], version=version, now=NOW, arrival=[edit])
    ledger.switch_edits(SESSION, [edit.id], on=False, now=NOW, event=Event("undone", NOW))
    ledger.append(SESSION, [], [], version=version, now=NOW, arrival=[edit])
    assert ledger.read_edits(SESSION) == []


def test_every_change_of_the_edits_changes_their_version(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    versions = []

    def note() -> None:
        row = ledger.read_session(SESSION)
        assert row is not None
        versions.append((row.path_version, row.edits_version))

    note()
    commit(ledger, make_fold(ids[:2]))
    note()
    ledger.switch_edits(SESSION, [make_fold(ids[:2]).id], on=False, now=NOW, event=Event("undone", NOW))
    note()
    ledger.forget(SESSION, ids[:1], NOW)
    note()
    assert versions == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_a_fold_whose_messages_left_the_path_covers_none(ledger: Ledger) -> None:
    ids = send(ledger, list("abcdef"))
    commit(ledger, make_fold(ids[:3]))
    send(ledger, list("bcdef"))
    assert read_flags(ledger) == "....."
    send(ledger, list("abcdef"))
    assert read_flags(ledger) == "xxx..."
