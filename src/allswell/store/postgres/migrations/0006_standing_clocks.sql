-- A run's clock stands while a task of it waits for an answer: how many questions keep it standing, since when, for how
-- long it stood before, and how often it has stopped or gone on.
ALTER TABLE allswell.run
    ADD COLUMN asked        bigint NOT NULL DEFAULT 0,
    ADD COLUMN stands_since bigint,
    ADD COLUMN stood        bigint NOT NULL DEFAULT 0,
    ADD COLUMN moves        bigint NOT NULL DEFAULT 0;

-- Whether its task waits for the answer; what a holder asks in passing is not waited for.
ALTER TABLE allswell.question ADD COLUMN waited boolean NOT NULL DEFAULT false;
UPDATE allswell.question AS q SET waited = true
WHERE EXISTS (SELECT FROM allswell.waits AS w WHERE w.target = q.id AND w.kind = 'question');

-- The clocks of runs with such a question stand since the first of them was asked, and their timers are gone.
UPDATE allswell.run AS r
SET asked = x.asked, stands_since = least(x.asked_at, r.deadline), moves = 1
FROM (
    SELECT run, count(*) AS asked, min(asked_at) AS asked_at FROM allswell.question
    WHERE waited AND closed_at IS NULL GROUP BY run
) AS x
WHERE r.id = x.run AND r.ended_at IS NULL AND r.deadline IS NOT NULL;
DELETE FROM allswell.timer WHERE owner IN (SELECT id FROM allswell.run WHERE stands_since IS NOT NULL);

-- An attempt's own limit, where its run's was nearer.
ALTER TABLE allswell.lease ADD COLUMN own bigint;
UPDATE allswell.lease AS l
SET own = l.granted_at + coalesce((t.record::json ->> 'timeout_override')::bigint,
                                  (t.spec::json -> 'policy' ->> 'timeout')::bigint, 900000)
FROM allswell.task AS t
WHERE t.id = l.task AND t.run IS NOT NULL;
UPDATE allswell.lease SET own = NULL WHERE own <= deadline;

-- All that came after an attempt's end is kept, not only the first result.
ALTER TABLE allswell.attempt ADD COLUMN afterwards text;
