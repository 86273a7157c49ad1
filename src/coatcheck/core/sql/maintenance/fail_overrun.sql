-- End attempts that a live worker still holds well past their run deadline: it should have stopped
-- them itself, so it has lost track of them.
--
-- Live: seen since the slack was over, and within its lease time. If a worker fell silent before that,
-- it is unknown whether it still ran the job at the deadline: the rescuer takes the job, and counts a
-- crash. Only one of the two statements ever applies to a job, except at the moment when its worker's
-- silence becomes too long: then the row lock and the lease decide.
--
-- retry: running -> retrying while attempts last, else failed; cancel_requested -> cancelled.
--
-- Jobs that a remote runs (boot 0) are the poller's, which also cancels the work.
--
-- $1 slack in seconds   $2 seconds to keep by default   $3 rows at most
WITH overrun AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           CASE
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN j.failures < j.failures_max THEN 'retrying'
               ELSE 'failed'
           END::job_state AS state
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 > 0
      AND j.run_deadline < now() - $1::double precision * interval '1 second'
      AND EXISTS (
          SELECT FROM workers AS w
          WHERE w.boot = j.lease >> 40
            AND w.died_at IS NULL
            AND w.last_seen_at > j.run_deadline + $1::double precision * interval '1 second'
            AND w.last_seen_at > now() - interval '1 second' * CASE j.lane
                WHEN 'urgent' THEN w.urgent_seconds
                WHEN 'standard' THEN w.standard_seconds
                WHEN 'bulk' THEN w.bulk_seconds
            END
      )
    LIMIT $3::integer
    FOR UPDATE OF j SKIP LOCKED
),
changed AS (
    UPDATE jobs AS j
    SET state = o.state, lease = NULL, run_deadline = NULL, updated_at = now(), run_at = now(),
        failures = j.failures + 1,
        run_seconds = j.run_seconds + extract(
            epoch FROM now() - coalesce(j.started_at, j.dispatched_at, now())
        ),
        error_code = CASE
            WHEN o.state = 'cancelled' THEN 'cancelled'
            WHEN o.state = 'failed' AND j.run_id IS NULL THEN 'max_retries_exhausted'
            ELSE 'timed_out'
        END,
        error_message = CASE o.state
            WHEN 'cancelled' THEN 'cancelled while it ran'
            WHEN 'failed' THEN format(
                'failed %s; last: timed_out: ran long past its deadline',
                CASE j.failures WHEN 0 THEN 'once' ELSE (j.failures + 1) || ' times' END
            )
            ELSE 'ran long past its deadline'
        END,
        started_at = CASE WHEN o.state = 'retrying' THEN NULL ELSE j.started_at END,
        payload = CASE
            WHEN o.state = 'retrying' OR j.run_id IS NOT NULL OR j.keeps_input THEN j.payload
        END,
        finished_at = CASE WHEN o.state <> 'retrying' THEN now() END,
        expires_at = CASE
            WHEN o.state = 'retrying' THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $2::integer) * interval '1 second'
        END
    FROM overrun AS o
    WHERE j.org_id = o.org_id AND j.id = o.id AND j.lease = o.lease
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              o.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous,
              'failed' AS outcome, 'timed_out' AS attempt_code,
              'ran long past its deadline' AS attempt_message, j.dispatched_at,
              old.started_at AS began_at,
              CASE j.state WHEN 'retrying' THEN j.run_at END AS next_run_at,
              j.failures + j.crashes + j.interruptions + j.unreachables AS efforts
),
metered AS (
    /* include usage/meter.sql */
),
notified AS (
    /* include webhooks/write_deliveries_from_changed.sql */
),
alerted AS (
    /* include job_events/alert.sql */
),
noted AS (
    /* include job_events/attempt.sql */
)
SELECT c.id, c.endpoint, c.state::text AS state, c.org_id, c.lane::text AS lane, c.error_code,
       c.request_id, c.attempts
FROM changed AS c
