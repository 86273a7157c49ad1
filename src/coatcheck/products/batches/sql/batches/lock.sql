-- A batch, locked; its run follows in a statement of its own, lock_run.sql.
--
-- A statement that had to wait for the batch would join it, as it is now, with the runs as they were:
-- after a rerun there is no such run among them, and the batch would seem to be gone.
--
-- $1 org   $2 batch
SELECT FROM batches WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE
