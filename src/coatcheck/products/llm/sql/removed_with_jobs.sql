-- A part of core's maintenance/prune.sql: deletes the assignments of the jobs in `old`.
DELETE FROM llm_assignments AS a USING old AS o WHERE a.org_id = o.org_id AND a.job_id = o.id
