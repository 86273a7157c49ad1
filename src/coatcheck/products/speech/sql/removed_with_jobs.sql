-- A part of upkeep/prune.sql: what goes with the jobs in `old`.
DELETE FROM generations AS g USING old AS o WHERE g.org_id = o.org_id AND g.job_id = o.id
