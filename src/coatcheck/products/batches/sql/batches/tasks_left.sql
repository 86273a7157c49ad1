-- Whether a run has tasks that have not ended, by its row and the deltas that were not summed up yet.
--
-- $1 org   $2 run
SELECT r.tasks > r.succeeded + r.failed + r.cancelled + coalesce((
           SELECT sum(d.completed + d.failed + d.cancelled)
           FROM usage_deltas AS d
           WHERE d.org_id = r.org_id AND d.run_id = r.id
       ), 0) AS some
FROM runs AS r
WHERE r.org_id = $1 AND r.id = $2
