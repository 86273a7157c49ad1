-- An organisation's jobs, newest first, a page at a time: $2 is the last id of the page before.
-- Results are left out: a page of them could be of any size.
SELECT j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.state::text AS state,
       j.failures, j.failures_max, j.crashes, j.interruptions, j.unreachables,
       j.created_at, j.run_at, j.dispatched_at, j.started_at, j.finished_at, j.updated_at,
       j.expires_at, j.start_deadline, j.progress, j.progress_note, j.idempotency_key,
       j.request_id, j.error_code, j.error_message, NULL::bytea AS result
FROM jobs AS j
WHERE j.org_id = $1
  AND ($2::uuid IS NULL OR j.id < $2)
  AND ($3::text[] IS NULL OR j.state::text = ANY ($3))
  AND ($4::text IS NULL OR j.endpoint = $4)
  AND ($5::text IS NULL OR j.lane::text = $5)
ORDER BY j.id DESC
LIMIT $6
