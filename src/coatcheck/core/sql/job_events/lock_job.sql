-- Wait until nobody adds to a job's events: a statement whose answer was lost may still run.
SELECT FROM jobs WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE
