-- Fewer rows and trees for each task's life (docs/adr/0010): what is always written together is kept together.

-- A task in the pool is found by its place in line; the task itself knows where that is.
ALTER TABLE task ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
UPDATE task SET rank = ((1000000 - priority) << 42) | (created_at & ((1 << 42) - 1));
CREATE TABLE line (
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    task TEXT NOT NULL,
    PRIMARY KEY (lane, rank, task)
) WITHOUT ROWID;
INSERT INTO line (lane, rank, task) SELECT lane, rank, task FROM ready;
DROP TABLE ready;
ALTER TABLE line RENAME TO ready;

-- The first attempt is kept in its task's row (JSON), later ones in `attempt`: most tasks need no second.
ALTER TABLE task ADD COLUMN attempt TEXT;

-- The timer that comes with a lease is kept in its row and goes with it; every other one is in `timer`.
ALTER TABLE lease ADD COLUMN due_at INTEGER;
CREATE INDEX lease_due ON lease (due_at);

-- Counting and finding what ended badly; nearly all that is left is done, and needs no index to be found.
DROP INDEX task_ended;
CREATE INDEX task_ended_badly ON task (state, id) WHERE state <> 'open' AND state <> 'done';

-- The journal: the events of one decision, or of many made together, are one row. `last` is the number of its last
-- event, so numbers are consecutive over all rows.
CREATE TABLE journal (
    last INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    events TEXT NOT NULL
);
INSERT INTO journal (last, at, events)
SELECT id, at, json_array(json_object('kind', kind, 'task', task, 'run', run, 'agent', agent, 'token', token,
                                      'data', json(data)))
FROM event ORDER BY id;
DROP TABLE event;
-- For people who look into the file.
CREATE VIEW event AS
SELECT last - json_array_length(events) + 1 + told.key AS id, at,
       json_extract(told.value, '$.kind') AS kind, json_extract(told.value, '$.task') AS task,
       json_extract(told.value, '$.run') AS run, json_extract(told.value, '$.agent') AS agent,
       json_extract(told.value, '$.token') AS token, coalesce(json_extract(told.value, '$.data'), '{}') AS data
FROM journal, json_each(events) AS told;
