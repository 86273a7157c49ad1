-- Delete expired deliveries, and targets that nothing refers to any more. A target that something does
-- refer to, or that is an endpoint, is checked again after being unused for as long once more.
--
-- A statement that refers to a target meanwhile does not lose it: it found the target young, or has set
-- used_at, and then the target is skipped or no longer old here (webhooks/target_upsert.sql).
--
-- $1 seconds that the log is kept   $2 seconds that an unused target is kept   $3 rows at most
WITH old AS MATERIALIZED (
    SELECT d.org_id, d.id
    FROM webhook_deliveries AS d
    WHERE d.ended_at IS NOT NULL
      AND d.ended_at <= now() - $1::double precision * interval '1 second'
    ORDER BY d.ended_at
    LIMIT $3::integer
    FOR UPDATE SKIP LOCKED
),
deliveries_gone AS (
    DELETE FROM webhook_deliveries AS d
    USING old AS o
    WHERE d.org_id = o.org_id AND d.id = o.id
    RETURNING d.id
),
aged AS MATERIALIZED (
    SELECT t.org_id, t.id, t.events IS NOT NULL AS is_endpoint
    FROM webhook_targets AS t
    WHERE t.used_at <= now() - $2::double precision * interval '1 second'
    ORDER BY t.used_at
    LIMIT $3::integer
    FOR UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT a.org_id, a.id,
           a.is_endpoint
           OR EXISTS (
               SELECT FROM webhook_deliveries AS d WHERE d.org_id = a.org_id AND d.target_id = a.id
           )
           OR EXISTS (
               SELECT FROM job_webhooks AS w WHERE w.org_id = a.org_id AND w.target_id = a.id
           )
           OR EXISTS (
               SELECT FROM runs AS r WHERE r.org_id = a.org_id AND r.webhook_target = a.id
           ) AS wanted
    FROM aged AS a
),
kept AS (
    UPDATE webhook_targets AS t
    SET used_at = now()
    FROM judged AS j
    WHERE j.wanted AND t.org_id = j.org_id AND t.id = j.id
),
targets_gone AS (
    DELETE FROM webhook_targets AS t
    USING judged AS j
    WHERE NOT j.wanted AND t.org_id = j.org_id AND t.id = j.id
)
SELECT (SELECT count(*) FROM deliveries_gone)::integer AS deliveries,
       (SELECT count(*) FROM judged)::integer AS targets
