-- End attempts that did not complete: fail, retry, unreachable, postpone, release, acknowledge_cancel.
--
-- held -> failed | retrying | queued | cancelled, fenced by the lease. Once cancellation was requested,
-- an attempt that would run again is cancelled. A retry with no attempt left fails the job for
-- good: a job as max_retries_exhausted, a task by the code of its failure, because a rerun selects
-- by it. acknowledge_cancel counts only where cancellation was requested. An executor that postpones a
-- job counts by itself how often. Interruptions and unreachable targets have no bound, so their
-- counters stop at the maximum of a smallint.
--
-- $1-$8 org, id, lease, event, error code, error message, seconds until the retry, seconds since
-- start   $9 seconds to keep by default
WITH next AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, s.event, s.error_code, s.error_message, s.delay_seconds,
           s.ran_seconds, octet_length(j.payload) AS payload_bytes,
           CASE
               WHEN s.event = 'fail' THEN 'failed'
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN s.event = 'release' THEN 'queued'
               WHEN s.event IN ('unreachable', 'postpone') THEN 'retrying'
               WHEN s.event = 'retry' AND j.failures < j.failures_max THEN 'retrying'
               WHEN s.event = 'retry' THEN 'failed'
           END::job_state AS state
    FROM unnest(
        $1::text[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[],
        $7::double precision[], $8::double precision[]
    ) AS s (org_id, id, lease, event, error_code, error_message, delay_seconds, ran_seconds)
    JOIN jobs AS j ON j.org_id = s.org_id AND j.id = s.id AND j.lease = s.lease
    FOR UPDATE OF j
),
changed AS (
    UPDATE jobs AS j
    SET state = n.state, lease = NULL, run_deadline = NULL, updated_at = now(),
        failures = j.failures + (n.event IN ('fail', 'retry'))::integer,
        interruptions = least(j.interruptions + (n.event = 'release')::integer, 32767),
        unreachables = least(j.unreachables + (n.event = 'unreachable')::integer, 32767),
        run_seconds = j.run_seconds + n.ran_seconds,
        error_code = CASE
            WHEN n.state = 'cancelled' THEN 'cancelled'
            WHEN n.event = 'release' THEN j.error_code
            WHEN n.event = 'retry' AND n.state = 'failed' AND j.run_id IS NULL
            THEN 'max_retries_exhausted'
            ELSE n.error_code
        END,
        error_message = CASE
            WHEN n.state = 'cancelled' THEN 'cancelled while it ran'
            WHEN n.event = 'release' THEN j.error_message
            WHEN n.event = 'retry' AND n.state = 'failed' THEN format(
                'failed %s; last: %s: %s',
                CASE j.failures WHEN 0 THEN 'once' ELSE (j.failures + 1) || ' times' END,
                n.error_code, n.error_message
            )
            ELSE n.error_message
        END,
        run_at = CASE
            WHEN n.state = 'retrying' THEN now() + n.delay_seconds * interval '1 second'
            ELSE j.run_at
        END,
        started_at = CASE
            WHEN n.state IN ('failed', 'cancelled')
            THEN coalesce(j.started_at, now() - n.ran_seconds * interval '1 second')
        END,
        payload = CASE
            WHEN n.state NOT IN ('failed', 'cancelled') OR j.run_id IS NOT NULL OR j.keeps_input
            THEN j.payload
        END,
        finished_at = CASE WHEN n.state IN ('failed', 'cancelled') THEN now() END,
        expires_at = CASE
            WHEN n.state NOT IN ('failed', 'cancelled') THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $9::integer) * interval '1 second'
        END
    FROM next AS n
    WHERE j.org_id = n.org_id AND j.id = n.id AND j.lease = n.lease AND n.state IS NOT NULL
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              n.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous,
              CASE n.event
                  WHEN 'release' THEN 'interrupted'
                  WHEN 'unreachable' THEN 'target_unreachable'
                  WHEN 'postpone' THEN 'postponed'
                  WHEN 'acknowledge_cancel' THEN 'cancelled'
                  ELSE 'failed'
              END AS outcome,
              n.error_code AS attempt_code, n.error_message AS attempt_message, j.dispatched_at,
              coalesce(old.started_at, now() - n.ran_seconds * interval '1 second') AS began_at,
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
SELECT c.org_id, c.id, c.state::text AS state, c.error_code FROM changed AS c
