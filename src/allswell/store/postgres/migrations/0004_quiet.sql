-- A lease keeps how long before its last renewal the holder last checked in, not when. A check-in renews the lease, so
-- that figure stays 0 and the write changes (and logs) one column less.
ALTER TABLE allswell.lease ADD COLUMN quiet bigint;
UPDATE allswell.lease SET quiet = renewed_at - checkin_at WHERE checkin_at IS NOT NULL;
ALTER TABLE allswell.lease DROP COLUMN checkin_at;
