"""How every count of a session follows from the rest: for ``verify`` and ``repair``, in SQL that every store reads."""

from __future__ import annotations

_TOKENS = (
    "(SELECT CAST(coalesce(sum(message.tokens), 0) AS bigint) FROM path JOIN message "
    "ON message.session = path.session AND seq BETWEEN first AND last WHERE path.session = session.key)"
)
_LENGTH = "(SELECT CAST(coalesce(sum(last - first + 1), 0) AS bigint) FROM path WHERE path.session = session.key)"
# Every count in the row of a session, and its rule.
COUNTS = {
    "message_count": _LENGTH,
    "tokens": _TOKENS,
    "compression_count": "(SELECT count(*) FROM batch WHERE batch.session = session.key)",
    "seq_last": "(SELECT coalesce(max(seq), 0) FROM message WHERE message.session = session.key)",
}
# How many messages an edit covers.
COVERED = "(SELECT CAST(coalesce(sum(last - first + 1), 0) AS bigint) FROM cover WHERE cover.edit = edit.key)"
REPAIR_SESSION = f"UPDATE session SET {', '.join(f'{column} = {rule}' for column, rule in COUNTS.items())}"
REPAIR_EDITS = f"UPDATE edit SET covered = {COVERED}"
