"""Taking words out of the index so that they are gone from its file, not only from its answers.

The words of a passage are read back from the index itself: the text they came from may be gone already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import apsw

from refold.recall.rows import SESSION_BITS, Mark, read_note
from refold.recall.words import find_words

# Above so many passages, rewriting the whole index once is cheaper than cutting each out of it.
_CUT_MAX = 500


def erase_messages(db: apsw.Connection, mark: Mark, ids: Sequence[str]) -> int:
    """Erase the passages, words and vectors of messages; return how many of them were indexed."""
    keys: list[int] = []
    count = 0
    for message_id in ids:
        sql = "SELECT first, count FROM source WHERE no = ? AND id = ?"
        found = db.execute(sql, (mark.no, message_id)).fetchone()
        if found is not None:
            keys.extend(range(mark.key(found[0]), mark.key(found[0]) + found[1]))
            db.execute("UPDATE source SET count = 0 WHERE no = ? AND id = ?", (mark.no, message_id))
            count += 1
    _erase_keys(db, mark, keys)
    return count


def erase_notes(db: apsw.Connection, mark: Mark, keys: Sequence[int]) -> None:
    """Erase notes of a session. Their text is here, so their words are known without searching the index for them."""
    sql = "INSERT INTO word (word, rowid, words) VALUES ('delete', ?, ?)"
    for key in keys:
        note = read_note(db, mark, key - mark.key(0))
        words = mark.add_prefix(find_words(note.text)) if note else ""
        if words:
            db.execute(sql, (key, words))
        db.execute("DELETE FROM note WHERE key = ?", (key,))


def erase_session(db: apsw.Connection, mark: Mark) -> None:
    """Erase a whole session."""
    low, high = mark.key(0), mark.key(0) + (1 << SESSION_BITS)
    _erase_words(db, mark, None)
    for table in ("passage", "note", "vector"):
        db.execute(f"DELETE FROM {table} WHERE key >= ? AND key < ?", (low, high))
    db.execute("DELETE FROM source WHERE no = ?", (mark.no,))
    db.execute("DELETE FROM indexed WHERE no = ?", (mark.no,))


def erase_all(db: apsw.Connection) -> None:
    """Erase every session."""
    db.execute("INSERT INTO word (word) VALUES ('delete-all')")
    for table in ("passage", "note", "vector", "source", "indexed"):
        db.execute(f"DELETE FROM {table}")


def _erase_keys(db: apsw.Connection, mark: Mark, keys: Sequence[int]) -> None:
    _erase_words(db, mark, set(keys))
    for table in ("passage", "vector"):
        db.executemany(f"DELETE FROM {table} WHERE key = ?", ((key,) for key in keys))


def _erase_words(db: apsw.Connection, mark: Mark, keys: set[int] | None) -> None:
    """Erase the words at these rows, or all of the session's."""
    if keys is not None and not keys:
        return
    found = collect_words(db, mark, keys)
    cuts = len(found) <= _CUT_MAX
    if not cuts:
        db.execute("INSERT INTO word (word, rank) VALUES ('secure-delete', 0)")
    sql = "INSERT INTO word (word, rowid, words) VALUES ('delete', ?, ?)"
    db.executemany(sql, ((key, " ".join(words)) for key, words in found.items()))
    if not cuts:
        db.execute("INSERT INTO word (word) VALUES ('optimize')")
        db.execute("INSERT INTO word (word, rank) VALUES ('secure-delete', 1)")


def collect_words(db: apsw.Connection, mark: Mark, keys: Iterable[int] | None = None) -> dict[int, list[str]]:
    """Return the words of a session as the index has them, with their prefix, by row."""
    wanted = None if keys is None else set(keys)
    found: defaultdict[int, list[str]] = defaultdict(list)
    # '}' is what follows '|'.
    sql = "SELECT term, doc FROM word_list WHERE term >= ? AND term < ?"
    for word, key in db.execute(sql, (mark.prefix, f"{mark.no:x}}}")):
        if wanted is None or key in wanted:
            found[key].append(word)
    return found
