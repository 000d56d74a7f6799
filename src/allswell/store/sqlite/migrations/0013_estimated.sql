-- Whether what an attempt has cost is priced by a table of ours, and was not told by its client.
ALTER TABLE expense ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
