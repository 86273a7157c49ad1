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
