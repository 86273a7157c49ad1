-- End pending deliveries to receivers that answered 410 and to deleted endpoints. They stay in the log;
-- those to the former can be sent again.
--
-- $1 rows at most
WITH unwanted AS MATERIALIZED (
    SELECT d.org_id, d.id, t.deleted_at IS NOT NULL AS is_deleted
    FROM webhook_targets AS t
    CROSS JOIN LATERAL (
        SELECT w.org_id, w.id
        FROM webhook_deliveries AS w
        WHERE w.status = 'pending' AND w.org_id = t.org_id AND w.target_id = t.id
          AND (w.lease IS NULL OR w.due_at <= now())
        LIMIT $1::integer
    ) AS d
    WHERE t.disabled_at IS NOT NULL
    LIMIT $1::integer
)
UPDATE webhook_deliveries AS d
SET status = 'disabled', lease = NULL, due_at = NULL, ended_at = now(),
    last_error = CASE
        WHEN u.is_deleted THEN 'the endpoint was deleted'
        ELSE coalesce(d.last_error, 'the receiver answered 410 before')
    END
FROM unwanted AS u
WHERE d.org_id = u.org_id AND d.id = u.id AND d.status = 'pending'
  AND (d.lease IS NULL OR d.due_at <= now())
RETURNING d.id
