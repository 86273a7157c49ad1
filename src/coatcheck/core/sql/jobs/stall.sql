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
-- A worker is judged by its own lease times. Held jobs are counted as claim_limited.sql counts them,
-- once, and only if a limit applies to any of the jobs.
--
-- $1 organisations, $2 ids   $3 lanes, $4 how long a job of each may wait, in seconds
WITH asked AS MATERIALIZED (
    SELECT j.org_id, j.id, j.state, j.lane, j.endpoint, j.flow, j.lease, j.unreachables,
           j.error_code, l.seconds * interval '1 second' AS stall_after,
           now() - j.created_at AS age,
           now() - greatest(j.run_at, j.updated_at) AS due_for
    FROM unnest($1::text[], $2::uuid[]) AS a (org_id, id)
    JOIN jobs AS j ON j.org_id = a.org_id AND j.id = a.id
    JOIN unnest($3::text[], $4::double precision[]) AS l (lane, seconds) ON l.lane = j.lane::text
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
SELECT a.org_id, a.id,
       CASE
           WHEN a.lease IS NOT NULL THEN CASE
               WHEN a.lease >> 40 = 0 THEN (
                   SELECT 'target_unreachable'
                   FROM remote_calls AS r
                   WHERE r.org_id = a.org_id AND r.job_id = a.id AND r.faults > 0
               )
               WHEN NOT EXISTS (
                   SELECT FROM (/* include jobs/held_by.sql */) AS holder WHERE holder.is_heard
               ) THEN 'heartbeat_lost'
           END
           WHEN a.state NOT IN ('staged', 'queued', 'retrying') THEN NULL
           WHEN a.age > a.stall_after AND a.unreachables > 0 AND a.error_code = 'target_unreachable'
               THEN 'target_unreachable'
           WHEN a.due_for <= a.stall_after THEN NULL
           WHEN NOT EXISTS (
               SELECT FROM (/* include jobs/served_by.sql */) AS server WHERE server.is_alive
           ) THEN 'no_worker'
           WHEN NOT EXISTS (
               SELECT FROM (/* include jobs/served_by.sql */) AS server
               WHERE server.is_alive AND server.threads_held IS NULL
           ) THEN 'threads_held'
           WHEN EXISTS (
               SELECT FROM (/* include jobs/limits_on.sql */) AS l WHERE l.held_max <= l.held
           ) THEN 'concurrency_limit'
           WHEN EXISTS (/* include jobs/rates_on.sql */) THEN 'rate_limit'
       END AS reason
FROM asked AS a
