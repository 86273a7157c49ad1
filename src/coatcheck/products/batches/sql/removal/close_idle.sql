-- Close open runs that got no tasks for long. Their owners have forgotten them, and they would never
-- end. The reconciler latches them.
--
-- $1 runs at most   $2 seconds
WITH idle AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM runs AS r
    LEFT JOIN LATERAL (
        SELECT p.created_at
        FROM batch_parts AS p
        WHERE p.org_id = r.org_id AND p.run_id = r.id
        ORDER BY p.position DESC
        LIMIT 1
    ) AS last ON true
    WHERE r.closed_at IS NULL
      AND r.created_at < now() - $2::double precision * interval '1 second'
      AND coalesce(last.created_at, r.created_at)
          < now() - $2::double precision * interval '1 second'
    ORDER BY r.created_at
    LIMIT $1::integer
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs AS r
SET closed_at = now()
FROM idle AS i
WHERE r.org_id = i.org_id AND r.id = i.id
RETURNING r.group_id AS batch_id
