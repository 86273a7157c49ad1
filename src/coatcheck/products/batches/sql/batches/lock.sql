-- Lock a batch. lock_run.sql then locks its run, in a separate statement.
--
-- A single statement that had to wait for the batch would join the new version of the batch with the
-- old snapshot of the runs. After a rerun the current run is not among those, and the batch would
-- seem not to exist.
--
-- $1 org   $2 batch
SELECT FROM batches WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL FOR UPDATE
