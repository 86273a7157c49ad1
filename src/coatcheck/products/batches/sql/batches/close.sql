-- Take no more tasks into a run. A repeat changes nothing.
UPDATE runs SET closed_at = coalesce(closed_at, now()) WHERE org_id = $1 AND id = $2
