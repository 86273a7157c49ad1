-- Delete the endpoints of a service that no registered worker publishes, unless the worker is known to
-- be dead: of one version or one endpoint, if they are given. Returns those deleted; by primary key.
--
-- Registered, not live: a worker that was silent for a moment continues with its registration, and does
-- not publish again. Runs after end_silent.sql, which ends those of workers that were silent for longer.
--
-- $1 service   $2 version, or NULL for all   $3 key of an endpoint, or NULL for all
DELETE FROM published_endpoints AS p
WHERE p.org_id = '' AND p.service_id = $1::text
  AND ($2::integer IS NULL OR p.version = $2) AND ($3::text IS NULL OR p.key = $3)
  AND NOT EXISTS (
      SELECT FROM published_endpoints AS l
      WHERE l.org_id = '' AND l.service_id = p.service_id AND l.version = p.version AND l.key = p.key
        AND l.digest IN (
            SELECT d.digest
            FROM workers AS w
            CROSS JOIN LATERAL unnest(w.publishes) AS d (digest)
            WHERE w.died_at IS NULL
        )
  )
RETURNING p.version, p.key
