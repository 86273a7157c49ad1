-- Record that copies on disks are deleted. Not fenced: any process that removed a folder may record it,
-- and the first record counts.
UPDATE input_copies AS c
SET deleted_at = now(), mechanism = $4::text
FROM unnest($1::text[], $2::uuid[], $3::text[]) AS gone (org_id, job_id, place)
WHERE c.org_id = gone.org_id AND c.job_id = gone.job_id AND c.layer = 'disk'
  AND c.place = gone.place AND c.deleted_at IS NULL
