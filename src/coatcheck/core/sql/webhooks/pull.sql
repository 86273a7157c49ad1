-- Claim due deliveries of a pulled endpoint, each under a lease, as claim.sql does for posted ones:
-- oldest first, and those about a subject in order. Records from time to time that the endpoint was
-- pulled: a waiting reader asks twice a second, and an empty answer should cost no write.
--
-- One row without an id if nothing is due; none if there is no such endpoint.
--
-- $1 org   $2 endpoint   $3 rows at most   $4 seconds that the lease lasts   $5 lease
WITH endpoint AS MATERIALIZED (
    SELECT t.org_id, t.id, t.url, t.failures, t.generation, t.rotated_at,
           t.paused_at IS NULL AND t.disabled_at IS NULL
           AND (t.not_before IS NULL OR t.not_before <= now()) AS wants_some
    FROM webhook_targets AS t
    WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL AND t.pulled
),
asked AS (
    UPDATE webhook_targets AS t
    SET pulled_at = now()
    FROM endpoint AS e
    WHERE t.org_id = e.org_id AND t.id = e.id
      AND (t.pulled_at IS NULL OR t.pulled_at < now() - interval '15 seconds')
),
due AS MATERIALIZED (
    SELECT d.org_id, d.id
    FROM webhook_deliveries AS d
    WHERE d.status = 'pending' AND d.org_id = $1 AND d.target_id = $2 AND d.due_at <= now()
      AND (SELECT e.wants_some FROM endpoint AS e)
      AND NOT EXISTS (
          SELECT
          FROM webhook_deliveries AS e
          WHERE e.status = 'pending' AND e.tries = 0 AND e.org_id = d.org_id
            AND e.target_id = d.target_id AND e.subject_id = d.subject_id AND e.id < d.id
      )
    ORDER BY d.due_at, d.id
    LIMIT $3::integer
    FOR UPDATE OF d SKIP LOCKED
),
taken AS (
    UPDATE webhook_deliveries AS d
    SET lease = $5::uuid, due_at = now() + $4::double precision * interval '1 second'
    FROM due
    WHERE d.org_id = due.org_id AND d.id = due.id
    RETURNING d.id, d.subject_kind, d.subject_id, d.run_id, d.event, d.facts::text AS facts, d.tries,
              d.created_at, d.last_try_at
)
SELECT e.org_id, k.id, e.id AS target_id, e.url, k.subject_kind, k.subject_id, k.run_id, k.event, k.facts,
       k.tries, k.created_at, e.failures > 0 AS failing, true AS to_endpoint, e.generation,
       e.rotated_at, clock_timestamp() AS claimed_at,
       (
           SELECT j.traceparent
           FROM jobs AS j
           WHERE k.subject_kind = 'job' AND j.org_id = e.org_id AND j.id = k.subject_id
       ) AS traceparent,
       k.last_try_at IS NULL AS is_first_try
FROM endpoint AS e
LEFT JOIN taken AS k ON true
ORDER BY k.created_at, k.id
