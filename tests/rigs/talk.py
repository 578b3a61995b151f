"""Short ways to talk to a ledger as a stateless client does: hand in the whole history, get the ids back."""

from __future__ import annotations

import json
from collections.abc import Sequence

from refold.conversation.message import digest_of
from refold.conversation.reason import text_reason
from refold.conversation.view import Edit, Fact, FoldRecord
from refold.ledger.align import ChainedPath, chain_path
from refold.ledger.records import Batch, Event, StoredMessage
from refold.ledger.sql.ledger import Ledger

NOW = 1_000.0
SESSION = "s1"


def write_raw(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode()


def store(chained: ChainedPath, texts: Sequence[str]) -> list[StoredMessage]:
    """The messages of a history that are not on the path yet, one token per character."""
    return [
        StoredMessage(
            link.id, link.parent, digest_of(texts[link.at].encode()), "user", write_raw(texts[link.at]),
            len(texts[link.at]), NOW,
        )
        for link in chained.new
    ]  # fmt: skip


def send(ledger: Ledger, texts: Sequence[str], session: str = SESSION, now: float = NOW) -> tuple[str, ...]:
    """Hand in a whole history; return the ids of its messages. Reads again if another was faster, within limits."""
    ledger.open_session(session, now)
    for _ in range(1_000):
        path = ledger.read_path(session)
        chained = chain_path(path, [digest_of(text.encode()) for text in texts])
        if ledger.append(session, store(chained, texts), chained.splices, version=path.version, now=now) is not None:
            return chained.ids
    raise AssertionError("another process was faster a thousand times")


def read_texts(ledger: Ledger, session: str = SESSION) -> list[str]:
    """What the messages on the path say."""
    return [json.loads(message.raw)["content"] for message in ledger.read_messages(session)]


def make_fold(covers: Sequence[str], text: str = "summary", level: int = 0, made_from: Sequence[str] = ()) -> Edit:
    fold = FoldRecord(
        handle="f:0badcafe", summary=text, facts=(Fact("todo", "water the plants", "m:00"),), key_points=("k",)
    )
    return Edit("fold", "fold", tuple(covers), text=text, level=level, fold=fold, made_from=tuple(made_from))


def make_mask(covers: str, text: str = "masked", part: int = 0) -> Edit:
    return Edit("replace", "mask", (covers,), part=part, text=text)


def make_batch(*edits: Edit, name: str = "b1", expects: Sequence[str] = (), facts: Sequence[Fact] = ()) -> Batch:
    return Batch(
        name,
        edits,
        text_reason("tokens"),
        tuple(facts),
        tuple(expects),
        tokens_before=90,
        tokens_after=10,
        created_at=NOW,
    )


def commit(ledger: Ledger, *edits: Edit, name: str = "b1", expects: Sequence[str] = (), session: str = SESSION) -> bool:
    batch = make_batch(*edits, name=name, expects=expects)
    return ledger.commit(session, batch, now=NOW, events=[Event("compressed", NOW, {"batch": name})])


def is_sound(ledger: Ledger) -> bool:
    """True if verify finds nothing; fails with what it found."""
    findings = ledger.verify()
    assert findings == []
    return True
