-- name: find
-- One report of an organisation, by its id.
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals,
       r.items::text AS items
FROM usage_reports AS r
WHERE r.org_id = :org AND r.id = :report

-- name: list
-- An organisation's reports, the newest period first. Walks the primary key. They are few: as many as
-- are made within their retention.
SELECT r.id, r.period, r.first_day, r.last_day, r.created_at, r.totals::text AS totals
FROM usage_reports AS r
WHERE r.org_id = :org
ORDER BY r.last_day DESC, r.period, r.id

-- name: make
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

-- name: prune
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
