-- Every statement of the SQLite store. Lists of ids come in as one JSON text (json_each), so one prepared statement
-- serves every batch; VALUES are widened to many rows, and a task at the end to a list (transaction.py). The clock is always a parameter.
-- CROSS JOIN: the list is walked and each row looked up; `IN (SELECT …)` would first build a sorted table of the list.

-- ==== Existence: what `lock` answers. BEGIN IMMEDIATE is the lock.

-- name: lock_spread
-- Which of these consequences are still to be worked off.
SELECT spread.id FROM json_each(?) AS given CROSS JOIN spread ON spread.id = given.value;

-- name: lock_run
-- Which of these runs exist.
SELECT run.id FROM json_each(?) AS given CROSS JOIN run ON run.id = given.value;

-- name: lock_service
-- Which of these services have a row.
SELECT service.id FROM json_each(?) AS given CROSS JOIN service ON service.id = given.value;

-- name: lock_agent
-- Which of these agents have a row.
SELECT agent.id FROM json_each(?) AS given CROSS JOIN agent ON agent.id = given.value;

-- name: lock_health
-- Of which of these agents requests say something.
SELECT health.agent FROM json_each(?) AS given CROSS JOIN health ON health.agent = given.value;

-- name: lock_question
-- Which of these questions exist.
SELECT question.id FROM json_each(?) AS given CROSS JOIN question ON question.id = given.value;

-- name: lock_task
-- Which of these tasks exist.
SELECT task.id FROM json_each(?) AS given CROSS JOIN task ON task.id = given.value;

-- name: lock_lease
-- Which of these tasks are held.
SELECT task FROM json_each(?) AS given CROSS JOIN lease ON lease.task = given.value;

-- ==== Reading by key

-- name: read_spread
-- Consequences by id.
SELECT spread.id, outcome, reason, replaced_by, reached
FROM json_each(?) AS given CROSS JOIN spread ON spread.id = given.value;

-- name: read_run
-- Runs by id.
SELECT run.id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
       continued_in
FROM json_each(?) AS given CROSS JOIN run ON run.id = given.value;

-- name: read_service
-- Services by id.
SELECT state FROM json_each(?) AS given CROSS JOIN service ON service.id = given.value;

-- name: read_agent
-- What is held against these agents.
SELECT agent.id, misses, missed_at, stalled FROM json_each(?) AS given CROSS JOIN agent ON agent.id = given.value;

-- name: read_health
-- What requests say of these agents.
SELECT agent, record FROM json_each(?) AS given CROSS JOIN health ON health.agent = given.value;

-- name: read_question
-- Questions by id.
SELECT question.id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM json_each(?) AS given CROSS JOIN question ON question.id = given.value;

-- name: read_task
-- Tasks with their place in line and their timer, which is with the lease or by itself.
SELECT task.id, name, run, role, task.lane, priority, state, created_at, ended_at, spec, record, task.rank,
       ready.task, coalesce(timer.due_at, lease.due_at)
FROM json_each(?) AS given
CROSS JOIN task ON task.id = given.value
LEFT JOIN ready ON ready.lane = task.lane AND ready.rank = task.rank AND ready.task = task.id
LEFT JOIN timer ON timer.owner = task.id
LEFT JOIN lease ON lease.task = task.id;

-- name: read_wait
-- What these tasks wait for.
SELECT task, kind, target FROM json_each(?) AS given CROSS JOIN wait ON wait.task = given.value ORDER BY task, kind, target;

-- name: read_lease
-- The current leases of these tasks.
SELECT task, token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
       judged, stalled_at, renewed_at, checkin_at, progress, note, own
FROM json_each(?) AS given CROSS JOIN lease ON lease.task = given.value;

-- name: read_attempt
-- Ended attempts by task and token, given as pairs.
SELECT attempt.task, attempt.token, agent, granted_at, ended_at, outcome, command, detail, late, afterwards
FROM json_each(?) AS pair
JOIN attempt ON attempt.task = json_extract(pair.value, '$[0]') AND attempt.token = json_extract(pair.value, '$[1]');

-- name: read_first_attempt
-- The first attempts of these tasks, where they are kept in the task's own row.
SELECT task.id, attempt FROM json_each(?) AS given CROSS JOIN task ON task.id = given.value WHERE attempt IS NOT NULL;

-- name: read_awaited
-- Which of these tasks others wait for.
SELECT DISTINCT target FROM json_each(?) AS given CROSS JOIN wait ON wait.target = given.value;

-- name: read_payload
-- The payloads of these tasks.
SELECT task.id, payload FROM json_each(?) AS given CROSS JOIN task ON task.id = given.value;

-- name: read_bar
-- Who may not hold these tasks.
SELECT task, agent FROM json_each(?) AS given CROSS JOIN bar ON bar.task = given.value;

-- name: read_lanes
-- Lanes made since those already known.
SELECT id, role, services FROM lane WHERE id > ? ORDER BY id;

-- name: read_services
-- All services that something is or was held against.
SELECT state FROM service ORDER BY id;

-- name: read_last
-- The moment of the last decision, behind which the store's clock does not go back, the number of its last event,
-- how far settling has got after the machine's clock was set, and the oldest schema whose code may write.
SELECT coalesce(max(at), 0), coalesce(max(last), 0), (SELECT value FROM meta WHERE key = 'kept.clock_settling'),
       (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'oldest_writer')
FROM (SELECT at, last FROM journal ORDER BY last DESC LIMIT 1);

-- name: read_last_renewal
-- The last sign of life, so that beats count for the clock too when a store is opened.
SELECT max(renewed_at) FROM lease;

-- ==== Finding

-- name: pick
-- The best claimable tasks of one lane.
SELECT rank, task FROM ready WHERE lane = ? ORDER BY rank, task LIMIT ?;

-- name: pick_for
-- The best claimable tasks of one lane that this agent is not barred from.
SELECT rank, task FROM ready
WHERE lane = ? AND NOT EXISTS (SELECT 1 FROM bar WHERE bar.task = ready.task AND bar.agent = ?)
ORDER BY rank, task LIMIT ?;

-- name: pick_outside
-- As `pick_for`, without the tasks of these runs; an agent without a name is barred from nothing.
SELECT rank, task FROM ready
WHERE lane = ? AND NOT EXISTS (SELECT 1 FROM bar WHERE bar.task = ready.task AND bar.agent = ?)
  AND NOT EXISTS (SELECT 1 FROM task JOIN json_each(?) AS given ON given.value = task.run WHERE task.id = ready.task)
ORDER BY rank, task LIMIT ?;

-- name: find_due
-- Timers that have fallen due, the oldest first, with the holder: those by themselves and those of leases. Those of
-- runs come last in their moment.
SELECT owner, agent FROM (
    SELECT owner, agent, due_at FROM (
        SELECT owner, lease.agent, timer.due_at FROM timer LEFT JOIN lease ON lease.task = owner
        WHERE timer.due_at <= ?1 ORDER BY timer.due_at, owner LIKE 'r\_%' ESCAPE '\', owner LIMIT ?2)
    UNION ALL
    SELECT task, agent, due_at FROM (
        SELECT task, agent, due_at FROM lease WHERE due_at <= ?1 ORDER BY due_at, task LIMIT ?2)
) ORDER BY due_at, owner LIKE 'r\_%' ESCAPE '\', owner LIMIT ?2;

-- name: find_spreads
-- Consequences still to be worked off, the oldest first.
SELECT id FROM spread ORDER BY seq LIMIT ?;

-- name: find_waiting
-- Tasks that wait for this one.
SELECT task FROM wait WHERE target = ? ORDER BY task LIMIT ?;

-- name: find_open
-- Open tasks of a run.
SELECT id FROM task WHERE run = ? AND ended_at IS NULL ORDER BY id LIMIT ?;

-- name: find_runs
-- In which runs these tasks are.
SELECT task.id, run FROM json_each(?) AS given CROSS JOIN task ON task.id = given.value WHERE run IS NOT NULL;

-- name: find_held
-- Tasks of a run that somebody holds.
SELECT task.id FROM task CROSS JOIN lease ON lease.task = task.id
WHERE task.run = ? AND task.ended_at IS NULL AND task.id > ? ORDER BY task.id LIMIT ?;

-- name: find_questions
-- Open questions about a task.
SELECT id FROM question WHERE task = ? AND closed_at IS NULL ORDER BY id;

-- name: find_target
-- A task's role, and who holds it.
SELECT role, lease.agent FROM task LEFT JOIN lease ON lease.task = task.id WHERE task.id = ?;

-- name: find_asking
-- The open requests between agents.
SELECT id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank
FROM task INDEXED BY task_open WHERE ended_at IS NULL AND id >= 'm_' AND id < 'm`' ORDER BY id;

-- name: find_tokens
-- The tokens of the leases on these tasks.
SELECT lease.task, lease.token FROM json_each(?) AS given CROSS JOIN lease ON lease.task = given.value;

-- name: find_claimed
-- What a claim command holds; the second condition is what lets the partial index serve.
SELECT task FROM lease WHERE command = ? AND command <> '' ORDER BY task;

-- name: find_leases
-- The next leases by task id.
SELECT task FROM lease WHERE task > ? ORDER BY task LIMIT ?;

-- name: find_timers
-- The next timers by owner, with the holder: those by themselves and those of leases.
SELECT owner, agent FROM (
    SELECT * FROM (
        SELECT owner, lease.agent FROM timer LEFT JOIN lease ON lease.task = owner
        WHERE owner > ?1 ORDER BY owner LIMIT ?2)
    UNION
    SELECT * FROM (
        SELECT task, agent FROM lease WHERE due_at IS NOT NULL AND task > ?1 ORDER BY task LIMIT ?2))
ORDER BY owner LIMIT ?2;

-- ==== Writing. Fenced by (task, token); `state` and `ended_at` never stand in a WHERE.

-- name: insert_run
-- A new run.
INSERT INTO run (id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
                 continued_in)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_run
-- A run's end, where it went on, or that its clock has stopped or gone on.
UPDATE run SET name = ?, created_at = ?, deadline = ?, ended_at = ?, reason = ?, command = ?, asked = ?, stands_since = ?,
               stood = ?, moves = ?, continued_in = ?
WHERE id = ?;

-- name: insert_service
-- A service that something is held against for the first time.
INSERT INTO service (id, state) VALUES (?, ?);

-- name: update_service
-- How a service stands now.
UPDATE service SET state = ? WHERE id = ?;

-- name: insert_agent
-- The first thing that is held against an agent.
INSERT INTO agent (id, misses, missed_at, stalled) VALUES (?, ?, ?, ?);

-- name: put_agent
-- What is held against an agent.
INSERT INTO agent (id, misses, missed_at, stalled) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET misses = excluded.misses, missed_at = excluded.missed_at, stalled = excluded.stalled;

-- name: delete_agent
-- Nothing is held against these agents any more.
DELETE FROM agent WHERE id IN (SELECT value FROM json_each(?));

-- name: insert_health
-- The first thing that requests say of an agent.
INSERT INTO health (agent, record) VALUES (?, ?);

-- name: update_health
-- What requests say of an agent now.
UPDATE health SET record = ?2 WHERE agent = ?1;

-- name: insert_question
-- A new question.
INSERT INTO question (id, task, run, kind, text, options, asked_at, asked_by,
                      closed_at, choice, answer, answered_by, command, waited, dismissed_at, dismissed_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_question
-- How a question was closed, who has seen it, and what it says now.
UPDATE question SET text = ?, closed_at = ?, choice = ?, answer = ?, answered_by = ?, command = ?, dismissed_at = ?,
                    dismissed_by = ?
WHERE id = ?;

-- name: insert_task
-- A new task with its payload.
INSERT INTO task (name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank, payload, id)
VALUES (?, NULLIF(?, -1), coalesce(NULLIF(?, -1), ''), ?, ?, coalesce(NULLIF(?, -1), 'open'), ?, NULLIF(?, -1),
        coalesce(NULLIF(?, -1), '{}'), coalesce(NULLIF(?, -1), '{}'), ?, coalesce(NULLIF(?, -1), 'null'), ?);

-- name: insert_recorded
-- A task that is finished as it is made, with its result and its one attempt.
INSERT INTO task (id, name, run, role, lane, priority, state, created_at, ended_at, spec, record, rank, payload,
                  result, attempt)
VALUES (?, ?, NULLIF(?, ''), ?, ?, ?, ?, ?, NULLIF(?, -1), ?, ?, ?, ?, ?, ?);

-- name: update_task
-- What happened to a task; without a result, or a first attempt, the old one stays.
UPDATE task SET state = ?, ended_at = NULLIF(?, -1), record = ?, result = coalesce(NULLIF(?, ''), result),
                attempt = coalesce(NULLIF(?, ''), attempt)
WHERE id = ?;

-- name: move_task
-- What was asked for, with its limit as the clock is now.
UPDATE task SET spec = ? WHERE id = ?;

-- name: move_lease
-- A lease as the clock is now: everything in it that is a moment.
UPDATE lease SET granted_at = ?, deadline = ?, stalled_at = ?, renewed_at = ?, checkin_at = ?, own = ?
WHERE task = ? AND token = ?;

-- name: insert_ready
-- A task that can be claimed now.
INSERT INTO ready (lane, rank, task) VALUES (?, ?, ?);

-- name: delete_ready
-- Tasks that cannot be claimed any more.
DELETE FROM ready WHERE lane = ? AND rank = ? AND task = ?;

-- name: put_timer
-- When an owner falls due.
INSERT INTO timer (owner, due_at) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET due_at = excluded.due_at;

-- name: delete_timer
-- Owners that cannot change by themselves any more.
DELETE FROM timer WHERE owner IN (SELECT value FROM json_each(?));

-- name: insert_wait
-- One thing a task waits for.
INSERT INTO wait (task, kind, target) VALUES (?, ?, ?);

-- name: delete_wait
-- One thing a task waits for no longer.
DELETE FROM wait WHERE task = ? AND kind = ? AND target = ?;

-- name: delete_bar
-- An agent that may hold a task again.
DELETE FROM bar WHERE task = ? AND agent = ?;

-- name: insert_bar
-- An agent that may not hold a task.
INSERT INTO bar (task, agent) VALUES (?, ?);

-- name: insert_lease
-- A new lease; its task has no other.
INSERT INTO lease (token, agent, granted_at, deadline, length, idle, ask_every, ask_wait, grace, command,
                   judged, stalled_at, renewed_at, checkin_at, progress, note, own, due_at, task)
VALUES (?, ?, ?, ?, NULLIF(?, -1), NULLIF(?, -1), ?, ?, ?, coalesce(NULLIF(?, -1), ''), ?, NULLIF(?, -1), ?,
        NULLIF(?, -1), NULLIF(?, -1), coalesce(NULLIF(?, -1), ''), NULLIF(?, -1), NULLIF(?, -1), ?);

-- name: update_lease
-- What a check-in or a tick changes; the rest stands as it was granted.
UPDATE lease SET deadline = ?, judged = ?, stalled_at = NULLIF(?, -1), renewed_at = ?, checkin_at = NULLIF(?, -1),
                 progress = NULLIF(?, -1), note = ?, own = NULLIF(?, -1)
WHERE token = ? AND task = ?;

-- name: delete_lease
-- A lease that is over.
DELETE FROM lease WHERE token = ? AND task = ?;

-- name: take_timer
-- The timers of these leases are by themselves from now on, or gone.
UPDATE lease SET due_at = NULL WHERE task IN (SELECT value FROM json_each(?));

-- name: insert_attempt
-- How a lease ended.
INSERT INTO attempt (task, token, agent, granted_at, ended_at, outcome, command, detail, late, afterwards)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, ''), NULLIF(?, ''));

-- name: update_late
-- What a holder still brought and said after its lease had ended.
UPDATE attempt SET late = ?, afterwards = ? WHERE task = ? AND token = ?;

-- name: insert_spread
-- A consequence to be worked off.
INSERT INTO spread (id, outcome, reason, replaced_by, reached) VALUES (?, ?, ?, ?, ?);

-- name: delete_spread
-- Consequences that were worked off.
DELETE FROM spread WHERE id IN (SELECT value FROM json_each(?));

-- name: insert_events
-- The facts of one decision or more, and the number of the last of them.
INSERT INTO journal (last, at, events) VALUES (?, ?, ?);

-- name: insert_lane
-- A lane, unless it is there.
INSERT INTO lane (role, services) VALUES (?, ?) ON CONFLICT (role, services) DO NOTHING;

-- name: find_lane
-- The number of a lane.
SELECT id FROM lane WHERE role = ? AND services = ?;

-- name: advance
-- Where a follower has got to; never backwards.
INSERT INTO cursor (follower, xid, id) VALUES (?, ?, ?)
ON CONFLICT (follower) DO UPDATE SET xid = excluded.xid, id = excluded.id
WHERE (excluded.xid, excluded.id) > (cursor.xid, cursor.id);

-- name: insert_delivery
-- Something that a sink has to deliver.
INSERT INTO delivery (sink, xid, number, part, id, target, at, body, tries, next_at, failing_since, given_up, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_delivery
-- How a delivery stands after a try, or after a human's word.
UPDATE delivery SET tries = ?, next_at = ?, failing_since = ?, given_up = ?, reason = ?
WHERE sink = ? AND xid = ? AND number = ? AND part = ?;

-- name: delete_delivery
-- A delivery that was made or dropped.
DELETE FROM delivery WHERE sink = ? AND xid = ? AND number = ? AND part = ?;

-- name: delete_deliveries_of
-- What a sink had to deliver that is no more.
DELETE FROM delivery WHERE sink = ?;

-- name: delete_cursor
-- A follower that is no more.
DELETE FROM cursor WHERE follower = ?;

-- ==== Views, read in a thread of their own

-- name: view_tasks
-- Tasks with what shows where they stand; {condition} and {order} are made of fixed pieces (views.py).
SELECT id, name, run, role, task.lane, priority, state, created_at, ended_at, spec, record, task.rank,
       ready.task, coalesce(timer.due_at, lease.due_at),
       lease.task, lease.token, lease.agent, lease.granted_at, lease.deadline, lease.length, lease.idle,
       lease.ask_every, lease.ask_wait, lease.grace, lease.command,
       lease.judged, lease.stalled_at, lease.renewed_at, lease.checkin_at, lease.progress, lease.note,
       lease.own
FROM task
LEFT JOIN ready ON ready.lane = task.lane AND ready.rank = task.rank AND ready.task = task.id
LEFT JOIN timer ON timer.owner = task.id
LEFT JOIN lease ON lease.task = task.id
WHERE {condition} ORDER BY id {order} LIMIT ?;

-- name: view_text
-- A condition of view_tasks: a text stands in what a task is called, or in who holds it. Line feeds keep them apart.
instr(lower(name || char(10) || id || char(10) || role || char(10) || coalesce(lease.agent, '')), ?) > 0;

-- name: view_payload
-- A task's payload and result.
SELECT payload, result FROM task WHERE id = ?;

-- name: view_results
-- The results of a run's tasks of one role that are done, by id.
SELECT id, coalesce(result, 'null') FROM task
WHERE run = ? AND ended_at IS NOT NULL AND role = ? AND state = 'done' AND id > ? ORDER BY id LIMIT ?;

-- name: view_attempts
-- A task's ended attempts, in order.
SELECT task, token, agent, granted_at, ended_at, outcome, command, detail, late, afterwards
FROM attempt WHERE task = ? ORDER BY token;

-- name: view_open_questions
-- Questions without an answer, the oldest first.
SELECT id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM question WHERE closed_at IS NULL ORDER BY asked_at, id LIMIT ?;

-- name: view_questions
-- Questions, the oldest first.
SELECT id, task, run, kind, text, options, asked_at, asked_by, closed_at, choice, answer, answered_by, command,
       waited, dismissed_at, dismissed_by
FROM question ORDER BY asked_at, id LIMIT ?;

-- name: view_runs
-- Runs, the newest first.
SELECT id, name, created_at, deadline, ended_at, reason, command, asked, stands_since, stood, moves,
       continued_in
FROM run ORDER BY created_at DESC, id DESC LIMIT ?;

-- name: view_agents
-- What is held against agents.
SELECT id, misses, missed_at, stalled FROM agent ORDER BY id;

-- name: view_health
-- What requests say of agents.
SELECT agent, record FROM health ORDER BY agent;

-- name: view_counts_bad
-- How many tasks ended in which way other than well.
SELECT state, count(*) FROM task WHERE state <> 'open' AND state <> 'done' GROUP BY state;

-- name: view_count_all
-- How many tasks there are.
SELECT count(*) FROM task;

-- name: view_counts_open
-- How many tasks are open, are held, wait without being held, and are ready; what is left is delayed. Rows that show
-- where a task stands are there only while it is open and exclude each other, so counting them is enough.
SELECT (SELECT count(*) FROM task WHERE ended_at IS NULL),
       (SELECT count(*) FROM lease),
       (SELECT count(DISTINCT task) FROM wait)
           - (SELECT count(DISTINCT wait.task) FROM lease CROSS JOIN wait ON wait.task = lease.task),
       (SELECT count(*) FROM ready);

-- name: count_timers
-- How many tasks have a timer by itself.
SELECT count(*) FROM timer WHERE owner >= 't_' AND owner < 't`';

-- name: count_timers_of_leases
-- How many of these are of tasks that are held.
SELECT count(*) FROM lease CROSS JOIN timer ON timer.owner = lease.task;

-- name: count_timers_of_waits
-- How many are of tasks that wait and are not held: requests, so few.
SELECT count(*) FROM timer WHERE EXISTS (SELECT 1 FROM wait WHERE wait.task = timer.owner)
    AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.task = timer.owner);

-- name: count_timers_of_ready
-- How many are of tasks that are ready, by the timers.
SELECT count(*) FROM timer CROSS JOIN task ON task.id = timer.owner
WHERE EXISTS (SELECT 1 FROM ready WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.task = task.id);

-- name: count_ready_with_timers
-- The same by what is ready, where that is less.
SELECT count(*) FROM ready CROSS JOIN timer ON timer.owner = ready.task;

-- name: find_untimed
-- Whether there is a lease without a timer.
SELECT EXISTS (SELECT 1 FROM lease WHERE due_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM timer WHERE timer.owner = lease.task));

-- name: find_in_vain
-- Whether a task waits for something that is over, and nobody is about to tell it.
SELECT EXISTS (SELECT 1 FROM wait WHERE NOT CASE wait.kind
    WHEN 'question' THEN EXISTS (SELECT 1 FROM question WHERE question.id = wait.target AND closed_at IS NULL)
    ELSE EXISTS (SELECT 1 FROM task INDEXED BY task_open WHERE task.id = wait.target AND task.ended_at IS NULL)
      OR EXISTS (SELECT 1 FROM spread WHERE spread.id = wait.target)
END);

-- name: view_state
-- Where a task stands; the same order as `domain.task.aggregate.state`, held to it by a test. One that stands nowhere counts as
-- delayed here, and is found by view_unaccounted.
CASE
    WHEN ended_at IS NOT NULL THEN task.state
    WHEN EXISTS (SELECT 1 FROM lease WHERE lease.task = task.id) THEN 'held'
    WHEN EXISTS (SELECT 1 FROM wait WHERE wait.task = task.id) THEN 'waiting'
    WHEN EXISTS (SELECT 1 FROM ready WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.task = task.id) THEN 'ready'
    ELSE 'delayed'
END;

-- name: view_stands
-- Whether a task stands in one of these states.
({state}) IN (SELECT value FROM json_each(?));

-- name: view_agenda
-- The moment of the last decision, when the next timer falls due, and the oldest consequence that waits.
SELECT coalesce((SELECT at FROM journal ORDER BY last DESC LIMIT 1), 0),
       (SELECT min(due) FROM (SELECT min(due_at) AS due FROM timer UNION ALL SELECT min(due_at) FROM lease)),
       (SELECT id FROM spread ORDER BY seq LIMIT 1), (SELECT value FROM meta WHERE key = 'kept.clock_settling');

-- name: view_unaccounted
-- Open tasks that nothing will ever move again: the invariant, in one query. Asked where counting leaves a doubt.
SELECT id FROM task
WHERE ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM spread WHERE spread.id = task.run)
  AND CASE
    WHEN EXISTS (SELECT 1 FROM lease WHERE lease.task = task.id)
        THEN NOT EXISTS (SELECT 1 FROM lease WHERE lease.task = task.id AND lease.due_at IS NOT NULL)
         AND NOT EXISTS (SELECT 1 FROM timer WHERE timer.owner = task.id)
    WHEN EXISTS (SELECT 1 FROM ready WHERE ready.lane = task.lane AND ready.rank = task.rank AND ready.task = task.id) THEN 0
    WHEN EXISTS (SELECT 1 FROM wait WHERE wait.task = task.id)
        THEN NOT EXISTS (
            SELECT 1 FROM wait WHERE wait.task = task.id AND CASE wait.kind
                WHEN 'question' THEN EXISTS (
                    SELECT 1 FROM question WHERE question.id = wait.target AND closed_at IS NULL)
                ELSE EXISTS (SELECT 1 FROM spread WHERE spread.id = wait.target)
                  OR EXISTS (SELECT 1 FROM task AS need WHERE need.id = wait.target AND need.ended_at IS NULL)
            END)
    ELSE NOT EXISTS (SELECT 1 FROM timer WHERE timer.owner = task.id)
  END
ORDER BY id LIMIT ?;

-- name: view_journal
-- Events after a position, as many as were written together at a time.
SELECT last, at, events FROM journal WHERE last > ? ORDER BY last;

-- name: view_cursor
-- Where a follower has got to.
SELECT xid, id FROM cursor WHERE follower = ?;

-- name: view_cursors
-- Where every follower has got to.
SELECT follower, xid, id FROM cursor;

-- name: view_deliveries
-- What is still to be delivered or was given up; what is NULL picks nothing out.
SELECT sink, xid, number, part, id, target, at, body, tries, next_at, failing_since, given_up, reason
FROM delivery
WHERE (?1 IS NULL OR sink = ?1) AND (?2 IS NULL OR target = ?2) AND (?3 IS NULL OR given_up = ?3)
ORDER BY sink, xid, number, part LIMIT ?4;

-- ==== Schema

-- name: count_tables
-- Whether the file holds anything at all.
SELECT count(*) FROM sqlite_master;

-- name: put_store_id
-- Once, when a store is first opened: by this id a database is told from one that was put in its place.
INSERT INTO meta (key, value) VALUES ('store_id', ?) ON CONFLICT (key) DO NOTHING;

-- name: read_store_id
-- The id of the store; none in a store that was made before there were ids, until it is opened.
SELECT value FROM meta WHERE key = 'store_id';

-- name: find_meta
-- Whether the file is a watch.
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta';

-- name: create_meta
-- What is known about the watch itself.
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;

-- name: read_version
-- The number of the last migration that was run, and the oldest schema whose code may write.
SELECT CAST(value AS INTEGER),
       CAST(coalesce((SELECT value FROM meta WHERE key = 'oldest_writer'), value) AS INTEGER)
FROM meta WHERE key = 'schema_version';

-- name: read_kept
-- What the watch keeps about itself.
SELECT value FROM meta WHERE key = 'kept.' || ?;

-- name: view_kept
-- What the watch keeps about itself under keys that begin so: the prefix, and the prefix again.
SELECT substr(key, 6), value FROM meta WHERE substr(key, 1, 5 + length(?1)) = 'kept.' || ?1 ORDER BY key;

-- name: swap_kept
-- Something that the watch keeps about itself, in the place of what was there.
UPDATE meta SET value = ? WHERE key = 'kept.' || ? AND value = ?;

-- name: add_kept
-- Something that the watch keeps about itself, where nothing was.
INSERT INTO meta (key, value) VALUES ('kept.' || ?, ?) ON CONFLICT (key) DO NOTHING;

-- name: put_kept
-- Something that the watch keeps about itself.
INSERT INTO meta (key, value) VALUES ('kept.' || ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: delete_kept
-- Everything that the watch keeps about itself under a name, and under those that begin with it and a dot.
DELETE FROM meta WHERE key >= 'kept.' || ?1 AND key < 'kept.' || ?1 || '/'
  AND (key = 'kept.' || ?1 OR substr(key, 1, 6 + length(?1)) = 'kept.' || ?1 || '.');

-- name: put_version
-- The number of the migration just run.
INSERT INTO meta (key, value) VALUES ('schema_version', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: put_oldest_writer
-- The oldest schema whose code may write from now on.
INSERT INTO meta (key, value) VALUES ('oldest_writer', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: read_expense
-- What the attempts at these tasks have cost.
SELECT expense.task, token, agent, role, run, told_at, cost, given, written, estimated
FROM json_each(?) AS given_ids CROSS JOIN expense ON expense.task = given_ids.value ORDER BY expense.task, token;

-- name: put_expense
-- What an attempt has cost so far.
INSERT INTO expense (task, token, agent, role, run, told_at, cost, given, written, estimated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task, token) DO UPDATE SET told_at = excluded.told_at, cost = excluded.cost, given = excluded.given,
    written = excluded.written, estimated = excluded.estimated;

-- name: view_spent
-- Sums of what attempts have cost, by one of the columns.
SELECT {column}, count(*), count(cost),
    sum(min(max(cost, 0), 1000000000000)),
    sum(min(max(given, 0), 1000000000000)),
    sum(min(max(written, 0), 1000000000000)),
    sum(estimated)
FROM expense WHERE {column} IN (SELECT value FROM json_each(?)) AND told_at >= ? GROUP BY 1 ORDER BY 1;

-- name: view_all_spent
-- The same of everything.
SELECT {column}, count(*), count(cost),
    sum(min(max(cost, 0), 1000000000000)),
    sum(min(max(given, 0), 1000000000000)),
    sum(min(max(written, 0), 1000000000000)),
    sum(estimated)
FROM expense WHERE {column} IS NOT NULL AND told_at >= ? GROUP BY 1 ORDER BY 1;
