-- Show that handlers are running: dispatching -> processing, for jobs that did not end at once.
--
-- Answers every job still held under the lease given, marked or not: one that is missing was taken
-- from this worker, which must stop it.
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, j.state, s.ran_seconds
    FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::double precision[])
        AS s (org_id, id, lease, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    FOR UPDATE OF j
),
marked AS (
    UPDATE jobs AS j
    SET state = 'processing', updated_at = now(),
        started_at = now() - h.ran_seconds * interval '1 second',
        run_deadline = j.run_deadline + (now() - h.ran_seconds * interval '1 second' - j.dispatched_at)
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease AND h.state = 'dispatching'
)
SELECT h.id FROM held AS h
