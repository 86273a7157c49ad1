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
-- Returns how many deltas it moved, and the groups of runs whose counters changed.   $1 deltas at most
WITH taken AS MATERIALIZED (
    SELECT d.org_id, d.seq, d.run_id
    FROM usage_deltas AS d
    ORDER BY d.org_id, d.seq
    LIMIT $1::integer
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
