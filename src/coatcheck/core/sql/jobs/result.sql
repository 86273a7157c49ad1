-- The whole result of a job that has completed.
--
-- $1 org   $2 id
SELECT j.result
FROM jobs AS j
WHERE j.org_id = $1 AND j.id = $2 AND j.result IS NOT NULL
