"""Salvage: copy what can be read of a damaged SQLite ledger into a new file, and list what is lost.

The damaged file is never changed: it is read from a copy. Rows are copied range by range, so that a damaged page costs
only the rows on it. Messages and contents to which no readable page leads any more are read page by page. Then every
session is made consistent: content that fails its checksum is left out like forgotten content, edits that no longer
match their messages are dropped, and a session with missing messages is chained again from those that are left. The
new file passes ``verify``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import apsw

from refold.conversation.message import ROOT, Role, chain_id
from refold.errors import LedgerError, RefoldError
from refold.ledger.align import chain_tail
from refold.ledger.codec import load_json
from refold.ledger.records import Finding, SessionRow, StoredMessage, WholeSession
from refold.ledger.sql.database import Span, find_runs, has_overlap
from refold.ledger.sql.edits import read_rows
from refold.ledger.sql.messages import read_ids
from refold.ledger.sql.sessions import delete_session, find_session
from refold.ledger.sqlite import SqliteDatabase, SqliteLedger
from refold.ledger.sqlite_file import APPLICATION_ID, LedgerFile
from refold.ledger.verify import DigestOf, check_edit, check_raw, repair_session

# Each table with its primary key.
_TABLES = {
    "session": ("key",),
    "message": ("session", "seq"),
    "raw": ("key",),
    "path": ("session", "rank"),
    "batch": ("key",),
    "edit": ("key",),
    "cover": ("edit", "place"),
    "fact": ("key",),
    "event": ("id",),
    "usage": ("key",),
}
# Messages and their content are read even if the page that leads to them is lost. For each table: the kinds of page
# that hold its rows, and a condition that only its rows meet.
_ORPHANS = {
    "raw": (frozenset((0x0D,)), "typeof(body) = 'blob'"),
    "message": (
        frozenset((0x0A, 0x02)),
        "typeof(seq) = 'integer' AND typeof(id) = 'blob' AND typeof(parent) = 'blob' AND typeof(digest) = 'blob'",
    ),
}
_DAMAGED = "damaged"
_UNASSIGNED = "salvaged-unassigned"
_HEADER_BYTES = 100
# A header is damaged if it claims that the file was more than this many times larger than it is.
_GROWTH_MAX = 64
_KEY_BITS = 40
_TRIES_MIN = 5_000
_TRIES_PER_ROW = 20
_UNREADABLE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, UnicodeDecodeError)


@dataclass(slots=True)
class Salvaged:
    """The new file, what it holds, and what was lost."""

    path: Path
    sessions: int = 0
    messages: int = 0
    lost: list[Finding] = field(default_factory=list)


def salvage(path: Path, target: Path, digest: DigestOf, now: float) -> Salvaged:
    """Copy what can be read of the ledger at ``path`` to ``target``, which must not exist."""
    if target.exists():
        raise LedgerError("{target} exists; move it away first", target=target)
    file = LedgerFile(target)
    made = Salvaged(target)
    try:
        with tempfile.TemporaryDirectory() as folder, file.write() as new:
            for name, count in _copy_tables(_copy_file(path, Path(folder), new), new):
                made.lost.append(Finding("", f"table {name}: rows in {count} places cannot be read", False))
        with file.write() as new:
            keys = _list_sessions(new, made)
            unassigned = _take_unassigned(new, digest, made)
        ledger = SqliteLedger(target)
        if unassigned is not None:
            ledger.put_whole(unassigned, now)
        for key, name in keys:
            whole = _settle(file, key, name, digest=digest, made=made)
            if whole is not None and not ledger.put_whole(whole, now):
                made.lost.append(Finding(name, "its messages cannot be stored under its name", False))
        with file.read() as new:
            made.sessions, made.messages = (
                int(new.execute(sql).get) for sql in ("SELECT count(*) FROM session", "SELECT count(raw) FROM message")
            )
        ledger.close()
    finally:
        file.close()
    return made


def _copy_file(path: Path, folder: Path, new: apsw.Connection) -> apsw.Connection:
    """Open a copy of the damaged file, with its log; replace its header and schema by new ones if they are damaged."""
    copy = folder / "damaged.db"
    content = bytearray(path.read_bytes())
    empty = new.serialize("main")
    page_bytes = int.from_bytes(empty[16:18], "big")
    whole = int.from_bytes(content[28:32], "big") * page_bytes
    is_plausible = content[:18] == empty[:18] and whole <= _GROWTH_MAX * max(len(content), page_bytes)
    if not is_plausible:
        content[:_HEADER_BYTES] = _make_header(empty, len(content))
    elif len(content) < whole:
        # SQLite refuses a truncated file as a whole; an empty page only loses what was on it.
        content += bytes(whole - len(content))
    copy.write_bytes(content)
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        shutil.copyfile(log, folder / "damaged.db-wal")
    connection = _open_copy(copy)
    if connection is None:
        # A ledger begins with the same pages as a new one: the schema, and the first page of each table.
        rooted = {page for (page,) in new.execute("SELECT rootpage FROM sqlite_schema")}
        for page in range(len(empty) // page_bytes):
            if page + 1 not in rooted:
                own = slice(page * page_bytes, (page + 1) * page_bytes)
                content[own] = empty[own]
        content[:_HEADER_BYTES] = _make_header(empty, len(content))
        copy.write_bytes(content)
        connection = _open_copy(copy)
    if connection is None:
        raise LedgerError("{path}: no part of a ledger can be read from it; restore it from a backup", path=path)
    return connection


def _open_copy(copy: Path) -> apsw.Connection | None:
    """Open a copy; None if its schema cannot be read."""
    connection = apsw.Connection(str(copy))
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if tables.issuperset(_TABLES) and int(connection.pragma("application_id")) == APPLICATION_ID:
            return connection
    except (*_UNREADABLE, apsw.SQLError):
        pass
    connection.close()
    return None


def _make_header(empty: bytes, size: int) -> bytes:
    """Return the header of a new ledger for a file of this size."""
    header = bytearray(empty[:_HEADER_BYTES])
    header[28:32] = (size // int.from_bytes(header[16:18], "big")).to_bytes(4, "big")
    header[32:40] = bytes(8)  # No free pages: pages that were free stay unused.
    header[92:96] = header[24:28]  # The page count is valid for this change counter.
    return bytes(header)


def _copy_tables(old: apsw.Connection, new: apsw.Connection) -> Iterator[tuple[str, int]]:
    """Copy all tables; yield each that lost rows, with the number of places where reading failed."""
    for table, keys in _TABLES.items():
        columns = [row[1] for row in new.execute(f"PRAGMA table_info({table})")]
        known = {row[1] for row in old.execute(f"PRAGMA table_info({table})")}
        names = ", ".join(f'"{column}"' for column in columns if column in known)
        marks = ", ".join("?" * len([column for column in columns if column in known]))
        failed = 0
        for rows in _read_ranges(old, f"SELECT {names} FROM {table}", keys):
            if rows is None:
                failed += 1
                continue
            new.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", rows)
        if failed:
            for rows in _read_orphans(old, table, f"SELECT {names} FROM {table}"):
                new.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", rows)
            yield table, failed
    old.close()


def _read_ranges(db: apsw.Connection, select: str, keys: Sequence[str]) -> Iterator[list[Any] | None]:
    """Yield the rows of a table by ranges of its first key; None for each place that cannot be read.

    A range that fails is halved. If a single value of the first key fails, its rows are read by the second key. Every
    row that is read allows more tries, so a table of which nothing can be read is given up soon.
    """
    waiting = deque(_list_ranges(""))
    tries = _TRIES_MIN
    while waiting and tries > 0:
        where, low, high = waiting.popleft()
        key, *rest = keys[where.count("=") :]
        try:
            rows = db.execute(f"{select} WHERE {where}{key} BETWEEN ? AND ?", (low, high)).fetchall()
        except _UNREADABLE:
            tries -= 1
            if low < high:
                middle = (low + high) // 2
                waiting += ((where, low, middle), (where, middle + 1, high))
            elif rest:
                waiting.extend(_list_ranges(f"{where}{key} = {low} AND "))
            else:
                yield None
        else:
            tries += _TRIES_PER_ROW * len(rows)
            yield rows
    if waiting:
        yield None


def _list_ranges(where: str) -> Iterator[tuple[str, int, int]]:
    """Yield ranges that cover every key, smaller ones first: keys count from 1, and the highest is not known."""
    yield from ((where, 1 << bits >> 1, (1 << bits) - 1) for bits in range(_KEY_BITS + 1))


def _read_orphans(db: apsw.Connection, table: str, select: str) -> Iterator[list[Any]]:
    """Yield the rows of pages that may be unreachable: each page is read as if it were the whole table."""
    kinds, belongs = _ORPHANS.get(table, (frozenset(), ""))
    if not kinds:
        return
    with suppress(*_UNREADABLE):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    content, page_bytes = Path(db.filename).read_bytes(), int(db.pragma("page_size"))
    where = "WHERE type = 'table' AND name = ?"
    (first,) = next(db.execute(f"SELECT rootpage FROM sqlite_schema {where}", (table,)))
    # Two objects that begin at the same page make a schema invalid; the object there was read as the table that it is.
    taken = {page for (page,) in db.execute("SELECT rootpage FROM sqlite_schema")}
    for page in range(2, len(content) // page_bytes + 1):
        if content[(page - 1) * page_bytes] in kinds and page not in taken:
            _begin_at(db, table, page)
            with suppress(*_UNREADABLE):
                yield db.execute(f"{select} NOT INDEXED WHERE {belongs}").fetchall()
    _begin_at(db, table, first)


def _begin_at(db: apsw.Connection, table: str, page: int) -> None:
    """Make a table of a copy begin at another page."""
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET rootpage = ? WHERE type = 'table' AND name = ?", (page, table))
    db.execute("PRAGMA writable_schema = RESET")


def _list_sessions(new: apsw.Connection, made: Salvaged) -> list[tuple[int, str]]:
    """Return every session by key and name; one whose row is lost gets a new name."""
    db = SqliteDatabase(new)
    for (key,) in new.execute(
        "SELECT DISTINCT session FROM message WHERE session NOT IN (SELECT key FROM session)"
    ).fetchall():
        name = f"salvaged-{key}"
        made.lost.append(Finding(name, "its name, model and settings are lost", is_derived=False))
        new.execute("INSERT INTO session (key, id, created_at, updated_at) VALUES (?, ?, 0, 0)", (key, name))
    _drop_unreadable(new, made)
    for table in ("path", "batch", "edit", "cover", "fact", "event", "usage"):
        new.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT key FROM session)")
    return [(key, db.decode(name)) for key, name in db.fetch_all("SELECT key, id FROM session ORDER BY key")]


def _take_unassigned(new: apsw.Connection, digest: DigestOf, made: Salvaged) -> WholeSession | None:
    """Return contents whose messages are lost as a separate session. Nothing is left to check them against."""
    sql = "SELECT key, body FROM raw WHERE key NOT IN (SELECT raw FROM message WHERE raw IS NOT NULL) ORDER BY key"
    found: list[StoredMessage] = []
    for key, body in SqliteDatabase(new).fetch_all(sql):
        try:
            value = load_json(body)
            found.append(StoredMessage("", "", digest(value), _find_role(value), body))
        except (ValueError, RefoldError):
            made.lost.append(Finding("", f"content {key} belongs to no message and is damaged", is_derived=False))
    new.execute("DELETE FROM raw WHERE key NOT IN (SELECT raw FROM message WHERE raw IS NOT NULL)")
    # A content that is stored from here on must not take the number of a lost one, to which a message still refers.
    new.execute("UPDATE message SET raw = NULL WHERE raw NOT IN (SELECT key FROM raw)")
    if not found:
        return None
    what = f"{len(found)} contents have lost their session and their checksums; they are here in the order of arrival"
    made.lost.append(Finding(_UNASSIGNED, what, is_derived=False))
    return _chain_again(SessionRow(_UNASSIGNED, 0.0, 0.0), found)


def _find_role(value: object) -> Role:
    role = value.get("role") if isinstance(value, dict) else None
    return next((known for known in get_args(Role) if known == role), "user")


def _drop_unreadable(new: apsw.Connection, made: Salvaged) -> None:
    """Delete rows whose JSON was damaged without SQLite noticing; a session keeps its row and loses its settings."""
    for table, key, column in (("session", "key", "settings"), ("event", "id", "fields"), ("batch", "key", "reason")):
        for one, value in new.execute(f"SELECT {key}, {column} FROM {table}").fetchall():
            try:
                load_json(value if isinstance(value, bytes) else str(value).encode())
            except ValueError:
                if table == "batch" and isinstance(value, str):
                    continue  # A sentence, as early versions stored it.
                made.lost.append(Finding("", f"{table} {one}: its {column} are damaged", is_derived=False))
                if table == "session":
                    new.execute("UPDATE session SET settings = '{}' WHERE key = ?", (one,))
                else:
                    new.execute(f"DELETE FROM {table} WHERE {key} = ?", (one,))


def _settle(file: LedgerFile, key: int, name: str, *, digest: DigestOf, made: Salvaged) -> WholeSession | None:
    """Make one session consistent. If messages are missing, delete it and return it chained again from those left."""

    def lose(what: str) -> None:
        made.lost.append(Finding(name, what, is_derived=False))

    with file.write() as new:
        db = SqliteDatabase(new)
        found = find_session(db, name)
        assert found is not None
        messages = list(_read_messages(new, key, digest))
        missing = _find_missing(messages, found.seq_last)
        for first, last in missing:
            lose(f"message {first} is lost" if first == last else f"messages {first} to {last} are lost")
        for message in messages:
            if message.is_forgotten and message.role == _DAMAGED:
                lose(f"the content of message {message.seq} is lost")
        if missing:
            edits = int(new.execute("SELECT count(*) FROM edit WHERE session = ?", (key,)).get)
            if edits:
                lose(f"{edits} edits are lost with them; folds are made again when they are needed")
            delete_session(db, key)
            return _chain_again(found.row, messages)
        _drop_content(new, key, [one.seq for one in messages if one.role == _DAMAGED])
        _drop_edits(db, key, lose)
        _mend_path(new, key, [one.id for one in messages], lose)
        repair_session(db, key)
    return None


def _read_messages(new: apsw.Connection, key: int, digest_of: DigestOf) -> Iterator[StoredMessage]:
    """Yield a session's messages; one whose content fails its check is marked as damaged."""
    sql = (
        "SELECT seq, id, parent, digest, role, tokens, created_at, message.raw, checksum, body "
        "FROM message LEFT JOIN raw ON raw.key = message.raw WHERE session = ? ORDER BY seq"
    )
    for seq, one, parent, digest, role, tokens, created_at, raw, stored_sum, body in new.execute(sql, (key,)):
        is_forgotten = raw is None and stored_sum is None
        is_sound = next(check_raw(digest, body, stored_sum, digest_of), None) is None
        yield StoredMessage(
            id=one.hex(),
            parent=parent.hex(),
            digest=digest.hex(),
            role=role if is_forgotten or is_sound else _DAMAGED,  # type: ignore[arg-type]
            raw=body if is_sound else b"",
            tokens=tokens,
            created_at=created_at,
            is_forgotten=not is_sound,
            seq=seq,
        )


def _find_missing(messages: Sequence[StoredMessage], seq_last: int) -> list[tuple[int, int]]:
    """Return the runs of message numbers that are not there, or that do not follow from their parents."""
    known = {ROOT}
    there: set[int] = set()
    for message in messages:
        if message.parent in known and chain_id(message.parent, message.digest) == message.id:
            there.add(message.seq)
            known.add(message.id)
    # A message after a gap has no parent here. It is intact and only needs a new chain.
    sound = there | {message.seq for message in messages if message.role != _DAMAGED}
    most = max((seq_last, *(message.seq for message in messages)), default=0)
    missing = [seq for seq in range(1, most + 1) if seq not in sound]
    if not missing and len(there) < len(messages):
        return [(most + 1, most + 1)]
    return find_runs(missing)


def _chain_again(row: SessionRow, messages: Sequence[StoredMessage]) -> WholeSession:
    """Return a session of the messages that have content, in the order of arrival."""
    left = [message for message in messages if not message.is_forgotten]
    links = chain_tail(ROOT, [one.digest for one in left])
    chained = [replace(one, id=link.id, parent=link.parent) for one, link in zip(left, links, strict=True)]
    return WholeSession(row, tuple(chained), tuple(one.id for one in chained))


def _drop_content(new: apsw.Connection, key: int, seqs: Sequence[int]) -> None:
    """Mark messages as having no content, as forgotten ones have."""
    for seq in seqs:
        new.execute("UPDATE message SET raw = NULL, checksum = NULL WHERE session = ? AND seq = ?", (key, seq))
    new.execute("DELETE FROM raw WHERE key NOT IN (SELECT raw FROM message WHERE raw IS NOT NULL)")


def _drop_edits(db: SqliteDatabase, key: int, lose: Callable[[str], None]) -> None:
    """Delete edits that are not what their id says, or whose batch is gone, and facts of batches that are gone."""
    rows = read_rows(db, key, active_only=False)
    ids = read_ids(db, key, 1, max((span[1] for row in rows for span in row.spans), default=0))
    batches = {one for (one,) in db.fetch_all("SELECT key FROM batch WHERE session = ?", (key,))}
    for row in rows:
        stored = db.fetch_value("SELECT batch FROM edit WHERE key = ?", (row.key,))
        if (stored is not None and stored not in batches) or list(check_edit(row, ids)):
            db.run("DELETE FROM edit WHERE key = ?", (row.key,))
            lose(f"an edit is lost ({row.id})")
    db.run("DELETE FROM cover WHERE session = ? AND edit NOT IN (SELECT key FROM edit)", (key,))
    facts = "FROM fact WHERE session = ? AND batch NOT IN (SELECT key FROM batch WHERE session = ?)"
    if gone := db.fetch_value(f"SELECT count(*) {facts}", (key, key)):
        db.run(f"DELETE {facts}", (key, key))
        lose(f"{gone} facts are lost")


def _mend_path(new: apsw.Connection, key: int, ids: Sequence[str], lose: Callable[[str], None]) -> None:
    """Replace an invalid path by all messages in the order of arrival."""
    sql = "SELECT first, last FROM path WHERE session = ? ORDER BY rank"
    runs: list[Span] = [(first, last) for first, last in SqliteDatabase(new).fetch_all(sql, (key,))]
    is_sound = all(1 <= first <= last <= len(ids) for first, last in runs) and not has_overlap(runs)
    if (is_sound and runs) or not ids:
        return
    lose("which of its branches was current is lost; all messages are on the path")
    new.execute("DELETE FROM path WHERE session = ?", (key,))
    new.execute("INSERT INTO path VALUES (?, 0, 1, ?)", (key, len(ids)))
