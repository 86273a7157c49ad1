-- Mark a failed upload as deleted, so that the cleanup removes its blob and row.
--
-- $1 organisation   $2 voice
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = $1 AND v.id = $2 AND v.deleted_at IS NULL
RETURNING v.id
