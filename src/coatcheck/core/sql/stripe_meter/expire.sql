-- Give up events that are older than Stripe accepts. Walks stripe_meter_events_due.
--
-- $1 days that Stripe accepts them for
UPDATE stripe_meter_events AS e SET status = 'expired', ended_at = now()
WHERE e.status = 'pending' AND e.hour + interval '1 hour' < now() - $1::integer * interval '1 day'
RETURNING e.org_id, e.hour, e.measure, e.value
