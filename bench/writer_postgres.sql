-- The steps of the raw writer on PostgreSQL: each is one statement and one transaction, and the ids go in once.

-- name: submit
-- Tasks that can be claimed.
WITH x AS MATERIALIZED (SELECT unnest($1::text[]) AS id),
     t AS (INSERT INTO allswell.task
           SELECT id, 'x', NULL, '', 1, 0, 'open', $2::bigint, NULL, '{}', '{}', 'null', NULL FROM x),
     r AS (INSERT INTO allswell.ready SELECT id, 1, 4398046511104000000 + $2::bigint FROM x),
     e AS (INSERT INTO allswell.event (at, kind, task, data)
           SELECT $2::bigint, 'task_submitted', id, '{"name":"x"}' FROM x)
INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at

-- name: claim
-- The best of them: leases, timers, events.
WITH x AS MATERIALIZED (
         SELECT task AS id FROM allswell.ready WHERE lane = 1 ORDER BY rank, task LIMIT $1::integer
         FOR UPDATE SKIP LOCKED),
     r AS (DELETE FROM allswell.ready AS r USING x WHERE r.task = x.id),
     l AS (INSERT INTO allswell.lease
           SELECT id, 1, 'bench', $2::bigint, $2::bigint + 900000, NULL, NULL, 300000, 30000, 10000, '', 0, NULL,
                  $2::bigint, NULL, NULL, '' FROM x),
     m AS (INSERT INTO allswell.timer SELECT id, $2::bigint + 330000 FROM x),
     e AS (INSERT INTO allswell.event (at, kind, task, agent, token, data)
           SELECT $2::bigint, 'task_claimed', id, 'bench', 1, '{"deadline":1794788367078}' FROM x),
     k AS (INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
           ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at)
SELECT id FROM x

-- name: beat
-- Check-ins.
UPDATE allswell.lease AS l SET renewed_at = $2::bigint, checkin_at = $2::bigint
FROM unnest($1::text[]) AS x(id) WHERE l.task = x.id AND l.token = 1

-- name: complete
-- Tasks, leases, timers, attempts, events.
WITH x AS MATERIALIZED (SELECT unnest($1::text[]) AS id),
     t AS (UPDATE allswell.task AS t
           SET state = 'done', ended_at = $2::bigint, result = 'null',
               record = '{"token":1,"reason":"completed","ended_by":"yc8wkky1zcwyyvck.2"}'
           FROM x WHERE t.id = x.id),
     l AS (DELETE FROM allswell.lease AS l USING x WHERE l.task = x.id AND l.token = 1),
     m AS (DELETE FROM allswell.timer AS m USING x WHERE m.owner = x.id),
     a AS (INSERT INTO allswell.attempt
           SELECT id, 1, 'bench', $2::bigint, $2::bigint, 'done', 'yc8wkky1zcwyyvck.2', 'completed', NULL FROM x),
     e AS (INSERT INTO allswell.event (at, kind, task, agent, token, data)
           SELECT $2::bigint, 'task_completed', id, 'bench', 1, '{"elapsed_ms":26}' FROM x)
INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at
