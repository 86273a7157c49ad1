-- The blob keys of the tasks' artifacts.
--
-- $1 org   $2 ids
SELECT a.blob_key
FROM unnest($2::uuid[]) AS t (id)
JOIN artifacts AS a ON a.org_id = $1 AND a.job_id = t.id
