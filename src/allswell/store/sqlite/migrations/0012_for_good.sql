-- A budget that no day ends is shut until a human answers, and says so. Until now that was told by how far away its end was.
UPDATE service SET state = json_set(state, '$.for_good', json('true')) WHERE id LIKE 'budget:run:%';
