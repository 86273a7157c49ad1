-- name: add_org
-- Add an organisation that was known only from tokens until it paid. It has no plan until its event is
-- applied.
INSERT INTO orgs (org_id, name, subscription)
VALUES (:org, :org, 'incomplete')
ON CONFLICT (org_id) DO NOTHING

-- name: find_org
-- The organisation of an event: the one that it names, else that of its customer, else that of its
-- subscription. Locked, so that the events of one organisation are applied one after another.
--
-- :org  org or NULL   :customer  customer or NULL   :subscription  subscription or NULL
SELECT o.org_id FROM orgs AS o
WHERE o.org_id = coalesce(
    :org,
    (SELECT c.org_id FROM orgs AS c WHERE c.stripe_customer = :customer ORDER BY c.org_id LIMIT 1),
    (SELECT s.org_id FROM stripe_subscriptions AS s WHERE s.subscription_id = :subscription
     ORDER BY s.org_id LIMIT 1)
)
FOR UPDATE

-- name: link_customer
-- Link an organisation with its customer at Stripe. An existing link is kept, unless :relinks.
UPDATE orgs SET stripe_customer = :customer
WHERE org_id = :org AND (stripe_customer IS NULL OR :relinks::boolean)

-- name: note_event
-- Record that an event was applied; no row if it already was. Deletes records of events that Stripe
-- stopped resending long ago.
WITH forgotten AS (
    DELETE FROM stripe_events WHERE org_id = :org AND received_at < now() - interval '30 days'
)
INSERT INTO stripe_events (org_id, event_id) VALUES (:org, :event)
ON CONFLICT (org_id, event_id) DO NOTHING
RETURNING event_id

-- name: put_subscription
-- Apply an event to a subscription, unless a later event was applied already: events arrive in any
-- order. Their times are whole seconds; within one, `rank` decides. Rank 0 only creates the row.
--
-- :at  time of the event
INSERT INTO stripe_subscriptions AS s (org_id, subscription_id, status, changed_at, rank)
VALUES (:org, :subscription, :status, :at, :rank)
ON CONFLICT (org_id, subscription_id) DO UPDATE
SET status = excluded.status, changed_at = excluded.changed_at, rank = excluded.rank
WHERE excluded.rank > 0 AND (excluded.changed_at, excluded.rank) >= (s.changed_at, s.rank)

-- name: settle
-- Set an organisation's plan to its best subscription: an active one, if there is one, else the one
-- that changed last. Notifies every cache with the commit.
--
-- :active  the active states
WITH best AS (
    SELECT s.status, s.changed_at FROM stripe_subscriptions AS s
    WHERE s.org_id = :org
    ORDER BY s.status = ANY (:active::text[]) DESC, s.changed_at DESC, s.subscription_id
    LIMIT 1
),
changed AS (
    UPDATE orgs AS o
    SET subscription = b.status, subscription_changed_at = b.changed_at
    FROM best AS b
    WHERE o.org_id = :org
    RETURNING o.org_id
)
SELECT pg_notify(:channel, 'org:' || c.org_id) FROM changed AS c

-- name: begin_meter_events
-- Record from which hour on usage is sent, for organisations that have a customer at Stripe for the
-- first time. Walks orgs_stripe_customer.
UPDATE orgs SET stripe_metered_from = date_trunc('hour', now(), 'UTC')
WHERE stripe_customer IS NOT NULL AND stripe_metered_from IS NULL

-- name: collect_meter_events
-- Make meter events from hours, for the usage of each measure that no event has yet. Runs in the
-- transaction that has locked the rows named by :orgs to :flows, and marks these as metered. A row that came
-- since is counted and not marked: it is read again, and nothing is left of it then.
--
-- The identifier is always the same: the hash of the event's subject.
--
-- :flows  flows of the rows   :event_names  their event names
WITH hours AS (
    SELECT DISTINCT l.org_id, l.hour FROM unnest(:orgs::text[], :hours::timestamptz[]) AS l (org_id, hour)
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
    CROSS JOIN unnest(:measures::text[], :event_names::text[]) AS m (measure, event_name)
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
    FROM unnest(:orgs, :hours, :endpoints::text[], :flows::text[]) AS l (org_id, hour, endpoint, flow)
    WHERE u.org_id = l.org_id AND u.hour = l.hour AND u.endpoint = l.endpoint AND u.flow = l.flow
)
SELECT count(*) AS events FROM made

-- name: expire_meter_events
-- Give up events that are older than Stripe accepts. Walks stripe_meter_events_due.
--
-- :days_max  days that Stripe accepts them for
UPDATE stripe_meter_events AS e SET status = 'expired', ended_at = now()
WHERE e.status = 'pending' AND e.hour + interval '1 hour' < now() - :days_max::integer * interval '1 day'
RETURNING e.org_id, e.hour, e.measure, e.value

-- name: lock_hours
-- Lock the sums of ended hours that are not completely in meter events yet: oldest first, at most :hours_max
-- hours of organisations. The roll-up waits for the locks, so that the events match the sums. Walks
-- usage_hours_unmetered, for each organisation with a customer.
--
-- :hours_max  hours at most   :after_seconds  seconds after the hour's end
WITH chosen AS MATERIALIZED (
    SELECT o.org_id, h.hour
    FROM orgs AS o
    CROSS JOIN LATERAL (
        SELECT DISTINCT u.hour
        FROM usage_hours AS u
        WHERE u.org_id = o.org_id AND NOT u.metered AND u.hour >= o.stripe_metered_from
          AND u.hour >= now() - :days_back::integer * interval '1 day'
          AND u.hour <= now() - interval '1 hour' - :after_seconds::integer * interval '1 second'
        ORDER BY u.hour
        LIMIT :hours_max::integer
    ) AS h
    WHERE o.stripe_customer IS NOT NULL
    ORDER BY h.hour, o.org_id
    LIMIT :hours_max
)
SELECT u.org_id, u.hour, u.endpoint, u.flow
FROM chosen AS c
JOIN usage_hours AS u ON u.org_id = c.org_id AND u.hour = c.hour
ORDER BY u.org_id, u.hour, u.endpoint, u.flow
FOR UPDATE OF u

-- name: mark_meter_events
-- Record the outcomes of events that were sent. An acknowledged event stays acknowledged.
--
-- :acknowledged  whether acknowledged   :doubtful_since  since when its outcome is unknown, or NULL
-- :retry_seconds  seconds until the next attempt   :errors  errors, or NULL
UPDATE stripe_meter_events AS e
SET status = CASE WHEN m.acknowledged THEN 'acknowledged' ELSE 'pending' END,
    ended_at = CASE WHEN m.acknowledged THEN now() END,
    attempted_at = m.doubtful_since,
    due_at = now() + m.seconds * interval '1 second',
    last_error = m.error
FROM unnest(
    :orgs::text[], :hours::timestamptz[], :measures::text[], :parts::integer[], :acknowledged::boolean[], :doubtful_since::timestamptz[],
    :retry_seconds::double precision[], :errors::text[]
) AS m (org_id, hour, measure, part, acknowledged, doubtful_since, seconds, error)
WHERE e.org_id = m.org_id AND e.hour = m.hour AND e.measure = m.measure AND e.part = m.part
  AND e.status = 'pending'

-- name: prune_meter_events
-- Delete events of expired hours. They are kept as long as the hours: what was sent of an hour must be
-- known while more can be added to it. Walks stripe_meter_events_old.
--
-- :keep_days  days that they are kept
WITH old AS MATERIALIZED (
    SELECT e.org_id, e.hour, e.measure, e.part
    FROM stripe_meter_events AS e
    WHERE e.hour < now() - :keep_days::integer * interval '1 day'
    ORDER BY e.hour
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM stripe_meter_events AS e USING old AS o
    WHERE e.org_id = o.org_id AND e.hour = o.hour AND e.measure = o.measure AND e.part = o.part
    RETURNING 1
)
SELECT count(*) AS rows FROM gone

-- name: take_meter_events
-- Claim due events, and record that they are being sent: a process that dies meanwhile leaves that
-- record. They are due again after :lease_seconds seconds. Walks stripe_meter_events_due.
--
-- `doubtful_since` is when an event was sent before with an unknown outcome. `acknowledged` is the value
-- that Stripe has acknowledged for the same organisation, hour and measure.
--
-- An event that has been doubtful for more than :doubt_seconds seconds stays so, however this attempt ends.
--
-- :rows_max  events at most   :lease_seconds  seconds until they are due again
-- :doubt_seconds  seconds
WITH due AS MATERIALIZED (
    SELECT e.org_id, e.hour, e.measure, e.part, e.attempted_at
    FROM stripe_meter_events AS e
    WHERE e.status = 'pending' AND e.due_at <= now()
    ORDER BY e.due_at, e.hour
    LIMIT :rows_max::integer
    FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE stripe_meter_events AS e
    SET attempts = e.attempts + 1,
        attempted_at = CASE
            WHEN d.attempted_at < now() - :doubt_seconds::double precision * interval '1 second'
            THEN d.attempted_at ELSE now()
        END,
        due_at = now() + :lease_seconds::double precision * interval '1 second'
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
