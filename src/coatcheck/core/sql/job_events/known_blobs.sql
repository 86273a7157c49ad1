-- Which of these blobs belong to an artifact. The others are orphans.
SELECT a.blob_key
FROM unnest($1::uuid[], $2::text[]) AS b (job_id, blob_key)
JOIN artifacts AS a ON a.job_id = b.job_id AND a.blob_key = b.blob_key
