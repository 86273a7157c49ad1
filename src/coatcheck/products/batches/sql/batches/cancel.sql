-- Request the cancellation of a run, and close it. Maintenance cancels its waiting tasks in small
-- steps. A repeat changes nothing.
UPDATE runs
SET cancel_requested_at = coalesce(cancel_requested_at, now()),
    closed_at = coalesce(closed_at, now())
WHERE org_id = $1 AND id = $2
