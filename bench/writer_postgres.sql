-- The steps of the raw writer on PostgreSQL: each is one statement and one transaction, and the ids go in once.

-- name: submit
-- Tasks that can be claimed.
WITH x AS MATERIALIZED (SELECT unnest($1::text[]) AS id),
     t AS (INSERT INTO allswell.task
           SELECT id, 'x', NULL, '', 1, 0, 'open', $2::bigint, NULL, '{}', '{}', 'null', NULL,
                  4398046511104000000 + $2::bigint, NULL FROM x),
     r AS (INSERT INTO allswell.ready SELECT id, 1, 4398046511104000000 + $2::bigint FROM x),
     e AS (INSERT INTO allswell.journal (at, events)
           SELECT $2::bigint,
                  '[' || string_agg('{"kind":"task_submitted","task":"' || id || '","data":{"name":"x"}}', ',') || ']'
           FROM x)
INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at

-- name: claim
-- The best of them: leases with their timers, events.
WITH x AS MATERIALIZED (
         SELECT task AS id, lane, rank FROM allswell.ready WHERE lane = 1 ORDER BY rank, task LIMIT $1::integer
         FOR UPDATE SKIP LOCKED),
     r AS (DELETE FROM allswell.ready AS r USING x
           WHERE r.lane = x.lane AND r.rank = x.rank AND r.task = x.id),
     l AS (INSERT INTO allswell.lease
           SELECT id, 1, 'bench', $2::bigint, $2::bigint + 900000, NULL, NULL, 300000, 30000, 10000, '', 0, NULL,
                  $2::bigint, NULL, '', $2::bigint + 330000 FROM x),
     e AS (INSERT INTO allswell.journal (at, events)
           SELECT $2::bigint, '[' || string_agg('{"kind":"task_claimed","task":"' || id
                  || '","agent":"bench","token":1,"data":{"deadline":1794788367078}}', ',') || ']'
           FROM x HAVING count(*) > 0),
     k AS (INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
           ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at)
SELECT id FROM x

-- name: beat
-- Check-ins.
UPDATE allswell.lease AS l SET renewed_at = $2::bigint, quiet = 0
FROM unnest($1::text[]) AS x(id) WHERE l.task = x.id AND l.token = 1

-- name: complete
-- Tasks with their first attempts, leases, events.
WITH x AS MATERIALIZED (SELECT unnest($1::text[]) AS id),
     t AS (UPDATE allswell.task AS t
           SET state = 'done', ended_at = $2::bigint, result = 'null',
               record = '{"token":1,"reason":"completed","ended_by":"yc8wkky1zcwyyvck.2"}',
               attempt = '["bench",1794788367078,1794788367078,"done","yc8wkky1zcwyyvck.2","completed"]'
           FROM x WHERE t.id = x.id),
     l AS (DELETE FROM allswell.lease AS l USING x WHERE l.task = x.id AND l.token = 1),
     e AS (INSERT INTO allswell.journal (at, events)
           SELECT $2::bigint, '[' || string_agg('{"kind":"task_completed","task":"' || id
                  || '","agent":"bench","token":1,"data":{"elapsed_ms":26}}', ',') || ']'
           FROM x)
INSERT INTO allswell.mark (line, number, at) VALUES ('raw', 1, $2::bigint)
ON CONFLICT (line) DO UPDATE SET number = mark.number + 1, at = excluded.at
