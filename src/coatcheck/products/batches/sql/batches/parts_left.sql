-- Whether some of a run's parts wait for their ingest, and whether the ingest of some failed.
--
-- A separate statement, after lock_run.sql: a statement that had to wait for the lock would still see
-- the parts as they were before it.   $1 org   $2 run
SELECT coalesce(bool_or(p.state = 'pending'), false) AS waiting,
       coalesce(bool_or(p.state = 'failed'), false) AS failed
FROM batch_parts AS p
WHERE p.org_id = $1 AND p.run_id = $2 AND p.state <> 'done'
