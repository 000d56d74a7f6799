-- A service's breaker is shared by all processes: the row holds its whole state, of which the end of a rate-limit pause
-- was all there was. JSON text, as a task's record: rules read it, SQL does not.
ALTER TABLE allswell.service ADD COLUMN state text;
UPDATE allswell.service
SET state = json_build_object('id', id, 'state', json_build_object('parked_until', parked_until))::text;
ALTER TABLE allswell.service ALTER COLUMN state SET NOT NULL;
ALTER TABLE allswell.service DROP COLUMN parked_until;
