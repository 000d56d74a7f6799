-- Who has seen a question, and when; it stays open.
ALTER TABLE question ADD COLUMN dismissed_at INTEGER;
ALTER TABLE question ADD COLUMN dismissed_by TEXT NOT NULL DEFAULT '';
