-- What requests say of agents. Until now that was kept in rows of agents under the names "@" and theirs. The column that
-- was theirs stays empty until a later version drops it: a process of the version before may still look.
CREATE TABLE health (agent TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO health (agent, record) SELECT substr(id, 2), standing FROM agent WHERE standing <> '';
DELETE FROM agent WHERE standing <> '';
