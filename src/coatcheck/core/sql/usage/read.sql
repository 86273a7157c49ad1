-- An organisation's usage from $2 to $3, by day, endpoint and flow: the sums, and the deltas that are
-- not in them yet, read in one snapshot.
--
-- $1 org   $2 first day   $3 last day   $4 endpoint, or NULL for all
SELECT u.day, u.endpoint, u.flow, sum(u.completed)::bigint, sum(u.failed)::bigint,
       sum(u.cancelled)::bigint, sum(u.attempts)::bigint, sum(u.run_seconds),
       sum(u.payload_bytes)::bigint, sum(u.result_bytes)::bigint
FROM (
    SELECT day, endpoint, flow, completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage
    WHERE org_id = $1 AND day BETWEEN $2 AND $3 AND ($4::text IS NULL OR endpoint = $4)
    UNION ALL
    SELECT day, endpoint, coalesce(task.usage_flow, flow), completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage_deltas AS d
    LEFT JOIN LATERAL (
        SELECT r.usage_flow
        FROM runs AS r
        WHERE r.org_id = d.org_id AND r.id = d.run_id
    ) AS task ON true
    WHERE d.org_id = $1 AND d.day BETWEEN $2 AND $3 AND ($4::text IS NULL OR d.endpoint = $4)
) AS u
GROUP BY u.day, u.endpoint, u.flow
ORDER BY u.day, u.endpoint, u.flow
