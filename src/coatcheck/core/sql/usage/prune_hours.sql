-- Delete expired sums of hours, oldest first, a chunk at a time. Walks usage_hours_old. The sums of days
-- stay.
--
-- $1 days that they are kept   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT u.org_id, u.hour, u.endpoint, u.flow
    FROM usage_hours AS u
    WHERE u.hour < now() - $1::integer * interval '1 day'
    ORDER BY u.hour
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM usage_hours AS u USING old AS o
    WHERE u.org_id = o.org_id AND u.hour = o.hour AND u.endpoint = o.endpoint AND u.flow = o.flow
    RETURNING 1
)
SELECT count(*) AS rows FROM gone
