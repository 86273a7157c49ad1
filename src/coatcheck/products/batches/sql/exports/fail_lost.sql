-- pending -> failed, for exports whose job ended without writing them, or does not exist any more.
--
-- $1 rows at most   $2 seconds to keep
WITH lost AS MATERIALIZED (
    SELECT e.org_id, e.id, j.error_code, j.error_message
    FROM batch_exports AS e
    LEFT JOIN jobs AS j ON j.org_id = e.org_id AND j.id = e.export_job
    WHERE e.state = 'pending' AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
    ORDER BY e.created_at
    LIMIT $1::integer
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE batch_exports AS e
SET state = 'failed', error_code = coalesce(l.error_code, 'export_lost'),
    error_message = coalesce(l.error_message, 'the export was not written; ask for another'),
    expires_at = now() + $2::integer * interval '1 second'
FROM lost AS l
WHERE e.org_id = l.org_id AND e.id = l.id
RETURNING e.id, e.batch_id
