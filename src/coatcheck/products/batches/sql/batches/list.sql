-- An organisation's batches, newest first, of one owner or of all. Each has its current run and the
-- sum of the earlier ones, without tasks that a later run has repeated.
--
-- Two branches, of which the planner drops one: with an OR, the few batches of one owner would be
-- searched among all batches.
--
-- $1 org   $2 owner, or NULL   $3 older than this id   $4 how many
WITH page AS MATERIALIZED (
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.deleted_at IS NULL AND b.id < $3 AND $2::text IS NULL
        ORDER BY b.id DESC
        LIMIT $4
    )
    UNION ALL
    (
        SELECT b.*
        FROM batches AS b
        WHERE b.org_id = $1 AND b.owner = $2 AND b.deleted_at IS NULL AND b.id < $3
        ORDER BY b.id DESC
        LIMIT $4
    )
)
SELECT /* include batches/view_columns.sql */,
       /* include batches/run_columns.sql */,
       earlier.tasks AS earlier_tasks, earlier.running AS earlier_running,
       earlier.succeeded AS earlier_succeeded, earlier.failed AS earlier_failed,
       earlier.cancelled AS earlier_cancelled
FROM page AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
/* include batches/run_joins.sql */
CROSS JOIN LATERAL (
    SELECT coalesce(sum(
               r.tasks - r.replaced_succeeded - r.replaced_failed - r.replaced_cancelled
           ), 0)::integer AS tasks,
           coalesce(sum(held.tasks), 0)::integer AS running,
           coalesce(sum(r.succeeded + fresh.succeeded - r.replaced_succeeded), 0)::integer AS succeeded,
           coalesce(sum(r.failed + fresh.failed - r.replaced_failed), 0)::integer AS failed,
           coalesce(sum(r.cancelled + fresh.cancelled - r.replaced_cancelled), 0)::integer AS cancelled
    FROM runs AS r
    /* include batches/run_joins.sql */
    WHERE r.org_id = b.org_id AND r.group_id = b.id AND r.id <> b.current_run
) AS earlier
ORDER BY b.id DESC
