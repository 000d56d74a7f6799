-- What requests say of an agent: the row of its own that it has for that holds it as JSON.
ALTER TABLE agent ADD COLUMN standing TEXT NOT NULL DEFAULT '';
