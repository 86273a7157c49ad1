-- Delete pulled endpoints that nobody pulled from for $1 seconds, as delete_endpoint.sql does: their
-- reader has ended.
UPDATE webhook_targets AS t
SET events = NULL, disabled_at = coalesce(t.disabled_at, now()), deleted_at = now(), used_at = now()
WHERE t.pulled AND t.events IS NOT NULL
  AND coalesce(t.pulled_at, t.created_at) < now() - $1::double precision * interval '1 second'
RETURNING t.id
