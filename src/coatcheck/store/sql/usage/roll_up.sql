-- Move what was used from the deltas into the sums, a chunk at a time: in one statement, so that a
-- reader of both tables counts each delta once, whenever it looks.
--
-- The sums are changed in the order of their key: two of these that meet wait, and do not deadlock.
--
-- $1 deltas at most
WITH taken AS MATERIALIZED (
    SELECT d.org_id, d.seq
    FROM usage_deltas AS d
    ORDER BY d.org_id, d.seq
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM usage_deltas AS d USING taken AS t WHERE d.org_id = t.org_id AND d.seq = t.seq
    RETURNING d.*
),
added AS (
    INSERT INTO usage AS u (
        org_id, day, completed, failed, cancelled, attempts, payload_bytes, result_bytes,
        run_seconds, endpoint, flow
    )
    SELECT g.org_id, g.day, sum(g.completed), sum(g.failed), sum(g.cancelled), sum(g.attempts),
           sum(g.payload_bytes), sum(g.result_bytes), sum(g.run_seconds), g.endpoint, g.flow
    FROM gone AS g
    GROUP BY g.org_id, g.day, g.endpoint, g.flow
    ORDER BY g.org_id, g.day, g.endpoint, g.flow
    ON CONFLICT (org_id, day, endpoint, flow) DO UPDATE
    SET completed = u.completed + excluded.completed, failed = u.failed + excluded.failed,
        cancelled = u.cancelled + excluded.cancelled, attempts = u.attempts + excluded.attempts,
        payload_bytes = u.payload_bytes + excluded.payload_bytes,
        result_bytes = u.result_bytes + excluded.result_bytes,
        run_seconds = u.run_seconds + excluded.run_seconds
)
SELECT count(*) FROM gone
