-- Every statement of the PostgreSQL store.
-- Lists of ids are one text[] parameter, rows to write are one JSON parameter: one statement per table, whatever the
-- number of rows. Names are qualified, so that nothing depends on a session's search_path.
-- A vacuum that finds a table empty tells the planner that it holds one row, and until the next one a plain join may walk
-- all that has come since, for every row given. Where a table comes and goes, no other plan than a look-up by key is left:
-- LATERAL with OFFSET 0 keeps what is given on the outside; `= ANY (ARRAY[…])` on one column offers no order to join by.

-- name: begin
-- Whatever the server's default is, each statement sees what was committed before it.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: begin_view
-- One snapshot for all statements of a view, so that what it shows never contradicts itself.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: set_up
-- Bounds, durability and plans of this transaction only: behind a pooler a session's settings may be someone else's.
-- The plans must not hang on statistics: a table that was empty a second ago may hold a million rows. So they are also
-- made once: left to itself the server plans most of these anew for every batch, which takes longer than a small batch.
-- It fails, by a cast of what is no number, where a later version has shut this one out of the store.
SELECT set_config('statement_timeout', $1::text, true),
       set_config('lock_timeout', $2::text, true),
       set_config('idle_in_transaction_session_timeout', $3::text, true),
       set_config('synchronous_commit', $4::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       (SELECT CASE WHEN value::integer > {schema} THEN ('schema ' || value || ' is needed')::integer END
        FROM allswell.meta WHERE key = 'oldest_writer')

-- name: set_up_vacuum
-- For the whole session, which is thrown away after it: a vacuum runs in no transaction.
SELECT set_config('statement_timeout', $1::text, false)

-- name: vacuum_ready
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) allswell.ready

-- name: vacuum_lease
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) allswell.lease

-- name: set_up_view
-- Views may scan: they are bounded in time. But a page must not be merged with every ready row before it.
SELECT set_config('statement_timeout', $1::text, true),
       set_config('lock_timeout', $2::text, true),
       set_config('idle_in_transaction_session_timeout', $3::text, true),
       set_config('jit', 'off', true),
       set_config('enable_mergejoin', 'off', true)

-- name: commit
COMMIT

-- name: notify
-- Always a transaction by itself: from before its commit record until that is flushed, it has a lock of the whole cluster.
-- So it waits for no flush, and not for long for somebody who does.
SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '100', true),
       pg_notify($1::text, $2::text)

-- name: clock
-- The time now, not at the start of the transaction: that may have waited for a lock since.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: xid_and_clock
-- Both, after the locks.
SELECT pg_current_xact_id()::text::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: xid
-- What a commit is known by, should its answer be lost.
SELECT pg_current_xact_id()::text::bigint

-- name: known_xid
-- The same after a pick: there if a row was locked.
SELECT pg_current_xact_id_if_assigned()::text::bigint

-- name: mark
-- Besides, a mark of our own: a server that crashes may hand out the number of a lost transaction again, to
-- another one, and then calls it committed. Only a row that we wrote ourselves proves that it was ours.
INSERT INTO allswell.mark (line, number, at)
VALUES ($1::text, $2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (line) DO UPDATE SET number = excluded.number, at = excluded.at

-- name: xact_status
-- How a transaction ended, if it has.
SELECT pg_xact_status($1::text::xid8)

-- name: marked
-- The lost commit was the last thing done on its connection, so nothing later can have overwritten its mark.
SELECT EXISTS (SELECT FROM allswell.mark WHERE line = $1::text AND number = $2::bigint)

-- name: forget_marks
-- Connections that have been gone for a day have nothing left to ask about.
DELETE FROM allswell.mark WHERE at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 86400000

-- name: end_orphan
-- End the session that still waits for its client in a transaction whose commit never reached it. Its state may be
-- `active`, where a message was cut in two; `idle_in_transaction_session_timeout` does not end it then.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE backend_xid = ($1::text::xid8)::xid AND wait_event = 'ClientRead' AND pid <> pg_backend_pid()

-- The pick ------------------------------------------------------------------------------------------------------------

-- name: pick
-- Lanes, rows looked at, rows wanted. The best of each lane by its index, merged. The task rows are locked, as every other
-- way to a task does, so that a claim and a cancel cannot meet crosswise; and the ready rows, found again by their places:
-- one that was claimed between the look and the lock is gone, and left out with its task. Nothing waits for a lock here, so
-- their order matters to nobody. A lock gives the row as it is once it is locked. The rest needs none: who is barred is
-- said once, at submit, and the timer of what is ready changes only when it leaves; where a spec says nothing there is none.
SELECT t.id, t.name, t.run, t.role, t.lane, t.priority, t.state, t.created_at, t.ended_at, t.spec, t.record,
       t.rank, t.payload, r.ctid::text, m.due_at, ARRAY(SELECT b.agent FROM allswell.bar AS b WHERE b.task = t.id)
FROM (
    SELECT r.task, r.rank, r.place
    FROM unnest($1::integer[]) AS l(lane)
    CROSS JOIN LATERAL (
        SELECT task, rank, ctid AS place FROM allswell.ready WHERE lane = l.lane ORDER BY rank, task LIMIT $2::integer
    ) AS r
    ORDER BY r.rank, r.task LIMIT $2::integer
) AS c
JOIN allswell.task AS t ON t.id = c.task
JOIN allswell.ready AS r ON r.ctid = c.place
LEFT JOIN LATERAL (SELECT due_at FROM allswell.timer WHERE owner = t.id AND t.spec <> '{}' OFFSET 0) AS m ON true
ORDER BY c.rank, c.task LIMIT $3::integer
FOR UPDATE OF t, r SKIP LOCKED

-- name: pick_allowed
-- As `pick`, without what this agent is barred from.
SELECT t.id, t.name, t.run, t.role, t.lane, t.priority, t.state, t.created_at, t.ended_at, t.spec, t.record,
       t.rank, t.payload, r.ctid::text, m.due_at, NULL::text[]
FROM (
    SELECT r.task, r.rank, r.place
    FROM unnest($1::integer[]) AS l(lane)
    CROSS JOIN LATERAL (
        SELECT task, rank, ctid AS place FROM allswell.ready AS y
        WHERE lane = l.lane
          AND NOT EXISTS (SELECT FROM allswell.bar AS b WHERE b.task = y.task AND b.agent = $4::text OFFSET 0)
        ORDER BY rank, task LIMIT $2::integer
    ) AS r
    ORDER BY r.rank, r.task LIMIT $2::integer
) AS c
JOIN allswell.task AS t ON t.id = c.task
JOIN allswell.ready AS r ON r.ctid = c.place
LEFT JOIN LATERAL (SELECT due_at FROM allswell.timer WHERE owner = t.id AND t.spec <> '{}' OFFSET 0) AS m ON true
ORDER BY c.rank, c.task LIMIT $3::integer
FOR UPDATE OF t, r SKIP LOCKED

-- name: pick_from_lane
-- As `pick_allowed`, from one lane, where nothing is to be merged: it looks no further than it must.
SELECT t.id, t.name, t.run, t.role, t.lane, t.priority, t.state, t.created_at, t.ended_at, t.spec, t.record,
       t.rank, t.payload, r.ctid::text, m.due_at, NULL::text[]
FROM allswell.ready AS r
JOIN allswell.task AS t ON t.id = r.task
LEFT JOIN LATERAL (SELECT due_at FROM allswell.timer WHERE owner = t.id AND t.spec <> '{}' OFFSET 0) AS m ON true
WHERE r.lane = $1::integer
  AND NOT EXISTS (SELECT FROM allswell.bar AS b WHERE b.task = r.task AND b.agent = $3::text OFFSET 0)
ORDER BY r.rank, r.task LIMIT $2::integer
FOR UPDATE OF t, r SKIP LOCKED

-- name: pick_outside
-- As `pick_allowed`, without the tasks of these runs; an agent without a name is barred from nothing.
SELECT t.id, t.name, t.run, t.role, t.lane, t.priority, t.state, t.created_at, t.ended_at, t.spec, t.record,
       t.rank, t.payload, r.ctid::text, m.due_at, ARRAY(SELECT b.agent FROM allswell.bar AS b WHERE b.task = t.id)
FROM (
    SELECT r.task, r.rank, r.place
    FROM unnest($1::integer[]) AS l(lane)
    CROSS JOIN LATERAL (
        SELECT task, rank, ctid AS place FROM allswell.ready AS y
        WHERE lane = l.lane
          AND NOT EXISTS (SELECT FROM allswell.bar AS b WHERE b.task = y.task AND b.agent = $4::text OFFSET 0)
          AND NOT EXISTS (SELECT FROM allswell.task AS o WHERE o.id = y.task AND o.run = ANY($5::text[]) OFFSET 0)
        ORDER BY rank, task LIMIT $2::integer
    ) AS r
    ORDER BY r.rank, r.task LIMIT $2::integer
) AS c
JOIN allswell.task AS t ON t.id = c.task
JOIN allswell.ready AS r ON r.ctid = c.place
LEFT JOIN LATERAL (SELECT due_at FROM allswell.timer WHERE owner = t.id AND t.spec <> '{}' OFFSET 0) AS m ON true
ORDER BY c.rank, c.task LIMIT $3::integer
FOR UPDATE OF t, r SKIP LOCKED

-- name: count_ready
-- How many rows a pick of this width could have looked at.
SELECT count(*)
FROM unnest($1::integer[]) AS l(lane)
CROSS JOIN LATERAL (SELECT FROM allswell.ready WHERE lane = l.lane ORDER BY rank, task LIMIT $2::integer) AS r

-- Reads ---------------------------------------------------------------------------------------------------------------
-- The ones with an id in their first column are also how rows are locked, one statement for each kind: `ORDER BY 1 FOR UPDATE`
-- (or FOR SHARE, with SKIP LOCKED where asked for) follows then. Such a statement gives the row as it is once it is locked.
-- It must not join: of another table it would give what was there before it waited.

-- name: read_tasks
SELECT id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank
FROM allswell.task WHERE id = ANY($1::text[])

-- name: read_places
-- Where open tasks stand: their ready rows and timers. The tasks are locked by an earlier statement.
SELECT t.id, r.lane, r.rank, coalesce(m.due_at, l.due_at)
FROM allswell.task AS t
LEFT JOIN LATERAL (
    SELECT lane, rank FROM allswell.ready WHERE lane = t.lane AND rank = t.rank AND task = t.id OFFSET 0
) AS r ON true
LEFT JOIN LATERAL (SELECT due_at FROM allswell.timer WHERE owner = t.id OFFSET 0) AS m ON true
LEFT JOIN LATERAL (SELECT due_at FROM allswell.lease WHERE task = t.id OFFSET 0) AS l ON true
WHERE t.id = ANY($1::text[])

-- name: read_waits
SELECT task, kind, target FROM allswell.waits WHERE task = ANY($1::text[]) ORDER BY task, kind, target

-- name: read_leases
SELECT task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
       judged, stalled_at, renewed_at, renewed_at - quiet, progress, note, own, due_at, ctid::text
FROM allswell.lease WHERE task = ANY($1::text[])

-- name: read_attempts
SELECT a.task, a.token, a.agent, a.granted_at, a.ended_at, a.outcome, a.command, a.detail, a.late, a.afterwards
FROM unnest($1::text[], $2::bigint[]) AS x(task, token)
JOIN allswell.attempt AS a ON a.task = x.task AND a.token = x.token

-- name: read_first_attempts
-- First attempts that are kept in their task's row.
SELECT id, attempt FROM allswell.task WHERE id = ANY($1::text[]) AND attempt IS NOT NULL

-- name: read_awaited
SELECT x.target FROM unnest($1::text[]) AS x(target)
WHERE EXISTS (SELECT FROM allswell.waits AS w WHERE w.target = x.target OFFSET 0)

-- name: read_payloads
SELECT id, payload FROM allswell.task WHERE id = ANY($1::text[])

-- name: read_bars
SELECT task, agent FROM allswell.bar WHERE task = ANY($1::text[]) ORDER BY task, agent

-- name: read_expenses
SELECT task, token, agent, role, run, told_at, cost, given, written, estimated FROM allswell.expense
WHERE task = ANY($1::text[]) ORDER BY task, token

-- name: put_expenses
INSERT INTO allswell.expense (task, token, agent, role, run, told_at, cost, given, written, estimated)
SELECT task, token, agent, role, run, told_at, cost, given, written, estimated
FROM json_to_recordset($1::json) AS x(task text, token bigint, agent text, role text, run text, told_at bigint,
                                      cost bigint, given bigint, written bigint, estimated boolean)
ON CONFLICT (task, token) DO UPDATE
SET told_at = excluded.told_at, cost = excluded.cost, given = excluded.given, written = excluded.written,
    estimated = excluded.estimated

-- name: spent_by_task
SELECT task, count(*), count(cost),
    sum(least(greatest(cost, 0), 1000000000000)) FILTER (WHERE cost IS NOT NULL)::bigint,
    sum(least(greatest(given, 0), 1000000000000)) FILTER (WHERE given IS NOT NULL)::bigint,
    sum(least(greatest(written, 0), 1000000000000)) FILTER (WHERE written IS NOT NULL)::bigint,
    count(*) FILTER (WHERE estimated)
FROM allswell.expense
WHERE (cardinality($1::text[]) = 0 OR task = ANY($1::text[])) AND told_at >= $2::bigint GROUP BY task ORDER BY task

-- name: spent_by_run
SELECT run, count(*), count(cost),
    sum(least(greatest(cost, 0), 1000000000000)) FILTER (WHERE cost IS NOT NULL)::bigint,
    sum(least(greatest(given, 0), 1000000000000)) FILTER (WHERE given IS NOT NULL)::bigint,
    sum(least(greatest(written, 0), 1000000000000)) FILTER (WHERE written IS NOT NULL)::bigint,
    count(*) FILTER (WHERE estimated)
FROM allswell.expense
WHERE run IS NOT NULL AND (cardinality($1::text[]) = 0 OR run = ANY($1::text[])) AND told_at >= $2::bigint
GROUP BY run ORDER BY run

-- name: spent_by_role
SELECT role, count(*), count(cost),
    sum(least(greatest(cost, 0), 1000000000000)) FILTER (WHERE cost IS NOT NULL)::bigint,
    sum(least(greatest(given, 0), 1000000000000)) FILTER (WHERE given IS NOT NULL)::bigint,
    sum(least(greatest(written, 0), 1000000000000)) FILTER (WHERE written IS NOT NULL)::bigint,
    count(*) FILTER (WHERE estimated)
FROM allswell.expense
WHERE (cardinality($1::text[]) = 0 OR role = ANY($1::text[])) AND told_at >= $2::bigint GROUP BY role ORDER BY role

-- name: spent_by_agent
SELECT agent, count(*), count(cost),
    sum(least(greatest(cost, 0), 1000000000000)) FILTER (WHERE cost IS NOT NULL)::bigint,
    sum(least(greatest(given, 0), 1000000000000)) FILTER (WHERE given IS NOT NULL)::bigint,
    sum(least(greatest(written, 0), 1000000000000)) FILTER (WHERE written IS NOT NULL)::bigint,
    count(*) FILTER (WHERE estimated)
FROM allswell.expense
WHERE (cardinality($1::text[]) = 0 OR agent = ANY($1::text[])) AND told_at >= $2::bigint GROUP BY agent ORDER BY agent

-- name: spent_by_all
SELECT '', count(*), count(cost),
    sum(least(greatest(cost, 0), 1000000000000)) FILTER (WHERE cost IS NOT NULL)::bigint,
    sum(least(greatest(given, 0), 1000000000000)) FILTER (WHERE given IS NOT NULL)::bigint,
    sum(least(greatest(written, 0), 1000000000000)) FILTER (WHERE written IS NOT NULL)::bigint,
    count(*) FILTER (WHERE estimated)
FROM allswell.expense
WHERE cardinality($1::text[]) >= 0 AND told_at >= $2::bigint HAVING count(*) > 0

-- name: read_spreads
SELECT id, outcome, reason, replaced_by, reached FROM allswell.spread WHERE id = ANY($1::text[])

-- name: read_runs
SELECT id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
       continued_in
FROM allswell.run WHERE id = ANY($1::text[])

-- name: read_services
SELECT id, state FROM allswell.service WHERE id = ANY($1::text[])

-- name: read_agents
SELECT id, misses, missed_at, stalled FROM allswell.agent WHERE id = ANY($1::text[])

-- name: read_health
SELECT agent, record FROM allswell.health WHERE agent = ANY($1::text[])

-- name: read_questions
SELECT id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM allswell.question WHERE id = ANY($1::text[])

-- name: lanes
-- All lanes and all services, each as one JSON list (they are few and seldom change), and the time now.
SELECT (SELECT json_agg(json_build_array(id, role, services::json) ORDER BY id)::text FROM allswell.lane),
       (SELECT '[' || string_agg(state, ',' ORDER BY id) || ']' FROM allswell.service),
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: services
SELECT state FROM allswell.service ORDER BY id

-- Hints, found without locks ------------------------------------------------------------------------------------------

-- name: find_due
-- Timers by themselves, and those of leases; those of runs come last in their moment.
SELECT d.owner, d.agent
FROM (
    SELECT m.owner, l.agent, m.due_at
    FROM (SELECT owner, due_at FROM allswell.timer WHERE due_at <= $1::bigint
          ORDER BY due_at, owner LIKE 'r\_%', owner LIMIT $2::integer) AS m
    LEFT JOIN LATERAL (SELECT agent FROM allswell.lease WHERE task = m.owner OFFSET 0) AS l ON true
    UNION ALL
    (SELECT task, agent, due_at FROM allswell.lease WHERE due_at <= $1::bigint ORDER BY due_at, task LIMIT $2::integer)
) AS d
ORDER BY d.due_at, d.owner LIKE 'r\_%', d.owner LIMIT $2::integer

-- name: find_spreads
SELECT id FROM allswell.spread ORDER BY seq LIMIT $1::integer

-- name: find_waiting
SELECT task FROM allswell.waits WHERE target = $1::text ORDER BY task LIMIT $2::integer

-- name: find_open
SELECT id FROM allswell.task WHERE run = $1::text AND ended_at IS NULL ORDER BY id LIMIT $2::integer

-- name: find_runs
-- In which runs these tasks are.
SELECT id, run FROM allswell.task WHERE id = ANY($1::text[]) AND run IS NOT NULL

-- name: find_held
-- Tasks of a run that somebody holds.
SELECT t.id FROM allswell.task AS t CROSS JOIN LATERAL (SELECT FROM allswell.lease WHERE task = t.id LIMIT 1) AS held
WHERE t.run = $1::text AND t.ended_at IS NULL AND t.id > $2::text ORDER BY t.id LIMIT $3::integer

-- name: find_questions
SELECT id FROM allswell.question WHERE task = $1::text AND closed_at IS NULL ORDER BY id

-- name: lock_claim
-- There is no row for a claim, so its name is locked; the number keeps it apart from locks of others.
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 7020105162343935084))

-- name: find_claimed
SELECT task FROM (SELECT task FROM allswell.lease WHERE command = $1::text AND command <> '' OFFSET 0) AS l ORDER BY task

-- name: find_target
SELECT role, (SELECT agent FROM allswell.lease WHERE task = $1::text) FROM allswell.task WHERE id = $1::text

-- name: lock_asking
-- Agents that ask at once ask in turn: one that would close a circle must see the others.
SELECT pg_advisory_xact_lock(7020105162343935085)

-- name: find_asking
SELECT id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank
FROM allswell.task WHERE ended_at IS NULL AND id >= 'm_' AND id < 'm`' ORDER BY id

-- name: find_tokens
-- The tokens of the leases on these tasks.
SELECT task, token FROM allswell.lease WHERE task = ANY($1::text[])

-- name: find_leases
SELECT task FROM allswell.lease WHERE task > $1::text ORDER BY task LIMIT $2::integer

-- Writes --------------------------------------------------------------------------------------------------------------

-- name: insert_runs
INSERT INTO allswell.run (id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
                          continued_in)
SELECT id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
       continued_in
FROM json_to_recordset($1::json) AS x(id text, name text, created_at bigint, deadline bigint, ended_at bigint,
                                      reason text, command text, asked bigint, stands_since bigint, stood bigint,
                                      moves bigint, continued_in text)

-- name: update_runs
UPDATE allswell.run AS r
SET name = x.name, deadline = x.deadline, ended_at = x.ended_at, reason = x.reason, command = x.command,
    asked = x.asked, stands_since = x.stands_since, stood = x.stood, moves = x.moves,
    continued_in = x.continued_in
FROM json_to_recordset($1::json) AS x(id text, name text, deadline bigint, ended_at bigint, reason text, command text,
                                      asked bigint, stands_since bigint, stood bigint, moves bigint,
                                      continued_in text)
WHERE r.id = x.id

-- name: insert_services
-- Each row is kept whole.
INSERT INTO allswell.service (id, state) SELECT x ->> 'id', x::text FROM json_array_elements($1::json) AS x

-- name: update_services
UPDATE allswell.service AS s SET state = x::text FROM json_array_elements($1::json) AS x WHERE s.id = x ->> 'id'

-- name: insert_agents
INSERT INTO allswell.agent (id, misses, missed_at, stalled)
SELECT id, misses, missed_at, stalled
FROM json_to_recordset($1::json) AS x(id text, misses bigint, missed_at bigint, stalled boolean)

-- name: put_agents
INSERT INTO allswell.agent (id, misses, missed_at, stalled)
SELECT id, misses, missed_at, stalled
FROM json_to_recordset($1::json) AS x(id text, misses bigint, missed_at bigint, stalled boolean)
ON CONFLICT (id) DO UPDATE
SET misses = excluded.misses, missed_at = excluded.missed_at, stalled = excluded.stalled

-- name: delete_agents
DELETE FROM allswell.agent WHERE id = ANY($1::text[])

-- name: insert_health
INSERT INTO allswell.health (agent, record) SELECT x ->> 0, (x -> 1)::text FROM json_array_elements($1::json) AS x

-- name: update_health
UPDATE allswell.health AS h SET record = (x -> 1)::text FROM json_array_elements($1::json) AS x WHERE h.agent = x ->> 0

-- name: insert_questions
INSERT INTO allswell.question (id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer,
                               answered_by, command, waited, dismissed_at, dismissed_by)
SELECT id, coalesce(task, ''), run, kind, text, options::text, asked_at, asked_by, closed_at, choice, answer, answered_by,
       command, waited, dismissed_at, dismissed_by
FROM json_to_recordset($1::json) AS x(id text, task text, run text, kind text, text text, options json,
                                      asked_at bigint, asked_by text, closed_at bigint, choice text, answer text,
                                      answered_by text, command text, waited boolean, dismissed_at bigint,
                                      dismissed_by text)

-- name: update_questions
UPDATE allswell.question AS q
SET text = x.text, closed_at = x.closed_at, choice = x.choice, answer = x.answer, answered_by = x.answered_by,
    command = x.command, dismissed_at = x.dismissed_at, dismissed_by = x.dismissed_by
FROM json_to_recordset($1::json) AS x(id text, text text, closed_at bigint, choice text, answer text, answered_by text,
                                      command text, dismissed_at bigint, dismissed_by text)
WHERE q.id = x.id

-- name: insert_tasks
-- The tasks, and beside them their payloads in the same order.
INSERT INTO allswell.task (id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank, payload)
SELECT id, name, run, role, lane, priority, state, created_at, ended_at, spec::text, record::text, rank, payload
FROM ROWS FROM (
    json_to_recordset($1::json) AS (id text, name text, run text, role text, lane integer, priority integer,
                                    state text, created_at bigint, ended_at bigint, spec json, record json, rank bigint),
    json_array_elements_text($2::json)
) AS x(id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank, payload)

-- name: insert_recorded
-- Tasks that are finished as they are made, each with its result and its one attempt.
INSERT INTO allswell.task (id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, payload, rank,
                           result, attempt)
SELECT id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, payload, rank, result, attempt
FROM json_to_recordset($1::json) AS x(id text, name text, run text, role text, lane integer, priority integer,
                                      state text, created_at bigint, ended_at bigint, spec text, record text,
                                      payload text, rank bigint, result text, attempt text)

-- name: record
-- The short way: a finished task and its event, if the flow's lease is still the one that this was decided on, with the
-- moments that could have ended it sooner since. This decides nothing: whatever has changed is left to the long way. A
-- lease that goes waits for us, or we for it: then it is not there any more. The time, if it was written.
WITH fence AS (
    SELECT set_config('synchronous_commit', 'on', true) FROM allswell.lease
    WHERE task = $1::text AND token = $2::bigint AND deadline = $20::bigint
      AND stalled_at IS NOT DISTINCT FROM $21::bigint
      AND NOT EXISTS (SELECT FROM allswell.meta WHERE key = 'oldest_writer' AND value::integer > {schema})
    FOR SHARE
), made AS (
    INSERT INTO allswell.task (id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, payload,
                               rank, result, attempt)
    SELECT $5::text, $6::text, $7::text, $8::text, $9::integer, $10::integer, $11::text, $12::bigint, $13::bigint,
           $14::text, $15::text, $16::text, $17::bigint, $18::text, $19::text
    FROM fence
), told AS (
    INSERT INTO allswell.journal (at, events) SELECT $3::bigint, $4::text FROM fence
)
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM fence

-- name: update_tasks
-- Ids, states, ends; records and first attempts, one JSON text a line; results. Neither state nor end stands in the WHERE: a
-- partial index with stale statistics would mislead the planner.
UPDATE allswell.task AS t
SET state = x.state, ended_at = x.ended_at, record = x.record, result = coalesce(x.result, t.result),
    attempt = coalesce(x.attempt, t.attempt)
FROM ROWS FROM (
    unnest($1::text[], $2::text[], $3::bigint[], $4::text[]),
    string_to_table($5::text, E'\n'),
    string_to_table($6::text, E'\n', 'null')
) AS x(id, state, ended_at, result, record, attempt)
WHERE t.id = x.id

-- name: insert_ready
INSERT INTO allswell.ready (task, lane, rank)
SELECT task, lane, rank FROM json_to_recordset($1::json) AS x(task text, lane integer, rank bigint)

-- name: delete_ready
-- By their places, which nobody changes: a ready row belongs to whoever holds its task's lock.
DELETE FROM allswell.ready WHERE ctid = ANY (ARRAY(
    SELECT r.place FROM unnest($1::integer[], $2::bigint[], $3::text[]) AS x(lane, rank, task)
    CROSS JOIN LATERAL (
        SELECT ctid FROM allswell.ready WHERE lane = x.lane AND rank = x.rank AND task = x.task OFFSET 0
    ) AS r(place)))

-- name: delete_picked
-- The same by the places that a pick has locked.
DELETE FROM allswell.ready WHERE ctid = ANY ($1::tid[])

-- name: put_timers
INSERT INTO allswell.timer (owner, due_at)
SELECT owner, due_at FROM unnest($1::text[], $2::bigint[]) AS x(owner, due_at)
ON CONFLICT (owner) DO UPDATE SET due_at = excluded.due_at

-- name: delete_timers
DELETE FROM allswell.timer WHERE owner = ANY($1::text[])

-- name: insert_waits
INSERT INTO allswell.waits (task, kind, target)
SELECT task, kind, target FROM json_to_recordset($1::json) AS x(task text, kind text, target text)

-- name: delete_waits
-- By their places: waits belong to whoever holds their task's lock.
DELETE FROM allswell.waits WHERE ctid = ANY (ARRAY(
    SELECT w.place FROM json_to_recordset($1::json) AS x(task text, kind text, target text)
    CROSS JOIN LATERAL (
        SELECT ctid FROM allswell.waits WHERE task = x.task AND kind = x.kind AND target = x.target OFFSET 0
    ) AS w(place)))

-- name: delete_bars
-- By their places: bars belong to whoever holds their task's lock.
DELETE FROM allswell.bar WHERE ctid = ANY (ARRAY(
    SELECT b.place FROM json_to_recordset($1::json) AS x(task text, agent text)
    CROSS JOIN LATERAL (
        SELECT ctid FROM allswell.bar WHERE task = x.task AND agent = x.agent OFFSET 0
    ) AS b(place)))

-- name: insert_bars
INSERT INTO allswell.bar (task, agent)
SELECT task, agent FROM json_to_recordset($1::json) AS x(task text, agent text)

-- name: insert_leases
-- As they are granted: nothing has been said on them yet.
INSERT INTO allswell.lease (task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
                            judged, renewed_at, note, own, due_at)
SELECT task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
       0, renewed_at, '', own, due_at
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[])
     AS x(task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command, renewed_at, own,
          due_at)

-- name: insert_leases_alike
-- The same for leases that differ by their tasks alone, as those of one claim mostly do: in half the time.
INSERT INTO allswell.lease (task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
                            judged, renewed_at, note, own, due_at)
SELECT task, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::bigint,
       $11::text, 0, $12::bigint, '', $13::bigint, $14::bigint
FROM unnest($1::text[]) AS x(task)

-- name: update_leases
-- Fenced by the token; what cannot change after the grant is not written.
UPDATE allswell.lease AS l
SET deadline = x.deadline, judged = coalesce(x.judged, 0), stalled_at = x.stalled_at,
    renewed_at = coalesce(x.renewed_at, 0), quiet = coalesce(x.renewed_at, 0) - x.checkin_at, progress = x.progress,
    note = coalesce(x.note, ''), own = x.own
FROM json_to_recordset($1::json) AS x(task text, token bigint, deadline bigint, judged bigint, stalled_at bigint,
                                      renewed_at bigint, checkin_at bigint, progress double precision, note text,
                                      own bigint)
WHERE l.task = ANY (ARRAY[x.task]) AND l.token = x.token

-- name: delete_leases
-- Fenced by the token.
DELETE FROM allswell.lease AS l
USING unnest($1::text[], $2::bigint[]) AS x(task, token)
WHERE l.task = ANY (ARRAY[x.task]) AND l.token = x.token

-- name: delete_held
-- The same, where they were found when they were locked.
DELETE FROM allswell.lease AS l
USING unnest($1::tid[], $2::bigint[]) AS x(place, token)
WHERE l.ctid = x.place AND l.token = x.token

-- name: take_timers
-- The timers of these leases are by themselves from now on, or gone.
UPDATE allswell.lease SET due_at = NULL WHERE task = ANY($1::text[])

-- name: insert_attempts
INSERT INTO allswell.attempt (task, token, agent, granted_at, ended_at, outcome, command, detail, late, afterwards)
SELECT task, token, agent, granted_at, ended_at, outcome, command, coalesce(detail, ''), late, afterwards
FROM json_to_recordset($1::json) AS x(task text, token bigint, agent text, granted_at bigint, ended_at bigint,
                                      outcome text, command text, detail text, late text, afterwards text)

-- name: keep_late
-- What came late; a first attempt that its task's row keeps gets a row of its own for it.
INSERT INTO allswell.attempt AS a (task, token, agent, granted_at, ended_at, outcome, command, detail, late,
                                       afterwards)
SELECT x.task, x.token, k.agent, k.granted_at, k.ended_at, k.outcome, k.command, k.detail, x.late, x.afterwards
FROM json_to_recordset($1::json) AS x(task text, token bigint, late text, afterwards text)
CROSS JOIN LATERAL (
    SELECT agent, granted_at, ended_at, outcome, command, detail FROM allswell.attempt
    WHERE task = x.task AND token = x.token
    UNION ALL
    SELECT t.attempt::json ->> 0, (t.attempt::json ->> 1)::bigint, (t.attempt::json ->> 2)::bigint,
           t.attempt::json ->> 3, t.attempt::json ->> 4, t.attempt::json ->> 5
    FROM allswell.task AS t WHERE t.id = x.task AND x.token = 1 AND t.attempt IS NOT NULL
    LIMIT 1
) AS k
ON CONFLICT (task, token) DO UPDATE SET late = excluded.late, afterwards = excluded.afterwards

-- name: insert_spreads
INSERT INTO allswell.spread (id, outcome, reason, replaced_by, reached)
SELECT id, outcome, reason, replaced_by::text, reached
FROM json_to_recordset($1::json) AS x(id text, outcome text, reason text, replaced_by json, reached text)

-- name: delete_spreads
DELETE FROM allswell.spread WHERE id = ANY($1::text[])

-- name: insert_events
-- Events that belong together, in one row.
INSERT INTO allswell.journal (at, events) VALUES ($2::bigint, $1::text)

-- Lanes and cursors ---------------------------------------------------------------------------------------------------

-- name: insert_lane
INSERT INTO allswell.lane (role, services) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING

-- name: select_lane
SELECT id FROM allswell.lane WHERE role = $1::text AND services = $2::text

-- name: select_cursor
SELECT xid, id FROM allswell.cursor WHERE follower = $1::text

-- name: view_cursors
SELECT follower, xid, id FROM allswell.cursor

-- name: advance_cursor
-- Never backwards.
INSERT INTO allswell.cursor AS c (follower, xid, id) VALUES ($1::text, $2::bigint, $3::bigint)
ON CONFLICT (follower) DO UPDATE SET xid = excluded.xid, id = excluded.id
WHERE (c.xid, c.id) < (excluded.xid, excluded.id)

-- name: lock_cursor
-- Of two who follow in one name, one at a time looks where that follower is; there need be no row yet.
SELECT pg_advisory_xact_lock(hashtext('allswell.cursor'), hashtext($1::text))

-- name: insert_deliveries
INSERT INTO allswell.delivery
    (sink, xid, number, part, id, target, at, body, tries, next_at, failing_since, given_up, reason)
SELECT sink, xid, number, part, id, target, at, body, tries, next_at, failing_since, given_up, reason
FROM json_populate_recordset(NULL::allswell.delivery, $1::json)

-- name: update_deliveries
-- How deliveries stand after a try, or after a human's word.
UPDATE allswell.delivery AS d
SET tries = x.tries, next_at = x.next_at, failing_since = x.failing_since, given_up = x.given_up, reason = x.reason
FROM json_populate_recordset(NULL::allswell.delivery, $1::json) AS x
WHERE d.sink = x.sink AND d.xid = x.xid AND d.number = x.number AND d.part = x.part

-- name: delete_deliveries
-- Deliveries that were made or dropped.
DELETE FROM allswell.delivery AS d
USING json_populate_recordset(NULL::allswell.delivery, $1::json) AS x
WHERE d.sink = x.sink AND d.xid = x.xid AND d.number = x.number AND d.part = x.part

-- name: delete_deliveries_of
-- What a sink had to deliver that is no more.
DELETE FROM allswell.delivery WHERE sink = $1::text

-- name: delete_cursor
DELETE FROM allswell.cursor WHERE follower = $1::text

-- name: view_deliveries
-- What is still to be delivered or was given up; what is NULL picks nothing out.
SELECT sink, id, target, xid, number, part, at, body, tries, next_at, failing_since, given_up, reason
FROM allswell.delivery
WHERE ($1::text IS NULL OR sink = $1::text) AND ($2::text IS NULL OR target = $2::text)
  AND ($3::boolean IS NULL OR given_up = $3::boolean)
ORDER BY sink, xid, number, part LIMIT $4::integer

-- name: journal
-- Only what no transaction still under way could precede: ids are handed out before their transaction commits.
-- A row may have been read in part: it comes again, and the reader knows which of its events are new.
-- A row has one event or a thousand: beside the first two, as many come as have about so many bytes ($4); `there` is how
-- many there would have been.
SELECT j.xid::text::bigint, j.id, j.at, j.events, j.there
FROM (
    SELECT k.xid, k.id, k.at, k.events, count(*) OVER () AS there, row_number() OVER ordered AS place,
           sum(octet_length(k.events)) OVER ordered AS bytes
    FROM (
        SELECT xid, id, at, events FROM allswell.journal
        WHERE (xid, id) >= ($1::text::xid8, $2::bigint) AND xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY xid, id LIMIT $3::integer
    ) AS k
    WINDOW ordered AS (ORDER BY k.xid, k.id)
) AS j
WHERE j.place <= 2 OR j.bytes <= $4::bigint
ORDER BY j.xid, j.id

-- Views ---------------------------------------------------------------------------------------------------------------

-- name: task_row
-- A task with the rows that show where it stands; `of_one_id` or `of_page` follows.
SELECT t.id, t.name, t.run, t.role, t.lane, t.priority, t.state, t.created_at, t.ended_at, t.spec, t.record,
       t.rank, r.task IS NOT NULL, coalesce(m.due_at, l.due_at),
       ARRAY(SELECT w.kind || ' ' || w.target FROM allswell.waits AS w WHERE w.task = t.id ORDER BY w.kind, w.target),
       l.task, l.token, l.agent, l.granted_at, l.deadline, l.length, l.idle, l.ask_every, l.ask_wait, l.grace,
       l.command, l.judged, l.stalled_at, l.renewed_at, l.renewed_at - l.quiet, l.progress, l.note, l.own
FROM allswell.task AS t
LEFT JOIN allswell.ready AS r ON r.lane = t.lane AND r.rank = t.rank AND r.task = t.id
LEFT JOIN allswell.timer AS m ON m.owner = t.id
LEFT JOIN allswell.lease AS l ON l.task = t.id

-- name: of_one_id
WHERE t.id = $1::text

-- name: of_page
-- NULL switches a filter off; {beyond}, {order} and {stands} are fixed pieces (views.py).
-- Never prepared, so that the planner sees which filters there are.
WHERE t.id {beyond} $1::text
  AND ($2::boolean IS NULL OR (t.ended_at IS NULL) = $2::boolean)
  AND ($3::text IS NULL OR t.run = $3::text)
  AND ($4::text IS NULL OR t.name = $4::text)
  AND ($8::text[] IS NULL OR t.id = ANY($8::text[]))
  AND ($7::text IS NULL OR t.role = $7::text)
  AND ($11::text = '' OR t.id < $11::text)
  AND (NOT $9::boolean OR r.lane = ANY(ARRAY(SELECT id FROM allswell.lane WHERE role = $7::text)))
  AND ($10::text = '' OR strpos(lower(concat_ws(E'\n', t.name, t.id, t.role, l.agent) COLLATE "C"), $10::text) > 0)
  AND ($5::text[] IS NULL OR CASE
        WHEN t.ended_at IS NOT NULL THEN t.state
        WHEN l.task IS NOT NULL THEN 'held'
        WHEN EXISTS (SELECT FROM allswell.waits AS w WHERE w.task = t.id) THEN 'waiting'
        WHEN r.task IS NOT NULL THEN 'ready'
        ELSE 'delayed'
      END = ANY($5::text[]))
  {stands}
ORDER BY t.id {order} LIMIT $6::integer

-- name: stands_held
-- How one state is asked for, in pieces that say to the planner which rows there are: by a CASE it could only guess.
AND t.ended_at IS NULL AND l.task {beyond} $1::text

-- name: stands_waiting
AND t.ended_at IS NULL AND l.task IS NULL AND t.id IN (SELECT s.task FROM allswell.waits AS s)

-- name: stands_ready
AND t.ended_at IS NULL AND l.task IS NULL AND r.task IS NOT NULL
AND NOT EXISTS (SELECT FROM allswell.waits AS s WHERE s.task = t.id)

-- name: stands_delayed
AND t.ended_at IS NULL AND l.task IS NULL AND r.task IS NULL
AND NOT EXISTS (SELECT FROM allswell.waits AS s WHERE s.task = t.id)

-- name: view_payload
SELECT payload, result FROM allswell.task WHERE id = $1::text

-- name: view_results
-- The results of a run's tasks of one role that are done, by id.
SELECT id, coalesce(result, 'null') FROM allswell.task
WHERE run = $1::text AND ended_at IS NOT NULL AND role = $2::text AND state = 'done' AND id > $3::text
ORDER BY id LIMIT $4::integer

-- name: view_attempts
SELECT task, token, agent, granted_at, ended_at, outcome, command, detail, late, afterwards
FROM allswell.attempt WHERE task = $1::text ORDER BY token

-- name: view_open_questions
SELECT id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM allswell.question WHERE closed_at IS NULL ORDER BY asked_at, id LIMIT $1::integer

-- name: view_questions
SELECT id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM allswell.question ORDER BY asked_at, id LIMIT $1::integer

-- name: view_runs
SELECT id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves, continued_in
FROM allswell.run
ORDER BY created_at DESC, id DESC LIMIT $1::integer

-- name: view_agents
SELECT id, misses, missed_at, stalled FROM allswell.agent ORDER BY id

-- name: view_health
SELECT agent, record FROM allswell.health ORDER BY agent

-- name: view_open_counts
-- How many tasks are open, are held, wait without being held, and are ready; what is left is delayed. Rows that show
-- where a task stands are there only while it is open and exclude each other, so counting them is enough.
SELECT (SELECT count(*) FROM allswell.task WHERE ended_at IS NULL),
       (SELECT count(*) FROM allswell.lease),
       (SELECT count(DISTINCT w.task) FROM allswell.waits AS w
        WHERE NOT EXISTS (SELECT FROM allswell.lease AS l WHERE l.task = w.task)),
       (SELECT count(*) FROM allswell.ready)

-- name: view_in_doubt
-- Whether it takes a look at every open task to say that all are accounted for: where as many have a timer alone as
-- are neither held nor waiting nor ready, every lease has one, and nobody waits in vain, the sums add up.
SELECT (SELECT count(*) FROM allswell.task WHERE ended_at IS NULL)
    <> (SELECT count(*) FROM allswell.lease)
     + (SELECT count(DISTINCT w.task) FROM allswell.waits AS w
        WHERE NOT EXISTS (SELECT FROM allswell.lease AS l WHERE l.task = w.task))
     + (SELECT count(*) FROM allswell.ready)
     + (SELECT count(*) FROM allswell.timer AS m JOIN allswell.task AS t ON t.id = m.owner
        WHERE NOT EXISTS (SELECT FROM allswell.lease AS l WHERE l.task = m.owner)
          AND NOT EXISTS (SELECT FROM allswell.waits AS w WHERE w.task = m.owner)
          AND NOT EXISTS (
              SELECT FROM allswell.ready AS r WHERE r.lane = t.lane AND r.rank = t.rank AND r.task = t.id))
    OR EXISTS (SELECT FROM allswell.lease AS l
               WHERE l.due_at IS NULL AND NOT EXISTS (SELECT FROM allswell.timer AS m WHERE m.owner = l.task))
    OR EXISTS (SELECT FROM allswell.waits AS w WHERE NOT CASE w.kind
        WHEN 'question' THEN EXISTS (
            SELECT FROM allswell.question AS q WHERE q.id = w.target AND q.closed_at IS NULL)
        ELSE EXISTS (SELECT FROM allswell.task AS n WHERE n.id = w.target AND n.ended_at IS NULL)
          OR EXISTS (SELECT FROM allswell.spread AS s WHERE s.id = w.target)
    END)

-- name: view_ended_counts
SELECT state, count(*) FROM allswell.task WHERE ended_at IS NOT NULL GROUP BY state

-- name: view_agenda
-- The clock, the next timer, and the oldest spread that is pending.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       least((SELECT min(due_at) FROM allswell.timer), (SELECT min(due_at) FROM allswell.lease)),
       (SELECT id FROM allswell.spread ORDER BY seq LIMIT 1)

-- name: view_unaccounted
-- The invariant: an open task has a live lease with its timer, is ready, has a timer, or waits for something alive.
-- What a pending spread has yet to reach is accounted for.
SELECT t.id
FROM allswell.task AS t
LEFT JOIN allswell.timer AS m ON m.owner = t.id
LEFT JOIN allswell.lease AS l ON l.task = t.id
WHERE t.ended_at IS NULL
  AND NOT EXISTS (SELECT FROM allswell.spread AS s WHERE s.id = t.run)
  AND CASE
    WHEN l.task IS NOT NULL THEN m.owner IS NULL AND l.due_at IS NULL
    WHEN EXISTS (SELECT FROM allswell.ready AS r WHERE r.lane = t.lane AND r.rank = t.rank AND r.task = t.id) THEN false
    WHEN NOT EXISTS (SELECT FROM allswell.waits AS w WHERE w.task = t.id) THEN m.owner IS NULL
    ELSE NOT EXISTS (
        SELECT FROM allswell.waits AS w
        WHERE w.task = t.id AND CASE w.kind
            WHEN 'question' THEN EXISTS (
                SELECT FROM allswell.question AS q WHERE q.id = w.target AND q.closed_at IS NULL)
            ELSE EXISTS (SELECT FROM allswell.task AS n WHERE n.id = w.target AND n.ended_at IS NULL)
              OR EXISTS (SELECT FROM allswell.spread AS s WHERE s.id = w.target)
        END
    )
  END
ORDER BY t.id LIMIT $1::integer

-- Schema --------------------------------------------------------------------------------------------------------------

-- name: about_server
-- The tables are looked up in the catalogue itself: `to_regclass` asks a cache that a session which waited for the
-- other migrator has not refreshed yet, and would say that they are still missing.
SELECT current_setting('server_version_num')::integer, current_setting('server_encoding'),
       EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
               WHERE n.nspname = 'allswell' AND c.relname = 'meta')

-- name: schema_version
-- The number of the last migration that was run, and the oldest schema whose code may write.
SELECT value::integer, coalesce((SELECT value FROM allswell.meta WHERE key = 'oldest_writer'), value)::integer
FROM allswell.meta WHERE key = 'schema'

-- name: await_writers
LOCK TABLE allswell.meta IN ACCESS EXCLUSIVE MODE

-- name: lock_schema
-- One migrator at a time; the number is "allswell" in ASCII.
SELECT pg_advisory_xact_lock(7020105162343935084)

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS allswell

-- name: read_kept
-- What the watch keeps about itself.
SELECT value FROM allswell.meta WHERE key = 'kept.' || $1::text

-- name: view_kept
-- What the watch keeps about itself under keys that begin so.
SELECT substr(key, 6), value FROM allswell.meta WHERE starts_with(key, 'kept.' || $1::text) ORDER BY key

-- name: swap_kept
-- Something that the watch keeps about itself, in the place of what was there.
UPDATE allswell.meta SET value = $3::text WHERE key = 'kept.' || $1::text AND value = $2::text RETURNING 1

-- name: add_kept
-- Something that the watch keeps about itself, where nothing was.
INSERT INTO allswell.meta (key, value) VALUES ('kept.' || $1::text, $2::text) ON CONFLICT (key) DO NOTHING RETURNING 1

-- name: put_kept
-- Something that the watch keeps about itself.
INSERT INTO allswell.meta (key, value) VALUES ('kept.' || $1::text, $2::text)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: delete_kept
-- What the watch keeps about itself no longer.
DELETE FROM allswell.meta WHERE key = ANY($1::text[])

-- name: create_meta
CREATE TABLE IF NOT EXISTS allswell.meta (key text PRIMARY KEY, value text NOT NULL)

-- name: set_schema_version
INSERT INTO allswell.meta (key, value) VALUES ('schema', $1::text)
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: set_oldest_writer
INSERT INTO allswell.meta (key, value) VALUES ('oldest_writer', $1::text)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
