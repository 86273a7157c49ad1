-- Latch the runs whose latch was missed: the process that ingested the last part, or closed the run,
-- died before it.
--
-- $1 runs at most
UPDATE runs AS r
SET total = r.tasks, latched_at = now()
FROM (
    SELECT u.org_id, u.id
    FROM runs AS u
    WHERE u.completed_at IS NULL AND u.closed_at IS NOT NULL AND u.latched_at IS NULL
      AND NOT EXISTS (
          SELECT
          FROM batch_parts AS p
          WHERE p.org_id = u.org_id AND p.run_id = u.id AND p.state <> 'done'
      )
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
) AS left_open
WHERE r.org_id = left_open.org_id AND r.id = left_open.id
RETURNING r.group_id AS batch_id
