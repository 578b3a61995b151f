"""Cost of the ledger: storing, reading and aligning, beside one orjson round trip of the same history.

Prints Markdown on standard output. Ratios compare within one run; the histories are made here, so anyone can run it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from refold.formats.canonical import digest_message
from refold.ledger.align import align, chain_path, chain_tail
from refold.ledger.codec import dump_json
from refold.ledger.records import MessagePath, Splice, StoredMessage
from refold.ledger.sql.ledger import Ledger
from refold.ledger.sqlite import SqliteLedger
from refold.testing.postgres import PostgresServer, find_binaries

LENGTHS = (100, 1_000, 10_000)
ROUNDS = 7
NOW = 1.0
TEXT = (
    "the file was read and changed by test error in line value of path module returns none import from class "
    "retry budget window token prefix cache 会话 压缩 错误 文件"
)
WORDS = TEXT.split()


def make_history(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """A session as agents have: short texts, calls, and results of very different length."""
    dice = random.Random(seed)

    def write(words: int) -> str:
        return " ".join(dice.choice(WORDS) + str(dice.randrange(1000)) for _ in range(words))

    history: list[dict[str, Any]] = []
    while len(history) < count:
        call = {"name": "bash", "arguments": orjson.dumps({"cmd": write(12)}).decode()}
        name = f"call_{len(history)}"
        history += [
            {"role": "user", "content": write(30)},
            {"role": "assistant", "content": None, "tool_calls": [{"id": name, "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": name, "content": write(int(dice.paretovariate(1.2) * 60) % 3_000)},
            {"role": "assistant", "content": write(60)},
        ]
    return history[:count]


def store(history: list[dict[str, Any]], path: MessagePath | None = None) -> list[StoredMessage]:
    """The messages of a history as the ledger wants them."""
    digests = [digest_message(raw) for raw in history]
    chained = chain_path(path or MessagePath(), digests)
    return [
        StoredMessage(link.id, link.parent, digests[link.at], history[link.at]["role"], dump_json(history[link.at]))
        for link in chained.new
    ]


def take_median(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of one run, the median of several."""
    work()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def append_in_pieces(folder: Path, stored: list[StoredMessage], piece: int, synchronous: Any) -> float:
    """Messages per second, appended so many at a time."""
    ledger = SqliteLedger(folder / f"{synchronous}{piece}.db", synchronous=synchronous)
    rate = time_appends(ledger, "s", stored, piece)
    ledger.close()
    return rate


def time_appends(ledger: Ledger, name: str, stored: list[StoredMessage], piece: int) -> float:
    """Messages per second, appended to a new session so many at a time."""
    version = ledger.open_session(name, NOW).path_version
    started = time.perf_counter()
    for at in range(0, len(stored), piece):
        part = stored[at : at + piece]
        splice = Splice(at, at, tuple(message.id for message in part))
        version = ledger.append(name, part, [splice], version=version, now=NOW) or 0
    return len(stored) / (time.perf_counter() - started)


def show_appends(folder: Path) -> None:
    stored = store(make_history(10_000))
    size = sum(len(message.raw) for message in stored)
    print(f"Appending 10,000 messages of {size / len(stored):,.0f} bytes on average, one transaction each time:\n")
    print("| messages at a time | `synchronous=normal` | `synchronous=full` |\n|---|---|---|")
    for piece in (1, 10, 100, 1_000):
        few = stored if piece > 1 else stored[:2_000]
        rates = [append_in_pieces(folder, few, piece, synchronous) for synchronous in ("normal", "full")]
        print(f"| {piece:,} | {rates[0]:,.0f}/s | {rates[1]:,.0f}/s |")
    file = (folder / "normal1000.db").stat().st_size
    print(f"\nThe file takes {file / size:.2f} MB per MB of messages ({file / 1e6:.1f} MB for {size / 1e6:.1f} MB).")
    bodies = [message.raw for message in stored]
    packed = sum(min(len(body), len(zlib.compress(body, 1))) for body in bodies)
    seconds = take_median(lambda: [zlib.compress(body, 1) for body in bodies], 3)
    print(
        f"zlib level 1, message by message, would store {packed / size:.2f} of the raw bytes and cost "
        f"{seconds / len(bodies) * 1e6:.0f} µs per message; it is not used, so that the file stays readable with any "
        "SQLite shell.\n"
    )


def show_alignment(folder: Path) -> None:
    print("Reading and aligning a history that is handed in whole, as multiples of one orjson round trip of it:\n")
    print(
        "| messages | orjson round trip | hash all | read path | align, grown by 1 | align, oldest 10 trimmed | "
        "chain, grown by 1 | one version check | append 1 |\n|---|---|---|---|---|---|---|---|---|"
    )
    for length in LENGTHS:
        history = make_history(length)
        trip = take_median(lambda history=history: orjson.loads(orjson.dumps(history)))  # type: ignore[misc]
        ledger = SqliteLedger(folder / f"align{length}.db")
        ledger.open_session("s", NOW)
        stored = store(history)
        ids = tuple(message.id for message in stored)
        ledger.append("s", stored, [Splice(0, 0, ids)], version=0, now=NOW)
        path = ledger.read_path("s")
        grown = [*path.digests, "00" * 16]
        figures = [
            take_median(lambda: [digest_message(raw) for raw in history]),  # noqa: B023  (run at once)
            take_median(lambda: ledger.read_path("s")),  # noqa: B023
            take_median(lambda: align(path.digests, grown)),  # noqa: B023
            take_median(lambda: align(path.digests, grown[10:])),  # noqa: B023
            take_median(lambda: chain_path(path, grown)),  # noqa: B023
            take_median(lambda: ledger.read_session("s")),  # noqa: B023
            time_single_appends(ledger, "s", path),
        ]
        cells = [f"{taken / trip:.2f}× ({taken * 1e3:.2f} ms)" for taken in figures]
        print(f"| {length:,} | {trip * 1e3:.2f} ms | " + " | ".join(cells) + " |")
        ledger.close()
    print()


def time_single_appends(ledger: SqliteLedger, name: str, path: MessagePath) -> float:
    """Seconds of appending one message to a session of this length."""
    tail, version, length = path.ids[-1], path.version, len(path.ids)
    times = []
    for number in range(50):
        digest = hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
        (link,) = chain_tail(tail, [digest])
        new = StoredMessage(link.id, link.parent, digest, "user", b"{}")
        started = time.perf_counter()
        version = ledger.append(name, [new], [Splice(length, length, (link.id,))], version=version, now=NOW) or 0
        times.append(time.perf_counter() - started)
        tail, length = link.id, length + 1
    return statistics.median(times)


def show_range(ratios: list[float]) -> str:
    """The middle of some ratios, and the lowest and highest of them: the worst turn counts too."""
    return f"{statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f})"


def show_postgres(folder: Path) -> None:
    """Both stores, both flushing every change to the disk; the server on this machine, over a socket."""
    binaries = find_binaries()
    if binaries is None or importlib.util.find_spec("psycopg") is None:
        print("PostgreSQL was not measured: its server or `psycopg` is not installed here.\n")
        return
    from refold.ledger.postgres import PostgresLedger

    server = PostgresServer(binaries, durable=True)
    try:
        stores: list[Ledger] = [
            SqliteLedger(folder / "beside.db", synchronous="full"),
            PostgresLedger(server.url()),
        ]
        stored = store(make_history(4_000))
        print("PostgreSQL on the same machine beside SQLite (`synchronous=full`), every change flushed to the disk:\n")
        print("| call | SQLite | PostgreSQL | SQLite is faster by |\n|---|---|---|---|")
        for piece in (1, 10, 100, 1_000):
            few = stored if piece > 1 else stored[:500]
            # In turns, so that a busy moment of the machine is one of both.
            rates = [[time_appends(ledger, f"{piece} {turn}", few, piece) for ledger in stores] for turn in range(5)]
            file, other = map(statistics.median, zip(*rates, strict=True))
            ratio = show_range([one / two for one, two in rates])
            print(f"| append, {piece:,} at a time | {file:,.0f}/s | {other:,.0f}/s | {ratio} |")
        calls: dict[str, Callable[[Ledger], object]] = {
            "one version check": lambda ledger: ledger.read_session("1 0"),
            "read path, 4,000 messages": lambda ledger: ledger.read_path("100 0"),
            "read 4,000 messages": lambda ledger: ledger.read_messages("100 0"),
            "take and give back a lease": lambda ledger: (
                ledger.acquire_lease("1 0", "me", seconds=1, now=NOW),
                ledger.release_lease("1 0", "me"),
            ),
        }
        for name, call in calls.items():
            times = [[take_median(lambda one=ledger: call(one), 5) for ledger in stores] for _ in range(5)]  # type: ignore[misc]  # noqa: B023
            file, other = map(statistics.median, zip(*times, strict=True))
            ratio = show_range([two / one for one, two in times])
            print(f"| {name} | {file * 1e3:.2f} ms | {other * 1e3:.2f} ms | {ratio} |")
        print()
        for ledger in stores:
            ledger.close()
    finally:
        server.remove()


def show_crowd(folder: Path) -> None:
    print("A session of 20 messages in a file where other sessions hold many, median of one call:\n")
    print("| messages of others | file | open | read path | append 1 | first call |\n|---|---|---|---|---|---|")
    filler = store([{"role": "user", "content": f"{number} " + "x" * 200} for number in range(50_000)])
    ledger = SqliteLedger(folder / "crowd.db")
    add_small_session(ledger, "small")
    held = 0
    for wanted in (0, 100_000, 1_000_000):
        while held < wanted:
            ledger.open_session(f"other {held}", NOW)
            splice = Splice(0, 0, tuple(message.id for message in filler))
            ledger.append(f"other {held}", filler, [splice], version=0, now=NOW)
            held += len(filler)
        ledger.close()
        started = time.perf_counter()
        ledger.read_session("small")
        first = time.perf_counter() - started
        figures = [
            take_median(lambda: ledger.open_session("small", NOW), 200),
            take_median(lambda: ledger.read_path("small"), 200),
            time_single_appends(ledger, f"beside {held}", add_small_session(ledger, f"beside {held}")),
        ]
        cells = " | ".join(f"{taken * 1e3:.3f} ms" for taken in [*figures, first])
        size = (folder / "crowd.db").stat().st_size / 1e6
        print(f"| {held:,} | {size:,.0f} MB | {cells} |")
    ledger.close()
    print()


def add_small_session(ledger: SqliteLedger, name: str) -> MessagePath:
    """Store twenty messages; return their path."""
    small = store(make_history(20))
    ledger.open_session(name, NOW)
    ledger.append(name, small, [Splice(0, 0, tuple(message.id for message in small))], version=0, now=NOW)
    return ledger.read_path(name)


def show_hashes() -> None:
    print("Hashing one canonical message, 16 bytes kept:\n")
    print("| bytes | blake2b | sha256 | sha256 / blake2b |\n|---|---|---|---|")
    for size in (100, 1_000, 10_000, 1_000_000):
        body = b"x" * size
        times = max(3, 2_000_000 // size)
        blake = take_median(lambda: [hashlib.blake2b(body, digest_size=16).hexdigest() for _ in range(times)])  # noqa: B023
        sha = take_median(lambda: [hashlib.sha256(body).hexdigest()[:32] for _ in range(times)])  # noqa: B023
        print(f"| {size:,} | {blake / times * 1e6:.2f} µs | {sha / times * 1e6:.2f} µs | {sha / blake:.2f}× |")


def main() -> None:
    print("## The ledger\n\n`benchmarks/bench_ledger.py`\n")
    with tempfile.TemporaryDirectory() as folder:
        for show in (show_appends, show_postgres, show_alignment, show_crowd):
            print(show.__name__, file=sys.stderr)
            show(Path(folder))
    show_hashes()


if __name__ == "__main__":
    main()
