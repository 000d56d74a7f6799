-- What waited for another is told after it. A transaction has its number from its first lock on; one that then waits for
-- a later one would be told before it. So a row of the journal stands at its transaction's number or at the newest that
-- had ended when the row was written, whichever is more: never less than that of what it waited for. It is never less
-- than its own either, so whoever reads only below the oldest number under way still misses nothing.
ALTER TABLE allswell.journal ALTER COLUMN xid SET DEFAULT
    greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8);
