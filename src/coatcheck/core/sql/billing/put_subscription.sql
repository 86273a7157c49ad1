-- Apply an event to a subscription, unless a later event was applied already: events arrive in any
-- order. Their times are whole seconds; within one, `rank` decides. Rank 0 only creates the row.
--
-- $1 org, $2 subscription, $3 status, $4 time of the event, $5 rank
INSERT INTO stripe_subscriptions AS s (org_id, subscription_id, status, changed_at, rank)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (org_id, subscription_id) DO UPDATE
SET status = excluded.status, changed_at = excluded.changed_at, rank = excluded.rank
WHERE excluded.rank > 0 AND (excluded.changed_at, excluded.rank) >= (s.changed_at, s.rank)
