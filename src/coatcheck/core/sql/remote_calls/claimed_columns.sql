-- The columns of a claimed call: included by claim_due.sql and claim_one.sql, from their `taken`, which
-- has the call's columns. A call whose job has another lease is over.
SELECT t.org_id, t.job_id, t.endpoint, t.pace_key, t.destination, t.remote_id, t.spawn, t.lease, t.polls,
       t.faults, j.state::text AS state, j.lease IS NOT DISTINCT FROM t.lease AS is_held,
       coalesce(j.run_deadline <= now(), false) AS is_overdue, j.owner, j.lane::text AS lane, j.flow,
       j.failures + j.crashes + 1 AS attempt, j.failures, j.unreachables, j.request_id,
       coalesce(octet_length(j.payload), 0) AS payload_bytes,
       extract(epoch FROM now() - t.spawned_at)::double precision AS spawned_seconds,
       extract(epoch FROM now() - coalesce(j.started_at, t.spawned_at))::double precision
           AS ran_seconds,
       p.usual_seconds, p.spread_seconds
FROM taken AS t
LEFT JOIN jobs AS j ON j.org_id = t.org_id AND j.id = t.job_id
LEFT JOIN remote_paces AS p ON p.org_id = t.org_id AND p.pace_key = t.pace_key
