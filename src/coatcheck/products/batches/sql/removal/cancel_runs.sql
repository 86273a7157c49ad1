-- The runs of a batch that is to be removed are cancelled first, if they still go on.
--
-- $1 org   $2 batch
UPDATE runs
SET cancel_requested_at = now()
WHERE org_id = $1 AND group_id = $2 AND completed_at IS NULL AND cancel_requested_at IS NULL
RETURNING id
