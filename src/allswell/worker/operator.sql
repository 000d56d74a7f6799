-- What is done to PGMQ and the worker's tables in the store's own unit of work, with a question or its answer.
-- Every parameter travels as text, and each statement says its types. {queue} and {archive} are PGMQ's own tables.

-- name: hold
-- The fence: lock a message if its token is still the current one.
SELECT read_ct FROM {queue} WHERE msg_id = $1::bigint AND read_ct = $2::integer FOR UPDATE;

-- name: take_out
-- Move a message out of the queue, into PGMQ's archive.
SELECT pgmq.archive($1::text, $2::bigint);

-- name: note
-- Write down that a message is quarantined, and which question is about it.
INSERT INTO allswell_worker.trouble (queue, msg_id, read_ct, state, recorded, retries, code, reason, question)
VALUES ($1::text, $2::bigint, $3::integer, 'quarantined', $4::integer, $5::integer, $6::text, $7::text, $8::text)
ON CONFLICT (queue, msg_id) DO UPDATE
SET read_ct = excluded.read_ct, state = excluded.state, recorded = excluded.recorded, retries = excluded.retries,
    code = excluded.code, reason = excluded.reason, question = excluded.question, noted_at = clock_timestamp();

-- name: settle
-- The answer to this question takes effect, if it has not yet.
UPDATE allswell_worker.trouble
SET state = $4::text, recorded = $5::integer, retries = $6::integer, late = 0, noted_at = clock_timestamp()
WHERE queue = $1::text AND msg_id = $2::bigint AND question = $3::text AND state = 'quarantined'
RETURNING msg_id;

-- name: bring_back
-- Move a message out of the archive, back into the queue, visible at once; its id and its count of readings stay.
WITH found AS (
    DELETE FROM {archive} WHERE msg_id = $1::bigint RETURNING msg_id, read_ct, enqueued_at, message, headers
)
INSERT INTO {queue} (msg_id, read_ct, enqueued_at, vt, message, headers) OVERRIDING SYSTEM VALUE
SELECT msg_id, read_ct, enqueued_at, clock_timestamp(), message, headers FROM found
RETURNING msg_id;

-- name: end_of_batch
-- A message has ended: its batch has one less open; gives what is to be sent if it was the last.
WITH counted AS (
    UPDATE allswell_worker.batch AS batch SET open = open - 1
    FROM {archive} AS ended
    WHERE ended.msg_id = $1::bigint
      AND batch.id = CASE jsonb_typeof(ended.headers -> 'allswell_batch')
                         WHEN 'number' THEN (ended.headers ->> 'allswell_batch')::numeric
                     END
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
