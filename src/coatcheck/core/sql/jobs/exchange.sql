-- Complete jobs and claim new ones: one statement, one round trip, one commit.
--
-- Transitions: held -> completed, queued -> dispatching.
-- Merged to save a round trip and a commit per round; docs/adr/0004 has the gain.
--
-- Complete. Fenced by the lease alone: it is NULL unless the job is held, and new for every
-- claim. Naming the state as well would make the planner leave the primary key.
--
-- Claim. Each flow gives as many jobs as ready_flows.sql allots to it; the rows are locked in one
-- MATERIALIZED CTE, because a LIMIT inside an IN subquery may be re-run and claim too many.
-- Flows under a concurrency limit are left to claim_limited.sql. The update finds the rows by ctid:
-- this very statement has locked them, so they cannot move. A claim that began, and was planned,
-- while a job was being created sees it, yet has the earlier now().
--
-- $1 lanes, $2 room in each   $3 endpoints, $4 timeout of each   $5 lease
-- $6 the organisation that each lane's scan starts after   $7 where those with several flows continue
-- $8 organisations that hold a slot, for a lane that has room for others only
-- $9 organisations, and flows, to look at in a lane, at most   $10 false
-- $11-$16 completed: org, id, lease, result, seconds since start, bytes of its payload
-- $17 seconds to keep by default
--
-- Returns rows of three kinds: claimed jobs, accepted completions (only org_id and id set), and
-- where the next claim continues (no id).
WITH RECURSIVE /* include jobs/ready_flows.sql */,
picked AS MATERIALIZED (
    SELECT ready.tid, l.org_rank::integer AS rank
    FROM listed AS l
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid
        FROM jobs AS j
        WHERE j.state = 'queued' AND j.lane = l.lane AND j.endpoint = l.endpoint
          AND j.org_id = l.org_id AND j.flow = l.flow
        ORDER BY j.run_at, j.id
        LIMIT l.quota
        FOR UPDATE SKIP LOCKED
    ) AS ready
    WHERE l.quota > 0
),
changed AS (
    UPDATE jobs AS j
    SET state = 'completed', lease = NULL, result = c.result,
        payload = CASE WHEN j.run_id IS NOT NULL THEN j.payload END,
        error_code = NULL, error_message = NULL, run_deadline = NULL,
        started_at = coalesce(j.started_at, now() - c.ran_seconds * interval '1 second'),
        run_seconds = j.run_seconds + c.ran_seconds,
        finished_at = now(), updated_at = now(),
        expires_at = CASE
            WHEN j.run_id IS NOT NULL THEN 'infinity'
            ELSE now() + coalesce(j.keep_completed_seconds, $17::integer) * interval '1 second'
        END
    FROM unnest(
        $11::text[], $12::uuid[], $13::bigint[], $14::bytea[], $15::double precision[],
        $16::integer[]
    ) AS c (org_id, id, lease, result, ran_seconds, payload_bytes)
    WHERE j.org_id = c.org_id AND j.id = c.id AND j.lease = c.lease
    RETURNING j.org_id, j.id, j.state, j.endpoint, j.flow, j.failures + j.crashes + 1 AS attempts,
              c.payload_bytes, octet_length(c.result) AS result_bytes, j.run_seconds,
              j.run_id, j.webhook, NULL AS error_code, NULL AS error_message,
              old.state AS previous
),
metered AS (
    /* include usage/meter.sql */
),
claimed AS (
    UPDATE jobs AS j
    SET state = 'dispatching', lease = $5::bigint, updated_at = now(),
        dispatched_at = greatest(now(), j.created_at),
        run_deadline = now() + coalesce(
            j.timeout_seconds,
            (SELECT s.timeout FROM served AS s WHERE s.endpoint = j.endpoint)
        ) * interval '1 second'
    FROM picked AS p
    WHERE j.ctid = p.tid
    RETURNING j.org_id, j.id, j.lane::text AS lane, j.endpoint, j.flow, j.payload,
              j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables,
              j.timeout_seconds, j.request_id, j.traceparent, p.rank, j.run_id, j.webhook,
              date_part('epoch', now() - greatest(j.run_at, j.created_at))::real AS waited
),
moved AS (
    SELECT c.org_id, c.id, c.state, c.previous, c.endpoint, c.flow, c.attempts, c.run_id, c.webhook,
           c.error_code
    FROM changed AS c
    UNION ALL
    SELECT c.org_id, c.id, 'dispatching', 'queued', c.endpoint, c.flow, c.attempt, c.run_id,
           c.webhook, NULL
    FROM claimed AS c
),
notified AS (
    /* include webhooks/write_deliveries_from_moved.sql */
)
SELECT c.org_id, c.id, c.lane, c.endpoint, c.flow, c.payload, c.attempt, c.failures, c.unreachables,
       c.timeout_seconds, c.request_id, c.rank, c.traceparent, c.waited
FROM claimed AS c
UNION ALL
SELECT c.org_id, c.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM changed AS c
UNION ALL
SELECT e.org_id, NULL, e.lane::text, e.endpoint, e.flow, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL
FROM ended AS e
