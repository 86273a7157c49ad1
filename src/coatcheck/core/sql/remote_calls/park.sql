-- Park a job whose work a remote does: dispatching -> processing, under a lease of boot 0 that no worker
-- has. If it is being cancelled, its check is due at once. No row: the lease is lost, and the next
-- holder finds the same work by its token.
--
-- $1 org   $2 job   $3 lease   $4 the remote's id   $5 seconds until the first check
-- $6 seconds that the work may take, or NULL: as set by the claim
WITH held AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, nextval('parked_leases') AS parked
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2 AND j.lease = $3
    FOR UPDATE
),
parked AS (
    UPDATE jobs AS j
    SET state = CASE h.state WHEN 'dispatching' THEN 'processing' ELSE h.state END,
        lease = h.parked, execution_id = $4, updated_at = now(),
        started_at = coalesce(j.started_at, now()),
        run_deadline = coalesce(now() + $6::double precision * interval '1 second', j.run_deadline)
    FROM held AS h
    WHERE j.org_id = h.org_id AND j.id = h.id
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              j.run_id, j.webhook, NULL AS error_code, old.state AS previous, j.lease
),
waiting AS (
    UPDATE remote_calls AS c
    SET remote_id = $4, spawned_at = now(), lease = p.lease, looker = NULL,
        due_at = now() + CASE p.state
            WHEN 'cancel_requested' THEN 0 ELSE $5::double precision
        END * interval '1 second'
    FROM parked AS p
    WHERE c.org_id = p.org_id AND c.job_id = p.id
),
moved AS (
    SELECT p.* FROM parked AS p WHERE p.state <> p.previous
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT p.state::text AS state FROM parked AS p
