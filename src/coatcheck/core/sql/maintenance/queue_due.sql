-- Queue jobs that are due: staged, retrying -> queued.
WITH due AS MATERIALIZED (
    SELECT j.org_id, j.id
    FROM jobs AS j
    WHERE j.state IN ('staged', 'retrying') AND j.run_at <= now()
    ORDER BY j.run_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE jobs AS j
    SET state = 'queued', updated_at = now()
    FROM due AS d
    WHERE j.org_id = d.org_id AND j.id = d.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT m.id, m.endpoint FROM moved AS m
