"""Messages and the path: what clients do to a history, and what is stored of it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.conversation.message import ROOT, chain_id, digest_of
from refold.ledger.records import Splice, StoredMessage
from refold.ledger.sql.ledger import Ledger
from tests.contract.conftest import OpenLedger
from tests.rigs.effort import up_to
from tests.rigs.talk import NOW, SESSION, is_sound, make_fold, make_mask, read_texts, send, write_raw


def count_stored(ledger: Ledger) -> int:
    return len(ledger.list_messages(SESSION))


def test_resending_the_whole_history_stores_only_the_new_tail(ledger: Ledger) -> None:
    first = send(ledger, ["a", "b", "c"])
    second = send(ledger, ["a", "b", "c", "d", "e"])
    assert second[:3] == first
    assert count_stored(ledger) == 5
    assert read_texts(ledger) == ["a", "b", "c", "d", "e"]
    assert is_sound(ledger)


def test_a_retry_stores_nothing_and_leaves_the_version_alone(ledger: Ledger) -> None:
    send(ledger, ["a", "b"])
    before = ledger.read_path(SESSION)
    assert send(ledger, ["a", "b"]) == before.ids
    assert ledger.read_path(SESSION) == before
    assert count_stored(ledger) == 2


def test_appending_by_pieces_gives_the_ids_of_handing_in_the_whole(ledger: Ledger) -> None:
    send(ledger, ["a", "b", "c"])
    path = ledger.read_path(SESSION)
    digest = digest_of(b"d")
    new = StoredMessage(chain_id(path.ids[-1], digest), path.ids[-1], digest, "user", write_raw("d"), 1, NOW)
    assert ledger.append(SESSION, [new], [Splice(3, 3, (new.id,))], version=path.version, now=NOW) == path.version + 1
    assert send(ledger, ["a", "b", "c", "d"]) == (*path.ids, new.id)
    assert send(ledger, ["a", "b", "c", "d"], session="whole") == (*path.ids, new.id)


def test_a_fork_shares_its_prefix_and_going_back_finds_the_first_branch(ledger: Ledger) -> None:
    first = send(ledger, ["a", "b", "c", "d"])
    fork = send(ledger, ["a", "b", "x", "y"])
    assert fork[:2] == first[:2]
    assert count_stored(ledger) == 6
    assert send(ledger, ["a", "b", "c", "d"]) == first
    assert count_stored(ledger) == 6
    assert is_sound(ledger)


def test_editing_the_last_message_keeps_all_before_it(ledger: Ledger) -> None:
    first = send(ledger, ["a", "b", "c"])
    second = send(ledger, ["a", "b", "c, please"])
    assert second[:2] == first[:2]
    assert second[2] != first[2]
    assert [message.raw for message in ledger.read_messages(SESSION, [first[2]])] == [write_raw("c")]


def test_a_client_that_trims_its_oldest_messages_keeps_the_ids_of_the_rest(ledger: Ledger) -> None:
    first = send(ledger, list("abcdefgh"))
    second = send(ledger, list("defghij"))
    assert second[:5] == first[3:]
    assert read_texts(ledger) == list("defghij")
    assert count_stored(ledger) == 10
    row = ledger.read_session(SESSION)
    assert row is not None
    assert (row.messages, row.tokens) == (7, 7)
    assert send(ledger, list("abcdefghij"))[:3] == first[:3]
    assert is_sound(ledger)


def test_inserted_and_moved_reminders_leave_the_rest_alone(ledger: Ledger) -> None:
    plain = send(ledger, list("abcdef"))
    with_reminder = send(ledger, ["a", "b", "REMINDER", "c", "d", "e", "f"])
    moved = send(ledger, ["a", "b", "c", "d", "REMINDER", "e", "f", "g"])
    gone = send(ledger, list("abcdefg"))
    assert [with_reminder[at] for at in (0, 1, 3, 4, 5, 6)] == list(plain)
    assert [moved[at] for at in (0, 1, 2, 3, 5, 6)] == list(plain)
    assert gone[:6] == plain
    assert gone[6] == moved[7]
    assert is_sound(ledger)


def test_messages_put_into_the_same_place_again_and_again_stay_in_order(ledger: Ledger) -> None:
    history = ["first", "last"]
    for number in range(100):
        history.insert(1, f"put in {number}")
        send(ledger, history)
        assert read_texts(ledger) == history
    assert count_stored(ledger) == 102
    assert is_sound(ledger)


def test_ten_thousand_equal_messages_have_ids_of_their_own(ledger: Ledger) -> None:
    ids = send(ledger, ["ok"] * 10_000)
    assert len(set(ids)) == 10_000
    assert send(ledger, ["ok"] * 9_990) == ids[:9_990]
    assert send(ledger, ["x", *["ok"] * 5_000, "y"])[1:-1] == ids[:5_000]
    assert is_sound(ledger)


def test_two_handles_that_saw_the_same_path_cannot_both_change_it(open_ledger: OpenLedger) -> None:
    one, two = open_ledger(), open_ledger()
    send(one, ["a"])
    seen = two.read_path(SESSION)
    send(one, ["a", "b"])
    assert two.append(SESSION, [], [Splice(1, 1, ())], version=seen.version, now=NOW) is None
    assert read_texts(two) == ["a", "b"]
    assert send(two, ["a", "c"])
    assert read_texts(one) == ["a", "c"]
    assert count_stored(one) == 3


def test_raw_bytes_come_back_as_they_were_stored(ledger: Ledger) -> None:
    ledger.open_session(SESSION, NOW)
    raws = [b"{}", b'{"a":"\xe4\xb8\xad"}', b'{"a":"\\ud800"}', bytes(range(256)), b"x" * 3_000_000]
    parent, stored = ROOT, []
    for number, raw in enumerate(raws):
        digest = digest_of(bytes([number]))
        stored.append(StoredMessage(chain_id(parent, digest), parent, digest, "tool", raw, number, NOW + number))
        parent = stored[-1].id
    splices = [Splice(0, 0, tuple(message.id for message in stored))]
    assert ledger.append(SESSION, stored, splices, version=0, now=NOW) == 1
    found = ledger.read_messages(SESSION)
    assert [message.raw for message in found] == raws
    assert [message.created_at for message in found] == [NOW + number for number in range(5)]
    assert [message.role for message in found] == ["tool"] * 5
    assert [message.parent for message in found] == [ROOT, *[message.id for message in stored[:-1]]]


def test_messages_are_found_by_id_by_digest_and_by_arrival(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "b", "c"])
    send(ledger, ["a", "x"])
    assert [message.id for message in ledger.read_messages(SESSION, [ids[2], "00" * 16, ids[0], "no"])] == [
        ids[2],
        ids[0],
    ]
    digest = digest_of(b"c")
    for prefix in (digest, digest[:8], digest[:5]):
        assert [message.id for message in ledger.find_messages(SESSION, prefix)] == [ids[2]]
    assert ledger.find_messages(SESSION, "zz") == []
    assert len(ledger.find_messages(SESSION, "")) == 4
    assert len(ledger.find_messages(SESSION, "", limit=2)) == 2
    assert [message.seq for message in ledger.list_messages(SESSION, after=1, limit=2)] == [2, 3]


def test_what_does_not_fit_together_is_refused_whole(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "b"])
    before = ledger.read_path(SESSION)
    digest = digest_of(b"c")
    good = StoredMessage(chain_id(ids[1], digest), ids[1], digest, "user", b"{}")
    bad = StoredMessage("00" * 16, ids[1], digest, "user", b"{}")
    attempts: list[tuple[list[StoredMessage], list[Splice]]] = [
        ([bad], []),
        ([good], [Splice(2, 2, (good.id, "11" * 16))]),
        ([good], [Splice(5, 5, (good.id,))]),
        ([good], [Splice(1, 0, (good.id,))]),
        ([good], [Splice(0, 2, ()), Splice(1, 2, (good.id,))]),
        ([good], [Splice(2, 2, (good.id, good.id))]),
        ([good], [Splice(2, 2, (ids[1],))]),
    ]
    for messages, splices in attempts:
        with pytest.raises(ValueError, match=r"chained|not in this session|splice|twice"):
            ledger.append(SESSION, messages, splices, version=before.version, now=NOW)
    assert ledger.read_path(SESSION) == before
    assert count_stored(ledger) == 2
    assert is_sound(ledger)


def test_edits_made_on_arrival_are_stored_with_their_messages(ledger: Ledger) -> None:
    ids = send(ledger, ["a"])
    path = ledger.read_path(SESSION)
    digest = digest_of(b"long")
    new = StoredMessage(chain_id(ids[0], digest), ids[0], digest, "tool", b"{}", 1, NOW)
    edit = make_mask(new.id, "short")
    splices = [Splice(1, 1, (new.id,))]
    assert ledger.append(SESSION, [new], splices, version=path.version, now=NOW, arrival=[edit])
    (stored,) = ledger.read_edits(SESSION)
    assert (stored.edit, stored.batch_id, stored.is_active) == (edit, "", True)
    row = ledger.read_session(SESSION)
    assert row is not None
    assert (row.edits_version, row.compression_count) == (1, 0)
    assert ledger.read_batches(SESSION) == []
    assert ledger.verify() == []  # Edits of no batch are not edits whose batch is lost.


TEXTS = st.lists(st.sampled_from(["ok", "go", "a", "b", "c", "d", "e"]), max_size=12)


@settings(max_examples=up_to(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories=st.lists(TEXTS, min_size=1, max_size=8), number=st.integers(0, 10**12))
def test_whatever_a_client_sends_the_path_says_it_and_everything_verifies(
    ledger: Ledger, histories: list[list[str]], number: int
) -> None:
    session = f"{number} {len(ledger.list_sessions(limit=10_000))}"
    for history in histories:
        ids = send(ledger, history, session=session)
        assert len(set(ids)) == len(ids)
        path = ledger.read_path(session)
        assert path.ids == ids
        assert list(path.digests) == [digest_of(text.encode()) for text in history]
        assert read_texts(ledger, session) == history
    assert ledger.verify(session) == []


def test_a_fold_is_stored_once_however_long(ledger: Ledger) -> None:
    ids = send(ledger, [f"message {number}" for number in range(2_000)])
    edit = make_fold(ids[5:1_900])
    path = ledger.read_path(SESSION)
    assert ledger.append(SESSION, [], [], version=path.version, now=NOW, arrival=[edit]) == path.version
    assert ledger.read_edits(SESSION)[0].edit == edit
