-- Record that an event was applied; no row if it already was. Deletes records of events that Stripe
-- stopped resending long ago.
--
-- $1 org, $2 event
WITH forgotten AS (
    DELETE FROM stripe_events WHERE org_id = $1 AND received_at < now() - interval '30 days'
)
INSERT INTO stripe_events (org_id, event_id) VALUES ($1, $2)
ON CONFLICT (org_id, event_id) DO NOTHING
RETURNING event_id
