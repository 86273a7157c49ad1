-- Set an organisation's plan to its best subscription: an active one, if there is one, else the one
-- that changed last. Notifies every cache with the commit.
--
-- $1 org, $2 the active states, $3 the channel
WITH best AS (
    SELECT s.status, s.changed_at FROM stripe_subscriptions AS s
    WHERE s.org_id = $1
    ORDER BY s.status = ANY ($2::text[]) DESC, s.changed_at DESC, s.subscription_id
    LIMIT 1
),
changed AS (
    UPDATE orgs AS o
    SET subscription = b.status, subscription_changed_at = b.changed_at
    FROM best AS b
    WHERE o.org_id = $1
    RETURNING o.org_id
)
SELECT pg_notify($3, 'org:' || c.org_id) FROM changed AS c
