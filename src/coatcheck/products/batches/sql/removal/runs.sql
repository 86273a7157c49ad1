-- The runs of a batch that is being removed: how many tasks each still has, and whether it is quiet. In
-- a quiet run nothing waits, runs or is being ingested, and that cannot change any more.
--
-- $1 org   $2 batch
SELECT r.id, r.tasks,
       r.latched_at IS NOT NULL
       AND NOT EXISTS (
           SELECT FROM jobs AS j
           WHERE j.org_id = r.org_id AND j.run_id = r.id
             AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
       )
       AND NOT EXISTS (
           SELECT FROM jobs AS j
           WHERE j.org_id = r.org_id AND j.run_id = r.id AND j.state IN ('staged', 'retrying')
       )
       AND NOT EXISTS (
           SELECT FROM jobs AS j
           WHERE j.state = 'queued' AND j.lane = b.lane AND j.endpoint = b.endpoint
             AND j.org_id = r.org_id AND j.flow >= replace(r.id::text, '-', '')
             AND j.flow < replace(r.id::text, '-', '') || '0'
       ) AS is_quiet
FROM batches AS b
JOIN runs AS r ON r.org_id = b.org_id AND r.group_id = b.id
WHERE b.org_id = $1 AND b.id = $2
ORDER BY r.number
