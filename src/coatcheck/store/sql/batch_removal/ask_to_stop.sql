-- dispatching, processing, finalizing -> cancel_requested, for tasks of a run that was cancelled.
-- Answers each with its holder, who is to be told. Webhooks tell of tasks' ends, and not of this.
--
-- $1 org   $2 run   $3 rows at most
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lease
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.run_id = $2
      AND j.state IN ('dispatching', 'processing', 'finalizing')
    LIMIT $3::integer
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs AS j
SET state = 'cancel_requested', updated_at = now()
FROM held AS h
WHERE j.org_id = h.org_id AND j.id = h.id AND j.lease = h.lease
RETURNING j.id, h.lease >> 40 AS boot
