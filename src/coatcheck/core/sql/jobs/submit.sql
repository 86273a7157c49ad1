-- Create jobs: one statement for every caller that arrived while the last one was in flight.
--
-- -> queued, or staged when due later. ON CONFLICT covers both the idempotency key and the id: a
-- statement whose commit was lost with its connection is simply sent again. Returns the ids that it
-- created; the caller looks up the others (find_existing.sql).
--
-- The lane is spelt out because casting text to an enum reads the catalogue for every row.
--
-- $1-$11 one array per common column   $12 the options that few jobs have, as JSON, or NULL
INSERT INTO jobs (
    org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
    fingerprint, request_id, run_at, state, start_deadline, timeout_seconds, keep_completed_seconds,
    keep_failed_seconds, webhook, keeps_input, traceparent
)
SELECT s.org_id, s.id,
       CASE s.lane
           WHEN 'urgent' THEN 'urgent'::job_lane
           WHEN 'standard' THEN 'standard'::job_lane
           WHEN 'bulk' THEN 'bulk'::job_lane
       END,
       s.endpoint, s.flow, s.failures_max, s.payload, coalesce(s.owner, ''),
       s.idempotency_key, s.fingerprint, s.request_id, due.at,
       CASE WHEN due.at > now() THEN 'staged' ELSE 'queued' END::job_state,
       coalesce(
           (s.options ->> 'start_deadline')::timestamptz,
           now() + (s.options ->> 'start_within_seconds')::double precision * interval '1 second'
       ),
       (s.options ->> 'timeout_seconds')::real,
       (s.options ->> 'keep_completed_seconds')::integer,
       (s.options ->> 'keep_failed_seconds')::integer,
       (s.options ->> 'webhook')::smallint,
       coalesce((s.options ->> 'keeps_input')::boolean, true),
       s.options ->> 'traceparent'
FROM unnest(
    $1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bytea[],
    $8::text[], $9::text[], $10::bytea[], $11::text[], $12::jsonb[]
) AS s (
    org_id, id, lane, endpoint, flow, failures_max, payload, owner, idempotency_key,
    fingerprint, request_id, options
)
CROSS JOIN LATERAL (
    SELECT coalesce(
        (s.options ->> 'run_at')::timestamptz,
        now() + (s.options ->> 'delay_seconds')::double precision * interval '1 second',
        now()
    ) AS at
) AS due
ON CONFLICT DO NOTHING
RETURNING id, state = 'staged' AS staged
