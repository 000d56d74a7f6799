-- Fewer rows and index entries for each task's life (docs/adr/0010): what is always written together is kept together.

-- A task in the pool is found by its place in line; the task itself knows where that is.
ALTER TABLE allswell.task ADD COLUMN rank bigint NOT NULL DEFAULT 0;
UPDATE allswell.task SET rank = ((1000000 - priority)::bigint << 42) | (created_at & ((1::bigint << 42) - 1));
ALTER TABLE allswell.task ALTER COLUMN rank DROP DEFAULT;
ALTER TABLE allswell.ready DROP CONSTRAINT ready_pkey;
DROP INDEX allswell.ready_pick;
ALTER TABLE allswell.ready ADD PRIMARY KEY (lane, rank, task);

-- The first attempt is kept in its task's row (JSON), later ones in `attempt`: most tasks need no second.
ALTER TABLE allswell.task ADD COLUMN attempt text;

-- The timer that comes with a lease is kept in its row and goes with it; every other one is in `timer`.
ALTER TABLE allswell.lease ADD COLUMN due_at bigint;
CREATE INDEX lease_due ON allswell.lease (due_at);

-- Tasks without a run have no place in an index of runs.
DROP INDEX allswell.task_open_of_run;
CREATE INDEX task_open_of_run ON allswell.task (run, id) WHERE ended_at IS NULL AND run IS NOT NULL;

-- The journal: the events of one decision, or of many made together, are one row. Its order is (xid, id): ids alone
-- are handed out before their transaction commits. An event's own number is the row's times 1000, plus its place.
CREATE TABLE allswell.journal (
    id     bigint GENERATED ALWAYS AS IDENTITY,
    xid    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at     bigint NOT NULL,
    events text NOT NULL,
    PRIMARY KEY (xid, id)
);
INSERT INTO allswell.journal (id, xid, at, events) OVERRIDING SYSTEM VALUE
SELECT id, xid, at, json_build_array(json_build_object('kind', kind, 'task', task, 'run', run, 'agent', agent,
                                                       'token', token, 'data', data::json))::text
FROM allswell.event;
SELECT setval(pg_get_serial_sequence('allswell.journal', 'id'), coalesce((SELECT max(id) FROM allswell.journal), 0) + 1);
UPDATE allswell.cursor SET id = id * 1000;
DROP TABLE allswell.event;
-- For people who look into the database.
CREATE VIEW allswell.event AS
SELECT j.xid, j.id * 1000 + t.place - 1 AS id, j.at, t.told ->> 'kind' AS kind, t.told ->> 'task' AS task,
       t.told ->> 'run' AS run, t.told ->> 'agent' AS agent, (t.told ->> 'token')::bigint AS token,
       coalesce(t.told ->> 'data', '{}') AS data
FROM allswell.journal AS j
CROSS JOIN LATERAL json_array_elements(j.events::json) WITH ORDINALITY AS t(told, place);
