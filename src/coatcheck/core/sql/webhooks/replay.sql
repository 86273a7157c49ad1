-- Send a delivery again: at once, under its id, with the whole retry schedule. One that is being posted
-- right now, or is to a deleted endpoint, is left as it is. A target that had answered 410 is enabled
-- again, unless it was deleted meanwhile.
--
-- $1 org   $2 id
WITH target AS MATERIALIZED (
    SELECT t.org_id, t.id
    FROM webhook_deliveries AS d
    JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
    WHERE d.org_id = $1 AND d.id = $2 AND t.deleted_at IS NULL
),
again AS (
    UPDATE webhook_deliveries AS d
    SET status = 'pending', tries = 0, lease = NULL, due_at = now(), ended_at = NULL
    FROM target AS t
    WHERE d.org_id = $1 AND d.id = $2 AND (d.lease IS NULL OR d.due_at <= now())
    RETURNING d.org_id, d.target_id
)
UPDATE webhook_targets AS t
SET disabled_at = NULL, used_at = now()
FROM again AS a
WHERE t.org_id = a.org_id AND t.id = a.target_id AND t.deleted_at IS NULL
