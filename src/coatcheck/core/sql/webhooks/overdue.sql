-- For how many seconds the oldest due delivery has been due, or NULL if none is. Deliveries that cannot
-- be posted are left out: to receivers that are paused, pulled, or have a Retry-After. Reads the first
-- thousand that are due.
SELECT extract(epoch FROM clock_timestamp() - min(d.due_at))::double precision
FROM (
    SELECT w.org_id, w.target_id, w.due_at
    FROM webhook_deliveries AS w
    WHERE w.status = 'pending' AND w.due_at <= now()
    ORDER BY w.due_at
    LIMIT 1000
) AS d
JOIN webhook_targets AS t ON t.org_id = d.org_id AND t.id = d.target_id
WHERE t.paused_at IS NULL AND t.disabled_at IS NULL AND NOT t.pulled
  AND (t.not_before IS NULL OR t.not_before <= now())
