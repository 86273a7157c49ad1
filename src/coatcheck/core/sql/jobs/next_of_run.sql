-- A task that represents a run's unfinished ones: the first queued one, else one that waits for a retry,
-- else one that runs. Each is found by an index of its own; no row if all have ended.
--
-- $1 org   $2 run
SELECT n.id
FROM (
    (
        SELECT 1 AS rank, j.id
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.org_id = $1 AND j.run_id = $2
          AND j.lane = (SELECT r.lane FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
          AND j.endpoint = (SELECT r.endpoint FROM runs AS r WHERE r.org_id = $1 AND r.id = $2)
          AND j.flow >= replace($2::uuid::text, '-', '')
          AND j.flow < replace($2::uuid::text, '-', '') || '0'
        ORDER BY j.flow, j.run_at, j.id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 2, j.id
        FROM jobs AS j
        WHERE j.org_id = $1 AND j.run_id = $2 AND j.state IN ('staged', 'retrying')
        ORDER BY j.task_index
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 3, j.id
        FROM jobs AS j
        WHERE j.org_id = $1 AND j.run_id = $2
          AND j.state IN ('dispatching', 'processing', 'finalizing', 'cancel_requested')
        LIMIT 1
    )
) AS n
ORDER BY n.rank
LIMIT 1
