-- Cancel a job. waiting -> cancelled at once; running -> cancel_requested, for its holder to see.
--
-- Returns the state before and after, and the holder; no row if there is no such job. A terminal job,
-- or one that is being cancelled, is returned unchanged.
--
-- A call to a remote becomes due at once.
--
-- The lease is written although it does not change: PostgreSQL checks a row's constraints before it
-- sees that the version it started from, without the claim that this waited for, is not the newest.
--
-- $1 org   $2 id   $3 seconds to keep by default
WITH before AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lease, octet_length(j.payload) AS payload_bytes
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = 'cancelled', lease = NULL, finished_at = now(), updated_at = now(),
        payload = CASE WHEN j.run_id IS NOT NULL OR j.keeps_input THEN j.payload END,
        error_code = 'cancelled', error_message = 'cancelled before it started',
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $3::integer) * interval '1 second'
        END
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id AND b.state IN ('staged', 'queued', 'retrying')
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              b.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous
),
metered AS (
    /* include usage/meter.sql */
),
asked AS (
    UPDATE jobs AS j
    SET state = 'cancel_requested', lease = b.lease, updated_at = now()
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id
      AND b.state IN ('dispatching', 'processing', 'finalizing')
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease
),
woken AS (
    UPDATE remote_calls AS r
    SET due_at = now(), looker = NULL
    FROM asked AS a
    WHERE a.lease >> 40 = 0 AND r.org_id = a.org_id AND r.job_id = a.id AND r.lease IS NOT NULL
),
moved AS (
    SELECT c.org_id, c.id, c.state, c.previous, c.endpoint, c.flow, c.attempts, c.run_id, c.webhook,
           c.error_code
    FROM changed AS c
    UNION ALL
    SELECT a.org_id, a.id, a.state, a.previous, a.endpoint, a.flow, a.attempts, a.run_id, a.webhook,
           a.error_code
    FROM asked AS a
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT b.state::text AS before, coalesce(c.state, a.state, b.state)::text AS after, b.lease >> 40 AS boot
FROM before AS b
LEFT JOIN changed AS c ON c.id = b.id
LEFT JOIN asked AS a ON a.id = b.id
