-- A page of a user's voices, newest first. Read under coatcheck_user.
--
-- $1 organisation   $2 user   $3 older than this voice   $4 limit
SELECT /* include voice_columns.sql */
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id < $3::uuid
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
ORDER BY v.id DESC
LIMIT $4
