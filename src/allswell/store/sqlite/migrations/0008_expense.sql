-- What attempts have cost, as they reported it; sums are made of these rows.
CREATE TABLE expense (
    task TEXT NOT NULL,
    token INTEGER NOT NULL,
    agent TEXT NOT NULL,
    role TEXT NOT NULL,
    run TEXT,
    told_at INTEGER NOT NULL,
    cost INTEGER,
    given INTEGER,
    written INTEGER,
    PRIMARY KEY (task, token)
) WITHOUT ROWID;
CREATE INDEX expense_run ON expense (run) WHERE run IS NOT NULL;
CREATE INDEX expense_role ON expense (role, told_at);
CREATE INDEX expense_agent ON expense (agent, told_at);
CREATE INDEX expense_told ON expense (told_at);
