-- Where a run went on that has ended. Until now that was the end of its reason, which anyone may write: it counts where
-- the run that it names was opened after this one had ended, as only a resumed run is.
ALTER TABLE allswell.run ADD COLUMN continued_in text;
UPDATE allswell.run AS r
SET continued_in = later.id, reason = regexp_replace(r.reason, '(^|, and )went on in r_\S+$', '')
FROM allswell.run AS later
WHERE r.ended_at IS NOT NULL AND later.created_at >= r.ended_at
  AND later.id = substring(r.reason from '(?:^|, and )went on in (r_\S+)$');
