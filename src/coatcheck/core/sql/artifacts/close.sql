-- Record that these blobs are deleted. Not fenced: any process that deleted a blob may record it, and
-- the first record counts.
UPDATE artifact_records AS r
SET deleted_at = now()
FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS gone (org_id, job_id, seq)
WHERE r.org_id = gone.org_id AND r.job_id = gone.job_id AND r.seq = gone.seq AND r.deleted_at IS NULL
