DROP VIEW messages;

-- What a message says: its texts, and of calls their names and arguments.
CREATE FUNCTION show_part(part json) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN CASE json_typeof(part)
        WHEN 'string' THEN part #>> '{}'
        WHEN 'array' THEN (
            SELECT string_agg(shown, E'\n' ORDER BY at) FROM (
                SELECT nullif(show_part(piece), '') AS shown, at
                FROM json_array_elements(part) WITH ORDINALITY AS pieces(piece, at)
            ) AS each_piece
        )
        WHEN 'object' THEN concat_ws(E'\n',
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
            convert_from(content, 'UTF8'), '\\u(0000|[dD][89a-fA-F]..)', '\\ufffd', 'g')::json), '');
    EXCEPTION WHEN OTHERS THEN
        RETURN show_bytes(content);
    END;
END $$;

-- For people with an SQL shell: all messages, and after the first of a span the summary that stands for it.
CREATE VIEW messages AS
SELECT session.id AS session_id, encode(message.id, 'hex') AS id, message.role AS role,
    show_text(message.body) AS content, message.created_at AS created_at, message.tokens AS tokens,
    EXISTS (
        SELECT 1 FROM fold_in_force AS fold JOIN cover ON cover.edit = fold.key
        WHERE fold.session = message.session AND message.seq BETWEEN cover.first AND cover.last
    ) AS compressed,
    NULL::json AS summary_of, message.seq AS place, true AS is_original,
    EXISTS (
        SELECT 1 FROM path WHERE path.session = message.session AND message.seq BETWEEN path.first AND path.last
    ) AS on_path, show_bytes(message.body) AS raw
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
    head.seq, false, true, NULL
FROM fold_in_force AS fold JOIN session ON session.key = fold.session
JOIN cover ON cover.edit = fold.key AND cover.place = 0
JOIN message AS head ON head.session = fold.session AND head.seq = cover.first;
