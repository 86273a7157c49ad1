-- The targets that jobs were assigned to last, and whether the jobs are still held there.
--
-- $1 organisations, $2 ids
SELECT a.org_id, a.job_id, a.target, a.loading, j.lease IS NOT DISTINCT FROM a.lease AS current
FROM unnest($1::text[], $2::uuid[]) AS w (org_id, id)
JOIN llm_assignments AS a ON a.org_id = w.org_id AND a.job_id = w.id
JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.job_id
