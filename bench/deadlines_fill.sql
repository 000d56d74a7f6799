-- A store full of deadlines, put in by SQL. {numbers} counts from the first to the last task, {id} spells one.
-- {born} is when the attempts began, {due} when they reach their limit or the pauses are over.

-- name: task
-- An open task of the lane that a task without role or services has.
INSERT INTO {schema}task
SELECT {id}, 'x', null, '', 1, 0, 'open', {born}, null, '{{}}', '{{}}', 'null', null,
       4398046511104000000 + {born}, null
FROM ({numbers}) AS s

-- name: timer
-- When it could next change by itself, where no lease says so.
INSERT INTO {schema}timer SELECT {id}, {due} FROM ({numbers}) AS s

-- name: lease
-- Its holder; no check-in is asked for before the limit, so that only the limit is left to fall.
INSERT INTO {schema}lease (task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
                           judged, stalled_at, renewed_at, progress, note, due_at)
SELECT {id}, 1, 'agent-' || (n % 100), {born}, {due}, null, null, 172800000, 30000, 10000, '', 0, null, {born},
       null, '', {due}
FROM ({numbers}) AS s

-- name: numbers_postgresql
SELECT n FROM generate_series({first}::bigint, {last}::bigint) AS n

-- name: numbers_sqlite
WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s

-- name: id_postgresql
't_' || lpad(n::text, 16, '0')

-- name: id_sqlite
't_' || printf('%016d', n)
