-- How far the consequence of a clock that has moved has got. Until now that was its reason, which it has none of.
ALTER TABLE spread ADD COLUMN reached TEXT NOT NULL DEFAULT '';
UPDATE spread SET reached = reason, reason = '' WHERE outcome = 'moved';
