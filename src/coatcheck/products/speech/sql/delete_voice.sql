-- Delete a voice: it is no longer visible. Its row stays until its blob is deleted.
--
-- $1 organisation   $2 user   $3 voice
UPDATE voices AS v
SET deleted_at = now()
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
RETURNING v.id
