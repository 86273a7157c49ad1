-- The artifacts of a job.
SELECT name, blob_key, media_type, bytes, sha256, created_at
FROM artifacts
WHERE org_id = $1 AND job_id = $2
ORDER BY name
