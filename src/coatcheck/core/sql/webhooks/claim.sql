-- Claim due deliveries so that no receiver waits for another: after webhooks/lock_claims.sql.
--
-- From each target its oldest, up to its limit: $4 at a time, one while it fails, none while its
-- Retry-After lasts, it is paused, or it is pulled (pull.sql). A delivery is skipped while an earlier one
-- about the same subject has never been tried: so a receiver that works gets a job's changes in order.
-- An organisation has room for $3. Then in turns: every organisation's first, every organisation's
-- second, including its deliveries in flight. Those to failing targets get at most $2 of the places.
--
-- The targets are found by skipping through the index from one to the next, $8 of them at most; the
-- next claim continues after the last one, which a row without an id returns.
--
-- Leases start with the statement: the transaction may have waited long for its turn.
--
-- $1 places   $2 of them for targets that fail   $3 an organisation's   $4 a target's
-- $5 seconds that the lease lasts   $6, $7 org and target to start after   $8 targets at most
-- $9 lease
WITH RECURSIVE seen AS (
    (
        SELECT d.org_id, d.target_id, 1 AS nth
        FROM webhook_deliveries AS d
        WHERE d.status = 'pending' AND (d.org_id, d.target_id) > ($6::text, $7::uuid)
        ORDER BY d.org_id, d.target_id
        LIMIT 1
    )
    UNION ALL
    SELECT n.org_id, n.target_id, s.nth + 1
    FROM seen AS s
    CROSS JOIN LATERAL (
        SELECT d.org_id, d.target_id
        FROM webhook_deliveries AS d
        WHERE d.status = 'pending' AND (d.org_id, d.target_id) > (s.org_id, s.target_id)
        ORDER BY d.org_id, d.target_id
        LIMIT 1
    ) AS n
    WHERE s.nth < $8::integer
),
under_way AS MATERIALIZED (
    SELECT d.org_id, d.target_id
    FROM webhook_deliveries AS d
    WHERE d.lease IS NOT NULL AND d.due_at > now()
),
ready AS MATERIALIZED (
    SELECT s.org_id, d.id, d.due_at, d.nth, t.url, t.failures > 0 AS failing,
           t.events IS NOT NULL AS to_endpoint, t.generation, t.rotated_at
    FROM seen AS s
    JOIN webhook_targets AS t ON t.org_id = s.org_id AND t.id = s.target_id
    CROSS JOIN LATERAL (
        SELECT w.id, w.due_at, row_number() OVER (ORDER BY w.due_at, w.id) AS nth
        FROM webhook_deliveries AS w
        WHERE w.status = 'pending' AND w.org_id = s.org_id AND w.target_id = s.target_id
          AND w.due_at <= now()
          AND NOT EXISTS (
              SELECT
              FROM webhook_deliveries AS e
              WHERE e.status = 'pending' AND e.tries = 0 AND e.org_id = w.org_id
                AND e.target_id = w.target_id AND e.subject_id = w.subject_id AND e.id < w.id
          )
        ORDER BY w.due_at, w.id
        LIMIT greatest(
            0,
            CASE WHEN t.failures > 0 THEN 1 ELSE $4::integer END
            - (
                SELECT count(*)
                FROM under_way AS u
                WHERE u.org_id = s.org_id AND u.target_id = s.target_id
            )
        )
    ) AS d
    WHERE t.disabled_at IS NULL AND (t.not_before IS NULL OR t.not_before <= now())
      AND t.paused_at IS NULL AND NOT t.pulled
),
in_turn AS MATERIALIZED (
    SELECT r.*, row_number() OVER (PARTITION BY r.org_id ORDER BY r.nth, r.due_at, r.id)
                + (SELECT count(*) FROM under_way AS u WHERE u.org_id = r.org_id) AS turn
    FROM ready AS r
),
ranked AS MATERIALIZED (
    SELECT i.*, row_number() OVER (PARTITION BY i.failing ORDER BY i.turn, i.due_at, i.id) AS place
    FROM in_turn AS i
    WHERE i.turn <= $3::integer
),
chosen AS MATERIALIZED (
    SELECT r.org_id, r.id, r.url, r.failing, r.to_endpoint, r.generation, r.rotated_at
    FROM ranked AS r
    WHERE NOT r.failing OR r.place <= $2::integer
    ORDER BY r.turn, r.due_at, r.id
    LIMIT $1::integer
),
claimed AS (
    UPDATE webhook_deliveries AS d
    SET lease = $9::uuid,
        due_at = statement_timestamp() + $5::double precision * interval '1 second'
    FROM chosen AS c
    WHERE d.org_id = c.org_id AND d.id = c.id AND d.status = 'pending' AND d.due_at <= now()
    RETURNING d.org_id, d.id, d.target_id, c.url, d.subject_kind, d.subject_id, d.run_id, d.event,
              d.facts::text AS facts, d.tries, d.created_at, d.last_try_at, c.failing, c.to_endpoint,
              c.generation AS own_generation, c.rotated_at AS own_rotated_at
)
SELECT c.org_id, c.id, c.target_id, c.url, c.subject_kind, c.subject_id, c.run_id, c.event, c.facts,
       c.tries, c.created_at, c.failing, c.to_endpoint,
       CASE WHEN c.to_endpoint THEN c.own_generation ELSE coalesce(k.generation, 1) END AS generation,
       CASE WHEN c.to_endpoint THEN c.own_rotated_at ELSE k.rotated_at END AS rotated_at,
       clock_timestamp() AS claimed_at,
       (
           SELECT j.traceparent
           FROM jobs AS j
           WHERE c.subject_kind = 'job' AND j.org_id = c.org_id AND j.id = c.subject_id
       ) AS traceparent,
       c.last_try_at IS NULL AS is_first_try
FROM claimed AS c
LEFT JOIN webhook_secrets AS k ON k.org_id = c.org_id
UNION ALL
SELECT l.org_id, NULL, l.target_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL
FROM (SELECT s.org_id, s.target_id FROM seen AS s WHERE s.nth = $8::integer) AS l
