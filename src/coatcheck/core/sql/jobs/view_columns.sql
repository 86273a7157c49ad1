-- What a reader sees of a job, except its result: included by get.sql, list.sql and page.sql, in the
-- order of JobView. A result's length is read without the result. The clock is read after the rows, so
-- that no age is negative.
j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.state::text AS state,
       j.failures, j.failures_max, j.crashes, j.interruptions, j.unreachables,
       j.created_at, j.run_at, j.dispatched_at, j.started_at, j.finished_at, j.updated_at,
       j.expires_at, j.start_deadline, clock_timestamp() AS read_at, j.progress, j.progress_note,
       j.idempotency_key, j.request_id, j.owner, j.error_code, j.error_message,
       j.execution_id, octet_length(j.result) AS result_bytes
