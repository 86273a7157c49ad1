-- The blobs of these jobs' inputs that are not deleted yet.
SELECT c.org_id, c.job_id, c.place
FROM unnest($1::text[], $2::uuid[]) AS ended (org_id, job_id)
JOIN input_copies AS c ON c.org_id = ended.org_id AND c.job_id = ended.job_id
WHERE c.layer = 'blob' AND c.deleted_at IS NULL
