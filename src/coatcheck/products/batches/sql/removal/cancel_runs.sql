-- Cancel the runs of a deleted batch that have not ended, before they are removed.
--
-- $1 org   $2 batch
UPDATE runs
SET cancel_requested_at = now()
WHERE org_id = $1 AND group_id = $2 AND completed_at IS NULL AND cancel_requested_at IS NULL
RETURNING id
