-- What requests say of agents. Until now that was kept in rows of agents under the names "@" and theirs. The column that
-- was theirs stays empty until a later version drops it: a process of the version before may still look.
CREATE TABLE allswell.health (agent text PRIMARY KEY, record text NOT NULL);
INSERT INTO allswell.health (agent, record) SELECT substr(id, 2), standing FROM allswell.agent WHERE standing <> '';
DELETE FROM allswell.agent WHERE standing <> '';
