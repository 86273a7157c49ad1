-- A part of core's maintenance/prune.sql: deletes the generations of the jobs in `old`.
DELETE FROM generations AS g USING old AS o WHERE g.org_id = o.org_id AND g.job_id = o.id
