-- A user's voice, if its upload is complete. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 voice
SELECT /* include voice_columns.sql */
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
