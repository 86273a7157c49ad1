-- Note that an event was taken in; no row comes back if it was before. Those that Stripe has long
-- stopped sending again are forgotten.
--
-- $1 org, $2 event
WITH forgotten AS (
    DELETE FROM stripe_events WHERE org_id = $1 AND received_at < now() - interval '30 days'
)
INSERT INTO stripe_events (org_id, event_id) VALUES ($1, $2)
ON CONFLICT (org_id, event_id) DO NOTHING
RETURNING event_id
