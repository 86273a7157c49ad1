-- Delete an endpoint: it gets no more deliveries, and end_disabled.sql ends the pending ones. Its row
-- stays for as long as the log refers to it.   $1 org   $2 id
UPDATE webhook_targets AS t
SET events = NULL, disabled_at = coalesce(t.disabled_at, now()), deleted_at = now(), used_at = now()
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
RETURNING t.id
