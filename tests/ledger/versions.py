"""Builds a ledger file as each released schema wrote it: frozen SQL and bytes, independent of today's code.

When a schema is released, its builder is added here and never changed; the current code must open all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import apsw


def hash_hex(data: bytes, size: int = 16) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def build_v1(file: Path) -> None:
    """Three messages, the first two folded, one event."""
    schema = Path(__file__).with_name("schema_v1.sql").read_text(encoding="utf-8")
    db = apsw.Connection(str(file))
    db.execute(schema)
    db.execute("PRAGMA application_id = 1919315044; PRAGMA user_version = 1")
    db.execute("INSERT INTO session VALUES (1, 'old', 10.0, 11.0, 'openai-chat', 'gpt', '{}', 3, 1, 1, 3, 30, 1)")
    parent = ""
    ids = []
    for seq, text in enumerate(("first", "second", "third"), 1):
        body = f'{{"role":"user","content":"{text}"}}'.encode()
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        message_id = hash_hex(f"{parent}/{digest}".encode())
        checksum = hashlib.blake2b(body, key=bytes.fromhex(digest), digest_size=8).digest()
        db.execute("INSERT INTO raw VALUES (?, ?)", (seq, body))
        values = (bytes.fromhex(message_id), bytes.fromhex(parent), bytes.fromhex(digest), seq, checksum)
        db.execute("INSERT INTO message VALUES (1, ?, ?, ?, ?, 'user', 10, 10.0, ?, ?)", (seq, *values))
        parent = message_id
        ids.append(message_id)
    db.execute("INSERT INTO path VALUES (1, 4294967296, 1, 3)")
    db.execute("INSERT INTO batch VALUES (1, 1, 'b1', 'tokens', 20, 5, 11.0)")
    payload = (
        b'{"kind":"fold","stage":"fold","part":null,"text":"summary of two","role":"user","reason":"","level":0,'
        b'"made_from":[],"tokens_before":20,"tokens_after":5,"fold":{"handle":"f:00000000","summary":"two","facts":[],'
        b'"artifacts":[],"key_points":[],"turn_range":[0,0],"by":"extract"}}'
    )
    head = repr(("fold", "fold", None, "user", 0))
    edit_id = hash_hex(b"".join(piece.encode() + b"\0" for piece in (head, "summary of two", *ids[:2])), 8)
    db.execute("INSERT INTO edit VALUES (1, 1, ?, 'fold', 0, 1, 1, 2, 11.0, ?)", (edit_id, payload))
    db.execute("INSERT INTO cover VALUES (1, 0, 1, 1, 2)")
    db.execute("INSERT INTO event VALUES (1, 1, 'compressed', 11.0, ?)", (b"{}",))
    db.close()


def build_v2(file: Path) -> None:
    """The same, with the view ``messages`` of the second schema."""
    build_v1(file)
    db = apsw.Connection(str(file))
    db.execute(Path(__file__).with_name("schema_v2.sql").read_text(encoding="utf-8"))
    db.execute("PRAGMA user_version = 2")
    db.close()


BUILDERS: dict[int, Callable[[Path], None]] = {1: build_v1, 2: build_v2}
