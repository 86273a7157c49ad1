-- Resume an endpoint, whether it was paused or answered 410. Its waiting deliveries are due; those that
-- ended because of the 410 can be sent again.   $1 org   $2 id
UPDATE webhook_targets AS t
SET paused_at = NULL, disabled_at = NULL, not_before = NULL, failures = 0
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
RETURNING /* include webhooks/endpoint_columns.sql */
