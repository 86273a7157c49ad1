-- The conditions that apply to one job now, a row for each: those of stall.sql, with names and numbers,
-- and without waiting until they last too long.
--
--   kind     name            number            of                since          until
--   limit    its name        jobs held         jobs allowed
--   rate     a flow, or ''   starts per second                                  when it is back in step
--   server                   slots             jobs in them      last seen
--   threads                  threads held
--   share                    slots it holds    slots reserved for others
--   holder   the worker      its lease seconds                   last seen
--   remote                   faults in a row   polls             spawned        the next poll
--
-- `scope` is the scope of a limit; `is_shared`: other organisations' jobs count as well. `is_fit`: a
-- server was seen in time, a holder recently; of a share, some server has a slot for the organisation.
-- Servers form two groups: those that are fit, and those that are not. Threads are listed only if no
-- server has a free one for the job.
--
-- $1 org   $2 id
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease
    FROM jobs AS j
    WHERE j.org_id = $1 AND j.id = $2
),
serving AS MATERIALIZED (
    SELECT w.boot, w.name, w.endpoints, w.lanes, w.slots, w.reserved, w.threads_held,
           now() - w.last_seen_at AS silent_for,
           w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    FROM workers AS w
    WHERE w.died_at IS NULL
),
held AS MATERIALIZED (
    SELECT j.endpoint, j.org_id, j.flow, count(*) AS jobs
    FROM jobs AS j
    WHERE j.lease IS NOT NULL
    GROUP BY j.endpoint, j.org_id, j.flow
)
SELECT 'limit' AS kind, l.scope, l.name, l.held::double precision AS number,
       l.held_max::double precision AS "of", NULL::timestamptz AS since,
       NULL::timestamptz AS until, l.limit_org = '*' AS is_shared, l.held < l.held_max AS is_fit
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/limits_on.sql */) AS l
WHERE a.lease IS NULL
UNION ALL
SELECT 'rate', NULL, r.flow, r.per_second, NULL, NULL, r.in_step_at, false, false
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/rates_on.sql */) AS r
WHERE a.lease IS NULL
UNION ALL
SELECT 'server', NULL, NULL, CASE WHEN count(s.slots) = count(*) THEN sum(s.slots) END, sum(
           (
               SELECT count(*) FROM jobs AS j
               WHERE j.lease IS NOT NULL AND j.lease >> 40 = s.boot AND j.lane = a.lane
           )
       ), max(now() - s.silent_for), NULL, true, s.is_alive
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by.sql */) AS s
WHERE a.lease IS NULL
GROUP BY s.is_alive
UNION ALL
SELECT 'threads', NULL, NULL, sum(s.threads_held), NULL, NULL, NULL, true, false
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by.sql */) AS s
WHERE a.lease IS NULL AND s.is_alive
HAVING count(*) > 0 AND count(*) = count(s.threads_held)
UNION ALL
SELECT 'share', NULL, NULL, sum(u.own), sum(s.reserved), NULL, NULL, true,
       bool_or(u.held < s.slots - CASE WHEN u.own > 0 THEN s.reserved ELSE 0 END)
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/served_by.sql */) AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS held, count(*) FILTER (WHERE j.org_id = a.org_id) AS own
    FROM jobs AS j
    WHERE j.lease IS NOT NULL AND j.lease >> 40 = s.boot AND j.lane = a.lane
) AS u
WHERE a.lease IS NULL AND s.is_alive AND (/* include limits/shared.sql */)
HAVING sum(s.reserved) > 0
UNION ALL
SELECT 'holder', NULL, h.name, h.lease_seconds, NULL, now() - h.silent_for, NULL, true, h.is_heard
FROM asked AS a
CROSS JOIN LATERAL (/* include jobs/held_by.sql */) AS h
WHERE a.lease >> 40 > 0
UNION ALL
SELECT 'remote', NULL, NULL, r.faults, r.polls, r.spawned_at, r.due_at, false, r.faults = 0
FROM asked AS a
JOIN remote_calls AS r ON r.org_id = a.org_id AND r.job_id = a.id
WHERE a.lease >> 40 = 0
