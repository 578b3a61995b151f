"""Forgetting: content goes for good, with all that was made from it; the chain still verifies."""

from __future__ import annotations

from dataclasses import replace

from refold.conversation.message import digest_of
from refold.conversation.view import Fact
from refold.ledger.sql.ledger import Ledger
from tests.rigs.talk import NOW, SESSION, commit, is_sound, make_batch, make_fold, make_mask, send


def test_a_forgotten_message_keeps_its_place_and_its_hashes_only(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "my key is hunter2", "c"])
    assert ledger.forget(SESSION, [ids[1]], NOW) == 1
    kept = ledger.read_messages(SESSION)
    assert [message.id for message in kept] == list(ids)
    assert [message.is_forgotten for message in kept] == [False, True, False]
    assert kept[1].raw == b""
    assert kept[1].digest == digest_of(b"my key is hunter2")
    assert is_sound(ledger)
    assert ledger.read_events(SESSION)[-1].kind == "forgotten"


def test_resending_a_forgotten_message_does_not_bring_it_back(ledger: Ledger) -> None:
    texts = ["a", "secret", "c"]
    ids = send(ledger, texts)
    ledger.forget(SESSION, [ids[1]], NOW)
    assert send(ledger, [*texts, "d"])[:3] == ids
    assert ledger.read_messages(SESSION, [ids[1]])[0].is_forgotten
    assert is_sound(ledger)


def test_the_same_content_elsewhere_in_the_session_goes_too(ledger: Ledger) -> None:
    ids = send(ledger, ["secret", "b", "secret"])
    other = send(ledger, ["secret"], session="other")
    assert ledger.forget(SESSION, [ids[0]], NOW) == 2
    assert not ledger.read_messages("other", other)[0].is_forgotten


def test_edits_over_a_forgotten_message_go_and_those_made_from_them(ledger: Ledger) -> None:
    ids = send(ledger, list("abcdef"))
    over = make_fold(ids[:2], "quotes the secret")
    from_it = make_fold(ids[2:4], "quotes the summary", made_from=[over.id])
    apart = make_mask(ids[5])
    for number, edit in enumerate((over, from_it, apart)):
        batch = make_batch(edit, name=f"b{number}", facts=[Fact("key", f"fact {number}", "")])
        assert ledger.commit(SESSION, batch, now=NOW)
    assert ledger.forget(SESSION, [ids[0]], NOW) == 1
    assert [item.edit for item in ledger.read_edits(SESSION, active_only=False)] == [apart]
    assert [fact.fact.text for fact in ledger.read_facts(SESSION)] == ["fact 2"]
    assert is_sound(ledger)


def test_facts_that_point_at_a_forgotten_message_go(ledger: Ledger) -> None:
    ids = send(ledger, list("abcdef"))
    handle = f"m:{digest_of(b'a')[:8]}"
    facts = [Fact("key", "of a", handle), Fact("key", "of a part of a", f"{handle}.2"), Fact("key", "of e", "m:123")]
    assert ledger.commit(SESSION, make_batch(make_fold(ids[3:5]), facts=facts), now=NOW)
    ledger.forget(SESSION, [ids[0]], NOW)
    assert [fact.fact.text for fact in ledger.read_facts(SESSION)] == ["of e"]


def test_an_arrival_edit_of_a_forgotten_message_is_not_stored_again(ledger: Ledger) -> None:
    ids = send(ledger, ["secret"])
    edit = make_mask(ids[0], "sec...")
    version = ledger.read_path(SESSION).version
    ledger.append(SESSION, [], [], version=version, now=NOW, arrival=[edit])
    ledger.forget(SESSION, ids, NOW)
    ledger.append(SESSION, [], [], version=version, now=NOW, arrival=[edit])
    assert ledger.read_edits(SESSION, active_only=False) == []


def test_forgetting_twice_or_what_is_not_there_does_nothing(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "b"])
    assert commit(ledger, make_mask(ids[1]))
    assert ledger.forget(SESSION, [ids[0]], NOW) == 1
    before = ledger.read_session(SESSION)
    assert ledger.forget(SESSION, [ids[0], "00" * 16], NOW) == 0
    assert ledger.read_session(SESSION) == before
    assert len(ledger.read_edits(SESSION)) == 1


def test_forgetting_changes_the_version_so_that_nobody_continues_with_a_stale_copy(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "secret", "c"])
    before = ledger.read_session(SESSION)
    assert ledger.find_forgotten(SESSION) == []
    assert ledger.forget(SESSION, [ids[1]], NOW) == 1
    after = ledger.read_session(SESSION)
    assert before is not None
    assert after is not None
    assert after.edits_version == before.edits_version + 1
    assert ledger.find_forgotten(SESSION) == [ids[1]]
    assert ledger.forget(SESSION, [ids[1]], NOW) == 0
    assert ledger.read_session(SESSION) == after
    assert ledger.find_forgotten("nobody") == []


def test_a_compression_covers_a_forgotten_message_only_if_it_was_made_without_its_content(ledger: Ledger) -> None:
    ids = send(ledger, list("abcd"))
    ledger.forget(SESSION, [ids[1]], NOW)
    fold = make_fold(ids[:3])
    assert not ledger.commit(SESSION, make_batch(fold), now=NOW)
    assert ledger.commit(SESSION, replace(make_batch(fold), forgotten=(ids[1],)), now=NOW)
    assert [item.edit for item in ledger.read_edits(SESSION)] == [fold]
    assert is_sound(ledger)


def test_erased_edits_go_with_what_was_made_from_them_and_the_messages_stay(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "b", "c", "d"])
    inner = make_fold(ids[:2], "a summary with a secret", level=1)
    outer = make_fold(ids[:3], "a summary of that", level=2, made_from=[inner.id])
    commit(ledger, inner, name="b1")
    commit(ledger, outer, name="b2", expects=[inner.id])
    row = ledger.read_session(SESSION)
    assert row is not None
    assert ledger.erase_edits(SESSION, [inner.id, "absent"], NOW) == 2
    assert ledger.read_edits(SESSION, active_only=False) == []
    assert [message.is_forgotten for message in ledger.read_messages(SESSION)] == [False] * 4
    assert not any(message.is_compressed for message in ledger.read_messages(SESSION))
    after = ledger.read_session(SESSION)
    assert after is not None
    assert after.edits_version > row.edits_version, "nobody continues with a stale copy"
    assert ledger.erase_edits(SESSION, [inner.id], NOW) == 0
    assert is_sound(ledger)
