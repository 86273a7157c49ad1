-- dispatching, processing, finalizing -> cancel_requested, for tasks of a cancelled run. Returns each
-- task with the worker that holds it, which is then notified. A remote call is made due at once. No
-- webhook is written: webhooks report the ends of tasks.
--
-- $1 org   $2 run   $3 rows at most
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2
      AND j.state IN ('dispatching', 'processing', 'finalizing')
    LIMIT $3::integer
    FOR UPDATE SKIP LOCKED
),
remote_calls_made AS MATERIALIZED (
    SELECT r.org_id, r.job_id
    FROM held AS h
    JOIN remote_calls AS r ON r.org_id = h.org_id AND r.job_id = h.id AND r.lease = h.lease
    WHERE h.lease >> 40 = 0
    ORDER BY r.org_id, r.job_id
    FOR UPDATE OF r
),
woken AS (
    UPDATE remote_calls AS r
    SET due_at = now(), looker = NULL
    FROM remote_calls_made AS e
    WHERE r.org_id = e.org_id AND r.job_id = e.job_id
)
UPDATE jobs AS j
SET state = 'cancel_requested', updated_at = now()
FROM held AS h
WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease
RETURNING j.id, h.lease >> 40 AS boot
