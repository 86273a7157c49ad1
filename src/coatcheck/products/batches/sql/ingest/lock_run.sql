-- Lock a run for the transaction that writes a chunk, and count its tasks.
--
-- $1 org   $2 run
SELECT r.tasks FROM runs AS r WHERE r.org_id = $1 AND r.id = $2 FOR UPDATE
