-- Every table of a watch, split by lifetime: no hot path ever meets finished work.
-- Ids compare byte by byte (COLLATE "C"), as Python compares them: locks are taken and pages are cut in that order.
-- Moments are milliseconds of the server's clock.

CREATE TABLE allswell.task (
    id         text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    run        text COLLATE "C",
    role       text NOT NULL,
    lane       integer NOT NULL,
    priority   integer NOT NULL,
    state      text NOT NULL,
    created_at bigint NOT NULL,
    ended_at   bigint,
    spec       text NOT NULL,
    record     text NOT NULL,
    payload    text NOT NULL,
    result     text
) WITH (fillfactor = 85);
CREATE INDEX task_open_of_run ON allswell.task (run, id) WHERE ended_at IS NULL;
CREATE INDEX task_open ON allswell.task (id) WHERE ended_at IS NULL;
CREATE INDEX task_name ON allswell.task (name);

-- Rows come and go with every claim: vacuum early, or dead entries pile up at the head of the index.
CREATE TABLE allswell.ready (
    task text COLLATE "C" PRIMARY KEY,
    lane integer NOT NULL,
    rank bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX ready_pick ON allswell.ready (lane, rank, task);

CREATE TABLE allswell.timer (
    owner  text COLLATE "C" PRIMARY KEY,
    due_at bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX timer_due ON allswell.timer (due_at);

CREATE TABLE allswell.waits (
    task   text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    PRIMARY KEY (task, kind, target)
);
CREATE INDEX waits_target ON allswell.waits (target, task);

CREATE TABLE allswell.bar (
    task  text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    PRIMARY KEY (task, agent)
);

CREATE TABLE allswell.lane (
    id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role     text NOT NULL,
    services text NOT NULL,
    UNIQUE (role, services)
);

-- No index on anything a check-in writes, what it writes stands last, and each page keeps room for it: updates stay
-- in their page (HOT) and log only the tail of the row.
CREATE TABLE allswell.lease (
    task       text COLLATE "C" PRIMARY KEY,
    token      bigint NOT NULL,
    agent      text COLLATE "C" NOT NULL,
    granted_at bigint NOT NULL,
    deadline   bigint NOT NULL,
    length     bigint,
    idle       bigint,
    ask_every  bigint NOT NULL,
    ask_wait   bigint NOT NULL,
    grace      bigint NOT NULL,
    command    text COLLATE "C" NOT NULL,
    judged     bigint NOT NULL,
    stalled_at bigint,
    renewed_at bigint NOT NULL,
    checkin_at bigint,
    progress   double precision,
    note       text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
CREATE INDEX lease_command ON allswell.lease (command) WHERE command <> '';

CREATE TABLE allswell.attempt (
    task       text COLLATE "C" NOT NULL,
    token      bigint NOT NULL,
    agent      text COLLATE "C" NOT NULL,
    granted_at bigint NOT NULL,
    ended_at   bigint NOT NULL,
    outcome    text NOT NULL,
    command    text NOT NULL,
    detail     text NOT NULL,
    late       text,
    PRIMARY KEY (task, token)
);

CREATE TABLE allswell.question (
    id          text COLLATE "C" PRIMARY KEY,
    task        text COLLATE "C" NOT NULL,
    run         text COLLATE "C",
    kind        text NOT NULL,
    text        text NOT NULL,
    options     text NOT NULL,
    asked_at    bigint NOT NULL,
    asked_by    text NOT NULL,
    closed_at   bigint,
    choice      text,
    answer      text NOT NULL,
    answered_by text NOT NULL,
    command     text NOT NULL
);
CREATE INDEX question_open ON allswell.question (task, id) WHERE closed_at IS NULL;

CREATE TABLE allswell.run (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    created_at bigint NOT NULL,
    deadline   bigint,
    ended_at   bigint,
    reason     text NOT NULL,
    command    text NOT NULL
);

CREATE TABLE allswell.service (
    id           text COLLATE "C" PRIMARY KEY,
    parked_until bigint NOT NULL
);

CREATE TABLE allswell.agent (
    id        text COLLATE "C" PRIMARY KEY,
    misses    bigint NOT NULL,
    missed_at bigint NOT NULL,
    stalled   boolean NOT NULL
);

CREATE TABLE allswell.spread (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text COLLATE "C" NOT NULL UNIQUE,
    outcome     text NOT NULL,
    reason      text NOT NULL,
    replaced_by text NOT NULL
);

-- The journal. Its order is (xid, id): ids alone are handed out before their transaction commits.
CREATE TABLE allswell.event (
    id    bigint GENERATED ALWAYS AS IDENTITY,
    xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at    bigint NOT NULL,
    kind  text NOT NULL,
    task  text COLLATE "C",
    run   text COLLATE "C",
    agent text COLLATE "C",
    token bigint,
    data  text NOT NULL,
    PRIMARY KEY (xid, id)
);

CREATE TABLE allswell.cursor (
    follower text COLLATE "C" PRIMARY KEY,
    xid      bigint NOT NULL,
    id       bigint NOT NULL
);

-- One row per connection that decides: the number of its last transaction, which settles a lost answer to a commit.
CREATE TABLE allswell.mark (
    line   text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    at     bigint NOT NULL
) WITH (fillfactor = 50);
