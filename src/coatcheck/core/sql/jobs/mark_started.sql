-- Show that handlers are running: dispatching -> processing, for jobs that did not end at once.
--
-- Returns every job still held under the lease given, marked or not: a missing one was taken from this
-- worker, which must stop it. Locked in the order of job_events/add.sql, which is sent concurrently.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, j.state, s.ran_seconds
    FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::double precision[])
        AS s (org_id, id, lease, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    ORDER BY j.org_id, j.id
    FOR UPDATE OF j
),
moved AS (
    UPDATE jobs AS j
    SET state = 'processing', updated_at = now(),
        started_at = now() - h.ran_seconds * interval '1 second',
        run_deadline = j.run_deadline + (now() - h.ran_seconds * interval '1 second' - j.dispatched_at)
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease AND h.state = 'dispatching'
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT h.id FROM held AS h
