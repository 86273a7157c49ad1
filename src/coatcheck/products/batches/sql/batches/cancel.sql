-- Ask for a run's end: it takes no more tasks. Its waiting tasks are cancelled in small steps by
-- upkeep. A repeat changes nothing.
UPDATE runs
SET cancel_requested_at = coalesce(cancel_requested_at, now()),
    closed_at = coalesce(closed_at, now())
WHERE org_id = $1 AND id = $2
