-- A run, locked for the transaction that writes a chunk, and how many tasks it has.
--
-- $1 org   $2 run
SELECT r.tasks FROM runs AS r WHERE r.org_id = $1 AND r.id = $2 FOR UPDATE
