-- Cancelled runs that have not completed, one page of them: among the runs that have not ended, which
-- are few.
--
-- $1 $2 after this organisation and run   $3 rows at most
SELECT r.org_id, r.id, r.group_id AS batch_id
FROM runs AS r
WHERE r.completed_at IS NULL AND r.cancel_requested_at IS NOT NULL AND (r.org_id, r.id) > ($1, $2::uuid)
ORDER BY r.org_id, r.id
LIMIT $3
