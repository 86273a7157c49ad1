-- Claim due events, and record that they are being sent: a process that dies meanwhile leaves that
-- record. They are due again after $2 seconds. Walks stripe_meter_events_due.
--
-- `doubtful_since` is when an event was sent before with an unknown outcome. `acknowledged` is the value
-- that Stripe has acknowledged for the same organisation, hour and measure.
--
-- An event that has been doubtful for more than $3 seconds stays so, however this attempt ends.
--
-- $1 events at most   $2 seconds until they are due again   $3 seconds
WITH due AS MATERIALIZED (
    SELECT e.org_id, e.hour, e.measure, e.part, e.attempted_at
    FROM stripe_meter_events AS e
    WHERE e.status = 'pending' AND e.due_at <= now()
    ORDER BY e.due_at, e.hour
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE stripe_meter_events AS e
    SET attempts = e.attempts + 1,
        attempted_at = CASE
            WHEN d.attempted_at < now() - $3::double precision * interval '1 second'
            THEN d.attempted_at ELSE now()
        END,
        due_at = now() + $2::double precision * interval '1 second'
    FROM due AS d
    WHERE e.org_id = d.org_id AND e.hour = d.hour AND e.measure = d.measure AND e.part = d.part
    RETURNING e.org_id, e.hour, e.measure, e.part, e.identifier, e.event_name, e.customer, e.value,
              e.attempts, e.attempted_at, d.attempted_at AS doubtful_since
)
SELECT t.*, extract(epoch FROM now() - t.doubtful_since)::double precision AS doubtful_seconds,
       (
           SELECT coalesce(sum(e.value), 0)::bigint
           FROM stripe_meter_events AS e
           WHERE e.org_id = t.org_id AND e.hour = t.hour AND e.measure = t.measure
             AND e.status = 'acknowledged'
       ) AS acknowledged
FROM taken AS t
ORDER BY t.hour, t.org_id, t.measure, t.part
