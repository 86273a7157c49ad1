-- An organisation's usage from day $2 to day $3, by hour, endpoint and flow: the hourly sums, and the
-- deltas that are not in them yet, read in one snapshot. Walks the key of usage_hours.
--
-- $1 org   $2 first day   $3 last day   $4 endpoint, or NULL for all
SELECT (u.hour AT TIME ZONE 'UTC')::date, u.endpoint, u.flow, sum(u.completed)::bigint,
       sum(u.failed)::bigint, sum(u.cancelled)::bigint, sum(u.attempts)::bigint, sum(u.run_seconds),
       sum(u.payload_bytes)::bigint, sum(u.result_bytes)::bigint, u.hour
FROM (
    SELECT hour, endpoint, flow, completed, failed, cancelled, attempts, run_seconds,
           payload_bytes, result_bytes
    FROM usage_hours
    WHERE org_id = $1 AND hour >= $2::date::timestamp AT TIME ZONE 'UTC'
      AND hour < ($3::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND ($4::text IS NULL OR endpoint = $4)
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
    WHERE d.org_id = $1 AND d.ended_at >= $2::date::timestamp AT TIME ZONE 'UTC'
      AND d.ended_at < ($3::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND ($4::text IS NULL OR d.endpoint = $4)
) AS u
GROUP BY u.hour, u.endpoint, u.flow
ORDER BY u.hour, u.endpoint, u.flow
