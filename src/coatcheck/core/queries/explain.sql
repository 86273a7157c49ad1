-- name: explain
-- The conditions that apply to one job now, a row for each: those of stall, with names and numbers,
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
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job
),
serving AS MATERIALIZED (
    SELECT w.boot, w.name, w.endpoints, w.lanes, w.slots, w.reserved, w.threads_held,
           now() - w.last_seen_at AS silent_for,
           w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    FROM workers AS w
    WHERE w.died_at IS NULL
),
held AS MATERIALIZED (
    SELECT h.endpoint, h.org_id, h.flow, count(*) AS jobs
    FROM held_jobs AS h
    WHERE h.boot >= 0
    GROUP BY h.endpoint, h.org_id, h.flow
)
SELECT 'limit' AS kind, l.scope, l.name, l.held::double precision AS number,
       l.held_max::double precision AS "of", NULL::timestamptz AS since,
       NULL::timestamptz AS until, l.limit_org = '*' AS is_shared, l.held < l.held_max AS is_fit
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/limits_on */) AS l
WHERE a.lease IS NULL
UNION ALL
SELECT 'rate', NULL, r.flow, r.per_second, NULL, NULL, r.in_step_at, false, false
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/rates_on */) AS r
WHERE a.lease IS NULL
UNION ALL
SELECT 'server', NULL, NULL, CASE WHEN count(s.slots) = count(*) THEN sum(s.slots) END, sum(
           (SELECT count(*) FROM held_jobs AS h WHERE h.boot = s.boot AND h.lane = a.lane)
       ), max(now() - s.silent_for), NULL, true, s.is_alive
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/served_by */) AS s
WHERE a.lease IS NULL
GROUP BY s.is_alive
UNION ALL
SELECT 'threads', NULL, NULL, sum(s.threads_held), NULL, NULL, NULL, true, false
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/served_by */) AS s
WHERE a.lease IS NULL AND s.is_alive
HAVING count(*) > 0 AND count(*) = count(s.threads_held)
UNION ALL
SELECT 'share', NULL, NULL, sum(u.own), sum(s.reserved), NULL, NULL, true,
       bool_or(u.held < s.slots - CASE WHEN u.own > 0 THEN s.reserved ELSE 0 END)
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/served_by */) AS s
CROSS JOIN LATERAL (
    SELECT count(*) AS held, count(*) FILTER (WHERE h.org_id = a.org_id) AS own
    FROM held_jobs AS h
    WHERE h.boot = s.boot AND h.lane = a.lane
) AS u
WHERE a.lease IS NULL AND s.is_alive AND (/* include limits/shared */)
HAVING sum(s.reserved) > 0
UNION ALL
SELECT 'holder', NULL, h.name, h.lease_seconds, NULL, now() - h.silent_for, NULL, true, h.is_heard
FROM asked AS a
CROSS JOIN LATERAL (/* include explain/held_by */) AS h
WHERE a.lease >> 40 > 0
UNION ALL
SELECT 'remote', NULL, NULL, r.faults, r.polls, r.spawned_at, r.due_at, false, r.faults = 0
FROM asked AS a
JOIN remote_calls AS r ON r.org_id = a.org_id AND r.job_id = a.id
WHERE a.lease >> 40 = 0

-- name: stall
-- Why jobs are stalled, for those that have been waiting or held for too long. Used for single jobs that
-- are old enough, never for a whole queue.
--
-- A job that only waits behind others is not stalled: a live worker serves it, no limit blocks it, and
-- its queue moves.
--
--   target_unreachable  its last attempt could not reach its target, or its remote does not answer
--   no_worker           no worker that was seen within the lane's time serves its endpoint and lane
--   threads_held        no worker that serves it has a free thread for it
--   concurrency_limit   a limit on its endpoint, org, flow or run is used up
--   rate_limit          its run, or its flow of it, has just used up its rate
--   heartbeat_lost      its holder has been silent for half of the lane's time, or has no row
--
-- A worker is judged by its own lease times. Held jobs are counted as claims/held counts them,
-- once, and only if a limit applies to any of the jobs.
--
-- :lane_seconds  how long a job of each may wait, in seconds
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease, j.unreachables,
           j.error_code, l.seconds * interval '1 second' AS stall_after,
           now() - j.created_at AS age,
           now() - greatest(j.run_at, j.updated_at) AS due_for
    FROM unnest(:orgs::text[], :ids::uuid[]) AS a (org_id, id)
    JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.id
    JOIN unnest(:lanes::text[], :lane_seconds::double precision[]) AS l (lane, seconds) ON l.lane = j.lane::text
),
serving AS MATERIALIZED (
    SELECT w.boot, w.name, w.endpoints, w.lanes, w.slots, w.reserved, w.threads_held,
           now() - w.last_seen_at AS silent_for,
           w.urgent_seconds, w.standard_seconds, w.bulk_seconds
    FROM workers AS w
    WHERE w.died_at IS NULL
),
held AS MATERIALIZED (
    SELECT h.endpoint, h.org_id, h.flow, count(*) AS jobs
    FROM held_jobs AS h
    WHERE h.boot >= 0
    GROUP BY h.endpoint, h.org_id, h.flow
)
SELECT a.org_id, a.id,
       CASE
           WHEN a.lease IS NOT NULL THEN CASE
               WHEN a.lease >> 40 = 0 THEN (
                   SELECT 'target_unreachable'
                   FROM remote_calls AS r
                   WHERE r.org_id = a.org_id AND r.job_id = a.id AND r.faults > 0
               )
               WHEN NOT EXISTS (
                   SELECT FROM (/* include explain/held_by */) AS holder WHERE holder.is_heard
               ) THEN 'heartbeat_lost'
           END
           WHEN a.state NOT IN ('staged', 'queued', 'retrying') THEN NULL
           WHEN a.age > a.stall_after AND a.unreachables > 0 AND a.error_code = 'target_unreachable'
               THEN 'target_unreachable'
           WHEN a.due_for <= a.stall_after THEN NULL
           WHEN NOT EXISTS (
               SELECT FROM (/* include explain/served_by */) AS server WHERE server.is_alive
           ) THEN 'no_worker'
           WHEN NOT EXISTS (
               SELECT FROM (/* include explain/served_by */) AS server
               WHERE server.is_alive AND server.threads_held IS NULL
           ) THEN 'threads_held'
           WHEN EXISTS (
               SELECT FROM (/* include explain/limits_on */) AS l WHERE l.held_max <= l.held
           ) THEN 'concurrency_limit'
           WHEN EXISTS (/* include explain/rates_on */) THEN 'rate_limit'
       END AS reason
FROM asked AS a

-- name: served_by
-- The workers that serve a job `a`, and whether each was seen within its lease time for the job's lane:
-- included by stall and explain, which give `serving`. `threads_held`: how many threads that
-- handlers do not release keep it from claiming the job.
SELECT w.boot, w.silent_for, w.slots[array_position(w.lanes, a.lane::text)] AS slots,
       w.reserved[array_position(w.lanes, a.lane::text)] AS reserved,
       w.silent_for <= interval '1 second' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_alive,
       (w.threads_held ->> a.endpoint)::integer AS threads_held
FROM serving AS w
WHERE a.endpoint = ANY (w.endpoints) AND a.lane::text = ANY (w.lanes)

-- name: held_by
-- The worker that holds a job `a`, and whether it was seen within half of its lease time for the job's
-- lane: included by stall and explain, which give `serving`.
SELECT w.boot, w.name, w.silent_for,
       w.silent_for <= interval '0.5 seconds' * CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS is_heard,
       CASE a.lane
           WHEN 'urgent' THEN w.urgent_seconds
           WHEN 'standard' THEN w.standard_seconds
           WHEN 'bulk' THEN w.bulk_seconds
       END AS lease_seconds
FROM serving AS w
WHERE w.boot = a.lease >> 40

-- name: limits_on
-- The concurrency limits that apply to a job `a`, and how many jobs each holds: included by stall
-- and explain, whose `held` counts as claims/held does. `held` is not read without a limit.
SELECT c.org_id AS limit_org, c.scope, c.name, c.held_max, (
           SELECT coalesce(sum(h.jobs), 0)::bigint
           FROM held AS h
           WHERE CASE c.scope
               WHEN 'org' THEN h.org_id = c.org_id
               WHEN 'flow' THEN h.org_id = c.org_id AND h.flow = c.name
               WHEN 'endpoint' THEN h.endpoint = c.name AND c.org_id IN ('*', h.org_id)
           END
       ) AS held
FROM (
    SELECT * FROM concurrency_limits WHERE org_id = a.org_id AND scope = 'org'
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = a.org_id AND scope = 'flow' AND name = a.flow
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = a.org_id AND scope = 'endpoint' AND name = a.endpoint
    UNION ALL
    SELECT * FROM concurrency_limits
    WHERE org_id = '*' AND scope = 'endpoint' AND name = a.endpoint
) AS c
UNION ALL
SELECT r.org_id, 'run', r.run, r.held_max, (
           SELECT coalesce(sum(h.jobs), 0)::bigint
           FROM held AS h
           WHERE h.org_id = r.org_id AND split_part(h.flow, '/', 1) = r.run
       )
FROM run_limits AS r
WHERE r.org_id = a.org_id AND r.run = split_part(a.flow, '/', 1) AND r.held_max IS NOT NULL

-- name: rates_on
-- The rates of its run that a job `a` has to wait for now, and until when: included by stall and
-- explain. That of the whole run has no flow.
SELECT t.flow, CASE t.flow WHEN '' THEN r.per_second ELSE r.key_per_second END AS per_second,
       t.in_step_at
FROM run_limits AS r
JOIN run_tokens AS t ON t.org_id = r.org_id AND t.run = r.run AND (
    t.flow = '' AND r.per_second IS NOT NULL
    OR t.flow = a.flow AND r.key_per_second IS NOT NULL
)
WHERE r.org_id = a.org_id AND r.run = split_part(a.flow, '/', 1)
  AND t.flow IN ('', a.flow) AND t.in_step_at > now()

-- name: ahead
-- How many jobs are ahead of a queued one in its flow, up to a bound, and how many flows of its
-- organisation have work for its endpoint in its lane, up to another: they take turns.
--
-- :jobs_max  jobs at most   :flows_max  flows at most
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.lane, j.endpoint, j.flow, j.run_at
    FROM jobs AS j
    WHERE j.org_id = :org AND j.id = :job AND j.state = 'queued'
),
lines AS (
    SELECT a.org_id, a.lane, a.endpoint, NULL::text COLLATE "C" AS flow, 0 AS nth
    FROM asked AS a
    UNION ALL
    SELECT l.org_id, l.lane, l.endpoint, n.flow, l.nth + 1
    FROM lines AS l
    CROSS JOIN LATERAL (
        SELECT q.flow
        FROM queue AS q
        WHERE q.lane = l.lane AND q.endpoint = l.endpoint
          AND q.org_id = l.org_id AND (q.flow > l.flow OR l.flow IS NULL)
        ORDER BY q.flow
        LIMIT 1
    ) AS n
    WHERE l.nth < :flows_max::integer
)
SELECT (
           SELECT least(coalesce(sum(before.jobs), 0), :jobs_max::integer)::bigint
           FROM (
               SELECT CASE WHEN (q.run_at, q.id) < (a.run_at, a.id) THEN cardinality(q.ids) ELSE (
                          SELECT count(*) FROM unnest(q.ids) AS n (id) WHERE n.id < a.id
                      ) END AS jobs
               FROM queue AS q
               WHERE q.lane = a.lane AND q.endpoint = a.endpoint
                 AND q.org_id = a.org_id AND q.flow = a.flow AND q.run_at <= a.run_at
               ORDER BY q.run_at, q.id
               LIMIT :jobs_max::integer
           ) AS before
       ) AS jobs,
       (SELECT max(l.nth) FROM lines AS l) AS flows
FROM asked AS a

-- name: holders
-- Some of the jobs that use up a limit, longest held first, and their owners.
--
-- :scope  scope: org, flow, endpoint, run, or lane for all held jobs of one
SELECT h.id, h.owner
FROM held_jobs AS h
WHERE h.org_id = :org AND CASE :scope::text
    WHEN 'org' THEN true
    WHEN 'flow' THEN h.flow = :name
    WHEN 'endpoint' THEN h.endpoint = :name
    WHEN 'run' THEN split_part(h.flow, '/', 1) = :name
    WHEN 'lane' THEN h.lane::text = :name
END
ORDER BY h.dispatched_at, h.id
LIMIT :rows_max::integer

-- name: held_of
-- How many jobs of some endpoints are held. Reads all held jobs of the deployment, which are at most as
-- many as there are slots.
SELECT count(*) AS jobs
FROM held_jobs AS h
WHERE h.boot >= 0 AND h.endpoint = ANY (:endpoints::text[])

-- name: next_of_run
-- A task that represents a run's unfinished ones: the first queued one, else one that waits for a retry,
-- else one that runs. Each is found by an index of its own; no row if all have ended.
SELECT n.id
FROM (
    (
        SELECT 1 AS rank, j.id
        FROM (
            SELECT q.org_id, unnest(q.ids) AS id
            FROM queue AS q
            WHERE q.org_id = :org
              AND q.lane = (SELECT r.lane FROM runs AS r WHERE r.org_id = :org AND r.id = :run)
              AND q.endpoint = (SELECT r.endpoint FROM runs AS r WHERE r.org_id = :org AND r.id = :run)
              AND q.flow >= replace(:run::uuid::text, '-', '')
              AND q.flow < replace(:run::uuid::text, '-', '') || '0'
            ORDER BY q.flow, q.run_at, q.id
        ) AS n
        /* include queue/job */
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 2, j.id
        FROM postponed AS p
        /* include postponed/job */
        WHERE p.org_id = :org AND p.run_id = :run
        ORDER BY p.task_index
        LIMIT 1
    )
    UNION ALL
    (
        SELECT 3, h.id FROM held_jobs AS h WHERE h.org_id = :org AND h.run_id = :run LIMIT 1
    )
) AS n
ORDER BY n.rank
LIMIT 1

-- name: recent_runs
-- How long the last completed jobs of a kind ran: of a service and an owner, newest first, those of the
-- endpoint among the first :rows_max. Walks jobs_listed from two places, since the newest may be a long
-- queue: from its end, and from the job that is first in line. Looks at so many jobs and no more.
--
-- :lane, :line  flow whose first to begin with   :flow  flow, or NULL for any   :rows_max  rows to take
-- :walked_max  rows to look at from each place
SELECT date_part('epoch', r.finished_at - r.started_at) AS seconds
FROM (
    SELECT DISTINCT ended.*
    FROM (
        SELECT :service::text AS service, hashtextextended(:service::text || :org, 0) AS service_hash
    ) AS wanted
    CROSS JOIN (
        SELECT 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid
        UNION ALL
        (
            SELECT q.ids[1]
            FROM queue AS q
            WHERE q.lane = :lane::text::job_lane AND q.endpoint = :endpoint AND q.org_id = :org
              AND q.flow = :line
            ORDER BY q.run_at, q.id
            LIMIT 1
        )
    ) AS place (before)
    CROSS JOIN LATERAL (
        SELECT walked.id, walked.endpoint, walked.flow, walked.started_at, walked.finished_at
        FROM (
            SELECT j.id, j.endpoint, j.flow, j.started_at, j.finished_at, j.state, j.owner
            FROM jobs AS j
            WHERE /* include lists/of_service */
              AND hashtext(j.owner) = hashtext(:owner::text) AND j.id < place.before
            ORDER BY j.id DESC
            LIMIT :walked_max::integer
        ) AS walked
        WHERE walked.state = 'completed' AND walked.owner = :owner
        LIMIT :rows_max::integer
    ) AS ended
    ORDER BY ended.id DESC
    LIMIT :rows_max
) AS r
WHERE r.endpoint = :endpoint AND (:flow::text IS NULL OR r.flow = :flow) AND r.started_at IS NOT NULL

-- name: recent_task_runs
-- How long the last completed tasks of a run ran, those with about the highest numbers.
SELECT date_part('epoch', j.finished_at - j.started_at) AS seconds
FROM (
    SELECT unnest(t.ids) AS id
    FROM ended_tasks AS t
    WHERE t.org_id = :org AND t.run_id = :run AND t.state = 'completed'
    ORDER BY t.block DESC
    LIMIT :rows_max::integer
) AS e
CROSS JOIN LATERAL (SELECT * FROM jobs AS j WHERE j.org_id = :org AND j.id = e.id OFFSET 0) AS j
