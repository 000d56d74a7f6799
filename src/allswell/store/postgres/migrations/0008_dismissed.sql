-- Who has seen a question, and when; it stays open.
ALTER TABLE allswell.question ADD COLUMN dismissed_at bigint;
ALTER TABLE allswell.question ADD COLUMN dismissed_by text NOT NULL DEFAULT '';
