-- Lock the sums of ended hours that are not completely in meter events yet: oldest first, at most $1
-- hours of organisations. The roll-up waits for the locks, so that the events match the sums. Walks
-- usage_hours_unmetered, for each organisation with a customer.
--
-- $1 hours at most   $2 seconds after the hour's end   $3 days back
WITH chosen AS MATERIALIZED (
    SELECT o.org_id, h.hour
    FROM orgs AS o
    CROSS JOIN LATERAL (
        SELECT DISTINCT u.hour
        FROM usage_hours AS u
        WHERE u.org_id = o.org_id AND NOT u.metered AND u.hour >= o.stripe_metered_from
          AND u.hour >= now() - $3::integer * interval '1 day'
          AND u.hour <= now() - interval '1 hour' - $2::integer * interval '1 second'
        ORDER BY u.hour
        LIMIT $1::integer
    ) AS h
    WHERE o.stripe_customer IS NOT NULL
    ORDER BY h.hour, o.org_id
    LIMIT $1
)
SELECT u.org_id, u.hour, u.endpoint, u.flow
FROM chosen AS c
JOIN usage_hours AS u ON u.org_id = c.org_id AND u.hour = c.hour
ORDER BY u.org_id, u.hour, u.endpoint, u.flow
FOR UPDATE OF u
