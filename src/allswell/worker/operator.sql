-- What is done to PGMQ and the worker's tables in the store's own unit of work, with a question or its answer.
-- Every parameter travels as text, and each statement says its types. {queue} and {archive} are PGMQ's own tables.

-- name: hold
-- The fence: lock messages whose tokens are still the current ones. ($1: tokens as JSON)
SELECT held.msg_id::text
FROM {queue} AS held
JOIN jsonb_to_recordset($1::jsonb) AS token (id bigint, count integer, sent bigint)
    ON held.msg_id = token.id AND held.read_ct = token.count
    AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent
ORDER BY held.msg_id
FOR UPDATE OF held;

-- name: one_cause_at_a_time
-- Two workers that meet the same cause at once would ask two questions.
SELECT pg_advisory_xact_lock(hashtext('allswell_worker.cause'), hashtext($1::text || ' ' || $2::text));

-- name: open_question
-- The question that is open about a cause, and how many messages it is about.
SELECT known.question, count(*)::text
FROM allswell_worker.trouble AS known
JOIN allswell.question AS asked ON asked.id = known.question
WHERE known.queue = $1::text AND known.state = 'quarantined' AND md5(known.cause) = md5($2::text)
  AND known.cause = $2::text AND asked.closed_at IS NULL
GROUP BY known.question
LIMIT 1;

-- name: take_out
-- Move messages out of the queue, into PGMQ's archive. ($2: their ids as JSON)
SELECT pgmq.archive($1::text, ARRAY(SELECT jsonb_array_elements_text($2::jsonb)::bigint));

-- name: note
-- Write down that messages are quarantined, and which question is about them. ($4: what is known of each, as JSON)
INSERT INTO allswell_worker.trouble
    (queue, question, cause, state, msg_id, sent, read_ct, recorded, retries, code, reason)
SELECT $1::text, $2::text, $3::text, 'quarantined', one.id, one.sent, one.count, one.recorded, one.retries, one.code,
       one.reason
FROM jsonb_to_recordset($4::jsonb)
    AS one (id bigint, sent bigint, count integer, recorded integer, retries integer, code text, reason text)
ON CONFLICT (queue, msg_id) DO UPDATE
SET sent = excluded.sent, read_ct = excluded.read_ct, state = excluded.state, recorded = excluded.recorded,
    retries = excluded.retries, code = excluded.code, reason = excluded.reason, question = excluded.question,
    cause = excluded.cause, noted_at = clock_timestamp();

-- name: unsettled
-- Messages that a question is about and that its answer has not been carried out for: some of them, locked.
SELECT msg_id::text, read_ct::text, sent::text FROM allswell_worker.trouble
WHERE queue = $1::text AND question = $2::text AND state = 'quarantined'
ORDER BY msg_id
LIMIT $3::integer
FOR UPDATE SKIP LOCKED;

-- name: settle
-- The answer takes effect for these. ($3: tokens as JSON)
UPDATE allswell_worker.trouble AS known
SET state = $2::text, recorded = known.read_ct, retries = 0, late = 0, noted_at = clock_timestamp()
FROM jsonb_to_recordset($3::jsonb) AS token (id bigint)
WHERE known.queue = $1::text AND known.msg_id = token.id;

-- name: bring_back
-- Move messages out of the archive, back into the queue, visible at once; their ids and counts of readings stay. A message
-- is not there where the queue was dropped since: one of the same id is another one. ($1: tokens as JSON)
WITH found AS (
    DELETE FROM {archive} AS kept
    USING jsonb_to_recordset($1::jsonb) AS token (id bigint, sent bigint)
    WHERE kept.msg_id = token.id AND (extract(epoch FROM kept.enqueued_at) * 1000000)::bigint = token.sent
    RETURNING kept.msg_id, kept.read_ct, kept.enqueued_at, kept.message, kept.headers
)
INSERT INTO {queue} (msg_id, read_ct, enqueued_at, vt, message, headers) OVERRIDING SYSTEM VALUE
SELECT msg_id, read_ct, enqueued_at, clock_timestamp(), message, headers FROM found
RETURNING msg_id::text;

-- name: forget
-- Messages that are not there any more: nothing is known of them. ($2: tokens as JSON)
DELETE FROM allswell_worker.trouble AS known
USING jsonb_to_recordset($2::jsonb) AS token (id bigint, sent bigint)
WHERE known.queue = $1::text AND known.msg_id = token.id AND known.sent = token.sent;

-- name: end_of_batch
-- Messages have ended: their batches have so many less open; gives what is to be sent where it was the last. ($1: tokens)
WITH ended AS (
    SELECT (kept.headers ->> 'allswell_batch')::numeric AS batch, count(*) AS messages
    FROM {archive} AS kept
    JOIN jsonb_to_recordset($1::jsonb) AS token (id bigint, sent bigint)
        ON kept.msg_id = token.id AND (extract(epoch FROM kept.enqueued_at) * 1000000)::bigint = token.sent
    WHERE jsonb_typeof(kept.headers -> 'allswell_batch') = 'number'
    GROUP BY 1
), counted AS (
    UPDATE allswell_worker.batch AS batch SET open = open - ended.messages
    FROM ended
    WHERE batch.id = ended.batch
    RETURNING batch.id, batch.open, batch.queue, batch.message
)
SELECT queue, message::text, id::text FROM counted WHERE open = 0;

-- name: forget_batch
-- A batch whose last message has ended is over.
DELETE FROM allswell_worker.batch WHERE id = $1::bigint;

-- name: send
-- Put one message into a queue.
SELECT sent.msg_id
FROM pgmq.send(queue_name => $1::text, msg => $2::jsonb, headers => NULL::jsonb, delay => 0) AS sent (msg_id);
