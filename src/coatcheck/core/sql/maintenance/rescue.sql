-- Take jobs from workers that are known to be dead, were silent for longer than their lease time, or
-- have no row.
--
-- crash: running -> queued; crash_again: running -> retrying, after a delay that grows; failed once no
-- crash is left; cancel_requested -> cancelled. The row lock and the lease decide against a finish in
-- flight: exactly one of the two wins. The attempt counts as having run until its worker was last
-- seen.
--
-- A job that crashes alone may be the cause, and is allowed $1 crashes. Of jobs that crash together most
-- are bystanders, and the cause is unknown: they are allowed $4. Each waits for a different time, so
-- that they do not all meet again.
--
-- Jobs that a remote runs (boot 0) are the poller's.
--
-- $1 crashes allowed   $2 seconds to keep by default   $3 rows at most   $4 crashes allowed together
-- $5 seconds to wait after the second crash, the third, and so on   $6 the fraction of it for jitter
WITH lost AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease, octet_length(j.payload) AS payload_bytes,
           coalesce(
               (SELECT w.last_seen_at FROM workers AS w WHERE w.boot = j.lease >> 40), now()
           ) AS last_seen_at,
           CASE
               WHEN EXISTS (
                   SELECT FROM workers AS w WHERE w.boot = j.lease >> 40 AND w.died_at IS NOT NULL
               ) THEN 'its worker died'
               ELSE 'its worker fell silent'
           END AS reason,
           CASE
               WHEN j.state = 'cancel_requested' THEN 'cancelled'
               WHEN j.crashes = 0 THEN 'queued'
               WHEN j.crashes < $1::integer THEN 'retrying'
               WHEN j.crashes < $4::integer AND EXISTS (
                   SELECT FROM jobs AS other
                   WHERE other.lease IS NOT NULL AND other.lease >> 40 = ANY (
                       ARRAY(
                           SELECT also.boot
                           FROM workers AS w
                           JOIN workers AS also ON also.process = w.process
                           WHERE w.boot = j.lease >> 40
                       ) || (j.lease >> 40)
                   ) AND (other.org_id, other.id) <> (j.org_id, j.id)
               ) THEN 'retrying'
               ELSE 'failed'
           END::job_state AS state
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 > 0
      AND NOT EXISTS (
          SELECT FROM workers AS w
          WHERE w.boot = j.lease >> 40
            AND w.died_at IS NULL
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
    SET state = l.state, lease = NULL, run_deadline = NULL, updated_at = now(),
        crashes = j.crashes + 1,
        run_at = CASE
            WHEN l.state = 'retrying' THEN now() + interval '1 second'
                * ($5::double precision[])[least(j.crashes, cardinality($5::double precision[]))]
                * (1 + $6::double precision * random())
            ELSE j.run_at
        END,
        run_seconds = j.run_seconds + greatest(
            0, extract(epoch FROM l.last_seen_at - coalesce(j.started_at, j.dispatched_at, now()))
        ),
        error_code = CASE l.state WHEN 'cancelled' THEN 'cancelled' ELSE 'worker_lost' END,
        error_message = CASE l.state
            WHEN 'cancelled' THEN 'cancelled while it ran'
            WHEN 'failed' THEN format(
                'lost its worker %s times; last: %s', j.crashes + 1, l.reason
            )
            ELSE l.reason
        END,
        started_at = CASE WHEN l.state IN ('queued', 'retrying') THEN NULL ELSE j.started_at END,
        payload = CASE
            WHEN l.state IN ('queued', 'retrying') OR j.run_id IS NOT NULL OR j.keeps_input
            THEN j.payload
        END,
        finished_at = CASE WHEN l.state IN ('failed', 'cancelled') THEN now() END,
        expires_at = CASE
            WHEN l.state IN ('queued', 'retrying') THEN NULL
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_failed_seconds, $2::integer) * interval '1 second'
        END
    FROM lost AS l
    WHERE j.org_id = l.org_id AND j.id = l.id AND j.lease = l.lease
    RETURNING j.org_id, j.id, j.lane, j.request_id, j.state, j.endpoint, j.flow, j.failures + j.crashes AS attempts,
              l.payload_bytes, 0 AS result_bytes, j.run_seconds, j.run_id, j.webhook,
              j.error_code, j.error_message, old.state AS previous,
              'crashed' AS outcome, 'worker_lost' AS attempt_code,
              l.reason AS attempt_message, j.dispatched_at, old.started_at AS began_at,
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
