-- Release a claim whose answer was lost with its connection: if it was committed, this worker holds
-- jobs that it does not know. The lease belongs to that claim alone, so every job with it is unknown.
--
-- release: dispatching -> queued; cancel_requested -> cancelled.   $1 lease   $2 seconds to keep
WITH unknown AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 = $1::bigint >> 40 AND j.lease = $1::bigint
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE 'queued' END::job_state,
        lease = NULL, run_deadline = NULL, updated_at = now(),
        interruptions = least(j.interruptions + 1, 32767),
        payload = CASE
            WHEN j.state <> 'cancel_requested' OR j.run_id IS NOT NULL OR j.keeps_input
            THEN j.payload
        END,
        error_code = CASE j.state WHEN 'cancel_requested' THEN 'cancelled' ELSE j.error_code END,
        error_message = CASE j.state
            WHEN 'cancel_requested' THEN 'cancelled before it started' ELSE j.error_message
        END,
        finished_at = CASE j.state WHEN 'cancel_requested' THEN now() END,
        expires_at = CASE
            WHEN j.state <> 'cancel_requested' THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $2::integer) * interval '1 second'
        END
    FROM unknown AS u
    WHERE j.org_id = u.org_id AND j.id = u.id AND j.lease = u.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              u.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include usage/meter.sql */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed.sql */
)
SELECT c.id FROM changed AS c
