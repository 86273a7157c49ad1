-- Record that work is about to be spawned, before it is: fenced by the lease of the spawning worker.
-- Returns the number of the spawn, and how often it was begun; beyond the first time it may have been
-- made already.
--
-- Repeated under one lease, after a lost answer, it counts once. A row with a remote's id belongs to an
-- earlier spawn, which is over: a job comes back to a worker only once that is known. No row: the lease
-- is lost.
--
-- $1 org   $2 job   $3 lease   $4 endpoint   $5 pace key   $6 destination
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3
    FOR NO KEY UPDATE
)
INSERT INTO remote_calls AS c (org_id, job_id, begun_by, endpoint, pace_key, destination)
SELECT h.org_id, h.id, $3, $4, $5, $6::bytea FROM held AS h
ON CONFLICT (org_id, job_id) DO UPDATE
SET spawn = c.spawn + (c.remote_id IS NOT NULL)::integer,
    tries = CASE
        WHEN c.remote_id IS NOT NULL THEN 1
        WHEN c.begun_by = excluded.begun_by THEN c.tries
        ELSE least(c.tries + 1, 32767)
    END,
    begun_by = excluded.begun_by,
    told_id = CASE WHEN c.remote_id IS NULL THEN c.told_id END,
    pace_key = excluded.pace_key, destination = excluded.destination, begun_at = now(),
    spawned_at = NULL, remote_id = NULL, lease = NULL, due_at = NULL, looker = NULL,
    looked_at = NULL, polls = 0, faults = 0
RETURNING c.spawn, c.tries, c.told_id
