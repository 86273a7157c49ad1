-- Delete batches whose retention has ended, as if somebody had deleted them. Their idempotency keys
-- become free, as those of jobs do. The same for batches whose failed ingest nobody has acted on for
-- long: they would never end.
--
-- The newest run of each is locked first. The chunk of a rerun, which changes older runs, does so too.
--
-- $1 batches at most   $2 seconds that a failed list waits for an action
WITH old AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM batches AS b
    WHERE b.expires_at IS NOT NULL AND b.expires_at <= now() AND b.deleted_at IS NULL
    ORDER BY b.expires_at
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
),
stuck AS MATERIALIZED (
    SELECT b.org_id, b.id
    FROM (
        SELECT p.org_id, p.batch_id, p.run_id
        FROM batch_parts AS p
        WHERE p.state = 'failed'
          AND p.updated_at < now() - $2::double precision * interval '1 second'
        LIMIT $1::integer
    ) AS p
    JOIN batches AS b ON b.org_id = p.org_id AND b.id = p.batch_id AND b.current_run = p.run_id
    WHERE b.deleted_at IS NULL
    FOR UPDATE OF b SKIP LOCKED
),
deleted AS (
    UPDATE batches AS b
    SET deleted_at = now(), updated_at = now(), idempotency_key = NULL
    FROM (SELECT * FROM old UNION SELECT * FROM stuck) AS o
    WHERE b.org_id = o.org_id AND b.id = o.id
    RETURNING b.org_id, b.id
),
left_runs AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM deleted AS d
    JOIN runs AS r ON r.org_id = d.org_id AND r.group_id = d.id
    ORDER BY r.org_id, r.group_id, r.number DESC
    FOR UPDATE OF r
),
hidden AS (
    UPDATE runs AS r SET removed_at = now()
    FROM left_runs AS l
    WHERE r.org_id = l.org_id AND r.id = l.id
)
SELECT d.id FROM deleted AS d
