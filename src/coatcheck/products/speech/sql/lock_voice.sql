-- Lock a voice, so that it is not deleted before the transaction that creates a job with it ends.
--
-- $1 organisation   $2 user   $3 voice
SELECT v.id
FROM voices AS v
WHERE v.org_id = $1 AND v.user_id = $2 AND v.id = $3
  AND v.ready_at IS NOT NULL AND v.deleted_at IS NULL
FOR SHARE
