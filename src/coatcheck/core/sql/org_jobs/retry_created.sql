-- Create a job that repeats an unsuccessful one: -> queued. Included by the statements that retry jobs.
-- Everything that the old one was submitted with is taken from its row, in the statement that creates
-- the new one. Not its key, which names the old job, nor the time at which it was due: the new one is
-- due now. A deadline for its start is as far away as it was for the old one.
--
-- Nothing is created if there is nothing to retry, or if the key or the id of the new one is taken. The
-- old row is locked, so that neither it nor its webhooks are deleted meanwhile.
--
-- $1 org   $2 the old job   $3 the new one's id   $4 its key   $5 its fingerprint   $6 its request id
-- $7 its payload, if that differs   $8 its options, of which it has the traceparent: the trace of the
-- retry, and not the old job's
old_job AS MATERIALIZED (
    SELECT j.* FROM jobs AS j WHERE j.org_id = $1 AND j.id = $2 FOR SHARE
),
created AS (
    INSERT INTO jobs (
        org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
        fingerprint, request_id, start_deadline, timeout_seconds, keep_completed_seconds,
        keep_failed_seconds, webhook, keeps_input, retry_of, traceparent
    )
    SELECT o.org_id, $3::uuid, o.lane, o.endpoint, o.flow, o.failures_max,
           coalesce($7::bytea, o.payload), o.owner, $4::text, $5::bytea, $6::text,
           now() + (o.start_deadline - o.created_at), o.timeout_seconds, o.keep_completed_seconds,
           o.keep_failed_seconds, o.webhook, o.keeps_input, o.id,
           $8::jsonb ->> 'traceparent'
    FROM old_job AS o
    WHERE o.state IN ('failed', 'cancelled') AND o.payload IS NOT NULL AND o.run_id IS NULL
    ON CONFLICT DO NOTHING
    RETURNING org_id, id, webhook
),
bound AS (
    INSERT INTO job_webhooks (org_id, job_id, target_id, tells)
    SELECT c.org_id, c.id, w.target_id, w.tells
    FROM created AS c
    JOIN job_webhooks AS w ON w.org_id = $1 AND w.job_id = $2
    WHERE c.webhook IS NOT NULL
),
named AS (
    SELECT t.org_id, t.id, t.url
    FROM created AS c
    JOIN job_webhooks AS w ON w.org_id = $1 AND w.job_id = $2
    JOIN webhook_targets AS t ON t.org_id = w.org_id AND t.id = w.target_id
    WHERE c.webhook IS NOT NULL
),
enlisted AS (
    /* include webhooks/target_upsert.sql */
)
