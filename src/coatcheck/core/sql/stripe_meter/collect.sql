-- Make meter events from hours, for the usage of each measure that no event has yet. Runs in the
-- transaction that has locked the rows named by $1 to $4, and marks these as metered. A row that came
-- since is counted and not marked: it is read again, and nothing is left of it then.
--
-- The identifier is always the same: the hash of the event's subject.
--
-- $1 orgs, $2 hours, $3 endpoints, $4 flows of the rows   $5 measures, $6 their event names
WITH hours AS (
    SELECT DISTINCT l.org_id, l.hour FROM unnest($1::text[], $2::timestamptz[]) AS l (org_id, hour)
),
used AS (
    SELECT h.org_id, h.hour, sum(u.completed) AS completed, sum(u.failed) AS failed,
           sum(u.cancelled) AS cancelled, sum(u.attempts) AS attempts,
           sum(u.run_seconds) AS run_seconds, sum(u.payload_bytes) AS payload_bytes,
           sum(u.result_bytes) AS result_bytes
    FROM hours AS h
    JOIN usage_hours AS u ON u.org_id = h.org_id AND u.hour = h.hour
    GROUP BY h.org_id, h.hour
),
measured AS (
    SELECT u.org_id, u.hour, m.measure, m.event_name,
           CASE m.measure
               WHEN 'jobs' THEN u.completed + u.failed + u.cancelled
               WHEN 'completed' THEN u.completed
               WHEN 'attempts' THEN u.attempts
               WHEN 'run_seconds' THEN round(u.run_seconds::numeric)
               WHEN 'payload_bytes' THEN u.payload_bytes
               WHEN 'result_bytes' THEN u.result_bytes
           END::bigint AS total
    FROM used AS u
    CROSS JOIN unnest($5::text[], $6::text[]) AS m (measure, event_name)
),
made AS (
    INSERT INTO stripe_meter_events (
        org_id, hour, measure, part, identifier, event_name, customer, value
    )
    SELECT m.org_id, m.hour, m.measure, e.parts,
           'coatcheck-' || encode(
               sha256(convert_to(
                   concat_ws(
                       ' ', m.event_name, m.org_id, extract(epoch FROM m.hour)::bigint, m.measure,
                       e.parts
                   ),
                   'UTF8'
               )),
               'hex'
           ),
           m.event_name, o.stripe_customer, m.total - e.value
    FROM measured AS m
    JOIN orgs AS o ON o.org_id = m.org_id
    CROSS JOIN LATERAL (
        SELECT count(*)::integer AS parts, coalesce(sum(e.value), 0)::bigint AS value
        FROM stripe_meter_events AS e
        WHERE e.org_id = m.org_id AND e.hour = m.hour AND e.measure = m.measure
    ) AS e
    WHERE m.total > e.value
    ORDER BY m.org_id, m.hour, m.measure
    RETURNING 1
),
marked AS (
    UPDATE usage_hours AS u SET metered = true
    FROM unnest($1, $2, $3::text[], $4::text[]) AS l (org_id, hour, endpoint, flow)
    WHERE u.org_id = l.org_id AND u.hour = l.hour AND u.endpoint = l.endpoint AND u.flow = l.flow
)
SELECT count(*) AS events FROM made
