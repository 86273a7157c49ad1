-- Link an organisation with its customer at Stripe. An existing link is kept, unless $3.
UPDATE orgs SET stripe_customer = $2
WHERE org_id = $1 AND (stripe_customer IS NULL OR $3::boolean)
