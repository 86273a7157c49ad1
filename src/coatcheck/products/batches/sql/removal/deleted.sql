-- Deleted batches, whose data is to be removed: one page of them.
--
-- $1 $2 after this time and id   $3 rows at most
SELECT b.org_id, b.id, b.deleted_at
FROM batches AS b
WHERE b.deleted_at IS NOT NULL AND (b.deleted_at, b.id) > ($1::timestamptz, $2::uuid)
ORDER BY b.deleted_at, b.id
LIMIT $3
