-- A service's breaker is shared by all processes: the row holds its whole state, of which the end of a rate-limit pause
-- was all there was. JSON text, as a task's record: rules read it, SQL does not.
CREATE TABLE service_row (
    id TEXT PRIMARY KEY NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO service_row (id, state)
SELECT id, json_object('id', id, 'state', json_object('parked_until', parked_until)) FROM service;
DROP TABLE service;
ALTER TABLE service_row RENAME TO service;
