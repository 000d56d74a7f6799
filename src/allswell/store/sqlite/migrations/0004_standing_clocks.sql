-- A run's clock stands while a task of it waits for an answer: how many questions keep it standing, since when, for how
-- long it stood before, and how often it has stopped or gone on.
ALTER TABLE run ADD COLUMN asked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN stands_since INTEGER;
ALTER TABLE run ADD COLUMN stood INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN moves INTEGER NOT NULL DEFAULT 0;

-- Whether its task waits for the answer; what a holder asks in passing is not waited for.
ALTER TABLE question ADD COLUMN waited INTEGER NOT NULL DEFAULT 0;
UPDATE question SET waited = 1
WHERE EXISTS (SELECT 1 FROM wait WHERE wait.target = question.id AND wait.kind = 'question');

-- The clocks of runs with such a question stand since the first of them was asked, and their timers are gone.
UPDATE run SET asked = (SELECT count(*) FROM question WHERE run = run.id AND waited AND closed_at IS NULL),
               stands_since = (SELECT min(min(asked_at), run.deadline) FROM question
                               WHERE run = run.id AND waited AND closed_at IS NULL),
               moves = 1
WHERE ended_at IS NULL AND deadline IS NOT NULL
  AND id IN (SELECT run FROM question WHERE waited AND closed_at IS NULL AND run IS NOT NULL);
DELETE FROM timer WHERE owner IN (SELECT id FROM run WHERE stands_since IS NOT NULL);

-- An attempt's own limit, where its run's was nearer.
ALTER TABLE lease ADD COLUMN own INTEGER;
UPDATE lease SET own = granted_at + (
    SELECT coalesce(json_extract(record, '$.timeout_override'), json_extract(spec, '$.policy.timeout'), 900000)
    FROM task WHERE task.id = lease.task)
WHERE task IN (SELECT id FROM task WHERE ended_at IS NULL AND run IS NOT NULL);
UPDATE lease SET own = NULL WHERE own <= deadline;

-- All that came after an attempt's end is kept, not only the first result.
ALTER TABLE attempt ADD COLUMN afterwards TEXT;
