-- An endpoint is no more: nothing is noted for it from here on, and what waits is ended by
-- end_disabled.sql. Its row stays for as long as the log names it.   $1 org   $2 id
UPDATE webhook_targets AS t
SET events = NULL, disabled_at = coalesce(t.disabled_at, now()), deleted_at = now(), used_at = now()
WHERE t.org_id = $1 AND t.id = $2 AND t.events IS NOT NULL
RETURNING t.id
