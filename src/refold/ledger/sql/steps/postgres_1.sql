
CREATE TABLE session (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    wire text NOT NULL DEFAULT '',
    model text NOT NULL DEFAULT '',
    settings bytea NOT NULL DEFAULT '{}',
    seq_last bigint NOT NULL DEFAULT 0,
    path_version bigint NOT NULL DEFAULT 0,
    edits_version bigint NOT NULL DEFAULT 0,
    message_count bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    compression_count bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);  -- Room to change a row in its place.
CREATE INDEX session_by_change ON session (updated_at);

CREATE TABLE message (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    id bytea NOT NULL,
    parent bytea NOT NULL,
    digest bytea NOT NULL,
    role text NOT NULL,
    tokens bigint NOT NULL,
    created_at double precision NOT NULL,
    body bytea,             -- NULL: forgotten
    checksum bytea,         -- of digest and body
    PRIMARY KEY (session, seq)
);
CREATE UNIQUE INDEX message_by_id ON message (session, id);
CREATE INDEX message_by_digest ON message (session, digest);
CREATE INDEX message_forgotten ON message (session) WHERE body IS NULL;

CREATE TABLE path (
    session bigint NOT NULL,
    rank bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (session, rank)
) WITH (fillfactor = 70);

CREATE TABLE batch (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    tokens_before bigint NOT NULL,
    tokens_after bigint NOT NULL,
    created_at double precision NOT NULL
);
CREATE UNIQUE INDEX batch_by_id ON batch (session, id);

CREATE TABLE edit (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    level bigint NOT NULL,
    batch bigint,           -- NULL: made on arrival
    is_active boolean NOT NULL,
    covered bigint NOT NULL,
    created_at double precision NOT NULL,
    payload bytea NOT NULL
);
CREATE UNIQUE INDEX edit_by_id ON edit (session, id);
CREATE INDEX edit_by_batch ON edit (batch);
CREATE INDEX edit_by_fold ON edit (session) WHERE kind = 'fold' AND is_active;

CREATE TABLE cover (
    edit bigint NOT NULL,
    place bigint NOT NULL,
    session bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (edit, place)
);
CREATE INDEX cover_by_span ON cover (session, last, first);

CREATE TABLE fact (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    batch bigint NOT NULL,
    kind text NOT NULL,
    text text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,  -- of kind and text, which may be longer than an index holds
    handle text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL
);
CREATE UNIQUE INDEX fact_by_digest ON fact (session, digest);

CREATE TABLE event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    kind text NOT NULL,
    created_at double precision NOT NULL,
    fields bytea NOT NULL
);
CREATE INDEX event_by_session ON event (session, id);

CREATE TABLE usage (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    created_at double precision NOT NULL,
    model text NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    counted_tokens bigint NOT NULL,
    path_length bigint NOT NULL,
    edits_version bigint NOT NULL
);
CREATE INDEX usage_by_session ON usage (session, key);

CREATE TABLE lease (
    session bigint PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    expires_at double precision NOT NULL
) WITH (fillfactor = 70);

-- A fold is in force while all it covers is on the path.
CREATE VIEW fold_in_force AS
SELECT edit.* FROM edit
WHERE kind = 'fold' AND is_active AND covered = (
    SELECT coalesce(sum(least(path.last, cover.last) - greatest(path.first, cover.first) + 1), 0)
    FROM cover JOIN path ON path.session = cover.session AND path.first <= cover.last AND path.last >= cover.first
    WHERE cover.edit = edit.key
);

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
        convert_from(content, 'UTF8'), '\\u(0000|[dD][89a-fA-F]..)', '\\ufffd', 'g')::json ->> name;
END $$;

-- For people with an SQL shell: all messages, and after the first of a span the summary that stands for it.
CREATE VIEW messages AS
SELECT session.id AS session_id, encode(message.id, 'hex') AS id, message.role AS role,
    show_bytes(message.body) AS content, message.created_at AS created_at, message.tokens AS tokens,
    EXISTS (
        SELECT 1 FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key
        WHERE fold.session = message.session AND message.seq BETWEEN cover.first AND cover.last
    ) AS compressed,
    NULL::json AS summary_of, message.seq AS place, true AS is_original,
    EXISTS (
        SELECT 1 FROM path WHERE path.session = message.session AND message.seq BETWEEN path.first AND path.last
    ) AS on_path
FROM message JOIN session ON session.key = message.session
UNION ALL
SELECT session.id, fold.id, show_field(fold.payload, 'role'), show_field(fold.payload, 'text'), head.created_at,
    show_field(fold.payload, 'tokens_after')::bigint,
    EXISTS (
        SELECT 1 FROM fold_in_force AS outer_fold JOIN cover ON cover.edit = outer_fold.key
        WHERE outer_fold.session = fold.session AND head.seq BETWEEN cover.first AND cover.last
            AND (outer_fold.level, outer_fold.covered) > (fold.level, fold.covered)
    ),
    (
        SELECT json_agg(encode(message.id, 'hex') ORDER BY cover.place, message.seq) FROM cover
        JOIN message ON message.session = cover.session AND message.seq BETWEEN cover.first AND cover.last
        WHERE cover.edit = fold.key
    ),
    head.seq, false, true
FROM fold_in_force AS fold JOIN session ON session.key = fold.session
JOIN cover ON cover.edit = fold.key AND cover.place = 0
JOIN message AS head ON head.session = fold.session AND head.seq = cover.first;

CREATE VIEW sessions AS
SELECT id, to_timestamp(created_at) AS created_at, to_timestamp(updated_at) AS updated_at, wire, model, message_count,
    tokens, compression_count
FROM session;
