-- What sinks still have to deliver, or have given up.
CREATE TABLE delivery (
    sink TEXT NOT NULL,
    xid INTEGER NOT NULL,
    number INTEGER NOT NULL,
    part INTEGER NOT NULL,
    id TEXT NOT NULL,
    target TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    failing_since INTEGER,
    given_up INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (sink, xid, number, part)
) WITHOUT ROWID;
