-- Send deliveries again that were created within a range and have one of these statuses, oldest first,
-- as replay.sql does with one. Of pending ones: those that have failed and wait for a retry, not those
-- that were never tried or are being posted. Returns their ids; the next call continues after the last.
--
-- $1 org   $2 endpoint, or NULL for all targets   $3 from this id on   $4 before this id, or NULL
-- $5 statuses   $6 rows at most
WITH target AS MATERIALIZED (
    SELECT d.org_id, d.id, d.target_id
    FROM webhook_deliveries AS d
    JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
    WHERE d.org_id = $1 AND ($2::uuid IS NULL OR d.target_id = $2)
      AND d.id >= $3::uuid AND ($4::uuid IS NULL OR d.id < $4)
      AND d.status = ANY ($5::text[]) AND t.deleted_at IS NULL
      AND (
          d.status <> 'pending'
          OR d.tries > 0 AND (d.lease IS NULL OR d.due_at <= now())
      )
    ORDER BY d.id
    LIMIT $6::integer
    FOR UPDATE OF d SKIP LOCKED
),
again AS (
    UPDATE webhook_deliveries AS d
    SET status = 'pending', tries = 0, lease = NULL, due_at = now(), ended_at = NULL
    FROM target AS t
    WHERE d.org_id = t.org_id AND d.id = t.id
    RETURNING d.id
),
wanted AS MATERIALIZED (
    SELECT t.org_id, t.id
    FROM webhook_targets AS t
    WHERE t.org_id = $1 AND t.disabled_at IS NOT NULL AND t.deleted_at IS NULL
      AND t.id IN (SELECT r.target_id FROM target AS r)
    ORDER BY t.org_id, t.id
    FOR NO KEY UPDATE
),
enabled AS (
    UPDATE webhook_targets AS t
    SET disabled_at = NULL, used_at = now()
    FROM wanted AS w
    WHERE t.org_id = w.org_id AND t.id = w.id
)
SELECT a.id FROM again AS a ORDER BY a.id
