-- Mark a voice's upload as complete. Returns no row if the cleanup has removed the upload.
--
-- $1 organisation   $2 voice   $3 bytes   $4 SHA-256   $5 duration in seconds
UPDATE voices AS v
SET ready_at = coalesce(v.ready_at, now()), bytes = $3, sha256 = $4, duration_seconds = $5
WHERE v.org_id = $1 AND v.id = $2 AND v.deleted_at IS NULL
RETURNING /* include voice_columns.sql */
