-- Delete events of expired hours. They are kept as long as the hours: what was sent of an hour must be
-- known while more can be added to it. Walks stripe_meter_events_old.
--
-- $1 days that they are kept   $2 rows at most
WITH old AS MATERIALIZED (
    SELECT e.org_id, e.hour, e.measure, e.part
    FROM stripe_meter_events AS e
    WHERE e.hour < now() - $1::integer * interval '1 day'
    ORDER BY e.hour
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM stripe_meter_events AS e USING old AS o
    WHERE e.org_id = o.org_id AND e.hour = o.hour AND e.measure = o.measure AND e.part = o.part
    RETURNING 1
)
SELECT count(*) AS rows FROM gone
