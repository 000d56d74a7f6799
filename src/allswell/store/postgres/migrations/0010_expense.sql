-- What attempts have cost, as they reported it; sums are made of these rows.
CREATE TABLE allswell.expense (
    task text NOT NULL,
    token bigint NOT NULL,
    agent text NOT NULL,
    role text NOT NULL,
    run text,
    told_at bigint NOT NULL,
    cost bigint,
    given bigint,
    written bigint,
    PRIMARY KEY (task, token)
);
CREATE INDEX expense_run ON allswell.expense (run) WHERE run IS NOT NULL;
CREATE INDEX expense_role ON allswell.expense (role, told_at);
CREATE INDEX expense_agent ON allswell.expense (agent, told_at);
CREATE INDEX expense_told ON allswell.expense (told_at);
