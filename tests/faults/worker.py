"""A process that works on a ledger until it is done or killed; the tests start it with ``python -m``.

``grow PLACE SESSION`` appends and compresses without end, and tells on standard output what has returned.
``share PLACE NAME ROUNDS`` works on four sessions that others work on too, and tells at the end what it did.
"""

from __future__ import annotations

import json
import os
import sys
import time

from refold.conversation.message import ROOT, digest_of
from refold.ledger.align import chain_tail
from refold.ledger.records import Event, Splice, StoredMessage
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from tests.rigs.talk import make_batch, make_fold, make_mask, write_raw

SESSIONS = ("zero", "one", "two", "three")
LEASE_S = 30.0
ATTEMPTS_MAX = 10_000


def open_store(place: str) -> Ledger:
    """Open a file, or a PostgreSQL server by its address; patient, for many are at work."""
    if "://" not in place:
        return SqliteLedger(place, busy_timeout_s=60.0)
    from refold.ledger.postgres import PostgresLedger

    return PostgresLedger(place, lock_timeout_s=60.0)


def add_message(ledger: Ledger, session: str, text: str) -> str:
    """Append one message to whatever the path is now; return its id."""
    for _ in range(ATTEMPTS_MAX):
        path = ledger.read_path(session)
        (link,) = chain_tail(path.ids[-1] if path.ids else ROOT, [digest_of(text.encode())])
        new = StoredMessage(link.id, link.parent, digest_of(text.encode()), "user", write_raw(text), 1, time.time())
        splices = [Splice(len(path.ids), len(path.ids), (link.id,))]
        if ledger.append(session, [new], splices, version=path.version, now=time.time()) is not None:
            return link.id
    raise RuntimeError("the path changed at every attempt")


def compress(ledger: Ledger, session: str, name: str, owner: str | None = None) -> list[str]:
    """Fold the oldest messages that no fold covers, mask the next; return what was covered, [] if it was refused."""
    path = ledger.read_path(session)
    taken = {message_id for stored in ledger.read_edits(session) for message_id in stored.edit.covers}
    free = [message_id for message_id in path.ids if message_id not in taken][:6]
    if len(free) < 6:
        return []
    batch = make_batch(make_fold(free[:5], name), make_mask(free[5], name), name=name)
    event = Event("compressed", time.time(), {"batch": name})
    return free if ledger.commit(session, batch, now=time.time(), events=[event], owner=owner) else []


def grow(file: str, session: str) -> None:
    ledger = open_store(file)
    ledger.open_session(session, time.time())
    for number in range(1_000_000):
        told = {"message": add_message(ledger, session, f"{os.getpid()} {number} " + "x" * (number * 97 % 5_000))}
        if number % 3 == 2:
            told["batch"] = name = f"{os.getpid()} {number}"
            if not compress(ledger, session, name):
                del told["batch"]
        os.write(1, json.dumps(told).encode() + b"\n")


def share(file: str, name: str, rounds: int) -> None:
    ledger = open_store(file)
    done: dict[str, list[object]] = {"messages": [], "batches": []}
    for number in range(rounds):
        session = SESSIONS[(number + int(name)) % len(SESSIONS)]
        ledger.open_session(session, time.time())
        done["messages"].append([session, add_message(ledger, session, f"{name} {number}")])
        owner = f"worker {name}"
        if ledger.acquire_lease(session, owner, seconds=LEASE_S, now=time.time()):
            covered = compress(ledger, session, f"{name} {number}", owner)
            if covered:
                done["batches"].append([session, f"{name} {number}", covered])
            ledger.release_lease(session, owner)
    os.write(1, json.dumps(done).encode())


if __name__ == "__main__":
    if sys.argv[1] == "grow":
        grow(sys.argv[2], sys.argv[3])
    else:
        share(sys.argv[2], sys.argv[3], int(sys.argv[4]))
