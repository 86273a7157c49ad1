-- name: meter
-- Record the usage of the jobs that a statement ended, from `changed` of jobs/ended. A row for each group of jobs and not for each job: a statement ends few groups.
--
-- `changed` gives org_id, state, endpoint, flow, run_id, attempts, payload_bytes, result_bytes,
-- run_seconds. Tasks of a run are one group, and name it: the roll-up counts them for it.
-- The day is that of finished_at, which is now() as well.
INSERT INTO usage_deltas (
        org_id, day, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow, run_id
    )
    SELECT c.org_id, (now() AT TIME ZONE 'UTC')::date,
           count(*) FILTER (WHERE c.state = 'completed'),
           count(*) FILTER (WHERE c.state = 'failed'),
           count(*) FILTER (WHERE c.state = 'cancelled'),
           sum(c.attempts), coalesce(sum(c.payload_bytes), 0), sum(c.result_bytes),
           sum(c.run_seconds::double precision), c.endpoint,
           CASE WHEN c.run_id IS NULL THEN c.flow ELSE '' END, c.run_id
    FROM changed AS c
    WHERE c.state IN ('completed', 'failed', 'cancelled')
    GROUP BY c.org_id, c.endpoint, c.run_id, CASE WHEN c.run_id IS NULL THEN c.flow ELSE '' END

-- name: prune_hours
-- Delete expired sums of hours, oldest first, a chunk at a time. Walks usage_hours_old. The sums of days
-- stay.
--
-- :keep_days  days that they are kept
WITH old AS MATERIALIZED (
    SELECT u.org_id, u.hour, u.endpoint, u.flow
    FROM usage_hours AS u
    WHERE u.hour < now() - :keep_days::integer * interval '1 day'
    ORDER BY u.hour
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM usage_hours AS u USING old AS o
    WHERE u.org_id = o.org_id AND u.hour = o.hour AND u.endpoint = o.endpoint AND u.flow = o.flow
    RETURNING 1
)
SELECT count(*) AS rows FROM gone

-- name: read
-- An organisation's usage from :first_day to :last_day, by day, endpoint and flow: the sums, and the deltas that are
-- not in them yet, read in one snapshot.
--
-- :endpoint  endpoint, or NULL for all
SELECT u.day, u.endpoint, u.flow, sum(u.completed)::bigint, sum(u.failed)::bigint,
       sum(u.cancelled)::bigint, sum(u.attempts)::bigint, sum(u.run_seconds),
       sum(u.payload_bytes)::bigint, sum(u.result_bytes)::bigint
FROM (
    SELECT day, endpoint, flow, completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage
    WHERE org_id = :org AND day BETWEEN :first_day AND :last_day AND (:endpoint::text IS NULL OR endpoint = :endpoint)
    UNION ALL
    SELECT day, endpoint, coalesce(task.usage_flow, flow), completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage_deltas AS d
    LEFT JOIN LATERAL (
        SELECT r.usage_flow
        FROM runs AS r
        WHERE r.org_id = d.org_id AND r.id = d.run_id
    ) AS task ON true
    WHERE d.org_id = :org AND d.day BETWEEN :first_day AND :last_day AND (:endpoint::text IS NULL OR d.endpoint = :endpoint)
) AS u
GROUP BY u.day, u.endpoint, u.flow
ORDER BY u.day, u.endpoint, u.flow

-- name: read_hours
-- An organisation's usage from day :first_day to day :last_day, by hour, endpoint and flow: the hourly sums, and the
-- deltas that are not in them yet, read in one snapshot. Walks the key of usage_hours.
--
-- :endpoint  endpoint, or NULL for all
SELECT (u.hour AT TIME ZONE 'UTC')::date, u.endpoint, u.flow, sum(u.completed)::bigint,
       sum(u.failed)::bigint, sum(u.cancelled)::bigint, sum(u.attempts)::bigint, sum(u.run_seconds),
       sum(u.payload_bytes)::bigint, sum(u.result_bytes)::bigint, u.hour
FROM (
    SELECT hour, endpoint, flow, completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage_hours
    WHERE org_id = :org AND hour >= :first_day::date::timestamp AT TIME ZONE 'UTC'
      AND hour < (:last_day::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND (:endpoint::text IS NULL OR endpoint = :endpoint)
    UNION ALL
    SELECT date_trunc('hour', d.ended_at, 'UTC'), d.endpoint, coalesce(task.usage_flow, d.flow),
           d.completed, d.failed, d.cancelled, d.attempts, d.run_seconds, d.payload_bytes,
           d.result_bytes
    FROM usage_deltas AS d
    LEFT JOIN LATERAL (
        SELECT r.usage_flow
        FROM runs AS r
        WHERE r.org_id = d.org_id AND r.id = d.run_id
    ) AS task ON true
    WHERE d.org_id = :org AND d.ended_at >= :first_day::date::timestamp AT TIME ZONE 'UTC'
      AND d.ended_at < (:last_day::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND (:endpoint::text IS NULL OR d.endpoint = :endpoint)
) AS u
GROUP BY u.hour, u.endpoint, u.flow
ORDER BY u.hour, u.endpoint, u.flow

-- name: roll_up
-- Move usage from the deltas into the sums, a chunk at a time: in one statement, so that a reader of both
-- tables counts each delta once, whenever it reads.
--
-- The usage of tasks is summed up under their run's usage flow, and counted for their run. Counters never
-- go back: what a task's end added stays.
--
-- Each delta is added to the sums of its day and of its hour.
--
-- The sums are changed in the order of their key: two of these that meet wait, and do not deadlock.
-- A run that another transaction has locked, for instance to write a chunk of tasks, is not waited for:
-- all maintenance would wait as well. Its deltas are left for the next time.
--
-- Returns how many deltas it moved, and the groups of runs whose counters changed.
--
-- :rows_max  deltas at most
WITH taken AS MATERIALIZED (
    SELECT d.org_id, d.seq, d.run_id
    FROM usage_deltas AS d
    ORDER BY d.org_id, d.seq
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
free_runs AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM (SELECT DISTINCT t.org_id, t.run_id FROM taken AS t WHERE t.run_id IS NOT NULL) AS t
    JOIN runs AS r ON r.org_id = t.org_id AND r.id = t.run_id
    ORDER BY r.org_id, r.id
    FOR NO KEY UPDATE OF r SKIP LOCKED
),
gone AS (
    DELETE FROM usage_deltas AS d USING taken AS t
    WHERE d.org_id = t.org_id AND d.seq = t.seq
      AND (
          t.run_id IS NULL
          OR (t.org_id, t.run_id) IN (SELECT f.org_id, f.id FROM free_runs AS f)
          OR (
              SELECT true FROM runs AS r WHERE r.org_id = t.org_id AND r.id = t.run_id
          ) IS NULL
      )
    RETURNING d.*
),
named AS MATERIALIZED (
    SELECT g.org_id, g.day, g.ended_at, g.completed, g.failed, g.cancelled, g.attempts, g.payload_bytes,
           g.result_bytes, g.run_seconds, g.endpoint, coalesce(r.usage_flow, g.flow) AS flow,
           g.run_id
    FROM gone AS g
    LEFT JOIN runs AS r ON r.org_id = g.org_id AND r.id = g.run_id
),
counted AS (
    UPDATE runs AS r
    SET succeeded = r.succeeded + n.completed, failed = r.failed + n.failed,
        cancelled = r.cancelled + n.cancelled
    FROM (
        SELECT n.org_id, n.run_id, sum(n.completed)::integer AS completed,
               sum(n.failed)::integer AS failed, sum(n.cancelled)::integer AS cancelled
        FROM named AS n
        WHERE n.run_id IS NOT NULL
        GROUP BY n.org_id, n.run_id
    ) AS n
    WHERE r.org_id = n.org_id AND r.id = n.run_id
    RETURNING r.group_id
),
added AS (
    INSERT INTO usage AS u (
        org_id, day, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow
    )
    SELECT g.org_id, g.day, sum(g.completed), sum(g.failed), sum(g.cancelled), sum(g.attempts),
           sum(g.payload_bytes), sum(g.result_bytes), sum(g.run_seconds), g.endpoint, g.flow
    FROM named AS g
    GROUP BY g.org_id, g.day, g.endpoint, g.flow
    ORDER BY g.org_id, g.day, g.endpoint, g.flow
    ON CONFLICT (org_id, day, endpoint, flow) DO UPDATE
    SET completed = u.completed + excluded.completed, failed = u.failed + excluded.failed,
        cancelled = u.cancelled + excluded.cancelled, attempts = u.attempts + excluded.attempts,
        payload_bytes = u.payload_bytes + excluded.payload_bytes,
        result_bytes = u.result_bytes + excluded.result_bytes,
        run_seconds = u.run_seconds + excluded.run_seconds
),
added_hours AS (
    INSERT INTO usage_hours AS u (
        org_id, hour, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow
    )
    SELECT g.org_id, date_trunc('hour', g.ended_at, 'UTC') AS hour, sum(g.completed),
           sum(g.failed), sum(g.cancelled), sum(g.attempts), sum(g.payload_bytes),
           sum(g.result_bytes), sum(g.run_seconds), g.endpoint, g.flow
    FROM named AS g
    GROUP BY g.org_id, date_trunc('hour', g.ended_at, 'UTC'), g.endpoint, g.flow
    ORDER BY g.org_id, hour, g.endpoint, g.flow
    ON CONFLICT (org_id, hour, endpoint, flow) DO UPDATE
    SET completed = u.completed + excluded.completed, failed = u.failed + excluded.failed,
        cancelled = u.cancelled + excluded.cancelled, attempts = u.attempts + excluded.attempts,
        payload_bytes = u.payload_bytes + excluded.payload_bytes,
        result_bytes = u.result_bytes + excluded.result_bytes,
        run_seconds = u.run_seconds + excluded.run_seconds, metered = false
)
SELECT (SELECT count(*) FROM gone) AS deltas, array(SELECT DISTINCT group_id FROM counted) AS groups

-- name: find_report
-- One report of an organisation, by its id.
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals,
       r.items::text AS items
FROM usage_reports AS r
WHERE r.org_id = :org AND r.id = :report

-- name: list_reports
-- An organisation's reports, the newest period first. Walks the primary key. They are few: as many as
-- are made within their retention.
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals
FROM usage_reports AS r
WHERE r.org_id = :org
ORDER BY r.last_day DESC, r.period, r.id

-- name: make_reports
-- Make the missing reports, each once, and write the webhook deliveries of each in the same statement.
-- The primary key decides: the second process makes none, and writes no delivery.
--
-- A period is reported once it ended :after_seconds seconds ago, so that a statement that ended jobs just before
-- midnight has committed; and not while deltas of it wait for the roll-up. Periods that ended within
-- the last :days_back days are checked, so that reports which a downtime prevented are made later.
--
-- The organisations are found by steps through the key of `usage`, an entry each; the rest by keys.
--
-- :period  day, week or month   :after_seconds  seconds after the period's end
WITH RECURSIVE periods AS MATERIALIZED (
    SELECT p.starts::date AS first_day, (p.starts + p.step)::date - 1 AS last_day
    FROM (
        SELECT g.starts, ('1 ' || :period::text)::interval AS step
        FROM generate_series(
            date_trunc(:period, now() AT TIME ZONE 'UTC' - :days_back::integer * interval '1 day'),
            now() AT TIME ZONE 'UTC', ('1 ' || :period)::interval
        ) AS g (starts)
    ) AS p
    WHERE p.starts + p.step <= now() AT TIME ZONE 'UTC' - :after_seconds::integer * interval '1 second'
      AND p.starts + p.step > now() AT TIME ZONE 'UTC' - :days_back * interval '1 day'
),
orgs AS (
    (SELECT u.org_id FROM usage AS u ORDER BY u.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT u.org_id FROM usage AS u WHERE u.org_id > o.org_id ORDER BY u.org_id LIMIT 1)
    FROM orgs AS o
    WHERE o.org_id IS NOT NULL
),
missing AS MATERIALIZED (
    SELECT o.org_id, p.first_day, p.last_day
    FROM orgs AS o
    CROSS JOIN periods AS p
    WHERE EXISTS (
              SELECT FROM usage AS u
              WHERE u.org_id = o.org_id AND u.day BETWEEN p.first_day AND p.last_day
          )
      AND NOT EXISTS (
              SELECT FROM usage_reports AS r
              WHERE r.org_id = o.org_id AND r.period = :period AND r.first_day = p.first_day
          )
      AND NOT EXISTS (
              SELECT FROM usage_deltas AS d
              WHERE d.org_id = o.org_id AND d.day BETWEEN p.first_day AND p.last_day
          )
    ORDER BY p.first_day, o.org_id
    LIMIT :rows_max::integer
),
made AS (
    INSERT INTO usage_reports (org_id, period, first_day, last_day, totals, items)
    SELECT m.org_id, :period, m.first_day, m.last_day, used.totals, used.items
    FROM missing AS m
    CROSS JOIN LATERAL (
        SELECT jsonb_build_object(
                   'jobs', sum(s.completed + s.failed + s.cancelled), 'completed', sum(s.completed),
                   'failed', sum(s.failed), 'cancelled', sum(s.cancelled),
                   'attempts', sum(s.attempts), 'run_seconds', round(sum(s.run_seconds)::numeric, 3),
                   'payload_bytes', sum(s.payload_bytes), 'result_bytes', sum(s.result_bytes)
               ) AS totals,
               jsonb_agg(
                   jsonb_build_object(
                       'endpoint', s.endpoint, 'flow', s.flow,
                       'jobs', s.completed + s.failed + s.cancelled, 'completed', s.completed,
                       'failed', s.failed, 'cancelled', s.cancelled, 'attempts', s.attempts,
                       'run_seconds', round(s.run_seconds::numeric, 3),
                       'payload_bytes', s.payload_bytes, 'result_bytes', s.result_bytes
                   )
                   ORDER BY s.endpoint, s.flow
               ) AS items
        FROM (
            SELECT u.endpoint, u.flow, sum(u.completed) AS completed, sum(u.failed) AS failed,
                   sum(u.cancelled) AS cancelled, sum(u.attempts) AS attempts,
                   sum(u.run_seconds) AS run_seconds, sum(u.payload_bytes) AS payload_bytes,
                   sum(u.result_bytes) AS result_bytes
            FROM usage AS u
            WHERE u.org_id = m.org_id AND u.day BETWEEN m.first_day AND m.last_day
            GROUP BY u.endpoint, u.flow
        ) AS s
    ) AS used
    ON CONFLICT (org_id, period, first_day) DO NOTHING
    RETURNING org_id, id, period, first_day, last_day
),
notified AS (
    INSERT INTO webhook_deliveries (org_id, target_id, subject_kind, subject_id, event, facts)
    SELECT m.org_id, t.id, 'usage', m.id, 'usage.report',
           jsonb_build_object('period', m.period, 'first_day', m.first_day, 'last_day', m.last_day)
    FROM made AS m
    JOIN webhook_targets AS t ON t.org_id = m.org_id
    WHERE t.events IS NOT NULL AND 'usage.report' = ANY (t.events)
)
SELECT m.org_id, m.period, m.first_day FROM made AS m

-- name: prune_reports
-- Delete expired reports, oldest first, a chunk at a time. Walks usage_reports_old.
--
-- :keep_days  days that they are kept
WITH old AS MATERIALIZED (
    SELECT r.org_id, r.id
    FROM usage_reports AS r
    WHERE r.created_at < now() - :keep_days::integer * interval '1 day'
    ORDER BY r.created_at
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM usage_reports AS r USING old AS o
    WHERE r.org_id = o.org_id AND r.id = o.id
    RETURNING 1
)
SELECT count(*) AS rows FROM gone
