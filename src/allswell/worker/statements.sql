-- What the worker says to PGMQ and writes beside it. {queue} and {archive} are PGMQ's own tables of one queue.
-- PGMQ's functions are called by the names of their arguments and read by the names of their columns: both differ in
-- their order between versions. Where a token must be checked, its tables are written to directly (docs/adr/0046).

-- name: look
-- What there is of PGMQ: its schema, the version where it is an extension, the version that could be had.
SELECT to_regprocedure('pgmq.read(text,integer,integer)') IS NOT NULL
           OR to_regprocedure('pgmq.read(text,integer,integer,jsonb)') IS NOT NULL AS has_functions,
       EXISTS (SELECT FROM pg_namespace WHERE nspname = 'pgmq') AS has_schema,
       (SELECT extversion FROM pg_extension WHERE extname = 'pgmq') AS extension,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'pgmq') AS available,
       to_regprocedure('pgmq.enable_notify_insert(text,integer)') IS NOT NULL
           OR to_regprocedure('pgmq.enable_notify_insert(text)') IS NOT NULL AS has_notify,
       to_regclass('allswell_worker.presence') IS NOT NULL AND 3 = (
           SELECT count(*) FROM pg_attribute
           WHERE attrelid = to_regclass('allswell_worker.trouble') AND attname IN ('late', 'sent', 'cause')
             AND NOT attisdropped
       ) AS has_tables,
       to_regclass('allswell.question') IS NOT NULL AS has_store,
       current_database() AS database;

-- name: has_headers
-- Messages have headers from 1.5 on.
SELECT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = to_regclass('pgmq.message_record') AND attname = 'headers' AND NOT attisdropped
) AS answer;

-- name: one_at_a_time
-- Two set-ups at once would both find nothing, and one would fail.
SELECT pg_advisory_xact_lock(hashtext('allswell_worker.setup'));

-- name: queue_exists
-- Whether a queue of this name was made.
SELECT EXISTS (SELECT FROM pgmq.list_queues() AS queues WHERE queues.queue_name = %s) AS answer;

-- name: create_queue
-- Make a queue.
SELECT pgmq.create(queue_name => %s);

-- name: notify_on
-- Have PGMQ tell listeners of new messages. (250 ms is PGMQ's own throttle where it has one.)
SELECT pgmq.enable_notify_insert(queue_name => %s);

-- name: notifies
-- Whether PGMQ tells listeners of new messages of this queue.
SELECT EXISTS (
    SELECT FROM pg_trigger
    WHERE tgrelid = to_regclass(%s) AND tgname = 'trigger_notify_queue_insert_listeners'
) AS answer;

-- name: send
-- Put one message into a queue; it is there once the caller's transaction commits.
SELECT sent.msg_id FROM pgmq.send(queue_name => %s, msg => %s::jsonb, headers => %s::jsonb, delay => %s::integer)
    AS sent (msg_id);

-- name: send_many
-- Put several messages into a queue as a batch, with what is sent when all of them have ended. One statement: it is
-- whole or not at all on any connection, and begins and ends no transaction of the caller's.
WITH begun AS (
    INSERT INTO allswell_worker.batch (queue, open, message)
    VALUES (%(queue)s, %(open)s, %(then)s::jsonb)
    RETURNING id
), sent AS (
    SELECT begun.id, many.msg_id
    FROM begun
    CROSS JOIN LATERAL pgmq.send_batch(
        queue_name => %(queue)s::text, msgs => %(bodies)s::jsonb[],
        headers => array_fill(jsonb_build_object('allswell_batch', begun.id), ARRAY[%(open)s::integer]), delay => 0
    ) AS many (msg_id)
)
SELECT max(id) AS id FROM sent;

-- name: read
-- Take messages that are visible, and hide them for so many seconds.
SELECT msg_id, read_ct, (extract(epoch FROM enqueued_at) * 1000000)::bigint AS sent, message, headers
FROM pgmq.read(queue_name => %s, vt => %s, qty => %s);

-- name: histories
-- What is known of messages that were read before.
SELECT known.msg_id, recorded, retries, late, code, reason
FROM allswell_worker.trouble AS known
JOIN unnest(%(ids)s::bigint[], %(sent)s::bigint[]) AS token (msg_id, sent)
    ON known.msg_id = token.msg_id AND known.sent = token.sent
WHERE queue = %(name)s;

-- name: hold
-- The fence: lock a message if its token is still the current one.
SELECT read_ct FROM {queue}
WHERE msg_id = %s AND read_ct = %s AND (extract(epoch FROM enqueued_at) * 1000000)::bigint = %s
FOR UPDATE;

-- name: finish
-- End messages that were handled, each only if its token is still the current one.
WITH ended AS (
    DELETE FROM {queue} AS held
    USING unnest(%(ids)s::bigint[], %(counts)s::integer[], %(sent)s::bigint[]) AS token (msg_id, read_ct, sent)
    WHERE held.msg_id = token.msg_id AND held.read_ct = token.read_ct
      AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent
    RETURNING held.msg_id, held.read_ct
), mended AS (
    DELETE FROM allswell_worker.trouble AS known
    USING ended
    WHERE ended.read_ct > 1 AND known.queue = %(name)s AND known.msg_id = ended.msg_id
)
SELECT msg_id FROM ended;

-- name: finish_first
-- As `finish`, of one message at its first reading, of which nothing is known: the usual case, and cheaper. (Two whole
-- numbers, which need no parameters.)
DELETE FROM {queue}
WHERE msg_id = %d AND read_ct = 1 AND (extract(epoch FROM enqueued_at) * 1000000)::bigint = %d
RETURNING msg_id;

-- name: finish_and_commit
-- As `finish_first`, and the end of its transaction with it. It fails where the message is another's by then.
WITH ended AS (
    DELETE FROM {queue}
    WHERE msg_id = %d AND read_ct = 1 AND (extract(epoch FROM enqueued_at) * 1000000)::bigint = %d
    RETURNING msg_id
)
SELECT 1 / count(*) FROM ended;
COMMIT;

-- name: finish_free
-- As `finish`, of those that nobody has locked: one that somebody holds on to must not keep all others waiting.
WITH free AS (
    SELECT held.msg_id, held.read_ct
    FROM {queue} AS held
    JOIN unnest(%(ids)s::bigint[], %(counts)s::integer[], %(sent)s::bigint[]) AS token (msg_id, read_ct, sent)
        ON held.msg_id = token.msg_id AND held.read_ct = token.read_ct
        AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent
    FOR UPDATE OF held SKIP LOCKED
), ended AS (
    DELETE FROM {queue} AS held USING free WHERE held.msg_id = free.msg_id RETURNING held.msg_id, held.read_ct
), mended AS (
    DELETE FROM allswell_worker.trouble AS known
    USING ended
    WHERE ended.read_ct > 1 AND known.queue = %(name)s AND known.msg_id = ended.msg_id
)
SELECT msg_id FROM ended;

-- name: current
-- Which of these tokens are still the current ones.
SELECT held.msg_id
FROM {queue} AS held
JOIN unnest(%(ids)s::bigint[], %(counts)s::integer[], %(sent)s::bigint[]) AS token (msg_id, read_ct, sent)
    ON held.msg_id = token.msg_id AND held.read_ct = token.read_ct
    AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent;

-- name: hide
-- Hide messages for so many seconds from now, each only if its token is still the current one and nobody has it locked.
WITH free AS (
    SELECT held.msg_id
    FROM {queue} AS held
    JOIN unnest(%(ids)s::bigint[], %(counts)s::integer[], %(sent)s::bigint[]) AS token (msg_id, read_ct, sent)
        ON held.msg_id = token.msg_id AND held.read_ct = token.read_ct
        AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent
    FOR UPDATE OF held SKIP LOCKED
)
UPDATE {queue} AS held SET vt = clock_timestamp() + make_interval(secs => %(seconds)s)
FROM free
WHERE held.msg_id = free.msg_id
RETURNING held.msg_id;

-- name: unread
-- Messages that were read, in this transaction, by the worker that has them in hand: as if they had not been, and hidden
-- for longer.
UPDATE {queue} AS held SET read_ct = held.read_ct - 1, vt = clock_timestamp() + make_interval(secs => token.seconds)
FROM unnest(%(ids)s::bigint[], %(counts)s::integer[], %(seconds)s::float8[]) AS token (msg_id, read_ct, seconds)
WHERE held.msg_id = token.msg_id AND held.read_ct = token.read_ct;

-- name: set_vt
-- Show a message again in so many seconds.
SELECT FROM pgmq.set_vt(%s, %s::bigint, %s::integer);

-- name: archive
-- Move a message out of the queue, into PGMQ's archive.
SELECT pgmq.archive(%s, %s::bigint);

-- name: note
-- Write down how the reading of a message ended, and what is known of it now. A row of the same id that is about a message
-- of a queue that was dropped is written over.
INSERT INTO allswell_worker.trouble AS known
    (queue, msg_id, sent, read_ct, state, recorded, retries, code, reason)
VALUES (%(queue)s, %(id)s, %(sent)s, %(count)s, %(state)s, %(recorded)s, %(retries)s, %(code)s, %(reason)s)
ON CONFLICT (queue, msg_id) DO UPDATE
SET sent = excluded.sent, read_ct = excluded.read_ct, state = excluded.state, recorded = excluded.recorded,
    retries = excluded.retries, code = excluded.code, reason = excluded.reason, noted_at = clock_timestamp(),
    late = CASE WHEN known.sent = excluded.sent THEN known.late ELSE 0 END;

-- name: came_back
-- Readings ended when their messages were another worker's already: noted for those that are still in the queue. One
-- that has a reason was too slow, which is a failed try.
INSERT INTO allswell_worker.trouble AS known
    (queue, msg_id, sent, read_ct, state, recorded, retries, code, reason, late)
SELECT %(name)s, held.msg_id, token.sent, held.read_ct, 'retrying', 0, (token.reason <> '')::integer,
       CASE WHEN token.reason <> '' THEN %(code)s::text ELSE '' END, token.reason, 1
FROM {queue} AS held
JOIN unnest(%(ids)s::bigint[], %(counts)s::integer[], %(sent)s::bigint[], %(reasons)s::text[])
        AS token (msg_id, read_ct, sent, reason)
    ON held.msg_id = token.msg_id AND held.read_ct > token.read_ct
    AND (extract(epoch FROM held.enqueued_at) * 1000000)::bigint = token.sent
FOR KEY SHARE OF held SKIP LOCKED
ON CONFLICT (queue, msg_id) DO UPDATE
SET sent = excluded.sent,
    late = CASE WHEN known.sent = excluded.sent THEN known.late ELSE 0 END + 1,
    recorded = CASE WHEN known.sent = excluded.sent THEN known.recorded ELSE 0 END,
    retries = CASE WHEN known.sent = excluded.sent THEN known.retries ELSE 0 END + excluded.retries,
    code = CASE WHEN excluded.code <> '' OR known.sent <> excluded.sent THEN excluded.code ELSE known.code END,
    reason = CASE WHEN excluded.code <> '' OR known.sent <> excluded.sent THEN excluded.reason ELSE known.reason END;

-- name: date_troubles
-- Rows of a version that did not write down when their message was sent: it is looked up, once.
UPDATE allswell_worker.trouble AS known SET sent = (extract(epoch FROM held.enqueued_at) * 1000000)::bigint
FROM (SELECT msg_id, enqueued_at FROM {queue} UNION ALL SELECT msg_id, enqueued_at FROM {archive}) AS held
WHERE known.queue = %s AND known.msg_id = held.msg_id AND known.sent = 0;

-- name: end_of_batch
-- One message of a batch has ended; gives what is to be sent if it was the last.
WITH counted AS (
    UPDATE allswell_worker.batch SET open = open - 1 WHERE id = %s RETURNING open, queue, message
)
SELECT queue, message FROM counted WHERE open = 0;

-- name: forget_batch
-- A batch whose last message has ended is over.
DELETE FROM allswell_worker.batch WHERE id = %s;

-- name: depth
-- How a queue stands: messages in it, those that may be read now, and how old the oldest of these is.
SELECT count(*) AS messages,
       count(*) FILTER (WHERE vt <= clock_timestamp()) AS visible,
       coalesce(extract(epoch FROM clock_timestamp() - min(enqueued_at) FILTER (WHERE vt <= clock_timestamp())), 0)
           ::float8 AS oldest
FROM {queue};

-- name: depth_told
-- As `depth`, for metrics every few seconds: a very long queue is not counted to its end.
SELECT (SELECT count(*) FROM (SELECT FROM {queue} LIMIT 100000) AS part) AS messages,
       (SELECT count(*) FROM (SELECT FROM {queue} WHERE vt <= clock_timestamp() LIMIT 100000) AS part) AS visible,
       coalesce(extract(epoch FROM clock_timestamp() - (
           SELECT enqueued_at FROM {queue} WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT 1
       )), 0)::float8 AS oldest;

-- name: troubles
-- How many messages of a queue are in which kind of trouble; of the quarantined, those apart that wait for a worker.
-- What was only given back at a stop (it has no code) is in no trouble.
SELECT CASE WHEN state = 'quarantined' AND asked.closed_at IS NOT NULL THEN 'answered' ELSE state END AS stands,
       count(*) AS messages
FROM allswell_worker.trouble AS known
LEFT JOIN allswell.question AS asked ON asked.id = known.question
WHERE queue = %s AND code <> ''
GROUP BY stands;

-- name: too_late
-- Why messages of a queue were too late that are tried again or wait for a human, the most frequent reason first.
SELECT reason, count(*) AS messages
FROM allswell_worker.trouble
WHERE queue = %s AND code = 'TOO_LATE' AND state IN ('retrying', 'quarantined')
GROUP BY reason
ORDER BY messages DESC, reason
LIMIT 1;

-- name: troubled
-- The messages of a queue that did not go through and that no human is asked about: what was answered and waits for a
-- worker first, what failed last.
SELECT known.msg_id,
       CASE WHEN state = 'quarantined' AND asked.closed_at IS NOT NULL THEN 'answered' ELSE state END AS stands,
       code, reason, retries,
       floor(extract(epoch FROM noted_at) * 1000)::bigint AS noted_at,
       CASE WHEN state = 'retrying' THEN floor(extract(epoch FROM waits.vt) * 1000)::bigint END AS next_at,
       coalesce(asked.choice, '') AS choice, coalesce(asked.answered_by, '') AS answered_by
FROM allswell_worker.trouble AS known
LEFT JOIN allswell.question AS asked ON asked.id = known.question
LEFT JOIN {queue} AS waits ON waits.msg_id = known.msg_id
WHERE queue = %(name)s AND code <> ''
  AND (state IN ('retrying', 'failed') OR (state = 'quarantined' AND asked.closed_at IS NOT NULL))
ORDER BY array_position(ARRAY['quarantined', 'retrying', 'failed'], state), asked.closed_at, known.msg_id DESC
LIMIT %(most)s;

-- name: answered
-- Questions about messages of a queue that were answered, and what the answer says is still to be done: with one message.
SELECT known.question, min(known.msg_id) AS msg_id, min(known.read_ct) AS read_ct
FROM allswell_worker.trouble AS known
JOIN allswell.question AS asked ON asked.id = known.question
WHERE known.queue = %s AND known.state = 'quarantined' AND asked.closed_at IS NOT NULL
GROUP BY known.question
ORDER BY msg_id
LIMIT 100;

-- name: be_present
-- Say how a process of a worker is; rows of processes that died a day ago are removed on the way.
WITH forgotten AS (
    DELETE FROM allswell_worker.presence WHERE seen_at < clock_timestamp() - interval '1 day'
)
INSERT INTO allswell_worker.presence (worker, queue, seen_at, status)
VALUES (%(worker)s, %(queue)s, clock_timestamp(), %(status)s::jsonb)
ON CONFLICT (worker) DO UPDATE SET seen_at = excluded.seen_at, status = excluded.status;

-- name: be_gone
-- A process of a worker has stopped.
DELETE FROM allswell_worker.presence WHERE worker = %s;

-- name: present
-- The processes of all workers, and for how many seconds each has said nothing.
SELECT worker, queue, status, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS silent
FROM allswell_worker.presence
ORDER BY queue, worker;

-- name: queues
-- Every queue that PGMQ has.
SELECT queue_name FROM pgmq.list_queues() ORDER BY queue_name;
