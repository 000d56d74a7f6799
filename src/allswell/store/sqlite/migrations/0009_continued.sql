-- Where a run went on that has ended. Until now that was the end of its reason, which anyone may write: it counts where
-- the run that it names was opened after this one had ended, as only a resumed run is.
ALTER TABLE run ADD COLUMN continued_in TEXT;
UPDATE run SET continued_in = substr(reason, length(rtrim(reason, replace(reason, ' ', ''))) + 1)
WHERE ended_at IS NOT NULL AND reason LIKE '%went on in r!_%' ESCAPE '!';
UPDATE run SET continued_in = NULL
WHERE continued_in IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM run AS later
    WHERE later.id = run.continued_in AND later.created_at >= run.ended_at
      AND substr(', and ' || run.reason, -length(', and went on in ' || later.id)) = ', and went on in ' || later.id
  );
UPDATE run SET reason = substr(reason, 1, max(length(reason) - length(', and went on in ' || continued_in), 0))
WHERE continued_in IS NOT NULL;
