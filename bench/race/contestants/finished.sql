-- name: allswell tasks
INSERT INTO {schema}task (id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, payload, result,
                          rank, attempt)
SELECT {id}, 'noop', NULL, '', 1, 0, 'done', {ms}, {ms}, '{}',
       '{"token":1,"reason":"completed","ended_by":"yc8wkky1zcwyyvck.2"}', 'null', 'null', 4398046511104000000 + {ms},
       '["racer",{ms},{ms},"done","yc8wkky1zcwyyvck.2","completed"]'
FROM {n}

-- name: allswell events
INSERT INTO {schema}journal ({numbered}at, events)
SELECT {number}{ms},
       '[{"kind":"task_submitted","task":"' || {id} || '","data":{"name":"noop"}},'
       || '{"kind":"task_claimed","task":"' || {id} || '","agent":"racer","token":1,"data":{"deadline":1794788367078}},'
       || '{"kind":"task_completed","task":"' || {id} || '","agent":"racer","token":1,"data":{"elapsed_ms":26}}]'
FROM {n}

-- name: pgqueuer log
INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)
SELECT -n, s::pgqueuer_status, 0, 'noop', true
FROM {n}, unnest(ARRAY['queued', 'picked', 'successful']) AS s

-- name: procrastinate quiet
ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER

-- name: procrastinate jobs
INSERT INTO procrastinate_jobs (queue_name, task_name, status, attempts)
SELECT 'default', 'filled', 'succeeded', 1 FROM {n}

-- name: procrastinate events
INSERT INTO procrastinate_events (job_id, type)
SELECT j.id, t::procrastinate_job_event_type
FROM (SELECT id FROM procrastinate_jobs AS j
      WHERE task_name = 'filled' AND NOT EXISTS (SELECT FROM procrastinate_events AS e WHERE e.job_id = j.id)) AS j,
     unnest(ARRAY['deferred', 'started', 'succeeded']) AS t

-- name: procrastinate loud
ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER

-- name: absurd tasks
INSERT INTO absurd.t_default (task_id, task_name, params, max_attempts, first_started_at, state, attempts,
                              completed_payload)
SELECT gen_random_uuid(), 'filled', '{}', 5, now(), 'completed', 1, 'null' FROM {n}

-- name: absurd runs
INSERT INTO absurd.r_default (run_id, task_id, attempt, state, claimed_by, available_at, started_at, completed_at, result)
SELECT gen_random_uuid(), t.task_id, 1, 'completed', 'racer', now(), now(), now(), 'null'
FROM absurd.t_default AS t
WHERE t.task_name = 'filled' AND NOT EXISTS (SELECT FROM absurd.r_default AS r WHERE r.task_id = t.task_id)
