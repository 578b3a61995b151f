"""Whatever text a provider, a person or a model writes comes back as it was, from every column."""

from __future__ import annotations

import pytest

from refold.conversation.reason import text_reason
from refold.conversation.view import Edit, Fact, FoldRecord
from refold.ledger.records import Batch, Event, StoredUsage
from refold.ledger.sql.ledger import Ledger
from tests.rigs.talk import NOW, SESSION, is_sound, make_batch, make_fold, read_texts, send

ODD = [
    "a\0b", "\0", "\ud800", "\udfff\ud800", "back\\slash", "\\0", "\\u0000", "\\\\", "\\ud800", "'; --", "%s %b %%",
    "{}", "会话 压缩", "🙂", "e\u0301", "\r\n\t", "\x7f\x85\u2028", "x" * 20_000, "字" * 20_000, "",
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_text_comes_back_from_every_column(ledger: Ledger, odd: str) -> None:
    ids = send(ledger, ["a", "b", "c"])
    ledger.update_session(SESSION, {"wire": odd, "model": odd, "settings": {odd: [odd], "k": {"k": odd}}}, NOW)
    fold = FoldRecord(handle=odd, summary=odd, facts=(Fact("todo", odd, odd),), key_points=(odd,))
    edit = Edit("fold", "fold", ids[:2], text=odd, reason=text_reason(odd), fold=fold)
    batch = Batch(f"b{odd[:200]}", (edit,), text_reason(odd), (Fact("key", odd, odd),), created_at=NOW)
    assert ledger.acquire_lease(SESSION, odd[:200], seconds=9, now=NOW)
    assert ledger.commit(SESSION, batch, now=NOW, events=[Event(odd, NOW, {odd: odd})], owner=odd[:200])
    assert not ledger.acquire_lease(SESSION, f"{odd[:200]}'", seconds=9, now=NOW)
    ledger.add_usage(SESSION, StoredUsage(NOW, odd, input_tokens=3))
    row = ledger.read_session(SESSION)
    assert row is not None
    assert (row.wire, row.model, row.settings) == (odd, odd, {odd: [odd], "k": {"k": odd}})
    assert [stored.edit for stored in ledger.read_edits(SESSION)] == [edit]
    assert [(stored.id, stored.reason) for stored in ledger.read_batches(SESSION)] == [(batch.id, text_reason(odd))]
    assert [stored.fact for stored in ledger.read_facts(SESSION)] == [Fact("key", odd, odd)]
    assert [(event.kind, event.fields) for event in ledger.read_events(SESSION)] == [(odd, {odd: odd})]
    assert [usage.model for usage in ledger.read_usage(SESSION)] == [odd]
    assert is_sound(ledger)


def test_texts_that_differ_by_an_escape_are_different_facts(ledger: Ledger) -> None:
    ids = send(ledger, ["a", "b"])
    texts = ["a\0b", "a\\0b", "a\\\\0b", "\ud800", "\\ud800", "a", "A"]
    facts = [Fact("key", text, "") for text in texts]
    assert ledger.commit(SESSION, make_batch(make_fold(ids), facts=[*facts, *facts]), now=NOW)
    assert [stored.fact.text for stored in ledger.read_facts(SESSION)] == texts


def test_a_message_with_nul_characters_is_kept_byte_for_byte(ledger: Ledger) -> None:
    texts = ["\0", "a\0b\0", "\ud800".encode("unicode_escape").decode(), "\\u0000"]
    send(ledger, texts)
    assert read_texts(ledger) == texts
    assert is_sound(ledger)
