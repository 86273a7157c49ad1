-- Fail jobs that did not start before their deadline: staged, queued, retrying -> failed.
WITH late AS MATERIALIZED (
    SELECT j.org_id, j.id, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.start_deadline IS NOT NULL AND j.state IN ('staged', 'queued', 'retrying')
      AND j.start_deadline <= now()
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
changed AS (
    UPDATE jobs AS j
    SET state = 'failed', finished_at = now(), updated_at = now(),
        payload = CASE WHEN j.run_id IS NOT NULL OR j.keeps_input THEN j.payload END,
        error_code = 'start_deadline_passed', error_message = 'did not start before its deadline',
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $1::integer) * interval '1 second'
        END
    FROM late AS l
    WHERE j.org_id = l.org_id AND j.id = l.id
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              l.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include usage/meter.sql */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed.sql */
)
SELECT c.id, c.endpoint, c.state::text AS state, c.org_id, c.lane::text AS lane, c.error_code,
       c.request_id, c.attempts
FROM changed AS c
