"""Notes lose the words of what is forgotten, and keep their figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refold.conversation import because
from refold.conversation.reason import Reason, text_reason
from refold.conversation.view import Edit
from refold.ledger.records import Batch, Event
from refold.ledger.sql.forget import GONE, Words
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import NOW, SESSION, send

SAID = json.dumps({"role": "user", "content": "the key is Hunter2-zulu, 密钥木星七号, pin 4471"}).encode()


@pytest.mark.parametrize(
    "note",
    [
        "dropped: hunter2",
        "it said HUNTER2.",
        "key=hunter2",
        "x_zulu_y",
        "the pin 4471",
        "是木星",
        "cut off at Hunt",
        "a zulu",
    ],
)
def test_a_note_that_shares_a_word_goes_whole(note: str) -> None:
    assert Words([SAID]).take_out({"reason": note}) == {"reason": GONE}


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "3,512 tokens reached the soft limit of 3,000", "tokens_before": 4471},
        {"model": "zulu-1", "files": ["offloaded/zulu/4471.txt"], "memory": {"date": "2026-11-16"}},
        {"reason": "added below the newest user message", "notes": ["", "火星"]},
        {},
    ],
)
def test_figures_names_and_other_sentences_stay(fields: dict[str, object]) -> None:
    assert Words([SAID]).take_out(fields) is fields


def test_of_what_is_gone_already_every_sentence_goes() -> None:
    fields = {"reason": "anything", "tokens": 7, "model": "gpt-5", "summaries": {"note": "more", "by": ["llm"]}}
    wanted = {"reason": GONE, "tokens": 7, "model": "gpt-5", "summaries": {"note": GONE, "by": ["llm"]}}
    assert Words([SAID, None]).take_out(fields) == wanted


def test_a_reason_keeps_its_code_and_figures_and_loses_what_it_quotes() -> None:
    failed = because.ERROR(error="LedgerError", detail="hunter2 was in the way")
    told = {"reason": because.STOPPED(misses=4471, because=failed).to_json()}
    kept = because.STOPPED(misses=4471, because=because.ERROR(error="LedgerError", detail=GONE)).to_json()
    assert Words([SAID]).take_out(told) == {"reason": kept}
    plain = {"reason": because.OVER_HARD(tokens=4471, limit=9).to_json()}
    assert Words([SAID, None]).take_out(plain) == plain, "a reason that quotes nothing has nothing to lose"


@pytest.mark.parametrize("reason", [text_reason("words: hunter2"), because.WARNED(detail="words: hunter2")])
def test_the_reason_of_a_compression_loses_what_it_quotes(tmp_path: Path, reason: Reason) -> None:
    ledger = SqliteLedger(f"{tmp_path}/ledger.db")
    ids = send(ledger, ["my key is hunter2", "noted", "go on", "done"])
    batch = Batch("b1", (Edit("drop", "prune", (ids[3],), part=0),), reason, created_at=NOW)
    assert ledger.commit(SESSION, batch, now=NOW)
    ledger.forget(SESSION, ids[:1], NOW)
    (stored,) = ledger.read_batches(SESSION)
    assert (stored.reason.code, str(stored.reason)) == (reason.code, GONE)
    ledger.close()


def test_forgetting_again_cleans_the_log_of_an_earlier_version(tmp_path: object) -> None:
    ledger: Ledger = SqliteLedger(f"{tmp_path}/ledger.db")
    ids = send(ledger, ["my key is hunter2"])
    ledger.forget(SESSION, ids, NOW)
    ledger.add_event(SESSION, Event("recalled", NOW, {"reason": "words: hunter2", "tokens": 3}))
    assert ledger.forget(SESSION, ids, NOW) == 0
    assert ledger.read_events(SESSION)[-1].fields == {"reason": GONE, "tokens": 3}
    assert ledger.verify() == []
    ledger.close()
