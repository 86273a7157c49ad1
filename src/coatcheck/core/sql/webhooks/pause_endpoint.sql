-- Pause an endpoint: its deliveries are written, and wait.   $1 org   $2 id
UPDATE webhook_targets AS t
SET paused_at = coalesce(t.paused_at, now())
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns.sql */
