-- The tables of a watch. They are split by lifetime, so that no hot path ever meets finished work.
--
-- WITHOUT ROWID where rows are narrow and found by their key: one tree instead of two. `task` and `event` have
-- rowids: they are wide and only grow, so new rows lie side by side at the end.
-- An index of a WITHOUT ROWID table ends with the primary key by itself: `ready_order` is (lane, rank, task).
-- ANALYZE is never run: a partial index with stale statistics misleads the planner.

CREATE TABLE task (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    run TEXT,
    role TEXT NOT NULL,
    lane INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    spec TEXT NOT NULL,
    record TEXT NOT NULL,
    payload TEXT NOT NULL,
    result TEXT
);
CREATE INDEX task_name ON task (name);
CREATE INDEX task_open ON task (id) WHERE ended_at IS NULL;
-- For views: counting a million ended tasks, or finding the few that failed, without reading them all.
CREATE INDEX task_ended ON task (state, id) WHERE state <> 'open';
-- The open tasks of a run in the order of their ids, and all of them.
CREATE INDEX task_run ON task (run, ended_at, id) WHERE run IS NOT NULL;

CREATE TABLE ready (
    task TEXT PRIMARY KEY NOT NULL,
    lane INTEGER NOT NULL,
    rank INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX ready_order ON ready (lane, rank);

CREATE TABLE timer (
    owner TEXT PRIMARY KEY NOT NULL,
    due_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX timer_due ON timer (due_at);

CREATE TABLE wait (
    task TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (task, kind, target)
) WITHOUT ROWID;
CREATE INDEX wait_target ON wait (target);

CREATE TABLE bar (
    task TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (task, agent)
) WITHOUT ROWID;

CREATE TABLE lane (
    id INTEGER PRIMARY KEY,
    role TEXT NOT NULL,
    services TEXT NOT NULL,
    UNIQUE (role, services)
);

-- No index on anything that check-ins write.
CREATE TABLE lease (
    task TEXT PRIMARY KEY NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    length INTEGER,
    idle INTEGER,
    ask_every INTEGER NOT NULL,
    ask_wait INTEGER NOT NULL,
    grace INTEGER NOT NULL,
    command TEXT NOT NULL,
    judged INTEGER NOT NULL,
    stalled_at INTEGER,
    renewed_at INTEGER NOT NULL,
    checkin_at INTEGER,
    progress REAL,
    note TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX lease_command ON lease (command) WHERE command <> '';

CREATE TABLE attempt (
    task TEXT NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    command TEXT NOT NULL,
    detail TEXT NOT NULL,
    late TEXT,
    PRIMARY KEY (task, token)
) WITHOUT ROWID;

CREATE TABLE question (
    id TEXT PRIMARY KEY NOT NULL,
    task TEXT NOT NULL,
    run TEXT,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    options TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    closed_at INTEGER,
    choice TEXT,
    answer TEXT NOT NULL,
    answered_by TEXT NOT NULL,
    command TEXT NOT NULL
);
CREATE INDEX question_open ON question (task) WHERE closed_at IS NULL;

CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deadline INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL,
    command TEXT NOT NULL
);

CREATE TABLE service (
    id TEXT PRIMARY KEY NOT NULL,
    parked_until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE agent (
    id TEXT PRIMARY KEY NOT NULL,
    misses INTEGER NOT NULL,
    missed_at INTEGER NOT NULL,
    stalled INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE spread (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    replaced_by TEXT NOT NULL
);

-- The journal. Writers are serial, so ids grow in the order of commits and a follower that reads `id > last` misses
-- nothing. Ids must never be used twice: whoever trims the journal leaves its newest row (the store's clock is also
-- read off that row).
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    task TEXT,
    run TEXT,
    agent TEXT,
    token INTEGER,
    data TEXT NOT NULL
);

CREATE TABLE cursor (
    follower TEXT PRIMARY KEY NOT NULL,
    xid INTEGER NOT NULL,
    id INTEGER NOT NULL
) WITHOUT ROWID;
