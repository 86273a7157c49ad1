-- retrying -> queued, for the job of the run's next part. It found other parts before it, and waits
-- with growing delays: so any number of waiting parts costs few attempts. No webhook is written: it is
-- an internal job.
--
-- $1 org   $2 run
UPDATE jobs AS j
SET state = 'queued', run_at = now(), updated_at = now()
FROM (
    SELECT p.org_id, p.ingest_job
    FROM batch_parts AS p
    WHERE p.org_id = $1 AND p.run_id = $2 AND p.state = 'pending' AND p.state <> 'done'
    ORDER BY p.position
    LIMIT 1
) AS following
WHERE j.org_id = following.org_id AND j.id = following.ingest_job AND j.state = 'retrying'
RETURNING j.id
