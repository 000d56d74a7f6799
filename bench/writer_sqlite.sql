-- The steps of the raw writer on SQLite, each table once: :ids is one JSON list, :now the moment. A step is one
-- transaction of the statements that begin with its name.

-- name: submit_tasks
INSERT INTO task SELECT value, 'x', NULL, '', 1, 0, 'open', :now, NULL, '{}', '{}', 'null', NULL,
                        4398046511104000000 + :now, NULL FROM json_each(:ids);

-- name: submit_ready
INSERT INTO ready SELECT 1, 4398046511104000000 + :now, value FROM json_each(:ids);

-- name: submit_events
INSERT INTO journal (at, events)
SELECT :now, '[' || group_concat('{"kind":"task_submitted","task":"' || value || '","data":{"name":"x"}}') || ']'
FROM json_each(:ids);

-- name: pick
SELECT task FROM ready WHERE lane = 1 ORDER BY rank, task LIMIT ?;

-- name: claim_ready
DELETE FROM ready WHERE lane = 1 AND rank >= 0 AND task IN (SELECT value FROM json_each(:ids));

-- name: claim_leases
INSERT INTO lease
SELECT value, 1, 'bench', :now, :now + 900000, NULL, NULL, 300000, 30000, 10000, '', 0, NULL, :now, NULL, NULL, '',
       :now + 330000
FROM json_each(:ids);

-- name: claim_events
INSERT INTO journal (at, events)
SELECT :now, '[' || group_concat('{"kind":"task_claimed","task":"' || value
       || '","agent":"bench","token":1,"data":{"deadline":1794788367078}}') || ']'
FROM json_each(:ids);

-- name: beat_leases
UPDATE lease SET renewed_at = :now, checkin_at = :now
WHERE task IN (SELECT value FROM json_each(:ids)) AND token = 1;

-- name: complete_tasks
UPDATE task SET state = 'done', ended_at = :now, result = 'null',
                record = '{"token":1,"reason":"completed","ended_by":"yc8wkky1zcwyyvck.2"}',
                attempt = '["bench",1794788367078,1794788367078,"done","yc8wkky1zcwyyvck.2","completed"]'
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: complete_leases
DELETE FROM lease WHERE task IN (SELECT value FROM json_each(:ids)) AND token = 1;

-- name: complete_events
INSERT INTO journal (at, events)
SELECT :now, '[' || group_concat('{"kind":"task_completed","task":"' || value
       || '","agent":"bench","token":1,"data":{"elapsed_ms":26}}') || ']'
FROM json_each(:ids);
