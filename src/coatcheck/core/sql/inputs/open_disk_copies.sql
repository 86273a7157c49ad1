-- The copies on one machine's disks that are not recorded as deleted. $1 its name and a slash
SELECT c.org_id, c.job_id, c.place
FROM input_copies AS c
WHERE c.layer = 'disk' AND c.deleted_at IS NULL AND starts_with(c.place, $1::text)
