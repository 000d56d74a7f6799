-- The worker's own tables, beside PGMQ's. Safe to run again.
CREATE SCHEMA IF NOT EXISTS allswell_worker;

-- Messages that did not go through at once. A row is gone when its message was handled after all.
CREATE TABLE IF NOT EXISTS allswell_worker.trouble (
    queue text NOT NULL,
    msg_id bigint NOT NULL,
    read_ct integer NOT NULL,          -- PGMQ's count when this was written
    state text NOT NULL CHECK (state IN ('retrying', 'quarantined', 'failed', 'cancelled', 'completed')),
    recorded integer NOT NULL,         -- readings whose end was recorded
    retries integer NOT NULL,          -- failures that it was tried again after
    code text NOT NULL,
    reason text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    question text,                     -- in the store, about this message while it is quarantined
    PRIMARY KEY (queue, msg_id)
);
ALTER TABLE allswell_worker.trouble
    ADD COLUMN IF NOT EXISTS late integer NOT NULL DEFAULT 0,  -- readings that ended when it was another worker's already
    ADD COLUMN IF NOT EXISTS sent bigint NOT NULL DEFAULT 0;   -- microseconds: a queue made anew counts from 1 again
ALTER TABLE allswell_worker.trouble
    ADD COLUMN IF NOT EXISTS cause text NOT NULL DEFAULT '';   -- messages of one cause share a question
CREATE INDEX IF NOT EXISTS trouble_cause ON allswell_worker.trouble (queue, md5(cause)) WHERE state = 'quarantined';
CREATE INDEX IF NOT EXISTS trouble_question ON allswell_worker.trouble (question) WHERE state = 'quarantined';
CREATE INDEX IF NOT EXISTS trouble_quarantined ON allswell_worker.trouble (queue, msg_id) WHERE state = 'quarantined';

-- Messages that were sent together, and what follows the last of them.
CREATE TABLE IF NOT EXISTS allswell_worker.batch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    open integer NOT NULL,             -- messages that have not ended
    message jsonb NOT NULL             -- sent when the last has
);

-- Processes of workers, as they were when they last said so. A row is gone when its process has stopped.
CREATE TABLE IF NOT EXISTS allswell_worker.presence (
    worker text PRIMARY KEY,           -- host, process and start, so that none is taken for another
    queue text NOT NULL,
    seen_at timestamptz NOT NULL,
    status jsonb NOT NULL
);
