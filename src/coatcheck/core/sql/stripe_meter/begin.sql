-- Record from which hour on usage is sent, for organisations that have a customer at Stripe for the
-- first time. Walks orgs_stripe_customer.
UPDATE orgs SET stripe_metered_from = date_trunc('hour', now(), 'UTC')
WHERE stripe_customer IS NOT NULL AND stripe_metered_from IS NULL
