-- End attempts that a live worker still holds well past their run deadline: it should have stopped
-- them itself, so it has lost track of them.
--
-- retry: running -> retrying while attempts last, else failed; cancel_requested -> cancelled.
--
-- $1 slack in seconds   $2 seconds to keep by default   $3 rows at most
WITH overrun AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease,
           CASE
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN j.failures < j.failures_max THEN 'retrying'
               ELSE 'failed'
           END::job_state AS state
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
      AND j.run_deadline < now() - $1::double precision * interval '1 second'
    LIMIT $3::integer
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs AS j
SET state = o.state, lease = NULL, run_deadline = NULL, updated_at = now(), run_at = now(),
    failures = j.failures + 1,
    error_code = CASE o.state
        WHEN 'cancelled' THEN 'cancelled'
        WHEN 'failed' THEN 'max_retries_exhausted'
        ELSE 'timed_out'
    END,
    error_message = CASE o.state
        WHEN 'cancelled' THEN 'cancelled while it ran'
        WHEN 'failed' THEN format(
            'failed %s times; last: timed_out: ran long past its deadline', j.failures + 1
        )
        ELSE 'ran long past its deadline'
    END,
    started_at = CASE WHEN o.state = 'retrying' THEN NULL ELSE j.started_at END,
    payload = CASE WHEN o.state = 'retrying' THEN j.payload END,
    finished_at = CASE WHEN o.state <> 'retrying' THEN now() END,
    expires_at = CASE
        WHEN o.state <> 'retrying'
        THEN now() + coalesce(j.keep_failed_seconds, $2::integer) * interval '1 second'
    END
FROM overrun AS o
WHERE j.org_id = o.org_id AND j.id = o.id AND j.lease = o.lease
RETURNING j.id
