-- A budget that no day ends is shut until a human answers, and says so. Until now that was told by how far away its end was.
UPDATE allswell.service SET state = (state::jsonb || '{"for_good": true}')::text WHERE id LIKE 'budget:run:%';
