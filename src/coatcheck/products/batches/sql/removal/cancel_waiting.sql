-- staged, queued, retrying -> cancelled, for some tasks of a cancelled run, as jobs/cancel.sql does for
-- one job, with usage and webhooks. Tasks that a claim holds right now are skipped; request_cancel.sql
-- asks them to stop later.
--
-- $1 org   $2 run   $3 rows at most, of the queued ones and of the others
WITH queued AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.state = 'queued' AND j.org_id = $1 AND j.run_id = $2
      AND j.lane = (SELECT r.lane FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
      AND j.endpoint = (SELECT r.endpoint FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
      AND j.flow >= replace($2::uuid::text, '-', '')
      AND j.flow < replace($2::uuid::text, '-', '') || '0'
    ORDER BY j.flow, j.run_at, j.id
    LIMIT $3::integer
    FOR UPDATE OF j SKIP LOCKED
),
postponed AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('staged', 'retrying')
    ORDER BY j.task_index
    LIMIT $3::integer
    FOR UPDATE OF j SKIP LOCKED
),
waiting AS (
    SELECT q.org_id, q.id, q.payload_bytes FROM queued AS q
    UNION ALL
    SELECT p.org_id, p.id, p.payload_bytes FROM postponed AS p
),
changed AS (
    UPDATE jobs AS j
    SET state = 'cancelled', finished_at = now(), updated_at = now(), expires_at = 'infinity',
        error_code = 'cancelled', error_message = 'its batch was cancelled before it started'
    FROM waiting AS w
    WHERE j.org_id = w.org_id AND j.id = w.id
    RETURNING j.org_id, j.id, j.lane, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              w.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include coatcheck.core:usage/meter.sql */
),
notified AS (
    /* include coatcheck.core:webhooks/write_deliveries_from_changed.sql */
)
SELECT count(*) AS tasks, min(c.lane)::text AS lane FROM changed AS c
