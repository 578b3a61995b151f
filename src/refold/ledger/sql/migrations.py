"""The schemas of both stores, step by step. A released step is never changed; a later change is another step.

The tables and the views are written once, in SQLite's spelling, and translated for PostgreSQL.

A session's messages are numbered in the order of arrival (``seq``). A path, and what an edit covers, are runs of these
numbers. Hashes are bytes, not hex. In SQLite the raw bytes have a table of their own, so that reading a path does not
touch them; PostgreSQL itself moves large values out of the row. There, text is stored as ``encode_column`` writes it,
and JSON as bytes, because neither ``text`` nor ``jsonb`` holds every JSON value; collation "C" compares text by bytes.
"""

from __future__ import annotations

from refold.errors import LedgerError


def check_version(version: int, newest: int, where: str) -> int:
    """Return the version of a ledger; LedgerError if it is newer than this code."""
    if version > newest:
        raise LedgerError(
            "{where} has schema {version}, this refold knows up to {newest}; install a newer refold",
            where=where,
            version=version,
            newest=newest,
        )
    return version


def _replace(text: str, *pairs: tuple[str, str]) -> str:
    """Replace each ``old`` by its ``new``, in order."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


_TABLES = """
CREATE TABLE session (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    wire TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    settings BLOB NOT NULL DEFAULT '{}',
    seq_last INTEGER NOT NULL DEFAULT 0,
    path_version INTEGER NOT NULL DEFAULT 0,
    edits_version INTEGER NOT NULL DEFAULT 0,
    message_count INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    compression_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_by_change ON session (updated_at);

CREATE TABLE message (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent BLOB NOT NULL,
    digest BLOB NOT NULL,
    role TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    created_at REAL NOT NULL,
    raw INTEGER,            -- NULL: forgotten
    checksum BLOB,          -- of digest and raw bytes
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX message_by_id ON message (session, id);
CREATE INDEX message_by_digest ON message (session, digest);

CREATE TABLE raw (key INTEGER PRIMARY KEY, body BLOB NOT NULL);

CREATE TABLE path (
    session INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (session, rank)
) WITHOUT ROWID;

CREATE TABLE batch (
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after INTEGER NOT NULL,
    created_at REAL NOT NULL
);
CREATE UNIQUE INDEX batch_by_id ON batch (session, id);

CREATE TABLE edit (
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    level INTEGER NOT NULL,
    batch INTEGER,          -- NULL: made on arrival
    is_active INTEGER NOT NULL,
    covered INTEGER NOT NULL,
    created_at REAL NOT NULL,
    payload BLOB NOT NULL
);
CREATE UNIQUE INDEX edit_by_id ON edit (session, id);
CREATE INDEX edit_by_session ON edit (session, is_active);
CREATE INDEX edit_by_batch ON edit (batch);
CREATE INDEX edit_by_fold ON edit (session) WHERE kind = 'fold' AND is_active = 1;

CREATE TABLE cover (
    edit INTEGER NOT NULL,
    place INTEGER NOT NULL,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (edit, place)
) WITHOUT ROWID;
CREATE INDEX cover_by_span ON cover (session, last, first);

CREATE TABLE fact (
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    handle TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE UNIQUE INDEX fact_by_text ON fact (session, kind, text);
CREATE INDEX fact_by_session ON fact (session);

CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    created_at REAL NOT NULL,
    fields BLOB NOT NULL
);
CREATE INDEX event_by_session ON event (session);

CREATE TABLE usage (
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    created_at REAL NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    counted_tokens INTEGER NOT NULL,
    path_length INTEGER NOT NULL,
    edits_version INTEGER NOT NULL
);
CREATE INDEX usage_by_session ON usage (session);

CREATE TABLE lease (
    session INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at REAL NOT NULL
);

-- A fold is in force while all it covers is on the path.
CREATE VIEW fold_in_force AS
SELECT edit.* FROM edit
WHERE kind = 'fold' AND is_active = 1 AND covered = (
    SELECT total(min(path.last, cover.last) - max(path.first, cover.first) + 1)
    FROM cover JOIN path ON path.session = cover.session AND path.first <= cover.last AND path.last >= cover.first
    WHERE cover.edit = edit.key
);
"""

# The view for people with an SQL shell: all messages, and after the first of a span the summary that replaces it. A
# later step replaced the first version, which showed JSON.
_SQLITE_MESSAGES = """\
-- For people with an SQL shell: all messages, and after the first of a span the summary that stands for it.
CREATE VIEW messages AS
SELECT session.id AS session_id, lower(hex(message.id)) AS id, message.role AS role,
    message_text.content AS content, message.created_at AS created_at, message.tokens AS tokens,
    EXISTS (
        SELECT 1 FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key
        WHERE fold.session = message.session AND message.seq BETWEEN cover.first AND cover.last
    ) AS compressed,
    NULL AS summary_of, message.seq AS place, 1 AS is_original,
    EXISTS (
        SELECT 1 FROM path WHERE path.session = message.session AND message.seq BETWEEN path.first AND path.last
    ) AS on_path, CAST(raw.body AS TEXT) AS raw
FROM message JOIN session ON session.key = message.session LEFT JOIN raw ON raw.key = message.raw
LEFT JOIN message_text ON message_text.key = message.raw
UNION ALL
SELECT session.id, fold.id, json_extract(CAST(fold.payload AS TEXT), '$.role'),
    json_extract(CAST(fold.payload AS TEXT), '$.text'), first.created_at,
    json_extract(CAST(fold.payload AS TEXT), '$.tokens_after'),
    EXISTS (
        SELECT 1 FROM fold_in_force AS outer_fold JOIN cover ON cover.edit = outer_fold.key
        WHERE outer_fold.session = fold.session AND first.seq BETWEEN cover.first AND cover.last
            AND (outer_fold.level, outer_fold.covered) > (fold.level, fold.covered)
    ),
    (
        SELECT json_group_array(covered_id) FROM (
            SELECT lower(hex(message.id)) AS covered_id FROM cover
            JOIN message ON message.session = cover.session AND message.seq BETWEEN cover.first AND cover.last
            WHERE cover.edit = fold.key ORDER BY cover.place, message.seq
        )
    ),
    first.seq, 0, 1, NULL
FROM fold_in_force AS fold JOIN session ON session.key = fold.session
JOIN cover AS head ON head.edit = fold.key AND head.place = 0
JOIN message AS first ON first.session = fold.session AND first.seq = head.first;"""
_SQLITE_MESSAGES_1 = _replace(
    _SQLITE_MESSAGES,
    ("message_text.content AS content", "CAST(raw.body AS TEXT) AS content"),
    (" AS on_path, CAST(raw.body AS TEXT) AS raw", " AS on_path"),
    ("\nLEFT JOIN message_text ON message_text.key = message.raw", ""),
    ("first.seq, 0, 1, NULL", "first.seq, 0, 1"),
)
_SESSIONS = """
CREATE VIEW sessions AS
SELECT id, created_at, updated_at, wire, model, message_count, tokens, compression_count FROM session;
"""
_SQLITE_1 = f"{_TABLES}\n{_SQLITE_MESSAGES_1}\n{_SESSIONS}"

_POSTGRES_TABLES = _replace(
    _TABLES,
    # The content of a message is in its row. A fact is found by its digest: its text may be longer than an index holds.
    ("CREATE TABLE raw (key INTEGER PRIMARY KEY, body BLOB NOT NULL);\n\n", ""),
    ("raw INTEGER, ", "body BLOB, "),
    ("text TEXT NOT NULL,\n", "text NAME NOT NULL,\n    digest BLOB NOT NULL,\n"),
    (
        "UNIQUE INDEX fact_by_text ON fact (session, kind, text)",
        "UNIQUE INDEX fact_by_digest ON fact (session, digest)",
    ),
    ("CREATE INDEX fact_by_session ON fact (session);\n", ""),
    ("CREATE INDEX edit_by_session ON edit (session, is_active);\n", ""),
    ("event_by_session ON event (session)", "event_by_session ON event (session, id)"),
    ("usage_by_session ON usage (session)", "usage_by_session ON usage (session, key)"),
    ("total(min(", "coalesce(sum(least("),
    ("max(path.first, cover.first) + 1)", "greatest(path.first, cover.first) + 1), 0)"),
    ("is_active = 1", "is_active"),
    ("is_active INTEGER", "is_active boolean"),
    ("session INTEGER PRIMARY KEY", "session bigint PRIMARY KEY"),
    ("INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER PRIMARY KEY"),
    ("INTEGER PRIMARY KEY", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    # Names and texts that are compared or found.
    *((f" {column} TEXT", f" {column} NAME") for column in ("id", "handle", "owner")),
    ("NAME", 'text COLLATE "C"'),
    ("INTEGER", "bigint"),
    ("REAL", "double precision"),
    ("TEXT", "text"),
    ("BLOB", "bytea"),
    (" WITHOUT ROWID", ""),
)
_POSTGRES_MORE = """
CREATE INDEX message_forgotten ON message (session) WHERE body IS NULL;
-- Room to change a row in its place.
ALTER TABLE session SET (fillfactor = 70);
ALTER TABLE path SET (fillfactor = 70);
ALTER TABLE lease SET (fillfactor = 70);

-- JSON as people read it; what is no text that PostgreSQL can hold is shown escaped, or as U+FFFD.
CREATE FUNCTION show_bytes(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(content, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN encode(content, 'escape');
END $$;
CREATE FUNCTION show_field(content bytea, name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN convert_from(content, 'UTF8')::json ->> name;
EXCEPTION WHEN OTHERS THEN
    RETURN regexp_replace(
        convert_from(content, 'UTF8'), '\\\\u(0000|[dD][89a-fA-F]..)', '\\\\ufffd', 'g')::json ->> name;
END $$;
"""
_POSTGRES_MESSAGES = _replace(
    _SQLITE_MESSAGES,
    ("lower(hex(message.id)) AS id", "encode(message.id, 'hex') AS id"),
    ("message_text.content AS content", "show_text(message.body) AS content"),
    ("CAST(raw.body AS TEXT) AS raw", "show_bytes(message.body) AS raw"),
    (" LEFT JOIN raw ON raw.key = message.raw\nLEFT JOIN message_text ON message_text.key = message.raw", ""),
    ("NULL AS summary_of", "NULL::json AS summary_of"),
    ("1 AS is_original", "true AS is_original"),
    ("first.seq, 0, 1,", "first.seq, false, true,"),
    *(
        (f"json_extract(CAST(fold.payload AS TEXT), '$.{name}')", f"show_field(fold.payload, '{name}')")
        for name in ("role", "text")
    ),
    ("json_extract(CAST(fold.payload AS TEXT), '$.tokens_after')", "show_field(fold.payload, 'tokens_after')::bigint"),
    ("json_group_array(covered_id)", "json_agg(covered_id)"),
    ("lower(hex(message.id)) AS covered_id", "encode(message.id, 'hex') AS covered_id"),
    ("ORDER BY cover.place, message.seq\n        )", "ORDER BY cover.place, message.seq\n        ) AS covered"),
)
_POSTGRES_MESSAGES_1 = _replace(
    _POSTGRES_MESSAGES,
    ("show_text(message.body) AS content", "show_bytes(message.body) AS content"),
    (" AS on_path, show_bytes(message.body) AS raw", " AS on_path"),
    ("false, true, NULL", "false, true"),
)
_POSTGRES_SESSIONS = _replace(
    _SESSIONS, *((f" {column}", f" to_timestamp({column}) AS {column}") for column in ("created_at", "updated_at"))
)
_POSTGRES_1 = "\n".join((_POSTGRES_TABLES, _POSTGRES_MORE, _POSTGRES_MESSAGES_1, _POSTGRES_SESSIONS))

# ``messages.content`` is the text as people read it, computed from the JSON, which has a column of its own.
_SQLITE_2 = (
    """
DROP VIEW messages;

-- What a message says: its texts, and of calls their names and arguments. What holds half a character is shown as JSON.
CREATE VIEW message_text AS
SELECT key, CASE
    WHEN NOT json_valid(CAST(body AS TEXT)) OR instr(CAST(body AS TEXT), '\\ud') THEN CAST(body AS TEXT)
    ELSE coalesce((
        SELECT group_concat(shown, char(10)) FROM (
            SELECT piece.value AS shown FROM json_tree(CAST(raw.body AS TEXT)) AS piece
            WHERE instr(piece.path || '.', '.input.') = 0 AND instr(piece.path, '.input[') = 0 AND (
                (piece.type = 'text' AND piece.key IN ('text', 'content', 'thinking', 'refusal', 'arguments', 'output'))
                OR (piece.type = 'text' AND piece.key = 'name'
                    AND (piece.path <> '$' OR json_extract(CAST(raw.body AS TEXT), '$.arguments') IS NOT NULL))
                OR (piece.type = 'object' AND piece.key = 'input')
            ) ORDER BY piece.id
        )
    ), '')
END AS content
FROM raw;

"""
    + _SQLITE_MESSAGES
    + "\n"
)

_POSTGRES_2 = (
    """
DROP VIEW messages;

-- What a message says: its texts, and of calls their names and arguments.
CREATE FUNCTION show_part(part json) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN CASE json_typeof(part)
        WHEN 'string' THEN part #>> '{}'
        WHEN 'array' THEN (
            SELECT string_agg(shown, E'\\n' ORDER BY at) FROM (
                SELECT nullif(show_part(piece), '') AS shown, at
                FROM json_array_elements(part) WITH ORDINALITY AS pieces(piece, at)
            ) AS each_piece
        )
        WHEN 'object' THEN concat_ws(E'\\n',
            part ->> 'text', part ->> 'thinking', part ->> 'refusal', nullif(show_part(part -> 'content'), ''),
            nullif(show_part(part -> 'summary'), ''),
            CASE WHEN coalesce(part ->> 'arguments', part ->> 'input') IS NOT NULL THEN part ->> 'name' END,
            part ->> 'arguments', part ->> 'input', nullif(show_part(part -> 'output'), ''),
            nullif(show_part(part -> 'function'), ''), nullif(show_part(part -> 'tool_calls'), ''))
    END;
END $$;
CREATE FUNCTION show_text(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce(show_part(convert_from(content, 'UTF8')::json), '');
EXCEPTION WHEN OTHERS THEN
    BEGIN
        RETURN coalesce(show_part(regexp_replace(
            convert_from(content, 'UTF8'), '\\\\u(0000|[dD][89a-fA-F]..)', '\\\\ufffd', 'g')::json), '');
    EXCEPTION WHEN OTHERS THEN
        RETURN show_bytes(content);
    END;
END $$;

"""
    + _POSTGRES_MESSAGES
    + "\n"
)

SQLITE_STEPS: tuple[str, ...] = (_SQLITE_1, _SQLITE_2)
POSTGRES_STEPS: tuple[str, ...] = (_POSTGRES_1, _POSTGRES_2)
