-- Close a run, so that it accepts no more tasks. A repeat changes nothing.
UPDATE runs SET closed_at = coalesce(closed_at, now()) WHERE org_id = $1 AND id = $2
