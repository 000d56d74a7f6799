-- name: limit_statements
-- Bounds every statement of this transaction, and its waits for locks; a shorter limit that holds already is kept.
SELECT set_config(name, least(nullif(setting::bigint, 0), %s)::text, true)
FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout');
