-- Jobs by id, for every reader that arrived while the last read was in flight.
SELECT j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.state::text AS state,
       j.failures, j.failures_max, j.crashes, j.interruptions, j.unreachables,
       j.created_at, j.run_at, j.dispatched_at, j.started_at, j.finished_at, j.updated_at,
       j.expires_at, j.start_deadline, j.progress, j.progress_note, j.idempotency_key,
       j.request_id, j.error_code, j.error_message, j.result
FROM unnest($1::text[], $2::uuid[]) AS wanted (org_id, id)
JOIN jobs AS j ON j.org_id = wanted.org_id AND j.id = wanted.id
