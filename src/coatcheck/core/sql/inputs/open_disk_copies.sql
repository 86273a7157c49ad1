-- The copies on one machine's disks that nobody has said to be gone. $1 its name and a slash
SELECT c.org_id, c.job_id, c.place
FROM input_copies AS c
WHERE c.layer = 'disk' AND c.deleted_at IS NULL AND starts_with(c.place, $1::text)
