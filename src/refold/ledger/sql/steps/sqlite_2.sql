DROP VIEW messages;

-- What a message says: its texts, and of calls their names and arguments. What holds half a character is shown as JSON.
CREATE VIEW message_text AS
SELECT key, CASE
    WHEN NOT json_valid(CAST(body AS TEXT)) OR instr(CAST(body AS TEXT), '\ud') THEN CAST(body AS TEXT)
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
JOIN message AS first ON first.session = fold.session AND first.seq = head.first;
