-- How far the consequence of a clock that has moved has got. Until now that was its reason, which it has none of.
ALTER TABLE allswell.spread ADD COLUMN reached text NOT NULL DEFAULT '';
UPDATE allswell.spread SET reached = reason, reason = '' WHERE outcome = 'moved';
