-- A batch and its current run, locked, so that changes of a run's parts and tasks come one after the
-- other. Sent after lock.sql, whose header gives the reason.
SELECT b.id, b.owner, b.endpoint, b.lane::text AS lane, b.failures_max, b.request_id, b.is_open,
       b.concurrency, b.rate_per_second, b.rate_key_per_second, r.webhook_target, b.webhook_events,
       r.id AS run_id, r.number, r.tasks, r.closed_at, r.latched_at, r.cancel_requested_at,
       r.completed_at
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.id = b.current_run
WHERE b.org_id = $1 AND b.id = $2 AND b.deleted_at IS NULL
FOR UPDATE OF b, r
