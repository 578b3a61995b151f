"""Builds a ledger as each released schema wrote it: released SQL and frozen bytes, independent of today's code.

A released step never changes, which its digest shows; the current code must open a ledger of every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import apsw

from refold.ledger.sql.migrations import read_steps

Store = Literal["sqlite", "postgres"]
RELEASED: dict[Store, tuple[str, ...]] = {
    "sqlite": ("6e89508cf894ffff0fbdaca193f3b01b", "183f3aa05ecb5090c8cd2ad26f9c2435"),
    "postgres": ("07a455c454b362abdfd1e0148d93ec6a", "87e1d1f6de5a1c4619e47591fbae672c"),
}
VERSIONS = (1, 2)
_PAYLOAD = (
    b'{"kind":"fold","stage":"fold","part":null,"text":"summary of two","role":"user","reason":"","level":0,'
    b'"made_from":[],"tokens_before":20,"tokens_after":5,"fold":{"handle":"f:00000000","summary":"two","facts":[],'
    b'"artifacts":[],"key_points":[],"turn_range":[0,0],"by":"extract"}}'
)


def hash_hex(data: bytes, size: int = 16) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def list_rows(store: Store) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the table and the values of each row: three messages, the first two folded, one event."""
    yield "session", (1, "old", 10.0, 11.0, "openai-chat", "gpt", b"{}", 3, 1, 1, 3, 30, 1)
    parent = ""
    ids = []
    for seq, text in enumerate(("first", "second", "third"), 1):
        body = f'{{"role":"user","content":"{text}"}}'.encode()
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        message_id = hash_hex(f"{parent}/{digest}".encode())
        checksum = hashlib.blake2b(body, key=bytes.fromhex(digest), digest_size=8).digest()
        content: bytes | int = body
        if store == "sqlite":
            yield "raw", (seq, body)
            content = seq
        yield (
            "message",
            (1, seq, *map(bytes.fromhex, (message_id, parent, digest)), "user", 10, 10.0, content, checksum),
        )
        parent = message_id
        ids.append(message_id)
    yield "path", (1, 4294967296, 1, 3)
    yield "batch", (1, 1, "b1", "tokens", 20, 5, 11.0)
    head = repr(("fold", "fold", None, "user", 0))
    edit_id = hash_hex(b"".join(piece.encode() + b"\0" for piece in (head, "summary of two", *ids[:2])), 8)
    yield "edit", (1, 1, edit_id, "fold", 0, 1, True, 2, 11.0, _PAYLOAD)
    yield "cover", (1, 0, 1, 1, 2)
    yield "event", (1, 1, "compressed", 11.0, b"{}")


def write_rows(store: Store, run: Callable[[str, tuple[Any, ...]], object]) -> None:
    mark, override = ("?", "") if store == "sqlite" else ("%s", " OVERRIDING SYSTEM VALUE")
    for table, values in list_rows(store):
        run(f"INSERT INTO {table}{override} VALUES ({', '.join([mark] * len(values))})", values)


def build_file(file: Path, version: int) -> None:
    """Write a SQLite ledger of a released version."""
    db = apsw.Connection(str(file))
    db.execute(read_steps("sqlite")[0])
    write_rows("sqlite", db.execute)
    for step in read_steps("sqlite")[1:version]:
        db.execute(step)
    db.execute(f"PRAGMA application_id = 1919315044; PRAGMA user_version = {version}")
    db.close()
