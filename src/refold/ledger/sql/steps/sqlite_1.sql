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

-- For people with an SQL shell: all messages, and after the first of a span the summary that stands for it.
CREATE VIEW messages AS
SELECT session.id AS session_id, lower(hex(message.id)) AS id, message.role AS role,
    CAST(raw.body AS TEXT) AS content, message.created_at AS created_at, message.tokens AS tokens,
    EXISTS (
        SELECT 1 FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key
        WHERE fold.session = message.session AND message.seq BETWEEN cover.first AND cover.last
    ) AS compressed,
    NULL AS summary_of, message.seq AS place, 1 AS is_original,
    EXISTS (
        SELECT 1 FROM path WHERE path.session = message.session AND message.seq BETWEEN path.first AND path.last
    ) AS on_path
FROM message JOIN session ON session.key = message.session LEFT JOIN raw ON raw.key = message.raw
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
    first.seq, 0, 1
FROM fold_in_force AS fold JOIN session ON session.key = fold.session
JOIN cover AS head ON head.edit = fold.key AND head.place = 0
JOIN message AS first ON first.session = fold.session AND first.seq = head.first;

CREATE VIEW sessions AS
SELECT id, created_at, updated_at, wire, model, message_count, tokens, compression_count FROM session;
