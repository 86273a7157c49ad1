-- Ask for a job's end. waiting -> cancelled at once; running -> cancel_requested, for its holder to see.
--
-- Answers the state before and after, and the holder; no row if there is no such job. A terminal or
-- already asked job is answered unchanged.
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
    SET state = 'cancelled', finished_at = now(), updated_at = now(),
        payload = CASE WHEN j.run_id IS NOT NULL THEN j.payload END,
        error_code = 'cancelled', error_message = 'cancelled before it started',
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $3::integer) * interval '1 second'
        END
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id AND b.state IN ('staged', 'queued', 'retrying')
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              b.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message
),
metered AS (
    /* include usage/meter.sql */
),
told AS (
    /* include webhooks/tell.sql */
),
running AS (
    UPDATE jobs AS j
    SET state = 'cancel_requested', updated_at = now()
    FROM before AS b
    WHERE j.org_id = b.org_id AND j.id = b.id
      AND b.state IN ('dispatching', 'processing', 'finalizing')
    RETURNING j.id, j.state
)
SELECT b.state::text AS before, coalesce(c.state, r.state, b.state)::text AS after, b.lease >> 40 AS boot
FROM before AS b
LEFT JOIN changed AS c ON c.id = b.id
LEFT JOIN running AS r ON r.id = b.id
