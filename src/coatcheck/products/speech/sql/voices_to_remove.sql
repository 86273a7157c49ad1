-- Voices whose blobs are due for removal: deleted ones, and uploads that took too long. The latter are
-- marked as deleted first, so that a process which still uploads gets an error. Uses the index
-- voices_to_remove.
--
-- $1 seconds that an upload may take   $2 limit
UPDATE voices AS v
SET deleted_at = coalesce(v.deleted_at, now())
FROM (
    SELECT o.org_id, o.id
    FROM voices AS o
    WHERE (o.ready_at IS NULL OR o.deleted_at IS NOT NULL)
      AND coalesce(o.deleted_at, o.created_at)
          <= now() - CASE WHEN o.deleted_at IS NULL THEN $1::double precision ELSE 0 END
                     * interval '1 second'
      AND coalesce(o.deleted_at, o.created_at) <= now()
    ORDER BY coalesce(o.deleted_at, o.created_at)
    LIMIT $2
    FOR UPDATE SKIP LOCKED
) AS due
WHERE v.org_id = due.org_id AND v.id = due.id
RETURNING v.org_id, v.id, v.blob_key
