-- Win the right to store a remote's result: processing -> finalizing, or take over from a process that
-- fell silent there, with a new lease. Of all that saw the same lease, one wins; a job that is being
-- cancelled cannot be finalized. Returns the new lease.
--
-- $1 org   $2 job   $3 lease   $4 the claimant   $5 seconds that it is held for
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, nextval('parked_leases') AS fresh
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3 AND j.state IN ('processing', 'finalizing')
    FOR UPDATE
),
changed AS (
    UPDATE jobs AS j
    SET state = 'finalizing', lease = h.fresh, updated_at = now()
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease
),
mine AS (
    UPDATE remote_calls AS c
    SET lease = n.lease, looker = $4::uuid,
        due_at = now() + $5::double precision * interval '1 second'
    FROM changed AS n
    WHERE c.org_id = n.org_id AND c.job_id = n.id
),
moved AS (
    SELECT c.* FROM changed AS c WHERE c.previous <> 'finalizing'
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT c.lease FROM changed AS c
